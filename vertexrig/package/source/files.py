"""Where a trainer's source text comes from (a folder, one file, a built archive), and its modules as syntax trees.

Nothing here imports or runs what it reads.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from vertexrig.package.source.problem import SourceProblem

MAX_FILE_BYTES = 2_000_000
"""Source files above this size are reported and not parsed: hand-written modules are far smaller."""
ROOTS = ("", "src/", "python/", "lib/")
"""Where in a project folder its top-level packages usually are."""
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".whl", ".zip")


class Tree:
    """Python files by their path relative to the trainer's folder, with `/` between the parts.

    Args:
        folder: Read files from here when they are asked for, or
        files: have them all already.
        roots: Folders (with a closing `/`, or empty) that hold top-level packages.
    """

    def __init__(
        self, *, folder: Path | None = None, files: Mapping[str, bytes] | None = None, roots: tuple[str, ...] = ROOTS
    ) -> None:
        self._folder, self._files, self._roots = folder, files or {}, roots

    def read(self, path: str) -> bytes | None:
        """The bytes of one file, None if it does not exist; OSError if it cannot be read."""
        if self._folder is None:
            return self._files.get(path)
        file = self._folder / path
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)

    def exists(self, path: str) -> bool:
        """Whether `path` is a file."""
        return path in self._files if self._folder is None else (self._folder / path).is_file()

    def find(self, module: str) -> str | None:
        """The file of a dotted module name: `a/b.py` or `a/b/__init__.py`. `python -m` finds `my-job.py`, too."""
        parts = module.split(".")
        if not all(part.replace("-", "_").isidentifier() for part in parts):
            return None
        stem = "/".join(parts)
        for root in self._roots:
            for path in (f"{root}{stem}/__init__.py", f"{root}{stem}.py"):
                if self.exists(path):
                    return path
        return None

    def owns(self, top: str) -> bool:
        """Whether a top-level name is a module of this tree, or a folder with Python files."""
        return self.find(top) is not None or self.holds(top)

    def holds(self, module: str) -> bool:
        """Whether a dotted name is a folder with Python files (with or without an `__init__.py`)."""
        parts = module.split(".")
        if not all(part.isidentifier() for part in parts):
            return False
        for root in self._roots:
            prefix = root + "/".join(parts) + "/"
            if self._folder is None:
                if any(path.startswith(prefix) for path in self._files):
                    return True
            elif (self._folder / prefix).is_dir() and any((self._folder / prefix).glob("*.py")):
                return True
        return False

    def modules(self, limit: int = 300) -> list[str]:
        """Dotted names of modules here, for suggestions in messages: at most `limit`, hidden folders left out."""
        names: set[str] = set()
        for path in self._paths():
            root = max((root for root in self._roots if path.startswith(root)), key=len, default="")
            parts = list(PurePosixPath(path[len(root) :]).with_suffix("").parts)
            if parts and parts[-1] == "__init__":
                parts.pop()
            if parts and all(part.isidentifier() for part in parts):
                names.add(".".join(parts))
            if len(names) >= limit:
                break
        return sorted(names)

    def _paths(self) -> Iterator[str]:
        if self._folder is None:
            yield from (path for path in self._files if path.endswith(".py"))
            return
        for depth in ("*.py", "*/*.py", "*/*/*.py"):
            try:
                for file in self._folder.glob(depth):
                    relative = file.relative_to(self._folder).as_posix()
                    if not any(part.startswith(".") for part in relative.split("/")):
                        yield relative
            except OSError:  # a folder that may not be listed only costs suggestions
                continue


def open_tree(source: Path) -> tuple[Tree, str | None, list[SourceProblem]]:
    """The tree of a folder, a `.py` file or an archive; the entry file if `source` is one; what went wrong."""
    if source.is_dir():
        return Tree(folder=source), None, []
    if source.is_file() and source.name.endswith(_ARCHIVES):
        from vertexrig.package.source.archives import read_archive

        files, problem = read_archive(source, MAX_FILE_BYTES)
        return Tree(files=files), None, [SourceProblem(problem)] if problem else []
    if source.is_file():
        # `python task.py` puts the script's own folder on sys.path, so its siblings are its modules.
        return Tree(folder=source.parent, roots=("",)), source.name, []
    return Tree(files={}), None, [SourceProblem(f"there is no folder, file or archive {str(source)!r}")]


def parse_module(data: bytes, file: str) -> ast.Module | SourceProblem:
    """The syntax tree of a file's bytes, or the reason there is none."""
    if len(data) > MAX_FILE_BYTES:
        return SourceProblem(f"larger than {MAX_FILE_BYTES} bytes: not read", file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in someone else's file are not ours to print
            return ast.parse(data, filename=file)
    except SyntaxError as error:
        return SourceProblem(f"syntax error: {error.msg}", file, error.lineno, "syntax")
    except (ValueError, LookupError) as error:  # null bytes; an unknown or wrong encoding
        return SourceProblem(f"cannot be decoded: {error}", file)
    except (RecursionError, MemoryError):
        return SourceProblem("nested too deeply to be parsed", file)
