"""What one POST costs: how often it resolves, renders, reads and parses, and what of the tool a fresh process loads for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds
from tests.support.trigger_place import Place
from vertexrig import spec, yamltext
from vertexrig.render import resolve
from vertexrig.render.sandbox import Templates

ROOT = Path(__file__).parents[3]
MOST_MODULES = 77
"""Modules of the tool that a POST loads; it may only go down."""
FRESH = """
import json, sys
from pathlib import Path
from vertexrig.trigger import app
trigger = app.application(Path(sys.argv[1]))
reply = trigger.handle(app.Call("POST", "/", {}, lambda most: b'{"run": "cpu"}'))
loaded = [name for name in sys.modules if name.partition(".")[0] == "vertexrig"]
print(json.dumps({"status": reply.status, "loaded": loaded}))
"""


@pytest.mark.parametrize("more", [{"base_output_directory": "gs://my-bucket/shared"}, {}], ids=["shared", "own folder"])
@pytest.mark.parametrize("body", [{}, {"dry_run": True}, {"args": {"epochs": 3}}], ids=["run", "dry run", "overridden"])
def test_a_post_resolves_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], body: dict[str, Any]
) -> None:
    """A POST resolves the job once, and renders, reads and parses it to check it, and once more with the folder of its run."""
    job = {**clouds.PROJECT["jobs"]["cpu"], **more}
    place, done = Place(tmp_path, {**clouds.PROJECT, "jobs": {"cpu": job}}), Counter[str]()
    for owner, name in ((resolve, "resolve"), (Templates, "render"), (yamltext, "read"), (spec, "parse")):
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name), done))
    reply = place.post({"run": "cpu", **body})
    assert reply.status == (200 if "dry_run" in body else 201), reply.body
    times = 1 if more else 2
    assert done == {"resolve": 1, "render": times, "read": times, "parse": times}


def counted(name: str, function: Callable[..., Any], done: Counter[str]) -> Callable[..., Any]:
    """The function, which notes that it was called."""

    def call(*args: Any, **options: Any) -> Any:
        done[name] += 1
        return function(*args, **options)

    return call


def test_a_fresh_process_loads_what_a_post_needs(tmp_path: Path) -> None:
    """A POST in a fresh process loads no more modules of the tool than it did, and none of the rooms and modules it has no use for."""
    with clouds.cloud(tmp_path / "cloud") as here:
        clouds.loaded(tmp_path)
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), **clouds.variables(here)}
        words = [sys.executable, "-c", FRESH, str(tmp_path)]
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 201
    loaded = {name.removeprefix("vertexrig.") for name in found["loaded"]}
    assert len(loaded) <= MOST_MODULES, sorted(loaded)
    assert not {name.partition(".")[0] for name in loaded} & {"cli", "local", "studies", "bring"}
    assert not loaded & {
        "trigger.tick",
        "runs.steps",
        "trigger.deploy",
        "trainer_source.reader",
        "package.builder",
        "package.image",
    }
    assert not loaded & {"cloud.models", "cloud.scheduler"}
