"""The effect of a project change on each job and sweep: YAML, replicas, quota, price, findings."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from vertexrig import times
from vertexrig.errors import VertexrigError
from vertexrig.explain.explanation import explain
from vertexrig.finding import Finding, Severity, folded
from vertexrig.spec.estimate import elsewhere
from vertexrig.spec.masking import masked
from vertexrig.workspace import Workspace

_MONTH = timedelta(days=30)
_MANY = 2_000  # runs that are counted; of more, their pace


@dataclass(frozen=True)
class Side:
    """A job or sweep before or after a change.

    Args:
        yaml: What is rendered of it.
        replicas: Of the job, or of one trial.
        quota: What it needs, by the quota's name.
        usd_per_run: The most that a run costs.
        usd_per_month: The same for its schedules in 30 days; 0 without a schedule.
        priced: Whether every part has a price; if not, both are lower bounds.
        findings: What the checks find.
        problem: Why there is nothing to compare, "" if there is.
    """

    yaml: str = ""
    replicas: int = 0
    quota: Mapping[str, int] = field(default_factory=dict)
    usd_per_run: float = 0.0
    usd_per_month: float = 0.0
    priced: bool = True
    findings: tuple[Finding, ...] = field(default=(), compare=False)  # a line may move
    problem: str = ""


@dataclass(frozen=True)
class Change:
    """The effect of a change on one job or sweep; `before` or `after` is None if the project does not have it then."""

    name: str
    before: Side | None
    after: Side | None

    @property
    def kind(self) -> str:
        """`added`, `removed`, `changed`, or "" if nothing of it changed."""
        if self.before is None or self.after is None:
            return "added" if self.after is not None else "removed"
        return "changed" if self.before != self.after or self.new or self.gone else ""

    @property
    def diff(self) -> str:
        """The change of the YAML as a unified diff."""
        old, new = ((side.yaml if side is not None else "").splitlines() for side in (self.before, self.after))
        lines = difflib.unified_diff(old, new, f"a/{self.name}.yaml", f"b/{self.name}.yaml", lineterm="", n=2)
        return masked("\n".join(lines))

    @property
    def new(self) -> list[Finding]:
        """Findings that the change adds."""
        return _without(self.after, self.before)

    @property
    def gone(self) -> list[Finding]:
        """Findings that the change removes."""
        return _without(self.before, self.after)


def _without(side: Side | None, other: Side | None) -> list[Finding]:
    known = {(one.id, one.path, one.message) for one in (other.findings if other else ())}
    return [one for one in (side.findings if side else ()) if (one.id, one.path, one.message) not in known]


def changes(before: Workspace, after: Workspace) -> Iterator[Change]:
    """Yield the effect of a change on each job and sweep, in the order of the newer project."""
    old, new = ([*one.loaded.project.entries] for one in (before, after))
    for name in dict.fromkeys((*new, *old)):
        yield Change(name, _side(before, name) if name in old else None, _side(after, name) if name in new else None)


def _side(workspace: Workspace, name: str) -> Side:
    project = workspace.loaded.project
    try:
        prepared = workspace.prepare(name)
        found = explain(prepared.document, workspace.catalog, region=project.region, name=name)
    except VertexrigError as error:
        # where the project is has nothing to do with the change
        return Side(problem=str(error).replace(f"{workspace.loaded.folder}/", ""))
    price = elsewhere(found.price, project.region, project.trigger.budget.price_factor)
    quota = {need.metric.rpartition("/")[2] or need.item: need.amount for need in found.quota}
    runs = sum(
        _runs(one.cron, one.time_zone) for one in project.schedules.values() if one.run == name and not one.paused
    )
    findings = tuple(folded(prepared.findings))
    return Side(
        prepared.text,
        len(found.replicas),
        quota,
        price.usd_at_most,
        price.usd_at_most * runs,
        price.complete,
        findings,
    )


def _runs(cron: str, zone: str) -> float:
    """Return how often a schedule starts in 30 days."""
    from vertexrig.cloud.cron import parse  # an extra

    begin = moment = times.now()
    timetable, count = parse(cron, zone), 0
    while count < _MANY:
        moment = timetable.after(moment)
        if moment > begin + _MONTH:
            return count
        count += 1
    return count * (_MONTH / max(moment - begin, timedelta(minutes=1)))


def data(one: Change) -> dict[str, Any]:
    """Return a change as plain values for JSON."""

    def side(of: Side | None) -> dict[str, Any] | None:
        if of is None:
            return None
        names = ("replicas", "quota", "usd_per_run", "usd_per_month", "priced", "problem")
        return {name: getattr(of, name) for name in names} | {"problem": of.problem or None}

    def rows(found: Sequence[Finding]) -> list[dict[str, Any]]:
        keys = ("id", "path", "message", "fix", "line")
        return [{"severity": each.severity.value, **{key: getattr(each, key) for key in keys}} for each in found]

    sides = {"before": side(one.before), "after": side(one.after)}
    return {
        "name": one.name,
        "change": one.kind or None,
        **sides,
        "diff": one.diff,
        "new": rows(one.new),
        "gone": rows(one.gone),
    }


def lines(one: Change) -> Iterator[tuple[str, str]]:
    """Yield changes other than the YAML, each as name and text: `replicas`, `1 → 2`."""
    before, after = one.before or Side(), one.after or Side()
    for name, old, new in (
        ("problem", before.problem, after.problem),
        ("replicas", before.replicas, after.replicas),
        *(
            (metric, before.quota.get(metric, 0), after.quota.get(metric, 0))
            for metric in dict.fromkeys((*before.quota, *after.quota))
        ),
        ("per run, at most", _usd(before, before.usd_per_run), _usd(after, after.usd_per_run)),
        ("per month, at most", _usd(before, before.usd_per_month), _usd(after, after.usd_per_month)),
    ):
        if old != new:
            yield name, f"{old or 'none'} → {new or 'none'}"


def _usd(side: Side, amount: float) -> str:
    if not side.yaml:
        return ""
    return f"{'' if side.priced else 'at least '}${amount:,.2f}"


def new_errors(found: Sequence[Change]) -> int:
    """Return the number of errors that a change adds; a job that can no longer be rendered counts as one."""
    errors = sum(each.severity is Severity.ERROR for one in found for each in one.new)
    broken = sum(bool(one.after and one.after.problem and not (one.before and one.before.problem)) for one in found)
    return errors + broken
