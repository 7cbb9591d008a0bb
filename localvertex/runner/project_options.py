"""What the project file says of runs on this machine, as options of a run."""

from __future__ import annotations

from dataclasses import replace

from localvertex.runner.options import RunOptions, TrainerSources
from localvertex.runner.pythons import interpreters
from vertexrig.catalog import load
from vertexrig.errors import VertexrigError
from vertexrig.package import image
from vertexrig.project.config import PACKAGES_FOLDER, Loaded


def of_project(loaded: Loaded) -> RunOptions:
    """Return what the project file's `local:` names: interpreters and images, with their folders as absolute paths."""
    local = loaded.project.local
    images = {
        name: replace(image, path=str(loaded.path(image.path, "local", "images").resolve()))
        for name, image in local.images.items()
    }
    return RunOptions(interpreters=interpreters(loaded, load), images=images, built=_built(loaded), warm=local.warm)


def _built(loaded: Loaded) -> dict[str, TrainerSources]:
    """Pattern of each image that `vertexrig image` makes -> the trainer's sources."""
    trainer = loaded.project.trainer
    folder = loaded.path(trainer.path, "trainer", "path").resolve()
    # Defaults without a project file have a trainer's path, too, and it leads nowhere.
    if not loaded.file.name or not folder.exists():
        return {}
    found = {}
    for kind, pattern in image.patterns(loaded).items():
        try:
            made = image.describe_image(loaded, kind)
        except VertexrigError:
            continue  # there is no image of that kind
        found[pattern] = TrainerSources(
            str(folder),
            trainer.module,
            str(loaded.output(PACKAGES_FOLDER).resolve()),
            made.framework,
            made.version,
            made.python,
        )
    return found
