"""A page's commands in one shell, in a copy of the checkout under a fresh home folder, as a reader would type them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.functions import free_port
from tests.support.pages import Block, Command, blocks, commands, starts_empty
from tests.support.small_trainer import replace_trainer
from tests.support.tools import REPOSITORY

TIMEOUT_S = 240
"""Longest time for one command of a page, on a machine that is busy with other tests; a guard against what hangs."""
BIN = Path(sys.prefix) / "bin"
PORTS = {"8642": "local up", "8080": "function serve"}
"""The default ports that pages name, and the verbs that take them. Pages run side by side, so each gets free ports in their place."""
_MARK = "VERTEXRIG_TEST_PAGE"
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "CI", "OMP_NUM_THREADS")
_KEPT_BEGINNINGS = ("PIP_", "UV_", "SSL_", "CURL_", "REQUESTS_", "HTTP_", "HTTPS_", "NO_PROXY", "http", "no_proxy")


@dataclass(frozen=True)
class Ran:
    """What a command of a page did: exit code (None: it did not end in time) and the lines it printed."""

    command: Command
    block: Block
    code: int | None
    output: tuple[str, ...]

    @property
    def as_expected(self) -> bool:
        return self.code == self.command.exits


class Place:
    """Where a page runs: `HOME/project`, a copy of the checkout, shown on pages as /home/me/project.

    Args:
        root: An empty folder.
        page: The page; one of an example runs in the example's folder.
        empty: Whether the project is an empty folder instead.
        small: Whether a trainer that ends at once stands for the repository's.
    """

    def __init__(self, root: Path, page: Path, *, empty: bool = False, small: bool = False) -> None:
        self.root = root
        self.home = root / "me"
        self.project = self.home / "project"
        self.name = page.relative_to(REPOSITORY).as_posix()
        if empty:
            self.project.mkdir(parents=True)
        else:
            copy_checkout(self.project)
            if small:
                replace_trainer(self.project)
            # a clone: what the examples read beside their folder is inside its work tree
            subprocess.run(["git", "init", "--quiet", str(self.project)], check=True)
        inside = page.relative_to(REPOSITORY).parent
        self.folder = self.project / (inside if inside.parts[:1] == ("examples",) else "")
        self.ports = {port: free_port() for port in PORTS}

    def environment(self) -> dict[str, str]:
        """Little of the caller's environment: no cloud project, no credentials, no vertexrig setting."""
        kept = {
            key: value for key, value in os.environ.items() if key in _KEPT or key.startswith(_KEPT_BEGINNINGS)
        }  # fmt: skip
        own = {
            "HOME": str(self.home), "PATH": f"{BIN}{os.pathsep}{kept['PATH']}", "COLUMNS": "80", "TERM": "dumb",
            "TZ": "UTC", "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", _MARK: str(self.root), "VERTEXRIG_ENGINE": "none",
        }  # fmt: skip
        return {"LANG": "C.UTF-8", **kept, **own}

    def typed(self, text: str) -> str:
        """A page's command with this place's ports."""
        for port, free in self.ports.items():
            text = text.replace(f":{port}", f":{free}").replace(f"--port {port}", f"--port {free}")
        return text

    def shown(self, output: str) -> list[str]:
        """Output as a page shows it: without the names of this machine's folders, with the default ports."""
        for path, name in (
            (str(self.home), "/home/me"), (str(self.home.resolve()), "/home/me"),
            (str(BIN.parent), "/home/me/project/.venv"), (str(REPOSITORY), "/home/me/project"),
        ):  # fmt: skip
            output = output.replace(path, name)
        for port, free in self.ports.items():
            output = output.replace(f":{free}", f":{port}")
        lines = (line.rsplit("\r", 1)[-1].rstrip() for line in output.replace("\r\n", "\n").splitlines())
        # how long a command takes is this machine's
        return [line for line in lines if not line.startswith("waiting for ")]

    def prelude(self) -> str:
        """Gives the two verbs that listen this place's ports, unless the page names one."""
        cases = "\n".join(
            f'    "{verb}") case " $* " in *" --port"*) command vertexrig "$@";; *) command vertexrig "$@" --port {self.ports[port]};; esac;;'
            for port, verb in PORTS.items()
        )
        return f'vertexrig() {{\n  case "$1 $2" in\n{cases}\n    *) command vertexrig "$@";;\n  esac\n}}\n'


def copy_checkout(target: Path) -> None:
    """A copy of what git would commit here: tracked files and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, check=True, timeout=60,
    ).stdout.decode()  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (REPOSITORY / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, target / name)


def run(page: Path, text: str, root: Path, *, small: bool = False) -> Iterator[Ran]:
    """Runs the commands of a page's text in order and yields each; after one that does not end as the page says, nothing more."""
    place = Place(root, page, empty=starts_empty(text), small=small)
    with shell(place) as typed:
        for block in blocks(text, place.name):
            if "file" in block.notes:
                file = place.folder / block.notes["file"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("\n".join(block.body) + "\n", encoding="utf-8")
            for command in runnable(block, place.name):
                code, output = typed(command.text)
                ran = Ran(command, block, code, tuple(output))
                yield ran
                if not ran.as_expected:
                    return


def runnable(block: Block, name: str) -> Sequence[Command]:
    """The commands of a block that are run here."""
    if block.language not in ("console", "sh", "bash") or block.reason:
        return ()
    return commands(block, name)


class _Shell:
    """A bash that lives as long as the page, so that what one command sets the next one finds."""

    def __init__(self, place: Place, process: subprocess.Popen[bytes], codes: int) -> None:
        self.place, self.process, self.codes = place, process, codes
        self.count = 0

    def __call__(self, text: str) -> tuple[int | None, list[str]]:
        """Runs a command; returns its exit code (None: it did not end in time, or it ended the shell) and its output."""
        self.count += 1
        script, output = self.place.root / f"{self.count}.sh", self.place.root / f"{self.count}.out"
        script.write_text(self.place.typed(text) + "\n")
        assert self.process.stdin is not None
        self.process.stdin.write(f". {script} </dev/null >{output} 2>&1 3>&-; echo $? >&3\n".encode())
        self.process.stdin.flush()
        ready, _, _ = select.select([self.codes], [], [], TIMEOUT_S)
        code = os.read(self.codes, 64).decode().strip() if ready else ""
        printed = output.read_text(errors="replace") if output.exists() else ""
        return (int(code) if code else None), self.place.shown(printed)


@contextmanager
def shell(place: Place) -> Iterator[_Shell]:
    """A shell in the place; at its end every process that began in it is ended, servers in the background too."""
    reading, writing = os.pipe()
    words = ["bash", "--noprofile", "--norc", "-s"]
    process = subprocess.Popen(
        words, cwd=place.folder, env=place.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, pass_fds=(writing,), start_new_session=True,
    )  # fmt: skip
    os.close(writing)
    try:
        assert process.stdin is not None
        process.stdin.write(f"exec 3>&{writing}; exec {writing}>&-\n{place.prelude()}".encode())
        process.stdin.flush()
        yield _Shell(place, process, reading)
    finally:
        os.close(reading)
        end_all({_MARK: str(place.root)})
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def end_all(marks: Mapping[str, str]) -> None:
    """Ends every process whose environment has these values: first asks, then kills."""
    found = [process for process in psutil.process_iter() if _marked(process, marks)]
    for process in found:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(found, timeout=5)
    for process in [*alive, *(process for process in psutil.process_iter() if _marked(process, marks))]:
        _signal(process, signal.SIGKILL)


def _marked(process: psutil.Process, marks: Mapping[str, str]) -> bool:
    try:
        environment = process.environ()
    except (psutil.Error, OSError):
        return False
    return all(environment.get(key) == value for key, value in marks.items())


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.Error:
        pass  # it has ended meanwhile
