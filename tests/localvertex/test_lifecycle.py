"""The states of jobs as a machine: the real manager under requests, faults and restarts in any order."""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from localvertex.http import ApiError
from localvertex.jobs import lifecycle, resources
from localvertex.jobs.manager import Jobs
from localvertex.jobs.project_settings import waits
from localvertex.jobs.settings import Fault, Settings
from localvertex.jobs.store import ResourceStore
from localvertex.runner import RunOptions, policy
from localvertex.runner.children import Exit
from localvertex.runner.lines import Line
from localvertex.sqlite import Database
from tests.support.jobkit import job, pool, with_trainer
from vertexrig.errors import UsageError
from vertexrig.spec import states
from vertexrig.times import parse

WAIT = "import time; time.sleep(600)"
WORK = {
    "short": job(pool("pass")),
    "long": job(pool(WAIT)),
    "wrong": job(pool("1/0")),
    "two": job(pool(WAIT), pool(WAIT)),
    "once": job(pool(WAIT), scheduling={"disableRetries": True}),
}


class Watched(ResourceStore):
    """A store that notes every change of a state, in the transaction that makes it."""

    def __init__(self, root: Path, seen: dict[str, list[str]], changed: threading.Condition) -> None:
        super().__init__(root)
        self.seen, self.changed = seen, changed

    def change(self, name: str, edit: Callable[[Any, Any], bool | None]) -> Any:
        def noting(body: Any, hidden: Any) -> bool | None:
            ended = edit(body, hidden)
            if self.seen[name][-1] != body["state"]:
                self.seen[name].append(body["state"])
            return ended

        found = super().change(name, noting)
        with self.changed:
            self.changed.notify_all()
        return found


def ignored(job: str, lines: Iterable[Line]) -> None:
    """Nobody reads them here."""


class Lifecycle(RuleBasedStateMachine):
    """Creates, cancels, deletes and disturbs jobs, and restarts the server, in any order."""

    root: Path
    jobs_made = Bundle("jobs_made")

    @initialize(target=jobs_made, slow=st.booleans(), kinds=st.permutations(sorted(WORK)))
    def start(self, slow: bool, kinds: list[str]) -> Any:
        self.place = Path(tempfile.mkdtemp(dir=self.root))
        self.seen: dict[str, list[str]] = {}
        self.changed = threading.Condition()
        provision, tear_down = waits("recorded" if slow else "none", 2000 if slow else None)
        run = RunOptions(grace=0.2, provision=provision, tear_down=tear_down)
        self.settings = Settings(self.root, slots=3, checks=False, options=run)
        self.open()
        return multiple(*(self.made(kind) for kind in kinds[:3]))

    def open(self) -> None:
        self.store = Watched(self.place, self.seen, self.changed)
        self.jobs = Jobs(self.settings, self.store, ignored)
        self.jobs.recover()

    def close(self) -> None:
        self.jobs.close()
        self.store.close()

    @rule(target=jobs_made, kind=st.sampled_from(sorted(WORK)))
    def create(self, kind: str) -> str | None:
        return self.made(kind)

    def made(self, kind: str) -> str | None:
        parent = "projects/1/locations/us-central1"
        original = self.store.add

        def add(*args: Any, **options: Any) -> None:
            self.seen[args[2]] = [args[3]["state"]]
            original(*args, **options)

        self.store.add = add  # type: ignore[method-assign]
        try:
            made = self.jobs.create(parent, {"displayName": kind, "jobSpec": WORK[kind]})
        except ApiError as error:  # by a fault on demand
            assert error.code == 429
            return None
        finally:
            self.store.add = original  # type: ignore[method-assign]
        assert made["state"] == states.PENDING
        return str(made["name"])

    @rule(name=jobs_made)
    def cancel(self, name: str | None) -> None:
        if name in self.seen:
            self.jobs.cancel(name)
            assert self.seen[name][-1] in (states.CANCELLING, *states.ENDED)

    @rule(name=consumes(jobs_made))
    def delete(self, name: str | None) -> None:
        if name not in self.seen:
            return
        try:
            self.jobs.delete(name)
        except ApiError as error:
            assert error.code == 400
        else:
            assert self.seen.pop(name)[-1] in states.ENDED and self.store.get(name) is None

    @rule(name=jobs_made, what=st.sampled_from([{"kill": "workerpool0-0"}, {"preempt": 0.0}, {"preempt": 0.1}]))
    def disturb(self, name: str | None, what: dict[str, Any]) -> None:
        if name in self.seen:
            try:
                self.jobs.inject_fault(name, **what)
            except ApiError as error:
                assert error.code == 400

    @rule(fault=st.sampled_from(["stockout::1", "quota::1"]))
    def fault(self, fault: str) -> None:
        self.settings.faults.append(Fault.parse(fault))

    @rule(name=jobs_made)
    def wait_until_it_moves_on(self, name: str | None) -> None:
        """Until it runs, waits in the line, or has ended; a job that does not last is waited for to its end."""

        def there() -> bool:
            lasts = self.jobs.get(str(name))["displayName"] not in ("short", "wrong")
            return (
                self.seen[str(name)][-1]
                in ((states.RUNNING, states.QUEUED) if lasts else (states.QUEUED,)) + states.ENDED
            )

        if name in self.seen:
            with self.changed:
                assert self.changed.wait_for(there, 30), self.seen

    @rule()
    def restart_the_server(self) -> None:
        self.close()
        self.open()

    def teardown(self) -> None:
        if not hasattr(self, "jobs"):
            return
        for name in self.seen:
            self.jobs.cancel(name)
        with self.changed:
            ended = self.changed.wait_for(lambda: all(way[-1] in states.ENDED for way in self.seen.values()), 30)
        bodies = [self.jobs.get(name) for name in self.seen]
        self.close()
        shutil.rmtree(self.place)
        assert ended, self.seen
        for way in self.seen.values():
            assert way[0] == states.PENDING
            assert all(after in lifecycle.NEXT[before] for before, after in pairwise(way)), way
        for body in bodies:
            times = [parse(body[key]) for key in ("createTime", "startTime", "endTime") if key in body]
            assert times == sorted(times) and body["endTime"][:19] <= body["updateTime"][:19]
            assert "startTime" in body or body["state"] != states.SUCCEEDED
            assert ("error" in body) == (body["state"] != states.SUCCEEDED)
            assert "cannot become" not in body.get("error", {}).get("message", "")


@pytest.mark.whole
def test_every_change_of_a_state_is_in_the_table(root: Path) -> None:
    """Whatever is asked, in any order, a job moves by the table, ends, and has its times in order."""
    machine = type("Machine", (Lifecycle,), {"root": root})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=14,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )


def test_the_table_is_closed() -> None:
    """Every state that can follow is in the table, an end has no way on, and every other state leads to one."""
    following = {after for states_ in lifecycle.NEXT.values() for after in states_}
    assert following <= set(lifecycle.NEXT)
    assert all((not ways) == (state in states.ENDED) for state, ways in lifecycle.NEXT.items())


def test_a_listener_sees_a_cancelled_job_only_end(tmp_path: Path) -> None:
    """A job that is cancelled while it starts is not reported as pending or running after that."""
    store, seen, over = ResourceStore(tmp_path), [], threading.Event()
    jobs = Jobs(Settings(tmp_path, checks=False), store, ignored)

    def changed(name: str, state: str) -> None:
        seen.append(state)
        if len(seen) == 1:
            jobs.cancel(name)
        if state in states.ENDED:
            over.set()

    jobs.listen(changed)
    jobs.create("projects/1/locations/us-central1", {"displayName": "short", "jobSpec": WORK["short"]})
    assert over.wait(60)
    jobs.close()
    store.close()
    assert seen[0] == states.PENDING and set(seen[1:]) == {states.CANCELLING, states.CANCELLED}


def test_the_recorded_pace() -> None:
    """`recorded` takes the medians of the recordings, divided by the speed; without it nothing waits."""
    assert waits("none") == (0.0, 0.0)
    assert waits("recorded") == (176.0, 65.0)
    assert waits("recorded", 100) == pytest.approx((1.76, 0.65))
    with pytest.raises(UsageError, match="--pace recorded"):
        waits("none", 2.0)


def test_a_job_on_a_persistent_resource_waits_for_no_machines(tmp_path: Path) -> None:
    """A persistent resource has its machines: neither getting them nor their start takes time (page persistent-resource-train)."""
    with_trainer(tmp_path)
    slow = RunOptions(grace=0.2, provision=3600, slow_start=3600)
    store, over = ResourceStore(tmp_path), threading.Event()
    jobs = Jobs(Settings(tmp_path, checks=False, options=slow), store, ignored)
    jobs.listen(lambda _, state: over.set() if state == states.SUCCEEDED else None)
    spec = job(pool("pass"), persistentResourceId="warm")
    jobs.create("projects/1/locations/us-central1", {"displayName": "short", "jobSpec": spec})
    succeeded = over.wait(60)
    jobs.close()
    store.close()
    assert succeeded


def test_a_full_disk_is_the_reason_that_is_given(tmp_path: Path) -> None:
    """SQLite rolls a transaction back by itself where the disk is full; the error still says so, and the file can be used."""
    database = Database(tmp_path / "x.sqlite3", "CREATE TABLE IF NOT EXISTS rows (text TEXT);")
    try:
        database.connection.execute("PRAGMA max_page_count = 40")
        with pytest.raises(sqlite3.OperationalError, match="disk is full"), database.transaction() as connection:
            for _ in range(1000):
                connection.execute("INSERT INTO rows VALUES (?)", ("x" * 3000,))
        assert database.rows("SELECT * FROM rows") == []
        with database.transaction() as connection:
            connection.execute("INSERT INTO rows VALUES ('y')")
        assert len(database.rows("SELECT * FROM rows")) == 1
    finally:
        database.close()


@pytest.mark.parametrize(
    ("ways", "start", "end"),
    [
        ([states.QUEUED, states.CANCELLING, states.CANCELLED], r"\.\d{6}Z", r"\.\d{6}Z"),
        ([states.QUEUED, states.PENDING, states.FAILED], "", r"\.\d{6}Z"),
        ([states.QUEUED, states.PENDING, states.RUNNING, states.PENDING, states.RUNNING, states.SUCCEEDED], r":\d\dZ", r":\d\dZ"),
    ],
)  # fmt: skip
def test_times_say_whether_a_job_has_run(ways: list[str], start: str, end: str) -> None:
    """What waits has a start in microseconds; what ran has start and end in whole seconds; a failure before it ran leaves no start.

    The update is later than a start and an end in whole seconds.
    """
    body = resources.new_body("projects/1/locations/us-central1/customJobs/1", states.PENDING, {"displayName": "a"})
    for state in ways:
        resources.move(body, state)
        times_ = [parse(body[key]) for key in ("createTime", "startTime", "endTime", "updateTime") if key in body]
        assert times_ == sorted(times_), body
        whole = [parse(body[key]) for key in ("startTime", "endTime") if "." not in body.get(key, ".")]
        assert all(time < parse(body["updateTime"]) for time in whole), body
    assert re.search(f"{start}$", body.get("startTime", "")) and bool(start) == ("startTime" in body)
    assert re.search(f"{end}$", body["endTime"])
    assert states.has_run(body) or body["endTime"] == body["updateTime"]
    order = ["name", "displayName", "state", "createTime", "startTime", "endTime", "updateTime"]
    assert list(body) == [key for key in order if key in body]


def test_a_job_taken_up_by_another_server_keeps_its_start() -> None:
    """One that ran when its server was killed waits again, and has the start of its first run, also where it is cancelled then."""
    body = resources.new_body("projects/1/locations/us-central1/customJobs/1", states.PENDING, {})
    for state in (states.QUEUED, states.PENDING, states.RUNNING):
        resources.move(body, state)
    body |= {"createTime": "2026-01-01T00:00:00.123456Z", "startTime": "2026-01-01T00:00:01Z"}
    for state in (states.PENDING, states.QUEUED, states.CANCELLING, states.CANCELLED):
        resources.move(body, state)
    assert body["startTime"] == "2026-01-01T00:00:01Z" and body["endTime"] == body["updateTime"]


def test_a_job_taken_up_by_another_server_has_the_rest_of_its_timeout(tmp_path: Path) -> None:
    """What it has used under a server that was stopped, and how often it was preempted there, counts on."""
    with_trainer(tmp_path)
    store, local = ResourceStore(tmp_path), Settings(tmp_path, checks=False, options=RunOptions(grace=0.2))
    spec, seen = job(pool(WAIT), scheduling={"timeout": "600s"}), list[str]()

    def reached(state: str, times: int = 1) -> None:
        until = time.monotonic() + 60
        while seen.count(state) < times:
            assert time.monotonic() < until, seen
            time.sleep(0.01)

    first, second = (Jobs(local, store, ignored) for _ in range(2))
    first.listen(lambda _, state: seen.append(state))
    name = first.create("projects/1/locations/us-central1", {"displayName": "long", "jobSpec": spec})["name"]
    reached(states.RUNNING)
    first.inject_fault(name, preempt=0.0)
    reached(states.RUNNING, 2)
    first.close()
    stored = store.get(name)
    assert stored is not None
    assert stored.hidden["counts"]["preemptions"] == 1 and 0 < stored.hidden["counts"]["used"] < 60
    store.change(name, lambda _, hidden: hidden["counts"].update(used=599.9))
    second.listen(lambda _, state: seen.append(state))
    second.recover()
    reached(states.FAILED)
    assert "timeout of 600 seconds" in second.get(name)["error"]["message"]
    second.close()
    store.close()


FRAMES = "".join(f'  File "a.py", line {number}, in f{number}\n    f{number + 1}()\n' for number in range(300))


@pytest.mark.parametrize(
    ("stderr", "code", "package", "said"),
    [
        ("Traceback (most recent call last):\nValueError: a", 1, True, r"1\. Termination reason: Error\. \nTraceback \(most recent call last\):\nValueError: a\n\nTo find"),
        (f"Traceback (most recent call last):\n{FRAMES}ValueError: b", 1, False, r"1\. Termination reason: Error\. \nTraceback \(most recent call last\):\n  \[\.\.\.\]\n  File (.|\n){,2048}ValueError: b\n\nTo find"),
        (f"{FRAMES}ValueError: c", 1, True, r"1\. Termination reason: Error\. \nTraceback \(most recent call last\):\n  \[\.\.\.\]\n  File "),
        ("usage: a", 2, True, r"2\. Termination reason: Error\. \nusage: a\n\nTo find"),
        ("usage: a", 2, False, r"2\. Termination reason: Error\. To find"),
        ("cannot start x: no", 128, False, r"128\. Termination reason: StartError\. \nTermination log message: failed to create containerd task: .+cannot start x: no\n\nTo find"),
    ],
)  # fmt: skip
def test_the_error_of_an_exit(stderr: str, code: int, package: bool, said: str) -> None:
    """It has the end of a traceback, why nothing started, a package's last lines, and nothing of a container without a traceback."""
    words = policy.quoted_output(stderr.split("\n"), Exit(code), package=package)
    message = policy.exit_message("workerpool0-0", Exit(code), words, "1", "2", package=package)
    assert re.match(rf"The replica workerpool0-0 exited with a non-zero status of {said}", message), message


def test_a_package_s_traceback_is_cut_as_recorded() -> None:
    """Of a longer traceback five frames of 904 characters stay, the sixth not; one of 845 characters is whole. A container's keeps more."""
    long = [f'  File "{"a" * 108}\n    {"b" * 52}()' for _ in range(12)]
    stderr = ["Traceback (most recent call last):", *long, f"ValueError: {'c' * 11}"]
    kept = "\n".join(stderr[-6:])
    assert len(kept) + 1 == 904
    assert policy.quoted_output(stderr, Exit(1), package=True) == f"Traceback (most recent call last):\n  [...]\n{kept}"
    assert policy.quoted_output(stderr, Exit(1), package=False).count("  File ") == 11
    short = ["Traceback (most recent call last):", *(one[:125] for one in long[:6]), f"ValueError: {'c' * 41}"]
    assert len("\n".join(short)) + 1 == 845
    assert policy.quoted_output(short, Exit(1), package=True) == "\n".join(short)


def test_the_last_frame_stays_where_the_error_is_long() -> None:
    """A package's error whose message alone is longer than the rest still has the frame that raised it."""
    stderr = ["Traceback (most recent call last):", '  File "a.py"', '  File "b.py"', f"ValueError: {'c' * 1500}"]
    words = policy.quoted_output([*stderr[:1], *stderr[1:2] * 100, *stderr[2:]], Exit(1), package=True)
    assert words.endswith("\n".join(stderr[2:])) and words.count("  [...]\n") == 1


@pytest.mark.parametrize(
    ("state", "settings"), [(states.PENDING, {"pending_for": 60}), (states.QUEUED, {"queued_for": 60})]
)
def test_a_job_of_a_client_is_pending_and_then_queued_for_a_moment(
    tmp_path: Path, state: str, settings: dict[str, float]
) -> None:
    """It is PENDING, then QUEUED, as long as the settings say; a cancellation in that time ends it before it has run."""
    store, seen, over = ResourceStore(tmp_path), [], threading.Event()
    jobs = Jobs(Settings(tmp_path, checks=False, **settings), store, ignored)

    def changed(name: str, state: str) -> None:
        seen.append(state)
        if state in states.ENDED:
            over.set()

    jobs.listen(changed)
    name = jobs.create("projects/1/locations/us-central1", {"displayName": "short", "jobSpec": WORK["short"]})["name"]
    deadline = time.monotonic() + 30
    while jobs.get(name)["state"] != state and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.1)
    assert jobs.get(name)["state"] == state
    jobs.cancel(name)
    assert over.wait(30)
    jobs.close()
    store.close()
    assert seen[-1] == states.CANCELLED and states.RUNNING not in seen


def test_a_job_whose_log_is_refused_waits_no_more(tmp_path: Path) -> None:
    """Where the disk is full as a job begins to wait for machines, it fails, and is not among those that wait."""
    over = threading.Event()

    def full(name: str, lines: object) -> None:
        raise OSError("No space left on device")

    fault = Fault.parse("stockout:1h:wait")
    store = ResourceStore(tmp_path)
    jobs = Jobs(Settings(tmp_path, checks=False, faults=[fault]), store, full)
    jobs.listen(lambda _, state: over.set() if state == states.FAILED else None)
    jobs.create("projects/1/locations/us-central1", {"displayName": "short", "jobSpec": WORK["short"]})
    assert over.wait(30) and not jobs.held
    jobs.close()
    store.close()
