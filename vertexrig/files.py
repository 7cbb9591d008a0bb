"""Reading files up to a size, writing files whole or not at all, and following links only within a checkout.

A folder that somebody else made may hold links to anywhere. What a verb writes there by itself stays below the project's
folder (`must_stay`, and `below` of `write_bytes`), what it reads stays in the checkout (`is_inside`); a path that a person has
typed may be anywhere.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from vertexrig.errors import UsageError, VertexrigError

MIB = 1024 * 1024
LARGEST = 2 * MIB
"""Most bytes of a project file, an overlay or a checked file.

A file from elsewhere may be made to exhaust the machine that checks it; 2 MiB are about 15,000 jobs.
"""


def read_text(path: str | Path, error: Callable[[str], VertexrigError] = UsageError) -> str:
    """Return the text of a file in UTF-8, with or without a byte order mark; `-` reads stdin.

    Args:
        error: Returns the error to raise, given its message.

    Raises:
        VertexrigError: It cannot be read, is too large, or is not text.
    """
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            # `<(...)` of a shell is a pipe in /dev or /proc, which is read
            if is_special(Path(path)) and not _is_system(Path(path)):
                raise error(f"{path} is neither a file nor a folder, and is not read; `-` reads stdin")
            with open(path, "rb") as stream:
                data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise error(f"{path} is larger than {LARGEST / MIB:g} MiB, and is not read")
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise error(f"there is no file {path}") from None
    except IsADirectoryError:
        raise error(
            f"{path} is a folder and cannot be read as YAML; name its files: {str(path).rstrip('/')}/*.yaml"
        ) from None
    except UnicodeDecodeError as problem:
        raise error(f"{path} is not text in UTF-8: {problem.reason} at byte {problem.start}") from None
    except OSError as problem:
        raise error(f"{path} cannot be read: {problem.strerror or problem}") from None


def write_text(path: Path, text: str, *, below: Path | None = None) -> None:
    """Write `text` to `path`, making its folder; the old file stays until the new one is complete. UsageError if that fails."""
    write_bytes(path, text.encode("utf-8"), below=below)


def write_bytes(path: Path, data: bytes, mode: int = 0o644, *, below: Path | None = None) -> None:
    """Write bytes to a path as `write_text` does, and set the permissions of the file.

    Where a person has typed the path, a symbolic link stays, and its target is written; a device or pipe, such as /dev/null,
    is written to as it is.

    Args:
        below: For a path that the user did not type: the folder that it must stay in (see `must_stay`).
    """
    try:
        if below is None and (_is_system(path) or is_special(path)):
            path.write_bytes(data)  # the rename below would put a file in place of a device, if the superuser does it
            return
        if below is None:
            place = Path(os.path.realpath(path))
        else:
            must_stay(path, below)
            place = Path(os.path.realpath(path.parent)) / path.name
        with _folder(place.parent, below) as folder:
            temporary = f".{place.name}.{os.urandom(6).hex()}"
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(data)
                    os.fchmod(stream.fileno(), mode)
                os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def _folder(path: Path, below: Path | None) -> Iterator[int]:
    """Provide a descriptor of a folder, which is created if it is missing."""
    top = os.path.realpath(path if below is None else below)
    os.makedirs(top, exist_ok=True)
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # One by one, and never through a link: a link could replace a folder after it was checked.
        for part in path.relative_to(top).parts:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=handle)
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


def must_stay(path: Path, folder: Path) -> Path:
    """Return the path of an output that the user did not name: below the project's folder, also after links, and not a link itself.

    Raises:
        UsageError: A link leads elsewhere, or something is there that is neither a file nor a folder.
    """
    top = Path(os.path.realpath(folder))
    parent = Path(os.path.realpath(path.parent))
    if not parent.is_relative_to(top):
        raise UsageError(f"{path} leads out of the project's folder, to {parent}: nothing is written there; {_TYPE_IT}")
    if path.is_symlink():
        raise UsageError(f"{path} is a link, to {os.readlink(path)}: nothing is written there; {_TYPE_IT}")
    if is_special(path):
        raise UsageError(f"{path} is neither a file nor a folder: nothing is written there; remove it")
    return path


_TYPE_IT = "remove the link, or name another place with an option such as --output"
_MARKS = (".git", "vertexrig.yaml")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@cache
def checkout(folder: str) -> str:
    """Return the checkout of a folder: the nearest git work tree around it, or else the folder of the nearest project file.

    Its `.git`, or the project file, must belong to the folder's owner. The home folder and those above it never count as one.

    Args:
        folder: A real path.
    """
    if not os.path.exists(folder):
        return folder
    owner, home = os.stat(folder).st_uid, os.path.realpath(os.path.expanduser("~"))
    around = [place for place in (Path(folder), *Path(folder).parents) if not Path(home).is_relative_to(place)]
    for mark in _MARKS:
        for place in around:
            with suppress(OSError):
                if (place / mark).stat().st_uid == owner:
                    return str(place)
    return folder


def revision(folder: Path) -> str:
    """Return the commit that is checked out around a folder, "" if there is none. git is not run, so changes are not seen."""
    git = Path(checkout(os.path.realpath(folder)), ".git")
    with suppress(UsageError):
        if git.is_file():  # of a linked work tree or a submodule
            git = git.parent / read_text(git).removeprefix("gitdir:").strip()
        common = git / "commondir"
        places = [git, *([git / read_text(common).strip()] if common.is_file() else [])]
        found = read_text(git / "HEAD").strip()
        name = found.removeprefix("ref: ")
        if name != found and ".." not in name:
            loose = next((place / name for place in places if (place / name).is_file()), None)
            packed = "" if loose is not None else read_text(places[-1] / "packed-refs")
            rows = (line.partition(" ") for line in packed.splitlines())
            found = (
                read_text(loose).strip() if loose is not None else next((id for id, _, ref in rows if ref == name), "")
            )
        return found if _COMMIT.fullmatch(found) else ""
    return ""


def is_inside(path: str | Path, folder: str | Path) -> bool:
    """Whether a path, with all links resolved, is in the checkout of a folder."""
    return Path(os.path.realpath(path)).is_relative_to(checkout(os.path.realpath(folder)))


def place_of(folder: Path) -> dict[str, str | int]:
    """Return what identifies a folder on this machine and its user; a copy of the folder differs in it."""
    found = folder.stat()
    return {"path": os.path.realpath(folder), "device": found.st_dev, "inode": found.st_ino, "user": os.geteuid()}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other commands of this program while the block lasts; UsageError if the folder cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror or error}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_held(lock: Path) -> bool:
    """Whether a process holds the lock of a file; False if there is no such file."""
    with suppress(OSError), lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a device, a pipe or a socket."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _is_system(path: Path) -> bool:
    """Whether a path is in /dev or /proc."""
    return path.parts[:2] in (("/", "dev"), ("/", "proc"))


def typed(path: Path) -> str:
    """Return a path relative to the working directory if it is below it, as a user would type it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path)
