"""Plans that cannot work, or may surprise, are named before anything runs."""

from __future__ import annotations

import copy
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.vertexrig.trigger.test_schedule import DATA
from vertexrig.cloud import cron
from vertexrig.errors import ConfigError
from vertexrig.trigger import plans, schedules

NOVEMBER = datetime(2026, 11, 25, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("line", "zone", "local"),
    [
        ("30 2 * * *", "Europe/Berlin", [("2027-03-28T02:30", False), ("2027-10-31T02:30", True)]),
        ("0 2 * * *", "Europe/Berlin", [("2027-03-28T02:00", False), ("2027-10-31T02:00", True)]),
        ("0 3 * * *", "Europe/Berlin", []),
        ("30 1 * * *", "America/New_York", [("2027-11-07T01:30", True)]),
        ("30 2 * * sun", "America/New_York", [("2027-03-14T02:30", False)]),
        ("30 2 * * mon", "America/New_York", []),
        ("every day 02:30", "Europe/Berlin", [("2027-03-28T02:30", False), ("2027-10-31T02:30", True)]),
        ("*/15 * * * *", "Europe/Berlin", []),
        ("every 5 minutes", "Europe/Berlin", []),
        ("45 1 * * *", "Australia/Lord_Howe", [("2027-04-04T01:45", True)]),
        ("15 0 * * *", "Africa/Cairo", [("2027-04-30T00:15", False)]),
        ("30 2 * * *", "Asia/Tokyo", []),
        ("30 2 * * *", "Etc/UTC", []),
    ],
)
def test_local_times_that_clocks_skip_or_repeat(line: str, zone: str, local: list[tuple[str, bool]]) -> None:
    """Both changes of a year are found for a schedule at that time, by the zone's own rules, and none for other schedules."""
    found = cron.clock_changes(line, zone, after=NOVEMBER)
    assert [(one.isoformat(timespec="minutes"), twice) for one, twice in found] == local


def test_check_warns_of_a_local_time_that_clocks_change(tmp_path: Path) -> None:
    """`check` reports such a schedule at its cron line, with what Google documents."""
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["cron"] = "30 2 * * *"
    clouds.loaded(tmp_path, data)
    found = tools.typed("check", "--format=json", cwd=tmp_path).document["findings"]
    (one,) = [row for row in found if row["id"] == "schedule-clock"]
    assert one["severity"] == "warning" and one["line"] and "02:30 Europe/Berlin does not exist on" in one["message"]
    assert "and 02:30 Europe/Berlin comes twice on" in one["message"] and "does not document" in one["message"]


IMPOSSIBLE: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"sweeps": {}}, {"run": "cpu", "then": ["register"]}, "no sweep of this file names one for cpu. Write register: {metric: "),
    ({"sweeps": {}}, {"run": "cpu", "then": [{"register": {"metric": "val_loss"}}]}, "Write register: {metric: val_loss, goal: MINIMIZE}"),
    ({}, {"run": "cpu", "then": [{"register": {"metric": "f1"}}]}, "Write register: {metric: f1, goal: MAXIMIZE}"),
    ({}, {"run": "sweep", "then": [{"register": {"metric": "f1"}}]}, "sweep has no metric 'f1'; its metrics are accuracy"),
    ({}, {"run": "sweep", "then": ["promote", {"register": {"metric": "f1"}}]}, "its metrics are accuracy"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "schedule", "said"), IMPOSSIBLE)
def test_register_without_anything_to_compare_by(
    tmp_path: Path, part: dict[str, Any], schedule: dict[str, Any], said: str
) -> None:
    """`plan` and `check` refuse it with the step's line and the keys to write, which are not flags of a verb."""
    data = {**copy.deepcopy(DATA), **part, "schedules": {"x": {"cron": "0 4 * * *", **schedule}}}
    loaded = clouds.loaded(tmp_path, data)
    with pytest.raises(ConfigError) as refused:
        schedules.check(loaded)
    assert said in refused.value.message and "schedules.x.then[" in refused.value.message and refused.value.line
    assert "--" not in refused.value.message
    done = tools.typed("check", cwd=tmp_path)
    assert done.exit_code == 2 and said in done.stderr


@pytest.mark.parametrize(
    "schedule",
    [
        {"run": "cpu", "then": ["register"]},
        {"run": "cpu", "then": [{"register": {"metric": "f1", "goal": "MAXIMIZE"}}]},
        {"run": "sweep", "then": ["register"]},
        {"run": "sweep", "then": ["promote", {"register": {"metric": "f1", "goal": "MAXIMIZE"}}]},
    ],
)
def test_register_with_something_to_compare_by(tmp_path: Path, schedule: dict[str, Any]) -> None:
    """A step whose metric and goal are known is planned."""
    data = {**copy.deepcopy(DATA), "schedules": {"x": {"cron": "0 4 * * *", **schedule}}}
    assert plans.impossible(clouds.loaded(tmp_path, data)) == {}
