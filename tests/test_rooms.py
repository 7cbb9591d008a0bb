"""The rooms keep their doors: one ordered list of layers, held against the source itself."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.tools import REPOSITORY
from tools.rooms import LAYERS, House

HOUSE = House(REPOSITORY / "vertexrig")
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
    return found


def offenders(files: list[Path], *forbidden: str) -> dict[str, list[str]]:
    """The files that import one of the forbidden modules or anything below them."""
    found = {}
    for file in files:
        bad = [name for name in imports(file) if any(name == one or name.startswith(one + ".") for one in forbidden)]
        if bad:
            found[str(file.relative_to(REPOSITORY))] = sorted(bad)
    return found


SOURCES = [module.file for module in HOUSE.modules.values()]


def test_every_room_has_a_layer() -> None:
    """A new room cannot be forgotten in the list of layers."""
    assert {name.partition(".")[0] for name in HOUSE.rooms} == {
        room for layer in LAYERS for room in layer if room and "." not in room
    }


def test_imports_run_down() -> None:
    """No module imports from a layer above its own, in the tool and inside the local Vertex."""
    assert HOUSE.upward() == []
    assert HOUSE.upward_in_local() == []


def test_imports_have_no_cycles() -> None:
    """No two modules import each other, not even inside functions."""
    assert HOUSE.cycle() == []


def test_the_house_stays_small() -> None:
    """Few modules beside the rooms, few rooms, short chains of imports, no class name twice."""
    assert len(HOUSE.flat) <= 8
    assert len(HOUSE.rooms) <= 20
    assert len(HOUSE.chain()) <= 10, " -> ".join(HOUSE.chain())
    assert HOUSE.repeated_classes() == {}


def test_modules_stay_small() -> None:
    """No module grows over 500 lines, nor does one of tests."""
    tests = {
        str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in (REPOSITORY / "tests").rglob("*.py")
    }
    lines = {name: module.lines for name, module in HOUSE.modules.items()} | tests
    assert {name: count for name, count in lines.items() if count > 500} == {}


def test_only_the_command_line_uses_the_local_vertex() -> None:
    """The trigger and everything below it run without the local Vertex's libraries."""
    assert [
        name
        for name, others in HOUSE.graph.items()
        if not name.startswith(("local", "cli")) and any(o.startswith("local") for o in others)
    ] == []


def test_the_tool_and_the_trainer_know_nothing_of_each_other() -> None:
    """`vertexrig` imports neither TensorFlow nor the trainer, and the trainer nothing of `vertexrig`."""
    assert offenders(SOURCES, "tensorflow", "tf_keras", "keras", "trainer") == {}
    assert offenders(TRAINER, "vertexrig") == {}


def test_only_the_cloud_room_talks_to_google() -> None:
    """Google's clients are imported in `cloud/` alone, and its messages by `spec/messages.py`."""
    outside = [file for file in SOURCES if file.parent.name != "cloud" and file.name != "messages.py"]
    assert offenders(outside, *GOOGLE_CLIENTS) == {}


def test_print_only_in_the_cli() -> None:
    """Only the command line prints; everything else returns values or raises."""
    bad = []
    for file in SOURCES:
        if file.parent.name == "cli":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        if any(call.func.id == "print" for call in calls if isinstance(call.func, ast.Name)):
            bad.append(str(file.relative_to(REPOSITORY)))
    assert bad == []
