"""What the server says of jobs that fail, and how a shell, gsutil and jobs find it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from localvertex import server
from localvertex.hints import hint, may_be_version
from localvertex.jobs.metrics import last_values
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.jobkit import IMAGE, Api, job, pool, run_job, run_study, with_trainer
from tests.support.tools import need

TORCH = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"


@pytest.fixture(scope="module")
def up(root: Path) -> Iterator[server.RunningServer]:
    """A server in this process, on the shared folder."""
    with server.running(Settings(root, slots=2, options=RunOptions(grace=0.5))) as here:
        yield here


@pytest.mark.parametrize(
    ("code", "meant"),
    [
        ("import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', type=int); p.parse_args(['--n', '128.0'])", "parse with int(float(text))"),
        ("raise ValueError('Attempt to convert a value (PerReplica:{0: 1}) with an unsupported type')", "Keras 3 does not train under"),
        ("import socket; socket.getaddrinfo('nowhere.invalid', 80)", "a host's name cannot be resolved"),
        ("import module_of_nobody", "name its distribution in the trainer's requirements"),
    ],
    ids=["128.0", "PerReplica", "host", "module"],
)  # fmt: skip
def test_hints_in_the_servers_log(up: server.RunningServer, root: Path, code: str, meant: str) -> None:
    """A failed job of the server has the hint in its log file and its summary, and neither in its error nor in Cloud Logging."""
    api = Api(up.url)
    found = api.wait(api.create(job(pool(code)))["name"])
    number = found["name"].rpartition("/")[2]
    words = found["error"]["message"]
    assert words.startswith("The replica workerpool0-0 exited with") and words.endswith(f"%22{number}%22")
    log = (root / "jobs" / number / "logs/service.log").read_text().splitlines()
    assert any(" WARNING Hint: " in line and meant in line for line in log) and log[-1].endswith("Job failed.")
    rows = httpx.get(f"{up.url}/local/v1/made", params={"after": 0}).json()["made"]
    assert meant in next(row["hints"][0] for row in rows if row["name"] == found["name"])
    said = httpx.post(
        f"{up.url}/logging/v2/entries:list",
        json={"resourceNames": ["projects/-"], "pageSize": 1000, "filter": f'resource.labels.job_id="{number}"'},
    )
    service = [
        one["textPayload"] for one in said.json()["entries"] if one["resource"]["labels"]["task_name"] == "service"
    ]
    assert service[-1] == "Job failed." and not [
        text for text in service if text.startswith(("Hint: ", "The logs are", "Difference: "))
    ]


def test_an_unknown_argument_in_each_library_s_words() -> None:
    """Hydra's usage comes before argparse's sentence; HfArgumentParser has one of its own; a program among the arguments is none of the study's."""
    refused = "task.py: error: unrecognized arguments: --lr=0.1"
    assert "vertexrig check" in hint(f"usage: task.py [-h] [--lr_rate LR_RATE]\n{refused}")
    assert "Hydra takes lr=0.1" in hint(f"usage: task.py [--help] [--hydra-help] [--version]\n{refused}")
    sentence = "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--lr', '0.1']"
    assert "vertexrig check" in hint(sentence)
    for program in ("python -m trainer.task", "/usr/bin/python3.11 train.py", "bash -c"):
        assert "the image's ENTRYPOINT" in hint(f"task.py: error: unrecognized arguments: {program} --lr")
    assert "vertexrig check" in hint("task.py: error: unrecognized arguments: pythonic")


def test_a_module_missing_here_or_in_the_image() -> None:
    """A framework that the image has is missing on this machine; what Docker ran misses it in the image."""
    words = "ModuleNotFoundError: No module named 'torch.nn'"
    assert hint(words, TORCH).startswith("this machine does not have torch, and the image pytorch-gpu.2-4.py310 does:")
    assert "local: {interpreters: auto}" in hint(words, TORCH)
    assert hint(words, IMAGE).startswith("the module torch.nn comes neither with the trainer's package nor")
    assert hint(words, "gcr.io/mine/own:1").startswith("this machine does not have the module torch.nn: if the image")
    assert "{PATTERN_OF_IMAGE: /path/to/venv/bin/python}" in hint(words, "gcr.io/mine/own:1")
    assert hint(words, "gcr.io/mine/own:1", container=True).startswith("the image does not have the module torch.nn")


LIBRARY, OWN = "/env/lib/python3.11/site-packages/pandas/io.py", "/env/lib/python3.11/site-packages/trainer/task.py"


@pytest.mark.parametrize(
    ("file", "error", "expected"),
    [
        (LIBRARY, "AttributeError: module 'numpy' has no attribute 'float'", True),
        (LIBRARY, "TypeError: __init__() got an unexpected keyword argument 'sparse'", True),
        (LIBRARY, "ImportError: cannot import name 'joblib' from 'sklearn.externals'", True),
        (LIBRARY, "sklearn.utils._param_validation.InvalidParameterError: The 'max_features' parameter must be an int", True),
        (LIBRARY, "ValueError: Argument(s) not recognized: {'lr': 0.1}", True),
        (LIBRARY, "google.api_core.exceptions.MethodNotAllowed: 405 GET https://bigquery.googleapis.com/bigquery/v2/projects", False),
        (LIBRARY, "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'", False),
        (LIBRARY, "KeyError: 'target'", False),
        (OWN, "RuntimeError: AIP_MODEL_DIR is not set", False),
        (OWN, "TypeError: unsupported operand type(s) for +: 'int' and 'str'", False),
        ("/home/me/task.py", "AttributeError: 'NoneType' object has no attribute 'name'", False),
    ],
)  # fmt: skip
def test_an_error_that_may_come_from_a_version(file: str, error: str, expected: bool) -> None:
    """A library's error about a name or an argument may come from its version; an error of another kind or of the trainer's own may not."""
    text = f'Traceback (most recent call last):\n  File "/x/task.py", line 1, in <module>\n    go()\n  File "{file}", line 7, in go\n    x\n    ^\n{error}'
    assert may_be_version(text, "trainer") == expected


def test_a_package_that_a_library_lacks_is_named() -> None:
    """An ImportError of a library that lacks an optional package names the package, and the requirements or the image as its place."""
    gcsfs = "ImportError: Please install gcsfs to access Google Storage"
    assert hint(gcsfs, TORCH).endswith(
        "needs the package gcsfs for what the trainer does: add gcsfs to the trainer's requirements"
    )
    fsspec = "No module named 'fsspec'\n\nImportError: Missing optional dependency 'fsspec'.  Use pip or conda to install fsspec."
    assert hint(fsspec, "gcr.io/mine/own:1", container=True).endswith("add fsspec to the image")
    assert "the package pydot" in hint(
        "ImportError: You must install pydot (`pip install pydot`) for this to work.", TORCH
    )


@pytest.mark.whole
@pytest.mark.parametrize("raised", ["psutil.Process('x')", "int('x')"])
def test_an_error_in_a_library_names_other_versions(tmp_path: Path, raised: str) -> None:
    """The hint of an error that a library raised says which versions the stand-in has; an error of the trainer's own has no such hint."""
    with_trainer(tmp_path)
    result = run_job(job(pool(f"import psutil\n{raised}")), root=tmp_path, options=RunOptions(grace=0.5))
    assert not result.succeeded
    said = re.search(
        r"the stand-in for image \S+ has .+ instead of .+ If a version is the cause, write `local: {interpreters: auto}`",
        result.hint,
    )
    assert (said is not None) == raised.startswith("psutil")


def test_a_trial_stopped_because_its_study_failed(tmp_path: Path) -> None:
    """It says that it was stopped, and nothing of a metric file that it had no time to write."""
    with_trainer(tmp_path)
    code = "import time\nif os.environ['CLOUD_ML_TRIAL_ID'] == '1':\n    while not os.path.exists(args[0]):\n        time.sleep(0.01)\n    raise ValueError\nopen(args[0], 'w').close()\ntime.sleep(600)"
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "rate", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.9}}],
        "algorithm": "RANDOM_SEARCH",
    }
    spec = job(pool(code, str(tmp_path / "second")))
    body = {
        "displayName": "sweep",
        "studySpec": study,
        "trialJobSpec": spec,
        "maxTrialCount": 2,
        "parallelTrialCount": 2,
    }
    done = run_study(body, Settings(tmp_path, slots=2, options=RunOptions(grace=0.5)))
    assert done["state"] == "JOB_STATE_FAILED"
    reason = {trial["id"]: trial["infeasibleReason"] for trial in done["trials"]}
    assert "ValueError" in reason["1"]
    assert reason["2"] == "The trial was stopped before its first measurement, because the study failed."


@pytest.mark.whole
def test_gsutil_finds_the_server(up: server.RunningServer, root: Path) -> None:
    """The unmodified gsutil works on the server's buckets in a job, by the variables that `local env` sets in a shell, too."""
    gsutil = need("gsutil")
    (root / "gs/data/in").mkdir(parents=True)
    (root / "gs/data/in/a.txt").write_text("hello")
    code = f"import subprocess, sys; bucket = 'gs:' + '//data'; sys.exit(subprocess.call([{gsutil!r}, 'cp', bucket + '/in/a.txt', bucket + '/out/b.txt']))"
    api = Api(up.url)
    found = api.wait(api.create(job(pool(code)))["name"])
    assert found["state"] == "JOB_STATE_SUCCEEDED", found
    assert (root / "gs/data/out/b.txt").read_text() == "hello"
    assert server.env(up)["BOTO_CONFIG"] == str(root / server.BOTO)


def test_last_values_of_a_metric_file(tmp_path: Path) -> None:
    """The last finite value under each tag counts; lines that are no report, and a file that is not there, give nothing."""
    file = tmp_path / "output.metrics"
    assert last_values(file) == {}
    file.write_text(
        '{"accuracy": "0.5", "global_step": "1"}\nnonsense\n[1]\n{"accuracy": "nan", "loss": 2, "trial": "0"}\n'
    )
    assert last_values(file) == {"accuracy": 0.5, "loss": 2.0}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/data/x'",
            "this user may not read or write the file or folder",
        ),
        ("the package cannot be written to '/x/build/packages': Permission denied", "this user may not read or write"),
        ("Permission denied: storage.objects.get", "the job's service account may not do this"),
        ("403 GET https://storage.googleapis.com/b/o", "the job's service account may not do this"),
        ("ERROR: No matching distribution found for nosuchmodule", "no package index has a distribution of that name"),
    ],
)
def test_a_hint_is_about_what_was_refused(words: str, meant: str) -> None:
    """A local file is a matter of its permissions, a bucket one of the service account, a package one of its name."""
    assert hint(words).startswith(meant)
