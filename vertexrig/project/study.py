"""A study of the project file as typed values: its metrics, its parameters, and when it stops."""

# No postponed annotations: they are read at run time, and 300 of them would be compiled one by one at every start.
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vertexrig.schema.typed import Given, given

Goal = Literal["MAXIMIZE", "MINIMIZE"]


@dataclass(frozen=True, eq=False, repr=False)
class SafetyConfig(Given):
    """A metric that must stay on the safe side of a threshold."""

    safety_threshold: float = given("The threshold.")
    desired_min_safe_trials_fraction: float | None = given("Share of trials that should be safe, 0 to 1.", None)


ScaleType = Literal["UNIT_LINEAR_SCALE", "UNIT_LOG_SCALE", "UNIT_REVERSE_LOG_SCALE"]


@dataclass(frozen=True, eq=False, repr=False)
class MetricSettings(Given):
    """A metric with more than a goal."""

    goal: Goal = given("MAXIMIZE or MINIMIZE.")
    safety_config: SafetyConfig | None = given("Makes it a safety metric.", None)


@dataclass(frozen=True, eq=False, repr=False)
class DoubleRange(Given):
    """A continuous range, both ends included."""

    min_value: float = given("Smallest value.")
    max_value: float = given("Largest value.")


@dataclass(frozen=True, eq=False, repr=False)
class IntegerRange(Given):
    """A range of whole numbers, both ends included."""

    min_value: int = given("Smallest value.")
    max_value: int = given("Largest value.")


@dataclass(frozen=True, eq=False, repr=False)
class NumberValues(Given):
    """Numbers, in increasing order."""

    values: tuple[float, ...] = given("The values.")


@dataclass(frozen=True, eq=False, repr=False)
class IntegerValues(Given):
    """Whole numbers."""

    values: tuple[int, ...] = given("The values.")


@dataclass(frozen=True, eq=False, repr=False)
class TextValues(Given):
    """Texts."""

    values: tuple[str, ...] = given("The values.")


@dataclass(frozen=True, eq=False, repr=False)
class StudyParameter(Given):
    """A parameter of a study; exactly one of the four value specs is given."""

    double_value_spec: DoubleRange | None = given("A continuous range.", None)
    integer_value_spec: IntegerRange | None = given("A range of whole numbers.", None)
    discrete_value_spec: NumberValues | None = given("A list of numbers, increasing.", None)
    categorical_value_spec: TextValues | None = given("A list of texts.", None)
    scale_type: ScaleType | None = given("How the range is searched; not for categorical.", None)
    conditional_parameter_specs: "tuple[ConditionalParameter, ...]" = given(
        "Parameters that exist only while this one has certain values.", ()
    )


@dataclass(frozen=True, eq=False, repr=False)
class ParameterSpec(StudyParameter):
    """A parameter that carries its own id, inside conditional_parameter_specs."""

    parameter_id: str = given("Its name; the trainer gets --NAME=value.", "")


@dataclass(frozen=True, eq=False, repr=False)
class ConditionalParameter(Given):
    """A child parameter and the parent's values it exists for; exactly one of the three conditions is given."""

    parameter_spec: ParameterSpec = given("The child.")
    parent_discrete_values: NumberValues | None = given("Values of a discrete parent.", None)
    parent_int_values: IntegerValues | None = given("Values of an integer parent.", None)
    parent_categorical_values: TextValues | None = given("Values of a categorical parent.", None)


@dataclass(frozen=True, eq=False, repr=False)
class ElapsedDuration(Given):
    """Automated stopping by median or decay curve."""

    use_elapsed_duration: bool | None = given("Compare trials by time instead of by step.", None)


@dataclass(frozen=True, eq=False, repr=False)
class ConvexStopping(Given):
    """Automated stopping by a convex model of the curve."""

    max_step_count: int | None = given("Steps at which a trial is complete.", None)
    min_step_count: int | None = given("Steps before a trial may be stopped.", None)
    min_measurement_count: int | None = given("Measurements before a trial may be stopped.", None)
    learning_rate_parameter_name: str | None = given("Parameter that is the learning rate.", None)
    use_elapsed_duration: bool | None = given("Compare trials by time instead of by step.", None)
    update_all_stopped_trials: bool | None = given("Also update trials already stopped.", None)


@dataclass(frozen=True, eq=False, repr=False)
class TimeConstraint(Given):
    """A duration or an end time."""

    max_duration: str | None = given("Duration such as 3600s.", None, unit="s")
    end_time: str | None = given("Time such as 2026-12-31T00:00:00Z.", None)


@dataclass(frozen=True, eq=False, repr=False)
class StudyStopping(Given):
    """When the whole study ends before max_trial_count."""

    should_stop_asap: bool | None = given("Stop running trials as well.", None)
    minimum_runtime_constraint: TimeConstraint | None = given("Not before.", None)
    maximum_runtime_constraint: TimeConstraint | None = given("Not after.", None)
    min_num_trials: int | None = given("At least so many trials.", None)
    max_num_trials: int | None = given("At most so many trials.", None)
    max_num_trials_no_progress: int | None = given("Stop after so many trials without a better one.", None)
    max_duration_no_progress: str | None = given("Stop after so long without a better one.", None, unit="s")


@dataclass(frozen=True, eq=False, repr=False)
class Study(Given):
    """What a sweep searches for and where (StudySpec)."""

    metrics: Mapping[str, Goal | MetricSettings] = given("Metric ids and their goal: {accuracy: MAXIMIZE}.")
    parameters: Mapping[str, StudyParameter] = given("Parameters by id.")
    algorithm: Literal["ALGORITHM_UNSPECIFIED", "GRID_SEARCH", "RANDOM_SEARCH"] | None = given(
        "GRID_SEARCH or RANDOM_SEARCH; Bayesian if not given.", None
    )
    measurement_selection_type: Literal["LAST_MEASUREMENT", "BEST_MEASUREMENT"] | None = given(
        "Which measurement of a trial counts.", None
    )
    median_automated_stopping_spec: ElapsedDuration | None = given("Stop trials below the median.", None)
    decay_curve_stopping_spec: ElapsedDuration | None = given("Stop trials by decay curve.", None)
    convex_automated_stopping_spec: ConvexStopping | None = given("Stop trials by a convex model.", None)
    study_stopping_config: StudyStopping | None = given("When the study ends early.", None)
