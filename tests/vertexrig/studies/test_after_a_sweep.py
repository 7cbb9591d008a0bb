"""From a sweep that ran on the local Vertex to the next one, to a full job, and to the Model Registry, by the verbs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support import clouds
from tests.support.refusals import Way, way
from tests.support.tools import typed
from vertexrig.cloud import models
from vertexrig.cloud.models import ModelsClient
from vertexrig.project.local import LocalImage
from vertexrig.spec.labels import users

PROGRAM = """
import argparse, json, os
import hypertune
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
parser.add_argument("--units", type=float, default=8)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--data", default="")
parser.add_argument("--warm_start_from", default="")
args = parser.parse_args()
if args.warm_start_from:
    assert os.path.isfile(os.path.join(args.warm_start_from, "saved_model.pb")), args
accuracy = 1 - abs(args.lr - 0.4) + 0.001 * args.units + 0.01 * args.epochs
folder = os.environ["AIP_MODEL_DIR"]
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "saved_model.pb"), "w") as file:
    file.write("a stand-in")
with open(os.path.join(folder, "summary.json"), "w") as file:
    json.dump({"accuracy": accuracy, "epochs": args.epochs, "warm": args.warm_start_from}, file)
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", accuracy, global_step=1)
"""
IMAGE = "us-docker.pkg.dev/my-project/images/{}:1"
PROJECT = f"""# what we train
project: my-project
region: us-central1
bucket: gs://my-bucket # ours
labels: {{team: vision}}
trainer: {{path: image/main.py, module: main, image: sklearn-1.6}}

jobs:
  quick: # the small one
    machine_type: n1-standard-4
    timeout: 600s
    container: {{image_uri: "{IMAGE.format("quick")}"}}
    args: {{data: digits}}

sweeps:
  tune:
    job: quick
    max_trial_count: 6
    parallel_trial_count: 3
    study:
      metrics: {{accuracy: MAXIMIZE}}
      algorithm: RANDOM_SEARCH
      parameters:
        lr: {{double_value_spec: {{min_value: 0.1, max_value: 0.9}}}}
        units: {{discrete_value_spec: {{values: [8, 16, 32]}}}} # of the dense layer

# the end
local: {{images: {{"*quick*": {{path: image, command: [{json.dumps(sys.executable)}, main.py]}}}}}}
"""


class Place:
    """A project folder with a local Vertex, and the way to it."""

    def __init__(self, folder: Path, here: server.RunningServer, way: Way) -> None:
        self.folder, self.here, self.way = folder, here, way
        self.file = folder / "vertexrig.yaml"

    def models(self) -> list[list[dict[str, Any]]]:
        """The versions of each model of the registry, the first one first."""
        client = ModelsClient(clouds.vertex(self.here))
        names = [row["name"] for row in client.rest.call("GET", f"/{client.parent}/models").data.get("models", [])]
        return [sorted(client.versions(name), key=lambda row: int(row["versionId"])) for name in names]

    def forget_models(self) -> None:
        rest = clouds.vertex(self.here).rest
        for versions in self.models():
            rest.call("DELETE", f"/{versions[0]['name'].partition('@')[0]}")

    def run(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """A verb with --format json, in the project's folder: its exit code, its document, and what it says on stderr."""
        done = typed(*words, "--format=json", cwd=self.folder)
        return done.exit_code, done.document, done.stderr

    def ended(self, name: str, within: float = 120) -> None:
        vertex = clouds.vertex(self.here)
        until = time.monotonic() + within
        while (found := vertex.get(name)) is None or not found.ended:
            assert time.monotonic() < until, found
            time.sleep(0.1)
        assert found.state == "JOB_STATE_SUCCEEDED", found.data


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The project, after its sweep `tune` has ended on the local Vertex."""
    folder = tmp_path_factory.mktemp("after")
    (folder / "vertexrig.yaml").write_text(PROJECT)
    (folder / "image").mkdir()
    (folder / "image/main.py").write_text(PROGRAM)
    images = {"*quick*": LocalImage(folder / "image", (sys.executable, "main.py"))}
    settings = Settings(folder / "vertex", slots=3, options=RunOptions(grace=0.5, images=images))
    with server.running(settings) as here, pytest.MonkeyPatch.context() as patch:
        with way(f"{here.url}{server.AIPLATFORM}") as (url, passed):
            for name, value in {**server.env(here, project="my-project"), "VERTEXRIG_AIPLATFORM": url}.items():
                patch.setenv(name, value)
            (folder / "vertex/gs/my-bucket").mkdir(parents=True, exist_ok=True)
            made = Place(folder, here, passed)
            code, document, said = made.run("submit", "tune", "--no-budget")
            assert code == 0, said
            made.ended(document["name"])
            yield made


@pytest.fixture
def fresh(place: Place) -> Iterator[Place]:
    """The same with its first project file and an empty registry."""
    place.file.write_text(PROJECT)
    place.forget_models()
    place.way.refusals.clear()
    place.way.slow = False
    yield place
    place.file.write_text(PROJECT)


def added(text: str) -> list[str]:
    """The lines that a project file has more than at first; every first line is still there, in order."""
    first, more = PROJECT.splitlines(), []
    for line in text.splitlines():
        if first and line == first[0]:
            first.pop(0)
        else:
            more.append(line)
    assert first == []
    return more


@pytest.mark.whole
def test_follow_up_writes_a_sweep_that_runs(fresh: Place) -> None:
    """The new sweep is written with its reasons, and runs on the local Vertex."""
    code, document, said = fresh.run("follow-up", "tune", "--grid", "6", "--as", "tune-grid", "--dry-run")
    assert code == 0 and fresh.file.read_text() == PROJECT and not document["written"]
    assert document["trials"] <= 6 and document["usd_at_most"] > 0 and "+  tune-grid:" in document["diff"]
    code, document, said = fresh.run("follow-up", "tune", "--trials", "2")
    assert code == 0 and document["name"] == "tune-2", said
    lines = added(fresh.file.read_text())
    assert "  tune-2:" in lines and any(" at most = 2 trials" in line for line in lines)
    code, sent, said = fresh.run("submit", "tune-2", "--no-budget")
    assert code == 0, said
    fresh.ended(sent["name"])
    code, found, _ = fresh.run("trials", "tune-2")
    assert [row["trial"] for row in sorted(found["trials"], key=lambda row: row["trial"])] == ["1", "2"]
    code, _again, said = fresh.run("follow-up", "tune", "--as", "tune-2")
    assert code == 2 and "sweeps.tune-2 already" in said
    code, third, said = fresh.run("follow-up", "tune", "--dry-run")
    assert third["name"] == "tune-3"


def test_jobs_lists_sweeps(fresh: Place) -> None:
    """The jobs of trials of vertexrig's sweeps are not listed; `--own` leaves other people's sweeps out."""
    vertex = clouds.vertex(fresh.here)
    own = vertex.lookup("tune")
    kept = ("studySpec", "trialJobSpec", "parallelTrialCount")
    body = {**{key: own.data[key] for key in kept}, "displayName": "another-s", "maxTrialCount": 2}
    name = vertex.rest.call("POST", f"/{own.name.rpartition('/')[0]}", json=body).data["name"]
    fresh.ended(name)
    trials = {job.name: job.display_name for job in vertex.list("customJobs") if "-trial-" in job.display_name}
    listed = {job["name"] for job in fresh.run("jobs", "--limit", "1000")[1]["jobs"]}
    assert {name, own.name} <= listed
    assert {trials[job] for job in trials.keys() & listed} == {"another-s-trial-1", "another-s-trial-2"}
    assert name in [job["name"] for job in fresh.run("jobs", "--limit", "1")[1]["jobs"]]
    mine = {job["name"] for job in fresh.run("jobs", "--own", "--limit", "1000")[1]["jobs"]}
    assert own.name in mine and not {name, *trials} & mine


def test_a_sweep_is_found_by_its_name_in_the_project_too(fresh: Place) -> None:
    """Its display name is what the service knows; `--trial` is refused where the service names no job of that trial."""
    fresh.file.write_text(PROJECT.replace("  tune:\n    job: quick", "  mine:\n    display_name: tune\n    job: quick"))
    code, document, said = fresh.run("watch", "mine", "--poll", "0.1")
    assert code == 0 and document["job"]["displayName"] == "tune", said
    code, _, said = fresh.run("logs", "mine", "--trial", "1", "--print-command")
    assert code == 2 and "does not name the job of trial 1; `vertexrig logs mine` streams the log of all trials" in said
    job = next(clouds.vertex(fresh.here).list("customJobs"))
    code, _, said = fresh.run("logs", job.id, "--trial", "3", "--print-command")
    assert code == 2 and "is a custom job; it has no trials: leave out --trial" in said
    code, sweep, said = fresh.run("logs", "mine", "--print-command")
    assert code == 0 and f"hp-tuning-jobs stream-logs {sweep['job'].rpartition('/')[2]} " in sweep["command"], said
    code, _, said = fresh.run("logs", "mine", "--trial", "9", "--print-command")
    assert code == 2 and "mine has no trial 9 (trials: 1, 2" in said
    code, _, said = fresh.run("cancel", "mine")
    assert code == 2 and "tune has ended already" in said


def test_a_report_as_json_is_json_in_its_file_too(fresh: Place) -> None:
    """A file called .json holds the document, not Markdown."""
    code, document, said = fresh.run("report", "tune", "-o", "r.json")
    assert code == 0 and json.loads((fresh.folder / "r.json").read_text())["job"] == document["job"], said


def test_promote_runs_the_best_trial_for_longer_and_register_keeps_the_better_model(fresh: Place) -> None:
    """Promoted with a warm start, the job trains, is registered, and the sweep's own trial is then not better."""
    _, best, _ = fresh.run("best", "tune")
    code, document, said = fresh.run("promote", "tune", "--epochs", "5", "--warm-start")
    assert code == 0 and document["trial"] == best["best"][0]["id"], said
    assert "vertexrig submit tune-best" in said
    assert "  tune-best:" in added(fresh.file.read_text())
    _, sent, _ = fresh.run("submit", "tune-best")
    fresh.ended(sent["name"])
    _, _, said = fresh.run("watch", sent["name"])
    assert "vertexrig register" in said, said
    code, first, said = fresh.run("register", "tune-best")
    assert code == 0 and first["registered"] and "there is no such model yet" in said, said
    (versions,) = fresh.models()
    assert versions[0]["displayName"] == "tune" and set(versions[0]["versionAliases"]) == {"default", "champion"}
    labels = versions[0]["labels"]
    assert labels["team"] == "vision" and labels["metric"] == "accuracy" and labels["data"] == "digits"
    assert labels["job"] == "tune-best" and labels["job_id"].isdigit()
    assert "tf2-cpu.2-15" in versions[0]["containerSpec"]["imageUri"] and "available until 2027-01-14" in said
    folder = fresh.folder / "vertex/gs" / versions[0]["artifactUri"].removeprefix("gs://")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["epochs"] == 5 and summary["warm"].endswith(f"/{document['trial']}/model")
    assert first["value"] == summary["accuracy"]
    code, second, said = fresh.run("register", "tune", "--as", "tune")
    assert code == 0 and not second["registered"] and "worse by 0.04" in said and len(fresh.models()[0]) == 1
    code, third, said = fresh.run("register", "tune-best", "--min-gain", "0.1")
    assert not third["registered"] and "equal" in said
    code, forced, said = fresh.run("register", "tune", "--as", "tune", "--force")
    assert forced["registered"] and forced["version"] == "2"
    (versions,) = fresh.models()
    assert not versions[0].get("versionAliases") and set(versions[1]["versionAliases"]) == {"default", "champion"}
    code, fourth, said = fresh.run("register", "tune-best", "--min-gain", "0.01", "--dry-run")
    assert fourth["compared"]["better"] and not fourth["registered"] and fourth["sent"]["displayName"] == "tune"


def test_watch_advises_to_register_only_a_model_that_register_takes(fresh: Place) -> None:
    """A promoted job whose folder has no model that Google's images serve: `watch` ends with 0 and does not print `register`."""
    fresh.run("promote", "tune", "--epochs", "2")
    code, document, said = fresh.run("submit", "tune-best")
    assert code == 0, said
    fresh.ended(document["name"])
    job = clouds.vertex(fresh.here).get(document["name"])
    assert job is not None
    model = fresh.folder / "vertex/gs" / job.output.removeprefix("gs://") / "model/saved_model.pb"
    model.rename(model.with_name("weights.bin"))
    code, _, said = fresh.run("watch", document["name"])
    assert code == 0 and "register" not in said, said
    assert fresh.run("register", document["name"])[0] == 2


@pytest.mark.parametrize("status", [403, 409])
def test_a_registry_that_refuses_is_one_sentence(fresh: Place, status: int) -> None:
    """The service's words, exit code 3, and nothing is registered."""
    fresh.way.refusals = [(status, "PERMISSION_DENIED", "Permission 'aiplatform.models.list' denied.")]
    code, document, said = fresh.run("register", "tune")
    assert code == 3 and said.count("error:") == 1 and "Permission 'aiplatform.models.list' denied." in said
    assert document["error"]["status"] == status and fresh.models() == []


def test_an_upload_that_is_not_over_at_once_is_waited_for(fresh: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vertex AI answers with an operation that goes on: the version is named once it is done."""
    monkeypatch.setattr(models, "POLL_S", 0.0)
    fresh.way.slow = True
    code, document, said = fresh.run("register", "tune")
    assert code == 0 and document["registered"] and document["version"] == "1", said
    ((version,),) = fresh.models()
    assert version["name"].partition("@")[0] == document["model"].partition("@")[0]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("register", "nothing"), "there is no job 'nothing'"),
        (("register", "tune", "--metric", "f1"), "has no metric 'f1' to compare by. Choices: accuracy."),
        (("register", "tune", "--trial", "99"), "has no trial '99' that counts"),
        (("promote", "tune", "--trial", "99"), "has no trial '99' that counts"),
        (("promote", "tune", "--topology", "gpu"), "topology gpu needs accelerator_type"),
        (("promote", "tune", "--as", "Odd Name"), "is not a name"),
        (("promote", "tune", "--as", "quick"), "jobs.quick already"),
        (("promote", "tune", "--warm-start-flag", "nope"), "has no flag --nope"),
        (("follow-up", "tune", "--grid", "6", "--trials", "6"), "--grid and --trials exclude each other"),
        (("follow-up", "quick"), "there is no job 'quick'"),
        (("pull", "nothing"), "there is no job 'nothing'"),
        (("pull", "tune", "--into", "vertexrig.yaml", "--as", "tune"), "sweeps.tune already"),
        (("convert", "nope.yaml"), "there is no file nope.yaml"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(fresh: Place, words: tuple[str, ...], message: str) -> None:
    code, document, said = fresh.run(*words)
    assert code == 2 and message in said and said.count("error:") == 1
    assert fresh.file.read_text() == PROJECT and document["error"]["exit_code"] == 2


def test_pull_gives_the_job_that_ran(fresh: Place) -> None:
    """The sweep that ran, pulled by its name into another project, renders to what was sent, and by a describe file, too."""
    code, document, said = fresh.run("pull", "tune", "--into", "other/vertexrig.yaml")
    assert code == 0, said
    code, dry, said = fresh.run(
        "submit", "tune", "--file", "other/vertexrig.yaml", "--dry-run", "--set", "bucket=gs://my-bucket"
    )
    assert code == 0, said
    job = clouds.vertex(fresh.here).lookup("tune").data
    own = {key: value for key, value in job["labels"].items() if not key.startswith("vertexrig_")}
    # the others are of the request that it was
    assert dry["studySpec"] == job["studySpec"] and users(dry["labels"]) == own
    (fresh.folder / "tune.json").write_text(json.dumps(job))
    code, by_file, said = fresh.run("pull", "tune.json")
    assert code == 0 and yaml.safe_load(by_file["text"])["jobs"] == yaml.safe_load(document["text"])["jobs"]
