"""The service's own lines in a job's log, in the order and under the tasks of public recordings, and the times of a pace."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import pytest

from localvertex.runner import Control, Line, RunOptions, servicelog
from tests.support.jobkit import job, pool, run_job, sdist
from vertexrig.spec.document import Pool

WAIT = "import time; time.sleep(600)"
PACKAGE = "gs://packages/trainer.tar.gz"
EXECUTOR = [
    "Updating master address to local address HOST",
    "Running run_module.py",
    "Running task with arguments: …",
    "Running module trainer.task.",
    f"Downloading the package: {PACKAGE}",
    f"Running command: gsutil -q cp {PACKAGE} trainer.tar.gz",
    f"Installing the package: {PACKAGE}",
    "Running command: pip3 install --user --upgrade --force-reinstall --no-deps trainer.tar.gz",
    "Running command: pip3 install --user trainer.tar.gz",
]


PIP = re.compile(r"(?!Installing the )(  [A-Z][a-z]+ \w|Looking in |Processing |(Success|Build|Install)\w+ )")


def texts(lines: list[Line], task: str) -> list[str]:
    """A task's lines, with what differs from run to run left out, and without our own and pip's."""
    ours = [line for line in lines if line.severity == "WARNING" or line.text.startswith("Difference: ")]
    said = [line.text for line in lines if line.task == task and line not in ours and not PIP.match(line.text)]
    said = [re.sub(r"(?<=local address )\S+", "HOST", text) for text in said]
    return [re.sub(r"(?<=arguments: ).*", "…", text) for text in said]


@pytest.mark.whole
def test_a_job_that_succeeds(root: Path) -> None:
    """The service speaks before, of each replica, and after; a second replica has the same lines without the master's."""
    lines: list[Line] = []
    flag = "import time\nopen(args[0] + '/there', 'w').close()\ntime.sleep(600)"
    wait = "import time\nwhile not os.path.exists(args[0] + '/there'): time.sleep(0.01)\nprint('trained')"
    (root / "gs/flags").mkdir(exist_ok=True)
    spec = job(pool(wait, "gs://flags"), pool(flag, "gs://flags"))
    assert run_job(spec, root=root, on_line=lines.append, options=RunOptions(grace=0.2)).succeeded
    assert texts(lines, "service") == [
        *servicelog.BEFORE, "Job is running.", "Tearing down training program.",
        "Finished tearing down training program.", "Job completed successfully.",
    ]  # fmt: skip
    chief, worker = texts(lines, "workerpool0-0"), texts(lines, "workerpool1-0")
    assert [line for line in chief if not line.startswith("Running command: python3")] == [
        *EXECUTOR, "trained", servicelog.TASK_COMPLETED,
    ]  # fmt: skip
    assert worker[:-1] == EXECUTOR[1:] and worker[-1].startswith("Running command: python3 -m trainer.task ")
    begun = next(line.text for line in lines if line.text.startswith("Running task with arguments: "))
    cluster, task, own = re.fullmatch(r".*? --cluster=(.*) --task=(.*) --job=(.*)", begun, re.DOTALL).groups()  # type: ignore[union-attr]
    assert set(json.loads(cluster)) == {"chief", "worker"} and json.loads(task) == {"type": "chief", "index": 0}
    assert set(json.loads(own)) == {"python_module", "package_uris", "job_args"} and "=" not in own


def test_what_pip_says(root: Path) -> None:
    """The lines of pip follow its command at INFO, also where another replica or job has installed the package."""
    lines: list[Line] = []
    spec = job(pool("pass"))
    for _ in range(2):
        assert run_job(spec, root=root, on_line=lines.append, options=RunOptions(grace=0.2)).succeeded
    said = [line for line in lines if line.task == "workerpool0-0"]
    for number, one in enumerate(said):
        if one.text.startswith("Running command: pip3 install --user --upgrade"):
            after = said[number + 1 :]
            until = next(i for i, line in enumerate(after) if line.text.startswith("Running command: "))
            assert {line.severity for line in after[:until]} == {"INFO"} and not any(
                line.shown for line in after[:until]
            )
            assert after[until - 1].text.startswith("Successfully installed trainer-")
    assert sum(line.text.startswith("Installing collected packages: trainer") for line in said) == 2
    places = {line.text.rpartition("/")[0] for line in said if line.text.startswith("Processing ")}
    assert places == {"Processing "}  # the archive is in /, as on Vertex AI


@pytest.mark.whole
def test_requirements_keep_their_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the path of an archive becomes one in /: the requirement that ends pip's command line stays as it is."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    lines: list[Line] = []
    sdist(root / "gs/packages/needs.tar.gz", requires=("psutil>=5",))
    spec = job(pool("pass", package="gs://packages/needs.tar.gz"))
    assert run_job(spec, root=root, on_line=lines.append, options=RunOptions(grace=0.2)).succeeded
    there = [line.text for line in lines if line.text.startswith("Requirement already satisfied: ")]
    assert there and there[0].startswith("Requirement already satisfied: psutil>=5 in ")


def test_several_packages_are_replayed_as_they_were_installed() -> None:
    """Where another job has installed them, every package comes first and then the requirements of each, as live."""
    uris = ["gs://b/one.tar.gz", "gs://b/two.tar.gz"]
    steps = [(name, of, [("INFO", f"{name} {of}")]) for of in (False, True) for name in ("one.tar.gz", "two.tar.gz")]
    one = Pool(0, "", {"pythonPackageSpec": {"packageUris": uris}})
    said = [text for _, text in servicelog.installation(one, steps)]
    assert [text for text in said if text.endswith(("False", "True"))] == [lines[0][1] for _, _, lines in steps]


def test_a_container_has_no_executor(root: Path, tmp_path: Path) -> None:
    """A container's log has what it prints and nothing else: recordings of containers show no more."""
    from vertexrig.project.local import LocalImage

    lines: list[Line] = []
    spec = job({"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1,
                "containerSpec": {"imageUri": "x/y", "command": ["echo", "hello"]}})  # fmt: skip
    options = RunOptions(images={"x/y": LocalImage(str(tmp_path), ())}, engine="none")
    assert run_job(spec, root=root, on_line=lines.append, options=options).succeeded
    assert texts(lines, "workerpool0-0") == ["hello"]


def test_a_pace_is_waited_for(root: Path) -> None:
    """With times to get and to give back machines, a job prepares and is torn down at least that long."""
    lines: list[Line] = []
    options = RunOptions(grace=0.2, provision=0.3, tear_down=0.2)
    assert run_job(job(pool("pass")), root=root, on_line=lines.append, options=options).succeeded
    at = {line.text: line.time for line in lines}
    assert at["Job is running."] - at["Job is preparing."] >= 0.3
    assert at[servicelog.TORN_DOWN] - at[servicelog.TEARING_DOWN] >= 0.2


@pytest.mark.parametrize("moment", ["Job is preparing.", servicelog.TEARING_DOWN])
def test_no_pace_holds_up_a_stop(root: Path, moment: str) -> None:
    """A job that waits for machines can be cancelled; one that is torn down ends as it would when the server stops."""
    control, asked, preparing = Control(), threading.Event(), moment == "Job is preparing."

    def line(one: Line) -> None:
        if one.text == moment:
            asked.set()
            (control.cancel if preparing else control.suspend)()

    options = RunOptions(grace=0.2, provision=3600) if preparing else RunOptions(grace=0.2, tear_down=3600)
    result = run_job(job(pool("pass")), root=root, on_line=line, control=control, options=options)
    assert asked.is_set()
    assert result.state == ("JOB_STATE_CANCELLED" if preparing else "JOB_STATE_SUCCEEDED")
