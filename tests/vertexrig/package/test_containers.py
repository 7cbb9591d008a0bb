"""Programs in containers: the Dockerfile says what runs, and the checks hold the job against its source."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path

import pytest

from tests.support.packages import lay_out
from tests.support.tools import typed
from vertexrig import checks, spec
from vertexrig.catalog import load
from vertexrig.finding import Severity
from vertexrig.package import dockerfile
from vertexrig.package.containers import ImageProgram, read_container
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.trainer_model import TrainerSource

TASK = """import argparse
import hypertune
from trainer import model

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--learning_rate", type=float, default=0.1)
args = parser.parse_args()
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", 0.5)
"""
SOURCES = {"trainer/__init__.py": "", "trainer/task.py": TASK, "trainer/model.py": "", "train.py": TASK}
WALKTHROUGH = 'FROM gcr.io/deeplearning-platform-release/tf2-gpu.2-11\nWORKDIR /\nCOPY trainer /trainer\nENTRYPOINT ["python", "-m", "trainer.task"]\n'
NAME = "us-docker.pkg.dev/p/r/horses:v1"


def folder(path: Path, text: str, files: dict[str, str] = SOURCES) -> Path:
    return lay_out(path, {**files, "Dockerfile": text})


def job(*args: str, command: list[str] | None = None, study: bool = False) -> dict[str, object]:
    container = {"imageUri": NAME, "args": list(args)} | ({"command": command} if command else {})
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "containerSpec": container}
    spec_: dict[str, object] = {"workerPoolSpecs": [pool]}
    if not study:
        return spec_
    scale = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.1, "maxValue": 1}}
    metrics = [{"metricId": "acc", "goal": "MAXIMIZE"}]
    study_ = {"metrics": metrics, "parameters": [scale]}
    return {"maxTrialCount": 4, "parallelTrialCount": 2, "studySpec": study_, "trialJobSpec": spec_}


def rows(tmp_path: Path, data: dict[str, object], trainer: Path, rule: str = "") -> list[dict[str, str]]:
    """Findings, of one rule or of all, from the command line; the exit code goes with them."""
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(data))
    done = typed("check", str(file), "--trainer", str(trainer), "--region", "us-central1", "--format", "json")
    found = done.document["findings"]
    assert done.exit_code == any(one["severity"] == "error" for one in found), done.stderr
    return [one for one in found if one["id"] == (rule or one["id"])]


def checked(tmp_path: Path, data: dict[str, object], trainer: Path) -> dict[str, str]:
    """Findings of severity error by id."""
    return {one["id"]: one["message"] for one in rows(tmp_path, data, trainer) if one["severity"] == "error"}


def test_flags_metrics_and_parameters_are_held_against_the_image(tmp_path: Path) -> None:
    """The walk-throughs' own Dockerfile: a wrong flag, parameter and metric are found, a right job passes."""
    app = folder(tmp_path / "app", WALKTHROUGH)
    assert checked(tmp_path, job("--epochs=2"), app) == {}
    wrong = checked(tmp_path, job("--epoch_count=2"), app)
    assert set(wrong) == {"argument-unknown", "argument-required"} and "trainer/task.py:6" in wrong["argument-required"]
    study = checked(tmp_path, job("--epochs=2", study=True), app)
    assert set(study) == {"parameter-unknown", "metric-unreported"}


@pytest.mark.parametrize(
    "text",
    [
        'FROM x\nWORKDIR /app\nCOPY . .\nENTRYPOINT ["python3", "-u", "-m", "trainer.task"]\n',
        'FROM x\nWORKDIR /app\nCOPY train.py .\nCOPY trainer/ ./trainer/\nENTRYPOINT ["python", "train.py"]\n',
        'FROM x\nCOPY trainer /opt/code/trainer\nENV PYTHONPATH=/opt/code\nENTRYPOINT ["python", "-m", "trainer.task"]\n',
        'FROM x AS base\nWORKDIR /a\nFROM base\nCOPY trainer trainer\nENTRYPOINT ["python", "/a/trainer/task.py"]\n',
        'FROM x\nWORKDIR /app\nADD . /app\nCMD ["python", "-m", "trainer.task"]\n',
        'FROM x\nWORKDIR /a\nCOPY . /a\nENTRYPOINT ["torchrun", "--nproc_per_node=2", "train.py"]\n',
        'ARG DIR=/srv\nFROM x\nARG DIR=/srv\nWORKDIR ${DIR}\nCOPY \\\n  # why\n  trainer $DIR/trainer\nENTRYPOINT ["python", "-m", "trainer.task"]\n',
        'FROM x AS b\nWORKDIR /src\nCOPY . .\nFROM y\nCOPY --from=b /src /app\nENTRYPOINT ["python", "/app/train.py"]\n',
        'FROM x AS b\nWORKDIR /src\nCOPY . .\nFROM y\nCOPY --from=0 /src /app\nENTRYPOINT ["python", "/app/train.py"]\n',
        'FROM x\nWORKDIR /a\nCOPY . .\nRUN mv train.py main.py\nENTRYPOINT ["python", "main.py"]\n',
        'FROM x\nWORKDIR /a\nCOPY *.py ./\nCOPY trainer trainer\nRUN <<EOF\nENTRYPOINT no\nEOF\nENTRYPOINT ["python", "train.py"]\n',
    ],
)
def test_the_entry_point_is_found_through_the_dockerfile(tmp_path: Path, text: str) -> None:
    """WORKDIR, COPY, ADD, ENV PYTHONPATH, ARG, stages, launchers: the module and the flags are read."""
    found = read_container(folder(tmp_path / "app", text), [], [])
    assert found.source is not None and found.source.problems == (), found
    assert {flag.dest for flag in found.source.flags} == {"epochs", "learning_rate"}
    assert [item.module for item in found.source.imports if item.kind == "missing"] == []
    assert found.command[0] == "python" and found.folder == tmp_path / "app"


def test_the_command_of_the_spec_overrides_the_entry_point(tmp_path: Path) -> None:
    """`command: [python, -m, …]` decides, with a Dockerfile for something else or without any."""
    app = folder(tmp_path / "app", 'FROM x\nCOPY . /\nENTRYPOINT ["python", "serve.py"]\n')
    command = ["python", "-m", "trainer.task", "--epochs=2"]
    assert checked(tmp_path, job("--learning_rate=1", command=command), app) == {}
    (app / "Dockerfile").unlink()
    assert set(checked(tmp_path, job("--lr=1", command=command), app)) == {"argument-unknown"}
    assert checked(tmp_path, job("python", "-m", "trainer.task", "--epochs=2"), app) == {}


_TRAINS = 'FROM x\nWORKDIR /app\nCOPY trainer trainer\nENTRYPOINT ["python", "-m", "trainer.task"]\n'
_OTHER = 'FROM x\nCOPY train.py .\nCMD ["python", "train.py", "--epochs=1"]\n'


@pytest.mark.parametrize(
    "dockerfiles",
    [
        {"dockerfiles/main.dockerfile": _TRAINS},
        {"docker/train/Dockerfile": _TRAINS},
        {"images/Containerfile": _TRAINS},
        {"deploy/Dockerfile.gpu": _TRAINS},
        {"a/Dockerfile.cpu": _TRAINS, "a/Dockerfile.gpu": _TRAINS.replace("FROM x", "FROM y")},
        {"dockerfiles/train.dockerfile": _TRAINS, "dockerfiles/main.dockerfile": _OTHER},
        {"dockerfiles/api.dockerfile": _OTHER, "dockerfiles/main.dockerfile": _TRAINS},
        {"dockerfiles/main.dockerfile": _TRAINS, "web/Dockerfile": 'FROM x\nCMD ["uvicorn", "app:app"]\n'},
        {"own/Dockerfile": 'FROM x\nCOPY . .\nENTRYPOINT ["python", "main.py"]\n', "own/main.py": TASK},
    ],
)
def test_a_dockerfile_is_found_in_the_folders_below(tmp_path: Path, dockerfiles: dict[str, str]) -> None:
    """The one program that Dockerfiles one and two folders down start is the trainer; those of other images do not count."""
    app = folder(tmp_path / "app", "", {**SOURCES, **dockerfiles})
    (app / "Dockerfile").unlink()
    found = read_container(app, [], [])
    assert found.source is not None and found.source.module in {"trainer.task", "main"}, found
    assert {flag.dest for flag in found.source.flags} == {"epochs", "learning_rate"}


@pytest.mark.parametrize(
    "dockerfiles",
    [
        {},
        {"a/Dockerfile": _TRAINS, "b/Dockerfile": _OTHER},
        {"a/train.dockerfile": "FROM x\nENTRYPOINT /train\n", "a/main.dockerfile": _OTHER},
        {"a/Dockerfile": 'FROM x\nCOPY . .\nENTRYPOINT ["python", "gone.py"]\n'},
        {"a/b/c/Dockerfile": _TRAINS},
        {".git/Dockerfile": _TRAINS, "a/Dockerfile.dockerignore": "*.md\n"},
    ],
)
def test_an_image_that_is_not_known_is_no_error(tmp_path: Path, dockerfiles: dict[str, str]) -> None:
    """Where no Dockerfile says which program of the folder runs, the finding is an info."""
    app = folder(tmp_path / "app", "", {**SOURCES, **dockerfiles})
    (app / "Dockerfile").unlink()
    found = read_container(app, [], [])
    assert found.source is None and not found.recognised and found.reason
    assert checked(tmp_path, job("--what=2"), app) == {}


def test_the_dockerfile_of_the_folder_itself_goes_first(tmp_path: Path) -> None:
    """Dockerfiles below do not count where the folder has one."""
    app = folder(tmp_path / "app", WALKTHROUGH, {**SOURCES, "docker/train.dockerfile": _OTHER})
    found = read_container(app, [], [])
    assert found.source is not None and found.source.module == "trainer.task"


@pytest.mark.parametrize("place", ["Dockerfile", "dockerfiles/main.dockerfile", "docker/train.Dockerfile"])
def test_a_dockerfile_beside_the_folder_counts_if_it_starts_a_file_of_it(tmp_path: Path, place: str) -> None:
    """`--trainer trainer` has the Dockerfile of the folder above, unless that starts another folder's program."""
    app = folder(tmp_path / "app", _TRAINS, {**SOURCES, place: _TRAINS, "other/readme.md": ""})
    if place != "Dockerfile":
        (app / "Dockerfile").unlink()
    shutil.copytree(app, tmp_path / "no-checkout")
    assert read_container(tmp_path / "no-checkout/trainer", [], []).source is None
    (app / ".git").mkdir()
    found = read_container(app / "trainer", [], [])
    assert found.source is not None and found.source.module == "trainer.task" and found.folder == app
    seen: dict[tuple[Path, str], TrainerSource] = {}
    other = read_container(app / "other", [], [], seen)
    assert other.source is None and not other.recognised and "there is no Dockerfile in" in other.reason
    assert not seen  # up to 200 modules would be: it may be a server beside the trainer


def test_an_image_that_is_still_to_be_filled_in_runs_the_named_trainer(tmp_path: Path) -> None:
    """The trainer's rules run for `imageUri: $IMAGE_URI`; where its program is not known, an info says so."""
    app = folder(tmp_path / "app", WALKTHROUGH, {**SOURCES, "trainer/task.py": f"{TASK}import trainer.gone\n"})
    (app / ".git").mkdir()
    data = job("--lr=1")
    data["workerPoolSpecs"][0]["containerSpec"]["imageUri"] = "$IMAGE_URI"  # type: ignore[index]
    found = {"placeholder", "argument-unknown", "argument-required", "trainer-module"}
    assert set(checked(tmp_path, data, app)) == found
    assert set(checked(tmp_path, data, app / "trainer")) == found
    (app / "Dockerfile").unlink()
    assert [one["severity"] for one in rows(tmp_path, data, app, "trainer-unused")] == ["info"]
    del data["workerPoolSpecs"][0]["containerSpec"]["args"]  # type: ignore[index]
    data["workerPoolSpecs"][0]["containerSpec"]["command"] = "$COMMAND"  # type: ignore[index]
    assert "trainer-unused" not in checked(tmp_path, data, app)


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("src", ["uv", "run", "python", "-u", "src/models/train.py"]),
        ("src", ["python", "/app/src/models/train.py"]),
        ("src/models", ["python", "src/models/train.py"]),
        ("src/models", ["python", "/app/src/models/train.py"]),
        ("src", ["python", "-m", "src.models.train"]),
        ("src/models", ["python", "-m", "src.models.train"]),
    ],
)
def test_the_folders_own_name_may_begin_the_programs_path(tmp_path: Path, trainer: str, command: list[str]) -> None:
    """`--trainer src` has what the image runs as src/models/train.py, and what that imports of src."""
    code = TASK.replace("from trainer import model", "from src.models import net")
    app = folder(tmp_path / "app", "", {"src/models/train.py": code, "src/models/net.py": ""})
    (app / "Dockerfile").unlink()
    found = read_container(app / trainer, command, [])
    assert found.source is not None and found.source.problems == () and found.folder is not None
    assert {flag.dest for flag in found.source.flags} == {"epochs", "learning_rate"}
    assert [item.module for item in found.source.imports if item.kind == "missing"] == []
    assert found.command[1] == "-m" or (found.folder / found.command[1]).is_file()


def test_another_folders_name_is_not_the_trainers_own(tmp_path: Path) -> None:
    """A program that is not in the trainer stays an error where a file of its name lies under another path."""
    app = folder(tmp_path / "app", "", {"src/models/train.py": TASK})
    (app / "Dockerfile").unlink()
    for command in (["python", "code/models/train.py"], ["python", "-m", "code.models.train"]):
        assert set(checked(tmp_path, job("--epochs=2", command=command), app / "src")) == {"trainer-module"}


def test_a_trainer_that_cannot_apply_is_said(tmp_path: Path) -> None:
    """A folder that is not there ends the command; one that says nothing of the image is an info, whichever file."""
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(job("--epochs=2")))
    done = typed("check", str(file), "--trainer", str(tmp_path / "nowhere"))
    assert done.exit_code == 2 and "this folder does not exist" in done.stderr
    (tmp_path / "empty").mkdir()
    binary = folder(tmp_path / "go", 'FROM golang\nENTRYPOINT ["/train"]\n')
    for trainer, words in ((tmp_path / "empty", "there is no Dockerfile in"), (binary, "starts no Python program")):
        (one,) = rows(tmp_path, job("--epochs=2"), trainer, "trainer-unused")
        assert one["severity"] == "info" and words in one["message"] and "not known" in one["message"]


def test_an_entry_point_that_is_a_script_is_not_called_another_program(tmp_path: Path) -> None:
    """ENTRYPOINT ["bash", "run.sh"] may start the trainer: the finding says so and is no error."""
    app = folder(tmp_path / "app", 'FROM python:3.11-slim\nCOPY . /app/\nWORKDIR /app\nENTRYPOINT ["bash", "run.sh"]\n')
    (app / "run.sh").write_text("mkdir -p /data\npython train.py\n")
    (app / "train.py").write_text("print(1)\n")
    assert checked(tmp_path, job(), app) == {}


def test_a_string_as_command_is_found(tmp_path: Path) -> None:
    """`command: "python -m …"` is one word for the container, which has no such program."""
    app = folder(tmp_path / "app", WALKTHROUGH)
    data = job("--epochs=2")
    data["workerPoolSpecs"][0]["containerSpec"]["command"] = "python -m trainer.task"  # type: ignore[index]
    assert "command-words" in checked(tmp_path, data, app)
    data["workerPoolSpecs"][0]["containerSpec"]["command"] = ["/opt/my tools/train"]  # type: ignore[index]
    assert "command-words" not in checked(tmp_path, data, app)


def test_an_entry_point_that_drops_the_args_is_found(tmp_path: Path) -> None:
    """Shell form loses args and parameters; a CMD of a plain base image is replaced by them. Exec form passes."""
    shell = folder(
        tmp_path / "a", WALKTHROUGH.replace('["python", "-m", "trainer.task"]', "python -m trainer.task --epochs=1")
    )
    assert set(checked(tmp_path, job("--epochs=2"), shell)) == {"entrypoint-shell"}
    cmd = folder(tmp_path / "b", 'FROM python:3.11-slim\nCOPY . .\nCMD ["python", "train.py"]\n')
    assert set(checked(tmp_path, job("--epochs=2"), cmd)) == {"args-replace-cmd"}
    assert "args-replace-cmd" not in checked(tmp_path, job("python", "train.py", "--epochs=2"), cmd)


def test_args_that_repeat_the_entry_point_are_found(tmp_path: Path) -> None:
    """The program would get its own name as an argument; with an entry point that is Python alone it needs the name."""
    own = folder(tmp_path / "a", 'FROM python:3.11-slim\nCOPY . .\nENTRYPOINT ["python", "train.py"]\n')
    found = checked(tmp_path, job("python", "train.py", "--epochs=2"), own)
    assert "the container would run python train.py python train.py" in found["args-repeat-entrypoint"]
    assert "args-repeat-entrypoint" not in checked(tmp_path, job("--epochs=2"), own)
    python = folder(tmp_path / "b", 'FROM python:3.11-slim\nCOPY . .\nENTRYPOINT ["python"]\n')
    assert "args-repeat-entrypoint" not in checked(tmp_path, job("train.py", "--epochs=2"), python)
    launcher = folder(tmp_path / "c", 'FROM python:3.11-slim\nCOPY . .\nENTRYPOINT ["torchrun"]\n')
    (launcher / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--epochs')\np.parse_args()\n"
    )
    assert checked(tmp_path, job("--nproc_per_node=4", "train.py", "--epochs=2"), launcher) == {}
    data = job("python", "train.py", "--epochs=2")
    data["workerPoolSpecs"][0]["containerSpec"]["command"] = ["env"]  # type: ignore[index]
    assert "args-repeat-entrypoint" not in checked(tmp_path, data, own)


@pytest.mark.parametrize(
    ("base", "requirements", "found"),
    [("python:3.11", "pandas\n", True), ("python:3.11", "pandas[gcp]\n", False), ("python:3.11", "gcsfs\n", False), ("gcr.io/x/y", "pandas\n", False)],
)  # fmt: skip
def test_pandas_without_gcsfs_in_an_image_of_its_own_is_found(
    tmp_path: Path, base: str, requirements: str, found: bool
) -> None:
    """What Docker Hub's Python has is known, and the files that name its packages; of another base nothing is."""
    app = folder(
        tmp_path / "a", f'FROM {base}\nCOPY . .\nRUN pip install -r need.txt\nENTRYPOINT ["python", "train.py"]\n'
    )
    (app / "need.txt").write_text(requirements)
    (app / "train.py").write_text("import pandas as pd\npd.read_csv('gs://my-bucket/x.csv')\n")
    assert bool(rows(tmp_path, job(), app, "gs-path-read")) is found


@pytest.mark.parametrize("command", [None, ["bash", "-c", "python train.py"]])
def test_a_lost_model_is_found_whatever_starts_the_trainer(tmp_path: Path, command: list[str] | None) -> None:
    """Also where a shell does, and where a module of the trainer cannot be read; a text that begins like a variable is a text."""
    app = folder(tmp_path / "a", 'FROM python:3.11-slim\nCOPY . .\nENTRYPOINT ["python", "train.py"]\n')
    code = "import os\nimport broken\nos.makedirs(os.environ['AIP_MODEL_DIR'])\nos.makedirs('AIP_notes')\n"
    (app / "train.py").write_text(code)
    (app / "broken.py").write_text("def (\n")
    data = {**job(command=command), "baseOutputDirectory": {"outputUriPrefix": "gs://my-bucket/out"}}
    (found,) = rows(tmp_path, data, app, "gs-path-opened")
    assert found["message"].startswith("train.py:3: os.makedirs() takes a local path")


def test_a_program_that_comes_from_elsewhere_is_not_held_against_the_folder(tmp_path: Path) -> None:
    """A script that git brings into the image: said in one line, with no word on its flags."""
    app = folder(tmp_path / "a", 'FROM x\nRUN git clone https://h/r /opt/r\nENTRYPOINT ["python", "/opt/r/run.py"]\n')
    found = checked(tmp_path, job("--epochs=2"), app)
    assert set(found) == {"trainer-unused"} and "is not among the files" in found["trainer-unused"]


def test_the_image_map_is_proposed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that a rehearsal needs are printed, without a project file as a whole one, and a project with them checks the image
    without --trainer.
    """
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "app", WALKTHROUGH)
    Path("job.yaml").write_text(json.dumps(job("--epoch=2", "--wrong=1")))
    done = typed("check", "job.yaml", "--trainer", "app")
    lines = done.stderr.partition("write a vertexrig.yaml:\n")[2]
    proposed = lines[: lines.index("]\n") + 2]
    assert 'path: "app"' in proposed and '"python", "-m", "trainer.task"' in proposed
    Path("vertexrig.yaml").write_text("project: my-project\nregion: us-central1\n")
    added = typed("check", "job.yaml", "--trainer", "app").stderr.partition("add to vertexrig.yaml:\n")[2]
    assert added and proposed.endswith(added[: added.index("]\n") + 2])
    Path("vertexrig.yaml").write_text(proposed)
    again = typed("check", "job.yaml")
    assert "no flag --wrong" in again.stdout and again.exit_code == 1


@pytest.mark.parametrize(
    ("line", "name", "end"),
    [
        (["python", "-m", "a.b", "--x"], "a.b", 3),
        (["/usr/bin/python3.10", "-W", "ignore", "t.py"], "t.py", 4),
        (["python", "-m", "torch.distributed.run", "--nnodes=2", "t.py", "--x"], "t.py", 5),
        (["accelerate", "launch", "-m", "a.b"], "a.b", 4),
        (["uv", "run", "python", "t.py"], "t.py", 4),
        (["bash", "-c", "cd /app && exec python -m a.b $@"], "a.b", 0),
        (["./t.py"], "./t.py", 1),
        (["python", "-c", "print()"], None, 0),
        (["nvidia-smi"], None, 0),
        ([], None, 0),
    ],
)
def test_the_program_of_a_command_line(line: list[str], name: str | None, end: int) -> None:
    """Interpreters, launchers and shell lines lead to the module or script."""
    found = started_program.find(line)
    assert (found.name if found else None) == name and (found is None or found.end == end)


def test_no_dockerfile_crashes_the_reader(tmp_path: Path) -> None:
    """Half a file, unknown instructions, links out of the context: read or passed over."""
    for text in (
        "",
        "FROM",
        "COPY",
        "COPY a",
        "FROM x\nCOPY ../../etc /\nENTRYPOINT [",
        "\\",
        "FROM x\nENTRYPOINT\nCMD []",
        "ENV a",
    ):
        assert isinstance(dockerfile.parse(text), dockerfile.DockerImage)
        assert isinstance(read_container(folder(tmp_path / "app", text), [], ["--x"]), ImageProgram)


# verdicts that depend on the trainer's source

MULTI = (
    "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\nmodel = tf.keras.Sequential()\n"
)
TF_2_17 = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"


def verdicts(
    tmp_path: Path, code: str, *args: str, image: str = TF_2_17, replicas: int = 1, **more: object
) -> dict[str, Severity]:
    file = tmp_path / "task.py"
    file.write_text(code)
    package = {"executorImageUri": image, "packageUris": ["gs://b/p.tar.gz"], "pythonModule": "task"}
    program_ = {**package, "args": list(args)}
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1, "pythonPackageSpec": program_}
    pools = [pool, *([{**pool, "replicaCount": replicas - 1}] if replicas > 1 else [])]
    document = spec.from_data({"workerPoolSpecs": pools, **more})
    context = checks.Context(load(), today=date(2026, 7, 1), trainer=read(file))
    return {one.id: one.severity for one in checks.check(document, context)}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os, json\nc = json.loads(os.environ['TF_CONFIG'])\n", True),
        (
            "import os\ndef f():\n  return os.environ['TF_CONFIG']\ndef main():\n  f()\nif __name__ == '__main__':\n  main()\n",
            True,
        ),
        ("import os\nif args.distribute == 'multi':\n  c = os.environ['TF_CONFIG']\n", False),
        ("import os\ndef f():\n  return os.environ['TF_CONFIG']\nif args.distribute == 'multi':\n  f()\n", False),
        ("import os\ndef f():\n  if not multi:\n    return 0\n  return os.environ['TF_CONFIG']\nf()\n", False),
        ("import os\nc = os.environ['TF_CONFIG'] if multi else ''\n", False),
        ("import os\ndef f():\n  return os.environ['TF_CONFIG']\nrun = {'multi': f}\n", False),
    ],
)
def test_tf_config_is_needed_only_where_every_run_asks_for_it(tmp_path: Path, code: str, error: bool) -> None:
    """An access behind a branch, itself or through the function it stands in, is no finding."""
    assert ("tf-config-needed" in verdicts(tmp_path, code)) is error


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("gcr.io/cloud-aiplatform/training/tf-gpu.2-4:latest", None),
        ("gcr.io/deeplearning-platform-release/tf2-cpu.2-11", None),
        ("tensorflow/tensorflow:2.15.0-gpu", None),
        (TF_2_17, Severity.ERROR),
        ("gcr.io/p/own:1", Severity.WARNING),
    ],
)
def test_the_keras_of_an_older_image_is_keras_2(tmp_path: Path, image: str, found: Severity | None) -> None:
    """The TensorFlow that an image's name tells decides, wherever the image lies."""
    assert verdicts(tmp_path, MULTI, image=image, replicas=2).get("keras-3-workers") == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("model.save('out', save_format='tf')\n", True),
        ("import os\nmodel.save(os.environ['AIP_MODEL_DIR'])\n", True),
        ("import os\nd = os.getenv('AIP_MODEL_DIR', 'x')\nmodel.save(d)\n", True),
        ("import os\nmodel.save(os.path.join(d, 'model'))\n", True),
        ("c = tf.keras.callbacks.ModelCheckpoint('ckpt/')\n", True),
        ("c = tf.keras.callbacks.ModelCheckpoint('w-{epoch}', save_weights_only=True)\n", True),
        ("tf.keras.models.save_model(model, 'out')\n", True),
        ("from tensorflow.keras import models\nmodels.save_model(model, path, save_format='tf')\n", False),
        ("from tensorflow.keras import models\nmodels.save_model(model, path + '/1', save_format='tf')\n", True),
        ("import keras\nkeras.saving.save_model(model, 'm.keras')\n", False),
        ("import xgboost\nxgboost.Booster().save_model('out')\n", False),
        ("model.save('m.keras')\n", False),
        ("model.save('m.h5', save_format='h5')\n", False),
        ("model.save(path)\n", False),
        ("model.export('out')\n", False),
        ("c = tf.keras.callbacks.ModelCheckpoint('w.weights.h5', save_weights_only=True)\n", False),
        ("model = tf.train.Checkpoint()\nmodel.save('out')\n", False),
        ("import numpy as np\nnp.save('out', 1)\n", False),
    ],
)
def test_what_keras_3_refuses_to_save_is_found(tmp_path: Path, code: str, found: bool) -> None:
    """save_format, a folder, a checkpoint without ending."""
    text = f"import tensorflow as tf\nmodel = tf.keras.Sequential()\n{code}"
    if "Checkpoint()" in code:
        text = f"import tensorflow as tf\n{code}x = tf.keras.Sequential()\n"
    assert ("keras-3-saving" in verdicts(tmp_path, text)) is found


def test_keras_2_saves_a_folder(tmp_path: Path) -> None:
    """What Keras 3 refuses to save is no finding with tf_keras, nor on an image with Keras 2."""
    text = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.save('out', save_format='tf')\n"
    assert "keras-3-saving" not in verdicts(tmp_path, text.replace("tensorflow as tf", "tensorflow as tf, tf_keras"))
    assert "keras-3-saving" not in verdicts(tmp_path, text, image="gcr.io/cloud-aiplatform/training/tf-cpu.2-8")


def test_workers_that_save_to_one_place_are_found(tmp_path: Path) -> None:
    """A trainer that never tells the chief from the others saves as often as it has workers."""
    save = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--job-dir')\na = p.parse_args()\nmodel.save(a.job_dir)\n"
    assert "workers-save-together" in verdicts(tmp_path, MULTI + save, "--job-dir=gs://b/o", replicas=3)
    assert "workers-save-together" not in verdicts(tmp_path, MULTI + save, "--job-dir=gs://b/o")
    chief = "if strategy.cluster_resolver.task_type == 'chief':\n  print()\n"
    assert "workers-save-together" not in verdicts(tmp_path, MULTI + save + chief, "--job-dir=gs://b/o", replicas=3)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("os.makedirs(os.environ['AIP_MODEL_DIR'], exist_ok=True)", True),
        (
            "d = os.environ.get('AIP_MODEL_DIR')\nwith open(os.path.join(d, 'm.pkl'), 'wb') as f:\n    f.write(b'')",
            True,
        ),
        ("import joblib\njoblib.dump({}, os.getenv('AIP_MODEL_DIR') + '/m.joblib')", True),
        ("import torch as t\nt.save({}, f\"{os.environ['AIP_CHECKPOINT_DIR']}/m.pt\")", True),
        ("from pathlib import Path\nPath(os.environ['AIP_MODEL_DIR']).mkdir()", True),
        ("d = os.environ['AIP_MODEL_DIR'].replace('gs://', '/gcs/')\nos.makedirs(d)", False),
        ("d = os.environ['AIP_MODEL_DIR']\nd = d.replace('gs://', '/gcs/')\nos.makedirs(d)", False),
        ("from fsspec import open\nopen(os.environ['AIP_MODEL_DIR'] + '/m.pkl')", False),
        ("import tensorflow as tf\ntf.io.gfile.makedirs(os.environ['AIP_MODEL_DIR'])", False),
        ("open(os.environ['TF_CONFIG'])", False),
        ("d = os.environ['AIP_MODEL_DIR']\nif d.startswith('gs://'):\n  pass\nelse:\n  open(d + '/m')", False),
        ("d = os.environ['AIP_MODEL_DIR']\nif not d.startswith('gs://'):\n  open(d + '/m')", False),
        ("d = os.environ['AIP_MODEL_DIR']\nif d[:5] != 'gs://':\n  os.makedirs(d)", False),
        ("d = os.environ['AIP_MODEL_DIR']\nx = None if 'gs://' in d else open(d)", False),
        ("def f():\n  d = os.environ['AIP_MODEL_DIR']\n  if d.startswith('gs:'):\n    return\n  open(d)\nf()", False),
        ("d = os.environ['AIP_MODEL_DIR']\nif d.startswith('gs://'):\n  open(d + '/m')", True),
        ("d = os.environ['AIP_MODEL_DIR']\nif d.startswith('gs://'):\n  print(d)\nopen(d + '/m', 'w')", True),
        ("def save(out):\n  os.makedirs(out)\nsave(os.environ['AIP_MODEL_DIR'])", True),
        ("def save(out):\n  out = '/tmp/m'\n  os.makedirs(out)\nsave(os.environ['AIP_MODEL_DIR'])", False),
        (
            "class A:\n  def __init__(self, d):\n    self.d = d\n    os.makedirs(self.d)\nA(os.environ['AIP_MODEL_DIR'])",
            True,
        ),
        ("d = os.environ.get('AIP_MODEL_DIR') or 'model'\nos.makedirs(d)", True),
        ("d = 'model' if os.name else os.environ['AIP_MODEL_DIR']\nos.makedirs(d)", False),
        ("d = os.environ['AIP_MODEL_DIR'] if 'AIP_MODEL_DIR' in os.environ else 'm'\nos.makedirs(d)", True),
        (
            "import xgboost\nb = xgboost.Booster()\nb.save_model(os.path.join(os.environ['AIP_MODEL_DIR'], 'model.bst'))",
            True,
        ),
        ("import keras\nkeras.saving.save_model(m, os.environ['AIP_MODEL_DIR'])", False),
        ("os.makedirs(os.environ['AIP_MODEL_DIR'].rstrip('/'))", True),
        ("d = 'out'\nif os.environ.get('AIP_MODEL_DIR'):\n  d = os.environ['AIP_MODEL_DIR']\nos.makedirs(d)", True),
        ("d = os.environ['AIP_MODEL_DIR']\nif os.name:\n  d = '/tmp/m'\nos.makedirs(d)", False),
        ("def d():\n  return os.environ.get('AIP_MODEL_DIR', 'm')\nos.makedirs(d())", True),
        ("d = os.environ.get('AIP_MODEL_DIR', 'm')\nif 'AIP_MODEL_DIR' not in os.environ:\n  os.makedirs(d)", False),
        (
            "d = os.environ.get('AIP_MODEL_DIR', 'm')\nif os.environ.get('CLOUD_ML_JOB_ID') is None:\n  os.makedirs(d)",
            False,
        ),
        ("d = os.environ.get('AIP_MODEL_DIR', 'm')\nif os.environ.get('AIP_MODEL_DIR'):\n  os.makedirs(d)", True),
        ("P = 'gs://'\nd = os.environ['AIP_MODEL_DIR']\nif d.startswith(P):\n  pass\nelse:\n  os.makedirs(d)", False),
        ("def far(p):\n  return '://' in p\nd = os.environ['AIP_MODEL_DIR']\nif not far(d):\n  os.makedirs(d)", False),
        ("class M:\n  def save_model(self, p):\n    print(p)\nM().save_model(os.environ['AIP_MODEL_DIR'])", False),
        ("from pathlib import Path\nos.makedirs('/tmp/' + Path(os.environ['AIP_MODEL_DIR']).name)", False),
        (
            "b, d = input(), os.environ['AIP_MODEL_DIR']\ne = d\nprint(f'gs://{b}')\nos.makedirs(os.environ['AIP_MODEL_DIR'])",
            True,
        ),
    ],
)
def test_a_bucket_opened_as_a_folder_is_found(tmp_path: Path, code: str, found: bool) -> None:
    """open, os, Path, joblib.dump and torch.save of an AIP_ variable are found, also by a name; what maps it first is not."""
    output = {"outputUriPrefix": "gs://b/o"}
    assert ("gs-path-opened" in verdicts(tmp_path, f"import os\n{code}\n", baseOutputDirectory=output)) is found


def test_an_output_given_as_argument_needs_no_aip_model_dir(tmp_path: Path) -> None:
    """`--job-dir=gs://…` carries the output; data in a bucket do not."""
    code = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--job-dir')\np.add_argument('--data')\np.parse_args()\n"
    assert "model-dir-unread" in verdicts(tmp_path, code, "--data=gs://b/d")
    assert "model-dir-unread" not in verdicts(tmp_path, code, "--job-dir=gs://b/o")
    assert "model-dir-unread" not in verdicts(tmp_path, code + "OUT = 'gs://b/model'\n")


def test_a_package_runs_by_its_main_module_without_an_init(tmp_path: Path) -> None:
    """`python -m heatmap` needs heatmap/__main__.py only, and what the ENTRYPOINT passes counts: its positional words too."""
    task = "import argparse\np = argparse.ArgumentParser()\np.add_argument('modes', nargs='+')\np.add_argument('--n', required=True)\n"
    files = {"heatmap/__main__.py": f"{task}p.parse_args()\n"}
    text = 'FROM python:3.11\nWORKDIR /app\nCOPY . /app\nENTRYPOINT ["python", "-m", "heatmap", "train", "--n", "3"]\n'
    found = read_container(folder(tmp_path, text, files), [], [])
    assert found.source is not None and found.source.problems == () and found.source.leading == ("train", "--n", "3")
    document = spec.from_data(job("--n=4"))
    results = checks.check(document, checks.Context(load(), today=date(2026, 7, 1), trainer=found.source))
    assert not [one for one in results if one.severity is Severity.ERROR]


def test_a_shell_line_that_goes_on_in_the_next_line(tmp_path: Path) -> None:
    """`dvc pull && \\` at the end of a line joins it with the next; a script that the line downloads is nobody's error."""
    context = folder(tmp_path, "FROM python:3.11\nWORKDIR /\nCOPY . /\n")
    line = "dvc pull && \\\npython -u train.py --epochs 1 && \\\ndvc push"
    found = read_container(context, ["bash"], ["-c", line])
    assert found.source is not None and found.source.files[0] == "train.py"
    missing = read_container(context, ["bash", "-c"], ["curl -sL https://h/x.py -o x.py\npython x.py"])
    assert missing.source is None and "x.py" in missing.reason
