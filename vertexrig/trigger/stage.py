"""The function's folder: main.py, requirements pinned by version and hash, the tool's source, templates and the project file, and no more.

Google's schema is in the tool's source as data (`vertexrig/spec/aiplatform_v1.json`), so nothing is installed for it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vertexrig.errors import UsageError
from vertexrig.files import is_inside, revision
from vertexrig.project import caller_overrides, environments
from vertexrig.project.config import DEFAULT_NAME, STATE_FOLDER, TEMPLATE_SUFFIX, Loaded
from vertexrig.project.model import PREBUILT
from vertexrig.render.renderer import built_in_templates
from vertexrig.trigger.app import REVISION

SERVED = f"{STATE_FOLDER}/function"
"""File with the URL at which `function serve` served the function last."""
PORT = 8080
"""Where it serves by default."""
TOOL = Path(__file__).resolve().parents[1]  # the package vertexrig
_MARK = ".vertexrig-function"
# functions, templates and fidelity lie inside vertexrig only where it is installed: main.py and the templates are copied by
# themselves. A function needs neither the command line nor what only a person's machine needs: deploying, status,
# explaining a job, importing one, reports.
_LEFT_OUT = {"cli", "explain", "functions", "library", "templates", "fidelity", "__pycache__", "*.pyc", "*.so"}
_LEFT_OUT |= {"alerts.py", "deploy.py", "doctor.py", "schedules.py", "stage.py", "schedule_status.py", "submitted.py"}
_LEFT_OUT |= {"convert.py", "pull.py", "charts.py", "html.py", "emulator.py", "guard.py", "terraform.py", "changes.py"}
_LEFT_OUT |= {"backfill.py", "fix.py", "methods.tsv", "*.binpb"}
_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)")


@dataclass(frozen=True)
class Staged:
    """A staged folder.

    Args:
        size: Bytes of them all.
        variables: Environment variables that its project file names.
    """

    folder: Path
    files: int
    size: int
    requirements: int
    variables: tuple[str, ...]


def stage(loaded: Loaded, folder: Path) -> Staged:
    """Make the function's folder anew.

    Args:
        folder: Where to; what an earlier call left there is replaced.

    Raises:
        ConfigError: The project's `trigger:` opens what must stay closed.
        UsageError: The folder holds something else, or the tool's files are not complete.
    """
    caller_overrides.check_rules(loaded)
    if PREBUILT in loaded.project.image_names and not loaded.project.trainer.build.framework:
        raise loaded.error_at(
            "an image is `prebuilt`, and the function has no trainer source from which to detect the framework: write "
            "build: {framework: tf} under trainer",
            "trainer",
        )
    source = _shipped_function()
    _empty(folder, loaded)
    # right after the folder: a build that is cut short leaves one that the next build may replace
    (folder / _MARK).write_text("Made by `vertexrig function build`, which replaces this folder.\n", encoding="utf-8")
    shutil.copytree(TOOL, folder / "vertexrig", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in ("main.py", "requirements.txt"):
        shutil.copyfile(source / name, folder / name)
    _copy(built_in_templates().glob(f"*{TEMPLATE_SUFFIX}"), folder / "templates")
    text = loaded.file.read_text(encoding="utf-8")
    (folder / DEFAULT_NAME).write_text(text, encoding="utf-8")
    if loaded.env:  # with the whole file, whose comments may hide findings
        (folder / environments.STAGED).write_text(loaded.env, encoding="utf-8")
        text = json.dumps(loaded.chosen.merged, default=str)
    if found := revision(loaded.folder):
        (folder / REVISION).write_text(found, encoding="utf-8")
    _project_files(loaded, folder)
    files = [file for file in folder.rglob("*") if file.is_file()]
    lines = (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return Staged(
        folder,
        len(files),
        sum(file.stat().st_size for file in files),
        sum("==" in line for line in lines),
        tuple(dict.fromkeys(_VARIABLE.findall(text))),
    )


def archive(staged: Staged) -> tuple[str, bytes]:
    """Return the folder as a zip archive, and its name, which has the archive's hash: the same files give the same archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(staged.folder.rglob("*")):
            if file.is_file():
                entry = zipfile.ZipInfo(file.relative_to(staged.folder).as_posix())
                entry.external_attr = 0o644 << 16
                packed.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return f"source-{hashlib.sha256(data.getvalue()).hexdigest()[:12]}.zip", data.getvalue()


def _empty(folder: Path, loaded: Loaded) -> None:
    """Make a new folder; one that is there goes only if it was staged, which no folder of a user's own looks like."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: choose another folder")
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).is_file():
        raise UsageError(f"{folder} holds something that is not a built function: choose another folder, or empty it")
    if folder.resolve() in loaded.file.resolve().parents:
        raise UsageError(f"{folder} holds the project file: choose another folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _shipped_function() -> Path:
    """Return the folder with main.py, in an installed tool and in a plain checkout."""
    found = next((folder for folder in (TOOL / "functions", TOOL.parent / "functions") if folder.is_dir()), TOOL)
    if not (found / "main.py").is_file():
        raise UsageError(f"the function's main.py is not in {found}: install vertexrig anew")
    return found


def _project_files(loaded: Loaded, folder: Path) -> None:
    """Return what else the project file names: its templates, and rows of the catalog."""
    project = loaded.project
    if project.templates:
        own = loaded.path(project.templates, "templates")
        for file in own.glob(f"*{TEMPLATE_SUFFIX}"):
            if not (file.is_file() and is_inside(file, own)):
                raise UsageError(
                    f"{file} is not a regular file inside the project's folder, so the function cannot contain it. Copy the file "
                    "there instead of linking it"
                )
        _copy(own.glob(f"*{TEMPLATE_SUFFIX}"), _inside(folder, project.templates))
    if project.catalog:
        target = _inside(folder, project.catalog)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(loaded.path(project.catalog, "catalog"), target)


def _inside(folder: Path, name: str) -> Path:
    target = folder / name
    if Path(name).is_absolute() or folder.resolve() not in target.resolve().parents:
        raise UsageError(
            f"{name} is not below the project file's folder, so the function cannot have it; move it there"
        )
    return target


def _copy(files: Iterable[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(file, folder / file.name)
