"""The rooms keep their doors: who may import whom, held against the source itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.tools import REPOSITORY

SOURCES = sorted((REPOSITORY / "vertexrig").rglob("*.py"))
TRAINER = sorted((REPOSITORY / "trainer_pkg").rglob("*.py"))
GOOGLE_CLIENTS = ("google.cloud.aiplatform", "google.cloud.storage", "google.cloud.scheduler", "google.auth")


def imports(file: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function; `from a import b` counts as a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("." * node.level)
    return found


def offenders(files: list[Path], *forbidden: str) -> dict[str, list[str]]:
    """The files that import one of the forbidden modules or anything below them."""
    found = {}
    for file in files:
        bad = [name for name in imports(file) if any(name == one or name.startswith(one + ".") for one in forbidden)]
        if bad:
            found[str(file.relative_to(REPOSITORY))] = sorted(bad)
    return found


def room(name: str) -> list[Path]:
    folder = REPOSITORY / "vertexrig" / name
    return [file for file in SOURCES if folder in file.parents or file == folder.with_suffix(".py")]


def outside(*names: str) -> list[Path]:
    inside = {file for name in names for file in room(name)}
    return [file for file in SOURCES if file not in inside]


@pytest.mark.parametrize(
    ("files", "forbidden"),
    [
        (room("catalog"), ("vertexrig.checks", "vertexrig.render.renderer", "vertexrig.cli", "vertexrig.local", "vertexrig.project.config")),
        (room("checks"), ("vertexrig.render.renderer", "vertexrig.project.resolve", "vertexrig.cli", "vertexrig.local", "jinja2")),
        (room("local"), ("vertexrig.cli",)),
        (room("spec"), ("vertexrig.checks", "vertexrig.catalog", "vertexrig.render.renderer", "vertexrig.project.config")),
        (room("config"), ("vertexrig.render.renderer", "vertexrig.checks", "vertexrig.spec.document", "vertexrig.cli")),
        (room("render"), ("vertexrig.checks", "vertexrig.cli", "vertexrig.local")),
        (room("cluster"), ("vertexrig.local", "vertexrig.cli", "vertexrig.checks")),
        ([file for file in SOURCES if file not in room("cli") and file.name != "__main__.py"], ("vertexrig.cli",)),
        (outside("trigger", "cli", "doctor"), ("vertexrig.trigger",)),
        (SOURCES, ("tensorflow", "tf_keras", "keras", "trainer")),
        (TRAINER, ("vertexrig",)),
    ],
    ids=["catalog", "checks", "local", "spec", "config", "render", "cluster", "cli is on top", "trigger is above submit", "no tensorflow", "trainer"],
)  # fmt: skip
def test_a_room_keeps_its_door(files: list[Path], forbidden: tuple[str, ...]) -> None:
    """No module of a room imports what the design keeps out of it."""
    assert files
    assert offenders(files, *forbidden) == {}


def test_only_one_module_per_google_service() -> None:
    """Google's clients are imported by vertex.py, storage.py and scheduler.py alone, their sign-in by rest.py below
    the first two, and the messages by messages.py."""
    names = ("vertex", "storage", "scheduler", "rest", "messages")
    allowed = {f"vertexrig/{name}.py" for name in names}
    assert {file for file in offenders(SOURCES, *GOOGLE_CLIENTS) if file not in allowed} == set()


def test_imports_have_no_cycles() -> None:
    """Modules import one way: at import time no module waits for itself."""
    names = {
        ".".join(file.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): file for file in SOURCES
    }

    def at_top(file: Path) -> set[str]:
        found = set()
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                below = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= below & names.keys() or {node.module}
        return found & names.keys()

    graph = {name: at_top(file) - {name} for name, file in names.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(REPOSITORY)))
def test_modules_stay_small(file: Path) -> None:
    """No module of the tool grows over 500 lines."""
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 500


def test_print_only_in_the_cli() -> None:
    """Only the command line prints; everything else returns values or raises."""
    bad = []
    for file in SOURCES:
        if file in room("cli"):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        if any(call.func.id == "print" for call in calls if isinstance(call.func, ast.Name)):
            bad.append(str(file.relative_to(REPOSITORY)))
    assert bad == []
