"""The trainer in a folder that nobody described yet: a project with a setup.py or pyproject.toml, a package, a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vertexrig.errors import PackageError, UsageError
from vertexrig.files import is_inside
from vertexrig.package import folders
from vertexrig.package.recipes import framework_of
from vertexrig.package.sources import least_python, requires_python
from vertexrig.text import command_line
from vertexrig.trainer_source.reader import read, read_tree
from vertexrig.trainer_source.source_tree import Tree
from vertexrig.trainer_source.trainer_model import TrainerSource

# "task" first: Google's examples for Vertex AI run `trainer.task`.
_ENTRIES = ("task", "train", "main", "__main__", "trainer", "run", "fit")
# launch.py starts a trainer, and may import a framework itself
_NOT_ENTRIES = frozenset({"setup", "conftest", "noxfile", "launch", "vertexrig"})
_NOT_LOOKED_INTO = frozenset({"build", "dist", "tests", "test", "docs", "venv", "env", "node_modules", "__pycache__"})
_KINDS = {"project": 3, "package": 2, "script": 1}


@dataclass(frozen=True)
class FoundTrainer:
    """A trainer.

    Args:
        path: What `trainer.path` should say, relative to the folder looked into.
        module: What `python -m` starts.
        kind: `project`, `package` or `script`.
        source: What was read of it.
        least_python: The Python that it needs, if no prebuilt image has it.
    """

    path: str
    module: str
    kind: str
    source: TrainerSource
    least_python: str = ""

    @property
    def framework(self) -> str | None:
        """`tf`, `pytorch`, `xgboost`, `jax` or `sklearn`, by what it imports; None if it imports none of them."""
        return framework_of(self.source)

    @property
    def score(self) -> tuple[int, int]:
        """How much it looks like what a job should run: it trains, reads flags, reports, and is named so."""
        source, name = self.source, self.module.rpartition(".")[2]
        signs = 4 * (self.framework is not None) + 2 * bool(source.parsers) + 2 * bool(source.metrics)
        signs += 2 * bool(source.environment)
        named = len(_ENTRIES) - _ENTRIES.index(name) if name in _ENTRIES else 0
        # Signs count first; the kind and the place in _ENTRIES only decide between trainers with the same.
        return signs + 3 * bool(named) if signs or named else 0, 10 * _KINDS[self.kind] + named


def trainers(folder: Path) -> list[FoundTrainer]:
    """Return the trainers in a folder and the folders right below it, the likeliest first."""
    found = [one for place in _places(folder) for one in _at(folder, place)]
    return sorted((one for one in found if one.score[0]), key=lambda one: one.score, reverse=True)


def trainer(folder: Path, path: Path) -> FoundTrainer:
    """Return the trainer at a path; UsageError if there is none."""
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    found = sorted(_at(folder, path), key=lambda one: one.score, reverse=True)
    if not found:
        if path.suffix == ".ipynb":
            raise UsageError(f"{path} is not a trainer, but a notebook: {script_of(path)}")
        raise UsageError(
            f"{path} is not a trainer{_why(folder / path)}: name a script such as train.py, the folder of a package, or one with a setup.py"
        )
    return found[0]


def script_of(notebook: Path) -> str:
    """Return a sentence with the command that makes a script of a notebook."""
    name = re.sub(r"\W+", "_", notebook.stem).strip("_") or "train"
    line = command_line("nbconvert", "--to", "script", notebook, "--output", name, program="jupyter")
    return f"`{line}` makes {name}.py of it"


def _why(path: Path) -> str:
    """Return what keeps a file from being a script, where that is plain."""
    if path.suffix == ".py" and not path.stem.isidentifier():
        plain = re.sub(r"\W+", "_", path.stem).strip("_") or "train"
        return f", since python -m takes no module of that name; rename it to {'_' * plain[0].isdigit()}{plain}.py"
    return ""


def _places(folder: Path) -> Iterator[Path]:
    """Projects, packages and scripts; what lies inside a project or package is its own."""
    if _described(folder):
        yield folder
        return
    yield from (file for file in sorted(folder.glob("*.py")) if is_inside(file, folder))
    for below in sorted(folder.iterdir()):
        if (
            not is_inside(below, folder)
            or not below.is_dir()
            or below.name.startswith(".")
            or below.name in _NOT_LOOKED_INTO
        ):
            continue
        # a virtual environment, whatever its name
        if (below / "pyvenv.cfg").exists():
            continue
        yield from [below] if _described(below) or folders.is_bare(below) else sorted(below.glob("*.py"))


def _described(folder: Path) -> bool:
    return any((folder / name).is_file() for name in folders.DESCRIPTIONS)


def _at(folder: Path, path: Path) -> list[FoundTrainer]:
    """Return every module of a place that may be what a job runs."""
    root = folders.module_root(path)
    here, above = path.absolute(), folder.absolute()
    shown = here.relative_to(above).as_posix() if here.is_relative_to(above) else str(path)
    if path.is_file():
        if not folders.is_bare(path) or path.stem in _NOT_ENTRIES:
            return []
        return [FoundTrainer(shown, path.stem, "script", read(root, path.stem))]
    kind = "package" if folders.is_bare(path) else "project"
    tree = Tree(folder=root)
    names = [name for name in tree.modules() if not _NOT_ENTRIES & set(name.split("."))]
    if kind == "package":
        names = [name for name in names if name.startswith(f"{path.resolve().name}.")]
    names = [name for name in names if not _NOT_LOOKED_INTO & set(name.split("."))]
    try:
        python = least_python(requires_python(path))
    except PackageError:
        python = ""  # the build says what is wrong
    return [FoundTrainer(shown, name, kind, read_tree(tree, None, name, []), python) for name in names]
