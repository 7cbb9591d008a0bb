"""Runs a published notebook as it is, without Jupyter: `python notebook.py NOTEBOOK [NAME=VALUE]...`.

Code cells run in order in one namespace. NAME=VALUE fills in a parameter, an assignment that ends with `# @param`, as the
notebook asks its reader to. `%%writefile` writes the cell's text byte for byte, and `%run` runs a script. Lines for the shell
(`! gcloud …`) are not run, and are printed with a mark.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PARAMETER = re.compile(r"^(\w+) = .*# @param.*$", re.MULTILINE)
_SHELL = re.compile(r"^(\s*)!(.*)$", re.MULTILINE)
_NAME = re.compile(r"\{(\w+)\}|\$(\w+)")


def cells(notebook: Path) -> list[str]:
    """The text of each code cell."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def filled(text: str, names: Mapping[str, Any]) -> str:
    """A magic's line with `{NAME}` and `$NAME` replaced by the notebook's variables."""
    return _NAME.sub(lambda match: str(names[match[1] or match[2]]), text)


def run_cell(text: str, names: dict[str, Any], given: Mapping[str, str]) -> None:
    """Run one cell.

    Args:
        text: Its source.
        names: The notebook's variables.
        given: Values of its parameters.
    """
    head, _, body = text.partition("\n")
    if head.startswith("%%writefile "):
        Path(filled(head.split(maxsplit=1)[1], names)).write_text(body, encoding="utf-8")
    elif head.startswith("%run "):
        words = shlex.split(filled(head, names))[1:]
        sys.argv, before = words, sys.argv
        names |= {key: value for key, value in runpy.run_path(words[0], run_name="__main__").items() if key[:2] != "__"}
        sys.argv = before
    else:
        for match in _SHELL.finditer(text):
            print(f"not run: !{match[2]}", flush=True)
        text = _PARAMETER.sub(
            lambda match: f"{match[1]} = {given[match[1]]!r}" if match[1] in given else match[0], text
        )
        exec(compile(_SHELL.sub(r"\1pass", text), "<notebook>", "exec"), names)


def main() -> None:
    notebook, *pairs = sys.argv[1:]
    names: dict[str, Any] = {"__name__": "__main__"}
    given = dict(pair.split("=", 1) for pair in pairs)
    for text in cells(Path(notebook)):
        run_cell(text, names, given)


if __name__ == "__main__":
    main()
