"""Where a trainer's source text comes from (a folder, one file, a built archive), and its modules as syntax trees.

Nothing here imports or runs what it reads.
"""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import cast

from vertexrig.files import is_inside
from vertexrig.trainer_source.trainer_model import SourceProblem

MAX_FILE_BYTES = 2_000_000
"""Source files above this size are reported and not parsed: hand-written modules are far smaller."""
ROOTS = ("", "src/", "python/", "lib/")
"""Where in a project folder its top-level packages usually are."""
_ARCHIVES = (".tar.gz", ".tgz", ".tar", ".whl", ".zip")


class Tree:
    """Python files by their path relative to the trainer's folder, with `/` between the parts.

    Args:
        folder: Read files from this folder on demand.
        files: Use these contents instead of a folder.
        roots: Folders (with a closing `/`, or empty) that hold top-level packages.
    """

    def __init__(
        self, *, folder: Path | None = None, files: Mapping[str, bytes] | None = None, roots: tuple[str, ...] = ROOTS
    ) -> None:
        self._folder, self._files, self._roots = folder, files or {}, roots
        self._parsed: dict[str, ast.Module | SourceProblem] = {}

    def parse(self, path: str) -> ast.Module | SourceProblem:
        """Return the syntax tree of one file, or the reason there is none; each file is parsed once. OSError as of `read`."""
        if path not in self._parsed:
            data = self.read(path)
            self._parsed[path] = SourceProblem("cannot be found", path) if data is None else parse_module(data, path)
        return self._parsed[path]

    def read(self, path: str) -> bytes | None:
        """Return the bytes of one file, None if it does not exist; OSError if it cannot be read."""
        if self._folder is None:
            return self._files.get(path)
        file = self._folder / path
        if not self.exists(path):
            return None
        with file.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)

    def exists(self, path: str) -> bool:
        """Whether `path` is a file inside the checkout."""
        if self._folder is None:
            return path in self._files
        return (self._folder / path).is_file() and is_inside(self._folder / path, self._folder)

    def places(self, module: str, *endings: str) -> Iterator[str]:
        """Yield the possible files of a module; nothing if the name is not a dotted name. `python -m` finds `my-job.py`, too."""
        parts = module.split(".")
        if all(part.replace("-", "_").isidentifier() for part in parts):
            yield from (f"{root}{'/'.join(parts)}{ending}" for root in self._roots for ending in endings)

    def find(self, module: str) -> str | None:
        """Return the file of a dotted module name: `a/b.py` or `a/b/__init__.py`."""
        return next((path for path in self.places(module, "/__init__.py", ".py") if self.exists(path)), None)

    def owns(self, top: str) -> bool:
        """Whether a top-level name is a module of this tree, or a folder with Python files."""
        return self.find(top) is not None or self.holds(top)

    def holds(self, module: str) -> bool:
        """Whether a dotted name is a folder with Python files (with or without an `__init__.py`)."""
        if "-" in module:
            return False
        if self._folder is None:
            return any(path.startswith(prefix) for prefix in self.places(module, "/") for path in self._files)
        folders = (self._folder / path for path in self.places(module, ""))
        return any(folder.is_dir() and any(folder.glob("*.py")) for folder in folders)

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
    """Return the tree of a folder, a `.py` file or an archive; the entry file if `source` is one; what went wrong."""
    if source.is_dir():
        return Tree(folder=source), None, []
    if source.is_file() and source.name.endswith(_ARCHIVES):
        from vertexrig.trainer_source.archives import read_archive  # tarfile and zipfile take 20 ms

        files, problem = read_archive(source, MAX_FILE_BYTES)
        return Tree(files=files), None, [SourceProblem(problem)] if problem else []
    if source.is_file():
        # `python task.py` puts the script's own folder on sys.path, so its siblings are its modules.
        return Tree(folder=source.parent, roots=("",)), source.name, []
    return Tree(files={}), None, [SourceProblem(f"there is no folder, file or archive {str(source)!r}")]


# Two threads in ast.parse disturb each other's count of depth: "AST constructor recursion depth mismatch"
# (CPython gh-106905, seen with 3.11.7 where two trials started at once).
_PARSER = threading.Lock()


def parse(data: bytes | str, filename: str = "<text>", mode: str = "exec") -> ast.AST:
    """Return `ast.parse` of it, from one thread at a time, without warnings about code that is not ours."""
    with _PARSER, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(data, filename, mode)


def parse_module(data: bytes, file: str) -> ast.Module | SourceProblem:
    """Return the syntax tree of a file's bytes, or the reason there is none."""
    if len(data) > MAX_FILE_BYTES:
        return SourceProblem(f"larger than {MAX_FILE_BYTES} bytes: not read", file)
    try:
        return cast(ast.Module, parse(data, file))
    except SyntaxError as error:
        return SourceProblem(f"syntax error: {error.msg}", file, error.lineno, "syntax")
    except (ValueError, LookupError) as error:  # null bytes; an unknown or wrong encoding
        return SourceProblem(f"cannot be decoded: {error}", file)
    except (RecursionError, MemoryError):
        return SourceProblem("nested too deeply to be parsed", file)
