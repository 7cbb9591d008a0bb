"""Find the trainer package and image in the bucket that a triggered run uses.

`vertexrig.submit.publish` and `images` write what is read here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from vertexrig.cloud.storage import Storage
from vertexrig.errors import UsageError
from vertexrig.project.config import Loaded

PACKAGES = "packages/"
# the pointer is an object of the bucket: it may name only an object below packages/
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}")


class NoPackageError(UsageError):
    """No trainer package was uploaded for the image of a triggered run."""


class UploadedArtifacts:
    """The trainer's packages and images that triggered runs use, as the bucket says, if they are intact."""

    def __init__(self, loaded: Loaded, storage: Storage) -> None:
        self.loaded, self.storage = loaded, storage

    def package(self, tf_version: str | None) -> str:
        """Return the last uploaded package for a TensorFlow version, if it is intact."""
        loaded, storage = self.loaded, self.storage
        found = storage.read_json(pointer(loaded, tf_version)) or {}
        uri = str(found.get("uri", ""))
        version = f"TensorFlow {tf_version}" if tf_version else "the image"
        if not uri:
            raise NoPackageError(
                f"no trainer package for {version} was uploaded: `vertexrig function package` uploads it"
            )
        name = uri.removeprefix(storage.uri(PACKAGES))
        if name == uri or not _PACKAGE.fullmatch(name) or not self._intact(PACKAGES + name, found):
            raise NoPackageError(
                f"the trainer package for {version} in {storage.uri(PACKAGES)} is missing or differs from the uploaded one: "
                "`vertexrig function package` uploads it again"
            )
        return uri

    def _intact(self, name: str, uploaded: Mapping[str, Any]) -> bool:
        """Whether an object is the one that was uploaded: any account that may write objects could put other code there.

        The bytes of a generation never change, so the recorded generation needs no download. An object of another generation is
        downloaded and its SHA-256 compared: the same package may have been uploaded twice, or copied.
        """
        if self.storage.generation(name) == uploaded.get("generation"):
            return True
        package = self.storage.read(name)
        return package is not None and hashlib.sha256(package.data).hexdigest() == uploaded.get("sha256")

    def image(self, kind: str) -> str:
        """Return the last image that was pushed for cpu, gpu or tpu."""
        from vertexrig.submit import images  # with the package's modules 40 ms, for a project that makes its images

        found = self.storage.read_json(images.pointer(self.loaded, kind)) or {}
        uri = str(found.get("uri", ""))
        if not images.is_ours(self.loaded, kind, uri):
            makes = "`vertexrig image NAME --push` makes it"
            if images.is_local():
                makes = 'in a shell with eval "$(vertexrig local env)", `vertexrig function package` takes it from the sources'
            raise NoPackageError(f"no {kind.upper()} image of the trainer was pushed: {makes}")
        return uri


def pointer(loaded: Loaded, tf_version: str | None) -> str:
    """Return the object of a trigger that names the last package uploaded for images of a TensorFlow version."""
    project = loaded.project
    return f"{project.trigger.prefix}/packages/{project.trainer.module}-tf-{tf_version or 'any'}.json"
