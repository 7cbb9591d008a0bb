"""Whether a change can affect the local Vertex: `python tools/affected.py REV` prints pytest's option that leaves its tests out, or nothing.

`make test SINCE=REV` runs it. Affected is what `localvertex` and its tests import, their data, and what builds the
environment; a revision that git does not know affects everything.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from tools.rooms import REPOSITORY, houses

TESTS = "tests/localvertex"
FOLDERS = ("localvertex", TESTS, "tests/support", "tests/trainers", "tests/golden", "trainer_pkg", "templates")
FILES = ("setup.py", "constraints.txt", "pyproject.toml", "Makefile", "tests/conftest.py")


@cache
def imported() -> frozenset[str]:
    """Return the files of `vertexrig` that `localvertex` imports, and all that those import."""
    tool, local = houses()
    outside = {name for module in local.modules.values() for name in tool.imported(module)}
    found: set[str] = set()
    while outside:
        name = outside.pop()
        found.add(name)
        outside |= tool.graph[name] - found
    return frozenset(str(tool.modules[name].file.relative_to(REPOSITORY)) for name in found)


def affects(changed: list[str]) -> bool:
    """Whether one of these files, named from the repository's root, affects the local Vertex.

    Data beside modules counts for every module of its folder: catalog tables, descriptors, pages.
    """
    used = imported()
    folders = {str(Path(file).parent) for file in used} - {"vertexrig"}
    return any(
        file in FILES
        or file in used
        or any(Path(file).is_relative_to(folder) for folder in FOLDERS)
        or (not file.endswith(".py") and any(Path(file).is_relative_to(folder) for folder in folders))
        for file in changed
    )


def main() -> None:
    done = subprocess.run(
        ["git", "diff", "--name-only", sys.argv[1], "--"], cwd=REPOSITORY, capture_output=True, text=True
    )
    if done.returncode == 0 and not affects(done.stdout.splitlines()):
        print(f"--ignore={TESTS}")


if __name__ == "__main__":
    main()
