"""Templates from elsewhere, rendered in a process of their own with a limit of time and memory.

The operating system keeps the limit: it also ends what Python cannot interrupt, such as one division of numbers with a
million digits. The process stays for the next rendering, with the templates that it has compiled.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vertexrig.errors import TemplateError, VertexrigError
from vertexrig.render.sandbox import RefusedByTemplateError, Templates

SECONDS = 2.0
"""Processor time of one rendering. Our own templates take 0.02 s (2026-11-25, 2 cores)."""
MIB = 200
"""Memory that the process may take in addition to what it has when it starts."""
CHARACTERS = 8_000_000
"""Characters of one rendering's text: this process has to hold them too."""

# -I: neither the working directory nor a variable decides which modules are imported; the path is this process's own.
_START = "import sys; sys.path[:] = sys.argv[4:]; from vertexrig.render import bounded; bounded.serve()"


class BoundedTemplates:
    """Renders like `Templates`, in another process.

    Args:
        folders: As for `Templates`.
        seconds: Processor time that one rendering may take.
    """

    def __init__(self, folders: Sequence[str], seconds: float = SECONDS) -> None:
        self.folders, self.seconds = folders, seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stop: Callable[[], Any] = lambda: None
        self._parent = 0

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return a template's text.

        Raises:
            RefusedByTemplateError: The template refuses the variables.
            TemplateError: The template is wrong, or exceeds the limit.
        """
        return str(self._answer(template, "render", template, variables))

    def names_used(self, template: str) -> set[str]:
        """Return every name that a template and those it includes take from outside."""
        return set(self._answer(template, "names_used", template))

    def compile(self, templates: Sequence[str]) -> None:
        """Compile templates, which the first render would do otherwise."""
        self._answer(", ".join(templates), "compile", templates)

    def _answer(self, template: str, *request: Any) -> Any:
        message = pickle.dumps(request)
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            line = b""
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(message)
                process.stdin.flush()
                line = process.stdout.readline()
            ended = not line.endswith(b"\n")  # before it had written its answer
            if ended:
                self._stop()
        if ended:
            raise TemplateError(
                f"{template}: the rendering was stopped. A template of a project may take {self.seconds:g} s of processor time "
                f"and {MIB} MiB of memory. Look for a loop, macro or include that repeats too often, or for a value that grows"
            )
        answer = json.loads(line)
        if "refused" in answer:
            raise RefusedByTemplateError(answer["refused"])
        if "error" in answer:
            raise TemplateError(answer["error"])
        return answer["value"]

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process, started anew where none is left; one that a fork has inherited answers the parent."""
        if self._process is None or self._process.poll() is not None or self._parent != os.getpid():
            limits = (json.dumps(list(self.folders)), str(self.seconds), str(MIB))
            path = [os.path.abspath(one) for one in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, *limits, *path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._parent = os.getpid()
            self._stop = weakref.finalize(self, _stop, self._process, self._parent)
            if self._process.stdout is None or self._process.stdout.readline() != b"ready\n":
                raise TemplateError(
                    f"the process that renders templates did not start: {sys.executable} ended with {self._process.wait()}"
                )
        return self._process


def _stop(process: subprocess.Popen[bytes], parent: int) -> None:
    """End a process and wait for it, in the process that started it, which a fork of that one is not."""
    if parent == os.getpid():
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.communicate()


def serve() -> None:
    """Answer requests on stdin, one line of JSON each, until it is closed or a request exceeds the limit."""
    import resource

    folders, seconds, mib = sys.argv[1:4]
    templates, limit = Templates(json.loads(folders)), float(seconds)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    assert templates.environment
    answers.write(b"ready\n")
    answers.flush()
    # what Python says when there is no memory left says nothing to the user
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses it
        resource.setrlimit(resource.RLIMIT_AS, (_addresses() + int(mib) * 2**20, -1))
    while True:
        try:
            name, *arguments = pickle.load(requests)
        except EOFError:
            return
        # the default action of SIGPROF ends the process, also in the midst of one long operation
        signal.setitimer(signal.ITIMER_PROF, limit)
        answer = _answered(templates, name, arguments)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(answer)
        answers.flush()


def _addresses() -> int:
    """Return the bytes of addresses that this process has: as Linux tells, elsewhere a generous guess."""
    import resource

    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 512 * 2**20


def _answered(templates: Templates, name: str, arguments: Sequence[Any]) -> bytes:
    answer: dict[str, Any]
    try:
        value = getattr(templates, name)(*arguments)
        if name == "render" and len(value) > CHARACTERS:
            raise TemplateError(f"{arguments[0]}: the template makes more than {CHARACTERS:,} characters")
        answer = {"value": sorted(value) if isinstance(value, set) else value}
    except RefusedByTemplateError as refusal:
        answer = {"refused": str(refusal)}
    except VertexrigError as error:
        answer = {"error": str(error)}
    except MemoryError:
        os._exit(1)
    except Exception as error:  # otherwise a defect would be reported as the limit of time and memory
        answer = {"error": f"{type(error).__name__}: {error}"}
    return json.dumps(answer).encode() + b"\n"
