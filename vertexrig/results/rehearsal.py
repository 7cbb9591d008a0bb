"""How a rehearsal went: what the local Vertex gives back, and what verbs, notebooks and comments on pull requests show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vertexrig.spec.states import SUCCEEDED
from vertexrig.text import markup


@dataclass(frozen=True)
class Rehearsal:
    """How a rehearsal went.

    Args:
        state: The state it ended in, such as `JOB_STATE_SUCCEEDED`.
        error: Why it failed, "" if it did not.
        seconds: Wall time of the job, without checks and packaging; with faults, of all attempts, with the packaging for each.
        output: Folder on this machine of the output URI, None without one.
        run: The run whose output folder that is, "" if all runs of the job share one.
        metrics: The last value under each tag that a job's primary replica reported with cloudml-hypertune.
        failed_replica: The replica that failed the job, "" if none did.
        quoted_output: What the error quotes of the failed replica's output: its last traceback or its last lines; after a failed installation,
            pip's last lines. "" if it quotes nothing.
        hint: What the failure usually means.
        differences: A sentence for each thing that is not as on Vertex AI.
        warnings: A sentence for each thing that went wrong without failing the job; it would not fail it on Vertex AI either.
        astray: Files left in the working directories of a job without a model, the largest first; Vertex AI does not keep them. For a
            sweep: of the first trial without a model.
        trials: A sweep's trials as rows, the best first (`vertexrig.results.study.StudyRecord.table`).
        attempts: What became of each attempt, if it was rehearsed with faults (`vertexrig.results.attempts`).
    """

    name: str
    state: str
    error: str
    seconds: float
    output: Path | None
    run: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    failed_replica: str = ""
    quoted_output: str = ""
    hint: str = ""
    differences: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    astray: tuple[Path, ...] = ()
    trials: tuple[Mapping[str, Any], ...] = ()
    attempts: tuple[Mapping[str, Any], ...] = ()

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        rows = [("state", self.state), ("seconds", f"{self.seconds:.1f}"), *self.metrics.items()]
        rows += [("error", self.error)] if self.error else []
        rows += [(f"trial {row.get('trial', number)}", str(row)) for number, row in enumerate(self.trials, 1)]
        cells = "".join(f"<tr><th>{markup(str(name))}</th><td>{markup(str(value))}</td></tr>" for name, value in rows)
        return f"<table><caption>{markup(self.name)}</caption>{cells}</table>"

    @property
    def succeeded(self) -> bool:
        return self.state == SUCCEEDED

    @property
    def model(self) -> Path | None:
        """Folder of the job's model on this machine, None if there is none; empty only if the job succeeded and saved none."""
        folder = self.output / "model" if self.output is not None else None
        if folder is None or not folder.is_dir() or not (self.succeeded or _has_file(folder)):
            return None
        return folder

    @property
    def models_empty(self) -> tuple[Path, ...]:
        """Model folders without a file: the one of a job that succeeded, or those of a sweep's trials that succeeded."""
        if self.output is None or not self.succeeded:
            return ()
        trials = [str(row["trial"]) for row in self.trials if row["state"] == "SUCCEEDED"]
        folders = [self.output / one / "model" for one in trials] if self.trials else [self.output / "model"]
        return tuple(one for one in folders if one.is_dir() and not _has_file(one))


def all_failed(trials: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a sweep has trials, and none of them has a result, by the rows of their table."""
    return bool(trials) and all(row["state"] == "INFEASIBLE" for row in trials)


def _has_file(folder: Path) -> bool:
    return any(path.is_file() for path in folder.rglob("*"))
