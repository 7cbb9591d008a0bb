"""Plans that cannot work, or may surprise, and that the project file alone shows: steps without what they need, and local times of
schedules that do not exist or come twice.
"""

from __future__ import annotations

from vertexrig.cloud import cron
from vertexrig.errors import ConfigError
from vertexrig.finding import Finding
from vertexrig.project.config import Loaded
from vertexrig.project.triggered import PromoteStep, RegisterStep, Schedule
from vertexrig.spec.objective import likely_goal
from vertexrig.spec.strict import finding
from vertexrig.studies.outcome import PROMOTED_FROM
from vertexrig.studies.trained import goals_of


def impossible(loaded: Loaded) -> dict[str, ConfigError]:
    """Return, by schedule, why its `register` step would fail after each run: it has nothing to compare models by."""
    found = {}
    for name, schedule in loaded.project.schedules.items():
        for index, step in enumerate(schedule.steps):
            wrong = _no_comparison(loaded, schedule, step) if isinstance(step, RegisterStep) else ""
            if wrong:
                found[name] = loaded.error_at(wrong, "schedules", name, "then", index)
    return found


def _no_comparison(loaded: Loaded, schedule: Schedule, step: RegisterStep) -> str:
    """Return why a step has no metric or goal to compare models by, "" if it has both."""
    sweeps = loaded.project.sweeps
    if schedule.run in sweeps:
        promoted = any(isinstance(one, PromoteStep) for one in schedule.steps)
        goals = goals_of(loaded, {PROMOTED_FROM: schedule.run})
        if not goals and not promoted:
            return ""  # the study is in a template: its metrics are known when the sweep is rendered
        if step.metric and step.metric not in goals and not (promoted and step.goal):
            write = "register: {metric: " + next(iter(goals), step.metric) + "}"
            return f"{schedule.run} has no metric {step.metric!r}; its metrics are {', '.join(goals) or 'not in this file'}. Write {write}"
    else:
        goals = goals_of(loaded, loaded.runnable(schedule.run).labels)
    metric = step.metric or next(iter(goals), "")
    if not metric:
        return (
            f"register compares models by a metric, and no sweep of this file names one for {schedule.run}. "
            "Write register: {metric: accuracy, goal: MAXIMIZE}, with the trainer's own metric"
        )
    if step.goal is None and metric not in goals:
        return (
            f"no sweep of this file says whether more or less of {metric} is better. "
            f"Write register: {{metric: {metric}, goal: {likely_goal(metric)}}}"
        )
    return ""


def clocks(loaded: Loaded) -> list[Finding]:
    """Return a warning for each schedule with a local time that does not exist or comes twice when clocks change."""
    found = []
    for name, schedule in loaded.project.schedules.items():
        try:
            changes = cron.clock_changes(schedule.cron, schedule.time_zone)
        except cron.ScheduleError:
            continue  # `schedule plan` refuses it
        seen = dict[bool, str]()
        for local, twice in changes:
            what = "comes twice on" if twice else "does not exist on"
            seen.setdefault(twice, f"{local:%H:%M} {schedule.time_zone} {what} {local:%Y-%m-%d}")
        if seen:
            one = loaded.error_at("", "schedules", name, "cron")
            fix = "choose a time that clocks do not skip or repeat, or time_zone: Etc/UTC"
            text = f"{' and '.join(seen.values())}, when clocks change. {cron.CLOCKS}"
            found.append(
                finding("schedule-clock", f"schedules.{name}.cron", text, fix, file=one.file or "", line=one.line)
            )
    return found
