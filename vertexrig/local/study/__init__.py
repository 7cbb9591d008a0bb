"""The study engine: suggests trials, reads their metrics, stops them, and keeps them running side by side.

Nothing here starts a process or a server: `StudyRun` is given an executor and a store. Optuna is imported by
`sampling` alone, at the first suggestion.
"""

from vertexrig.local.study.engine import StudyEngine, StudyExhausted
from vertexrig.local.study.metrics import MetricFile
from vertexrig.local.study.run import Executor, Handle, StudyResult, StudyRun, TrialOutcome, TrialStore
from vertexrig.spec.trial import Measurement, Trial, TrialState

__all__ = [
    "Executor",
    "Handle",
    "Measurement",
    "MetricFile",
    "StudyEngine",
    "StudyExhausted",
    "StudyResult",
    "StudyRun",
    "Trial",
    "TrialOutcome",
    "TrialState",
    "TrialStore",
]
