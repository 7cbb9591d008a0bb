"""The rows behind the charts of what is worked out from a study: the importance of its parameters, and its timeline."""

from __future__ import annotations

from vertexrig.results.chart_data import Rows, six
from vertexrig.results.study import StudyRecord
from vertexrig.studies.importance import Importance
from vertexrig.studies.timeline import Timeline
from vertexrig.studies.timeline import running as running_at
from vertexrig.text import clean
from vertexrig.times import length


def importance(found: Importance) -> Rows:
    """Return one row per parameter: `name`, `share`, `low`, `high`."""
    return [
        {"name": clean(one.parameter), "share": six(one.share), "low": six(one.low), "high": six(one.high)}
        for one in found.weights
    ]


def unit(timeline: Timeline) -> tuple[float, str]:
    """Return seconds of the unit that a time axis has, and its name."""
    return (
        (1.0, "seconds")
        if timeline.wall < 300
        else (60.0, "minutes")
        if timeline.wall < 6 * 3600
        else (3600.0, "hours")
    )


def spans(study: StudyRecord, timeline: Timeline) -> Rows:
    """Return one row per trial that ran: `id`, `s` and `e` in the unit of the axis, `slot`, `state`, `length` and `gap` as text."""
    each, _ = unit(timeline)
    states = {trial.id: trial.state for trial in study.trials}
    winners = {trial.id for trial in study.best}
    rows = []
    for span in timeline.spans:
        state = "running" if span.running else states.get(span.trial, "").lower()
        rows.append(
            {
                "id": clean(span.trial),
                "s": six(span.start / each),
                "e": six(span.end / each),
                "slot": span.slot,
                "state": "best" if span.trial in winners else state,
                "length": length(span.end - span.start),
                "gap": "" if span.gap is None else length(span.gap),
            }
        )
    return rows


def running(timeline: Timeline) -> Rows:
    """Tell how many trials ran: `t` in the unit of the axis, `n`."""
    each, _ = unit(timeline)
    return [{"t": six(moment / each), "n": many} for moment, many in running_at(timeline.spans)]
