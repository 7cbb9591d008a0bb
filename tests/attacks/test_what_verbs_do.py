"""The table in docs/security.md of what each verb runs, reads, writes and sends, held against what an audit hook sees."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forks import Forks
from tests.support.tools import REPOSITORY, forked, verb_forks
from tests.vertexrig.cli.test_every_verb import ROWS, Row, Stage, built, stage, words_of

__all__ = ["built", "stage"]  # fixtures

HOOKED = {"PYTHONPATH": f"{Path(__file__).with_name('audit')}:{REPOSITORY}", "PYTHONDONTWRITEBYTECODE": "1"}
MORE = {
    "local run": Row(("--root", "nowhere", "--", sys.executable, "-c", "pass"), set(), (), ""),
    "check *.yaml": Row((), set(), (), "", ends=1),  # git says which files are ignored
}
VERBS = {**{verb: row for verb, row in ROWS.items() if row is not None}, **MORE}
SYSTEM = ("/proc", "/dev", "/sys", "/etc", "/usr", "/lib", "/opt", "/bin", "/root/.local/share/uv")
COLUMNS = ("run", "read", "write", "send")


def documented() -> dict[str, dict[str, set[str]]]:
    """What the table promises: verb to column to what stands there in backticks."""
    text = (REPOSITORY / "docs/security.md").read_text()
    _, _, below = text.partition("| verb | runs | reads | writes | sends to |\n")
    found = {}
    for line in below.splitlines()[1:]:
        if not line.startswith("|"):
            break
        verbs, *cells = [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split(" | ")]
        found.update({verb: dict(zip(COLUMNS, map(set, cells), strict=True)) for verb in verbs})
    return found


def place(path: Path, stage: Stage) -> str:
    """Where a path is, as the table says it; "" for the system's and the tool's own files, and temporary ones."""
    if re.search(r"/lib/python3\.\d+/", str(path)):  # of whichever Python
        return ""
    if path == stage.folder:  # mkdir with what is there already
        return ""
    if path.is_relative_to(stage.folder):
        first, *rest = path.relative_to(stage.folder).parts or (".",)
        if first in ("nowhere", "vertex"):
            return ".vertexrig/"
        if first == "vertexrig" and rest:
            return "~/.cache/"
        return f"{first}/" if first in ("build", ".vertexrig") else "project"
    if path.is_relative_to(stage.folder / ".." / "home"):
        return f"~/{path.parts[len(stage.folder.parts)]}"
    own = (REPOSITORY, sys.prefix, sys.base_prefix, tempfile.gettempdir(), *SYSTEM)
    return "" if any(path.is_relative_to(one) for one in own) else str(path)


def seen(log: Path, stage: Stage) -> dict[str, set[str]]:
    """What an audit log shows, in the table's words."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in log.read_text().splitlines():
        kind, what = json.loads(line)
        if kind == "send":
            found["send"].add("service" if what.startswith("127.0.0.1:") else what)
        elif kind == "run":
            name = Path(what).name
            if name in ("tput", "file"):  # what gcloud asks of the terminal and of its Python
                continue
            found["run"].add("python" if name.startswith("python") else name)
        elif kind == "exec":
            if place(Path(what), stage) not in ("", "~/.cache/"):
                found["run"].add("trainer")
        elif where := place(Path(what), stage):
            # what lies in the project is all its own to read
            found[kind].add("project" if kind == "read" and where in ("build/", ".vertexrig/") else where)
    return found


@pytest.fixture(scope="module")
def audited() -> Iterator[Forks]:
    """The process that each verb is forked from, with the hook; its own imports are of no verb."""
    forks = verb_forks(**HOOKED, AUDIT_LOG=os.devnull)
    yield forks
    forks.close()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.whole
def test_a_verb_does_what_the_table_says(verb: str, stage: Stage, audited: Forks, tmp_path: Path) -> None:
    """Every program that a verb starts, place it reads or writes, and host it calls stands in its row."""
    home = stage.folder.parent / "home"
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    variables = {
        **os.environ,
        **HOOKED,
        "AUDIT_LOG": str(tmp_path / "log"),
        "HOME": str(home),
        "VERTEXRIG_ENGINE": "auto",
    }
    words = words_of(verb, VERBS[verb].good, stage)
    done = forked(audited, "vertexrig", words, variables, stage.folder)
    assert done.returncode == VERBS[verb].ends, done.stderr
    found = seen(tmp_path / "log", stage)
    rows = documented()
    promised = rows.get(verb) or rows[verb.split()[0]]
    assert {column: found[column] - promised[column] for column in COLUMNS} == {column: set() for column in COLUMNS}


def test_every_verb_has_a_row() -> None:
    """The table has each verb of the command line, and no other."""
    assert set(documented()) == set(ROWS)
