"""Counts what one `render` and one request to the trigger do: resolves, renders, reads of YAML and files, modules loaded.

`tools/rooms.py` prints the counts, and `tests/repository/test_passes.py` holds them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass
class Passes:
    """How often each was done.

    Args:
        resolves: A job or sweep with everything filled in.
        renders: A template made to text.
        reads: Texts of YAML read.
        files: Reads of the project file.
        modules: Modules of the tool that are loaded at the end.
    """

    resolves: int = 0
    renders: int = 0
    reads: int = 0
    files: int = 0
    modules: int = 0


@contextlib.contextmanager
def counted() -> Iterator[Passes]:
    """Count the calls in this process while the block runs."""
    from vertexrig import files, yamltext
    from vertexrig.render import resolve
    from vertexrig.render.sandbox import Templates

    passes = Passes()

    def counting(owner: Any, name: str, field: str, counts: Callable[..., bool] = lambda *_: True) -> Any:
        function = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            setattr(passes, field, getattr(passes, field) + counts(*args))
            return function(*args, **options)

        return patch.object(owner, name, call)

    with (
        counting(resolve, "resolve", "resolves"),
        counting(Templates, "render", "renders"),
        counting(yamltext, "read", "reads"),
        counting(files, "read_text", "files", lambda file, *_: Path(file).name == "vertexrig.yaml"),
    ):
        yield passes


def loaded() -> int:
    """Return how many modules of the tool this process has loaded."""
    return sum(name.partition(".")[0] in ("vertexrig", "localvertex") for name in sys.modules)


def of_render() -> Passes:
    """Return the counts of `vertexrig render tpu` of this repository, whose trainer was read before."""
    _measured("render")  # where it was not, this reads it and keeps that in build/cache
    return _measured("render")


def of_post() -> Passes:
    """Return the counts of the first request that a trigger answers, which creates a job in services in memory."""
    return _measured("post")


def _measured(what: str) -> Passes:
    """Measure in a process that has loaded nothing yet."""
    words = [sys.executable, "-m", "tools.passes", what]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Passes(**json.loads(done.stdout.splitlines()[-1]))


def _render() -> Passes:
    from vertexrig import cli

    with counted() as passes, contextlib.redirect_stdout(sys.stderr):
        code = cli.run(["render", "tpu", "--output", "-"])
    if code:
        raise RuntimeError(f"render ended with {code}")
    passes.modules = loaded()
    return passes


_PROJECT = """\
project: my-project
bucket: gs://my-bucket
trainer: {image: tf-2.17}
jobs:
  cpu: {machine_type: n1-standard-4, timeout: 3600s, args: {epochs: 2}}
"""


def _post() -> Passes:
    from tests.support.clouds_in_memory import Clock, MemoryStorage, MemoryVertex
    from vertexrig.project import config
    from vertexrig.trigger.app import Call, Trigger

    clock = Clock()
    storage, package = MemoryStorage(clock), b"a package"
    storage.write("packages/t.tar.gz", package)
    row = {"uri": "gs://my-bucket/packages/t.tar.gz", "sha256": hashlib.sha256(package).hexdigest()}
    storage.write("vertexrig/vertexrig/packages/trainer.task-tf-2.17.json", json.dumps(row).encode())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "vertexrig.yaml")
        file.write_text(_PROJECT, encoding="utf-8")
        trigger = Trigger(config.load(file), vertex=MemoryVertex(clock), storage=storage, log=lambda row: None)
    trigger.warm_up()
    with counted() as passes:
        reply = trigger.handle(Call("POST", "/", {}, lambda most: b'{"run": "cpu"}'))
    if reply.status != 201:
        raise RuntimeError(f"the trigger answered {reply.status}: {reply.body}")
    passes.modules = loaded()
    return passes


if __name__ == "__main__":
    print(json.dumps(asdict({"render": _render, "post": _post}[sys.argv[1]]())))
