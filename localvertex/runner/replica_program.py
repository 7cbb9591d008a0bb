"""The program of a worker pool, and the command line that it comes to for a replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localvertex.runner.children import can_cover, can_show_buckets
from localvertex.runner.containers import Container
from localvertex.runner.environment import bucket_folder, map_paths
from localvertex.runner.packages import InstallationLog
from vertexrig.spec.cluster import expand

Variables = Mapping[str, str]

_UNSEEN = (
    "paths below /gcs work only in arguments and variables: this system does not allow mount namespaces. Files that the trainer's code "
    "writes below /gcs reach no bucket. Read the AIP_ variables, or allow user namespaces (in a container: --security-opt "
    "seccomp=unconfined)"
)
_SHARED = (
    "all replicas and trials run in the folder {} itself, and see what the others write there: this system cannot give each "
    "replica a version of its own"
)


@dataclass(frozen=True)
class ReplicaProgram:
    """How the replicas of a pool are started.

    Args:
        head: Program and the arguments before the spec's own.
        args: The spec's arguments, before `$(NAME)` and paths are replaced.
        folders: Put in front of PATH.
        cwd: The folder that stands in for the image's files, its working directory; None for an empty one.
        container: What runs the image as itself, None where a program of this machine stands in for it.
        settings: Variables that imitate a property of the image, such as TF_USE_LEGACY_KERAS.
        version_difference: A sentence on how the versions of a stand-in differ from those of the image, "" if they do not.
        notes: A sentence for each other thing that replaces the image or what it would install; empty ones do not count.
        framework: The image's framework, "" if that is not known.
        sources: The packages that hold the program; none if the program is in `cwd`.
        installs: It may run pip, whose packages are then the replica's own.
        broken: What its packages did to the framework of this machine, "" if nothing.
        installation: What pip printed when they were installed.
    """

    head: tuple[str, ...]
    args: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    cwd: Path | None = None
    container: Container | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    version_difference: str = ""
    notes: tuple[str, ...] = ()
    framework: str = ""
    sources: tuple[Path, ...] = ()
    installs: bool = False
    broken: str = ""
    installation: InstallationLog = field(default_factory=list)

    def argv(self, variables: Variables, buckets: Path | str, *, keep_gs: bool = False) -> list[str]:
        """Return the command line of a replica that has these variables."""
        return [map_paths(expand(arg, variables), buckets, keep_gs=keep_gs) for arg in (*self.head, *self.args)]

    def gcs(self, root: Path) -> str:
        """Return the folder to show the replicas as /gcs, "" where that cannot be; an engine does it for an image."""
        return "" if self.container or not can_show_buckets() else str(bucket_folder(root))

    @property
    def covered(self) -> bool:
        """Whether each replica has its own version of `cwd`, which is left as it is."""
        return self.cwd is not None and can_cover(self.cwd)

    @property
    def differences(self) -> tuple[str, ...]:
        """A sentence for each thing that is different here; empty ones do not count."""
        unseen = _UNSEEN if not self.container and not can_show_buckets() else ""
        shared = _SHARED.format(self.cwd.name) if self.cwd is not None and not self.covered else ""
        return (self.version_difference, *self.notes, unseen, shared)
