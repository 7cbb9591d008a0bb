"""The program of a worker pool, and the command line that it comes to for a replica: on this machine, or in Docker."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localvertex.runner.children import shows_buckets
from localvertex.runner.environment import bucket_folder, map_paths
from vertexrig.spec.cluster import expand

Variables = Mapping[str, str]

_UNSEEN = (
    "a folder for /gcs in arguments and variables only: this system has no mount namespaces for programs, so what the "
    "trainer's own code writes below /gcs is in no bucket; read the AIP_ variables there, or allow user namespaces (of a "
    "container: --security-opt seccomp=unconfined)"
)


@dataclass(frozen=True)
class ReplicaProgram:
    """How the replicas of a pool are started.

    Args:
        head: Program and the arguments before the spec's own.
        args: The spec's arguments, before `$(NAME)` and paths are replaced.
        folders: Put in front of PATH.
        cwd: Working directory; None for a replica's own scratch folder.
        image: The image, when Docker runs it.
        settings: Variables that replace what the image has in another way.
        substitutes: A sentence for each thing that replaces the image or what it would install; empty ones do not count.
        framework: Of the image, "" if that is not known.
        sources: The packages that hold the program; none where it is in `cwd`.
        installs: It may run pip, whose packages are then the replica's own.
        broken: What its packages did to the framework of this machine, "" if nothing.
    """

    head: tuple[str, ...]
    args: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    cwd: Path | None = None
    image: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    substitutes: tuple[str, ...] = ()
    framework: str = ""
    sources: tuple[Path, ...] = ()
    installs: bool = False
    broken: str = ""

    def argv(self, variables: Variables, buckets: Path | str, *, keep_gs: bool = False) -> list[str]:
        """Return the command line of a replica that has these variables."""
        return [map_paths(expand(arg, variables), buckets, keep_gs=keep_gs) for arg in (*self.head, *self.args)]

    def gcs(self, root: Path) -> str:
        """Return the folder to show the replicas as /gcs, "" where that cannot be; Docker does it for an image."""
        return "" if self.image or not shows_buckets() else str(bucket_folder(root))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each thing that is different here."""
        return self.substitutes if self.image or shows_buckets() else (*self.substitutes, _UNSEEN)


_engines: dict[str, float] = {}
"""By docker program: infinity once an engine answered, else the time from which one that hung is asked again."""
_AGAIN_S = 30.0


def docker() -> str:
    """Return the docker program, "" unless an engine answers it."""
    program = shutil.which("docker")
    if not program:
        return ""
    until = _engines.get(program, 0.0)
    if time.monotonic() < until:
        return program if until == math.inf else ""
    try:
        # `docker info` waits for an engine that starts or hangs.
        done = subprocess.run([program, "info", "--format", "{{.ID}}"], capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        _engines[program] = time.monotonic() + _AGAIN_S
        return ""
    except OSError:
        return ""
    if done.returncode != 0:
        return ""
    _engines[program] = math.inf
    return program


def docker_argv(
    engine: str,
    name: str,
    program: ReplicaProgram,
    variables: Variables,
    own: Sequence[str],
    volumes: Mapping[Path, str],
    gpus: bool,
) -> list[str]:
    """Return the `docker run` command of a replica: `command` replaces ENTRYPOINT (and drops CMD), `args` replaces CMD.

    Args:
        engine: The docker program.
        name: Name of the container.
        program: What to run.
        variables: The replica's variables, for `$(NAME)`.
        own: Names of the variables the container gets, with the values docker finds in its own environment.
        volumes: Folders of this machine, and where the container has them.
        gpus: Give the container the machine's GPUs.
    """
    # The host's network, because replicas find each other at ports of 127.0.0.1.
    argv = [engine, "run", "--rm", "--name", name, "--network", "host"]
    argv += [word for folder, place in volumes.items() for word in ("--volume", f"{folder}:{place}")]
    argv += ["--gpus", "all"] if gpus else []
    for variable in own:
        # The name alone: a value on the command line would be seen by every user of the machine.
        argv += ["--env", variable]
    words = program.argv(variables, "/gcs")
    if program.head:
        # --entrypoint takes one word; the rest of a command goes before the arguments.
        return [*argv, "--entrypoint", words[0], program.image, *words[1:]]
    return [*argv, program.image, *words]
