"""Measures the structure of the tool's code: rooms, layers, import depth, cycles, repeated class names, lines.

`python tools/rooms.py` prints them; `tests/repository/test_rooms.py` holds the rules.
"""

from __future__ import annotations

import argparse
import ast
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

# `python tools/rooms.py` has tools/ on its path, and tests have the folder above it
sys.path.append(str(Path(__file__).resolve().parents[1]))

from tools import passes as passes_of

# From the lowest to the highest: a module imports from its own layer or from one below.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("",),  # the modules beside the rooms, and the package's own __init__
    ("schema",),
    ("catalog",),
    ("spec",),
    ("cloud",),
    ("results",),
    ("project",),
    ("trainer_source",),
    ("package",),
    ("render",),
    ("checks",),
    ("workspace",),
    ("explain",),
    ("submit",),
    ("bring",),
    ("studies",),
    ("library",),
    ("runs",),
    ("trigger",),
    ("cli",),
)
# The same of the local Vertex.
LOCAL_LAYERS: tuple[tuple[str, ...], ...] = (
    ("",),
    ("storage", "runner"),
    ("jobs",),
    ("services",),
    ("front",),
    ("server",),
    ("rehearsal",),
    ("testing",),
    ("cli",),
)
REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Module:
    """One module of the tool.

    Args:
        name: Its dotted name without `vertexrig.`; "" for the package itself.
        file: Where it is.
        is_room: Whether it is the `__init__` of a folder.
    """

    name: str
    file: Path
    is_room: bool

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.file.read_text(encoding="utf-8"))

    @property
    def lines(self) -> int:
        return len(self.file.read_text(encoding="utf-8").splitlines())

    @property
    def room(self) -> str:
        """The first part of the name if it is in a folder, else ""."""
        return self.name.partition(".")[0] if "." in self.name or self.is_room else ""


class House:
    """The modules of a package and what each imports.

    Args:
        folder: The package's folder.
        layers: Its rooms, from the lowest to the highest.
    """

    def __init__(self, folder: Path, layers: tuple[tuple[str, ...], ...] = LAYERS) -> None:
        self.package, self.layers = folder.name, layers
        self.modules = {module.name: module for module in _modules(folder)}

    def imported(self, module: Module) -> set[str]:
        """Return names of the package's own modules that `module` imports, at its top or inside a function."""
        found: set[str] = set()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                found |= {name for alias in node.names if (name := self._own(alias.name)) is not None}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                below = {self._own(f"{node.module}.{alias.name}") for alias in node.names}
                inner = {name for name in below if name is not None}
                own = self._own(node.module)
                found |= inner or ({own} if own is not None else set())
        return found - {module.name}

    def _own(self, dotted: str) -> str | None:
        first, _, rest = dotted.partition(".")
        return rest if first == self.package and rest in self.modules else None

    @cached_property
    def graph(self) -> dict[str, set[str]]:
        """Every module with all it imports."""
        return {name: self.imported(module) for name, module in self.modules.items()}

    @property
    def rooms(self) -> list[str]:
        """Folders that hold modules."""
        return sorted(module.name for module in self.modules.values() if module.is_room and module.name)

    @property
    def flat(self) -> list[str]:
        """Modules beside the rooms."""
        return sorted(module.file.name for module in self.modules.values() if not module.room)

    def upward(self) -> list[str]:
        """Return imports that run up the list of layers."""
        height = {room: level for level, rooms in enumerate(self.layers) for room in rooms}

        return [
            f"{self.package}.{name} imports {other}"
            for name, others in sorted(self.graph.items())
            for other in sorted(others)
            if name != "__main__" and height[self.modules[other].room] > height[self.modules[name].room]
        ]

    def cycle(self) -> list[str]:
        """Modules of which each imports the next, whether at the top or inside a function, and the last the first."""
        try:
            TopologicalSorter(self.graph).prepare()
        except CycleError as error:
            return [str(name) for name in error.args[1]]
        return []

    def chain(self) -> list[str]:
        """Return one of the longest chains of imports, from its top. There is none while modules import each other.

        Raises:
            CycleError: See `cycle`.
        """
        longest: dict[str, list[str]] = {}
        for name in TopologicalSorter(self.graph).static_order():  # each after those that it imports
            longest[name] = [name, *max((longest[other] for other in self.graph[name]), key=len, default=[])]
        return max(longest.values(), key=len, default=[])

    def repeated_classes(self) -> dict[str, list[str]]:
        """Class names that are defined in more than one module."""
        places: dict[str, list[str]] = defaultdict(list)
        for name, module in sorted(self.modules.items()):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(name)
        return {name: where for name, where in sorted(places.items()) if len(where) > 1}

    def lines(self) -> Mapping[str, int]:
        """Return lines by room."""
        counted: Counter[str] = Counter()
        for module in self.modules.values():
            counted[module.room] += module.lines
        return counted


def _modules(folder: Path) -> Iterable[Module]:
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        is_room = parts[-1] == "__init__"
        yield Module(".".join(parts[:-1] if is_room else parts), file, is_room)


def report(house: House) -> str:
    """Return the numbers as text."""
    lines = house.lines()
    repeated = house.repeated_classes()
    imports = sum(map(len, house.graph.values()))
    cycle = house.cycle()
    rows = [
        f"modules                {len(house.modules)}, with {imports} imports of each other",
        f"rooms                  {len(house.rooms)}",
        f"modules beside rooms   {len(house.flat)}",
        f"import depth           {'none: there is a cycle' if cycle else len(house.chain())}",
        f"cycles                 {'at least one' if cycle else 0}",
        f"upward imports         {len(house.upward())}",
        f"repeated class names   {len(repeated)}" + (f" ({', '.join(repeated)})" if repeated else ""),
        f"lines                  {sum(lines.values()):,}",
        *(
            f"  {room or 'beside the rooms':<20} {lines[room]:>6,}"
            for layer in house.layers
            for room in layer
            if "." not in room
        ),
    ]
    return "\n".join(rows)


def houses() -> tuple[House, House]:
    """Return the tool and the local Vertex."""
    return House(REPOSITORY / "vertexrig"), House(REPOSITORY / "localvertex", LOCAL_LAYERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--details", action="store_true", help="also name each offender and the longest chain")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` closes the pipe before everything is printed
    for house in houses():
        print(f"{house.package}\n{report(house)}\n")
    for what, passes in (("render tpu", passes_of.of_render()), ("a POST", passes_of.of_post())):
        print(f"{what:<22} " + ", ".join(f"{number} {name}" for name, number in asdict(passes).items()))
    for house in houses() if options.details else ():
        for title, found in {
            "upward": house.upward(),
            "a cycle": [" -> ".join(house.cycle())] if house.cycle() else [],
            "longest chain": [] if house.cycle() else [" -> ".join(house.chain())],
            "repeated": [f"{name}: {', '.join(where)}" for name, where in house.repeated_classes().items()],
        }.items():
            print(f"\n{house.package}, {title}:", *found, sep="\n  ")


if __name__ == "__main__":
    main()
