"""The engine of one study: what to try next, when to stop a trial, when the study is over."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from localvertex.jobs import sampling, stopping
from vertexrig.errors import ConfigError, VertexrigError
from vertexrig.spec.objective import Objective
from vertexrig.spec.space import ParameterValue, Space
from vertexrig.spec.trial import Measurement, Trial, TrialState

_REDRAWS, _REDRAWS_LISTABLE = 10, 3  # draws that may hit a combination that is made already
_LISTABLE = 20_000  # up to this many combinations, those left are listed when drawing keeps hitting made ones


class StudyExhausted(VertexrigError):
    """Every combination of the space has been suggested."""


class StudyEngine:
    """A study, rebuilt at any time from its spec, its seed and the trials made so far.

    A suggestion depends on nothing else, so an engine built again after a crash goes on as the first would have.

    Args:
        spec: `studySpec`, canonical camelCase (`spec.Document.study`).
        seed: The same seed and the same measurements give the same trials.
        trials: Trials already made, as `Trial.record` or a REST listing gives them, in the order they were made.
        created: When the study was created, seconds since 1970; now by default. Runtime limits count from it.
        clock: Seconds since 1970.

    Raises:
        ConfigError: The spec cannot be searched; the message names the path and the rule.
    """

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        seed: int = 0,
        trials: Iterable[Mapping[str, Any]] = (),
        created: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spec, self.seed, self.clock = spec, seed, clock
        self.space = Space(spec.get("parameters", ()))
        self.objective = Objective(spec)
        self.algorithm = str(spec.get("algorithm", "ALGORITHM_UNSPECIFIED"))
        self.created = clock() if created is None else created
        self.trials: dict[str, Trial] = {}
        self.open: dict[str, None] = {}  # ids of trials that have not ended, in their order
        self._made: set[tuple[tuple[str, Any], ...]] = set()
        self._walked = 0  # combinations at the start of a grid that are all made
        for data in trials:
            self.add(Trial.from_dict(data))
        if self.algorithm == "GRID_SEARCH" and self.space.size is None:
            doubles = [dimension.id for dimension in self.space.everywhere() if dimension.count is None]
            raise ConfigError(
                f"studySpec.algorithm GRID_SEARCH cannot list the DOUBLE {doubles[0]!r}; "
                "give its values as a discreteValueSpec"
            )

    @property
    def _stopping_config(self) -> Mapping[str, Any]:
        return self.spec.get("studyStoppingConfig") or {}

    def suggest(self, trial_id: str, fixed: Iterable[Mapping[str, Any]] = ()) -> list[ParameterValue]:
        """Make trial `trial_id`, ACTIVE from now on, and return its parameters `[{"parameterId": …, "value": …}]`; the client chose those `fixed`.

        Asked again for the same trial, it returns the same parameters. Values are float for DOUBLE and DISCRETE, int
        for INTEGER, str for CATEGORICAL.

        A combination already made is not suggested again while there are others, unless `observationNoise` is HIGH.
        Where no algorithm is named, the first trial has each parameter's default value or its middle.

        Raises:
            ConfigError: A fixed value is not in the search space.
            StudyExhausted: A grid, or a study with `observationNoise` LOW, has no combination left.
        """
        known = self.trials.get(trial_id)
        if known is not None:
            return known.parameters
        parameters = self.space.listed(self._next(trial_id), fixed)
        trial = Trial(trial_id, parameters=parameters)
        trial.move(TrialState.ACTIVE, at=self.clock())
        self.add(trial)
        return parameters

    def add(self, trial: Trial) -> None:
        """Take a trial that was made, in place of the one of the same id."""
        self.trials[trial.id] = trial
        if not trial.state.ended:
            self.open[trial.id] = None
        else:
            self.open.pop(trial.id, None)
        self._made.add(_combination(trial.parameters))

    def should_stop(self, trial_id: str) -> bool:
        """Whether automated stopping ends this trial now."""
        trial = self.trials[trial_id]
        if trial.state is not TrialState.ACTIVE:
            return trial.state is TrialState.STOPPING
        others = [other for other in self.trials.values() if other.id != trial_id]
        return stopping.should_stop(self.spec, self.objective.single, trial, others)

    def complete(self, trial_id: str, final: Measurement | None = None, *, infeasible: str = "") -> Trial:
        """End a trial: SUCCEEDED with its final measurement, or INFEASIBLE.

        Args:
            trial_id: A trial that runs.
            final: Its final measurement; by default the one `measurementSelectionType` picks among those observed.
            infeasible: Why it is infeasible, if it is. Without this and without a measurement it is infeasible too.
        """
        trial = self.trials[trial_id]
        final = final or self.objective.final(trial.measurements)
        if infeasible or final is None:
            missing = ", ".join(goal.id for goal in self.objective.goals)
            trial.infeasible_reason = infeasible or f"The trial reported no measurement of {missing}."
            trial.move(TrialState.INFEASIBLE, at=self.clock())
        else:
            trial.final_measurement = final
            trial.move(TrialState.SUCCEEDED, at=self.clock())
        self.open.pop(trial_id, None)
        return trial

    def done(self) -> str | None:
        """Return why no further trial is to be made: `studyStoppingConfig` or an exhausted space; None while there is one.

        The counts of the tuning job (maxTrialCount, maxFailedTrialCount) are `StudyRun`'s.
        """
        size = self.space.size
        if self._never_twice and size is not None and len(self._made) >= size:
            return f"the search space is exhausted: all {size} combinations are made"
        return self._stopped(self.trials.values())

    def interrupted(self) -> str | None:
        """Return why running trials are to be stopped now, under `shouldStopAsap`; None while they go on.

        Only trials that have ended count here, so the last of maxNumTrials is not stopped as soon as it is made.
        """
        if not self._stopping_config.get("shouldStopAsap", False):
            return None
        return self._stopped([trial for trial in self.trials.values() if trial.state.ended])

    def _stopped(self, trials: Collection[Trial]) -> str | None:
        config, goal = self._stopping_config, self.objective.single
        return stopping.study_done(config, goal, trials, created=self.created, now=self.clock())

    @property
    def _never_twice(self) -> bool:
        """Grids end by nature; LOW noise means "will never repeat the same Trial parameters"."""
        return self.algorithm == "GRID_SEARCH" or self.spec.get("observationNoise") == "LOW"

    def _next(self, trial_id: str) -> list[ParameterValue]:
        made, size = self._made, self.space.size
        if self.algorithm == "ALGORITHM_UNSPECIFIED" and not self.trials:
            return self.space.assign(lambda dimension: dimension.first)
        if self.algorithm == "GRID_SEARCH":
            while self._walked < (size or 0):
                found = self.space.combination(self._walked)
                if _combination(found) not in made:
                    return found
                self._walked += 1
            raise StudyExhausted(f"all {size} combinations of the grid are made")
        # HIGH means that a repeat is worth its cost; and where all are made, there is nothing else to repeat.
        again = self.spec.get("observationNoise") == "HIGH" or (size is not None and len(made) >= size)
        if self._never_twice and again:
            raise StudyExhausted(f"all {size} combinations are made, and observationNoise LOW forbids repeats")
        listable = size is not None and size <= _LISTABLE
        # The seed is of the trial and the attempt, so trials made side by side or after a crash do not depend on
        # order.
        for attempt in range(1 if again else _REDRAWS_LISTABLE if listable else _REDRAWS):
            parameters = self._draw(sampling.subseed(self.seed, trial_id, attempt))
            if again or _combination(parameters) not in made:
                return parameters
        numbers = random.Random(sampling.subseed(self.seed, trial_id, "left"))
        if listable:
            left = [row for row in map(self.space.combination, range(size or 0)) if _combination(row) not in made]
            return numbers.choice(left)
        while size is not None and _combination(parameters) in made:  # few of so many are made
            parameters = self.space.combination(numbers.randrange(size))
        return parameters

    def _draw(self, seed: int) -> list[ParameterValue]:
        if self.algorithm == "RANDOM_SEARCH":
            return sampling.suggest_random(self.space, seed)
        sampling.warm_up()
        signs = [goal.sign for goal in self.objective.goals]
        return sampling.suggest_tpe(self.space, self._past(), signs, seed)

    def _past(self) -> Iterable[sampling.Past]:
        for trial in self.trials.values():
            # None for values that the space does not have, as of a study that was given.
            placed = self.space.read(trial.parameters)
            if placed is not None:
                values = self.objective.values(trial.final_measurement)
                yield sampling.Past(placed, not trial.state.ended, values)


def _combination(parameters: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((str(row["parameterId"]), row["value"]) for row in parameters))
