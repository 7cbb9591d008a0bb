"""The runner on real processes: contract, ends, restarts, faults. The trainers are a few lines of plain Python."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from localvertex.runner import (
    Control,
    JobResult,
    Line,
    RunOptions,
    children,
    environment,
    policy,
    pool_programs,
    run,
)
from localvertex.runner.children import Children, Command, Exit
from localvertex.runner.containers import Choice
from localvertex.runner.lines import Splitter
from localvertex.runner.policy import Action, Counts, Scheduling
from localvertex.runner.replica import user_environment
from localvertex.runner.result import JobError
from tests.support.jobkit import container, exit_code, job, output, pool, run_job, sdist
from vertexrig.project.local import LocalImage
from vertexrig.spec import cluster
from vertexrig.spec.document import Document, Pool

FAST = RunOptions(grace=0.5)
WAIT = "import time; time.sleep(600)"


ENVIRONMENT = "print('ENV', json.dumps(dict(os.environ)), flush=True)\n"


def environments(lines: list[Line]) -> dict[str, dict[str, str]]:
    return {line.task: json.loads(line.text[4:]) for line in lines if line.text.startswith("ENV ")}


def ran(root: Path, *pools: dict[str, Any], options: RunOptions = FAST, **fields: Any) -> tuple[JobResult, list[Line]]:
    """A job that was run to its end, and its lines."""
    lines: list[Line] = []
    return run_job(job(*pools, **fields), root=root, on_line=lines.append, options=options), lines


class Started:
    """Collects lines and lets a test wait for some of them."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.states: list[str] = []
        self._change = threading.Condition()

    def line(self, line: Line) -> None:
        with self._change:
            self.lines.append(line)
            self._change.notify_all()

    def wait_for(self, text: str, times: int = 1) -> None:
        with self._change:
            assert self._change.wait_for(lambda: sum(line.text == text for line in self.lines) >= times, 60), self.lines


def start(
    spec: dict, root: Path, options: RunOptions = FAST
) -> tuple[Started, Control, threading.Thread, list[JobResult]]:
    """Run a job in a thread."""
    seen, control, results = Started(), Control(), []

    def run() -> None:
        results.append(
            run_job(spec, root=root, on_line=seen.line, on_state=seen.states.append, control=control, options=options)
        )

    thread = threading.Thread(target=run)
    thread.start()
    return seen, control, thread, results


# Every rank brings its number to rank 0, which answers each with the sum; for that nothing but the four variables is read.
MEETS = (
    ENVIRONMENT
    + """
import socket, time
host, task = socket.gethostname(), json.loads(os.environ['CLUSTER_SPEC'])['task']
print('HOST', host, socket.gethostbyname(host) if host == os.environ.get('HOSTNAME') else '', flush=True)
open(f"{args[0]}/{task['type']}-{task['index']}", 'w').close()
while len(os.listdir(args[0])) < 5: time.sleep(0.01)
if 'RANK' not in os.environ: time.sleep(600)
address = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])
rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
if rank == 0:
    with socket.create_server(address) as server:
        peers = [server.accept()[0] for _ in range(size - 1)]
    ranks = [int(peer.recv(16)) for peer in peers]
    for peer in peers:
        peer.sendall(str(sum(ranks)).encode())
    print('sum', sum(ranks))
else:
    for _ in range(3000):
        try:
            peer = socket.create_connection(address)
            break
        except OSError:
            time.sleep(0.02)
    peer.sendall(str(rank).encode())
    assert int(peer.recv(16)) == 6
"""
)


@pytest.mark.whole
def test_every_replica_sees_the_documented_cluster(root: Path) -> None:
    """Chief, two workers, a parameter server and an evaluator get the TF_CONFIG and CLUSTER_SPEC of the documentation, on machines of
    the service's names. By PyTorch's variables all but the server meet as one world; this machine keeps its own name.
    """
    (root / "gs/meet").mkdir(parents=True)
    before = socket.gethostname()
    result, lines = ran(root, *(pool(MEETS, "gs://meet", replicas=count) for count in (1, 2, 1, 1)))
    assert result.state == "JOB_STATE_SUCCEEDED", result.error
    assert "sum 6" in output(lines) and socket.gethostname() == before
    seen = environments(lines)
    configs = {name: json.loads(env["TF_CONFIG"]) for name, env in seen.items()}
    clusters = [config["cluster"] for config in configs.values()]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {role: len(hosts) for role, hosts in clusters[0].items()} == {"chief": 1, "worker": 2, "ps": 1}
    tasks = {name: (config["task"]["type"], config["task"]["index"]) for name, config in configs.items()}
    assert tasks == {
        "workerpool0-0": ("chief", 0),
        "workerpool1-0": ("worker", 0),
        "workerpool1-1": ("worker", 1),
        "workerpool2-0": ("ps", 0),
        "workerpool3-0": ("evaluator", 0),
    }
    spec = json.loads(seen["workerpool3-0"]["CLUSTER_SPEC"])
    assert spec["task"] == {"type": "workerpool3", "index": 0}
    assert [len(spec["cluster"][f"workerpool{i}"]) for i in range(4)] == [1, 2, 1, 1]
    addresses = {f"{name}-{index}": host for name, hosts in spec["cluster"].items() for index, host in enumerate(hosts)}
    assert len(set(addresses.values())) == 5
    if not children.can_show_names():
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+", one) for one in addresses.values())
        return
    for line in lines:
        if line.text.startswith("HOST "):
            _, host, address = line.text.split(" ")
            own = addresses[line.task].rpartition(":")[0]
            assert re.fullmatch(r"cmle-training-workerpool\d-[0-9a-f]{10}-\d", own)
            assert re.fullmatch(re.escape(own) + "-[a-z0-9]{5}", host) and address == "127.0.0.1"


def test_reduction_servers_have_no_rank() -> None:
    """As Google's Reduction Server notebook needs it: one chief and four reduction servers are a world of one."""
    counts = (1, 0, 4)
    data = [{"replicaCount": n, "containerSpec": {"imageUri": "x"}} if n else {} for n in counts]
    everyone = cluster.replicas(Document("CustomJobSpec", {"workerPoolSpecs": data}).pools)
    chief = cluster.rank_variables(everyone, everyone[0])
    assert (chief["RANK"], chief["WORLD_SIZE"]) == ("0", "1")
    assert chief["MASTER_ADDR"].startswith("cmle-training-workerpool0-")
    assert cluster.rank_variables(everyone, everyone[1]) == {}


def test_single_replica_has_outputs_but_no_tf_config(root: Path) -> None:
    """A job of one replica has no TF_CONFIG and no rank; its AIP directories, args and env point into the local bucket; a trial has its
    tuning job's id.
    """
    code = (
        ENVIRONMENT
        + "print(args)\nopen(os.environ['AIP_MODEL_DIR'] + 'saved_model.pb', 'w').write('x')\nopen(args[0], 'w').close()"
    )
    one = pool(code, "/gcs/out/one/beside", "--data=gs://out/$(CLOUD_ML_JOB_ID)", "$$(HOME)")
    one["pythonPackageSpec"]["env"] = [
        {"name": "DATA", "value": "gs://out/d"},
        {"name": "BOTH", "value": "$(DATA)/$(NOPE)"},
    ]
    options = RunOptions(grace=0.5, job_id="123", trial="7", study_id="45")
    result, lines = ran(root, one, options=options, baseOutputDirectory={"outputUriPrefix": "gs://out/one"})
    assert result.state == "JOB_STATE_SUCCEEDED", result.error
    env = environments(lines)["workerpool0-0"]
    assert not {"TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"} & set(env)
    assert env["CLOUD_ML_TRIAL_ID"] == "7" and env["CLOUD_ML_JOB_ID"] == "45"
    assert env["AIP_MODEL_DIR"] == f"{root}/gs/out/one/7/model/"
    assert env["BOTH"] == f"{root}/gs/out/d/$(NOPE)"
    assert output(lines)[-1] == str([f"{root}/gs/out/one/beside", f"--data={root}/gs/out/45", "$(HOME)"])
    assert (root / "gs/out/one/7/model/saved_model.pb").read_text() == "x"


def test_credentials_stay_outside(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cloud login, tokens and other variables are not in a replica's environment unless they are asked for."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("MINE", "yes")
    _, lines = ran(root, pool(ENVIRONMENT))
    env = environments(lines)["workerpool0-0"]
    assert "secret" not in str(env) and not {"GOOGLE_APPLICATION_CREDENTIALS", "MINE"} & set(env)
    assert os.listdir(env["CLOUDSDK_CONFIG"]) == []
    asked_for = user_environment(RunOptions(credentials=True), tmp_path)
    assert asked_for["GOOGLE_APPLICATION_CREDENTIALS"] == "/key.json"
    assert asked_for["CLOUDSDK_AUTH_ACCESS_TOKEN"] == "secret"
    assert not {"AWS_SECRET_ACCESS_KEY", "MINE"} & set(asked_for)


def test_an_exception_in_any_replica_fails_the_job(root: Path) -> None:
    """A replica that raises fails the job at once, with the service's sentence and the replica's traceback."""
    result, _ = ran(root, pool(WAIT), pool("print('on stdout')\nraise ValueError('bad shape')"))
    name = "workerpool1-0"
    assert result.state == "JOB_STATE_FAILED" and result.failed_replica == name and result.error is not None
    assert result.error.message.startswith(
        f"The replica {name} exited with a non-zero status of 1. Termination reason: Error."
    )
    assert "ValueError: bad shape" in result.error.message and result.error.code == 3
    assert (
        result.quoted_output.startswith("Traceback (most recent call last):")
        and "on stdout" not in result.quoted_output
    )
    assert not result.counts["restarts"] and result.counts["retries"] == 0


KILLED, ABORTED, OUT_OF_MEMORY = Exit(137, signal.SIGKILL), Exit(134, signal.SIGABRT), Exit(137, signal.SIGKILL, True)
ALL_AGAIN, NEVER_AGAIN = (
    policy.scheduling_of({"scheduling": {"restartJobOnWorkerRestart": True, "disableRetries": never}})
    for never in (False, True)
)


@pytest.mark.parametrize(
    ("exit_", "scheduling", "counts", "action"),
    [
        (Exit(0), Scheduling(), Counts(), Action.LEAVE),
        (Exit(1), Scheduling(), Counts(), Action.FAIL),
        (KILLED, Scheduling(), Counts(), Action.RESTART_REPLICA),
        (KILLED, ALL_AGAIN, Counts(), Action.RESTART_JOB),
        (KILLED, NEVER_AGAIN, Counts(), Action.FAIL),
        (KILLED, Scheduling(), Counts({"workerpool1-0": 4}), Action.RESTART_REPLICA),
        (KILLED, Scheduling(), Counts({"workerpool1-0": 5}), Action.RETRY_JOB),
        (KILLED, Scheduling(), Counts({"workerpool1-0": 5}, retries=3), Action.FAIL),
        (OUT_OF_MEMORY, Scheduling(), Counts(), Action.FAIL),
        (ABORTED, Scheduling(), Counts(), Action.RETRY_JOB),
        (Exit(139, signal.SIGSEGV), ALL_AGAIN, Counts(retries=2), Action.RETRY_JOB),
        (Exit(6), Scheduling(), Counts(), Action.RETRY_JOB),
        (ABORTED, Scheduling(), Counts(retries=3), Action.FAIL),
        (ABORTED, NEVER_AGAIN, Counts(), Action.FAIL),
    ],
)
def test_what_follows_from_the_end_of_a_worker(
    exit_: Exit, scheduling: Scheduling, counts: Counts, action: Action
) -> None:
    """An exception is permanent, a lost worker comes back five times, SIGABRT and SIGSEGV are tried again three times; with
    disableRetries nothing is.
    """
    assert policy.decide(exit_, "workerpool1-0", scheduling, counts) is action


def test_the_status_of_an_abort() -> None:
    """A package's executor reports the number of the signal, and a container what a shell does."""
    said = [policy.exit_message("workerpool0-0", ABORTED, "", "1", "2", package=package) for package in (True, False)]
    assert "non-zero status of 6." in said[0] and "non-zero status of 134." in said[1]


def test_a_lost_worker_comes_back_under_its_name(root: Path) -> None:
    """A worker killed from outside is started again with the same TF_CONFIG, and the job still succeeds."""
    flag = root / "gs/flags/lost"
    flag.parent.mkdir(exist_ok=True)
    worker = "print(os.environ['TF_CONFIG'], flush=True)\nprint('up', flush=True)\n" + WAIT
    chief = f"import time\nwhile not os.path.exists({str(flag)!r}): time.sleep(0.01)"
    seen, control, thread, results = start(job(pool(chief), pool(worker)), root)
    seen.wait_for("up")
    control.kill("workerpool1-0")
    seen.wait_for("up", 2)
    flag.touch()
    thread.join()
    assert results[0].state == "JOB_STATE_SUCCEEDED" and results[0].counts["restarts"] == {"workerpool1-0": 1}
    configs = [text for text in output(seen.lines, "workerpool1-0") if text.startswith("{")]
    assert len(configs) == 2 and configs[0] == configs[1]
    assert seen.states == ["JOB_STATE_RUNNING"]


def test_restart_job_on_worker_restart_starts_all_again(root: Path) -> None:
    """With restartJobOnWorkerRestart the loss of one worker starts the chief again as well."""
    spec = job(
        pool("print('chief up', flush=True)\n" + WAIT),
        pool("print('up', flush=True)\n" + WAIT),
        scheduling={"restartJobOnWorkerRestart": True},
    )
    seen, control, thread, results = start(spec, root)
    seen.wait_for("chief up")
    seen.wait_for("up")
    control.kill("workerpool1-0")
    seen.wait_for("chief up", 2)
    control.cancel()
    thread.join()
    assert seen.states[:3] == ["JOB_STATE_RUNNING", "JOB_STATE_PENDING", "JOB_STATE_RUNNING"]
    assert results[0].state == "JOB_STATE_CANCELLED"


def test_a_job_that_is_tried_again_has_new_restarts(root: Path) -> None:
    """A worker that is lost for the sixth time has the job tried again, in which it is restarted five times; after the third such
    attempt the job fails.
    """
    worker = "print('up', flush=True)\nimport signal; os.kill(os.getpid(), signal.SIGKILL)"
    earlier = {"restarts": {"workerpool1-0": 4}, "retries": 2}
    result, lines = ran(root, pool(WAIT), pool(worker), options=replace(FAST, earlier=earlier))
    assert output(lines, "workerpool1-0").count("up") == 2 + 6
    assert (result.state, result.counts["retries"], exit_code(result)) == ("JOB_STATE_FAILED", 3, 137)


def test_cancel_ends_a_replica_that_ignores_sigterm(root: Path) -> None:
    """After SIGTERM and the grace time comes SIGKILL, also for a process the replica has put into another session."""
    code = """
    import signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
    print('daemon', child.pid, flush=True)
    print('up', flush=True)
    while True: time.sleep(600)
    """
    seen, control, thread, results = start(job(pool(textwrap.dedent(code))), root)
    seen.wait_for("up")
    control.cancel()
    thread.join()
    assert (results[0].state, results[0].error) == ("JOB_STATE_CANCELLED", policy.ON_CANCEL)
    assert policy.ON_CANCEL.message == "CANCELED"
    assert "no" in output(seen.lines) and seen.states[-1] == "JOB_STATE_CANCELLING"
    daemon = int(next(text for text in output(seen.lines) if text.startswith("daemon")).split()[1])
    assert not psutil.pid_exists(daemon)


@pytest.mark.parametrize(("before", "most", "scheduling"), [(5, 2, {}), (0, 1, {"disableRetries": True})])
def test_preemption_starts_again_up_to_six_times(
    root: Path, before: int, most: int, scheduling: dict[str, Any]
) -> None:
    """A preempted job starts again; the seventh preemption, or any without retries, ends it as a stockout, without a SIGTERM."""
    code = f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\nprint('up', flush=True)\n{WAIT}"
    options = replace(FAST, earlier={"preemptions": before})
    seen, control, thread, results = start(job(pool(code), scheduling=scheduling), root, options)
    for times in range(1, most + 1):
        seen.wait_for("up", times)
        control.preempt()
    thread.join()
    assert "told" not in output(seen.lines)
    assert results[0].state == "JOB_STATE_FAILED" and results[0].error is not None
    assert results[0].error.message.startswith("Resources are insufficient in region: us-central1.")


@pytest.mark.skipif(sys.platform != "linux", reason="opens the pipe of another process below /proc")
@pytest.mark.parametrize("end", ["poll", "stop", "close"])
def test_output_that_another_process_holds(tmp_path: Path, end: str) -> None:
    """A program that has ended is over within seconds, with all its lines, though a process that nobody can end holds its output."""
    lines: list[Line] = []
    children = Children(lines.append)
    os.mkfifo(tmp_path / "wait")
    argv = ["sh", "-c", "echo begun; read line < wait; printf last"]
    child = children.start("one", Command(argv, dict(os.environ), tmp_path))
    while not (lines and child.pid):
        children.poll(None)
    with open(f"/proc/{child.pid}/fd/1", "wb"):
        (tmp_path / "wait").write_text("go on\n")
        while child.link in child.open:
            children.poll(None)
        if end == "poll":
            while child.exit is None:
                children.poll(None)
        elif end == "stop":
            children.stop([child], 0.1)
        children.close()
    if end != "close":
        assert child.exit == Exit(0) and [line.text for line in lines] == ["begun", "last"]


def test_an_installation_is_shown_as_it_comes_and_ends_with_its_job(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pip prints is handed on before it ends, and a cancellation ends pip, too."""
    (tmp_path / "pip.conf").write_text("[global]\nverbose = 3\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    sdist(
        root / "gs/packages/slow.tar.gz", name="slow", setup="import time; print('begun', flush=True); time.sleep(60)"
    )
    control, lines = Control(), list[Line]()

    def pause() -> None:
        if any(line.text.strip() == "begun" for line in lines):
            control.cancel()

    spec = job(pool("", package="gs://packages/slow.tar.gz"))
    result = run_job(spec, root=root, on_line=lines.append, on_pause=pause, control=control, options=FAST)
    assert result.state == "JOB_STATE_CANCELLED", lines
    control.close()


def test_lines_are_handed_on_before_a_long_wait(root: Path) -> None:
    """What the service says before it waits for machines is read meanwhile, not after it."""
    control, lines, waited = Control(), list[Line](), list[float]()

    def pause() -> None:
        if lines:
            waited.append(time.time() - lines[0].time)
            control.cancel()

    options = replace(FAST, provision=60.0)
    result = run_job(job(pool("")), root=root, on_line=lines.append, on_pause=pause, control=control, options=options)
    assert result.state == "JOB_STATE_CANCELLED" and waited[0] < 30, waited
    control.close()


def test_nothing_outlives_a_runner_killed_with_9(root: Path) -> None:
    """Kill -9 of the process that runs a job ends its replicas, ignoring SIGTERM and all."""
    code = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('pid', os.getpid(), flush=True)\n" + WAIT
    )
    script = (
        "import json, sys\nfrom tests.support.jobkit import run_job\n"
        "run_job(json.loads(sys.argv[1]), root=sys.argv[2], on_line=lambda line: print(line.text, flush=True))"
    )
    spec = json.dumps(job(pool(code), pool(code)))
    runner = subprocess.Popen([sys.executable, "-c", script, spec, str(root)], stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    found: list[int] = []
    for line in runner.stdout:
        found += [int(line.split()[1])] if line.startswith("pid") else []
        if len(found) == 2:
            break
    processes = [psutil.Process(pid) for pid in found]
    supervisors = [process.parent() for process in processes]
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()
    runner.stdout.close()
    _, alive = psutil.wait_procs([*processes, *(s for s in supervisors if s)], timeout=30)
    assert alive == []


def test_only_a_resumed_job_looks_for_processes_left_behind(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run of a job reads no other process's environment; a run of the same job again kills what the first left."""
    swept: list[str] = []
    monkeypatch.setattr(run, "kill_marked", swept.append)
    for expected in ([], ["VERTEXRIG_REPLICA=77/"]):
        assert ran(root, pool("pass"), options=replace(FAST, job_id="77"))[0].succeeded
        assert swept == expected


def test_a_pool_without_replicas_is_left_out(root: Path) -> None:
    """A pool with a program but no replicas starts none and is not in TF_CONFIG; as the first pool it fails the job with the reason."""
    empty = {**pool("pass"), "replicaCount": 0}
    result, lines = ran(root, pool(ENVIRONMENT), empty, {**empty, "machineSpec": {}})
    assert result.state == "JOB_STATE_SUCCEEDED" and list(environments(lines)) == ["workerpool0-0"], result.error
    assert "TF_CONFIG" not in environments(lines)["workerpool0-0"]
    first, _ = ran(root, empty)
    assert first.error is not None and "workerPoolSpecs[0] is missing or has no replicas" in first.error.message


def test_memory_limit(root: Path) -> None:
    """A replica that takes more than the limit is killed, and the job fails with the out-of-memory sentence."""
    code = "data = []\nimport time\nwhile len(data) < 60:\n    data.append(b'x' * 10_000_000); time.sleep(0.02)\ntime.sleep(600)"
    result, _ = ran(root, pool(code), options=RunOptions(grace=0.5, memory_limit=200_000_000))
    text = "Replicas low on memory: workerpool0. Specify a machine with larger memory and try again."
    assert (result.state, result.error) == ("JOB_STATE_FAILED", JobError(policy.RESOURCE_EXHAUSTED, text))


@pytest.mark.parametrize("package", [True, False])
def test_a_full_disk(root: Path, tmp_path: Path, package: bool) -> None:
    """A replica whose last lines name a full disk fails the job with the service's sentence; the hint and the traceback stay."""
    shell = container("a", "sh", "-c", args=["echo 'cp: x: No space left on device' >&2; exit 1"])
    own = pool("raise OSError(28, os.strerror(28))") if package else shell
    options = RunOptions(grace=0.5, engine="none", images={"a": LocalImage(tmp_path, ("sh",))})
    result, _ = ran(root, pool(WAIT), own, options=options)
    text = (
        "Replicas low on disk: workerpool1. Specify a larger bootDiskSizeGb "
        "https://cloud.google.com/vertex-ai/docs/reference/rest/v1/DiskSpec and try again."
    )
    assert result.error == JobError(policy.RESOURCE_EXHAUSTED, text)
    assert "a disk is full" in result.hint and ("OSError" in result.quoted_output) == package


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        (["OSError: [Errno 28] x"], True),
        # of shared memory, as of PyTorch's data loader: a larger disk would not help
        (["RuntimeError: unable to write to file </torch_12_34_0>: No space left on device (28)"], False),
        (["unable to write to file </torch_12_34_0>: No space left on device (28)", "OSError: [Errno 28] x"], True),
        (["No space left on device", *map(str, range(12)), "ValueError: bad shape"], False),  # the program went on
    ],
)
def test_which_lines_tell_of_a_full_disk(said: list[str], lacks: bool) -> None:
    """A disk that the last lines name, and that is one."""
    assert (policy.lacking("workerpool0-0", Exit(1), said) is not None) is lacks


def test_lines_carry_severity_and_data() -> None:
    """Stdout is INFO, stderr ERROR, a JSON line has its own severity and its data; no line end and broken UTF-8 are no loss."""
    out, err = (Splitter("t", stream, by_executor=True) for stream in ("stdout", "stderr"))
    low = {"severity": "warning", "message": "low"}
    found = [*out.feed(b"plain\n%s\n\xff\r\nlast" % json.dumps(low).encode(), final=True), *err.feed(b"oops\n")]
    seen = [(line.severity, line.text) for line in found if line.payload is None]
    assert seen == [("INFO", "plain"), ("INFO", "\ufffd"), ("INFO", "last"), ("ERROR", "oops")]
    assert [(line.severity, line.payload) for line in found if line.payload] == [("WARNING", low)]


def test_a_line_above_info_counts_for_the_error(root: Path) -> None:
    """Of what a replica printed as JSON, a failed job's error quotes the lines whose severity is above INFO."""
    code = "import json, sys\nfor one in ('DEBUG', 'INFO', 'ERROR'): print(json.dumps({'severity': one, 'message': f'said {one}'}))\nsys.exit(3)"
    result, _ = ran(root, pool(code))
    assert "said ERROR" in result.quoted_output
    assert "said DEBUG" not in result.quoted_output and "said INFO" not in result.quoted_output


@pytest.mark.whole
def test_accelerators_are_stood_in_for(root: Path) -> None:
    """A pool with accelerators that are not here gets virtual devices, and the log and the result say so. Their variable is not one of
    the service's, to which an argument may refer.
    """
    code, own = "print(os.environ['TRAINER_VIRTUAL_DEVICES'], *args)", "$(TRAINER_VIRTUAL_DEVICES)"
    result, lines = ran(root, pool(code, own, acceleratorType="NVIDIA_H100_80GB", acceleratorCount=4))
    assert result.succeeded and output(lines)[-1] == f"4 {own}"
    assert "4 x NVIDIA_H100_80GB" in result.differences[0]
    service = [line.text for line in lines if (line.task, line.severity) == ("service", "INFO")]
    assert all(f"Difference: {said}." in service for said in result.differences)
    tpu = Pool(0, "", {"machineSpec": {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "4x4"}})
    assert environment.virtual_devices(tpu) == 4


def test_image_map(root: Path, tmp_path: Path) -> None:
    """A custom image runs from the folder it is mapped to; command replaces the entry point; without a map it is refused."""
    (tmp_path / "main.py").write_text("import sys; print('main', sys.argv[1:])")
    (tmp_path / "other.py").write_text("import sys; print('other', sys.argv[1:])")
    image = "us-docker.pkg.dev/mine/images/train:1"
    options = RunOptions(
        grace=0.5, engine="none", images={"*/mine/images/*": LocalImage(tmp_path, ("python", "main.py", "a"))}
    )
    texts = []
    other = container(image, "python3", "other.py")
    for one in (container(image, args=["b"]), other):
        done, lines = ran(root, one, options=options)
        assert done.succeeded and done.differences[0].startswith(f"folder {tmp_path.name} and Python ")
        assert done.differences[0].endswith(f" of this machine replace image {image}")
        texts.append(output(lines)[-1])
    assert texts == ["main ['a', 'b']", "other []"]
    result, _ = ran(root, other, options=RunOptions(engine="none"))
    assert result.state == "JOB_STATE_FAILED" and result.error is not None
    assert "local: images: in the project file names no folder for it" in result.error.message
    result, _ = ran(root, other, options=RunOptions(engine="none", interpreters={"*": sys.executable}))
    assert result.error is not None
    named = f"names {sys.executable}, which does not know what the image starts, and local: images: in the project file names no"
    assert named in result.error.message


@pytest.mark.parametrize(
    ("engine", "image", "dockerfile", "expected"),
    [
        ("podman", "gcr.io/my/own:1", True, "here: podman answers and does not have it, and local: images: in the project file names no "
         "folder for it. To build it from {0}/Dockerfile: `podman build -t gcr.io/my/own:1 {0}` or `vertexrig local run -- gcloud builds submit "
         "--tag gcr.io/my/own:1 {0}`. To run its sources"),
        ("", "gcr.io/my/own:1", True, "from {0}/Dockerfile: `vertexrig local run -- gcloud builds submit --tag gcr.io/my/own:1 {0}`. To run"),
        ("podman", "gcr.io/my/own:1", False, "To get it: `podman pull gcr.io/my/own:1`, or write `pull: missing` under local: in the project"),
        ("", "gcr.io/my/own:1", False, "here: no container engine answers (none), and local: images: in the project file names no folder for "
         "it. To run it as it is, start Docker or podman. To run its sources"),
        ("podman", "us-docker.pkg.dev/vertex-ai/training/pytorch-cpu.2-0.py310", True, "it. The list of prebuilt images does not have this name. To run"),
    ],
)  # fmt: skip
def test_what_to_do_about_an_image_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, image: str, dockerfile: bool, expected: str
) -> None:
    """The error names the engine that answers, and how to build the image from the project's Dockerfile; only where both lack, to start
    an engine, and never to pull an image that there is not.
    """
    if dockerfile:
        (tmp_path / "Dockerfile").touch()
    monkeypatch.delenv("VERTEXRIG_ENGINE", raising=False)
    why = "" if engine else "no container engine answers (none)"
    error = str(pool_programs.nowhere(image, Choice(None, why, engine), RunOptions(), tmp_path / "state"))
    assert expected.format(tmp_path) in error
    assert error.endswith(
        f'`local: {{images: {{"{image}": {{path: FOLDER, command: [python, FILE]}}}}}}` in the project file.'
    )


def test_a_program_that_is_not_there(root: Path, tmp_path: Path) -> None:
    """An entry point that cannot be started ends the job with the reason."""
    options = RunOptions(engine="none", grace=0.5, images={"*": LocalImage(tmp_path, ("no-such-program",))})
    result, _ = ran(root, container("x"), options=options)
    assert result.error is not None and "cannot start no-such-program" in result.error.message


def test_arguments_the_system_cannot_take(root: Path) -> None:
    """An argument longer than the system allows is a failed job, not an exception."""
    result, _ = ran(root, pool("x" * 200_000))
    assert result.state == "JOB_STATE_FAILED" and result.error is not None
    assert "cannot be started" in result.error.message


def test_slow_start_stays_pending(root: Path) -> None:
    """With a slow start the job is pending until its last replica is there."""
    seen, control, thread, results = start(
        job(pool("print('up', flush=True)\n" + WAIT), pool(WAIT)), root, RunOptions(grace=0.5, slow_start=1.0)
    )
    seen.wait_for("up")
    assert seen.states == []
    control.cancel()
    thread.join()
    assert results[0].state == "JOB_STATE_CANCELLED"


@pytest.mark.whole
def test_an_interpreter_chosen_for_an_image(root: Path, tmp_path: Path) -> None:
    """The layer stands on the Python chosen for the image and sees what is installed there; a wrong one is named."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "base")], check=True)
    site = next((tmp_path / "base").glob("lib/python*/site-packages"))
    (site / "installs.pth").write_text(
        sysconfig.get_path("purelib")
    )  # pip and setuptools, which take seconds to install
    (site / "only_there.py").write_text("NAME = 'base'")
    options = RunOptions(grace=0.5, interpreters={"*tf-cpu.2-17*": str(tmp_path / "base/bin/python")})
    result, lines = ran(root, pool("import only_there; print(only_there.NAME)"), options=options)
    assert result.succeeded and "base" in output(lines), result.error
    result, _ = ran(root, pool("pass"), options=RunOptions(interpreters={"*": "/no/python"}))
    assert result.error is not None and "interpreter '/no/python' cannot be used" in result.error.message


@pytest.mark.parametrize(("python", "asked"), [("auto", True), (sys.executable, False)])
def test_a_custom_image_is_the_engines_unless_a_python_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, python: str, asked: bool
) -> None:
    """`interpreters: auto` is for prebuilt images, so an engine is asked for a custom one; a Python that is named stands in its place,
    and an error about the image names it, and no engine.
    """
    images = []
    chosen = "localvertex.runner.containers.chosen"
    monkeypatch.setattr(chosen, lambda image, *rest: images.append(image) or Choice(why="no"))
    work = container("example.com/a:1", "true")
    result, _ = ran(root, work, options=RunOptions(interpreters={"*": python}, engine="podman"))
    assert result.error is not None and bool(images) is asked
    assert (f"names {python}, which does not know" in result.error.message) is not asked
    assert ("start Docker or podman" in result.error.message) is asked


SAVING = """
import signal, time
place = args[0] + '/saved'
print('begins at', open(place).read() if os.path.exists(place) else '0', flush=True)
def save(*_):
    open(place, 'w').write('7')
    os._exit(143)
signal.signal(signal.SIGTERM, save)
print('model', os.environ['AIP_MODEL_DIR'])
print('trains', flush=True)
time.sleep(600)
"""


def test_a_preemption_with_and_without_a_window(root: Path, tmp_path: Path) -> None:
    """Without a window SIGKILL comes at once and nothing is saved; with one SIGTERM comes first, and the job goes on from there, with
    the same AIP_MODEL_DIR.
    """
    place = root / "gs/saving" / tmp_path.name
    place.mkdir(parents=True)
    out = {"baseOutputDirectory": {"outputUriPrefix": "gs://out/runs/cpu/20261121-171500-ab12"}}
    seen, control, thread, _ = start(job(pool(SAVING, f"gs://saving/{tmp_path.name}"), **out), root)
    seen.wait_for("trains")
    control.preempt()
    seen.wait_for("trains", 2)
    control.preempt(30.0)
    seen.wait_for("trains", 3)
    control.cancel()
    thread.join(60)
    assert [text for text in output(seen.lines) if text.startswith("begins")] == [
        "begins at 0", "begins at 0", "begins at 7",
    ]  # fmt: skip
    models = [text for text in output(seen.lines) if text.startswith("model ")]
    assert len(models) == 3 and len(set(models)) == 1 and models[0].endswith("20261121-171500-ab12/model/")
    faults = [line.text for line in seen.lines if line.text.startswith("Fault on demand")]
    assert faults[0].endswith("preempted.") and "SIGKILL follows in 30 s" in faults[1]


def test_a_signal_handler_may_cancel_at_any_moment() -> None:
    """A handler interrupts the thread that runs the job, wherever that is, and may then ask it to end."""
    control, seen = Control(), []

    def interrupt(frame: Any, event: str, _: object) -> Any:
        if frame.f_code is Control.take_faults.__code__:
            if event == "line":
                control.cancel()
            return interrupt
        return None

    def look() -> None:
        sys.settrace(interrupt)
        seen.append(control.take_faults())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(10)
    assert seen == [(None, [])] and control.cancelled
    control.close()
