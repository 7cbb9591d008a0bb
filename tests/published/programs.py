"""Published programs of programs.yaml, each run whole through `vertexrig local run`, from snapshots of their repositories.

A program runs in one of two ways: an interpreter stands in for every image, or a container engine builds the program's own
Dockerfiles on the base images of bases.py and runs each job in the image that it names.
"""

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
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from tests.published import bases, data
from vertexrig.package.uv import uv

HERE = Path(__file__).parent
TABLE, OUTCOMES = HERE / "programs.yaml", HERE / "outcomes.yaml"
PAGE = HERE.parents[1] / "docs/published.md"
STAND_IN, CONTAINER = "stand-in", "container"
"""The two ways."""
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
class Container:
    """How a program runs with a container engine.

    Args:
        bases: The base images of its Dockerfiles, as their FROM lines name them.
        command: What `local run --` runs, where that differs from the stand-in way: it also builds the image.
        changes: Further texts and what takes their place.
        why: Why they are changed, or what is given besides.
    """

    bases: tuple[str, ...]
    command: str = ""
    changes: dict[str, str] = field(default_factory=dict)
    why: str = ""


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
        files: Files of its folder that it is given, with their text.
        data: Files below the buckets' folder -> Python expression of their text or bytes, with pandas and scikit-learn.
        buckets: Buckets that its user has.
        images: Container images: pattern -> folder and command that stand in.
        packages: What its image installs beside what every one has.
        sets: Data sets of data.py.
        container: How it runs with a container engine, if it builds its own image.
        ways: The ways in which it runs.
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
    files: dict[str, str] = field(default_factory=dict)
    data: dict[str, str] = field(default_factory=dict)
    buckets: tuple[str, ...] = ()
    images: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    container: Container | None = None
    ways: tuple[str, ...] = (STAND_IN,)

    def by(self, way: str) -> Program:
        """Return the program as it runs in one of the ways."""
        if way == STAND_IN or self.container is None:
            return self
        own = self.container
        return replace(self, command=own.command or self.command, changes={**self.changes, **own.changes}, images={})


@dataclass(frozen=True)
class Ended:
    """What came of a program: one of the four words, in how many seconds, and why."""

    came: str
    seconds: int = 0
    words: str = ""


def table() -> list[Program]:
    """Return the programs of programs.yaml."""
    found = []
    for row in yaml.safe_load(TABLE.read_text(encoding="utf-8")):
        own = row.pop(CONTAINER, None)
        ways = (*((STAND_IN,) if row.pop(STAND_IN, True) else ()), *((CONTAINER,) if own else ()))
        found.append(Program(**row, container=Container(**own) if own else None, ways=ways))
    return found


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
    # Otherwise git reads every file below the tree first, for attributes.
    words = [*git, "archive", "--worktree-attributes", tree, *paths]
    archive = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
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
    kinds = (".ipynb", ".py", ".sh", ".yaml", ".txt", "Dockerfile")
    return (path for path in folder.rglob("*") if (path.suffix or path.name) in kinds and path.is_file())


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
    subprocess.run([*uv(), "venv", "--quiet", "--clear", "--seed", "--python", sys.executable, folder], check=True)
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


def run(program: Program, snapshots: Path, work: Path, way: str = STAND_IN) -> Ended:
    """Run a program to its end.

    Args:
        program: The program.
        snapshots: Folder of the snapshots, each a git directory `owner+name/repo`.
        work: Folder of what is written; of the program, in a folder of its name.
        way: STAND_IN or CONTAINER.

    Returns:
        What came of it; its output is in output.txt of that folder.
    """
    folder, program = work / program.name, program.by(way)
    if not take(program, snapshots, folder):
        return Ended(MISSING, words=fetched_by(program, snapshots))
    python = user(folder / "user", users(work / "packages"))
    local: dict[str, Any] = {"engine": "docker"}
    if way == STAND_IN:
        image = user(folder / "image", users(work / "packages"))
        local = {"engine": "none", "images": program.images, "interpreters": {"*": str(image)}}
        if program.packages:
            subprocess.run([image, "-m", "pip", "install", "--quiet", *program.packages], check=True)
    here = folder / "program"
    for name, text in program.files.items():
        (here / name).write_text(text, encoding="utf-8")
    for name, text in program.data.items():
        path = folder / ".vertexrig/gs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made = [python, "-c", _MADE.format(text)]
        path.write_bytes(subprocess.run(made, stdout=subprocess.PIPE, check=True).stdout)
    for name in program.buckets:
        (folder / ".vertexrig/gs" / name).mkdir(parents=True, exist_ok=True)
    for name in program.sets:
        data.make(name, work / "sets/gs", work / "hub")
    if program.sets:
        shutil.copytree(work / "sets/gs", folder / ".vertexrig/gs", dirs_exist_ok=True)
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
    return Ended(FAILS, seconds, f"exit code {code}, jobs {', '.join(states) or 'none'}: {raised[-1].strip()[:160]}")


def run_all(snapshots: Path, work: Path, only: tuple[str, ...] = (), accept: bool = False, way: str = STAND_IN) -> int:
    """Run the programs whose names begin so, or all, with their progress; return 1 if one fails, else 0."""
    every = table()
    chosen = [one for one in every if one.name.startswith(only or "") and way in one.ways]
    failed = 0
    images = {name: None for one in chosen if one.container for name in one.container.bases}
    made: Any = bases.engine(work, tuple(images)) if way == CONTAINER else nullcontext({})
    with made as variables:
        os.environ.update(variables)
        for number, one in enumerate(chosen, 1):
            print(f"{number} of {len(chosen)}: {one.name} …", end=" ", flush=True)
            ended = run(one, snapshots, work, way)
            print(f"{ended.came} ({ended.seconds} s) {ended.words}".strip(), flush=True)
            failed += ended.came == FAILS
            if accept and ended.came != MISSING:
                kept = yaml.safe_load(OUTCOMES.read_text(encoding="utf-8"))
                kept.setdefault(one.name, {})[way] = asdict(ended)
                OUTCOMES.write_text(yaml.safe_dump(kept, width=200, allow_unicode=True), encoding="utf-8")
    if accept:
        PAGE.write_text(page(every, yaml.safe_load(OUTCOMES.read_text(encoding="utf-8"))), encoding="utf-8")
    return int(failed > 0)


def page(programs: list[Program], outcomes: dict[str, Any]) -> str:
    """Return docs/published.md: each program and what it ended with, in both ways."""
    rows = []
    for one in programs:
        place = f"{one.commit}/{one.source.replace(' ', '%20')}".removesuffix("/.")
        link = f"[{one.repository}](https://github.com/{one.repository}/tree/{place})"
        cells = [one.name, link, one.framework, one.submits, one.why or "nothing", *_ended(one, STAND_IN, outcomes)]
        if one.container is None:
            rows.append([*cells, "", "not run", ""])
            continue
        base = ", ".join(f"`{name}`" for name in one.container.bases)
        given = f"{base}; {one.container.why}" if one.container.why else base
        rows.append([*cells, given, *_ended(one, CONTAINER, outcomes)])
    made = "\n".join(
        f"| {', '.join(f'`{name}`' for name in base.names)} | {base.python} | {', '.join(base.packages) or 'none'} |"
        for base in bases.table()
    )
    counts = {
        f"{came}_{way[:5]}": sum(outcomes.get(one.name, {}).get(way, {}).get("came") == came for one in programs)
        for came in (WHOLE, TRAINED, FAILS) for way in (STAND_IN, CONTAINER)
    }  # fmt: skip
    text = (HERE / "page.md").read_text(encoding="utf-8")
    return text.format(
        programs=len(programs), repositories=len({one.repository for one in programs}), bases=made, **counts,
        stand=sum(STAND_IN in one.ways for one in programs), contained=sum(CONTAINER in one.ways for one in programs),
        rows="\n".join(f"| {' | '.join(row)} |" for row in rows),
    )  # fmt: skip


def _ended(program: Program, way: str, outcomes: dict[str, Any]) -> list[str]:
    """Return the two cells of a way: what the program ended with, and how long it took."""
    if way not in program.ways:
        return ["not run", ""]
    ended = outcomes.get(program.name, {}).get(way, asdict(Ended("not run")))
    return [ended["came"] + (f": {ended['words']}" if ended["words"] else ""), f"{ended['seconds']} s"]
