"""Which files of a trainer are read, and how: encodings, archives, layouts, damaged and hostile ones."""

from __future__ import annotations

import ast
import gc
import io
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packages import PARSER, TRAINERS, trainer_of, trainer_with
from tests.support.tools import examples
from vertexrig.trainer_source.reader import read
from vertexrig.trainer_source.source_tree import parse_module
from vertexrig.trainer_source.trainer_model import TrainerSource


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"def broken(:\n", "syntax error"),
        (b"\x00\x00", "null bytes"),
        (b"# -*- coding: nonsense -*-\n", "encoding"),
        ("x = 'ü'".encode("latin-1"), "decode"),
        ("x = 1".encode("utf-16"), ""),
        (b"x = " + b"(" * 5000 + b")" * 5000, ""),
        (b"x = " + b"-" * 200_000 + b"1", ""),
        (b"a = 1\n" * 400_000, "larger than"),
    ],
)
def test_files_that_cannot_be_parsed_are_problems(tmp_path: Path, data: bytes, word: str) -> None:
    """Syntax errors, odd encodings, depth and size give a problem with the file's name, never a traceback."""
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_bytes(data)
    found = read(tmp_path, "trainer.task")
    assert len(found.problems) == 1 and word in found.problems[0].message
    assert found.problems[0].file == "trainer/task.py"
    assert not found.flags_complete and not found.metrics_complete


def test_encodings_that_python_knows_are_read(tmp_path: Path) -> None:
    """A coding line and a byte order mark are honoured."""
    script = tmp_path / "task.py"
    script.write_bytes(b"# coding: latin-1\nimport os\nos.getenv('AIP_MODEL_DIR')  # \xfc\n")
    assert "AIP_MODEL_DIR" in read(script).environment
    script.write_bytes(b"\xef\xbb\xbfimport os\nos.getenv('AIP_MODEL_DIR')\n")
    assert "AIP_MODEL_DIR" in read(script).environment


def test_a_single_file_is_read_with_its_siblings(tmp_path: Path) -> None:
    """A script's neighbours are its modules, as when Python runs it."""
    (tmp_path / "my-task.py").write_text(f"import options\n{PARSER}options.add(parser)\n")
    (tmp_path / "options.py").write_text("def add(p):\n  p.add_argument('--units', type=int)\n")
    found = read(tmp_path / "my-task.py")
    assert found.files == ("my-task.py", "options.py") and found.flag("units") is not None


def test_an_archive_reads_like_its_folder(tmp_path: Path) -> None:
    """A built sdist gives the same value as the folder it came from."""
    archive = tmp_path / "trainer-0.1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(TRAINERS / "full", arcname="trainer-0.1.0")
    assert read(archive, "trainer.task") == read(TRAINERS / "full", "trainer.task")


def test_a_source_layout_and_a_package_with_main_are_found(tmp_path: Path) -> None:
    """`src/` is searched too, and a package is entered by its `__main__`."""
    package = tmp_path / "src" / "app"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(PARSER + "parser.add_argument('--x')")
    found = read(tmp_path, "app")
    assert found.files[0] == "src/app/__main__.py" and found.flag("x") is not None


def test_a_folder_named_like_a_library_gives_way_to_it(tmp_path: Path) -> None:
    """`tensorflow/` without __init__.py in a repository is not what `import tensorflow.keras` means."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "example.py").write_text("")
    found = trainer_of(tmp_path, "from tensorflow.keras import layers\n")
    assert {item.kind for item in found.imports} == {"other"}


def test_a_path_that_the_trainer_adds_may_bring_a_module() -> None:
    """After sys.path.insert, a name that the package does not have is no certain error."""
    code = "import sys\nsys.path.insert(0, 'lib')\nfrom trainer import later\n"
    assert [item.caught for item in trainer_with(code).imports if item.kind == "missing"] == [True]
    assert [item.caught for item in trainer_with("from trainer import later\n").imports if item.kind == "missing"] == [
        False
    ]


def test_a_module_with_a_dash_is_found(tmp_path: Path) -> None:
    """`python -m my-job.task` runs, so it is read."""
    (tmp_path / "my-job").mkdir()
    (tmp_path / "my-job" / "task.py").write_text("import os\n")
    assert read(tmp_path, "my-job.task").problems == ()


def test_a_hostile_archive_is_a_problem(tmp_path: Path) -> None:
    """A truncated archive, and one with links and absolute names, are read as far as they can be, and nothing is written."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as packed:
        link = tarfile.TarInfo("t-1/trainer/task.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
        packed.addfile(tarfile.TarInfo("/../../evil.py"), io.BytesIO())
    path = tmp_path / "t.tar.gz"
    path.write_bytes(whole.getvalue())
    assert read(path, "trainer.task").problems
    path.write_bytes(whole.getvalue()[:40])
    assert read(path, "trainer.task").problems


SNIPPETS = [
    "import argparse", "from . import a, b", "from .. import *", "p = argparse.ArgumentParser()", "p.add_argument('--x', type=int)",
    "p.add_argument()", "p.add_argument('')", "p.add_argument(x, *y, **z)", "x = x", "a, (b, *c) = d = 1, 2", "self.x = x",
    "class C(C): x = C", "def f(x=f): return f(x)", "for x in (x, y): pass", "lambda x: x", "flags.DEFINE_float()",
    "flags.DEFINE_enum('a', 'b', c)", "h.report_hyperparameter_tuning_metric(x)", "h.report_hyperparameter_tuning_metric()",
    "try:\n import z\nexcept:\n pass", "if __name__ == '__main__': main()", "@click.option()\ndef g(): pass", "import click, typer",
    "@app.command()\ndef t(a, b: int = 1, *c, d: 'x' = ..., **e): pass", "x: int", "del x", "global x", "async def k(): await x",
    "f'{x!r:>{y}}'", "[x for x in x]", "p.parse_args().x", "import sys; sys.argv[1:]", "os.environ[f'AIP_{x}'] = x", "x += x",
]  # fmt: skip


@pytest.mark.whole
@settings(max_examples=examples(25, 1000), deadline=None)
@given(st.lists(st.sampled_from(SNIPPETS), max_size=12), st.lists(st.sampled_from(SNIPPETS), max_size=6))
def test_no_arrangement_of_statements_crashes_it(first: list[str], second: list[str]) -> None:
    """Any mixture of the statements it looks for, in two modules that import each other, gives a value."""
    found = trainer_with(
        "from trainer import b\n" + "\n".join(first), b="from trainer import task\n" + "\n".join(second)
    )
    assert isinstance(found, TrainerSource) and hash(found.flags) is not None
    found.flag("x")  # whatever it finds, it does not fail


@settings(max_examples=examples(25, 1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_crash_it(tmp_path: Path, data: bytes) -> None:
    """Garbage as a file or as an archive is read or reported."""
    for name in ("garbage.py", "garbage.tar.gz", "garbage.whl"):
        (tmp_path / name).write_bytes(data)
        assert isinstance(read(tmp_path / name, None if name.endswith(".py") else "trainer.task"), TrainerSource)


@settings(max_examples=examples(25, 1000), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.integers(1, 200))
def test_no_damage_to_real_code_crashes_it(tmp_path: Path, seed: int, size: int) -> None:
    """Real Python with a piece cut out anywhere is read or reported."""
    data = (TRAINERS / "full" / "trainer" / "task.py").read_bytes()
    start = seed % len(data)
    (tmp_path / "task.py").write_bytes(data[:start] + data[start + size :])
    assert isinstance(read(tmp_path / "task.py"), TrainerSource)


@settings(max_examples=examples(15, 500), deadline=None)
@given(st.text(max_size=30))
def test_no_module_name_crashes_it(name: str) -> None:
    """Any text may be given as the module's name."""
    assert isinstance(read(TRAINERS / "full", name), TrainerSource)


def test_large_real_modules_are_read(tmp_path: Path) -> None:
    """Modules of the standard library are read without a problem, and their flags are those they declare."""
    for name in ("zipapp", "argparse", "typing", "turtle"):
        script = tmp_path / name / f"{name}.py"
        script.parent.mkdir()
        script.write_bytes(Path(ast.__file__).with_name(f"{name}.py").read_bytes())
        found = read(script)
        assert found.problems == ()
        if name == "zipapp":
            assert {flag.dest for flag in found.flags} >= {"output", "python", "main", "compress", "info"}


def test_modules_are_parsed_in_several_threads() -> None:
    """Threads that read trainers at the same time each get their syntax tree, though a collection may switch between them."""
    code = ("x = " + "(1 + " * 40 + "1" + ")" * 40 + "\n") * 50

    def switch(*_: object) -> None:
        time.sleep(0)

    gc.callbacks.append(switch)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(lambda place: parse_module(code.encode(), f"{place}.py"), range(40)))
    finally:
        gc.callbacks.remove(switch)
    assert all(isinstance(tree, ast.Module) for tree in trees)
