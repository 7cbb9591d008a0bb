"""What a trainer's package is called, known from its sources without building it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vertexrig.package.sources import Sources, gather


@dataclass(frozen=True)
class PackageId:
    """What a package is called, known without building it.

    Args:
        name: The distribution's name; `trainer` if setup.py computes it.
        version: Its version with the hash as local part: `0.1.0+1f0c8de2a4b7`. The public part is `0` if setup.py computes it.
        digest: The hash alone: 12 hexadecimal digits over the sources and pins.
        file_name: The file's name: `trainer-0.1.0+1f0c8de2a4b7.tar.gz`.
    """

    name: str
    version: str
    digest: str
    file_name: str


def identify(folder: Path | str, *, tf_version: str | None = None) -> PackageId:
    """The identity of the package that `build` would make, without building it.

    It depends on the paths and bytes of the sources and on the tf-keras pin, not on where the folder is, on times, caches,
    build products, tests, or hidden files.

    Args:
        folder: The trainer's folder.
        tf_version: TensorFlow of the image, `2.17` or `2.17.1`; None leaves the requirements as they are.

    Raises:
        PackageError: No such folder, nothing to package, a file that cannot be read.
    """
    return identity_of(gather(Path(folder), tf_version))


def identity_of(sources: Sources) -> PackageId:
    """The identity of a package with these sources."""
    name = re.sub(r"[-_.]+", "_", sources.name).lower()
    # Setup scripts may use any version; a file's name only needs to be safe in a URI and for pip.
    public = re.sub(r"[^A-Za-z0-9.+]+", ".", sources.version).strip(".") or "0"
    digest = sources.digest()
    version = f"{public}{'.' if '+' in public else '+'}{digest}"
    return PackageId(sources.name, version, digest, f"{re.sub(r'[^a-z0-9_]', '_', name)}-{version}.tar.gz")
