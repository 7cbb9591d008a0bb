"""The files of a folder's repository as a revision has them, for a comparison; nothing of the repository's configuration is run."""

from __future__ import annotations

import io
import os
import subprocess
from pathlib import Path

from vertexrig.errors import UsageError
from vertexrig.text import quoted
from vertexrig.waiting import waiting

_MOST = 5 * 2**20  # bytes of a file: what a project file and a trainer need is smaller
_FILE = b"100"  # as the mode of a plain file begins; not a link, nor a repository inside


def write(folder: Path, revision: str, into: Path) -> Path:
    """Write the files of a revision into an empty folder; return the folder there that is the copy of `folder`.

    Raises:
        UsageError: It is no repository, or has no such revision.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    if revision.startswith("-"):
        raise UsageError(f"{revision} is not a revision")
    commit = _git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    rows = [row.partition(b"\t") for row in _git(top, "ls-tree", "-r", "-l", "-z", commit).split(b"\0") if row]
    wanted = [(head.split()[2], os.fsdecode(name)) for head, _, name in rows if head.startswith(_FILE) and _small(head)]
    for _, name in wanted:
        if name.startswith("/") or ".." in name.split("/"):  # git makes no such name, but stores it
            raise UsageError(
                f"{revision} has a file {quoted(name)}, which leads out of its repository: it is not compared"
            )
    # what git stores, through none of the filters that a checkout would run
    stored = io.BytesIO(_git(top, "cat-file", "--batch", given=b"".join(name + b"\n" for name, _ in wanted)))
    for oid, name in wanted:
        *_, size = stored.readline().split()
        if not size.isdigit():
            raise UsageError(
                f"{folder}: the repository has no object {oid.decode()}, of {quoted(name)}, and nothing is fetched"
            )
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(stored.read(int(size)))
        stored.read(1)
    return into / folder.resolve().relative_to(top.resolve())


def _small(head: bytes) -> bool:
    size = head.split()[3]
    return not size.isdigit() or int(size) <= _MOST  # of an object that is missing git knows none


def _git(folder: Path, *words: str, given: bytes = b"") -> bytes:
    safe = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    command = ["git", "-C", str(folder.absolute()), *safe, *words]
    # a repository may name a program that fetches objects it lacks
    env = {**os.environ, "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    try:
        with waiting(f"git {words[0]}"):
            done = subprocess.run(command, input=given, capture_output=True, check=False, env=env)
    except FileNotFoundError:
        raise UsageError("git is not installed, and a comparison needs it") from None
    if done.returncode:
        error = done.stderr.decode("utf-8", "replace").strip() or f"git has no {words[-1].partition('^')[0]}"
        raise UsageError(f"{folder}: {error}")
    return done.stdout
