"""A study of the project file as typed values: its metrics, its parameters, and when it stops."""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vertexrig.schema.typed import option

Goal = Literal["MAXIMIZE", "MINIMIZE"]


@dataclass(frozen=True)
class SafetyConfig:
    """A metric that must stay on the safe side of a threshold."""

    safety_threshold: float = option("The threshold.")
    desired_min_safe_trials_fraction: float | None = option("Share of trials that should be safe, 0 to 1.", None)


ScaleType = Literal["UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"]


@dataclass(frozen=True)
class MetricSettings:
    """A metric with more than a goal."""

    goal: Goal = option("MAXIMIZE or MINIMIZE.")
    safety_config: SafetyConfig | None = option("Makes it a safety metric.", None)


@dataclass(frozen=True)
class DoubleRange:
    """A continuous range, both ends included."""

    min_value: float = option("Smallest value.")
    max_value: float = option("Largest value.")


@dataclass(frozen=True)
class IntegerRange:
    """A range of whole numbers, both ends included."""

    min_value: int = option("Smallest value.")
    max_value: int = option("Largest value.")


@dataclass(frozen=True)
class NumberValues:
    """Numbers, in increasing order."""

    values: tuple[float, ...] = option("The values.")


@dataclass(frozen=True)
class IntegerValues:
    """Whole numbers."""

    values: tuple[int, ...] = option("The values.")


@dataclass(frozen=True)
class TextValues:
    """Texts."""

    values: tuple[str, ...] = option("The values.")


@dataclass(frozen=True)
class StudyParameter:
    """A parameter of a study; exactly one of the four value specs is given."""

    double_value_spec: DoubleRange | None = option("A continuous range.", None)
    integer_value_spec: IntegerRange | None = option("A range of whole numbers.", None)
    discrete_value_spec: NumberValues | None = option("A list of numbers, increasing.", None)
    categorical_value_spec: TextValues | None = option("A list of texts.", None)
    scale_type: ScaleType | None = option("How the range is searched; not for categorical.", None)
    conditional_parameter_specs: "tuple[ConditionalParameter, ...]" = option(
        "Parameters that exist only while this one has certain values.", ()
    )


@dataclass(frozen=True)
class ParameterSpec(StudyParameter):
    """A parameter that carries its own id, inside conditional_parameter_specs."""

    parameter_id: str = option("Its name; the trainer gets --NAME=value.", "")


@dataclass(frozen=True)
class ConditionalParameter:
    """A child parameter and the parent's values it exists for; exactly one of the three conditions is given."""

    parameter_spec: ParameterSpec = option("The child.")
    parent_discrete_values: NumberValues | None = option("Values of a discrete parent.", None)
    parent_int_values: IntegerValues | None = option("Values of an integer parent.", None)
    parent_categorical_values: TextValues | None = option("Values of a categorical parent.", None)


@dataclass(frozen=True)
class ElapsedDuration:
    """Automated stopping by median or decay curve."""

    use_elapsed_duration: bool | None = option("Compare trials by time instead of by step.", None)


@dataclass(frozen=True)
class ConvexStopping:
    """Automated stopping by a convex model of the curve."""

    max_step_count: int | None = option("Steps at which a trial is complete.", None)
    min_step_count: int | None = option("Steps before a trial may be stopped.", None)
    min_measurement_count: int | None = option("Measurements before a trial may be stopped.", None)
    learning_rate_parameter_name: str | None = option("Parameter that is the learning rate.", None)
    use_elapsed_duration: bool | None = option("Compare trials by time instead of by step.", None)
    update_all_stopped_trials: bool | None = option("Also update trials already stopped.", None)


@dataclass(frozen=True)
class TimeConstraint:
    """A duration or an end time."""

    max_duration: str | None = option("Duration such as 3600s.", None, unit="s")
    end_time: str | None = option("Time such as 2026-12-31T00:00:00Z.", None)


@dataclass(frozen=True)
class StudyStopping:
    """When the whole study ends before max_trial_count."""

    should_stop_asap: bool | None = option("Stop running trials as well.", None)
    minimum_runtime_constraint: TimeConstraint | None = option("Not before.", None)
    maximum_runtime_constraint: TimeConstraint | None = option("Not after.", None)
    min_num_trials: int | None = option("At least so many trials.", None)
    max_num_trials: int | None = option("At most so many trials.", None)
    max_num_trials_no_progress: int | None = option("Stop after so many trials without a better one.", None)
    max_duration_no_progress: str | None = option("Stop after so long without a better one.", None, unit="s")


@dataclass(frozen=True)
class Study:
    """What a sweep searches for and where (StudySpec)."""

    metrics: Mapping[str, Goal | MetricSettings] = option("Metric ids and their goal: {accuracy: MAXIMIZE}.")
    parameters: Mapping[str, StudyParameter] = option("Parameters by id.")
    algorithm: Literal["ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH"] | None = option(
        "GRID_SEARCH or RANDOM_SEARCH; Bayesian if not given.", None
    )
    measurement_selection_type: Literal["LAST_MEASUREMENT", "BEST_MEASUREMENT"] | None = option(
        "Which measurement of a trial counts.", None
    )
    median_automated_stopping_spec: ElapsedDuration | None = option("Stop trials below the median.", None)
    decay_curve_stopping_spec: ElapsedDuration | None = option("Stop trials by decay curve.", None)
    convex_automated_stopping_spec: ConvexStopping | None = option("Stop trials by a convex model.", None)
    study_stopping_config: StudyStopping | None = option("When the study ends early.", None)
