"""Each verb over each hostile checkout: nothing outside of it changes, leaks or runs, and nothing is left."""

from __future__ import annotations

import gc
import gzip
import os
import random
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from localvertex.front import control
from tests.attacks.checkout.aimed import aimed, repository
from tests.attacks.checkout.hostile import (
    DIFF,
    NOT_TRIED,
    RAN,
    SECRET,
    UP,
    VERBS,
    Trick,
    belongings,
    checkout,
    slow,
    tricks,
)
from tests.attacks.test_names import verbs
from tests.support.tools import LONG, typed
from vertexrig import cli
from vertexrig.project.config import STATE_FOLDER

TRICKS = list(tricks())
ALL = random.Random(24).sample([(trick, verb) for trick in TRICKS for verb in VERBS], len(TRICKS) * len(VERBS))
SLOW = sorted(slow(), key=lambda one: random.Random(one[0].name).random())
BRIEF, LENGTH, AT_ONCE = 25, 3000, 25
"""How many combinations `make test`, `make attack` and one test try."""
FEW = 8
"""How many with verbs that take seconds `make test-all` and one test try; `make attack` tries all."""
CLOSED = "http://127.0.0.1:9"
SECONDS = 120
"""More than any verb takes: one that waits for a pipe is found."""
FAILING = ("init", "report", "best", "trials", "local", "schedule")
"""Verbs of which some need what a checkout does not bring: a rehearsal, a server, the service, or a folder without a project file."""
STARTS = range(0, LENGTH if LONG else BRIEF, AT_ONCE)
SLOW_STARTS = range(0, len(SLOW) if LONG else FEW, FEW)


def test_there_are_thousands_of_combinations() -> None:
    """The generator makes more than are tried, no two of one name."""
    assert len(ALL) >= LENGTH
    for all_ in (ALL, SLOW):
        assert len({(trick.name, verb) for trick, verb in all_}) == len(all_)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb[0] not in FAILING], ids=" ".join)
def test_a_good_checkout_is_served(verb: tuple[str, ...], tmp_path: Path) -> None:
    """Without a trick the verbs work, so that what is refused is refused for the trick."""
    folder = checkout(tmp_path / "checkout")
    done = typed(*verb, cwd=repository(folder) if verb == DIFF else folder)
    assert done.exit_code == 0, done.stderr


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a folder for temporary files; Vertex AI, Cloud Storage and package indexes are not to be reached."""
    for name, value in {"HOME": "home", "XDG_CONFIG_HOME": "home/.config", "TMPDIR": "tmp"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    for name in ("STORAGE_EMULATOR_HOST", "VERTEXRIG_AIPLATFORM", "VERTEXRIG_SCHEDULER"):
        monkeypatch.setenv(name, CLOSED)
    monkeypatch.setenv("UV_OFFLINE", "1")


@pytest.mark.parametrize("start", STARTS)
def test_nothing_leaves_the_checkout(start: int, tmp_path: Path) -> None:
    """What is the user's stays as it was, byte for byte, and its secret is nowhere else; no code of the checkout ran, and no
    process and no file is left.
    """
    assert not wrong(ALL[start : start + AT_ONCE], tmp_path)


@pytest.mark.whole
def test_nothing_leaves_it_by_tricks_of_one_verb(tmp_path: Path) -> None:
    """The same with what is made for one verb: what `check` walks and holds known, alerts, and a repository of git for `diff`;
    one trick of each kind on every run.
    """
    kinds = {(trick.name if LONG else trick.name.split()[0], verb): trick for trick, verb in aimed()}
    assert not wrong([(trick, verb) for (_, verb), trick in kinds.items()], tmp_path)


def test_each_verb_is_tried_or_named() -> None:
    """A new verb is tried over hostile checkouts, or stands among those that are not, with why."""
    tried = {verb for _, verb in (*ALL, *SLOW)}
    words = {" ".join(verb) for verb in verbs(cli.vertexrig)}
    said = {
        word for word in words if any(" ".join(verb).startswith(f"{word} ") or " ".join(verb) == word for verb in tried)
    }
    assert said == words - set(NOT_TRIED) and words >= set(NOT_TRIED)


@pytest.mark.whole
@pytest.mark.parametrize("start", SLOW_STARTS)
def test_nothing_leaves_it_with_verbs_that_run(start: int, tmp_path: Path) -> None:
    """The same with `submit`, `rehearse` and `local up`."""
    assert not wrong(SLOW[start : start + FEW], tmp_path)


class LateError(BaseException):
    """No verb takes it for an error of its own."""


def wrong(combinations: list[tuple[Trick, tuple[str, ...]]], place: Path) -> str:
    """What verbs did that they must not do, a line each."""
    found = []
    for trick, verb in combinations:
        for name in ("home", "tmp"):
            (place / name).mkdir(exist_ok=True)
        found += [f"{' '.join(verb)}, {trick.name}: {problem}" for problem in attacked(trick, verb, place)]
        for inner in place.iterdir():
            shutil.rmtree(inner)
    return "\n".join(found)


def attacked(trick: Trick, verb: tuple[str, ...], place: Path) -> list[str]:
    """What a verb did that it must not do."""
    folder, own = checkout(place / "checkout"), belongings(place / "outside")
    if verb == DIFF:
        repository(folder)
    trick.play(folder, own)
    before, there = seen(own), psutil.Process().children()
    came = {path for path in files(folder) if SECRET.encode() in content(path)}
    try:
        with bounded(SECONDS):
            done = typed(*verb, cwd=folder)
    except LateError:
        return [f"it takes more than {SECONDS} s"]
    except BaseException as error:
        return [f"it ends with {type(error).__name__}: {error}"]
    if verb == UP and done.exit_code == 0:
        control.down(folder / STATE_FOLDER)
    problems = [f"it ends with {done.exit_code}"] if done.exit_code not in (0, 1, 2, 3) else []
    after = seen(own)
    problems += [f"it changed {path}" for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
    problems += ["code of the checkout ran"] if (own / RAN).exists() or (folder / RAN).exists() else []
    problems += ["it shows the secret"] if SECRET.lower() in (done.stdout + done.stderr).lower() else []
    problems += [
        f"the secret is in {path.relative_to(folder)}"
        for path in files(folder)
        if path not in came and SECRET.lower().encode() in content(path).lower()
    ]
    left = [path.name for path in (place / "tmp").iterdir() if not path.name.startswith("vertexrig-templates")]
    left += [str(path) for path in files(folder) if path.name.endswith(".part")]
    gc.collect()  # an error's traceback may hold the renderer, whose process ends with it
    _, living = psutil.wait_procs(set(psutil.Process().children()) - set(there), timeout=10)
    for one in living:
        one.kill()
    return [*problems, *(f"it leaves {name}" for name in left), *(f"{one} is left" for one in living)]


def seen(folder: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything below a folder, with its permissions."""
    found: dict[str, tuple[int, bytes | str]] = {".": (folder.stat().st_mode, "")}
    for path in folder.rglob("*"):
        mode = path.lstat().st_mode
        what = os.readlink(path) if stat.S_ISLNK(mode) else path.read_bytes() if stat.S_ISREG(mode) else ""
        found[str(path.relative_to(folder))] = (mode, what)
    return found


def files(folder: Path) -> list[Path]:
    """The files of a checkout itself, not those that its links lead to."""
    return [path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode) and not _linked(path, folder)]


def _linked(path: Path, folder: Path) -> bool:
    return any(one.is_symlink() for one in path.parents if one.is_relative_to(folder))


def content(path: Path) -> bytes:
    data = path.read_bytes()
    with suppress(OSError, EOFError):
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return data


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """End what takes longer."""

    def late(number: int, frame: object) -> None:
        raise LateError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
