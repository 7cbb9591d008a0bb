"""Find the files that a command line names: by path, by pattern, or by folder, without those that .gitignore ignores."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from vertexrig import files
from vertexrig.bring import revision
from vertexrig.cli import streams
from vertexrig.errors import UsageError

_ENDINGS = {".yaml", ".yml", ".json"}
"""File name endings that count in a folder."""
GIT_SECONDS = 8
"""How long git may take for the patterns of one folder."""
MOST_IGNORED = 10 * files.MIB
"""Bytes of the names that git ignores in a folder."""

Ignores = Callable[[str], bool]
"""Whether a file or folder is to be skipped."""


def find_files(
    named: Sequence[str], exclude: Sequence[str] = (), home: Path = Path(), *, listed: bool = False
) -> Iterator[tuple[str, bool]]:
    """Yield each file once, and whether it was found in a named folder or by a pattern.

    Args:
        named: Files, folders, and patterns such as `jobs/**/*.yaml`.
        exclude: Patterns of files to skip, as in a .gitignore of the folder `home`.
        home: The project's folder.
        listed: Whether to treat a named file like one found in a folder.
    """
    seen = set[str]()
    excluded = _ignored(str(home), exclude, home, gitignore=False) if listed and exclude else None
    found: Iterator[tuple[str, bool]]
    for path in named:
        if os.path.isdir(path):
            found = ((name, True) for name in _in_folder(path, _ignored(path, exclude, home)))
        elif glob.has_magic(path) and not os.path.exists(path):
            base = os.path.dirname(re.split(r"[*?\[]", path, maxsplit=1)[0]) or "."  # the part before the pattern
            fit = (name for name in glob.glob(path, recursive=True) if not os.path.isdir(name))
            names = sorted(name for name in fit if _is_inside(name, base))
            if not names:
                raise UsageError(f"no file matches the pattern {path}")
            ignores = _ignored(base, exclude, home)
            found = iter([(name, True) for name in names if not ignores(name)])
        else:
            found = iter([] if excluded is not None and excluded(path) else [(path, listed)])
        for one in found:
            if one[0] not in seen:
                seen.add(one[0])
                yield one


def _in_folder(root: str, ignores: Ignores) -> Iterator[str]:
    some = False
    for folder, below, names in os.walk(root):
        below[:] = sorted(
            name
            for name in below
            if name[0] != "."
            and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            and not ignores(os.path.join(folder, name))
        )
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1] in _ENDINGS and not ignores(path) and _is_inside(path, root):
                some = True
                yield path
    if not some:
        raise UsageError(f"{root} has no YAML or JSON file at any depth")


def _ignored(folder: str, exclude: Sequence[str], home: Path, *, gitignore: bool = True) -> Ignores:
    """Return what git ignores below a folder by `exclude` and, with `gitignore`, by the .gitignore files of its repository.

    The repository is not opened: git reads the files through an empty repository of ours, whose configuration runs nothing.
    """
    here = Path(os.path.realpath(folder))
    around = [one for one in (here, *here.parents) if (one / ".git").exists()]
    own = Path(os.path.realpath(home))
    root = around[0] if around else own if own in here.parents else here
    if shutil.which("git") is None:
        streams.note(f"git is not installed, so no file of {folder} is skipped by .gitignore or check.exclude")
        return lambda path: False
    with tempfile.TemporaryDirectory(prefix="vertexrig-") as temporary:
        for name in ("objects", "refs"):
            os.mkdir(os.path.join(temporary, name))
        Path(temporary, "HEAD").write_text("ref: refs/heads/none\n")
        patterns = Path(temporary, "patterns")
        patterns.write_text("".join(f"{_from(root, own, line)}\n" for line in exclude), errors="surrogateescape")
        words = ["ls-files", "--others", "--ignored", "--directory", "-z"]
        words += ["--exclude-standard"] if gitignore else [f"--exclude-from={patterns}"]
        own_git = {"GIT_DIR": temporary, "GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": os.path.join(temporary, "index")}
        settings = [f"core.excludesFile={patterns}"]
        with revision.reading(here, *words, environment=own_git, settings=settings, seconds=GIT_SECONDS) as listed:
            names = listed.read(MOST_IGNORED + 1)
    if len(names) > MOST_IGNORED:
        raise UsageError(f"{folder} has too many ignored files: check a smaller folder, or name the files")
    # of a folder that is ignored as a whole, git says `./`
    found = {os.path.normpath(here / os.fsdecode(name)) for name in names.split(b"\0") if name}

    def ignores(path: str) -> bool:
        at = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        return at in found or any(str(above) in found for above in Path(at).parents)

    return ignores


def _from(root: Path, home: Path, pattern: str) -> str:
    """Return a pattern of a .gitignore in `home` as one of a .gitignore in `root`."""
    if home == root or root not in home.parents:
        return pattern
    sign, text = ("!", pattern[1:]) if pattern.startswith("!") else ("", pattern)
    below = re.sub(r"([*?\[\]\\])", r"\\\1", home.relative_to(root).as_posix())
    return f"{sign}/{below}/{'' if '/' in text.rstrip('/') else '**/'}{text.removeprefix('/')}"


def _is_inside(path: str, root: str) -> bool:
    """Whether a path is a regular file in the root's checkout. If not, stderr says that the file is skipped."""
    if not os.path.isfile(path):
        streams.note(f"skipped {path}: not a regular file")
    elif not files.is_inside(path, root):
        target = os.path.realpath(path)
        streams.note(
            f"skipped {path}: it is a symbolic link to {target}, outside {root}; to check it, name it on the command line"
        )
    else:
        return True
    return False
