"""The files of a folder's repository as a revision has them, for a comparison; nothing of the repository's configuration is run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from vertexrig.errors import UsageError
from vertexrig.text import quoted
from vertexrig.waiting import waiting

MOST_BYTES = 5 * 2**20
"""Bytes of a file: what a project file and a trainer need is smaller. A larger one is left out."""
MOST_FILES = 50_000
"""Files of a revision. A tree of a few KiB may name one object any number of times."""
MOST_IN_ALL = 512 * 2**20
"""Bytes of the files of a revision together."""
_MOST_PATH = 4_096  # bytes, as Linux has it
_GIT_MEMORY, _GIT_SECONDS = 1 * 2**30, 120
"""What one process of git may take of memory in addition to the files that it maps, and how many seconds it may run."""
_BOUNDED = ("/bin/sh", "-c", 'ulimit -d "$0" 2> /dev/null; exec "$@"')
"""Takes KiB of memory and a command, and becomes that command. Where a system has no such bound, the command runs without."""
_FILE = b"100"  # as the mode of a plain file begins; not a link, nor a repository inside


class SilentError(UsageError):
    """Git has failed and has not said why."""


class NoRevisionError(UsageError):
    """A repository has no such revision."""


def write(folder: Path, revision: str, into: Path) -> Path:
    """Write the files of a revision into an empty folder; return the folder there that is the copy of `folder`.

    Raises:
        UsageError: It is no repository, has no such revision, or one with too many files.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel").rstrip("\n"))
    if revision.startswith("-"):
        raise UsageError(f"{revision} is not a revision")
    commit = _commit(folder, revision)
    wanted = list(_files(top, commit, revision))
    with tempfile.TemporaryFile() as asked:
        asked.write(b"".join(oid + b"\n" for oid, _ in wanted))
        asked.seek(0)
        # what git stores, through none of the filters that a checkout would run
        with reading(top, "cat-file", "--batch", given=asked) as stored:
            for oid, name in wanted:
                line = stored.readline()
                if not line:
                    break  # git has failed, which ends the block
                size = line.split()[-1]
                if not size.isdigit() or int(size) > MOST_BYTES:
                    raise UsageError(
                        f"{folder}: the repository has no object {oid.decode()}, of {quoted(name)}, and nothing is fetched"
                    )
                path = into / name
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(stored.read(int(size)))
                except OSError as error:
                    raise UsageError(
                        f"{quoted(name)} of {revision} cannot be written to {into}: {error.strerror}"
                    ) from error
                stored.read(1)
    return into / folder.resolve().relative_to(top.resolve())


def _commit(folder: Path, revision: str) -> str:
    """Return the id of the commit that a revision names; NoRevisionError if the repository has none of that name."""
    try:
        return _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").strip()
    except SilentError:
        place = f"the repository of {folder.resolve()}"
        if revision == "HEAD":
            raise NoRevisionError(f"{place} has no commit yet: commit the project file first") from None
        raise NoRevisionError(f"{place} has no commit, branch or tag {revision!r}") from None


def _files(top: Path, commit: str, revision: str) -> Iterator[tuple[bytes, str]]:
    """Yield the plain files of a commit that are not too large: the id of the object, and the path."""
    count = total = 0
    with reading(top, "ls-tree", "-r", "-l", "-z", commit) as listed:
        for row in _rows(listed):
            head, _, raw = row.partition(b"\t")
            size = head.split()[3]  # of an object that is missing git knows none
            name, large = os.fsdecode(raw), size.isdigit() and int(size) > MOST_BYTES
            count += 1
            total += int(size) if size.isdigit() and not large else 0
            if count > MOST_FILES or total > MOST_IN_ALL:
                raise UsageError(
                    f"{revision} has more than {MOST_FILES:,} files, or more than {MOST_IN_ALL >> 20} MiB of files up to "
                    f"{MOST_BYTES >> 20} MiB: a comparison reads them all. Keep data out of the repository of the project"
                )
            if not head.startswith(_FILE) or large:
                continue
            # git makes no such name, but stores it
            if name.startswith("/") or ".." in name.split("/") or len(raw) > _MOST_PATH:
                raise UsageError(
                    f"{revision} has a file {quoted(name[:200])}, which leads out of its repository or is too long: it is not "
                    "compared"
                )
            yield head.split()[2], name


def _rows(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while part := stream.read(65_536):
        *rows, rest = (rest + part).split(b"\0")
        yield from rows
        if len(rest) > 16 * _MOST_PATH:
            yield rest
            return


def _git(folder: Path, *words: str) -> str:
    with reading(folder, *words) as out:
        return os.fsdecode(out.read(1_000_000))


@contextmanager
def reading(
    folder: Path,
    *words: str,
    given: IO[bytes] | int = subprocess.DEVNULL,
    environment: Mapping[str, str] = {},
    settings: Sequence[str] = (),
    seconds: int = _GIT_SECONDS,
) -> Iterator[IO[bytes]]:
    """Give what git writes while it runs; it is ended with the block.

    Args:
        folder: Where it runs.
        words: Its command.
        given: Its standard input.
        environment: Its variables, in addition to those of this process.
        settings: Values of its configuration, in place of those in the repository.
        seconds: How long it may take.

    Raises:
        UsageError: git is not installed, or it fails.
    """
    safe = ("core.fsmonitor=false", "core.hooksPath=/dev/null", *settings)
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed, and `vertexrig diff` needs it")
    options = [word for one in safe for word in ("-c", one)]
    command = [*_BOUNDED, str(_GIT_MEMORY // 1024), git, "-C", str(folder.absolute()), *options, *words]
    # a repository may name a program that fetches objects it lacks
    env = {**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", **environment}
    with tempfile.TemporaryFile() as errors, waiting(f"git {words[0]}"):
        process = subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=errors, env=env)
        assert process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(seconds, end)
        timer.start()
        with process.stdout as out:
            try:
                yield out
                rest = out.read(1)
            except BaseException:
                process.kill()
                process.wait()
                raise
            finally:
                timer.cancel()
        if process.wait() and not rest:
            errors.seek(0)
            error = errors.read(2_000).decode("utf-8", "replace").strip()
            if late.is_set():
                error = f"git needs more than {seconds} s here"
            elif process.returncode < 0:
                error = f"git was ended by {signal.Signals(-process.returncode).name}"
            if not error:
                raise SilentError(f"{folder.resolve()}: git {words[0]} has failed")
            raise UsageError(f"{folder.resolve()}: {error}")
