"""Runs a notebook whole, cell by cell, its magics and shell lines with it: `python cells.py NOTEBOOK`.

A cell that raises ends it with code 1, as `jupyter execute` does; a shell line that fails does not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace


def main() -> None:
    """See the module."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Application

    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]
    cells = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
    sys.argv = sys.argv[1:]
    sys.path.insert(0, "")
    Application.instance().kernel = SimpleNamespace(
        do_shutdown=print
    )  # what a notebook restarts, with nothing to lose yet
    shell = InteractiveShell.instance()
    shell.enable_gui = lambda gui=None: None  # `%matplotlib inline` needs none
    shell.run_line_magic("colors", "NoColor")
    for number, text in enumerate(cells, 1):
        print(f"[cell {number} of {len(cells)}]", flush=True)
        if not shell.run_cell(text, store_history=True).success:
            sys.exit(f"cell {number} of {len(cells)} raised")


if __name__ == "__main__":
    main()
