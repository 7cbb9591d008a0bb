"""The manifest of what the service was seen to do, and `make fidelity`, which tries it."""

from __future__ import annotations

import fnmatch
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.recording import Blanks
from localvertex.runner import RunOptions
from tests.support.tools import REPOSITORY
from tests.support.web import http
from tools import fidelity_page
from tools.fidelity import manifest, mutation, prices, score
from tools.fidelity.breakages import ASKED, BREAKAGES, CONTROL
from tools.fidelity.command import command, starting
from tools.fidelity.judge import DIFFERS, SAME, Verdict, judge
from tools.fidelity.manifest import (
    AREAS,
    DOCUMENTED,
    RECORDED,
    UNLINKED,
    FactSource,
    Manifest,
    ManifestError,
    ManifestRow,
)
from vertexrig import cli
from vertexrig.project.model import LocalImage

OURS = manifest.load()
GOOD: dict[str, Any] = {
    "id": "a-row", "area": "answer", "holds": "It holds", "source": "page-1", "tried": "REST",
    "ask": {"api": "vertex", "path": "/v1"}, "probe": "status", "expect": {"const": 200},
}  # fmt: skip
SOURCE = {"id": "page-1", "kind": "page", "where": "example.com", "date": "2026-11-21"}


def written(folder: Path, *rows: dict[str, Any], sources: list[dict[str, Any]] | None = None) -> Path:
    """A manifest of these rows."""
    (folder / "rows").mkdir(parents=True)
    (folder / "rows/some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sources.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sources or [SOURCE]))
    return folder


# the manifest


def test_there_are_enough_rows_of_every_area() -> None:
    """At least 150 rows, and some of each area; every one is tried in a known way."""
    assert len(OURS.rows) >= 150
    assert {row.area for row in OURS.rows} == set(AREAS)


def test_every_source_is_outside_this_repository_and_used() -> None:
    """No source is of ours, and none is left over."""
    assert [one.where for one in OURS.sources.values() if "vertexrig" in one.where.lower()] == []
    assert {source.id for row in OURS.rows for source in row.sources} == set(OURS.sources)


def test_rows_hold_facts_and_nothing_personal() -> None:
    """A row is short, on one line, and has no id, project, address or e-mail of anybody."""
    for file in sorted((OURS.folder / "rows").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            assert len(row["holds"]) < 200, row["id"]
            request = json.dumps(row.get("ask", ""))
            assert not re.search(r"ya29|@(?!type)|qwiklabs|\b(?!1234567890123456789|123456789012)\d{12,}\b", request), (
                row["id"]
            )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": ""}, "it has no source"),
        ({"source": "nowhere"}, "sources.jsonl has no 'nowhere'"),
        ({"area": "weather"}, "area 'weather' is none of request"),
        ({"tried": "telepathy"}, "tried 'telepathy' is none of REST"),
        ({"id": "A Row"}, "is not words of small letters"),
        ({"holds": ""}, "it does not say what holds"),
        ({"run": "plain"}, "it needs either run or ask"),
        ({"probe": "a["}, "is not JMESPath"),
        ({"expect": {"type": "thing"}}, "is not a JSON Schema"),
        ({"expect": {}}, "so that the row cannot fail"),
        ({"expects": 1}, "unknown keys expects"),
        ({"expect": {"pattern": "^job"}}, "pattern '^job' is not of a whole text"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The refusal names the file, the line and the rule."""
    folder = written(tmp_path / "m", {**GOOD, "id": "first"}, {**GOOD, **change})
    with pytest.raises(ManifestError, match=f"some.jsonl:2: .*{re.escape(said)}"):
        manifest.load(folder)


def test_an_id_is_there_once(tmp_path: Path) -> None:
    """A second row of the same id is refused."""
    with pytest.raises(ManifestError, match="some.jsonl:2: the id 'a-row' is there already"):
        manifest.load(written(tmp_path / "m", GOOD, GOOD))


@pytest.mark.parametrize("change", [{"date": ""}, {"date": "lately"}, {"where": ""}, {"kind": "rumour"}])
def test_a_source_has_kind_place_and_date(change: dict[str, str], tmp_path: Path) -> None:
    """A source without them is refused."""
    with pytest.raises(ManifestError, match="sources.jsonl:1"):
        manifest.load(written(tmp_path / "m", GOOD, sources=[{**SOURCE, **change}]))


@pytest.mark.parametrize("where", ["outputs of notebooks, backing LRO", "owner/name: outputs", "owner/name"])
def test_a_recording_can_be_opened_or_is_unlinked(where: str, tmp_path: Path) -> None:
    """A recording without a path, an issue or a page is refused, unless it says that it is not linked."""
    seen = {**SOURCE, "kind": "recording", "where": where}
    with pytest.raises(ManifestError, match="sources.jsonl:1: where .* is no path, issue or page"):
        manifest.load(written(tmp_path / "m", GOOD, sources=[seen]))
    assert manifest.load(written(tmp_path / "n", GOOD, sources=[{**seen, "linked": False}])).rows


def test_a_place_is_one_source(tmp_path: Path) -> None:
    """Two sources of one file or issue would count twice: they are one, with the cells of both."""
    sources = [
        {**SOURCE, "kind": "recording", "where": "a/b, c.ipynb, cell 1"},
        {**SOURCE, "id": "page-2", "kind": "recording", "where": "a/d issue 2; a/b, c.ipynb, cells 2, 3"},
    ]
    with pytest.raises(ManifestError, match="sources.jsonl:2: a/b, c.ipynb is another source already"):
        manifest.load(written(tmp_path / "m", GOOD, sources=sources))


def test_a_recording_has_the_day_that_its_place_names() -> None:
    """A source's date is that of the recording where it is known, not the day of collecting."""
    for one in OURS.sources.values():
        for day in re.findall(r" of (\d{4}-\d\d-\d\d)", one.where):
            assert one.date == day, one.id


def test_the_first_time_score_counts_each_source_once() -> None:
    """Sources of those rows are either further ones or known already."""
    found = {source.id for row in OURS.rows if row.id.startswith("found-") for source in row.sources}
    assert OURS.first["sources"] + OURS.first["known"] == len(found)


@pytest.mark.parametrize(
    ("sources", "evidence"),
    [
        ([("page", True)], DOCUMENTED),
        ([("page", True), ("error report", True)], RECORDED),
        ([("page", True), ("recording", False)], DOCUMENTED),
        ([("recording", False)], UNLINKED),
    ],
)
def test_what_a_row_is_known_from_is_what_a_reader_can_open(sources: list[tuple[str, bool]], evidence: str) -> None:
    """A recording counts where its source can be opened; a row none of whose sources can be is unlinked."""
    known = tuple(FactSource("s", kind, "where", "2026-11-23", linked) for kind, linked in sources)
    assert ManifestRow("r", "log", "h", known, "REST", "s", None, "a", False).evidence == evidence


def test_what_nobody_knows_can_be_recorded() -> None:
    """There are 15 such facts, and each row that their commands name is there."""
    assert len(OURS.unknown) == 15
    ids = [row.id for row in OURS.rows]
    for one in OURS.unknown:
        for pattern in re.findall(r"--row '?([a-z*-]+)", one["command"]):
            assert fnmatch.filter(ids, pattern), one["fact"]


def test_an_index_id_is_no_link() -> None:
    """A source that is named by the id of an index alone is not counted as one that a reader can open."""
    assert [one.id for one in OURS.sources.values() if re.match(r"(a )?public ", one.where) and one.linked] == []


def test_rows_that_have_moved_are_named(tmp_path: Path) -> None:
    """A row that came out another way than the accepted one is named, and a new one."""
    held = manifest.load(written(tmp_path / "m", GOOD, {**GOOD, "id": "b-row"}))
    (held.folder / "score.json").write_text(json.dumps({"rows": ["a-row"], "differs": [], "not_tried": []}))
    found = [Verdict(row, DIFFERS) for row in held.rows]
    assert score.moved(held, found) == ["a-row: same before, differs now", "b-row: new, differs"]


def test_every_row_can_fail() -> None:
    """Every row differs where nothing came, also one that expects a field not to be there."""
    assert [row.id for row in OURS.rows if judge(row, {}).result != DIFFERS] == []


# expectations


def row_of(probe: str, expect: Any) -> ManifestRow:
    return ManifestRow("r", "answer", "h", (), "REST", "s", None, probe, expect)


@pytest.mark.parametrize(
    ("probe", "expect", "result"),
    [
        ("a", {"const": 1}, SAME),
        ("a", {"const": "1"}, DIFFERS),
        ("held.missing", False, SAME),
        ("missing.field", False, DIFFERS),
        ("held.there", False, DIFFERS),
        ("texts", {"inOrder": ["^one", "^three"]}, SAME),
        ("texts", {"inOrder": ["^three", "^one"]}, DIFFERS),
        ("missing", {"inOrder": ["x"]}, DIFFERS),
        ("texts", {"noneMatches": "^four"}, SAME),
        ("texts", {"noneMatches": "^two"}, DIFFERS),
        ("length(missing)", {"const": 0}, DIFFERS),
        ("texts[0]", {"includes": "n"}, SAME),
        ("texts[0]", {"includes": "^n"}, DIFFERS),
        ("a", {"includes": "1"}, DIFFERS),
    ],
)
def test_an_expectation_is_held(probe: str, expect: Any, result: str) -> None:
    """JSON Schema, `false`, and the two keywords for lists of text."""
    assert (
        judge(row_of(probe, expect), {"a": 1, "held": {"there": 1}, "texts": ["one", "two", "three"]}).result == result
    )


def test_blanked_recordings_keep_their_form_only() -> None:
    """Ids, numbers, tokens, e-mail addresses, hosts, folders and the project's own names are replaced."""
    seen = {
        "name": "projects/116273516712/locations/us-central1/customJobs/3216493723709865984",
        "by": "someone@example.com", "auth": "Bearer ya29.a0Af-x", "access_token": "s3cret",
        "host": "cmle-training-workerpool0-99ab039ae0-0:2222", "node": "gk3-cml-0221-054317-2fe2",
        "path": "/home/me/x.py", "uri": "gs://secret-bucket/p", "url": "http://10.12.0.81:8080/", "kept": "n1-standard-4",
        "time": "2026-11-21T20:51:50.116378Z", "list": [80, "80"],
    }  # fmt: skip
    assert Blanks({"secret-bucket": "<bucket>"})(seen) == {
        "name": "projects/<number>/locations/us-central1/customJobs/<id 1>",
        "by": "<email>", "auth": "<token>", "access_token": "<secret>",
        "host": "cmle-training-workerpool0-<cluster>-0:2222", "node": "<host>",
        "path": "<path>", "uri": "gs://<bucket>/p", "url": "http://<address>/", "kept": "n1-standard-4",
        "time": "2026-11-21T20:51:50.116378Z", "list": [80, "80"],
    }  # fmt: skip


# the whole


def call(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    """`make fidelity` with these words: exit code, its JSON document, stderr."""
    capsys.readouterr()
    code = cli.run([*words, "--format", "json"], command=command)
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any], str]:
    """All rows tried on a local Vertex of their own: exit code, document and recording."""
    file = tmp_path_factory.mktemp("tried") / "seen.jsonl"
    held = tmp_path_factory.mktemp("out") / "result.json"
    before = sys.stdout
    with held.open("w") as out:
        sys.stdout = out
        try:
            code = cli.run(["--recording", str(file), "--format", "json"], command=command)
        finally:
            sys.stdout = before
    return code, json.loads(held.read_text()), file.read_text()


@pytest.mark.whole
def test_every_difference_is_decided_and_published(tried: tuple[int, dict[str, Any], str]) -> None:
    """The rows that differ are those of fidelity/score.json, each with a decision: run `make fidelity ACCEPT=1`."""
    code, document, _ = tried
    rows = {row["id"]: row for row in document["rows"]}
    published = score.kept(OURS)
    known = {one["id"] for one in published["differs"]}
    assert {id for id, row in rows.items() if row["result"] == "differs"} == {
        id for id in known if rows[id]["result"] != "not tried"
    }
    assert [id for id in known if not OURS.decided(id)] == []
    assert code == 0


@pytest.mark.whole
def test_the_score_is_the_sum_of_its_areas(tried: tuple[int, dict[str, Any], str]) -> None:
    """Each row counts once, and the percentage is of those that were tried."""
    *areas, all_ = tried[1]["areas"]
    assert all_["rows"] == len(OURS.rows) == sum(one["rows"] for one in areas)
    assert all_["percent"] == round(100 * all_["same"] / (all_["same"] + all_["differs"]), 1)


@pytest.mark.whole
def test_the_recording_has_every_exchange_and_nobodys_names(tried: tuple[int, dict[str, Any], str]) -> None:
    """Each request of each script and row is there with its answer; bucket, project and ids are not."""
    lines = [json.loads(line) for line in tried[2].splitlines()]
    assert {"run", "step", "request", "answer"} == set(lines[0])
    assert {row.id for row in OURS.rows if row.ask} <= {line["run"] for line in lines}
    assert not re.search(r"my-project|fidelity-bucket|/tmp/|customJobs/\d|127\.0\.0\.1", tried[2])


def test_the_page_is_what_the_result_says() -> None:
    """docs/fidelity.md is current: `make reference` writes it."""
    assert (REPOSITORY / "docs/fidelity.md").read_text(encoding="utf-8") == fidelity_page.page()


@pytest.mark.whole
def test_rows_notice_breakages_of_the_local_vertex() -> None:
    """Of a sample of the deliberate breakages each is noticed that was noticed when all were tried; the control is not."""
    chosen = [one for one in BREAKAGES if one.name not in OURS.mutation["missed"]][::40]
    with starting() as target:
        found = mutation.noticed(OURS, chosen, target)
    assert found.pop(CONTROL.name) == []
    assert [name for name, rows in found.items() if not rows] == []


def test_the_breakages_are_those_of_the_accepted_result() -> None:
    """Every breakage names something that is there and scripts of the manifest; the accepted result is of all of them."""
    for one in (*BREAKAGES, CONTROL):
        with mutation.broken(one):
            assert set(one.scripts) <= {*OURS.scripts, ASKED}, one.name
    names = [one.name for one in BREAKAGES]
    assert len(set(names)) == len(names) == OURS.mutation["tried"] >= 60
    assert set(OURS.mutation["missed"]) <= set(names)
    workflow = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text())
    assert workflow["jobs"]["breakages"]["steps"][-1]["run"] == "make fidelity MUTATE=1"  # all of them


# the command


def test_a_wrong_row_is_shown_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row that differs and has no decision is shown with what was expected and seen, and the exit code is 1."""
    folder = tmp_path / "manifest"
    shutil.copytree(OURS.folder, folder)
    file = folder / "rows/scheduler.jsonl"
    file.write_text(file.read_text().replace('"const": "180s"', '"const": "181s"'))
    code = cli.run(["--manifest", str(folder), "--row", "deadline-default", "--row", "enabled"], command=command)
    out, err = capsys.readouterr()
    assert code == 1 and "decisions.jsonl says nothing about them: deadline-default" in err
    assert re.search(r"deadline-default \(scheduler, REST\): .*\n  expected  181s\n  seen      180s", out)
    assert re.search(r"^scheduler +2 +1 +1 +0 +50.0 %$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--row", "deadline-defualt"], "there is no row 'deadline-defualt'. Did you mean 'deadline-default'"),
        (["--area", "studies"], "there is no area 'studies'. Did you mean 'study'"),
        (["--against", "cloud"], "--against cloud needs --project"),
        (["--against", "cloud", "--project", "p", "--budget", "0.01"], "and --budget is 0.01"),
        (["--accept", "--area", "study"], "leave --area, --row and --against out"),
        (["--root", "nowhere"], "no local Vertex runs on nowhere"),
    ],
)
def test_wrong_words_are_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and a sentence that names the value and the choices."""
    monkeypatch.chdir(tmp_path)
    code, document, _ = call(words, capsys)
    assert code == 2 and said in document["error"]["message"]


def test_without_credentials_the_cloud_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3 and one sentence, not a traceback."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nothing.json"))
    code, document, _ = call(["--against", "cloud", "--project", "p", "--row", "enabled"], capsys)
    assert code == 3 and "no credentials for storage" in document["error"]["message"]


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[server.RunningServer]:
    """A local Vertex that gcloud's endpoint overrides put in the place of the cloud."""
    image = tmp_path / "image"
    image.mkdir()
    run = RunOptions(grace=0.5, images={"*/vertex-ai/training/tf-*": LocalImage(str(image), ())})
    with server.running(Settings(tmp_path / "state", slots=8, run=run)) as here:
        server.make_bucket(here, "my-own-bucket")
        for name, value in server.env(here, project="somebodys-project").items():
            if name.startswith("CLOUDSDK_"):
                monkeypatch.setenv(name, value)
        yield here


def test_a_dry_run_creates_nothing(cloud: server.RunningServer, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what the rows would create and what that costs at most, and makes no request."""
    words = ["--against", "cloud", "--project", "somebodys-project", "--bucket", "my-own-bucket", "--dry-run"]
    code, document, _ = call(words, capsys)
    assert code == 0 and 0 < document["usd_at_most"] < 5
    made = {one["script"]: one for one in document["creates"]}
    assert made["study"]["jobs"] == 6 and made["study"]["what"] == "hyperparameterTuningJobs"
    assert made["plain"]["usd_at_most"] == pytest.approx(made["study"]["usd_at_most"] / 6, rel=0.01)
    assert "quota" not in made and "stockout" not in made
    assert list((cloud.root / "gs/my-own-bucket").iterdir()) == []


def test_the_rows_run_against_the_cloud(
    cloud: server.RunningServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rows with a project and a bucket; faults are not tried there, and the recording names neither of the two."""
    rows = [
        "name-form",
        "trial-id",
        "created-once",
        "quota-429",
        "accelerator-both",
        "enabled",
        "in-order",
        "cancel-state",
    ]
    words = ["--against", "cloud", "--project", "somebodys-project", "--bucket", "gs://my-own-bucket"]
    chosen = [word for row in rows for word in ("--row", row)]
    code, document, _ = call([*words, *chosen, "--recording", str(tmp_path / "seen.jsonl")], capsys)
    found = {row["id"]: row["result"] for row in document["rows"]}
    differing = found.pop("accelerator-both")
    assert found == {**{row: "same" for row in rows if row != "accelerator-both"}, "quota-429": "not tried"}
    assert code == (1 if differing == "differs" else 0)  # there a difference is always a finding
    text = (tmp_path / "seen.jsonl").read_text()
    assert "somebodys-project" not in text and "my-own-bucket" not in text and "<project>" in text


def test_prices_are_those_of_the_catalog() -> None:
    """A job of one n1-standard-4 with a disk for ten minutes, as `vertexrig explain` prices it."""
    rows = [row for row in OURS.rows if row.run == "plain"]
    (made,) = [one for one in prices.creations(OURS, rows, "us-central1") if one.what == "customJobs"]
    assert made.complete and 0.21849885 / 6 < made.usd < 0.26 / 6


def test_a_manifest_without_a_result_has_no_page(tmp_path: Path) -> None:
    """The page needs a result: `kept` says {} where none was accepted."""
    assert score.kept(Manifest(tmp_path, (), {})) == {}


def test_a_recording_is_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a server recorded comes again from a fresh one; what has changed since is shown with its line and place."""
    file = tmp_path / "seen.jsonl"
    image = tmp_path / "image"
    image.mkdir()
    (image / "main.py").write_text("print('trained')")
    run = RunOptions(images={"*training/tf-*": LocalImage(str(image), (sys.executable, "main.py"))})
    body = {"displayName": "a job", "jobSpec": job_of_one()}
    with server.running(Settings(tmp_path / "state", run=run), record=file) as here:
        root = f"{here.url}{server.AIPLATFORM}/v1"
        name = http.post(f"{root}/projects/some-project/locations/us-central1/customJobs", json=body).json()["name"]
        while not http.get(f"{root}/{name}").json()["state"].endswith(("SUCCEEDED", "FAILED")):
            time.sleep(0.02)
        http.delete(f"{root}/{name}")
        http.get(f"{root}/{name}")
    lines = file.read_text().splitlines()
    first = next(line for line in lines if '"a job"' in line)
    wanted = [first, *(line for line in lines[-3:] if "<id 1>" in line)]
    file.write_text("\n".join(wanted) + "\n")
    code, document, _ = call(["--replay", str(file)], capsys)
    assert (code, document["made"], document["left_out"], document["differs"]) == (0, len(wanted), [], [])
    file.write_text(first.replace("n1-standard-4", "n1-standard-8", 1).replace('"status": 200', '"status": 201') + "\n")
    code, document, _ = call(["--replay", str(file)], capsys)
    assert code == 1
    assert next((one["line"], one["place"], one["recorded"], one["seen"]) for one in document["differs"]) == (
        1,
        "status",
        201,
        200,
    )


def job_of_one() -> dict[str, Any]:
    """A job's spec with a container."""
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1",
        "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest", "command": ["true"]},
    }  # fmt: skip
    return {"scheduling": {"timeout": "600s"}, "workerPoolSpecs": [pool]}


def test_a_server_records_what_a_program_asked(tmp_path: Path) -> None:
    """Every call and its answer is a line of the recording's form, in its order, with each id as the same text."""
    file = tmp_path / "seen.jsonl"
    with server.running(Settings(tmp_path / "state"), record=file) as here:
        parent = f"{here.url}{server.AIPLATFORM}/v1/projects/some-project/locations/us-central1/customJobs"
        http.post(parent, json={"displayName": ""})
        http.get(f"{parent}/1234567890123456789")
        http.get(f"{parent}/1234567890123456789?x=1")
        http.get(f"{here.url}/storage/v1/b/no-such-bucket")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    place = "/v1/projects/<project>/locations/us-central1/customJobs"
    assert [line["request"] for line in lines] == [
        {"api": "vertex", "method": "POST", "path": place, "body": {"displayName": ""}},
        {"api": "vertex", "method": "GET", "path": f"{place}/<id 1>"},
        {"api": "vertex", "method": "GET", "path": f"{place}/<id 1>?x=1"},
        {"api": "storage", "method": "GET", "path": "/storage/v1/b/<bucket>"},
    ]
    assert [line["answer"]["status"] for line in lines] == [400, 404, 404, 404]
    assert "Display name is required" in lines[0]["answer"]["body"]["error"]["message"]
    assert "some-project" not in file.read_text()
