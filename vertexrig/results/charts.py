"""The charts of a study as Vega-Lite specifications: plain data, drawn by the page in a browser.

Columns are called `p0`, `m0`, `u0`, and real names are in titles only, so that a parameter may be called
anything. A chart names its data set; `Charts.data` holds each set once for all charts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from vertexrig.results import chart_data
from vertexrig.results.chart_data import Rows, six
from vertexrig.results.drawing import Chart, Charts, Spec
from vertexrig.results.importance import Importance
from vertexrig.results.study import StudyRecord
from vertexrig.results.timeline import Timeline
from vertexrig.results.timeline import running as running_at
from vertexrig.spec.objective import Metric
from vertexrig.spec.parameters import LOG
from vertexrig.spec.space import Dimension
from vertexrig.text import clean
from vertexrig.times import length

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BEST, PLAIN, BAD = "#e8590c", "#4c7fd0", "#c2255c"
"""The best trial, the others, and the infeasible ones: readable on light and on dark."""
_STATES = {"succeeded": PLAIN, "best": BEST, "infeasible": BAD, "running": "#2f9e44"}
_POINT = {"type": "point", "filled": True, "opacity": 0.9}
_STEPS = {"type": "line", "interpolate": "step-after", "color": BEST}
_ROOM = {"expr": "max(2, floor(width / 60))"}
"""Ticks of an axis along the width: so many that their labels have room."""
PAIRED = 3
"""The parameters, the most important first, that are shown in pairs."""
CROWD = 200
"""From this many trials on, the charts with a line per trial begin with the best quarter."""


def charts(study: StudyRecord, timeline: Timeline, importance: Importance | None = None) -> Charts:
    """Return the charts of a study; a section without anything to show is left out.

    Args:
        importance: Of its parameters; None leaves out the charts that need it, as the console does, whose server is without Optuna.
    """
    weights = [weight.parameter for weight in importance.weights] if importance else []
    names = [*weights, *(name for name in study.parameters if name not in weights)]
    curves, thinned = chart_data.curves(study)
    spans = _span_rows(study, timeline)
    sections = {
        "history": [history(study, at) for at in range(len(study.goals))] if study.ranked else [],
        "pareto": [pareto(study)] if len(study.goals) > 1 and study.ranked else [],
        "parallel": [parallel(study)] if study.ranked else [],
        "importance": [_importance(importance)] if importance and weights else [],
        "slices": [_slice(study, name) for name in names] if study.ranked else [],
        "pairs": _pairs(study, names) if importance and study.ranked else [],
        "curves": [_curves(study, thinned)] if curves else [],
        "timeline": [_running(study, timeline), _spans(timeline, spans)] if timeline.spans else [],
    }
    data = {
        "trials": chart_data.trials(study),
        "ticks": chart_data.ticks(study),
        "importance": _importance_rows(importance) if importance else [],
        "curves": curves,
        "spans": spans,
        "running": _running_rows(timeline),
    }
    return Charts({name: own for name, own in sections.items() if own}, data)


def history(study: StudyRecord, at: int) -> Chart:
    """Return every trial's value in the order of the trials, the best so far as a line, infeasible trials on the axis."""
    goal, last = study.goals[at], len(study.trials)
    axis = {"values": _whole_ticks(last), "format": "d", "grid": False, "labelOverlap": True}
    x = _field("n", title="trial", axis=axis, scale={"domain": [0.5, last + 0.5], "nice": False})
    y, tooltip = _value(study, at), _tooltip(study)
    point = _layer(f"isValid(datum.m{at})", _POINT, x=x, y=y, **_best_marked(study), tooltip=tooltip)
    line = _layer(f"isValid(datum.b{at})", {**_STEPS, "strokeWidth": 2}, x=x, y={**y, "field": f"b{at}"})
    cross = {"type": "point", "shape": "cross", "angle": 45, "filled": True, "color": BAD, "size": 70}
    # they have no value of the metric: a position in pixels keeps them off the scale of the others
    bottom = {"value": {"expr": "height - 5"}}
    failed = _layer("!datum.ok && datum.ended", cross, x=x, y=bottom, tooltip=tooltip)
    note = f"Line: the best so far ({_goal(goal)})."
    if any(trial.state == "INFEASIBLE" for trial in study.trials):
        note += " Crosses at the bottom: trials that do not count."
    return Chart(f"history-{at}", f"{goal.id} by trial", _layered("trials", [line, point, failed]), note)


def pareto(study: StudyRecord) -> Chart:
    """Return the first two goals against each other, with the trials that no other beats."""
    x, y = _value(study, 0), _value(study, 1)
    point = _layer("datum.ok", _POINT, x=x, y=y, **_best_marked(study), tooltip=_tooltip(study))
    line = _layer("datum.best", {**_STEPS, "strokeWidth": 1.5}, x=x, y=y, order=_field("m0"))
    title = f"{study.goals[0].id} against {study.goals[1].id}"
    note = "Orange: no other trial is better in every metric."
    return Chart("pareto", title, _layered("trials", [line, point]), note)


def parallel(study: StudyRecord) -> Chart:
    """Return a line per trial through its parameters and its value, each axis on the parameter's own scale."""
    axes = chart_data.axes(study)
    lowest = min(0, *(row["y"] for row in chart_data.ticks(study)))  # below 0: "not set"
    axis = {"labelExpr": f"{json.dumps(dict(axes))}[datum.value]", "labelAngle": -20, "labelLimit": 150, "domain": False,
            "ticks": False, "labelPadding": 8, "labelOverlap": False}  # fmt: skip
    x = _field("a", "ordinal", sort=[key for key, _ in axes], title=None, axis=axis, scale={"padding": 0.15})
    y = _field("y", axis=None, scale={"domain": [lowest, 1], "nice": False})
    fold = {"fold": [key for key, _ in axes], "as": ["a", "y"]}
    # With hundreds of lines each has to be fainter, or nothing is seen behind the last ones.
    many = len(study.trials) > CROWD
    each = {"x": x, "y": y, "detail": _field("id", "nominal"), "tooltip": _tooltip(study)}
    lines = {
        "data": {"name": "trials"},
        "transform": [{"filter": "datum.ok && datum.share <= share"}, fold],
        "params": [_hover()],
        "mark": {"type": "line"},
        "encoding": {
            **each,
            "color": _ramp(study),
            "opacity": _emphasised(0.35 if many else 0.9, hovered=1),
            "strokeWidth": _emphasised(1.2 if many else 2, hovered=4, best=3),
        },
    }
    best = {
        "data": {"name": "trials"},
        "transform": [{"filter": "datum.best"}, fold],
        "mark": {"type": "line", "color": BEST, "strokeWidth": 3},
        "encoding": each,
    }
    rules = {
        "data": {"name": "ticks"},
        "mark": {"type": "rule", "opacity": 0.35},
        "encoding": {"x": x, "y": {**y, "aggregate": "min"}, "y2": {"field": "y", "aggregate": "max"}},
    }
    labels: Spec = {
        "data": {"name": "ticks"},
        "mark": {"type": "text", "align": "left", "dx": 5, "fontSize": 10, "limit": 90},
        "encoding": {"x": x, "y": y, "text": {"field": "label"}},
    }
    # each label once more in the colour of the background, below itself, so that lines do not run through the text
    halo = {**labels, "mark": {**labels["mark"], "style": "halo"}}
    spec = _base({"layer": [rules, lines, best, halo, labels], "params": [_share(many)], "height": 340})
    # room for the last axis's labels, which Vega does not count
    spec["padding"] = {"left": 16, "top": 5, "right": 50, "bottom": 5}
    note = "Each line is a trial, the best in orange; a slider below the chart leaves the worse trials out."
    if study.conditional:
        note += " A line at “not set” means that the trial does not have that parameter."
    return Chart("parallel", "Parameters and result of every trial", spec, note, 90 * len(axes))


def _importance(importance: Importance) -> Chart:
    y = _field("name", "nominal", sort=None, title=None, axis={"labelLimit": 160})
    x = {"type": "quantitative", "title": "share of the importance", "axis": {"format": "%", "tickCount": 6}}
    named = {"share": "importance", "low": "from", "high": "to"}
    tooltip = [_tooltip_row("name", "parameter"), *(_tooltip_row(key, title, ".1%") for key, title in named.items())]
    bar = {
        "mark": {"type": "bar", "color": PLAIN, "opacity": 0.85},
        "encoding": {"y": y, "x": {**x, "field": "share"}, "tooltip": tooltip},
    }
    line = {
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "tooltip": tooltip},
    }
    spec = {**_layered("importance", [bar, line]), "height": 28 * len(importance.weights)}
    note = (
        "How much each parameter alone decides whether a trial is among the best tenth (PED-ANOVA, by Optuna). The line "
        f"holds the middle 80 % of {importance.resamples} resamples of the trials: where lines overlap, the order is not certain."
    )
    return Chart("importance", "Importance of the parameters", spec, note)


def _slice(study: StudyRecord, name: str) -> Chart:
    key = chart_data.key(study, name)
    x, y, where = _parameter(study, name), _value(study, 0), f"datum.ok && isValid(datum.p{key})"
    point = _layer(where, _POINT, x=x, y=y, **_best_marked(study), tooltip=_tooltip(study))
    return Chart(f"slice-{key}", name, {**_layered("trials", [point]), "height": 200})


def _pairs(study: StudyRecord, names: Sequence[str]) -> list[Chart]:
    found = []
    point = {**_POINT, "size": 45 if len(study.trials) > CROWD else 90}
    ring = {"type": "point", "color": BEST, "size": 230, "strokeWidth": 2.5}
    for first, second in combinations(names[:PAIRED], 2):
        keys = chart_data.key(study, first), chart_data.key(study, second)
        both = f"datum.ok && isValid(datum.p{keys[0]}) && isValid(datum.p{keys[1]})"
        each = {"x": _parameter(study, first), "y": _parameter(study, second), "tooltip": _tooltip(study)}
        layers = [_layer(both, point, **each, color=_ramp(study)), _layer(f"datum.best && {both}", ring, **each)]
        spec = {**_layered("trials", layers), "height": 240}
        found.append(Chart(f"pair-{keys[0]}-{keys[1]}", f"{first} and {second}", spec))
    return found


def _curves(study: StudyRecord, thinned: int) -> Chart:
    goal = study.goals[0]
    stepped = any(one.step for own in study.courses.values() for one in own.curve)
    many = len(study.trials) > CROWD
    title = "step" if stepped else "seconds since the trial's start"
    # Vega ignores tickMinStep if the count is an expression
    room = {"expr": f"min({_ROOM['expr']}, span(domain('x')))"} if stepped else _ROOM
    x = _field("x", title=title, axis={"grid": False, "tickCount": room}, scale={"nice": False, "zero": False})
    tooltip = [
        _tooltip_row("id", "trial"),
        _tooltip_row("x", title),
        _tooltip_row("y", _titled(goal.id), ".6~g"),
        _tooltip_row("v", "final", ".6~g"),
    ]
    line = _layer(
        "datum.share <= share",
        {"type": "line", "point": False if many else {"size": 14}},
        x=x,
        y={**_value(study, 0), "field": "y"},
        detail=_field("id", "nominal"),
        tooltip=tooltip,
        color={"condition": {"test": "datum.best", "value": BEST}, "value": PLAIN},
        opacity=_emphasised(0.2 if many else 0.7, hovered=1, best=1),
        strokeWidth=_emphasised(1.2 if many else 1.8, hovered=3.5, best=3),
    )
    spec = {**_layered("curves", [{**line, "params": [_hover()]}]), "height": 300, "params": [_share(many)]}
    note = "One line per trial, the best in orange."
    if thinned:
        note += f" At most {thinned} points of each trial are drawn, spread evenly."
    return Chart("curves", f"{goal.id} while the trials ran", spec, note)


def _running(study: StudyRecord, timeline: Timeline) -> Chart:
    axis = {"values": _whole_ticks(max(study.parallel, timeline.most), 5), "format": "d", "labelOverlap": False}
    y = _field("n", title="trials", axis=axis)
    area = {
        "mark": {"type": "area", "interpolate": "step-after", "color": PLAIN, "opacity": 0.5, "line": {"color": PLAIN}},
        "encoding": {"x": _time_axis("t", timeline), "y": {**y, "stack": None}},
    }
    asked = {
        "data": {"values": [{"n": study.parallel}]},
        "mark": {"type": "rule", "strokeDash": [5, 4], "color": BEST},
        "encoding": {"y": y},
    }
    spec = {**_layered("running", [area, asked]), "height": 110}
    note = "Dashed: parallelTrialCount, the most that was asked for."
    return Chart("running", "Trials that ran at one time", spec, note)


def _spans(timeline: Timeline, rows: Sequence[Mapping[str, Any]]) -> Chart:
    there = {row["state"] for row in rows}
    states = {state: color for state, color in _STATES.items() if state in there}
    named = {"id": "trial", "state": "state", "length": "ran for", "gap": "after a gap of"}
    scale = {"domain": list(states), "range": list(states.values())}
    bar = {
        "mark": {"type": "bar", "cornerRadius": 2, "height": {"band": 0.8}},
        "encoding": {
            "x": _time_axis("s", timeline),
            "x2": {"field": "e"},
            "y": _field("slot", "ordinal", title=None, axis={"labels": False, "ticks": False}),
            "color": _field("state", "nominal", title=None, scale=scale, legend={"orient": "top"}),
            "tooltip": [_tooltip_row(key, title) for key, title in named.items()],
        },
    }
    step = max(4, min(24, 480 // timeline.most))
    spec = {**_layered("spans", [bar]), "height": step * timeline.most}
    note = "Each row has trials that ran one after the other; the space between two bars is tear-down and start-up."
    return Chart("spans", "When each trial ran", spec, note)


def _time_axis(field: str, timeline: Timeline) -> Spec:
    axis = {"grid": False, "tickCount": _ROOM}
    return _field(field, title=_unit(timeline)[1], axis=axis, scale={"nice": False})


def _field(name: str, kind: str = "quantitative", **more: Any) -> Spec:
    """Return an encoding by a column."""
    return {"field": name, "type": kind, **more}


def _tooltip_row(name: str, title: str, format: str = "") -> Spec:
    """Return a row of a tooltip: a column, and its title."""
    return {"field": name, "title": title, **({"format": format} if format else {})}


def _layer(where: str, mark: Spec, **encoding: Any) -> Spec:
    """Return a layer of the rows for which an expression holds."""
    return {"transform": [{"filter": where}], "mark": mark, "encoding": encoding}


def _emphasised(plain: float, *, hovered: float, best: float | None = None) -> Spec:
    """Return a value of lines that another one replaces for the line under the pointer, and for the best trial's."""
    rows = [{"param": "hover", "empty": False, "value": hovered}]
    rows += [{"test": "datum.best", "value": best}] if best is not None else []
    return {"condition": rows if best is not None else rows[0], "value": plain}


def _base(spec: Spec) -> Spec:
    return {"$schema": SCHEMA, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}, **spec}


def _layered(data: str, layers: Sequence[Spec]) -> Spec:
    return _base({"data": {"name": data}, "height": 280, "layer": list(layers)})


def _value(study: StudyRecord, at: int) -> Spec:
    """Return the axis of a goal: logarithmic where its values are positive and spread over more than two decades."""
    values = [study.value(trial, study.goals[at]) for trial in study.ranked]
    wide = bool(values) and min(values) > 0 and max(values) / min(values) > 100
    return _field(f"m{at}", title=_titled(study.goals[at].id), scale={"type": "log"} if wide else {"zero": False})


def _parameter(study: StudyRecord, name: str) -> Spec:
    dimension, column = study.parameters[name], f"p{chart_data.key(study, name)}"
    if chart_data.is_choice(study, name):
        order = [clean(str(value)) for value in dimension.values]
        axis: Spec = {"labelLimit": 110, "labelAngle": 0, "labelOverlap": True}
        return _field(column, "nominal", title=_titled(name), sort=order, axis=axis)
    axis = {"labelOverlap": True, "grid": False, "tickCount": _ROOM}
    if dimension.kind == "DISCRETE" and len(dimension.values) <= 8:
        axis["values"] = list(dimension.values)
    scale = {"type": "log"} if _log(study, name, dimension) else {"zero": False}
    return _field(column, title=_titled(name), scale=scale, axis=axis)


def _log(study: StudyRecord, name: str, dimension: Dimension) -> bool:
    given = [trial.parameters[name] for trial in study.ranked if name in trial.parameters]
    return dimension.scale == LOG and all(isinstance(value, (int, float)) and value > 0 for value in given)


def _goal(goal: Metric) -> str:
    return "more is better" if goal.sign > 0 else "less is better"


def _best_marked(study: StudyRecord) -> Spec:
    """Return color, size and order of the trials' points: the best is larger, and above the others; hundreds of points are smaller."""
    plain = 40 if len(study.trials) > CROWD else 85
    scale = {"domain": [False, True], "range": [PLAIN, BEST]}
    return {
        "color": _field("best", "nominal", title=None, legend=None, scale=scale),
        "size": {"condition": {"test": "datum.best", "value": 2.4 * plain}, "value": plain},
        "order": _field("best"),
    }


def _whole_ticks(last: int, most: int = 12) -> list[int]:
    """Return whole numbers from 1 to `last`: every one, or every 2nd, 5th, 10th and so on, `most` at most."""
    steps = (step * 10**power for power in range(12) for step in (1, 2, 5))
    step = next(step for step in steps if last <= most * step)
    return list(range(step, last + 1, step))


def _ramp(study: StudyRecord) -> Spec:
    """Return the value as a colour: the better, the more it differs from the background."""
    goal = study.goals[0]
    ends = list(chart_data.ends(study))
    scale = {"range": "ramp", "reverse": goal.sign < 0, "domain": ends}
    legend = {"orient": "top", "gradientLength": 160, "values": ends, "format": ".3~g"}
    return _field("m0", title=_titled(goal.id), scale=scale, legend=legend)


def _titled(name: str) -> str:
    """Return a name as a title: Vega-Lite writes it into expressions, and escapes quotes alone; a similar character replaces a backslash."""
    return clean(name).replace("\\", "\N{FULLWIDTH REVERSE SOLIDUS}")


def _tooltip(study: StudyRecord) -> list[Spec]:
    goals = [_tooltip_row(f"m{i}", _titled(goal.id), ".6~g") for i, goal in enumerate(study.goals)]
    parameters = [_tooltip_row(f"p{i}", _titled(name)) for i, name in enumerate(study.parameters)]
    return [_tooltip_row("id", "trial"), *goals, *parameters, _tooltip_row("state", "state")]


def _hover() -> Spec:
    return {
        "name": "hover",
        "select": {"type": "point", "fields": ["id"], "on": "pointerover", "clear": "pointerout", "nearest": False},
    }


def _share(many: bool) -> Spec:
    bind = {"input": "range", "min": 1, "max": 100, "step": 1, "name": "Best trials shown, in % "}
    return {"name": "share", "value": 25 if many else 100, "bind": bind}


def _importance_rows(found: Importance) -> Rows:
    """Return one row per parameter: `name`, `share`, `low`, `high`."""
    return [
        {"name": clean(one.parameter), "share": six(one.share), "low": six(one.low), "high": six(one.high)}
        for one in found.weights
    ]


def _unit(timeline: Timeline) -> tuple[float, str]:
    """Return the unit of a time axis: its seconds and its name."""
    if timeline.wall < 300:
        return 1.0, "seconds"
    return (60.0, "minutes") if timeline.wall < 6 * 3600 else (3600.0, "hours")


def _span_rows(study: StudyRecord, timeline: Timeline) -> Rows:
    """Return one row per trial that ran: `id`, `s` and `e` in the unit of the axis, `slot`, `state`, `length` and `gap` as text."""
    each, _ = _unit(timeline)
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


def _running_rows(timeline: Timeline) -> Rows:
    """Return how many trials ran at each moment: `t` in the unit of the axis, `n`."""
    each, _ = _unit(timeline)
    return [{"t": six(moment / each), "n": many} for moment, many in running_at(timeline.spans)]
