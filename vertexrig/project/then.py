"""What follows a scheduled run: the steps `promote` and `register` of a schedule's `then`, as typed values."""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from typing import Any, Literal, Union

from vertexrig.catalog.option import Scalar, option
from vertexrig.catalog.value import dataclass
from vertexrig.project.value import NAME, Goal

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
class RegisterStep:
    """The trained model as a version in the Model Registry, if it is better, as `vertexrig register` adds it."""

    display_name: str | None = option("The model's display name; by default the sweep's, or the job's.", None)
    alias: str = option("Alias of the best version, beside `default`.", "champion", pattern=ALIAS)
    min_gain: float = option("Gain over the version that is there, at least.", 0.0, least=0)
    metric: str | None = option("Metric to compare by; by default the sweep's first one.", None)
    goal: Goal | None = option("Which values are better, if no sweep says it.", None)
    serving_image: str | None = option(
        "Image that serves the model; by default Google's, by version of TensorFlow.", None
    )
    labels: Mapping[str, str] = option("Labels of the version, added to the project's.", factory=dict)


@dataclass(frozen=True)
class StepOptions:
    """A step with options: exactly one of the keys."""

    promote: PromoteStep | None = option("Train the best trial in full.", None)
    register: RegisterStep | None = option("Register the model that was trained.", None)


StepName = Literal["promote", "register"]
Then = Union[StepName, StepOptions]
NextStep = Union[PromoteStep, RegisterStep]
ORDER: tuple[StepName, ...] = ("promote", "register")


def typed(then: Then) -> NextStep | None:
    """A step of the file with its options; None unless it names exactly one."""
    if then == "promote":
        return PromoteStep()
    if then == "register":
        return RegisterStep()
    assert isinstance(then, StepOptions)
    given = [one for one in (then.promote, then.register) if one is not None]
    return given[0] if len(given) == 1 else None


def steps(then: tuple[Then, ...]) -> tuple[NextStep, ...]:
    """The steps of a schedule that was checked when it was loaded."""
    return tuple(step for one in then if (step := typed(one)) is not None)


def name_of(step: NextStep) -> StepName:
    """`promote` or `register`."""
    return "promote" if isinstance(step, PromoteStep) else "register"


def wrong(then: tuple[Then, ...], *, after_sweep: bool, taken: Mapping[str, Any]) -> tuple[int, str] | None:
    """The first step that is wrong, and why; None if all are right.

    Args:
        then: The steps of a schedule.
        after_sweep: Whether they follow a sweep; otherwise a job.
        taken: The jobs and sweeps that are there.
    """
    seen: list[StepName] = []
    for index, one in enumerate(then):
        step = typed(one)
        if step is None:
            return index, "a step is `promote` or `register`, or one of them with options: `promote: {epochs: 30}`"
        name = name_of(step)
        if name in seen or [*seen, name] != [known for known in ORDER if known in (*seen, name)]:
            return index, f"{name} cannot follow {seen[-1]}: the order is promote, register, each at most once"
        if isinstance(step, PromoteStep) and not after_sweep:
            return index, "promote takes the best trial of a sweep, and `run` names a job: leave it out"
        if isinstance(step, PromoteStep) and step.name in taken:
            return index, f"there is a job or sweep {step.name!r} already: choose another name"
        ours = [key for key in step.labels if key.startswith("vertexrig")] if isinstance(step, RegisterStep) else []
        if ours:
            return index, f"labels that begin with `vertexrig` are the trigger's own: rename {ours[0]!r}"
        seen.append(name)
    return None
