"""What the demos share: a local Vertex with a project in a temporary folder, commands of this process, and the served function."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, Any

import requests

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from localvertex import server  # noqa: E402
from localvertex.jobs.settings import Settings  # noqa: E402
from localvertex.runner.options import RunOptions  # noqa: E402
from vertexrig import cli  # noqa: E402
from vertexrig.project.local import LocalImage  # noqa: E402
from vertexrig.waiting import set_wait_printer  # noqa: E402


@contextmanager
def stack(
    project: str, programs: Mapping[str, str] | None = None, **settings: Any
) -> Iterator[tuple[Path, server.RunningServer]]:
    """Provide a folder with a project, and the local Vertex with its bucket, which the commands of this process then use.

    Args:
        project: The project file.
        programs: Sources of programs that run in place of images, by the pattern of the image; None runs packages.
        settings: Further settings of the local Vertex.
    """
    with tempfile.TemporaryDirectory(prefix="vertexrig-demo-") as name:
        folder = Path(name)
        (folder / "vertexrig.yaml").write_text(project)
        if programs is not None:
            images = {}
            for number, (pattern, source) in enumerate(programs.items()):
                place = folder / f"program{number}"
                place.mkdir()
                (place / "main.py").write_text(source)
                images[pattern] = LocalImage(str(place), ("python", "main.py"))
            settings["options"] = RunOptions(images=images, engine="none", grace=0.2, warm=False)
        with server.running(Settings(folder / ".vertexrig", **settings)) as here:
            server.make_bucket(here, "demo-bucket")
            os.environ.update({**server.env(here, project="demo-project"), "PYTHONPATH": str(REPOSITORY)})
            os.chdir(folder)
            _print_waits()
            yield folder, here


def _print_waits() -> None:
    set_wait_printer(lambda line: print(line, file=sys.stderr, flush=True))


def vertexrig(*words: str, quiet: bool = False, codes: Collection[int] = (0,)) -> str:
    """Run a command of vertexrig in this process, printed as it would be typed, and return what it prints.

    Args:
        words: The command.
        quiet: Print nothing of it, unless it ends with another code.
        codes: The exit codes that it may end with.
    """
    if not quiet:
        print(f"\n$ vertexrig {shlex.join(words)}", flush=True)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err) if quiet else nullcontext():
        code = cli.run(words)
    _print_waits()  # the command has ended with a printer of its own
    if not quiet:
        print(out.getvalue(), end="", flush=True)
    if code not in codes:
        sys.exit(f"{err.getvalue()}vertexrig {shlex.join(words)} ended with {code}")
    return out.getvalue()


def serve_function(port: int, log: IO[bytes] | None = None, **variables: str) -> subprocess.Popen[bytes]:
    """Start a process that serves the staged function, and wait until it answers.

    Args:
        port: Its port.
        log: Where it writes what it prints.
        variables: Environment variables in addition to those of this process.
    """
    words = [sys.executable, "-m", "vertexrig", "function", "serve", f"--port={port}"]
    process = subprocess.Popen(words, env={**os.environ, **variables}, stdout=log, stderr=log)
    until = time.monotonic() + 90
    while True:
        try:
            requests.get(f"http://127.0.0.1:{port}/", timeout=5)
            return process
        except requests.ConnectionError:
            assert process.poll() is None and time.monotonic() < until, "the function did not start"
            time.sleep(0.1)


@contextmanager
def function(port: int) -> Iterator[None]:
    """Serve the staged function while the block lasts."""
    print(f"\n$ vertexrig function serve --port={port}", flush=True)
    process = serve_function(port)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
