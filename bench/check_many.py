"""Checking many files at once: 5,000 jobs with and without mistakes, in 50 folders, whole reports.

`python bench/check_many.py [RUNS]` prints one row a line: what | ours | peer | ratio | bar | ok.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

from common import REPOSITORY, in_turn, row

sys.path.insert(0, str(REPOSITORY))

from tests.vertexrig.checks.job_bases import edited
from tests.vertexrig.checks.test_rules import ALL

FILES = 5_000


def write(folder: Path, count: int) -> None:
    """The jobs of the rules' tests, each mistake beside what is right."""
    texts = [edited(case.base, edits) for case, _ in ALL for edits in (case.bad, case.good)]
    for number, text in enumerate(islice(cycle(texts), count)):
        file = folder / f"{number % 50:02}" / f"job-{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# job {number}\n{text}", encoding="utf-8")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "many", FILES)
        write(folder / "few", FILES // 5)
        # the mistakes make it end with 1
        check = f"{sys.executable} -m vertexrig check --info --jobs 2"
        commands = {size: ["sh", "-c", f"{check} {size} > {size}.txt 2>&1 || test $? = 1"] for size in ("many", "few")}
        taken = in_turn(commands, {**os.environ, "PYTHONPATH": str(REPOSITORY)}, folder, runs)
    many, few = taken["many"], taken["few"]
    print("checking many files | ours | | ratio | bar | ok")
    print(
        row(
            f"{FILES:,} files, two processes, whole reports",
            f"{many.median:.1f} s",
            "",
            None,
            "<= 8 s",
            many.median <= 8,
        )
    )
    grown = many.peak_mib / few.peak_mib
    print(
        row(
            f"peak memory, against {FILES // 5:,} files",
            f"{many.peak_mib:.0f} MiB",
            f"{few.peak_mib:.0f} MiB",
            grown,
            "<= 1.2",
            grown <= 1.2,
        )
    )


if __name__ == "__main__":
    main()
