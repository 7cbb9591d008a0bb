"""The HTML report: what is on the page, that nothing in a study can break out of it, and that a browser draws it alone."""

from __future__ import annotations

import copy
import functools
import html
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support import made_studies
from tests.support.browser import chromium
from vertexrig import cli, spec
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.project import config
from vertexrig.results.charts import charts
from vertexrig.results.study import read
from vertexrig.results.timeline import timeline
from vertexrig.studies import report
from vertexrig.studies.cost import spent
from vertexrig.studies.html import insight, page
from vertexrig.studies.reproduce import Reproduction, reproduction
from vertexrig.workspace import Workspace

pytest.importorskip("vl_convert", reason="the extra report is not installed")

PROJECT = {
    "project": "my-project", "region": "us-central1", "bucket": "gs://my-bucket",
    "trainer": {"path": "none", "image": "tf-2.17", "package_uris": ["gs://my-bucket/packages/trainer.tar.gz"]},
    "jobs": {"cpu": {"machine_type": "n1-standard-4"}},
}  # fmt: skip
ODD = """</script><script>alert(1)</script>.x[0]"'\\ é"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the records of four studies: plain, of 1,000 trials, with two goals, and with odd names."""
    folder = tmp_path_factory.mktemp("reports")
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    keep(folder, "plain", 1, made_studies.tuning_job(40))
    keep(folder, "thousand", 2, made_studies.tuning_job(1000, parallel=20, points=20))
    keep(folder, "odd", 4, odd())
    local = made_studies.tuning_job(30, two_goals=True, running=2)
    local["trials"][10]["infeasibleReason"] = f"look at {folder}/.vertexrig/jobs/1/logs"
    keep(folder, "two", 3, local)
    return folder


def keep(folder: Path, name: str, number: int, job: dict[str, Any]) -> None:
    job = {**job, "name": f"{made_studies.NAME}{number}"}
    job.setdefault("displayName", name)
    made_studies.keep(folder, job, name=name)


def odd() -> dict[str, Any]:
    """A study whose parameter, metric, display name, values and reasons are made to break a page."""
    job = json.loads(
        json.dumps(made_studies.tuning_job(14, points=3))
        .replace('"learning_rate"', json.dumps(ODD))
        .replace('"accuracy"', json.dumps(f"{ODD} metric"))
        .replace('"adam"', json.dumps(f"{ODD} value"))
    )
    job["displayName"] = ODD
    for trial in job["trials"]:
        if trial["state"] == "INFEASIBLE":
            trial["infeasibleReason"] = f"{ODD} reason\x1b[31m\u2028"
    found: dict[str, Any] = job
    return found


def run(project: Path, *words: str, fails: type[Exception] | None = None) -> Result:
    done = CliRunner().invoke(cli.vertexrig, [*words, "--file", str(project / "vertexrig.yaml")])
    if fails is None:
        assert done.exit_code == 0, (done.output, done.exception)
    else:
        assert isinstance(done.exception, fails), (done.output, done.exception)
    return done


@pytest.fixture(scope="module")
def pages(project: Path) -> Callable[[str], Path]:
    """Makes the page of a study, once."""

    @functools.cache
    def made(name: str) -> Path:
        file = project / f"{name}.html"
        run(project, "report", ODD if name == "odd" else name, "--local", "-o", str(file))
        return file

    return made


def text_of(page: Path) -> str:
    """What a reader sees of a page, without scripts and tags."""
    body = page.read_text(encoding="utf-8").partition("<body>")[2].partition('<script type="application/json"')[0]
    return html.unescape(re.sub(r"<[^>]+>", " ", body))


@pytest.mark.whole
def test_a_page_says_what_happened(pages: Callable[[str], Path]) -> None:
    """Best value, trials, parallelism, reasons of failures, cost as an estimate, and the commands are in the text."""
    text = text_of(pages("plain"))
    for part in ("40 of 40", "3 infeasible", "of 4 asked for", "Replicas low on memory", "an estimate", "NVIDIA_TESLA_T4",
                 "gcloud ai hp-tuning-jobs create --project=my-project", "--learning_rate=", "only some trials have it"):  # fmt: skip
        assert part in text, part


def test_the_commands_keep_any_yaml(tmp_path: Path) -> None:
    """A YAML with the very line that ends the script's text reaches its file whole, in a real shell."""
    text = "args: |\n  one\nEND_OF_JOB\nEND_OF_JOB_\nrm: two\n"
    script = Reproduction(text, "true", "job.yaml", "").script
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
    assert (tmp_path / "job.yaml").read_text() == text


def test_the_commands_create_the_same_job(pages: Callable[[str], Path]) -> None:
    """The YAML on the page is what gcloud takes: read strictly it is the job's own study, trials and package."""
    script = text_of(pages("plain")).partition("cat > ")[2]
    written = script.partition("\n")[2].partition("END_OF_JOB")[0]
    document = spec.parse(written, file="page", kind="HyperparameterTuningJob")
    job = made_studies.tuning_job(40)
    assert [finding for finding in document.findings if finding.severity.value == "error"] == []
    assert document.data["maxTrialCount"] == 40
    assert [own["parameterId"] for own in document.data["studySpec"]["parameters"]] == [
        own["parameterId"] for own in job["studySpec"]["parameters"]
    ]
    assert document.pools[0].package_uris == ["gs://my-bucket/packages/trainer-0123.tar.gz"]


def test_a_thousand_trials_fit(pages: Callable[[str], Path]) -> None:
    """A page of 1,000 trials with 20 measurements each is at most 5 MB."""
    assert pages("thousand").stat().st_size <= 5_000_000
    assert "1000 of 1000" in text_of(pages("thousand"))


def test_odd_names_stay_text(pages: Callable[[str], Path]) -> None:
    """Names, values and reasons with markup appear as text; the page has its own three scripts and no other."""
    page = pages("odd").read_text(encoding="utf-8")
    assert page.count("</script>") == 3 and "<script>alert" not in page
    assert ODD in text_of(pages("odd")) and f"{ODD} reason\ufffd[31m" in text_of(pages("odd"))


def test_no_machine_path_is_on_a_page(pages: Callable[[str], Path], project: Path) -> None:
    """A page can be sent to others: it does not have the paths of this machine."""
    assert str(project) not in pages("two").read_text(encoding="utf-8")
    assert "look at ./.vertexrig/jobs/1/logs" in text_of(pages("two"))


@pytest.mark.whole
def test_the_suffix_or_the_format_decides(project: Path, tmp_path: Path) -> None:
    """`.html` makes HTML, `--format html` too; Markdown and JSON stay what they were."""
    name = tmp_path / "page.html"
    assert run(project, "report", "plain", "--local", "--format=html").stdout.startswith("<!doctype html>")
    run(project, "report", "plain", "--local", "--format=markdown", "-o", str(name))
    assert name.read_text().startswith("# ")
    data = json.loads(run(project, "report", "plain", "--local", "--format=json", "-o", str(name)).stdout)
    assert data["path"] == str(name) and len(data["trials"]) == 40
    assert name.read_text().startswith("<!doctype html>")


def changed(**more: Any) -> dict[str, Any]:
    job = made_studies.tuning_job(12)
    job.update(more)
    return job


def spoiled(job: dict[str, Any], value: Any) -> dict[str, Any]:
    """The study with this as every trial's final value; None leaves the measurement out."""
    for trial in job["trials"]:
        trial.pop("measurements", None)
        trial["finalMeasurement"] = {"metrics": [{"metricId": "accuracy", "value": value}]} if value is not None else {}
    return job


def infeasible(job: dict[str, Any]) -> dict[str, Any]:
    for trial in job["trials"]:
        trial |= {"state": "INFEASIBLE", "infeasibleReason": "out of memory"}
        trial.pop("finalMeasurement", None)
    return job


def outside(job: dict[str, Any]) -> dict[str, Any]:
    job = copy.deepcopy(job)
    job["trials"][0]["parameters"][0]["value"] = 5.0
    return job


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (changed(trials=[]), "The study has not begun"),
        (changed(trials=made_studies.tuning_job(1)["trials"]), "One trial counts"),
        (infeasible(changed()), "No trial succeeded with a finite value of accuracy"),
        (spoiled(changed(), "NaN"), "No trial succeeded with a finite value of accuracy"),
        (spoiled(changed(), None), "no finite value of accuracy"),
        (spoiled(changed(), 0.5), "Every trial reported the same value"),
        (outside(changed()), "1 trial has a value of learning_rate outside the study's range, such as 5"),
        (changed(trials=made_studies.tuning_job(12, points=1)["trials"]), "no more than one measurement"),
    ],
)
def test_poor_studies_have_a_page_and_a_sentence(tmp_path: Path, job: dict[str, Any], sentence: str) -> None:
    """A study that has not begun, has one trial, or nothing that counts: the page says so, and the file is whole."""
    (tmp_path / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    keep(tmp_path, "poor", 9, {**job, "displayName": "poor"})
    page = tmp_path / "poor.html"
    run(tmp_path, "report", "poor", "--local", "-o", str(page))
    assert sentence in " ".join(text_of(page).split())
    assert page.read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_a_custom_job_has_a_page_without_charts(tmp_path: Path) -> None:
    """Its state, how long it ran, its cost and its command; no library, since there is nothing to draw."""
    (tmp_path / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    job = {
        "name": "projects/my-project/locations/us-central1/customJobs/77", "displayName": "cpu",
        "state": "JOB_STATE_FAILED", "jobSpec": made_studies.TRIAL_SPEC, "error": {"code": 3, "message": "no <b> memory"},
        "createTime": "2026-11-20T10:00:00Z", "startTime": "2026-11-20T10:03:00Z", "endTime": "2026-11-20T11:03:00Z",
    }  # fmt: skip
    made_studies.keep(tmp_path, job, name="cpu")
    page = tmp_path / "cpu.html"
    run(tmp_path, "report", "cpu", "--local", "-o", str(page))
    text = text_of(page)
    for part in ("FAILED custom job", "1 h", "no <b> memory", "gcloud ai custom-jobs create", "$0.87"):
        assert part in text, part
    assert page.stat().st_size < 40_000


# ---- in a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [("plain", 390, "dark"), ("two", 1400, "dark"), ("odd", 390, "light"), ("thousand", 1400, "light")],
)  # fmt: skip
def test_a_browser_draws_every_chart_and_asks_for_nothing(
    browser: Any, pages: Callable[[str], Path], name: str, width: int, scheme: str
) -> None:
    """Every chart is drawn with marks in it, the page is not wider than the window, no request leaves and nothing is logged."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    troubles: list[str] = []
    page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("dialog", lambda dialog: (troubles.append("a dialog"), dialog.dismiss()))
    page.on("request", lambda request: troubles.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(pages(name).as_uri())
    places = page.locator("[data-chart]")
    assert places.count() >= 12
    for at in range(places.count()):
        places.nth(at).scroll_into_view_if_needed()
        page.wait_for_function(
            "at => ['yes', 'failed'].includes(document.querySelectorAll('[data-chart]')[at].dataset.drawn)", arg=at
        )
        assert places.nth(at).evaluate(_MARKS) > 0, places.nth(at).get_attribute("data-chart")
    assert troubles == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_nothing_is_cut_at_390_pixels(browser: Any, pages: Callable[[str], Path]) -> None:
    """On a telephone every link of the sections and every cell is in the window, and a chart says that it is being drawn."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages("plain").as_uri())
    right = "all => Math.max(...all.map((one) => one.getBoundingClientRect().right))"
    for what in ("nav a", "#trials td", "#cost td", "header.top span"):
        assert 100 < page.locator(what).evaluate_all(right) <= 390, what
    waits = "getComputedStyle(document.querySelector('#chart-spans'), '::before').content"
    assert "Drawing" in page.evaluate(waits)
    page.locator("#chart-spans").scroll_into_view_if_needed()
    page.locator("#chart-spans svg").wait_for()
    assert page.evaluate(waits) == "none"
    page.close()


@pytest.mark.parametrize("many", [1, 4, 13, 40, 1000])
def test_the_axis_of_trials_has_whole_numbers(many: int) -> None:
    """From 1 trial on the axis begins before the first and ends after the last, and each of its ticks is the number of a trial."""
    study = read(RemoteJob(made_studies.tuning_job(many)))
    x = charts(study, timeline(study)).sections["history"][0].spec["layer"][0]["encoding"]["x"]
    assert x["scale"]["domain"] == [0.5, many + 0.5] and x["axis"]["format"] == "d"
    ticks = x["axis"]["values"]
    assert 1 <= len(ticks) <= 12 and set(ticks) <= set(range(1, many + 1))
    assert many != 4 or ticks == [1, 2, 3, 4]


def test_drawn_ticks_are_whole_numbers(browser: Any, pages: Callable[[str], Path]) -> None:
    """What a browser writes below the trials' axis, and beside the number of trials at one time, are whole numbers."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(pages("plain").as_uri())
    for chart, axis, most in (("history-0", "X-axis", 40), ("running", "Y-axis", 4)):
        page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
        labels = page.locator(f"#chart-{chart} [aria-label^='{axis}'] .role-axis-label text")
        labels.first.wait_for()
        found = [int(text) for text in labels.all_text_contents()]
        assert found == sorted(found) and found[-1] == most, chart
    page.close()


# Marks of an SVG, or coloured pixels of a canvas.
_MARKS = """place => {
  const canvas = place.querySelector("canvas");
  if (!canvas) return place.querySelectorAll("svg .role-mark path, svg .role-mark text, svg .role-mark line").length;
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return pixels.filter((value, at) => at % 4 === 3 && value > 0).length;
}"""


def test_the_page_works_with_the_keyboard(browser: Any, pages: Callable[[str], Path]) -> None:
    """The first Tab leads to the content, a heading sorts its table, and the slider leaves lines out."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(pages("plain").as_uri())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    heading = page.locator("#trials thead button", has_text="units")
    heading.focus()
    page.keyboard.press("Enter")
    column = page.locator("#trials tbody tr td:nth-child(5)").all_inner_texts()
    assert [int(cell) for cell in column] == sorted(int(cell) for cell in column)
    page.locator("#chart-parallel").scroll_into_view_if_needed()
    slider = page.locator("#chart-parallel input[type=range]")
    slider.wait_for()
    lines = "#chart-parallel svg .mark-line path"
    before = page.locator(lines).count()
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function("([lines, before]) => document.querySelectorAll(lines).length < before", arg=[lines, before])
    page.close()


def test_no_button_covers_anything(browser: Any, pages: Callable[[str], Path]) -> None:
    """On a telephone of 390 pixels buttons lie beside the links of the sections and beside the text that they copy."""
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(pages("plain").as_uri())
    covered = """([button, beside]) => {
      const [a, b] = [document.querySelector(button), document.querySelector(beside)].map((one) => one.getBoundingClientRect());
      return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    }"""
    for button, beside in (("#theme", ".links"), (".copied > button", ".copied > pre")):
        assert not page.evaluate(covered, [button, beside]), button
    page.close()


@pytest.mark.parametrize("name", ["plain", "thousand"])
@pytest.mark.whole
def test_a_print_has_every_chart_whole(browser: Any, pages: Callable[[str], Path], name: str) -> None:
    """A sheet that is narrower than the window shows every chart, also those that nobody has scrolled to, up to its right edge."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(pages(name).as_uri())
    page.evaluate(f"""() => addEventListener("afterprint", () => {{
      const marks = {_MARKS};
      window.printed = [...document.querySelectorAll("[data-chart]")].map(marks);
    }})""")
    page.pdf()
    printed = page.evaluate("window.printed")
    assert len(printed) >= 12 and all(printed), printed
    page.emulate_media(media="print")
    beyond = """() => {
      document.body.style.width = "700px";  // no event tells the charts
      const drawn = [...document.querySelectorAll(".chart > svg, .chart > canvas, table, pre")];
      return drawn.filter((one) => one.getBoundingClientRect().right > 700 || one.scrollHeight > one.clientHeight + 40).length;
    }"""
    assert page.evaluate(beyond) == 0
    page.close()


def test_a_run_of_a_local_vertex_says_so(project: Path) -> None:
    """A job that a local Vertex ran is none of Vertex AI, in both formats, and its resource name is there once."""
    job = RemoteJob({**made_studies.tuning_job(9), "name": f"{made_studies.NAME}9", "displayName": "here"})
    console = f"http://127.0.0.1:8642/#/jobs/{job.name}"
    cost = spent(job, Workspace(config.load(project / "vertexrig.yaml")).catalog)
    shown = page(
        job, insight(job), cost=cost, reproduction=reproduction(job, project="my-project", again=""), console=console
    ).partition("<body>")[2]
    for text in (shown, report.page(job, console)):
        assert "he local Vertex" in text and "not on Vertex AI" in text and "http://127.0.0.1:8642" in text
        assert text.count(job.name) == 1
    assert "nothing was paid for it" in shown
    elsewhere = page(
        job,
        insight(job),
        cost=cost,
        reproduction=reproduction(job, project="my-project", again=""),
        console="https://console.cloud.google.com/x",
    )
    assert "on Vertex AI</span> · " in elsewhere and "nothing was paid" not in elsewhere
