"""Runs tests that others wrote, unchanged, against the local Vertex, and prints what came of them.

    python -m tools.upstream --python-aiplatform CHECKOUT --program python-aiplatform=VENV/bin/python

It fetches and compiles nothing: the user names checkouts, and programs that have what their tests import.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tools.upstream import table
from tools.upstream.runners import PROGRAMS, Place, run_file
from tools.upstream.stage import Stage, staged
from tools.upstream.table import NOT_RUN, PASSED, Result, Row


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments name; 0 if every test that was run passed or is skipped by its authors, else 1."""
    rows = table.rows()
    suites = {row.suite.name: row.suite for row in rows}
    args = _parser(suites).parse_args(argv)
    checkouts = {name: getattr(args, name.replace("-", "_")) for name in suites}
    programs = dict(one.partition("=")[::2] for one in args.program)
    wrong = [f"--program {name}" for name in programs if name not in suites]
    wrong += [f"--{name} {path}: no such folder" for name, path in checkouts.items() if path and not path.is_dir()]
    if wrong:
        print(f"{wrong[0]}; suites: {', '.join(suites)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # the server is stopped then, too
    rows = [row for row in rows if not args.only or any(one in row.shown for one in args.only)]
    work = args.work or Path(tempfile.mkdtemp(prefix="vertexrig-upstream-"))
    try:
        with staged(work, args.image_python) as stage:
            results = [one for group in _files(rows) for one in _results(stage, group, checkouts, programs)]
    finally:
        if args.work is None:
            shutil.rmtree(work, ignore_errors=True)
    versions = {name: _version(path) for name, path in checkouts.items() if path}
    if args.format == "json":
        print(json.dumps(table.as_json(results, versions), indent=2))
    else:
        print(table.text(results, markdown=args.format == "markdown"))
        print("\n" + "\n".join([table.counts(results), *(f"{name} {version}" for name, version in versions.items())]))
    return int(any(one.result == table.FAILED for one in results))


def _parser(suites: dict[str, table.Suite]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.upstream", description=(__doc__ or "").partition("\n")[0])
    for suite in suites.values():
        parser.add_argument(f"--{suite.name}", type=Path, metavar="FOLDER", help=f"a checkout of {suite.repository}")
    parser.add_argument(
        "--program", action="append", default=[], metavar="SUITE=PROGRAM",
        help="the Python (or node, or java) of a suite; by default the running Python, node and java",
    )  # fmt: skip
    parser.add_argument(
        "--image-python",
        default=sys.executable,
        metavar="PROGRAM",
        help="the Python of images that need one of their own",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="TEXT",
        help="only tests with this in their name; may be repeated",
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep state, logs and reports there")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text")
    return parser


def _files(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the tests of each file, which are run together."""
    return [list(group) for _, group in groupby(rows, key=lambda row: (row.suite.name, row.folder, row.file))]


def _results(
    stage: Stage, rows: list[Row], checkouts: dict[str, Path | None], programs: dict[str, str]
) -> list[Result]:
    suite = rows[0].suite
    checkout = checkouts[suite.name]
    if checkout is None:
        return [Result(row, NOT_RUN, f"no checkout is named (--{suite.name})") for row in rows]
    program = programs.get(suite.name) or PROGRAMS.get(suite.runner, sys.executable)
    results = run_file(Place(stage, checkout.resolve(), program), rows)
    for one in results:
        print(f"{one.result}: {one.row.shown}{'' if one.result == PASSED else f': {one.reason}'}", file=sys.stderr)
    return results


def _version(checkout: Path) -> str:
    """Return the commit of a checkout, with its date."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "log", "-1", "--format=%h of %cs"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "without a commit"


if __name__ == "__main__":
    raise SystemExit(main())
