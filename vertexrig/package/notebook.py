"""Scripts that were exported from a notebook: lines that only run in one."""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterable
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.folders import read_bytes
from vertexrig.trainer_source.defects import notebook_lines
from vertexrig.trainer_source.source_tree import parse_module

_INSTALLS = re.compile(r"pip3? install\s+(?P<what>[^'\"]+)")


def refuse_cells(files: Iterable[tuple[str, Path]], made: Container[str]) -> None:
    """Refuse a trainer that calls get_ipython() without a test whether it exists: `jupyter nbconvert` writes `!command` and `%magic` so.

    `made` are the paths of files that staging itself writes. The PackageError names the lines, and what belongs into requirements.txt.
    """
    for relative, path in files:
        data = read_bytes(path, relative) if relative.endswith(".py") and relative not in made else b""
        if b"get_ipython()" not in data:
            continue
        tree = parse_module(data, relative)
        found = notebook_lines(tree) if isinstance(tree, ast.Module) else []  # else said elsewhere
        if found:
            lines = ", ".join(str(node.lineno) for node in found)
            installed = [match["what"].split() for node in found if (match := _INSTALLS.search(ast.unparse(node)))]
            # options of pip, such as -q, are no requirements
            wanted = [word for words in installed for word in words if not word.startswith("-")]
            install = f"; write {' and '.join(wanted)} into requirements.txt" if wanted else ""
            raise PackageError(
                f"{relative}:{lines}: get_ipython() exists only in a notebook, and the trainer would stop there. "
                f"Delete the {'lines' if len(found) > 1 else 'line'}{install}"
            )
