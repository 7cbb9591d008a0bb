"""The trigger and the schedules of `vertexrig.yaml` as typed values, and the steps of a run: `promote`, `evaluate`, `register`."""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Union

from vertexrig.errors import did_you_mean
from vertexrig.project.study import Goal
from vertexrig.schema.typed import Given, Scalar, given
from vertexrig.spec.api_names import BUCKET, NAME

ALIAS = (
    r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]",
    "an alias: a lowercase letter first, then letters, digits and -, at most 128, a lowercase letter or digit last",
)
"""Source: mergeVersionAliases in the REST reference of projects.locations.models, v1."""
STEP_LABEL = "vertexrig_step_of"
"""Label of a step's job and model. Its value is the claim of the run that the step belongs to."""


@dataclass(frozen=True, eq=False, repr=False)
class PromoteStep(Given):
    """Train the best trial of the sweep in full, as `vertexrig promote` does."""

    name: str | None = given("Name of the job; by default SWEEP-best.", None, pattern=NAME)
    epochs: int | None = given("The same as args: {epochs: N}.", None, least=1)
    args: Mapping[str, Scalar] = given(
        "Further arguments of the trainer, added to the trial's parameters.", factory=dict
    )
    topology: str | None = given("Topology, in place of the one of the sweep's job.", None)
    machine_type: str | None = given("Machine type, in place of the one of the sweep's job.", None)
    set: Mapping[str, Any] = given("Other keys of the job, such as worker.replica_count: 2.", factory=dict)
    warm_start_flag: str | None = given(
        "The trainer's flag for a model to start from. It gets the model of the trial.", None
    )


@dataclass(frozen=True, eq=False, repr=False)
class EvaluateStep(Given):
    """Run a job of the project that measures the registered model and the new one on the same data; `register` compares the results.

    The job writes `summary.json` into AIP_MODEL_DIR: under `champion` and `challenger` the metrics of each.
    """

    job: str = given("The job that measures.")
    champion_flag: str = given(
        "The job's flag for the folder of the registered version; left out if no version is registered.", "champion"
    )
    challenger_flag: str = given("The job's flag for the folder of the new model.", "challenger")
    args: Mapping[str, Scalar] = given(
        "Further arguments; they replace the job's arguments of the same name.", factory=dict
    )


@dataclass(frozen=True, eq=False, repr=False)
class RegisterStep(Given):
    """Register the trained model as a version in the Model Registry if it is better, as `vertexrig register` does."""

    display_name: str | None = given("The model's display name; by default the sweep's, or the job's.", None)
    alias: str = given("Alias of the best version, in addition to `default`.", "champion", pattern=ALIAS)
    min_gain: float = given("Smallest gain over the registered version.", 0.0, least=0)
    metric: str | None = given("Metric to compare by; by default the sweep's first one.", None)
    goal: Goal | None = given("Whether larger or smaller values are better; needed if no sweep gives the goal.", None)
    serving_image: str | None = given(
        "Image that serves the model; by default Google's image for the framework and version.", None
    )
    labels: Mapping[str, str] = given("Labels of the version, added to the project's.", factory=dict)
    approval: Literal["none", "required"] = given(
        "Whether a better version gets the aliases at once (`none`), or after `vertexrig schedule approve` (`required`).",
        "none",
    )
    ml_metadata: bool = given(
        "Whether Vertex ML Metadata gets an execution for the run, with its data, package and version as artifacts.",
        False,
    )


@dataclass(frozen=True, eq=False, repr=False)
class EventSource(Given):
    """What starts a run without a request: messages of a Pub/Sub topic, or finished objects of a bucket."""

    topic: str | None = given("Topic whose messages hold requests.", None)
    bucket: str | None = given("Bucket in which each finished object starts `run`.", None, pattern=BUCKET)
    run: str | None = given("The job or sweep that an object starts.", None)
    objects: str = given("Regular expression for the whole gs:// URI of the objects that count.", ".*")
    arg: str | None = given("Argument that gets the object's URI; it must be open in `allow_args`.", None)
    location: str | None = given("The bucket's location; by default the project's region.", None)


Occasion = Literal["refused", "skipped", "deferred", "failed", "finished", "better", "waiting", "overdue", "late"]


@dataclass(frozen=True, eq=False, repr=False)
class Notify(Given):
    """Where to send the results of runs: a topic or a webhook. Each message is sent at least once; repeats have the same id."""

    when: tuple[Occasion, ...] = given(
        "Which events to send: deliveries that were refused, skipped or deferred; runs that failed or finished; better models that "
        "were registered; steps that wait for help; schedules whose delivery is overdue; runs that are late for their deadline.",
        ("refused", "failed", "better", "waiting", "overdue", "late"),
    )
    topic: str | None = given(
        "Pub/Sub topic.", None, pattern=(r"projects/[^/]+/topics/[^/]+", "projects/PROJECT/topics/NAME")
    )
    webhook: str | None = given(
        "Secret in Secret Manager that holds the webhook's address.",
        None,
        pattern=(r"projects/[^/]+/secrets/[^/]+(/versions/[^/]+)?", "projects/PROJECT/secrets/NAME"),
    )
    form: Literal["json", "slack"] = given(
        "What a webhook gets: all fields (`json`) or one line of text (`slack`).", "json"
    )


@dataclass(frozen=True, eq=False, repr=False)
class StepOptions(Given):
    """A step with options: exactly one of the keys."""

    promote: PromoteStep | None = given("Train the best trial in full.", None)
    evaluate: EvaluateStep | None = given("Measure the new model and the registered version.", None)
    register: RegisterStep | None = given("Register the model that was trained.", None)


StepName = Literal["promote", "evaluate", "register"]
Then = Union[StepName, StepOptions]
NextStep = Union[PromoteStep, EvaluateStep, RegisterStep]
ORDER: tuple[StepName, ...] = ("promote", "evaluate", "register")


def with_options(then: Then) -> NextStep | None:
    """Return a step of the file with its options; None if it does not name exactly one step."""
    if then == "promote":
        return PromoteStep()
    if then == "register":
        return RegisterStep()
    if then == "evaluate":  # it needs the name of a job
        return None
    assert isinstance(then, StepOptions)
    given = [one for one in (then.promote, then.evaluate, then.register) if one is not None]
    return given[0] if len(given) == 1 else None


def steps(then: tuple[Then, ...]) -> tuple[NextStep, ...]:
    """Return the steps of a schedule, which was checked when the project was loaded."""
    return tuple(step for one in then if (step := with_options(one)) is not None)


def name_of(step: NextStep) -> StepName:
    """`promote`, `evaluate` or `register`."""
    if isinstance(step, EvaluateStep):
        return "evaluate"
    return "promote" if isinstance(step, PromoteStep) else "register"


def wrong(
    then: tuple[Then, ...], run: str, jobs: Mapping[str, Any], sweeps: Mapping[str, Any]
) -> tuple[int, str] | None:
    """Return the first step that is wrong, and why; None if all are right.

    Args:
        then: The steps of a schedule.
        run: The job or sweep that they follow.
        jobs: The jobs of the project.
        sweeps: The sweeps of the project.
    """
    seen: list[StepName] = []
    for index, one in enumerate(then):
        step = with_options(one)
        if step is None:
            return (
                index,
                "a step is `promote` or `register`, or one with options: `promote: {epochs: 30}`, `evaluate: {job: NAME}`",
            )
        name = name_of(step)
        if seen and ORDER.index(name) <= ORDER.index(seen[-1]):
            return (
                index,
                f"{name} cannot follow {seen[-1]}: the order is promote, evaluate, register, each at most once",
            )
        if isinstance(step, PromoteStep) and run not in sweeps:
            return index, "promote takes the best trial of a sweep, and `run` names a job: leave it out"
        if isinstance(step, PromoteStep) and step.name in {*jobs, *sweeps}:
            return index, f"there is a job or sweep {step.name!r} already: choose another name"
        if isinstance(step, EvaluateStep) and step.job not in jobs:
            return index, f"there is no job {step.job!r}. {did_you_mean(step.job, jobs)}"
        if isinstance(step, EvaluateStep) and not isinstance(jobs[step.job].args, Mapping):
            return (
                index,
                f"the args of {step.job} are a list: write them as a mapping, to which the two models are added",
            )
        ours = [key for key in step.labels if key.startswith("vertexrig")] if isinstance(step, RegisterStep) else []
        if ours:
            return index, f"labels that begin with `vertexrig` are the trigger's own: rename {ours[0]!r}"
        seen.append(name)
    return None


@dataclass(frozen=True, eq=False, repr=False)
class RetryConfig(Given):
    """How Cloud Scheduler retries a failed delivery."""

    retry_count: int = given("Retries, 0 to 5.", 3, least=0, most=5)
    min_backoff_duration: str = given("Shortest time between two deliveries.", "30s", unit="s")
    max_backoff_duration: str = given("Longest time between two deliveries.", "600s", unit="s")
    max_doublings: int = given("How often the time between deliveries doubles.", 3)
    max_retry_duration: str | None = given("Give up after this long; no limit if not given.", None, unit="s")


@dataclass(frozen=True, eq=False, repr=False)
class Schedule(Given):
    """A cron line that runs a job or a sweep through the trigger."""

    run: str = given("The job or sweep.")
    cron: str = given("unix-cron line of five fields.")
    time_zone: str = given("Name of the time zone database, such as Europe/Berlin.", "Etc/UTC")
    description: str = given("Shown in the Google Cloud console.", "")
    set: Mapping[str, Scalar] = given("Overrides sent with the request; the trigger must allow them.", factory=dict)
    args: Mapping[str, Scalar] = given(
        "Trainer arguments sent with the request; the trigger must allow them.", factory=dict
    )
    then: tuple[Then, ...] = given(
        "Steps that follow a successful run, in this order: promote, evaluate, register. Each is a name, or a mapping with options.",
        (),
    )
    paused: bool = given("Keep the schedule but do not run it.", False)
    start: str | None = given(
        "The schedule does not run before this time, such as 2026-12-01 or 2026-12-01T03:00:00+01:00.", None
    )
    end: str | None = given("The schedule does not run from this time on.", None)
    overlap: Literal["allow", "skip", "wait"] = given(
        "What to do when a run is due before the last run, with its steps, has ended: `allow` starts it, `skip` leaves it out, `wait` "
        "starts it afterwards.",
        "allow",
    )
    only_if_changed: str | None = given(
        "Skip the run if no object of this pattern has changed since its last success, such as gs://data/new/**. Names and generations "
        "are compared.",
        None,
        pattern=(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]/.+", "objects such as gs://data/new/**"),
    )
    catch_up: bool = given("When a hold ends, start the newest run that it stopped.", False)
    retry_for: str | None = given(
        "How long to start a run again, at each tick, that quota, an outage or trigger.budget.live_jobs refused, such as 6h.",
        None,
        lasts="6h",
    )
    grace: str | None = given(
        "How long after a due time a tick waits before it reports that no delivery has come; 1h if there is a tick.",
        None,
        lasts="1h",
    )
    deadline: str | None = given(
        "Time from when a run is due until it has to have ended well, with `register` in `then` with its model registered or compared. A "
        "later one is reported once.",
        None,
        lasts="7h",
    )
    attempt_deadline: str = given("How long one delivery may take, 15s to 1800s.", "180s")
    retry_config: RetryConfig = given("Retries of a failed delivery.", factory=RetryConfig)

    @property
    def steps(self) -> tuple[NextStep, ...]:
        """The steps of `then`, each with its options."""
        return steps(self.then)

    @property
    def waits(self) -> bool:
        """Whether a run that cannot start when it is due may start later, by a tick."""
        return self.catch_up or self.overlap == "wait" or self.retry_for is not None

    @property
    def watched(self) -> bool:
        """Whether the file asks for alarms about it, which ticks give."""
        return self.grace is not None or self.deadline is not None


@dataclass(frozen=True, eq=False, repr=False)
class Bound(Given):
    """The values that a caller of the trigger may set."""

    min: float | None = given("Smallest number.", None)
    max: float | None = given("Largest number.", None)
    choices: tuple[Scalar, ...] = given("The only values.", ())
    pattern: str | None = given("Regular expression that the whole text must match.", None)


@dataclass(frozen=True, eq=False, repr=False)
class RunLimits(Given):
    """What a caller of the trigger may start."""

    usd_per_run: float | None = given("Most US dollars that one run may cost, as estimated.", None, least=0)
    usd_per_day: float | None = given(
        "Most US dollars that the runs of one day (UTC) may cost, as estimated.", None, least=0
    )
    trials_per_run: int | None = given("Most trials of one run.", None, least=0)
    trials_per_day: int | None = given("Most trials of the runs of one day (UTC).", None, least=0)
    live_jobs: int | None = given("Most jobs that run or wait at the same time.", None, least=0)


@dataclass(frozen=True, eq=False, repr=False)
class Budget(RunLimits):
    """Limits on what the trigger starts per run and per day."""

    price_factor: float | None = given(
        "Factor by which the catalog's prices are multiplied, if they are for another region than the project's.", None
    )


@dataclass(frozen=True, eq=False, repr=False)
class Caller(Given):
    """What callers with a matching e-mail address may do."""

    runs: tuple[str, ...] = given(
        "Jobs and sweeps that they may start, among those in `trigger.runs`; * matches anything.", ("*",)
    )
    keys: tuple[str, ...] = given(
        "What they may set: keys of `allow`, and arguments of `allow_args` as args.NAME; * matches anything.",
        ("*",),
    )
    budget: RunLimits = given("Limits for each of them, within the budget of all.", factory=RunLimits)
    labels: Mapping[str, str] = given(
        "Labels that their jobs get, such as {team: vision}. Callers cannot set these.", factory=dict
    )


@dataclass(frozen=True, eq=False, repr=False)
class TriggerSettings(Given):
    """The Cloud Function that starts jobs and sweeps."""

    function: str = given("Name of the function.", "vertexrig", pattern=NAME)
    deploy_with: Literal["run", "functions"] | None = given(
        "Command that deploys the function: `gcloud run deploy --function` (`run`), or the older `gcloud functions deploy` "
        "(`functions`). By default `run`, and `functions` with `kms_key_name`.",
        None,
    )
    runtime: str = given("Runtime, python312 or newer.", "python312")
    memory: str = given("Memory of an instance.", "512Mi")
    timeout: str = given("Longest request.", "120s", unit="s")
    min_instances: int = given("Instances of each function that are kept ready; each costs money while it waits.", 0)
    max_instances: int = given("Most instances.", 3)
    concurrency: int = given("Requests at one time in an instance.", 1)
    service_account: str | None = given("Service account of the function.", None)
    invoker_service_account: str | None = given("Service account with which Cloud Scheduler calls the function.", None)
    build_service_account: str | None = given("Service account that builds the function.", None)
    deployers: tuple[str, ...] = given(
        "Members that deploy the function and apply schedules, such as user:ana@example.com or serviceAccount:…. They get the right to "
        "act as its service accounts.",
        (),
        pattern=(
            r"(user|group|serviceAccount|domain|principal|principalSet):\S+",
            "a member such as user:ana@example.com",
        ),
    )
    docker_repository: str | None = given(
        "Repository for the function's images: projects/P/locations/R/repositories/NAME.",
        None,
        pattern=(r"projects/[^/]+/locations/[^/]+/repositories/[^/]+", "projects/P/locations/R/repositories/NAME"),
    )
    labels: Mapping[str, str] = given("Labels of the function, added to the project's.", factory=dict)
    kms_key_name: str | None = given("Cloud KMS key of the function; `docker_repository` must have the same.", None)
    vpc_connector: str | None = given("Serverless VPC Access connector for the function's outgoing calls.", None)
    network: str | None = given(
        "VPC network for the function's outgoing calls, without a connector (Direct VPC egress).", None
    )
    subnet: str | None = given(
        "Subnet of that network, /26 or larger; by default the one with the network's name.", None
    )
    egress_settings: Literal["private-ranges-only", "all"] | None = given(
        "Which outgoing calls use the connector or the network.", None
    )
    ingress_settings: Literal["all", "internal-only", "internal-and-gclb"] = given(
        "Where calls may come from; Cloud Scheduler of the same project is internal.", "all"
    )
    notify: tuple[Notify, ...] = given("Where to send the results of runs, at each tick.", ())
    events: Mapping[str, EventSource] = given(
        "Further functions that take events. Each key is the end of the function's name.", factory=dict
    )
    uri: str | None = given(
        "URL of the deployed function, written here by `function deploy --run`. Schedules are sent there.", None
    )
    allow: Mapping[str, Bound] = given("Keys that a caller may override, and their bounds.", factory=dict)
    allow_args: Mapping[str, Bound] = given("Trainer arguments that a caller may set, and their bounds.", factory=dict)
    allow_then: bool = given("Whether a run with a caller's own values may have the steps of a schedule.", False)
    tick: str = given(
        "unix-cron line (UTC) of the tick, which carries out the next steps and starts deferred runs. It is deployed if a schedule needs it.",
        "*/10 * * * *",
    )
    budget: Budget = given("Limits on what the trigger starts.", factory=Budget)
    runs: tuple[str, ...] = given("Jobs and sweeps that the trigger may start; * matches anything.", ("*",))
    callers: Mapping[str, Caller] = given(
        "What each caller may start, by e-mail address or a pattern such as *@example.com. The first match counts; a caller without a "
        "match may start nothing. Events have the name `event`. By default every caller may do everything that `runs`, `allow` and "
        "`allow_args` permit.",
        factory=dict,
    )

    approvers: tuple[str, ...] = given(
        "Who may approve or reject a version over HTTP: e-mail addresses, or patterns such as *@example.com. `*` alone is everybody who "
        "may call the function.",
        (),
    )

    @property
    def command(self) -> Literal["run", "functions"]:
        """Which command of gcloud deploys it."""
        return self.deploy_with or ("functions" if self.kms_key_name else "run")

    @property
    def prefix(self) -> str:
        """The folder of the bucket that has everything of this trigger."""
        return f"vertexrig/{self.function}"

    def may_start(self, run: str) -> bool:
        """Whether the trigger may start a job or sweep."""
        return any(fnmatchcase(run, pattern) for pattern in self.runs)
