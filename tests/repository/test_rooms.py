"""The rooms keep their doors: one ordered list of layers, held against the source itself."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.tools import REPOSITORY
from tools.rooms import House, houses

HOUSES = houses()
HOUSE, LOCAL = HOUSES
TRAINER = sorted((REPOSITORY / "trainer_pkg").rglob("*.py"))
GOOGLE_CLIENTS = ("google.cloud.aiplatform", "google.cloud.storage", "google.cloud.scheduler", "google.auth")


@cache
def imports(file: Path) -> set[str]:
    """Every module that a file imports, at its top or inside a function; `from a import b` counts as a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def offenders(files: list[Path], *forbidden: str) -> dict[str, list[str]]:
    """The files that import one of the forbidden modules or anything below them."""
    found = {}
    for file in files:
        bad = [name for name in imports(file) if any(name == one or name.startswith(one + ".") for one in forbidden)]
        if bad:
            found[str(file.relative_to(REPOSITORY))] = sorted(bad)
    return found


SOURCES = [module.file for house in HOUSES for module in house.modules.values()]


@pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.package)
def test_every_room_has_a_layer(house: House) -> None:
    """A new room cannot be forgotten in the list of layers."""
    rooms = {name.partition(".")[0] for name in house.rooms}
    assert rooms == {room for layer in house.layers for room in layer if room}


@pytest.mark.whole
@pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.package)
def test_imports_run_down(house: House) -> None:
    """No module imports from a layer above its own, in the tool and in the local Vertex."""
    assert house.upward() == []


@pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.package)
def test_imports_have_no_cycles(house: House) -> None:
    """No two modules import each other, not even inside functions."""
    assert house.cycle() == []


@pytest.mark.parametrize("house", HOUSES, ids=lambda house: house.package)
def test_class_names_are_unique(house: House) -> None:
    """No class name stands twice in a package."""
    assert house.repeated_classes() == {}


def test_the_tool_imports_nothing_of_the_local_vertex() -> None:
    """`vertexrig` runs where `localvertex` is missing: its verbs and functions join by entry points."""
    assert offenders([module.file for module in HOUSE.modules.values()], "localvertex") == {}


def test_the_local_vertex_stands_without_the_rooms_that_submit_and_judge() -> None:
    """Only the verbs of the local Vertex import `explain`, `submit` and `studies`; the server needs none of them."""
    above = ("vertexrig.explain", "vertexrig.submit", "vertexrig.studies")
    server = [module.file for name, module in LOCAL.modules.items() if not name.startswith("cli")]
    assert offenders(server, *above) == {}


def test_the_tool_imports_nothing_of_the_repository_around_it() -> None:
    """`vertexrig` imports nothing of `tools`, `tests` and `bench`, which its wheel does not have."""
    assert offenders(SOURCES, "tools", "tests", "bench") == {}


def test_the_tool_and_the_trainer_know_nothing_of_each_other() -> None:
    """`vertexrig` imports neither TensorFlow nor the trainer nor `tools` (a wheel has none), and the trainer nothing of `vertexrig`."""
    assert offenders(SOURCES, "tensorflow", "tf_keras", "keras", "trainer", "tools", "tests") == {}
    assert offenders(TRAINER, "vertexrig") == {}


def test_only_the_cloud_room_talks_to_google() -> None:
    """Google's clients are imported in `cloud/` alone, and its messages by `spec/messages.py`; the front signs tokens of its own."""
    outside = [
        file for file in SOURCES if file.parent.name != "cloud" and file.name not in ("messages.py", "identity.py")
    ]
    assert offenders(outside, *GOOGLE_CLIENTS) == {}
    signing = {"google.auth.jwt", "google.auth.crypt", "google.auth.crypt.RSASigner"}
    used = imports(REPOSITORY / "localvertex/front/identity.py")
    assert {name for name in used if name.startswith("google.auth.")} <= signing
