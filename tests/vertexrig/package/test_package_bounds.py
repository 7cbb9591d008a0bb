"""Folders that are made to exhaust the machine that packages them: each is refused by name, or packaged in bounded memory."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.support.packages import SETUP, small
from tests.support.tools import typed
from vertexrig.package.requirements import lines_of

GIB = 2**30
PROJECT = """\
project: my-project
bucket: gs://my-bucket
trainer: {{path: code, module: trainer.task, image: tf-2.17{more}}}
jobs:
  cpu: {{topology: cpu, machine_type: n1-standard-4, timeout: 600s}}
"""
VERBS = (("check",), ("package",), ("render", "cpu"), ("rehearse", "cpu"), ("submit", "cpu", "--dry-run"))
READ_AND_BUILD = VERBS[:2]
"""What reads a trainer's source, and what makes its package; each other verb does one of these two."""
MEMORY_MIB = 400


def sparse(name: str, folder: Path) -> None:
    with open(folder / name, "wb") as file:
        file.truncate(20 * GIB)


def many(folder: Path) -> None:
    for number in range(21_000):
        (folder / f"trainer/{number}.txt").touch()


def odd(folder: Path) -> None:
    for name in (b"a\nb.txt", b"\xff\xfe.py", b"x" * 251 + b".py", b"'\".py", b"\x1b[31m.txt", b"-rf"):
        with open(os.path.join(os.fsencode(folder), b"trainer", name), "w"):
            pass


def deep(folder: Path) -> None:
    before = os.getcwd()
    os.chdir(folder / "trainer")
    try:
        for _ in range(1_500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)


FOLDERS = {
    "a sparse file": (lambda folder: sparse("trainer/data.bin", folder), r"'trainer/data.bin' with 20,480 MiB"),
    "a sparse module": (lambda folder: sparse("trainer/more.py", folder), r"'trainer/more.py' with 20,480 MiB"),
    "a sparse setup.py": (lambda folder: sparse("setup.py", folder), "setup.py' of the trainer is larger than 5 MiB"),
    "a sparse setup.cfg": (lambda folder: sparse("setup.cfg", folder), "setup.cfg' of the trainer is larger than 5 MiB"),
    "a sparse pyproject.toml": (lambda folder: sparse("pyproject.toml", folder), "pyproject.toml' of the trainer is larger"),
    "a sparse requirements.txt": (lambda folder: sparse("requirements.txt", folder), "requirements.txt' of the trainer is"),
    "21,000 files": (many, "more than 20,000 files"),
    "odd names": (odd, ""),
    "1,500 folders in each other": (deep, "more than 100 folders"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_others_ends_no_verb(name: str, tmp_path: Path) -> None:
    """Each verb ends by itself, in bounded memory, with a sentence that names the file or the bound, and no traceback."""
    play, said = FOLDERS[name]
    play(small(tmp_path / "code", setup=SETUP.format(more="")))
    (tmp_path / "vertexrig.yaml").write_text(PROJECT.format(more=""))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    verbs = VERBS if name == "a sparse file" else READ_AND_BUILD
    ended = {verb: typed(*verb, cwd=tmp_path) for verb in verbs}
    subprocess.run(["rm", "-rf", tmp_path / "code"], check=True)  # pytest goes down by calls
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY_MIB * 1024
    for verb, done in ended.items():
        assert "Traceback" not in done.stderr and done.exit_code in ((1, 2) if said else (0, 1, 2, 3)), (verb, done)
        assert not said or said in done.stdout + done.stderr, (verb, done)


def test_the_bound_is_a_key(tmp_path: Path) -> None:
    """`trainer.package_mib` says how much a package may have."""
    folder = small(tmp_path / "code")
    (folder / "trainer/words.txt").write_bytes(b"x" * 3 * 2**20)
    for most, code in ((2, 1), (4, 0)):
        (tmp_path / "vertexrig.yaml").write_text(PROJECT.format(more=f", package_mib: {most}"))
        done = typed("package", cwd=tmp_path)
        assert (done.exit_code == 0) == (code == 0), done
        assert code == 0 or ("'trainer/words.txt' with 3 MiB" in done.stderr and "trainer.package_mib" in done.stderr)


def test_a_requirement_of_many_blanks_is_read_at_once() -> None:
    """A line with 200,000 blanks in it is read in time that grows with its length: else this takes minutes."""
    line = "tqdm" + " " * 200_000 + "x"
    assert list(lines_of(line + " --hash=sha256:0a \\\n")) == [(1, line)]
