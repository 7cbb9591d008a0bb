"""A job or study as one HTML page that loads nothing: text and tables as HTML, charts drawn by a library that it carries.

Every text goes through Jinja's escaping, the data through JSON without `<`. The page's own policy (Content-Security-Policy)
allows its scripts by their hashes, and no request.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

import vertexrig
from vertexrig import times
from vertexrig.cloud.vertex import TUNING, RemoteJob
from vertexrig.results import attempts, drawing, trials
from vertexrig.results.charts import charts
from vertexrig.results.drawing import Charts
from vertexrig.results.history import Record
from vertexrig.results.importance import Importance, importance
from vertexrig.results.study import StudyRecord, course, read
from vertexrig.results.timeline import Timeline, timeline
from vertexrig.results.trials import TrialResult
from vertexrig.spec.objective import Metric
from vertexrig.spec.states import short
from vertexrig.studies.certainty import Certainty, certainty
from vertexrig.studies.cost import Spent
from vertexrig.studies.report import local_server
from vertexrig.studies.reproduce import Reproduction, flags
from vertexrig.text import clean, safe, shown
from vertexrig.times import length

SECTIONS = (
    ("candidates", "Candidates"), ("best", "Best"), ("history", "History"), ("pareto", "Trade-off"), ("parallel", "All parameters"),
    ("importance", "Importance"), ("slices", "Slices"), ("pairs", "Pairs"), ("curves", "Learning curves"),
    ("timeline", "Timeline"), ("failed", "Failed"), ("trials", "Trials"), ("cost", "Cost"), ("again", "Run it again"),
)  # fmt: skip
_ALWAYS = ("cost", "again")
_OF_A_STUDY = ("importance", "curves", "failed")


@dataclass(frozen=True)
class Insight:
    """A study with all that is computed of it.

    Args:
        certainty: How sure its best trial is; None if there is none, or several.
    """

    study: StudyRecord
    importance: Importance
    timeline: Timeline
    charts: Charts
    certainty: Certainty | None


def insight(job: RemoteJob) -> Insight:
    """Return all that is computed of a study. Needs Optuna."""
    study = read(job)
    when, weights = timeline(study), importance(study)
    return Insight(study, weights, when, charts(study, when, weights), certainty(study))


def page(
    job: RemoteJob,
    found: Insight | None,
    *,
    cost: Spent,
    reproduction: Reproduction,
    console: str = "",
    record: Record | None = None,
    attempted: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the page of a job.

    Args:
        found: What is computed of its study; None for a custom job.
        console: Its page in the console, "" for a rehearsal.
        record: The rehearsal, if it is one.
        attempted: The attempts of a job with candidates.
    """
    drawn = found.charts if found else Charts({})
    local = record is not None or bool(local_server(console))
    values: dict[str, Any] = {
        "version": vertexrig.__version__,
        "made": times.now().strftime("%Y-%m-%d %H:%M"),
        **_parts(drawn),
        "title": clean(job.display_name) or job.id,
        "subtitle": _subtitle(job, record, console),
        "error": job.error.strip(),
        "charts": drawn,
        "part": {name: drawn.sections.get(name, ()) for name, _ in SECTIONS},
        "cost_rows": [_row(_price_row(line)) for line in cost.price.lines],
        "cost_notes": cost.price.notes,
        "cost_money": cost.money(),
        "cost_text": _cost_text(cost, rehearsed=local),
        "reproduction": reproduction,
        "again_text": _again_text(job),
        "candidates": _candidates(attempted) if attempted else None,
        "study": found is not None,
        "tiles": [
            *(_study_tiles(found) if found else _job_tiles(job, record)),
            _tile("cost, an estimate", cost.money(), "if it had run on Vertex AI" if local else ""),
        ],
        "notes": [*(_notes(found) if found else []), *(record.differences if record else ())],
        **(_study_values(found) if found else {"trials": None, "best": None}),
    }
    return _template().render({**values, "sections": _sections(values)})


def _parts(drawn: Charts) -> dict[str, Any]:
    """Return the page's style, scripts, data, and the policy that allows these scripts."""
    script = Markup(_read("shared.js", "results") + _read("charts.js", "results") + _read("page.js"))
    library = Markup(_inline(drawing.library())) if drawn.sections else Markup("")
    return {
        # Made of the very texts below: the policy names scripts by their hashes, and one changed byte would block them.
        "policy": _policy(script, library),
        "css": Markup(_read("page.css") + _read("shared.css", "results")),
        "script": script,
        "library": library,
        "data": Markup(_json(drawn.for_page())),
    }


def _study_values(found: Insight) -> dict[str, Any]:
    study = found.study
    headings, cells = trials.columns(study.table())
    numbers = [_numeric(column) for column in zip(*cells, strict=True)] if cells else []
    winners = {trial.id for trial in study.best}
    rows = [_row([clean(shown(cell)) for cell in row], best=row[0] in winners) for row in cells]
    head = list(zip(map(clean, headings), numbers, strict=True)) if rows else []
    several = len(study.goals) > 1
    return {
        "trials": {"head": head, "rows": rows} if rows else None,
        "best": {"head": head, "rows": [row for row in rows if row["best"]]} if study.best else None,
        "best_title": "Trials that no other beats" if several else "Best trial",
        "best_flags": clean(flags(study.best[0])) if study.best else "",
        "certainty": found.certainty.text() if found.certainty else "",
        "importance": found.importance,
        "pairs_text": f"The {'most important' if found.importance.weights else 'first'} parameters against each other; "
        "the ring is the best trial.",
        "timeline_text": _timeline_text(found),
        "failures": _failures(study),
    }


def _study_tiles(found: Insight) -> list[dict[str, Any]]:
    study, when = found.study, found.timeline
    states = Counter(trial.state for trial in study.trials)
    rest = ", ".join(f"{many} {state.lower()}" for state, many in sorted(states.items()) if state != "SUCCEEDED")
    tiles = []
    for goal in study.goals:
        best = _best_of(study, goal)
        value = shown(study.value(best, goal), 5) if best else "–"
        aim = "more is better" if goal.sign > 0 else "less is better"
        more = f"trial {clean(best.id)}, {aim}" if best else "no trial counts yet"
        tiles.append({**_tile(f"best {clean(goal.id)}", value, more), "best": True})
    tiles.append(
        _tile("trials", f"{len(study.trials)} of {study.asked}", rest or "all succeeded" if study.trials else "")
    )
    if when.spans:
        tiles.append(_tile("wall time", length(when.wall), f"{length(when.busy)} of all trials together"))
        tiles.append(_tile("in parallel", f"{when.mean_parallel:.2g}", f"on average, of {study.parallel} asked for"))
    if when.gap is not None:
        tiles.append(_tile("between two trials", length(when.gap), f"median; {length(when.idle)} in all"))
    return tiles


def _job_tiles(job: RemoteJob, record: Record | None) -> list[dict[str, Any]]:
    own = course(job.data)
    tiles = [_tile("state", short(job.state))]
    if own.start is not None and own.end is not None:
        tiles.append(_tile("ran for", length(own.end - own.start)))
    metrics = record.metrics if record else {}
    return [*tiles, *(_tile(clean(name), shown(value, 5)) for name, value in metrics.items())]


def _notes(found: Insight) -> list[str]:
    """Return what a reader should know before the charts."""
    study = found.study
    notes = []
    if not study.trials:
        notes.append("The study has not begun: there is no trial yet.")
    elif not study.ranked:
        goals = " and ".join(clean(goal.id) for goal in study.goals)
        notes.append(
            f"No trial succeeded with a finite value of {goals}, so there is no best trial and nothing to draw of it."
        )
    elif len(study.ranked) == 1:
        notes.append("One trial counts: charts of a single point say little.")
    if study.conditional and study.trials:
        names = ", ".join(sorted(map(clean, study.conditional)))
        notes.append(f"In some trials only: {names}.")
    outside = study.outside()
    for name, values in outside.items():
        many = "1 trial has" if len(values) == 1 else f"{len(values)} trials have"
        notes.append(f"{many} a value of {clean(name)} outside the study's range, such as {clean(shown(values[0]))}.")
    return notes


def _timeline_text(found: Insight) -> str:
    when, asked = found.timeline, found.study.parallel
    if not when.spans:
        return ""
    parts = [
        f"The trials took {length(when.wall)} from the first start to the last end; {when.mean_parallel:.2g} ran at one time "
        f"on average and {when.most} at most, of {asked} asked for."
    ]
    if when.wait is not None:
        parts.append(f"The first started {length(when.wait)} after the study was created.")
    if when.gap is not None:
        parts.append(
            f"Between the end of a trial and the start of the next in its slot {length(when.gap)} passed (median), "
            f"{length(when.idle)} in all: tear-down, start-up, and the choice of the next parameters."
        )
    return " ".join(parts)


def _failures(study: StudyRecord) -> list[dict[str, Any]]:
    """Return trials that ended and do not count, by reason."""
    counted = {trial.id for trial in study.ranked}
    by_reason: dict[str, list[str]] = {}
    for trial in study.trials:
        if trial.id not in counted and trial.state in ("SUCCEEDED", "INFEASIBLE"):
            by_reason.setdefault(_reason(study, trial), []).append(clean(trial.id))
    ordered = sorted(by_reason.items(), key=lambda row: -len(row[1]))
    return [
        _row([reason, len(ids), ", ".join(ids[:30]) + (f" and {len(ids) - 30} more" if len(ids) > 30 else "")])
        for reason, ids in ordered
    ]


def _reason(study: StudyRecord, trial: TrialResult) -> str:
    if trial.state == "INFEASIBLE":
        return clean(trial.reason) or "infeasible, without a reason"
    lacking = [metric.id for metric in study.goals if metric.id not in trial.metrics]
    if lacking:
        return f"no finite value of {clean(', '.join(lacking))}"
    unsafe = [metric.id for metric in study.metrics if not metric.safe(trial.metrics.get(metric.id, 0.0))]
    return f"over the safety threshold of {clean(', '.join(unsafe))}"


def _best_of(study: StudyRecord, goal: Metric) -> TrialResult | None:
    return max(study.ranked, key=lambda trial: goal.sign * study.value(trial, goal), default=None)


def _subtitle(job: RemoteJob, record: Record | None, console: str) -> list[str]:
    kind = "sweep" if job.collection == TUNING else "custom job"
    server = local_server(console)
    where = f"run on the local Vertex at {server}, not on Vertex AI" if server else "on Vertex AI"
    if record:
        where = f"rehearsed on this machine{f', run {record.run}' if record.run else ''}"
    parts = [f"{short(job.state)} {kind}, {where}", clean(job.name)]
    for key, name in (("createTime", "created"), ("endTime", "ended")):
        when = str(job.data.get(key, ""))
        if when:
            parts.append(f"{name} {when[:19].replace('T', ' ')}")
    return [*parts, *([console] if console and not server else [])]


def _cost_text(cost: Spent, *, rehearsed: bool) -> str:
    if rehearsed:
        return (
            f"nothing was paid for it; {length(cost.seconds)}, the time that it took here, would cost that on "
            f"Vertex AI at {cost.price.usd_per_hour:.4g} USD per hour, the on-demand prices of the catalog for {cost.price.region}."
        )
    hours = f"{length(cost.seconds)} at {cost.price.usd_per_hour:.4g} USD per hour"
    what = "that the job ran" if cost.units is None else f"that {cost.units} trials ran"
    least = "" if cost.price.complete else " Lines without a price are not in the sum, so it is a lower bound."
    return (
        f"{hours}, for the time {what}, at the on-demand prices of the catalog for {cost.price.region}.{least} "
        "The bill is in the Google Cloud console; nothing on this page is read from it."
    )


def _candidates(attempted: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row per attempt of a job with candidates, for a table."""
    rows = attempts.table(attempted)
    head = [(name, name in ("candidate", "USD")) for name in rows[0]]
    return {"head": head, "rows": [_row([clean(str(cell)) for cell in row.values()]) for row in rows]}


def _price_row(line: Any) -> list[str]:
    usd = "price unknown" if line.usd_per_hour is None else f"{line.usd_per_hour:.4f}"
    return [clean(line.item), f"{line.quantity:,g}", usd, line.basis, line.date]


def _again_text(job: RemoteJob) -> str:
    what = "search space, package and arguments" if job.collection == TUNING else "package and arguments"
    text = f"These commands create the same job: the YAML holds the {what} that this one had."
    return text + (" The search itself differs from run to run." if job.collection == TUNING else "")


def _sections(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    there = {*values["charts"].sections, *_ALWAYS}
    there |= {*_OF_A_STUDY} if values["study"] else set()
    there |= {name for name in ("best", "trials", "candidates") if values[name]}
    return [(id, title) for id, title in SECTIONS if id in there]


def _row(cells: Sequence[Any], best: bool = False) -> dict[str, Any]:
    return {"cells": cells, "best": best}


def _tile(name: str, value: str, more: str = "") -> dict[str, Any]:
    return {"name": name, "value": value, "more": more, "best": False}


def _numeric(column: Sequence[Any]) -> bool:
    values = [value for value in column if value is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True,
        finalize=lambda value: safe(value) if type(value) is str else value,  # not Markup, which has scripts
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    # not capitalize(), which makes the rest of the text small letters
    environment.filters["sentence"] = lambda text: f"{text[:1].upper()}{text[1:].rstrip('.')}."
    return environment.from_string(_read("page.html.j2"))


def _read(name: str, room: str = "studies") -> str:
    return (resources.files(f"vertexrig.{room}") / "page" / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """Return JSON that cannot end the element it is in."""
    # JavaScript before ES2019 ends a line at U+2028 and U+2029, inside a string, too
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _inline(script: str) -> str:
    """Return a script that cannot end the element it is in; in a string literal both spellings mean the same."""
    return script.replace("\r", "").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _policy(*scripts: str) -> str:
    # vega sets styles on elements, which no hash allows
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
        if script
    )
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
