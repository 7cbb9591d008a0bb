"""What of a chain is refused: steps that a body asks for, and wrong steps in the project file."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.trigger_place import DATA, Place, then
from vertexrig.errors import ConfigError

BODIES: list[tuple[str, dict[str, Any], int, str]] = [
    ("an unknown schedule", {"then": "nightl"}, 403, "Did you mean 'nightly'?"),
    ("a schedule without steps", {"then": "plain"}, 403, "there is no schedule 'plain' with steps"),
    ("steps of its own", {"then": ["promote"]}, 400, "the name of a schedule belongs here"),
    ("another run", {"run": "cpu", "then": "nightly"}, 400, "the steps of nightly follow sweep, not cpu"),
    ("other values", {"args": {"epochs": 4}, "then": "nightly"}, 403, "to allow others: trigger.allow_then: true"),
]


@pytest.mark.parametrize(("what", "body", "status", "said"), BODIES, ids=[row[0] for row in BODIES])
def test_a_body_brings_no_steps(tmp_path: Path, what: str, body: dict[str, Any], status: int, said: str) -> None:
    """A body names a schedule of the project file; its steps follow its own values only, unless the file opens that."""
    data = copy.deepcopy(DATA)
    data["schedules"]["plain"] = {"run": "cpu", "cron": "0 3 * * *"}
    place = Place(tmp_path, data)
    reply = place.post({"run": "sweep", "args": {"epochs": 3}, **body})
    assert reply.status == status and said in json.dumps(reply.body, ensure_ascii=False), reply.body
    assert not place.open and not place.vertex.jobs
    if what == "other values":
        place.load(then(*DATA["schedules"]["nightly"]["then"], allow_then=True))
        assert place.post({"run": "sweep", **body}).status == 201 and place.open


WRONG: list[tuple[Any, str]] = [
    (["regster"], "schedules.nightly.then[0]: 'regster' is not one of its values. Did you mean 'register'?"),
    (["register", "promote"], "schedules.nightly.then[1]: promote cannot follow register"),
    (["promote", "promote"], "schedules.nightly.then[1]: promote cannot follow promote"),
    ([{}], "schedules.nightly.then[0]: a step is `promote` or `register`"),
    ([{"promote": {}, "register": {}}], "schedules.nightly.then[0]: a step is `promote` or `register`"),
    ([{"promote": {"epoch": 3}}], "schedules.nightly.then[0].promote.epoch: there is no key 'epoch' here"),
    ([{"promote": {"epochs": 0}}], "schedules.nightly.then[0].promote.epochs: 0 is below 1"),
    ([{"promote": {"name": "cpu"}}], "there is a job or sweep 'cpu' already"),
    ([{"register": {"min_gain": -1}}], "schedules.nightly.then[0].register.min_gain: -1 is below 0"),
    ([{"register": {"alias": "No"}}], "'No' is not an alias"),
    ([{"register": {"labels": {"vertexrig_step_of": "x"}}}], "are the trigger's own"),
    ("promote", "schedules.nightly.then: 'promote' is text; a list belongs here"),
]


@pytest.mark.parametrize(("steps", "said"), WRONG, ids=range(len(WRONG)))
def test_wrong_steps_are_refused_with_their_line(tmp_path: Path, steps: Any, said: str) -> None:
    """The file, the line, the key, and what belongs there."""
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"]["then"] = steps
    with pytest.raises(ConfigError) as refused:
        clouds.loaded(tmp_path, data)
    assert said in str(refused.value) and refused.value.line


def test_steps_need_a_sweep_and_the_name_tick_is_taken(tmp_path: Path) -> None:
    """`promote` after a job is refused, and so is a schedule with steps that has the tick's name."""
    data = copy.deepcopy(DATA)
    data["schedules"]["nightly"] |= {"run": "cpu"}
    with pytest.raises(ConfigError, match="promote takes the best trial of a sweep"):
        clouds.loaded(tmp_path, data)
    data["schedules"] = {"tick": DATA["schedules"]["nightly"]}
    with pytest.raises(ConfigError, match="'tick' is the name of the tick"):
        clouds.loaded(tmp_path, data)
