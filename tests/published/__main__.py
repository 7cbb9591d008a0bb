"""Runs the published code of the walk-throughs S1 to S5 through `vertexrig local run`, and prints a table.

    python -m tests.published CHECKOUTS [--only S2] [--all-trials] [--work FOLDER]
    python -m tests.published SNAPSHOTS --all [--engine docker] [--only NAME] [--accept] [--work FOLDER]

CHECKOUTS is a folder with checkouts of GoogleCloudPlatform/practical-ml-vision-book, ageron/handson-ml3,
GoogleCloudPlatform/training-data-analyst, GoogleCloudPlatform/vertex-ai-samples and magn3141/adv-mlops under the names of
the repositories; those that are missing are left out, and said so. Nothing is fetched but what jobs themselves install.

No line of their code is changed: a few texts are replaced (`changes` in rows.py) that name the project, the bucket and
hardware past its support, and those under `fewer` unless --all-trials is given. Data sets are generated (data.py). Shell
lines of notebooks (`docker build`, `pip install`) are left out; images are the folders that they would be built from.

With --all, the programs of programs.yaml run instead, whole, from SNAPSHOTS: git directories `owner+name/repo`. One that is
not there is skipped with the line that brings it. With --engine docker, those that have a Dockerfile build their own images, with
the docker command line over a podman that this script starts. --accept keeps what came of them, and writes docs/published.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from localvertex import state
from localvertex.front import control
from tests.published import data, programs
from tests.published.rows import BUCKET, ENDS, PROJECT, ROWS, Row

TIMEOUT_S = 3600
MISSING = "no checkout"


@dataclass(frozen=True)
class Outcome:
    """What came of a row: its expected outcome, ENDS, or what went wrong, with the last words of its output."""

    row: Row
    came: str
    seconds: float = 0.0
    words: str = ""

    @property
    def good(self) -> bool:
        return self.came in (self.row.outcome, MISSING)


def changed(text: str, row: Row, every: bool) -> str:
    """Published text with the row's changes."""
    for old, new in {**row.mends, **row.changes, **({} if every else row.fewer)}.items():
        text = text.replace(old, new)
    return text


def take(row: Row, checkouts: Path, folder: Path, every: bool) -> None:
    """Put the row's published code into a folder, with its changes."""
    source = checkouts / row.checkout / row.source
    shutil.rmtree(folder, ignore_errors=True)
    if source.is_dir():
        shutil.copytree(source, folder)
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".sh", ".yaml"):
                path.write_text(changed(path.read_text(), row, every))
        return
    folder.mkdir(parents=True)
    sources = [
        "".join(cell["source"]) for cell in json.loads(source.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    for text in sources:
        if text.startswith("%%writefile "):
            head, _, body = text.partition("\n")
            path = folder / head.split()[1]
            path.parent.mkdir(exist_ok=True)
            path.write_text(changed(body, row, every))
    absent = [text for text in row.cells if not any(text in cell for cell in sources)]
    if absent:
        raise SystemExit(f"{source} has no cell with {absent[0]!r}: it is another version of the notebook")
    cells = [text for text in sources if any(part in text for part in row.cells) and not text.startswith("%")]
    (folder / "program.py").write_text("\n\n".join([row.before, *(changed(text, row, every) for text in cells)]))


class Bench:
    """One server for all rows, and the variables of the user who starts them.

    Args:
        work: Folder of everything that is written.
        checkouts: Folder of the checkouts.
        every: Run as many trials as published.
    """

    def __init__(self, work: Path, checkouts: Path, every: bool) -> None:
        self.work, self.checkouts, self.every = work, checkouts, every
        self.root, self.home = work / ".vertexrig", work / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.image = work / "image/bin/python"
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "PIP_INDEX_URL") if name in os.environ}
        path = os.pathsep.join([str(self.image.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.env = {
            **kept, "PATH": path, "HOME": str(self.home), "TFDS_DATA_DIR": "gs://tfds-data/datasets",
            "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def vertexrig(self, *words: str, cwd: Path, check: bool = False, minutes: float = 1) -> tuple[int, str]:
        """A command of vertexrig; its exit code and its output."""
        argv = [sys.executable, "-m", "vertexrig", *words]
        with (cwd / "output.txt").open("a+") as out:
            begin = out.tell()
            done = subprocess.run(
                argv, cwd=cwd, env=self.env, stdout=out, stderr=out, timeout=minutes * 60, check=check
            )
            out.seek(begin)
            return done.returncode, out.read()

    def run(self, row: Row) -> Outcome:
        """Run a row to its end."""
        if not (self.checkouts / row.checkout / row.source).exists():
            return Outcome(row, MISSING)
        data.make_image(self.image.parent.parent)
        folder = self.work / row.key
        take(row, self.checkouts, folder, self.every)
        for name in row.data:
            data.make(name, self.root / "gs", self.work / "hub")
        images = {pattern: {"path": ".", "command": command.split()} for pattern, command in row.images.items()}
        if row.python:
            data.make_prebuilt(row.python, self.work, self.home)
        local = {"images": images, "interpreters": {"*": row.python or str(self.image)}}
        project = {"project": PROJECT, "region": "us-central1", "bucket": f"gs://{BUCKET}", "local": local}
        (folder / "vertexrig.yaml").write_text(json.dumps(project))
        control.down(self.root)
        for name in row.makes:
            shutil.rmtree(self.root / "gs" / name, ignore_errors=True)
        self.vertexrig("local", "up", "--detach", "--root", str(self.root), "--gs-paths=kept", cwd=folder, check=True)
        try:
            return self._judged(row, folder)
        finally:
            control.down(self.root)

    def _logs(self, made: dict[str, Any]) -> list[Path]:
        """The logs of a job, where it is one with replicas."""
        return sorted((self.root / "jobs" / made["name"].rpartition("/")[2] / "logs").glob("*.log"))

    def _judged(self, row: Row, folder: Path) -> Outcome:
        here = state.find(self.root)
        assert here is not None
        prefix = ("local", "run", "--root", str(self.root), "--")
        for name in row.buckets:
            control.make_bucket(here, name)
        if row.package:
            self.vertexrig(*prefix, "sh", "-c", "python setup.py -q sdist", cwd=folder, check=True)
            copy = ("gcloud", "storage", "cp", f"dist/{row.package}.tar.gz", f"gs://{BUCKET}/")
            self.vertexrig(*prefix, *copy, cwd=folder, check=True)
        begun = time.monotonic()
        last = control.call(here, "GET", "/v1/made")["last"]
        code, output = self.vertexrig(*prefix, *shlex.split(row.command), cwd=folder, minutes=TIMEOUT_S / 60)
        made: list[dict[str, Any]] = [{"ended": False}]
        while not all(one["ended"] for one in made):  # gcloud returns before the job has ended
            time.sleep(0.5)
            made = control.call(here, "GET", f"/v1/made?after={last}")["made"]
        seconds = time.monotonic() - begun
        trials = tuple(f"{one['displayName']}-trial-" for one in made if one["kind"] == "hyperparameterTuningJobs")
        own = [one for one in made if not (trials and one["displayName"].startswith(trials))]  # a trial may run twice
        bad = [one for one in own if not one["state"].endswith("_SUCCEEDED")]
        for one in bad:
            with urlopen(f"{here.url}/vertex/v1/{one['name']}") as answer:
                output += "\n" + str(json.load(answer).get("error", {}).get("message", one["state"]))
        if code == 0 and made and not bad:
            return Outcome(row, ENDS, seconds)
        words = next((line for line in reversed(output.splitlines()) if line.strip()), "")
        output += "".join(path.read_text(errors="replace") for one in made for path in self._logs(one))
        if row.outcome != ENDS and row.says in output:
            return Outcome(row, row.outcome, seconds, row.why)
        return Outcome(row, f"fails with {code}", seconds, words)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.published", description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="rows whose name begins so")
    parser.add_argument("--all", action="store_true", help="the programs of programs.yaml, from snapshots")
    parser.add_argument("--accept", action="store_true", help="with --all: keep what came of them, write the page")
    parser.add_argument("--engine", choices=("none", "docker"), default="none", help="with --all: what runs images")
    parser.add_argument("--all-trials", action="store_true", help="as many trials as published")
    parser.add_argument("--work", type=Path, default=Path("build/published"), help="folder of what is written")
    given = parser.parse_args()
    if given.all:
        way = programs.STAND_IN if given.engine == "none" else programs.CONTAINER
        only = tuple(given.only)
        sys.exit(programs.run_all(given.checkouts.absolute(), given.work.absolute(), only, given.accept, way))
    bench = Bench(given.work.absolute(), given.checkouts.absolute(), given.all_trials)
    outcomes = []
    for row in ROWS:
        if given.only and not any(row.key.startswith(text) for text in given.only):
            continue
        outcomes.append(bench.run(row))
        one = outcomes[-1]
        print(f"| {row.key} | {row.what} | {one.came} | {one.seconds:.0f} s | {one.words} |", flush=True)
    sys.exit(not all(one.good for one in outcomes))


if __name__ == "__main__":
    main()
