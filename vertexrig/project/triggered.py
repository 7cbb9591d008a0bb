"""The trigger and the schedules of `vertexrig.yaml` as typed values."""

# No postponed annotations: they are read at run time (`vertexrig.project.model`).
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from vertexrig.project.then import EventSource, NextStep, Notify, Then, steps
from vertexrig.schema.typed import Scalar, option
from vertexrig.spec.api_names import NAME


@dataclass(frozen=True)
class RetryConfig:
    """How Cloud Scheduler retries a failed delivery."""

    retry_count: int = option("Retries, 0 to 5.", 3)
    min_backoff_duration: str = option("Shortest wait between tries.", "30s", unit="s")
    max_backoff_duration: str = option("Longest wait between tries.", "600s", unit="s")
    max_doublings: int = option("Times the wait doubles.", 3)
    max_retry_duration: str | None = option("Give up after this long; no limit if not given.", None, unit="s")


@dataclass(frozen=True)
class Schedule:
    """A cron line that runs a job or a sweep through the trigger."""

    run: str = option("The job or sweep.")
    cron: str = option("unix-cron line of five fields.")
    time_zone: str = option("Name of the time zone database, such as Europe/Berlin.", "Etc/UTC")
    description: str = option("Shown in the console.", "")
    set: Mapping[str, Scalar] = option("Overrides sent with the request; the trigger must allow them.", factory=dict)
    args: Mapping[str, Scalar] = option(
        "Trainer arguments sent with the request; the trigger must allow them.", factory=dict
    )
    then: tuple[Then, ...] = option(
        "Steps that follow when the run has succeeded, in this order: promote, evaluate, register; each a name, or a mapping with options.",
        (),
    )
    paused: bool = option("Keep it but do not run it.", False)
    start: str | None = option("First time it may run for, such as 2026-12-01 or 2026-12-01T03:00:00+01:00.", None)
    end: str | None = option("Time from which on it does not run any more.", None)
    overlap: Literal["allow", "skip", "wait"] = option(
        "When a run is due and an earlier one, or a step that follows it, has not ended: `allow` starts it all the same, `skip` leaves "
        "it out, `wait` starts it afterwards.",
        "allow",
    )
    only_if_changed: str | None = option(
        "Objects such as gs://data/new/**: the run is left out while their names and generations are those of its last success.",
        None,
        pattern=(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]/.+", "objects such as gs://data/new/**"),
    )
    catch_up: bool = option("Start the newest run that a hold kept back when the hold ends.", False)
    retry_for: str | None = option(
        "Keep a run that quota or an outage refused, and try it again at each tick for this long, such as 6h.", None
    )
    attempt_deadline: str = option("How long one delivery may take, 15s to 1800s.", "180s")
    retry_config: RetryConfig = option("Retries of a failed delivery.", factory=RetryConfig)

    @property
    def steps(self) -> tuple[NextStep, ...]:
        """The steps of `then`, each with its options."""
        return steps(self.then)

    @property
    def waits(self) -> bool:
        """Whether a run that cannot start when it is due may start later, by a tick."""
        return self.catch_up or self.overlap == "wait" or self.retry_for is not None


@dataclass(frozen=True)
class Bound:
    """What a caller of the trigger may set a key to."""

    min: float | None = option("Smallest number.", None)
    max: float | None = option("Largest number.", None)
    choices: tuple[Scalar, ...] = option("The only values.", ())
    pattern: str | None = option("Regular expression that the whole text must match.", None)


@dataclass(frozen=True)
class RunLimits:
    """What a caller of the trigger may start."""

    usd_per_run: float | None = option("Estimated US dollars of one run, at most.", None)
    usd_per_day: float | None = option("Estimated US dollars of a day's runs (UTC), at most.", None)
    trials_per_run: int | None = option("Trials of one run, at most.", None)
    trials_per_day: int | None = option("Trials of a day's runs (UTC), at most.", None)
    live_jobs: int | None = option("Jobs that run or wait at one time, at most.", None)


@dataclass(frozen=True)
class Budget(RunLimits):
    """What the trigger may start."""

    price_factor: float | None = option(
        "What prices are in the project's region against the catalog's, if those are for another region.", None
    )


@dataclass(frozen=True)
class Caller:
    """What callers of the trigger may do whose e-mail fits."""

    runs: tuple[str, ...] = option(
        "Jobs and sweeps they may start, of those in `trigger.runs`; * matches anything.", ("*",)
    )
    keys: tuple[str, ...] = option(
        "What they may set, of the keys in `allow` and, as args.NAME, of the arguments in `allow_args`; * matches anything.",
        ("*",),
    )
    budget: RunLimits = option("What each of them may start, within the budget of all.", factory=RunLimits)
    labels: Mapping[str, str] = option(
        "Labels of their jobs, such as {team: vision}; they cannot set these.", factory=dict
    )


@dataclass(frozen=True)
class TriggerSettings:
    """The Cloud Function that starts jobs and sweeps."""

    function: str = option("Name of the function.", "vertexrig", pattern=NAME)
    runtime: str = option("Runtime, python312 or newer.", "python312")
    memory: str = option("Memory of an instance.", "512Mi")
    timeout: str = option("Longest request.", "120s", unit="s")
    max_instances: int = option("Instances at most.", 3)
    concurrency: int = option("Requests at one time in an instance.", 1)
    service_account: str | None = option("Identity of the function.", None)
    invoker_service_account: str | None = option("Identity Cloud Scheduler calls it with.", None)
    build_service_account: str | None = option("Identity that builds the function.", None)
    deployers: tuple[str, ...] = option(
        "Who deploys it and applies schedules, such as user:ana@example.com or serviceAccount:…: they may act as its identities.",
        (),
        pattern=(
            r"(user|group|serviceAccount|domain|principal|principalSet):\S+",
            "a member such as user:ana@example.com",
        ),
    )
    docker_repository: str | None = option("Its images: projects/P/locations/R/repositories/NAME.", None)
    labels: Mapping[str, str] = option("Labels of the function, beside the project's.", factory=dict)
    kms_key_name: str | None = option("Cloud KMS key of the function; `docker_repository` must have the same.", None)
    vpc_connector: str | None = option("Serverless VPC Access connector that its calls go through.", None)
    egress_settings: Literal["private-ranges-only", "all"] | None = option("Which calls go through it.", None)
    ingress_settings: Literal["all", "internal-only", "internal-and-gclb"] = option(
        "Where calls may come from; Cloud Scheduler of the same project is internal.", "all"
    )
    notify: tuple[Notify, ...] = option("Who is told what has come of the runs, at each tick.", ())
    events: Mapping[str, EventSource] = option(
        "Further functions that take events, by the end of their names.", factory=dict
    )
    uri: str | None = option(
        "Its URL once deployed, written here by `function deploy --run`; schedules are sent there.", None
    )
    allow: Mapping[str, Bound] = option("Keys a caller may override, and their bounds.", factory=dict)
    allow_args: Mapping[str, Bound] = option("Trainer arguments a caller may set, and their bounds.", factory=dict)
    allow_then: bool = option("Callers may have the steps of a schedule follow a run with values of their own.", False)
    tick: str = option(
        "unix-cron line (UTC) of the tick that takes the next steps and tries again what was deferred, if a schedule needs it.",
        "*/10 * * * *",
    )
    budget: Budget = option("What it may start.", factory=Budget)
    runs: tuple[str, ...] = option("Jobs and sweeps that it may start; * matches anything.", ("*",))
    callers: Mapping[str, Caller] = option(
        "Who may start what: by e-mail, or a pattern of it such as *@example.com; the first that fits counts, and nobody else may "
        "start anything. Events have the name `event`. By default all who may call it may do all that is open.",
        factory=dict,
    )

    def may_start(self, run: str) -> bool:
        """Whether the trigger may start a job or sweep."""
        return any(fnmatchcase(run, pattern) for pattern in self.runs)
