"""Published programs of programs.yaml, each run whole through `vertexrig local run`, from snapshots of their repositories."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
TABLE, OUTCOMES = HERE / "programs.yaml", HERE / "outcomes.yaml"
PAGE = HERE.parents[1] / "docs/published.md"
WHOLE, TRAINED, FAILS, MISSING = "whole", "trained", "fails", "no snapshot"
"""What a program ends with: whole; trained, and what follows is refused; neither; nothing of it is at hand."""
TIMEOUT_S = 1800
USERS = ("ipython", "pandas<3", "matplotlib", "lightgbm", "docker", "gcsfs")
"""Packages of the user's machine beside those of this environment, with a pandas that numpy 1.26 suffices, which
notebooks' older TensorFlow brings: what Workbench's kernel has."""
_MADE = """import io, sys, zipfile, numpy as np, pandas as pd, sklearn.datasets as datasets
made = {}
sys.stdout.buffer.write(made if isinstance(made, bytes) else made.encode())"""
_RAISED = re.compile(r"^(?:[\w.]+(?:Error|Exception)|[A-Z]\w+): .*$", re.MULTILINE)
_REFUSED = re.compile(r"The local Vertex does not serve (?:[\w.]+\.)?(\w+/\w+|\S+)")


@dataclass(frozen=True)
class Program:
    """A published program.

    Args:
        name: Its name here.
        repository: Its repository at GitHub, `owner/name`.
        commit: The commit that is run.
        source: A notebook, or the folder that is the program's.
        framework: What it trains with.
        submits: How it reaches Vertex AI.
        command: What `local run --` runs in its folder; a notebook is run cell by cell.
        changes: Texts of its files and what takes their place.
        why: Why they are changed, or what is given beside the program.
        environment: Variables that it is given.
        data: Files below the buckets' folder -> Python expression of their text or bytes, with pandas and scikit-learn.
        buckets: Buckets that its user has.
        images: Container images: pattern -> folder and command that stand in.
        packages: What its image installs beside what every one has.
    """

    name: str
    repository: str
    commit: str
    source: str
    framework: str
    submits: str
    command: str = ""
    changes: dict[str, str] = field(default_factory=dict)
    why: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    buckets: tuple[str, ...] = ()
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """What came of a program: one of the four words, in how many seconds, and why."""

    came: str
    seconds: int = 0
    words: str = ""


def table() -> list[Program]:
    """Return the programs of programs.yaml."""
    return [Program(**row) for row in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]


def fetched_by(program: Program, snapshots: Path) -> str:
    """Return the line that brings a program's repository."""
    return f"git clone --bare https://github.com/{program.repository} {_snapshot(program, snapshots)}"


def take(program: Program, snapshots: Path, folder: Path) -> bool:
    """Write a program's files into a folder, with its changes; return whether its snapshot is at hand."""
    git = ["git", "--git-dir", str(_snapshot(program, snapshots))]
    known = [*git, "cat-file", "-e", program.commit]
    if subprocess.run(known, capture_output=True, check=False).returncode:
        return False
    parent, _, name = program.source.rpartition("/")  # of a snapshot, other folders' files may be absent
    tree = f"{program.commit}:{parent}"
    paths = [name, *(f":(exclude,literal){path}" for path in _absent(git, tree, name))]
    archive = subprocess.run([*git, "archive", tree, *paths], stdout=subprocess.PIPE, check=True).stdout
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "snapshot").mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(folder / "snapshot")], input=archive, check=True)
    source = folder / "snapshot" / name
    if source.is_file():
        (folder / "program").mkdir()
    shutil.move(source, folder / "program")
    for old, new in program.changes.items():
        if not sum(_replaced(path, old, new) for path in _texts(folder / "program")):
            raise SystemExit(f"{program.name}: no file of {program.source} at {program.commit[:10]} has {old!r}")
    return True


def _absent(git: list[str], tree: str, name: str) -> list[str]:
    """Return the files of a tree's entry that its snapshot lists and has not: the largest may be left out."""
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", tree, name], stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    names = dict(reversed(line.split(" ")[2].split("\t", 1)) for line in listed.split("\0") if line)
    wanted = "\n".join(names.values()).encode()
    checked = subprocess.run([*git, "cat-file", "--batch-check"], input=wanted, stdout=subprocess.PIPE, check=True)
    lacking = {line.split()[0] for line in checked.stdout.decode().splitlines() if line.endswith(" missing")}
    return [path for path, blob in names.items() if blob in lacking]


def _snapshot(program: Program, snapshots: Path) -> Path:
    return snapshots / program.repository.replace("/", "+") / "repo"


def _texts(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix in (".ipynb", ".py", ".sh", ".yaml") and path.is_file())


def _replaced(path: Path, old: str, new: str) -> bool:
    """Replace a text of a file; of a notebook, in what its cells say."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        old, new = json.dumps(old)[1:-1], json.dumps(new)[1:-1]
    path.write_text(text.replace(old, new), encoding="utf-8")
    return old in text


def user(folder: Path, *below: Path) -> Path:
    """Return the Python of a program's user, or of its images: an environment that it may change, over others."""
    python = folder / "bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    site = next(folder.glob("lib/python*/site-packages"))
    lines = [f"import site; site.addsitedir({str(path)!r})" for path in (*below, sysconfig.get_path("purelib"))]
    (site / "base.pth").write_text("\n".join(lines))
    return python


def users(folder: Path) -> Path:
    """Return the folder of the packages that every user has, made once."""
    if not (folder / "ready").is_file():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", folder, *USERS], check=True)
        (folder / "ready").touch()
    return folder


def run(program: Program, snapshots: Path, work: Path) -> Ended:
    """Run a program to its end.

    Args:
        program: The program.
        snapshots: Folder of the snapshots, each a git directory `owner+name/repo`.
        work: Folder of what is written; of the program, in a folder of its name.

    Returns:
        What came of it; its output is in output.txt of that folder.
    """
    folder = work / program.name
    if not take(program, snapshots, folder):
        return Ended(MISSING, words=fetched_by(program, snapshots))
    python, image = (user(folder / name, users(work / "packages")) for name in ("user", "image"))
    if program.packages:
        subprocess.run([image, "-m", "pip", "install", "--quiet", *program.packages], check=True)
    here = folder / "program"
    for name, text in program.data.items():
        path = folder / ".vertexrig/gs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made = [python, "-c", _MADE.format(text)]
        path.write_bytes(subprocess.run(made, stdout=subprocess.PIPE, check=True).stdout)
    for name in program.buckets:
        (folder / ".vertexrig/gs" / name).mkdir(parents=True, exist_ok=True)
    local = {"images": program.images, "interpreters": {"*": str(image)}}
    project = {"project": "my-project", "region": "us-central1", "bucket": "gs://my-project-published", "local": local}
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(project), encoding="utf-8")
    env = {
        **os.environ, **program.environment, "CELLS": str(HERE / "cells.py"), "HOME": str(work / "home"), "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2",
        "PATH": os.pathsep.join([str(python.parent), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")), "MPLBACKEND": "agg",
    }  # fmt: skip
    (work / "home").mkdir(exist_ok=True)
    command = ["sh", "-c", program.command or f"python $CELLS {Path(program.source).name!r}"]
    root = ["--file", str(folder / "vertexrig.yaml")]
    begun = time.monotonic()
    with (folder / "output.txt").open("w+", encoding="utf-8") as out:
        try:
            code = subprocess.run(
                [sys.executable, "-m", "vertexrig", "local", "run", *root, "--", *command],
                cwd=here, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            code = -1
        out.seek(0)
        output = out.read()
    return judged(code, output, round(time.monotonic() - begun))


def judged(code: int, output: str, seconds: int) -> Ended:
    """Tell what came of a program by its exit code and its output, in which `local run` lists the jobs."""
    made = output.rpartition("\ncreated:")[2] if "\ncreated:" in output else ""
    states = re.findall(r"\b(SUCCEEDED|FAILED|CANCELLED|RUNNING|PENDING|EXPIRED)\b", made)
    refused = _REFUSED.findall(output)
    if not states and code == 0 and re.search(r"/studies/\d", output):
        return Ended(WHOLE, seconds)  # a study of Vizier's, whose trials the program runs itself
    if set(states) == {"SUCCEEDED"} and (code == 0 or refused):
        return Ended(WHOLE, seconds) if code == 0 else Ended(TRAINED, seconds, refused[-1])
    raised = _RAISED.findall(output) or [line for line in output.splitlines() if line.strip()] or [""]
    return Ended(FAILS, seconds, f"exit code {code}, jobs {', '.join(states) or 'none'}: {raised[-1].strip()}")


def run_all(snapshots: Path, work: Path, only: tuple[str, ...] = (), accept: bool = False) -> int:
    """Run the programs whose names begin so, or all, with their progress; return 1 if one fails, else 0."""
    every = table()
    chosen = [one for one in every if one.name.startswith(only or "")]
    outcomes = {}
    for number, one in enumerate(chosen, 1):
        print(f"{number} of {len(chosen)}: {one.name} …", end=" ", flush=True)
        ended = outcomes[one.name] = run(one, snapshots, work)
        print(f"{ended.came} ({ended.seconds} s) {ended.words}".strip(), flush=True)
    if accept:
        kept = yaml.safe_load(OUTCOMES.read_text(encoding="utf-8"))
        kept |= {name: asdict(ended) for name, ended in outcomes.items() if ended.came != MISSING}
        OUTCOMES.write_text(yaml.safe_dump(kept, width=200, allow_unicode=True), encoding="utf-8")
        PAGE.write_text(page(every, kept), encoding="utf-8")
    return int(any(ended.came == FAILS for ended in outcomes.values()))


def page(programs: list[Program], outcomes: dict[str, Any]) -> str:
    """Return docs/published.md: each program and what it ended with."""
    rows = []
    for one in programs:
        ended = outcomes.get(one.name, {"came": "not run", "seconds": 0})
        place = f"{one.commit}/{one.source.replace(' ', '%20')}".removesuffix("/.")
        link = f"[{one.repository}](https://github.com/{one.repository}/tree/{place})"
        came = ended["came"] + (f": {ended['words']}" if ended.get("words") else "")
        rows.append(
            f"| {one.name} | {link} | {one.framework} | {one.submits} | {one.why or 'nothing'} | {came} | {ended['seconds']} s |"
        )
    ends = [outcomes.get(one.name, {}).get("came") for one in programs]
    text = (HERE / "page.md").read_text(encoding="utf-8")
    counts = {
        "programs": len(programs), "repositories": len({one.repository for one in programs}),
        "whole": ends.count(WHOLE), "trained": ends.count(TRAINED),
        "others": len(ends) - ends.count(WHOLE) - ends.count(TRAINED),
    }  # fmt: skip
    return text.format(**counts, rows="\n".join(rows))
