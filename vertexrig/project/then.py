"""What follows a scheduled run: the steps `promote`, `evaluate` and `register` of a schedule's `then`, as typed values; who is
told, and what starts a run without a request.
"""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union

from vertexrig.errors import did_you_mean
from vertexrig.project.study import Goal
from vertexrig.schema.typed import Scalar, option
from vertexrig.spec.api_names import BUCKET, NAME

ALIAS = (
    r"[a-z][a-zA-Z0-9-]{0,126}[a-z0-9]",
    "an alias: a lowercase letter first, then letters, digits and -, at most 128, a lowercase letter or digit last",
)
"""Source: mergeVersionAliases in the REST reference of projects.locations.models, v1."""
CHAIN_LABEL = "vertexrig_chain"
"""Label of a step's job and model: the claim of the run that the step follows."""


@dataclass(frozen=True)
class PromoteStep:
    """A full training job from the best trial of the sweep, as `vertexrig promote` makes it."""

    name: str | None = option("Name of the job; by default SWEEP-best.", None, pattern=NAME)
    epochs: int | None = option("The same as args: {epochs: N}.", None, least=1)
    args: Mapping[str, Scalar] = option("Arguments of the trainer beside the trial's parameters.", factory=dict)
    topology: str | None = option("Topology in place of the sweep's job's.", None)
    machine_type: str | None = option("Machine type in place of the sweep's job's.", None)
    set: Mapping[str, Any] = option("Other keys of the job, such as worker.replica_count: 2.", factory=dict)
    warm_start_flag: str | None = option("The trainer's flag for a model to start from: it gets the trial's.", None)


@dataclass(frozen=True)
class EvaluateStep:
    """A job of the project that measures the model that is there and the new one on today's data; `register` compares these.

    It writes `summary.json` into AIP_MODEL_DIR: under `champion` and `challenger` the metrics of each.
    """

    job: str = option("The job.")
    champion_flag: str = option(
        "Its flag for the folder of the version that is there; left out where there is none.", "champion"
    )
    challenger_flag: str = option("Its flag for the folder of the new model.", "challenger")
    args: Mapping[str, Scalar] = option("Other arguments, over those of the job.", factory=dict)


@dataclass(frozen=True)
class RegisterStep:
    """The trained model as a version in the Model Registry, if it is better, as `vertexrig register` adds it."""

    display_name: str | None = option("The model's display name; by default the sweep's, or the job's.", None)
    alias: str = option("Alias of the best version, beside `default`.", "champion", pattern=ALIAS)
    min_gain: float = option("Gain over the version that is there, at least.", 0.0, least=0)
    metric: str | None = option("Metric to compare by; by default the sweep's first one.", None)
    goal: Goal | None = option("Which values are better, if no sweep says it.", None)
    serving_image: str | None = option(
        "Image that serves the model; by default Google's, by framework and version.", None
    )
    labels: Mapping[str, str] = option("Labels of the version, added to the project's.", factory=dict)


@dataclass(frozen=True)
class EventSource:
    """What starts a run without a request: messages of a Pub/Sub topic, or finished objects of a bucket."""

    topic: str | None = option("Topic whose messages hold requests.", None)
    bucket: str | None = option("Bucket whose finished objects start `run`.", None, pattern=BUCKET)
    run: str | None = option("The job or sweep that an object starts.", None)
    objects: str = option("Regular expression for the whole gs:// URI of the objects that count.", ".*")
    arg: str | None = option("Argument that gets the object's URI; it must be open in `allow_args`.", None)
    location: str | None = option("The bucket's location; the project's region by default.", None)


Occasion = Literal["refused", "skipped", "deferred", "failed", "finished", "better", "waiting"]


@dataclass(frozen=True)
class Notify:
    """Who is told what has come of the runs: subscribers of a topic, or a webhook. At least once; the id tells repeats."""

    when: tuple[Occasion, ...] = option(
        "refused, skipped and deferred deliveries; runs that failed, or finished; better models that were registered; steps that wait "
        "for help.",
        ("refused", "failed", "better", "waiting"),
    )
    topic: str | None = option(
        "Pub/Sub topic.", None, pattern=(r"projects/[^/]+/topics/[^/]+", "projects/PROJECT/topics/NAME")
    )
    webhook: str | None = option(
        "Secret in Secret Manager that holds the webhook's address.",
        None,
        pattern=(r"projects/[^/]+/secrets/[^/]+(/versions/[^/]+)?", "projects/PROJECT/secrets/NAME"),
    )
    form: Literal["json", "slack"] = option("Form of what a webhook gets: all fields, or a line for Slack.", "json")


@dataclass(frozen=True)
class StepOptions:
    """A step with options: exactly one of the keys."""

    promote: PromoteStep | None = option("Train the best trial in full.", None)
    evaluate: EvaluateStep | None = option("Measure it beside the version that is there.", None)
    register: RegisterStep | None = option("Register the model that was trained.", None)


StepName = Literal["promote", "evaluate", "register"]
Then = Union[StepName, StepOptions]
NextStep = Union[PromoteStep, EvaluateStep, RegisterStep]
ORDER: tuple[StepName, ...] = ("promote", "evaluate", "register")


def typed(then: Then) -> NextStep | None:
    """Return a step of the file with its options; None unless it names exactly one."""
    if then == "promote":
        return PromoteStep()
    if then == "register":
        return RegisterStep()
    if then == "evaluate":  # it has to name its job
        return None
    assert isinstance(then, StepOptions)
    given = [one for one in (then.promote, then.evaluate, then.register) if one is not None]
    return given[0] if len(given) == 1 else None


def steps(then: tuple[Then, ...]) -> tuple[NextStep, ...]:
    """Return the steps of a schedule that was checked when it was loaded."""
    return tuple(step for one in then if (step := typed(one)) is not None)


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
        jobs: The jobs that are there.
        sweeps: The sweeps that are there.
    """
    seen: list[StepName] = []
    for index, one in enumerate(then):
        step = typed(one)
        if step is None:
            return (
                index,
                "a step is `promote` or `register`, or one with options: `promote: {epochs: 30}`, `evaluate: {job: NAME}`",
            )
        name = name_of(step)
        if name in seen or [*seen, name] != [known for known in ORDER if known in (*seen, name)]:
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
