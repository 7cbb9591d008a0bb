"""Where the trainer's packages and images are, or will be once they are uploaded: their URIs, without building them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vertexrig.project.config import Loaded

if TYPE_CHECKING:
    from vertexrig.package.sources import Sources


class Uploaded(Protocol):
    """Gives the URIs of packages and images that were uploaded before, for the trigger, which has no trainer folder."""

    def package(self, tf_version: str | None) -> str:
        """Return the URI of the package for a TensorFlow version."""

    def image(self, kind: str) -> str:
        """Return the URI of the image for cpu, gpu or tpu."""


class Artifacts:
    """The packages and images of a project's trainer, each looked up once.

    Args:
        loaded: The project.
        uploaded: Gives their URIs; None to derive them from the trainer's folder.
    """

    def __init__(self, loaded: Loaded, uploaded: Uploaded | None = None) -> None:
        self.loaded, self._uploaded = loaded, uploaded
        self._packages: dict[str | None, str] = {}
        self._sources: dict[str | None, Sources] = {}
        self._images: dict[str, str] = {}

    def package(self, tf_version: str | None) -> str:
        """Return the URI of the trainer's package.

        Args:
            tf_version: The image's TensorFlow, such as "2.17"; None if it is not known.

        Raises:
            ConfigError: There is no bucket, or no trainer.
            PackageError: The trainer cannot be read as a package.
        """
        if tf_version in self._packages:
            return self._packages[tf_version]
        project = self.loaded.project
        if self._uploaded:
            uri = self._uploaded.package(tf_version)
        elif not project.bucket:
            raise self.loaded.error_at("bucket is needed: the trainer's package is uploaded there")
        else:
            from vertexrig.package.sources import identity_of

            identity = identity_of(self.sources(tf_version), project.trainer.package_mib)
            uri = f"{project.bucket.rstrip('/')}/packages/{identity.file_name}"
        self._packages[tf_version] = uri
        return uri

    def sources(self, tf_version: str | None) -> Sources:
        """Return what of the trainer's folder goes into its package for a TensorFlow version; errors as of `package`."""
        # imported here: it takes 20 to 35 ms, and the trigger, whose packages are uploaded, does not need it
        from vertexrig.package.sources import gather

        if tf_version not in self._sources:
            self._sources[tf_version] = gather(self.trainer_folder(), tf_version)
        return self._sources[tf_version]

    def trainer_folder(self) -> Path:
        """Return the trainer's folder or script; ConfigError if there is none."""
        from vertexrig.package import folders

        folder = self.loaded.path(self.loaded.project.trainer.path, "trainer", "path")
        if not folder.is_dir() and not folders.is_bare(folder):
            raise self.loaded.error_at(folders.absent(folder), "trainer", "path")
        return folder

    def image(self, kind: str) -> str:
        """Return the URI of the trainer's own image for cpu, gpu or tpu."""
        if kind not in self._images:
            if self._uploaded is not None:
                self._images[kind] = self._uploaded.image(kind)
            else:
                from vertexrig.package.image import identify_image

                self._images[kind] = identify_image(self.loaded, kind).uri
        return self._images[kind]

    @cached_property
    def framework(self) -> str:
        """The framework, such as `tf`, of the prebuilt image that runs the trainer: that of `trainer.build` in the project file, or else
        the one that the trainer imports; "" if there is none.
        """
        trainer = self.loaded.project.trainer
        if trainer.build.framework:
            return trainer.build.framework.partition("-")[0]
        from vertexrig.package.cache import read_trainer
        from vertexrig.package.recipes import framework_of

        folder = self.loaded.path(trainer.path, "trainer", "path")
        source = read_trainer(folder, trainer.module, self.loaded.output("build/cache"))
        return (framework_of(source) if source is not None else None) or ""
