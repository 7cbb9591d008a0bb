"""Warm starts on real processes: a replica that was forked after an import of its framework is as one that imports it itself."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from localvertex.jobs.manager import Watcher
from localvertex.jobs.settings import Settings
from localvertex.runner import Control, JobResult, Line, RunOptions
from localvertex.runner.run_time_variables import read_at_import
from localvertex.runner.warm import Warmth, preload_of
from tests.support import jobkit
from tests.support.jobkit import IMAGE, container, exit_code, job, output, run_job, run_study, sdist, with_trainer
from tests.support.tools import installed
from vertexrig.project.local import LocalImage
from vertexrig.trainer_source.follow import follow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="replicas start warm on Linux only")
FRAMEWORKS = str(Path(__file__).with_name("frameworks"))
OPTIONS = RunOptions(grace=0.5, extra_env={"PYTHONPATH": FRAMEWORKS})
TASK = """
import xgboost
import numpy.random
import json, os, sys
if __name__ == "__main__":
    code, *args = sys.argv[1:]
    exec(compile(code, "<trainer>", "exec"))
"""
WARM = "workerpool0-0 starts warm, from a process that has imported xgboost."
LOOKS = """
import atexit, multiprocessing, random, re, resource, signal, threading
atexit.register(lambda: print("at exit"))
main = sys.modules["__main__"]
handlers = {name: str(signal.getsignal(getattr(signal, name))).split(" at ")[0] for name in ("SIGINT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGHUP")}
with multiprocessing.get_context("spawn").Pool(1) as pool:
    square = pool.apply(pow, (7, 2))
with multiprocessing.get_context("fork").Pool(1) as pool:
    cube = pool.apply(pow, (7, 3))
print("SEEN", json.dumps({
    "argv": sys.argv[2:], "program": os.path.basename(sys.argv[0]), "first": sys.path[0] == os.getcwd(), "cwd": os.path.basename(os.getcwd()),
    "path": sys.path[1:], "main": [main.__name__, main.__spec__.name, os.path.basename(main.__file__)], "flags": list(sys.flags),
    "handlers": handlers, "group": os.getpgid(0) == os.getpid() == os.getsid(0), "thread": repr(threading.current_thread().name),
    "files": len(os.listdir("/proc/self/fd")), "limits": resource.getrlimit(resource.RLIMIT_NOFILE), "umask": os.umask(0o22),
    "pools": [square, cube], "stdin": os.readlink("/proc/self/fd/0"), "original": multiprocessing.process.ORIGINAL_DIR == os.getcwd(),
    "names": sorted(re.sub("[0-9]{9,}", "JOB", name) for name in os.environ), "threads": threading.active_count(),
}), flush=True)
print("RANDOM", random.random(), numpy.random.rand(), flush=True)
print("to stderr", file=sys.stderr)
1 / 0
"""


def pool(code: str, *args: str, **more: Any) -> dict[str, Any]:
    """A worker pool on an image with XGBoost."""
    made = jobkit.pool(code, *args, **more)
    made["pythonPackageSpec"]["executorImageUri"] = IMAGE.replace("tf-cpu.2-17.py310", "xgboost-cpu.1-1")
    return made


@pytest.fixture(scope="module")
def warm_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local Vertex's folder with a trainer that begins with an import of XGBoost."""
    return with_trainer(tmp_path_factory.mktemp("warm"), TASK)


@pytest.fixture
def warmth() -> Iterator[Warmth]:
    made = Warmth()
    yield made
    made.close()


Run = Callable[..., tuple[JobResult, list[Line]]]


@pytest.fixture
def run(warm_root: Path, warmth: Warmth) -> Run:
    """Runs a job of one replica with this code."""

    def go(code: str, *args: str, options: RunOptions = OPTIONS, **more: Any) -> tuple[JobResult, list[Line]]:
        lines: list[Line] = []
        spec = more.pop("spec", None) or job(pool(code, *args))
        result = run_job(spec, root=warm_root, on_line=lines.append, options=options, warmth=warmth, **more)
        return result, lines

    return go


def started(lines: list[Line]) -> list[str]:
    """How the replica has started, each time."""
    return [line.text for line in lines if " starts warm" in line.text or " starts cold" in line.text]


def forkers() -> list[psutil.Process]:
    """The processes of this one that fork replicas."""
    found = []
    for one in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # also of one that has ended and that nobody has waited for yet
            if any("forker.py" in word for word in one.cmdline()):
                found.append(one)
    return found


@pytest.mark.whole
def test_a_warm_replica_is_as_a_cold_one(run: Run) -> None:
    """Arguments, path, __main__, signals, group, files, limits, multiprocessing, output, traceback, exit code: the same; random
    numbers are not.
    """
    found = [run(LOOKS, "--a=1", "b c") for _ in range(3)]
    assert started(found[0][1]) == ["workerpool0-0 starts cold: it is the first of its environment."]
    assert started(found[1][1]) == started(found[2][1]) == [WARM]
    texts = [output(lines) for _, lines in found]
    seen = [json.loads(next(text[5:] for text in lines if text.startswith("SEEN "))) for lines in texts]
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["argv"] == ["--a=1", "b c"] and seen[0]["pools"] == [49, 343]
    random = {text for lines in texts for text in lines if text.startswith("RANDOM ")}
    assert len(random) == 3
    assert all(exit_code(result) == 1 for result, _ in found)
    assert found[0][0].quoted_output == found[1][0].quoted_output != ""
    plain = [sorted(text for text in own if text[:4] not in ("SEEN", "RAND")) for own in texts[1:]]
    assert plain[0] == plain[1]
    assert all("at exit" in own for own in texts)
    to_stderr = [line for line in found[1][1] if line.text == "to stderr"]
    assert [line.severity for line in to_stderr] == ["ERROR"]


def test_exit_codes(run: Run) -> None:
    """However a program ends, its warm replica ends with the code that a cold one has."""
    assert run("")[0].succeeded  # the first of its environment, which is cold
    for code, status in {
        "sys.exit(3)": 3, "os.kill(os.getpid(), 15)": 143, "os._exit(7)": 7, "raise KeyboardInterrupt": 130, "sys.exit('words')": 1,
    }.items():  # fmt: skip
        result, lines = run("", spec=job(pool(code), scheduling={"disableRetries": True}))
        assert (started(lines), exit_code(result)) == ([WARM], status), code


def test_a_killed_replica_starts_again_warm_and_leaves_nothing(run: Run, warm_root: Path, warmth: Warmth) -> None:
    """SIGKILL on demand, a cancellation with its window, a memory limit: as for cold replicas, and no process is left."""
    code = "import subprocess, time\nsubprocess.Popen(['sleep', '613'])\nprint('up', flush=True)\ntime.sleep(600)"
    control, seen = Control(), []

    def line(one: Line) -> None:
        seen.append(one)
        if one.text == "up":
            (control.cancel if sum(line.text == "up" for line in seen) > 2 else lambda: control.kill("workerpool0-0"))()

    result = run_job(job(pool(code)), root=warm_root, on_line=line, control=control, options=OPTIONS, warmth=warmth)
    assert result.state == "JOB_STATE_CANCELLED" and result.counts["restarts"] == {"workerpool0-0": 2}
    assert started(seen)[1:] == [WARM, WARM]
    assert not [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "613"]]
    eats = "import time\nblock = bytearray(400 << 20)\ntime.sleep(600)"
    over, lines = run(eats, options=replace(OPTIONS, memory_limit=300 << 20))
    assert started(lines) == [WARM] and over.error is not None and "low on memory" in over.error.message


def test_what_a_killed_supervisor_leaves_is_found(run: Run, warm_root: Path, warmth: Warmth) -> None:
    """A warm replica shows the mark of its job in /proc, and what it forked is killed when its supervisor is."""
    run("pass")
    code = "import time\npid = os.fork()\nprint('UP', os.getpid(), os.getppid(), flush=True) if pid else None\ntime.sleep(600)"
    marks: list[bytes] = []

    def line(one: Line) -> None:
        if one.text.startswith("UP "):
            replica, supervisor = map(int, one.text.split()[1:])
            marks.append(Path(f"/proc/{replica}/environ").read_bytes())
            os.kill(supervisor, signal.SIGKILL)

    spec = job(pool(code), scheduling={"disableRetries": True})
    options = replace(OPTIONS, job_id="77")
    result = run_job(spec, root=warm_root, on_line=line, options=options, warmth=warmth)
    assert exit_code(result) == 137
    left = [one for one in psutil.process_iter(["pid"]) if _marked(one.info["pid"])]
    assert [b"VERTEXRIG_REPLICA=77/workerpool0-0/" in mark for mark in marks] == [True] and left == []


def _marked(pid: int) -> bool:
    try:
        return b"VERTEXRIG_REPLICA=77/" in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def test_other_variables_have_other_imports(run: Run) -> None:
    """A variable that an import may read keeps replicas apart; ids, folders, the cluster and names of machines do not."""

    def with_variable(name: str, value: str) -> list[str]:
        one = pool("print('MINE', os.environ.get('MY_VARIABLE'), os.environ.get('AIP_X'))")
        one["pythonPackageSpec"]["env"] = [{"name": name, "value": value}]
        return started(run("", spec=job(one))[1])

    first = ["workerpool0-0 starts cold: it is the first of its environment."]
    assert with_variable("MY_VARIABLE", "1") == first
    assert with_variable("MY_VARIABLE", "2") == first
    assert with_variable("MY_VARIABLE", "2") == [WARM]
    assert with_variable("AIP_X", "1") == first  # without MY_VARIABLE
    assert with_variable("AIP_X", "2") == [WARM]
    assert with_variable("NO_PROXY", "a-0") == [WARM]  # as the front's, which names the replicas of each job
    ids = {"TF_CONFIG": "x", "CLOUD_ML_JOB_ID": "1", "HOSTNAME": "a", "NO_PROXY": "a", "no_proxy": "a"}
    assert read_at_import({**ids, "TF_CPP_MIN_LOG_LEVEL": "3"}) == {"TF_CPP_MIN_LOG_LEVEL": "3"}


def test_several_replicas_start_cold(run: Run) -> None:
    """Each process of a cluster has a hash seed of its own on Vertex AI, which forks would share."""
    lines = run("", spec=job(pool("pass"), pool("pass")))[1]
    assert len(started(lines)) == 2 and all("hash seed" in text for text in started(lines))


def test_imports_that_cannot_be_forked_after(tmp_path: Path, warm_root: Path, warmth: Warmth) -> None:
    """An import that starts a thread, ends the process, or reads what differs between replicas: cold, and the log says why."""
    libraries = {
        "spins": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "dies": "import os\nif 'CLOUD_ML_JOB_ID' not in dict(os.environ): os._exit(9)",
        "peeks": "import os\nNAME = os.environ.get('CLOUD_ML_TRIAL_ID')",
    }
    for name, text in libraries.items():
        library = tmp_path / "libraries" / name / "xgboost"
        library.mkdir(parents=True)
        (library / "__init__.py").write_text(text)
    words = {"spins": "threads", "dies": "ended with 9|has gone", "peeks": "reads CLOUD_ML_TRIAL_ID"}
    for name, expected in words.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "main.py").write_text(f"import xgboost\nprint('ran {name}')\nimport os\nos._exit(0)")
        image = LocalImage(str(folder), (sys.executable, "main.py"), "xgboost")
        one = container("x/y", PYTHONPATH=str(tmp_path / "libraries" / name))
        lines: list[Line] = []
        for _ in range(2):
            options = replace(
                OPTIONS, images={"x/y": image}, engine="none", trial="1"
            )  # a trial waits for no second one
            result = run_job(job(one), root=warm_root, on_line=lines.append, options=options, warmth=warmth)
            assert result.succeeded, result.error
        said = started(lines)
        assert len(said) == 2 and any(word in said[-1] for word in expected.split("|")), said
        assert [line.text for line in lines].count(f"ran {name}") == 2


def test_a_script_of_a_folder_starts_warm(tmp_path: Path, warm_root: Path, warmth: Warmth) -> None:
    """`python main.py` in a custom image's folder is forked, too; not where the folder has a module that an import hides."""
    (tmp_path / "own.py").write_text("NAME = 'own'")
    (tmp_path / "main.py").write_text(
        "import xgboost\nimport sys, own\nprint('RAN', own.NAME, __name__, __file__, sys.argv, sys.path[0])"
    )
    (tmp_path / "Dockerfile").write_text("FROM us-docker.pkg.dev/vertex-ai/training/xgboost-cpu.1-1 AS built\n")
    image = LocalImage(str(tmp_path), ("python", "main.py", "--x"))
    one = container("x/y")
    options = replace(OPTIONS, images={"x/y": image}, engine="none")

    def go() -> list[Line]:
        lines: list[Line] = []
        assert run_job(job(one), root=warm_root, on_line=lines.append, options=options, warmth=warmth).succeeded
        return lines

    cold, warm = go(), go()
    assert started(warm) == [WARM] and output(cold) == output(warm)
    (tmp_path / "own.py").write_text("NAME = 'changed'")
    assert output(go())[0].startswith("RAN changed ")
    (tmp_path / "secrets.py").write_text("import random\nrandbits = random.getrandbits")
    hidden = go()
    assert "its folder has a module secrets" in started(hidden)[0], started(hidden)
    assert output(hidden)[0].startswith("RAN changed ")


def test_a_forker_goes_with_its_runner_and_when_idle(run: Run, warm_root: Path) -> None:
    """Nothing is left after `close`, and a forker that nobody asks ends by itself; the next replica has another one."""
    warmth = Warmth(idle=0.1)
    lines: list[Line] = []
    for _ in range(2):
        run_job(job(pool("pass")), root=warm_root, on_line=lines.append, options=OPTIONS, warmth=warmth)
    (forker,) = forkers()
    forker.wait(30)
    run_job(job(pool("pass")), root=warm_root, on_line=lines.append, options=OPTIONS, warmth=warmth)
    assert started(lines)[1:] == [WARM, WARM]
    warmth.close()
    assert forkers() == []


def test_a_replica_that_waits_for_imports_can_be_cancelled(tmp_path: Path, warm_root: Path, warmth: Warmth) -> None:
    """The cancellation does not wait for the imports."""
    library = tmp_path / "xgboost"
    library.mkdir()
    (library / "__init__.py").write_text(
        "import os, time\nif os.path.exists('/proc/self/fd/3') and 'HELD' in os.environ: time.sleep(600)"
    )
    (tmp_path / "task.py").write_text("import xgboost")
    image = LocalImage(str(tmp_path / "empty"), (sys.executable, str(tmp_path / "task.py")), "xgboost")
    (tmp_path / "empty").mkdir()
    one = container("x/y", PYTHONPATH=str(tmp_path), HELD="1")
    options = replace(OPTIONS, images={"x/y": image}, engine="none")
    for _ in range(2):
        control, results, running = Control(), [], threading.Event()

        def go(
            control: Control = control, results: list[JobResult] = results, running: threading.Event = running
        ) -> None:
            seen = running.set
            results.append(run_job(job(one), root=warm_root, control=control, options=options, warmth=warmth,
                                   on_state=lambda state: seen() if state == "JOB_STATE_RUNNING" else None))  # fmt: skip

        thread = threading.Thread(target=go)
        thread.start()
        assert running.wait(60)
        control.cancel()
        thread.join(30)
        assert [result.state for result in results] == ["JOB_STATE_CANCELLED"]


TF = "import tensorflow; tensorflow.keras.Model"


@pytest.mark.parametrize(
    ("framework", "source", "expected"),
    [
        ("tf", "import tensorflow as tf", [TF]),
        ("tf", "def main():\n    from keras import layers", [TF]),
        ("sklearn", "import sklearn.ensemble", ["import sklearn"]),
        ("tf", "import own", ["import tensorflow; tensorflow.keras.Model", "TF_X=3"]),
        ("tf", "import numpy", None),
        ("pytorch", "import tensorflow", None),
        ("tf", "not python", None),
        ("", "import numpy", None),
        ("", "import torch", "the framework of its image is not known; `framework` under local: images: names it"),
        ("tf", "import os\nos.environ.setdefault('TF_Y', '3')\nos.environ.update(A='1')\nimport keras", [TF, "TF_Y?=3", "A=1"]),
        ("tf", "import os, keras\ndef main():\n    os.environ['TF_CONFIG'] = ''\n    os.environ.pop('TF_X')", [TF]),
        ("tf", "import os, keras\ndef main():\n    os.environ['KERAS_BACKEND'] = 'jax'", "main.py:3 sets KERAS_BACKEND, which an import may read"),
        ("tf", "import os, keras\nif flag:\n    os.environ.setdefault('TF_X', '1')", "main.py:3 sets TF_X, which an import may read"),
        ("tf", "import os, keras\nos.environ['TF_X'] = str(1)", "main.py:2 sets TF_X, which an import may read"),
        ("tf", "import os, keras\nos.environ['X'] = '1'\nos.environ['X'] = '2'", "main.py:3 sets X, which an import may read"),
        ("tf", "import os, keras\nos.environ.update(given)", "main.py:2 sets a variable whose name is computed, which an import may read"),
        ("tf", "import os, keras\nos.environ |= given", "main.py:2 sets a variable whose name is computed, which an import may read"),
        ("tf", "import os, keras\ndel os.environ['X']", "main.py:2 sets X, which an import may read"),
    ],
)  # fmt: skip
def test_what_is_imported_ahead(tmp_path: Path, framework: str, source: str, expected: list[str] | str | None) -> None:
    """The framework of the image, if the trainer uses it, after the variables that the source sets plainly; else a reason, or nothing."""
    (tmp_path / "main.py").write_text(source)
    (tmp_path / "own.py").write_text("import os\nos.environ['TF_X'] = '3'\nimport tensorflow")
    found = preload_of(framework, follow(tmp_path / "main.py", ""))
    if found is None or found.refused:
        assert expected == (found and found.refused)
    else:
        assert [
            found.statement,
            *(f"{name}{'?' * default}={text}" for name, text, default in found.settings),
        ] == expected


def test_a_study_is_warm_from_its_first_trial_and_can_be_cold(warm_root: Path) -> None:
    """A sweep's log says how each trial has started; `warm` false starts all of them cold."""
    study = {
        "studySpec": {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "algorithm": "RANDOM_SEARCH",
                      "parameters": [{"parameterId": "x", "doubleValueSpec": {"minValue": 0, "maxValue": 1}}]},
        "maxTrialCount": 2, "parallelTrialCount": 1, "displayName": "study",
        "trialJobSpec": job(pool("with open(os.environ['CLOUD_ML_HP_METRIC_FILE'], 'a') as out: out.write(json.dumps({'accuracy': "
                                 "args[-1][4:], 'global_step': '1', 'timestamp': 1}) + '\\n')")),
    }  # fmt: skip
    for warm in (True, False):
        lines: list[Line] = []
        settings = Settings(warm_root, options=replace(OPTIONS, warm=warm))
        done = run_study(study, settings, Watcher(line=lambda _, line, lines=lines: lines.append(line)))  # type: ignore[misc]
        assert done["state"] == "JOB_STATE_SUCCEEDED", done
        assert [" starts warm" in text for text in started(lines)] == ([True, True] if warm else [])
    assert forkers() == []


TRAINER = """
import argparse, json, os
import tensorflow as tf
parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int)
args = parser.parse_args()
strategy = tf.distribute.MirroredStrategy()
print("free", float(tf.random.uniform([])))
tf.keras.utils.set_random_seed(7)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(args.units, activation="relu"), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = tf.random.uniform((64, 4))
loss = model.fit(x, tf.reduce_sum(x, 1, keepdims=True), epochs=2, batch_size=16, verbose=0).history["loss"][-1]
print("result", args.units, strategy.num_replicas_in_sync, tf.keras.Model.__module__.partition('.')[0], loss)
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "a") as out:
    out.write(json.dumps({"loss": str(loss), "global_step": "1", "timestamp": 1}) + "\\n")
"""


@pytest.mark.whole
def test_a_tensorflow_study(tmp_path: Path) -> None:
    """A foreign trainer on two GPUs, of an image with TensorFlow 2.11, that reads `--units` with `type=int`: each trial has two
    logical devices and Keras 2, and random numbers of its own; trials that die of "8.0" are run with "8".
    """
    installed("tensorflow")
    image = IMAGE.replace("tf-cpu.2-17.py310", "tf-gpu.2-11.py310")
    root = tmp_path
    sdist(root / "gs/packages/trainer.tar.gz", task=TRAINER)
    one = jobkit.pool("", acceleratorType="NVIDIA_TESLA_T4", acceleratorCount=2)
    one["pythonPackageSpec"] |= {"args": [], "executorImageUri": image}
    study = {
        "studySpec": {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "algorithm": "GRID_SEARCH",
                      "parameters": [{"parameterId": "units", "discreteValueSpec": {"values": [8, 16]}}]},
        "maxTrialCount": 2, "parallelTrialCount": 1, "displayName": "study", "trialJobSpec": job(one),
    }  # fmt: skip
    lines: dict[str, list[Line]] = {}
    results: dict[str, JobResult] = {}
    watcher = Watcher(
        line=lambda name, line: lines.setdefault(name, []).append(line),
        result=lambda name, one: results.update({name: one}),
    )
    done = run_study(study, Settings(root, options=OPTIONS), watcher)
    assert done["state"] == "JOB_STATE_SUCCEEDED", [result.error for result in results.values()]
    notes = [line.text for line in lines.pop(done["name"])]
    assert [text for text in notes if "int(float(text))" in text] == notes[-1:]
    assert [exit_code(result) for result in results.values()] == [2, 0, 0]
    printed = [[line.text for line in own if line.text.startswith(("result ", "free "))] for own in lines.values()]
    assert [text.rsplit(" ", 1)[0] for own in printed for text in own if text.startswith("result ")] == [
        "result 8 2 tf_keras", "result 16 2 tf_keras",
    ]  # fmt: skip
    assert len({text for own in printed for text in own if text.startswith("free ")}) == 2
    how = [text for own in lines.values() for text in started(own)]
    assert ["starts warm" in text for text in how] == [True, True, True], how
    assert any("TF_USE_LEGACY_KERAS=1" in text for text in next(iter(results.values())).differences)
