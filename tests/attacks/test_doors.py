"""Each file that a stranger may have made, generated: every verb that reads it ends in time, in bounded memory, with a sentence."""

from __future__ import annotations

import io
import json
import re
import resource
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packages import SETUP, small
from tests.support.tools import examples, typed

SECONDS, MEMORY_MIB = 10, 1024
JOB = {"displayName": "a", "workerPoolSpecs": [{"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}]}
PROJECT = {
    "project": "my-project",
    "bucket": "gs://my-bucket",
    "trainer": {"path": "code", "module": "trainer.task", "image": "tf-2.17"},
    "jobs": {"cpu": {"topology": "cpu", "machine_type": "n1-standard-4", "timeout": "600s"}},
}
TEXTS = st.text(st.characters(exclude_categories=()), max_size=20) | st.sampled_from(
    ["", "\0", "\ud800", "a" * 100_000, "${HOME}", "{{ a }}", "1e999", "9" * 500, "2026-13-45", "<<", "!!python/object:os.system", "&a", "*a"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)
PIECES = (
    "import os\n", "def f(a, b=1, *c, **d):\n    ", "class A(B):\n    ", "return ", "yield ", "lambda x: ", "(", ")", "[", "]", "{", "}",
    "parser.add_argument('--a', type=int, default=", "argparse.ArgumentParser()", "\n", "    ", "\t", "'", '"""', "\\", "f'{", "#", "\0",
    "@", "=", ":", ",", "a", "b.c", "1", "e9" * 9, "if ", "else:", "while True:\n    ", "try:\n    ", "except:\n    ", "match x:\n  case ",
    "FROM python\n", "COPY . /app\n", "ENTRYPOINT [\"python\", ", "CMD ", "ARG A=${A}\n", "ENV A=$A$A\n", "RUN <<EOF\n", "*", "**/", "!", "[a-",
)  # fmt: skip
REPEATED = st.tuples(st.sampled_from(PIECES), st.integers(1, 20_000)).map(lambda two: (two[0] * two[1])[:200_000])
CODE = st.lists(st.sampled_from(PIECES) | REPEATED | TEXTS, max_size=12).map("".join)
BYTES = CODE.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=200)


def dumped(values: object) -> bytes:
    return yaml.safe_dump(values, allow_unicode=False, width=10**6).encode("utf-8", "replace")


def changed(base: Mapping[str, object]) -> st.SearchStrategy[bytes]:
    """A good file with some keys replaced or added, or no YAML at all."""
    return (
        st.dictionaries(
            st.sampled_from([*base, "trigger", "sweeps", "schedules", "studySpec", "x"]), VALUES, max_size=3
        )
        .filter(lambda more: "\\ud" not in json.dumps(more))
        .map(lambda more: dumped({**base, **more}))
    ) | BYTES


@st.composite
def archives(draw: st.DrawFn) -> bytes:
    """A tar with members of any name, kind and declared size."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode=draw(st.sampled_from(["w", "w:gz"]))) as archive:
        for _ in range(draw(st.integers(0, 5))):
            member = tarfile.TarInfo(
                draw(st.sampled_from(["t-1/trainer/task.py", "../x.py", "/etc/x.py", "t-1/" * 200 + "x.py"]) | TEXTS)
            )
            member.type = draw(
                st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.LNKTYPE])
            )
            content = draw(BYTES)
            member.size = len(content) if member.type == tarfile.REGTYPE else 0
            member.name, member.linkname = member.name.replace("\ud800", "?"), "/etc/passwd"
            try:
                archive.addfile(member, io.BytesIO(content))
            except (ValueError, UnicodeEncodeError):
                continue
    whole = data.getvalue()
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


TEMPLATES = st.lists(
    st.sampled_from(
        ["{{ ", " }}", "{% for i in range(9**9) %}", "{% endfor %}", "{% if 3 ** 10**7 < 7 ** 10**6 %}", "{% endif %}", "{% macro f() %}", "{{ f() }}", "{% endmacro %}",
         "{% include 'cpu.yaml.j2' %}", "{% extends 'cpu.yaml.j2' %}", "{% raw %}", "{% endraw %}", "{# ", " #}", "{{ 'x' * 9**9 }}", "{{ job }}", "{{ job.__class__ }}",
         "{{ [].pop() }}", "{{ 1 // 0 }}", "{{ ''.join }}", "{{ job|map('upper')|list }}", "workerPoolSpecs:\n- {replicaCount: 1}\n", "a: ", "[" * 200, "{{ " * 300]
    ) | TEXTS,
    max_size=8,
).map(lambda parts: "".join(parts).encode("utf-8", "replace"))  # fmt: skip
LOCK = st.lists(
    st.sampled_from(['[[package]]\nname = "a"\nversion = "1"\n', "[metadata]\n", "a==1\n", "-r requirements.txt\n", "-r ../../../etc/passwd\n", "--index-url http://b\n", "a @ file:///etc/passwd\n",
                     'a>=1; python_version<"3"\n', "a[" + "b," * 9000 + "]==1\n", 'dependencies = [' + '{name = "a"},' * 9000 + "]\n", "[" * 3000, "a = {" * 3000]) | REPEATED | TEXTS,
    max_size=8,
).map(lambda parts: "".join(parts).encode("utf-8", "replace"))  # fmt: skip


@st.composite
def git_objects(draw: st.DrawFn) -> bytes:
    """How a repository is changed: `FILE\\0CONTENT` writes a file of `.git`, `tree\\0ROWS` commits a tree of such rows, `deep\\0N` nests trees."""
    kind = draw(
        st.sampled_from(
            [
                "tree",
                "deep",
                "HEAD",
                "config",
                "packed-refs",
                "index",
                "shallow",
                "info/grafts",
                "objects/info/alternates",
            ]
        )
    )
    if kind == "deep":
        return b"deep\0%d %d" % (draw(st.sampled_from([1, 20, 300])), draw(st.sampled_from([1, 2, 30])))
    if kind == "tree":
        row = st.tuples(
            st.sampled_from(["100644", "40000", "120000", "160000", "1", "999999999"]),
            st.sampled_from(["vertexrig.yaml", "..", ".git", "a/b", "/etc/x", "a" * 5000]) | TEXTS,
        )
        rows = draw(st.lists(row, max_size=4)) * draw(st.sampled_from([1, 1, 5000]))
        return b"tree\0" + "\n".join(
            f"{mode} {name}".replace("\n", "") for mode, name in rows if "\0" not in name and name
        ).encode("utf-8", "surrogatepass")
    return kind.encode() + b"\0" + draw(BYTES)


def changed_repository(folder: Path, change: bytes) -> None:
    """A repository with one commit, and the change to it."""
    kind, _, content = change.partition(b"\0")

    def git(*words: str, data: bytes | None = None) -> bytes:
        return subprocess.run(["git", *words], cwd=folder, input=data, capture_output=True, check=True).stdout.strip()

    def store(what: str, data: bytes) -> bytes:
        return git("hash-object", "-w", "-t", what, "--stdin", "--literally", data=data)

    git("init", "-q")
    git("add", "vertexrig.yaml")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")
    if kind not in (b"tree", b"deep"):
        (folder / ".git" / kind.decode()).write_bytes(content)
        return
    tree = store("blob", b"project: p\n")
    if kind == b"deep":
        levels, names = map(int, content.split())
        for level in range(levels):
            mode = b"40000" if level else b"100644"
            tree = store("tree", b"".join(b"%s a%d\0" % (mode, n) + bytes.fromhex(tree.decode()) for n in range(names)))
    else:
        tree = store("tree", b"".join(row + b"\0" + bytes.fromhex(tree.decode()) for row in content.split(b"\n")))
    commit = store("commit", b"tree %s\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\na\n" % tree)
    (folder / ".git/HEAD").write_bytes(commit + b"\n")


NOTEBOOK = VALUES.map(
    lambda one: json.dumps({"cells": [{"cell_type": "code", "source": one}, one], "metadata": one}).encode()
)
INIT = ("init", "--force", "--trainer", "code")
DOORS: dict[str, tuple[str, st.SearchStrategy[bytes], tuple[tuple[str, ...], ...]]] = {
    "project file": ("vertexrig.yaml", changed(PROJECT), (("check",), ("explain", "cpu"), ("render", "cpu"))),
    "YAML of a job": ("job.yaml", changed(JOB), (("check", "job.yaml"), ("explain", "job.yaml"), ("convert", "job.yaml"))),
    "Python source": ("code/trainer/task.py", BYTES, (("check",), ("package",))),
    "setup.py": ("code/setup.py", BYTES, (("check",), ("package",))),
    "pyproject.toml": ("code/pyproject.toml", BYTES, (("check",), ("package",))),
    "notebook": ("code/train.ipynb", NOTEBOOK | BYTES, (("init", "--force", "--trainer", "code/train.ipynb"),)),
    "Dockerfile": ("code/Dockerfile", BYTES, (INIT, ("check",))),
    ".gitignore": (".gitignore", BYTES, (("check", "."),)),
    "archive": ("code.tar.gz", archives(), (("check", "--set", "trainer.path=code.tar.gz"), ("explain", "cpu", "--set", "trainer.path=code.tar.gz"))),
    "template": ("templates/cpu.yaml.j2", TEMPLATES, (("render", "cpu", "--set", "templates=templates"), ("check", "--set", "templates=templates"))),
    "overlay of the catalog": ("catalog.yaml", changed({"machines": [], "prices": [], "regions": []}), (("check", "--set", "catalog=catalog.yaml"), ("catalog", "machines"))),
    "baseline": ("known.json", changed({"findings": []}), (("check", "--baseline", "known.json"),)),
    "requirements": ("code/requirements.txt", LOCK, (("check",), ("package",))),
    "lock file": ("code/uv.lock", LOCK, (("check",), ("package",))),
    "description of a job": ("job.json", changed({**JOB, "name": "projects/p/locations/us-central1/customJobs/1", "trials": []}), (("report", "job.json"), ("trials", "job.json"), ("best", "job.json"))),
    ".git": (".git", git_objects(), (("diff", "HEAD"),)),
}  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("door", DOORS)
def test_any_file_ends(door: str) -> None:
    """No traceback, no hang, no gigabyte, and an exit code of the table, whatever is in the file."""
    name, contents, verbs = DOORS[door]

    @given(contents)
    @settings(max_examples=examples(3, 200), deadline=None, suppress_health_check=list(HealthCheck))
    def ends(content: bytes) -> None:
        folder = Path(tempfile.mkdtemp())
        try:
            small(folder / "code", setup=SETUP.format(more=""))
            (folder / "vertexrig.yaml").write_bytes(dumped(PROJECT))
            (folder / "job.yaml").write_bytes(dumped(JOB))
            if name == ".git":
                changed_repository(folder, content)
            else:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(content)
            for verb in verbs:
                ended(verb, folder)
        finally:
            shutil.rmtree(folder)

    ends()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("known.json", "[" * 20_000),
        ("known.json", '{"findings": 1}'),
        ("code/uv.lock", "a = " + "[" * 3000),
        ("code/uv.lock", "a = " + "{a = " * 3000),
        ("code/uv.lock", "package = 1"),
        ("code/Pipfile.lock", '{"default": 1}'),
        ("code/Pipfile.lock", '{"a":' * 20_000),
        ("code/pyproject.toml", "a = " + "[" * 3000),
        ("code/Dockerfile", "FROM python\nENTRYPOINT " + "[" * 20_000),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_nested_or_of_another_type_is_an_error(tmp_path: Path, name: str, content: str) -> None:
    """JSON and TOML of any depth and type are read, refused or passed over, without a traceback."""
    small(tmp_path / "code", setup=SETUP.format(more=""))
    (tmp_path / "vertexrig.yaml").write_bytes(dumped(PROJECT))
    (tmp_path / name).write_text(content)
    package = (
        "package",
        *(["--no-verify"] if "lock" in name else []),
    )  # to verify one takes seconds, and reads no lock file
    for verb in (("check", "--baseline", name),) if name == "known.json" else (("check",), package, INIT):
        ended(verb, tmp_path)


def ended(verb: tuple[str, ...], folder: Path) -> None:
    before, began, wall = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time(), time.monotonic()
    done = typed(*verb, cwd=folder)
    # git and the process of templates have bounds of their own; the wall time is that of a busy machine
    assert time.process_time() - began < SECONDS and time.monotonic() - wall < 9 * SECONDS, verb
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MIB * 1024, verb
    assert done.exit_code in (0, 1, 2, 3) and not re.search(r"Traceback \(most recent", done.stderr), (verb, done)
    assert done.exit_code != 2 or "error: " in done.stderr, (verb, done)
