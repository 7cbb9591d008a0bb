"""The trainer's own images: is the one that matches the sources in the registry, and which one do triggered runs use?"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from fnmatch import fnmatchcase

from vertexrig import times
from vertexrig.cloud import vertex
from vertexrig.cloud.registry import ENDPOINT_VARIABLE, ArtifactRegistry
from vertexrig.cloud.storage import Storage
from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded
from vertexrig.workspace import Workspace


class NoImageError(UsageError):
    """The image of the trainer as it is now is not in the registry."""


def pointer(loaded: Loaded, kind: str) -> str:
    """Return the object of a trigger that names its last image for cpu, gpu or tpu."""
    return f"{loaded.project.trigger.prefix}/images/{loaded.project.trainer.module}-{kind}.json"


def is_ours(loaded: Loaded, kind: str, uri: str) -> bool:
    """Whether a URI is an image that this project makes."""
    from vertexrig.package.image import patterns

    return fnmatchcase(uri, patterns(loaded)[kind])


def is_local() -> bool:
    """Whether jobs go to the local Vertex, which runs the trainer's sources and pulls no image."""
    # the local Vertex looks at images if the variable names a registry
    return ENDPOINT_VARIABLE not in os.environ and vertex.is_local()


def record(workspace: Workspace, names: Sequence[str], storage: Storage) -> list[str]:
    """Make the images that jobs or sweeps run the ones that triggered runs use; their URIs. NoImageError if one is not in the registry."""
    images = {name: workspace.renderer.view(name).own_images for name in names}
    found = {kind: uri for one in images.values() for kind, uri in one.items()}
    if found and not is_local():
        registry = ArtifactRegistry()
        for kind, uri in found.items():
            if not registry.has(uri):
                name = next(name for name in names if kind in images[name])
                line = workspace.command_line("image", name, "--push")
                raise NoImageError(
                    f"{uri} is not in the registry: it was never pushed, or the sources have changed since the last push. Push it first:\n{line}"
                )
    # only when all of them are there, so that triggered runs never use half of a change
    for kind, uri in found.items():
        remember(workspace.loaded, kind, uri, storage)
    return list(found.values())


def remember(loaded: Loaded, kind: str, uri: str, storage: Storage) -> None:
    """Make an image the one that triggered runs use."""
    row = {"uri": uri, "module": loaded.project.trainer.module, "recorded": times.rfc3339(times.now(), 0)}
    storage.write(pointer(loaded, kind), json.dumps(row, indent=1).encode())
