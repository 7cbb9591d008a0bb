"""One job from its spec to its end: replicas started, watched, restarted and stopped by the rules of `policy`."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localvertex.hints import INTERPRETERS, OWN_INTERPRETER, hint, may_be_version
from localvertex.runner import (
    containers,
    environment,
    job_files,
    packages,
    policy,
    pool_programs,
    ports,
    servicelog,
)
from localvertex.runner.children import Child, Children, Command, Exit, can_show_names, kill_marked
from localvertex.runner.forker import MARK
from localvertex.runner.lines import SERVICE, Line, LogFiles, OnLine
from localvertex.runner.options import Control, RunOptions
from localvertex.runner.policy import Action
from localvertex.runner.replica import INSTALLED, replica_command, user_environment, write_hosts
from localvertex.runner.replica_program import ReplicaProgram
from localvertex.runner.result import SUSPENDED, JobError, JobResult
from localvertex.runner.warm import MODULES, Warmth
from vertexrig.errors import JobFailedError, PackageError, VertexrigError
from vertexrig.spec import cluster
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.states import CANCELLED, CANCELLING, FAILED, PENDING, RUNNING, SUCCEEDED
from vertexrig.text import clean

# Lines per replica that the job's error may quote; the whole output is in its log file.
_ERRORS_KEPT = 200
# Severities of stdout lines that do not count for the job's error. A line whose JSON names a higher one does: some trainers log
# no other way.
_ORDINARY = ("DEFAULT", "DEBUG", "INFO")
# pip names the cause near its end; what it did before is in the log.
_PIP_LINES_SHOWN = 40
_LINES_PRINTED, _LONGEST_PRINTED = 5, 300
"""Last lines of a failed replica that the result has, and the most characters of each."""
_LINES_FOR_HINT = 10
"""Last lines of a replica's errors in which the cause of a failure is looked for."""


class _Stop(Exception):
    """Stops all replicas, in `_run_replicas`. They get `grace` seconds between SIGTERM and SIGKILL; with None, as many as
    `RunOptions.grace` says.
    """

    def __init__(self, grace: float | None = None) -> None:
        self.grace = grace
        super().__init__(grace)


class _Ended(_Stop):
    """Ends the run with a state."""

    def __init__(self, state: str, error: JobError | None = None, grace: float | None = None) -> None:
        self.state, self.error = state, error
        super().__init__(grace)


class _Again(_Stop):
    """Has all replicas start again."""


@dataclass
class _Member:
    """A replica and what runs it."""

    replica: cluster.Replica
    command: Command
    errors: deque[str] = field(default_factory=lambda: deque(maxlen=_ERRORS_KEPT))
    printed: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES_PRINTED))
    # Its log has the lines of `servicelog.before_start` already, and its next start writes none.
    preamble_logged: bool = False


@dataclass
class JobRun:
    """Runs a CustomJobSpec to its end, in the calling thread.

    Args:
        spec: It, as canonical data (`spec.Document.job`).
        root: The local Vertex's folder, absolute: buckets in `gs/`, environments in `envs/`, each job's own in `jobs/<id>/`.
        on_line: Called with each line of output, in this thread.
        on_state: Called with each new state of the job, also with PENDING when all replicas start again. Not with the PENDING in which it
            begins, nor with the last state, which the result holds.
        on_pause: Called when the lines so far should be passed on: before the thread waits or works for long, and before each new state.
        control: Cancels the job or injects faults, from other threads.
        options: See `RunOptions`.
        warmth: Has processes from which replicas start warm; None starts each one cold.
    """

    spec: Mapping[str, Any]
    root: Path
    on_line: OnLine
    on_state: Callable[[str], None]
    on_pause: Callable[[], None]
    control: Control
    options: RunOptions
    warmth: Warmth | None

    def __post_init__(self) -> None:
        self.pools = [pool for pool in Document("CustomJobSpec", dict(self.spec)).running if pool.replica_count > 0]
        self.folder = job_files.job_folder(self.root, self.options.job_id)
        # Asked now, because the first log line makes the folder.
        self.begun_by_earlier_server = self.folder.exists()
        self.files = LogFiles(self.folder / "logs", self.root)
        self.children = Children(self._printed_line, self.control.fileno(), self._log_warm_or_cold)
        self.scheduling = policy.scheduling_of(self.spec)
        self.counts = policy.Counts(**self.options.earlier)
        self.members: dict[str, _Member] = {}  # by name; empty until everything is installed
        self.pip_errors: deque[str] = deque(maxlen=_ERRORS_KEPT)
        self.programs: dict[int, ReplicaProgram] = {}  # by pool; empty until they are installed
        self.ports: list[int] = []
        self.differences: list[str] = []
        self.warnings: list[str] = []
        self.containers: dict[int, containers.Container] = {}
        self.guest_users = ExitStack()  # while it is open, servers of this process answer containers of other users
        self.failed_replica, self.quoted_output, self.preparing_replica = "", "", "workerpool0-0"
        self.printed: tuple[str, ...] = ()
        # Set once all replicas have started: time in the queue and for packages does not count against the timeout.
        self.deadline = float("inf")
        self.began_at = time.monotonic()
        self._state = PENDING

    # from start to end

    def run(self) -> JobResult:
        """Run the job, and return how it ended. One that cannot be started ends as failed, with the reason; nothing is raised for it."""
        try:
            self._service_lines(servicelog.BEFORE)
            while True:
                try:
                    # Each start gets new machines, as on the service; what was installed for the first one stays.
                    self._wait(self.options.provision)
                    # "Job is running.": the service writes it before it installs packages, while the job's state is still PENDING.
                    self._service_lines([servicelog.RUNNING])
                    if not self.members:
                        self._prepare()
                    self._run_replicas()
                except _Again:
                    self._enter(PENDING)
        except _Ended as end:
            return self._end(end.state, end.error)
        except VertexrigError as error:
            # A preparation that is suspended or cancelled raises one, too, so ask the control.
            if self.control.suspended:
                return self._end(SUSPENDED, None)
            if self.control.cancelled:
                return self._end(CANCELLED, policy.ON_CANCEL)
            # Shown here, because the job's error begins with the service's sentence about the replica.
            if isinstance(error, PackageError):
                self._service_lines([str(error)], shown=True, severity="ERROR")
            return self._end(FAILED, self._error_of(error))
        except OSError as error:
            return self._end(FAILED, policy.internal(error))
        finally:
            self._close()

    # preparing

    def _prepare(self) -> None:
        if not any(pool.index == 0 for pool in self.pools):
            raise JobFailedError("workerPoolSpecs[0] is missing or has no replicas: a job needs its chief")
        environment.refuse_upward(*job_files.texts(self.spec))  # before packages are installed
        if self.begun_by_earlier_server:  # the earlier server may have been killed, and its supervisors, too
            kill_marked(f"{MARK}={self.options.job_id}/")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports = ports.take(sum(pool.replica_count for pool in self.pools))
        can_name = can_show_names()
        # These replicas serve only for the lines of the installation. They are made again below, when it is known which pools run in
        # containers.
        replicas = self._replicas(named=can_name)
        environment.bucket_folder(self.root).mkdir(exist_ok=True)  # /gcs is there before there is a bucket
        directories = cluster.output_directories(self.spec, self.options.trial)
        for uri in directories.values():
            environment.local_path(uri, self.root).mkdir(parents=True, exist_ok=True)
        made: dict[str, ReplicaProgram] = {}
        members: dict[str, _Member] = {}
        installed_for: set[str] = set()
        for pool in self.pools:
            # Pools with the same program, whatever their machines and `env`, share one installation.
            key = json.dumps([pool.image, pool.package_uris, pool.module, pool.args, pool.command])
            if key not in made:
                # The first replica's log gets the installation's lines; the other replicas of the pool get the same lines
                # when they start.
                first = next(one for one in replicas if one.pool_index == pool.index)
                made[key] = self._install(pool, first, replicas)
                installed_for.add(first.name)
            self._log_differences(pool, made[key])
            self.programs[pool.index] = made[key]
        self.containers = {index: one.container for index, one in self.programs.items() if one.container is not None}
        self.guest_users.enter_context(containers.answered(*self.containers.values()))
        # The replicas have the service's names if all run in containers, or if none does and this system can show programs such names.
        # If only some run in containers, no name leads to all.
        all_in_containers = len(self.containers) == len(self.programs)
        named = all_in_containers or (can_name and not self.containers)
        replicas = self._replicas(named=named)
        if named and not all_in_containers:
            write_hosts(replicas, self.options.job_id, self.folder)
        for one in replicas:
            pool = self._pool(one)
            command = replica_command(
                one, pool, replicas, self.programs[pool.index], self.spec, self.options, self.root, named=named
            )
            members[one.name] = _Member(one, command, preamble_logged=one.name in installed_for)
        self.members = members

    def _replicas(self, *, named: bool) -> tuple[cluster.Replica, ...]:
        """Return the job's replicas, each with its own port, on hosts with the service's names or on 127.0.0.1."""
        # Ten hexadecimal digits, the same in all names of a job (tests of google/yggdrasil-decision-forests).
        token = hashlib.sha256(self.options.job_id.encode()).hexdigest()[:10]
        free = iter(self.ports)

        def address(pool: int, index: int) -> str:
            return f"{cluster.cloud_host(pool, index, token) if named else '127.0.0.1'}:{next(free)}"

        return cluster.replicas(self.pools, address)

    def _install(self, pool: Pool, one: cluster.Replica, replicas: Sequence[cluster.Replica]) -> ReplicaProgram:
        """Install what a pool runs. The executor's lines about it go to the log of `one`, the pool's first replica."""
        self.preparing_replica, pip_ran = one.name, False
        uris = {uri.rpartition("/")[2]: uri for uri in pool.package_uris}
        self._service_lines(servicelog.fetching(pool, one, replicas), one.name)

        def begin_step(package: Path, requirements: bool) -> None:
            nonlocal pip_ran
            pip_ran = True
            if uri := uris.get(package.name):  # the service knows nothing of the package of a built image
                texts = servicelog.requirements(uri) if requirements else servicelog.installing(uri)
                self._service_lines(texts, one.name, shown=True)  # because it may take a while

        program = pool_programs.program_of(
            pool,
            self.options,
            self.root,
            installer=packages.Installer(
                cache=self.root / "envs",
                env=user_environment(self.options, self.folder / "config"),
                execute=self._run_installer,
                begin_step=begin_step,
                give_up=lambda: self.control.ends,
            ),
            log=self._own_line_now,
            # For `_end`, which reclaims its files also if an installation in it fails; `_prepare` replaces it by the one with packages.
            on_container=lambda container: self.containers.update({pool.index: container}),
        )
        # An environment from the cache needs no installation; the lines appear all the same, because the service installs
        # each time.
        if not pip_ran:
            self._lines_with_severity(servicelog.installation(pool, program.installation), one.name)
        self._service_lines(servicelog.starting(pool), one.name)
        return program

    def _log_differences(self, pool: Pool, program: ReplicaProgram) -> None:
        """Log what is different here from the cloud."""
        for sentence in (environment.accelerator_difference(pool), *program.differences):
            if sentence and sentence not in self.differences:
                self.differences.append(sentence)
                self._own_line(f"Difference: {sentence}.")
        for uri in environment.absent(pool.args, self.root):
            where = environment.local_path(uri, self.root)
            self._own_line(f"{uri} is looked for at {where}: there is no such bucket here yet.")

    def _run_installer(
        self, argv: Sequence[str], env: Mapping[str, str], *, archive: Path | None = None
    ) -> tuple[int, packages.PipLines]:
        """Run a program of the preparation; see `packages.Execute`. Its lines go to the log of `preparing_replica`, for which it runs."""
        name, lines = self.preparing_replica, packages.PipLines()

        def keep(line: Line) -> None:
            if line.stderr:  # where pip names a cause: the job's error quotes it unchanged, with this machine's path
                self.pip_errors.append(line.text)
            elif archive is not None:
                line = replace(line, text=line.text.replace(str(archive), f"/{archive.name}"))
            lines.append((line.severity, line.text))
            self._line(replace(line, shown=line.stderr))

        children = Children(keep, self.control.fileno())
        try:
            child = children.start(name, Command(argv, env, self.folder))
            while child.exit is None:
                children.poll(None)
                self._flush()
                # `children.close` below kills pip and what it has started.
                if self.control.ends:
                    raise JobFailedError("cancelled while packages were being installed")
            return child.exit.code, lines
        finally:
            children.close()

    # running

    def _run_replicas(self) -> None:
        """Start every replica, and watch them. Raises `_Ended` when the job ends, and `_Again` when all replicas have to start again."""
        try:
            for member in self.members.values():
                self._wait(self.options.slow_start)
                self._start(member)
            if self.deadline == float("inf"):  # the timeout runs on when the job starts again
                self.deadline = time.monotonic() + self.scheduling.timeout - self.counts.used
            self._enter(RUNNING)
            while True:
                self._poll(None)
        except _Stop as stop:  # only this one: after any other exception, `_close` kills the replicas
            if isinstance(stop, _Ended) and stop.state == SUCCEEDED:
                self._enter(RUNNING)  # it may end before the last replica has started, and no PENDING job succeeds
            self._flush()
            # SIGTERM, then SIGKILL. How a replica ends after that does not count for the job.
            grace = self.options.grace if stop.grace is None else stop.grace
            self.children.stop(list(self.children.running.values()), grace)
            self.files.flush()
            raise

    def _start(self, member: _Member) -> None:
        one = member.replica
        if not member.preamble_logged:
            everyone = [other.replica for other in self.members.values()]
            self._lines_with_severity(
                servicelog.before_start(self._pool(one), one, everyone, self.programs[one.pool_index].installation),
                one.name,
            )
        member.preamble_logged = False  # a replica that starts again goes through all of it again
        member.errors.clear()
        member.printed.clear()
        command = member.command
        if self.warmth is not None:
            command, cold = self.warmth.with_forker(command, len(self.members))
            if cold:
                self._own_line(servicelog.cold(one.name, cold), shown=False)
        self.children.start(one.name, command)

    def _log_warm_or_cold(self, child: Child) -> None:
        """Log whether the forker that was asked to start a replica did so."""
        if child.waiting:
            text = servicelog.cold(child.name, child.refused or "the process that made its imports has gone")
        else:
            text = servicelog.warm(child.name, MODULES[child.command.framework])
        self._own_line(text, shown=False)

    def _pool(self, one: cluster.Replica) -> Pool:
        return next(pool for pool in self.pools if pool.index == one.pool_index)

    def _wait(self, seconds: float) -> None:
        """Wait for `seconds`, and meanwhile handle faults, a cancellation and replicas that end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._poll(until)
        self._obey_control()

    def _poll(self, until: float | None) -> None:
        self._flush()
        if self.files.trouble is not None:
            raise _Ended(FAILED, policy.internal(self.files.trouble))
        wait = min(self.deadline, until if until is not None else float("inf")) - time.monotonic()
        ended = self.children.poll(None if wait == float("inf") else max(wait, 0.0))
        self._obey_control()
        for child in ended:
            self._handle_end(child)
        if time.monotonic() >= self.deadline:
            text = f"The job ran longer than its timeout of {self.scheduling.timeout:g} seconds."
            raise _Ended(FAILED, JobError(policy.DEADLINE_EXCEEDED, text))

    def _obey_control(self) -> None:
        """Do what another thread has asked of the control."""
        if self.control.suspended:
            raise _Ended(SUSPENDED)
        if self.control.cancelled:
            self._enter(CANCELLING)
            raise _Ended(CANCELLED, policy.ON_CANCEL)
        preempted, killed = self.control.take_faults()
        for name in killed:
            child = self.children.running.get(name)
            if child is not None:
                self._own_line(f"Fault on demand: {name} is killed.", "WARNING")
                child.send(signal.SIGKILL)
        if preempted is not None:
            window = f", SIGKILL follows in {preempted:g} s" if preempted else ""
            self._own_line(f"Fault on demand: the machines are preempted{window}.", "WARNING")
            # Counted apart from retries: Compute Engine tries Spot machines again by another limit.
            self.counts.preemptions += 1
            if self.counts.preemptions > policy.SPOT_RESTARTS or self.scheduling.disable_retries:
                stockout = JobError(policy.RESOURCE_EXHAUSTED, policy.stockout_message(self.options.region))
                raise _Ended(FAILED, stockout, preempted)
            raise _Again(preempted)

    def _handle_end(self, child: Child) -> None:
        name, member, exit_ = child.name, self.members[child.name], child.exit
        assert exit_ is not None
        action = policy.decide(exit_, name, self.scheduling, self.counts)
        if exit_.code == 0:
            self._service_lines(servicelog.ended(self._pool(member.replica)), name)
        elif action is not Action.FAIL:
            self._own_line(f"Task {name} ended with exit code {exit_.code}: {action.value}.", "ERROR")
        # Files have times of the wall clock. The start is counted back from that clock as it is now, since it may have been adjusted.
        ran_for = time.monotonic() - self.began_at
        since = time.time() - ran_for
        # On the service, files in a folder `gs:` would be lost, and nothing would say so. A replica that failed has an error already.
        if exit_.code == 0 and (lost := environment.written_to_gs_folder(member.command.written, since)):
            text = f"{name} succeeded, but {lost}."
            if self.options.strict_gs:
                self.failed_replica = name
                raise _Ended(FAILED, JobError(policy.INVALID_ARGUMENT, text))
            self.warnings.append(text)
            self._own_line(text, "WARNING")
        if action is Action.SUCCEED:
            raise _Ended(SUCCEEDED)
        if action is Action.FAIL:
            pool, one = self._pool(member.replica), member.replica
            package = pool.python_package is not None
            self.failed_replica = name
            self.quoted_output = policy.quoted_output(list(member.errors), exit_, package=package)
            self.printed = () if self.quoted_output else tuple(member.printed)
            everyone = [other.replica for other in self.members.values()]
            repeats = not self.scheduling.disable_retries
            self._lines_with_severity(
                servicelog.failed(
                    pool, one, everyone, exit_, self.programs[one.pool_index].installation, again=repeats
                ),
                name,
            )
            error = self._exit_error(exit_)
            if broken := self.programs[one.pool_index].broken:
                error = replace(error, message=f"{error.message}\n{broken}")
            raise _Ended(FAILED, error)
        if action is Action.RETRY_JOB:
            # Each of the three retries of the job has five new restarts of each worker.
            self.counts.retries += 1
            self.counts.restarts.clear()
            raise _Again
        if action in (Action.RESTART_JOB, Action.RESTART_REPLICA):
            self.counts.restarts[name] = self.counts.restarts.get(name, 0) + 1
            if action is Action.RESTART_JOB:
                raise _Again
            self._start(member)

    # its end

    def _error_of(self, error: VertexrigError) -> JobError:
        """Return the job's error for what broke its preparation; a package fails the replica for which it is installed."""
        if not isinstance(error, PackageError):
            return JobError(policy.INVALID_ARGUMENT, str(error))
        # the executor installs packages inside the replica, so the service sees the replica fail
        self.failed_replica = self.preparing_replica
        self.quoted_output = "\n".join([*list(self.pip_errors)[-_PIP_LINES_SHOWN:], str(error)])
        return self._exit_error(Exit(1))

    def _exit_error(self, exit_: Exit) -> JobError:
        member = self.members.get(self.failed_replica)
        lines = [*(member.errors if member is not None else ()), *self.quoted_output.splitlines()]
        if error := policy.lacking(self.failed_replica, exit_, lines):
            return error
        of = (self.options.project_number, self.options.job_id)
        # There are no members yet if a package did not install.
        package = member is None or self._pool(member.replica).python_package is not None
        message = policy.exit_message(self.failed_replica, exit_, self.quoted_output, *of, package=package)
        return JobError(policy.INVALID_ARGUMENT, message)

    def _end(self, state: str, error: JobError | None) -> JobResult:
        """Write the last lines of the log, wait until the machines are given back, and return how the job ended."""
        if self.containers:
            one = next(iter(self.containers.values()))
            trouble = one.reclaim(self.folder)
            if trouble:
                self._own_line(trouble, "WARNING")
        found_hint = ""
        if state == FAILED and error is not None:
            found_hint = self._hint(error)
            first, *rest = error.message.split("\n")
            self._service_lines([first], shown=True, severity="ERROR")
            self._service_lines(rest, severity="ERROR")  # the traceback, which the replica's log has already
            self._own_line(f"The logs are in {self.folder / 'logs'}.", "WARNING")
            if found_hint:
                self._own_line(f"Hint: {found_hint}", "WARNING")
        if state != SUSPENDED:
            self._tear_down(state)
        self.files.flush()
        left = self.deadline - time.monotonic()
        used = self.scheduling.timeout - left if left < float("inf") else self.counts.used
        return JobResult(
            state=state,
            error=error,
            failed_replica=self.failed_replica,
            quoted_output=self.quoted_output,
            hint=found_hint,
            differences=tuple(self.differences),
            warnings=tuple(self.warnings),
            printed=self.printed,
            folder=self.folder,
            counts=asdict(replace(self.counts, used=used)),
        )

    def _tear_down(self, state: str) -> None:
        if state == SUCCEEDED:
            self._service_lines([servicelog.TEARING_DOWN])
        self._flush()
        until = time.monotonic() + self.options.tear_down
        # poll() in place of sleep(), because the control interrupts it when the server closes.
        while not self.control.suspended and (left := until - time.monotonic()) > 0:
            self.children.poll(left)
        self._service_lines([servicelog.TORN_DOWN])
        last = {SUCCEEDED: servicelog.SUCCEEDED, FAILED: servicelog.FAILED, CANCELLED: servicelog.CANCELLED}
        self._service_lines([last[state]], shown=True)

    def _hint(self, error: JobError) -> str:
        member = self.members.get(self.failed_replica)
        failed = next((one for one in cluster.replicas(self.pools) if one.name == self.failed_replica), None)
        pool = self._pool(failed) if failed is not None else next(iter(self.pools), None)
        # The error of a containerSpec pool quotes a traceback or nothing (`policy.quoted_output`); a shell or another language names
        # the cause without a traceback, so the last lines of stderr are searched, too.
        said = [
            *list(member.errors if member is not None else ())[-_LINES_FOR_HINT:],
            self.quoted_output,
            error.message,
        ]
        if pool is None:
            return hint("\n".join(said))
        found = hint("\n".join(said), pool.image, container=pool.index in self.containers, machine=pool.machine_type)
        program = self.programs.get(pool.index)
        versions = program.version_difference if program is not None else ""
        if found or not versions or not may_be_version(self.quoted_output, self._own_module(pool)):
            return found
        advice = (
            INTERPRETERS if pool_programs.has_known_versions(pool.image, self.options, self.root) else OWN_INTERPRETER
        )
        return f"{versions}. If a version is the cause, {advice}"

    def _own_module(self, pool: Pool) -> str:
        """Return the top-level module of the package that a pool runs, "" if it runs none."""
        program = self.programs.get(pool.index)
        head = list(program.head) if program is not None else []
        return head[head.index("-m") + 1].partition(".")[0] if "-m" in head[:-1] else ""

    def _close(self) -> None:
        # In this order: replicas may write and listen until they have ended.
        self.children.close()
        for name in self.members:
            shutil.rmtree(self.folder / name / INSTALLED, ignore_errors=True)
        self.files.close()
        ports.give_back(self.ports)
        self.guest_users.close()

    # its output

    def _printed_line(self, line: Line) -> None:
        """Take a line of a replica's own output."""
        # Of a progress bar, which writes \r, the last state counts.
        text = clean(line.text.rpartition("\r")[2]).rstrip()
        if text:
            cut = f"{text[: _LONGEST_PRINTED - 1]}…" if len(text) > _LONGEST_PRINTED else text
            self.members[line.task].printed.append(cut)
        self._line(line)

    def _line(self, line: Line) -> None:
        member = self.members.get(line.task)
        if member is not None and (line.stderr or line.severity not in _ORDINARY):
            member.errors.append(line.text)
        self.files.write(line)
        self.on_line(line)

    def _own_line(self, text: str, severity: str = "INFO", *, shown: bool = True) -> None:
        """Write a line that the service would not. A rehearsal prints it only if `shown`."""
        self._line(Line(time.time(), SERVICE, severity, text, shown=shown, ours=True))

    def _own_line_now(self, text: str) -> None:
        """Write the line before the work that it announces, which takes a while."""
        self._own_line(text)
        self._flush()

    def _service_lines(
        self, texts: Iterable[str], task: str = SERVICE, *, shown: bool = False, severity: str = "INFO"
    ) -> None:
        """Write lines of the service. A rehearsal prints them only if `shown`."""
        for text in texts:
            self._line(Line(time.time(), task, severity, text, shown=shown))

    def _lines_with_severity(self, lines: Iterable[tuple[str, str]], task: str) -> None:
        """Write lines of the service and of pip, each with its severity."""
        for severity, text in lines:
            self._service_lines([text], task, severity=severity)

    def _flush(self) -> None:
        """Hand on the lines so far."""
        self.files.flush()
        self.on_pause()

    def _enter(self, state: str) -> None:
        """Report a state of the job to `on_state`, if it is a new one."""
        if state != self._state:
            self._state = state
            self._flush()
            self.on_state(state)
