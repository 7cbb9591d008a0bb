"""Checkouts that a stranger has made: links, paths, state, scripts, templates and names that are made to do harm.

A trick changes a good checkout. Beside the checkout lies what is the user's: nothing of it may change, and its secret may
not turn up anywhere.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

SECRET = "TOP-SECRET-OF-THE-USER"
RAN = "ran"
"""A file in the user's folder that is there once code of the checkout has run."""

PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket
templates: templates
catalog: catalog.yaml
trainer: {path: trainer_pkg, module: trainer.task, image: tf-2.17}
jobs:
  cpu: {topology: own, machine_type: n1-standard-4, timeout: 600s}
sweeps:
  sweep:
    job: cpu
    max_trial_count: 2
    parallel_trial_count: 1
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters: {lr: {double_value_spec: {min_value: 0.1, max_value: 0.3}}}
trigger: {uri: https://trigger.example.com}
schedules: {nightly: {run: cpu, cron: 0 3 * * *, time_zone: UTC}}
check: {baseline: known.json}
"""
TASK = """\
import argparse
import json
import os
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
    json.dump({"accuracy": args.lr}, file)
"""
SETUP = (
    "from setuptools import find_packages, setup\nsetup(name='trainer', version='0.1.0', packages=find_packages())\n"
)
OWN = "{% include 'cpu.yaml.j2' %}\n"
DESCRIBED = {
    "name": "projects/my-project/locations/us-central1/hyperparameterTuningJobs/7",
    "displayName": "sweep",
    "state": "JOB_STATE_SUCCEEDED",
    "studySpec": {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [{"parameterId": "lr", "doubleValueSpec": {"minValue": 0.1, "maxValue": 0.3}}],
    },
    "maxTrialCount": 2,
    "parallelTrialCount": 1,
    "trialJobSpec": {
        "workerPoolSpecs": [
            {
                "replicaCount": "1",
                "machineSpec": {"machineType": "n1-standard-4"},
                "containerSpec": {"imageUri": "gcr.io/p/i"},
            }
        ]
    },
    "trials": [
        {
            "id": str(n), "state": "SUCCEEDED", "parameters": [{"parameterId": "lr", "value": n / 10}],
            "finalMeasurement": {"stepCount": "1", "metrics": [{"metricId": "accuracy", "value": n / 10}]},
            "startTime": "2026-11-01T00:00:00Z", "endTime": "2026-11-01T00:01:00Z",
        }
        for n in (1, 2, 3)
    ],
}  # fmt: skip

JOB = ("--file", "job.json")
WALKS: tuple[tuple[str, ...], ...] = (
    ("check", "."),
    ("check", ".", "--fix"),
    ("check", "*.yaml", "--fix"),
    ("check", "--fix"),
    ("check", "--write-baseline"),
)
"""`check` where it finds the files by itself, or writes."""
DIFF = ("diff",)
"""The one verb for which the checkout is a repository of git."""
VERBS: tuple[tuple[str, ...], ...] = (
    ("render", "cpu"),
    ("render", "cpu", "sweep"),
    ("check",),
    ("check", "cpu", "--format", "json"),
    ("explain", "cpu"),
    ("package", "--no-verify"),
    ("init",),
    ("init", "--force"),
    ("pull", "job.json"),
    ("convert", "gcloud.yaml"),
    ("promote", "job.json", "--sweep", "sweep"),
    ("follow-up", "job.json", "--sweep", "sweep", "--dry-run"),
    ("report", "job.json", "--local"),
    ("function", "build"),
    ("jobs", "--local"),
    ("best", "cpu", "--local"),
    ("trials", "sweep", "--local"),
    ("local", "status"),
    ("local", "down"),
    ("local", "down", "--forget"),
    ("local", "env"),
    ("render", "cpu", "--set", "trainer.image=build"),
    ("image", "cpu", "--set", "trainer.image=build"),
    ("submit", "cpu", "--dry-run"),
    ("catalog", "machines"),
    ("quota",),
    DIFF,
    *WALKS,
    ("local", "kill", "1", "0"),
    ("local", "preempt", "1"),
    ("schedule", "plan"),
    ("schedule", "list"),
    ("function", "deploy"),
    ("function", "remove"),
    ("function", "alerts"),
)  # fmt: skip
"""Each verb that works without a network: as a person types it in a checkout, without options of their own."""
SUBMIT, REHEARSE, UP = ("submit", "cpu"), ("rehearse", "cpu"), ("local", "up", "--detach", "--port", "0")
"""Verbs that take seconds, each with a few tricks of every kind (`slow`)."""
PACKAGE = ("function", "package", "cpu")
NOT_TRIED = {
    "keys": "it reads nothing of a folder",
    "completion": "it reads nothing of a folder",
    "local run": "it starts the server as `local up` does, then what the user types",
    "local python": "it installs a Python of the network",
    "function export": "it writes what `function deploy` and `function alerts` print, from the same plan",
    "function serve": "it builds as `function build` does, and then serves until it is ended",
    **dict.fromkeys(
        ("watch", "logs", "cancel", "register", "schedule apply", "schedule status", "schedule history", "schedule steps",
         "schedule run", "schedule pause", "schedule resume", "schedule hold", "schedule release", "schedule approve", "schedule reject", "console", "doctor"),
        "without an answer of the service it does nothing but load the project file, as those that are tried",
    ),
}  # fmt: skip
"""Verbs that no trick is tried with, and why."""


@dataclass(frozen=True)
class Trick:
    """One thing that is wrong with a checkout.

    Args:
        name: What.
        play: Does it to a checkout, beside which the user's own folder is.
    """

    name: str
    play: Callable[[Path, Path], None]


def checkout(folder: Path) -> Path:
    """A good checkout."""
    for name, text in {
        "vertexrig.yaml": PROJECT,
        "trainer_pkg/setup.py": SETUP,
        "trainer_pkg/trainer/__init__.py": "",
        "trainer_pkg/trainer/task.py": TASK,
        "templates/own.yaml.j2": OWN,
        "catalog.yaml": "{}\n",
        "known.json": '{"findings": []}',
        "job.json": json.dumps(DESCRIBED),
        "gcloud.yaml": json.dumps({"workerPoolSpecs": DESCRIBED["trialJobSpec"]["workerPoolSpecs"]}),  # type: ignore[index]
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def belongings(folder: Path) -> Path:
    """What the user has beside the checkout; each kind of file that a link may be made to."""
    folder.mkdir()
    (folder / "text").write_text(f"{SECRET}\n")
    (folder / "code.py").write_text(f"KEY = '{SECRET}'\n")
    (folder / "job.yaml").write_text(f"displayName: {SECRET}\nscheduling: {{timeout: 60}}\nworkerPoolSpec: []\n")
    (folder / "settings.yaml").write_text(f"project: {SECRET.lower()}\njobs: {{}}\n")
    (folder / "template.yaml.j2").write_text(f"# {SECRET}\nworkerPoolSpecs: []\n")
    (folder / "setup.cfg").write_text(f"[metadata]\ndescription = {SECRET}\n")
    (folder / "pyproject.toml").write_text(f"[project]\nname = '{SECRET.lower()}'\nversion = '1'\n")
    for name in ("empty", "full/inner"):
        (folder / name).mkdir(parents=True)
    for name in ("__init__.py", "task.py", "own.yaml.j2", "cpu.yaml.j2", "cpu.yaml", "vertex.sqlite3", "text"):
        (folder / "full" / name).write_text(f"# {SECRET}\n")
    (folder / "full" / "inner" / "module.py").write_text(f"# {SECRET}\n")
    return folder


# Where a verb writes, and reads, by itself.
WRITTEN = (
    "build", "build/jobs", "build/jobs/cpu.yaml", "build/jobs/sweep.yaml", "build/packages", "build/cache", "build/function",
    "build/images", "build/images/trainer-cpu", "build/images/trainer-cpu/Dockerfile", "locks", "locks/trainer-cpu.txt", ".vertexrig", ".vertexrig/history", ".vertexrig/binding.json", ".vertexrig/server.json",
    ".vertexrig/vertex.sqlite3", "vertexrig.yaml", "build/alerts", "build/alerts/dashboard.json", "known.json",
)  # fmt: skip
STATE = tuple(f".vertexrig/{name}" for name in (
    "boto.cfg", "envs", "front", "front/ca.pem", "gs", "gs/my-bucket", "history", "jobs", "logs", "binding.json", "rehearsals", "root",
    "scheduler", "server.json", "server.log", "storage", "users.lock", "vertex.sqlite3", "vertex.sqlite3-wal",
))  # fmt: skip
"""What the local Vertex writes."""
READ = (
    "vertexrig.yaml", "templates", "templates/own.yaml.j2", "templates/cpu.yaml.j2", "templates/parts.yaml.j2", "catalog.yaml",
    "trainer_pkg", "trainer_pkg/trainer", "trainer_pkg/trainer/task.py", "trainer_pkg/trainer/data.txt",
    "trainer_pkg/trainer/more", "trainer_pkg/setup.py", "trainer_pkg/setup.cfg", "trainer_pkg/pyproject.toml",
    "trainer_pkg/requirements.txt", "trainer_pkg/README.md", "trainer_pkg/MANIFEST.in", "train.py",
    "stray.yaml", "jobs/stray.yaml", ".gitignore",
)  # fmt: skip
TARGETS = ("code.py", "job.yaml", "settings.yaml", "template.yaml.j2", "setup.cfg", "pyproject.toml")


KINDS = ("absolute text", "absolute empty", "absolute full", "absolute missing", "relative full", "chain text", "pipe")


def link(place: str, target: str, *, kind: str) -> Callable[[Path, Path], None]:
    """Put a link into the checkout."""

    def play(folder: Path, own: Path) -> None:
        path = folder / place
        clear(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "chain":
            (folder / "hop").symlink_to(own / target)
            path.symlink_to(os.path.relpath(folder / "hop", path.parent))
        else:
            path.symlink_to(os.path.relpath(own / target, path.parent) if kind == "relative" else own / target)

    return play


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in sorted(path.rglob("*"), reverse=True):
            inner.rmdir() if inner.is_dir() and not inner.is_symlink() else inner.unlink()
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def text(place: str, content: str) -> Callable[[Path, Path], None]:
    """Write a file, with the user's folder in place of OUTSIDE."""

    def play(folder: Path, own: Path) -> None:
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("OUTSIDE", str(own)))

    return play


def project(old: str, new: str) -> Callable[[Path, Path], None]:
    """Change the project file."""

    def play(folder: Path, own: Path) -> None:
        assert old in PROJECT
        (folder / "vertexrig.yaml").write_text(PROJECT.replace(old, new).replace("OUTSIDE", str(own)))

    return play


def pipe(place: str) -> Callable[[Path, Path], None]:
    """A pipe in place of a file: whoever opens it waits for ever."""

    def play(folder: Path, own: Path) -> None:
        clear(folder / place)
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(folder / place)

    return play


def state(folder: Path, own: Path) -> None:
    """State with a job that waits."""
    (folder / ".vertexrig").mkdir()
    with sqlite3.connect(folder / ".vertexrig/vertex.sqlite3") as database:
        database.execute("CREATE TABLE resources (name TEXT, body TEXT)")
    (folder / ".vertexrig/binding.json").write_text(
        json.dumps({"path": str(folder), "device": 1, "inode": 2, "user": 0})
    )


def lock(folder: Path, own: Path) -> None:
    """State whose lock is a link."""
    state(folder, own)
    (folder / ".vertexrig/server.json").symlink_to(own / "text")


def planted(folder: Path, own: Path) -> None:
    """A package with code that is in none of the sources, under every name it could have."""
    (folder / "build/packages").mkdir(parents=True)
    with tarfile.open(folder / "build/packages/trainer-0.1.0+000000000000.tar.gz", "w:gz") as archive:
        archive.add(folder / "job.json", "trainer-0.1.0/setup.py")


NAMES = (
    "a\nb",
    "\x1b[31mred",
    "\u202ereversed",
    "x" * 3000,
    "../../outside",
    "`touch ran`",
    "$(touch ran)",
    "\x00",
    '"}',
    "'; --",
)
PATHS = (
    "OUTSIDE/full",
    "../outside/full",
    "trainer_pkg/../../outside/full",
    "OUTSIDE/text",
    "../outside/code.py",
    "/etc",
)
SCRIPTS = {
    "code": f"open('OUTSIDE/{RAN}', 'w')\n{SETUP}",
    "data_files": SETUP.replace("packages=", "data_files=[('x', ['OUTSIDE/text'])], packages="),
    "description": SETUP.replace("packages=", "long_description=open('OUTSIDE/text').read(), packages="),
    "package_dir": SETUP.replace("packages=find_packages()", "package_dir={'': 'OUTSIDE/full'}, packages=['inner']"),
    "relative": SETUP.replace("packages=", "package_data={'': ['../../../../../../../../OUTSIDE/text']}, packages="),
    "cmdclass": f"from setuptools.command.sdist import sdist\nclass S(sdist):\n    def run(self):\n        open('OUTSIDE/{RAN}', 'w')\n"
    + SETUP.replace("packages=", "cmdclass={'sdist': S}, packages="),
    "import": f"import trainer.evil\n{SETUP}",
    "escape": f"[c for c in ().__class__.__base__.__subclasses__()]\n{SETUP}",
}
SETTINGS = {
    "cmdclass": "[options]\ncmdclass =\n    sdist = trainer.evil.S\n",
    "attr": "[metadata]\nversion = attr: trainer.evil.value\n",
    "egg_base": "[egg_info]\negg_base = OUTSIDE/empty\n",
    "dist_dir": "[sdist]\ndist_dir = OUTSIDE/empty\n",
    "aliases": "[aliases]\nsdist = evil sdist\n[global]\ncommand_packages = trainer\n",
    "data": "[options.data_files]\nx = OUTSIDE/text\n",
    "license": "[metadata]\nlicense_files = OUTSIDE/text\n",
    "file": "[metadata]\nlong_description = file: OUTSIDE/text\n",
}
MODULES = (
    "email gzip json localvertex pip pkg_resources runpy setuptools setuptools/build_meta sitecustomize sqlite3 starlette tarfile "
    "tempfile typing usercustomize uv uvicorn vertexrig wheel zipfile"
).split()
"""What a Python of ours imports."""
EVIL = f"open('OUTSIDE/{RAN}', 'w')\nvalue = str(1)\n"


def modules(folder: Path, own: Path) -> None:
    """Modules in place of Python's and of ours, where a process may begin."""
    for place in (folder, folder / "trainer_pkg", folder / "trainer_pkg/trainer"):
        for name in MODULES:
            text(f"{place.relative_to(folder)}/{name}.py", EVIL)(folder, own)


def placed(word: str, place: str, kind: str) -> Trick:
    """A trick with one place, of one of KINDS."""
    kind, _, target = kind.partition(" ")
    name = f"{word} {place}: {kind} {target}".rstrip()
    return Trick(name, pipe(place) if kind == "pipe" else link(place, target, kind=kind))


def slow() -> Iterator[tuple[Trick, tuple[str, ...]]]:
    """Every kind of trick with the verbs that take seconds, in the places where they write and read."""
    for verb, places in (
        (SUBMIT, ("build/packages", "trainer_pkg/trainer/data.txt")),
        (REHEARSE, (".vertexrig", "build", "trainer_pkg/trainer/data.txt")),
        (PACKAGE, ("build/packages", "trainer_pkg/trainer/data.txt")),
        (UP, (".vertexrig",)),
    ):
        yield from ((placed("slow", place, kind), verb) for place in places for kind in KINDS)
    for number, place in enumerate(STATE):
        for kind in ("absolute text", "absolute empty", KINDS[2 + number % 5]):
            yield placed("state", place, kind), UP
        yield placed("state", place, KINDS[number % len(KINDS)]), REHEARSE
    yield from ((trick, SUBMIT) for trick in tricks() if trick.name.startswith("setup"))
    yield from ((Trick("a planted package", planted), verb) for verb in (SUBMIT, REHEARSE))
    yield from ((Trick("state with a job", state), verb) for verb in (REHEARSE, UP))
    yield Trick("state whose lock is a link", lock), ("local", "down", "--forget")


def tricks() -> Iterator[Trick]:
    """Every trick, in an order that stays the same."""
    for place in WRITTEN:
        for kind in (*KINDS, "absolute settings.yaml"):
            yield placed("write", place, kind)
    for place in READ:
        for kind in (*KINDS, *(f"absolute {target}" for target in TARGETS)):
            yield placed("read", place, kind)
    for path in PATHS:
        yield Trick(f"trainer.path {path}", project("path: trainer_pkg", f"path: {path}"))
        yield Trick(f"templates {path}", project("templates: templates", f"templates: {path}"))
        yield Trick(f"catalog {path}", project("catalog: catalog.yaml", f"catalog: {path}"))
        yield Trick(f"lock {path}", project("tf-2.17}", f"build, build: {{framework: tf-2.17, lock: {path}}}}}"))
        image = f'local: {{images: {{"gcr.io/*": {{path: {path}, command: [python]}}}}}}\njobs:'
        yield Trick(f"image {path}", project("jobs:", image))
        yield Trick(f"include {path}", text("templates/own.yaml.j2", f"{{% include '{path}' %}}\n"))
    for name, script in SCRIPTS.items():

        def scripted(folder: Path, own: Path, script: str = script) -> None:
            text("trainer_pkg/setup.py", script)(folder, own)
            text("trainer_pkg/trainer/evil.py", EVIL)(folder, own)

        yield Trick(f"setup.py {name}", scripted)
    for name, settings in SETTINGS.items():

        def configured(folder: Path, own: Path, settings: str = settings) -> None:
            text("trainer_pkg/setup.cfg", settings)(folder, own)
            text("trainer_pkg/trainer/evil.py", EVIL)(folder, own)

        yield Trick(f"setup.cfg {name}", configured)
    yield Trick("modules of others", modules)
    for name in NAMES:
        described = {**DESCRIBED, "displayName": name, "name": str(DESCRIBED["name"]).replace("my-project", name)}
        yield Trick(f"display name {name[:12]!r}", text("job.json", json.dumps(described)))
        yield Trick(f"job {name[:12]!r}", project("  cpu:", f"  {json.dumps(name)}: {{}}\n  cpu:"))
        yield Trick(
            f"base image {name[:12]!r}", project("tf-2.17}", f"build, build: {{base_image: {json.dumps(name)}}}}}")
        )
    yield Trick("state with a job", state)
    yield Trick("a planted package", planted)
    yield Trick("a large project file", text("vertexrig.yaml", PROJECT + "# x\n" * 800_000))
    yield Trick("a deep project file", text("vertexrig.yaml", "[" * 50_000))
