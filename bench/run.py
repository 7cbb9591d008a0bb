"""Every benchmark, one after the other: `make bench`, or `python bench/run.py render` for some of them by name.

Each script prints a heading and rows, columns set apart by `|`; here they become one aligned table.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"run", "common"}


def main() -> None:
    every = sorted(
        file.stem
        for file in HERE.glob("*.py")
        if file.stem not in NOT_BENCHMARKS and not file.stem.startswith(("_", "demo_"))
    )
    wanted = [name for name in every if not sys.argv[1:] or any(name.startswith(word) for word in sys.argv[1:])]
    if not wanted:
        sys.exit(f"there is no benchmark {' '.join(sys.argv[1:])!r}. Choices: {', '.join(every)}")
    failed = []
    for place, name in enumerate(wanted, 1):
        print(f"[{place}/{len(wanted)}] {name} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, str(HERE / f"{name}.py")], cwd=HERE.parent, stdout=subprocess.PIPE, text=True
        )
        if done.returncode != 0:
            failed.append(name)
        table = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines() if "|" in line]
        columns = max((len(line) for line in table), default=0)
        table = [line + [""] * (columns - len(line)) for line in table]
        widths = [max(len(line[i]) for line in table) for i in range(columns)]
        for index, line in enumerate(table):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), flush=True)
            if index == 0:
                print("  ".join("-" * width for width in widths))
        print(flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
