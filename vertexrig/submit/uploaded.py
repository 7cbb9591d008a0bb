"""The trainer's packages and images that lie in the bucket: which of them a triggered run uses.

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

PACKAGES, LATEST = "packages/", "packages/latest"
# the pointer lies in the bucket: what it names must be an object of packages/, and no path out of it
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
        version = f"TensorFlow {tf_version}" if tf_version else "its image"
        if not uri:
            raise NoPackageError(
                f"no trainer package for {version} was uploaded: `vertexrig function package` uploads it"
            )
        name = uri.removeprefix(storage.uri(PACKAGES))
        if name == uri or not _PACKAGE.fullmatch(name) or not self._intact(PACKAGES + name, found):
            raise NoPackageError(
                f"the trainer package for {version} is not the one that was uploaded to {storage.uri(PACKAGES)}: "
                "`vertexrig function package` uploads it again"
            )
        return uri

    def _intact(self, name: str, uploaded: Mapping[str, Any]) -> bool:
        """Tell whether an object is the one that was uploaded: whoever may write objects could put other code there.

        A generation never gets other bytes, so the one that the upload noted needs no look at them. Any other one is read: the same
        package may have been uploaded twice at one time, or copied, or noted by an earlier release, which kept the SHA-256 only.
        """
        if uploaded.get("generation") is not None and self.storage.generation(name) == uploaded["generation"]:
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
    """Return the object that names the last package uploaded for images of a TensorFlow version."""
    return f"{LATEST}/{loaded.project.trainer.module}-tf-{tf_version or 'any'}.json"
