"""What to start for a worker pool: `python -m module` in its environment, a Docker container, or a mapped folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from vertexrig.catalog import load
from vertexrig.errors import JobFailedError, PackageError
from vertexrig.local.runner import keras2, packages
from vertexrig.local.runner.children import shows_buckets
from vertexrig.local.runner.environment import bucket_folder, local_path, map_paths
from vertexrig.local.runner.options import RunOptions, TrainerSources, first_match
from vertexrig.package import builder
from vertexrig.package.recipes import DISTRIBUTIONS
from vertexrig.project.model import LocalImage
from vertexrig.spec.cluster import expand
from vertexrig.spec.document import Pool

Variables = Mapping[str, str]
_REDUCTION = Path(__file__).with_name("reduction.py")

_UNSEEN = (
    "a folder for /gcs in arguments and variables only: this system has no mount namespaces for programs, so what the "
    "trainer's own code writes below /gcs is in no bucket"
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
        substitutes: A sentence for each thing that replaces the image or what it would install.
    """

    head: tuple[str, ...]
    args: tuple[str, ...]
    folders: tuple[Path, ...] = ()
    cwd: Path | None = None
    image: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    substitutes: tuple[str, ...] = ()

    def argv(self, variables: Variables, buckets: Path | str, *, keep_gs: bool = False) -> list[str]:
        """The command line of a replica that has these variables."""
        return [map_paths(expand(arg, variables), buckets, keep_gs=keep_gs) for arg in (*self.head, *self.args)]

    def gcs(self, root: Path) -> str:
        """The folder to show the replicas as /gcs, "" where that cannot be; Docker does it for an image."""
        return "" if self.image or not shows_buckets() else str(bucket_folder(root))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each thing that is different here."""
        return self.substitutes if self.image or shows_buckets() else (*self.substitutes, _UNSEEN)


def _substitute(base: packages.Interpreter, image: str, built: TrainerSources | None = None) -> str:
    """One sentence on what an interpreter has in place of an image, "" if the image has the same versions."""
    prebuilt = load().image(image)
    if built is not None:
        name, framework, version, python = image.rpartition("/")[2], built.framework, built.version, built.python
    elif prebuilt is not None:
        name, framework, version, python = prebuilt.name, prebuilt.framework, prebuilt.version, prebuilt.python
    else:
        return f"Python {base.version} of this machine for the image {image}"
    parts = []
    if python and base.version.split(".")[:2] != python.split(".")[:2]:
        parts.append(f"Python {base.version} for {python}")
    distribution = DISTRIBUTIONS.get(framework, framework)
    here = base.installed.get(distribution)
    if here is None and framework:
        parts.append(f"no {distribution} for {version}" if version else f"no {distribution}")
    elif here is not None and version and here.split(".")[:2] != version.split(".")[:2]:
        parts.append(f"{distribution} {here} for {version}")
    return f"{' and '.join(parts)} of the image {name}" if parts else ""


@lru_cache(maxsize=1)
def docker() -> str:
    """The docker program, "" unless an engine answers it."""
    program = shutil.which("docker")
    if not program:
        return ""
    try:
        done = subprocess.run([program, "info", "--format", "{{.ID}}"], capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return program if done.returncode == 0 else ""


def prepare(
    pool: Pool,
    options: RunOptions,
    root: Path,
    env: Mapping[str, str],
    execute: packages.Execute,
    step: packages.Step,
    give_up: Callable[[], bool],
) -> ReplicaProgram:
    """Make ready what a pool runs: install its packages, or find its image; `env` is what pip sees, and
    `step` is called as `packages.layer` says.

    Raises:
        PackageError: A package is not there or does not install.
        JobFailedError: Nothing on this machine can run the image.
    """
    if load().is_reduction_server(pool.image) and first_match(options.images, pool.image) is None:
        note = "a program that does nothing for the Reduction Server, whose servers only make all-reduce between GPUs faster"
        return ReplicaProgram((sys.executable, "-I", "-S", str(_REDUCTION)), (), substitutes=(note,))
    base = packages.interpreter(first_match(options.interpreters, pool.image) or sys.executable)
    if pool.python is not None:
        files = [_package(uri, root) for uri in pool.package_uris]
        python = packages.layer(base, pool.image, files, root / "envs", env, execute, step, give_up)
        settings, keras = keras2.of_image(base, pool.image)
        notes = (_substitute(base, pool.image), packages.replaced(python), keras)
        return ReplicaProgram(
            (str(python), "-m", pool.module), tuple(pool.args), (python.parent,), settings=settings,
            substitutes=tuple(filter(None, notes)),
        )  # fmt: skip
    built = first_match(options.built, pool.image)
    if built is not None and first_match(options.images, pool.image) is None:
        file = builder.build(built.path, built.packages, module=built.module, verify=False).path
        python = packages.layer(base, pool.image.partition(":")[0], [file], root / "envs", env, execute, step, give_up)
        settings, keras = keras2.of_version(base, built.version if built.framework == "tf" else "")
        notes = (_substitute(base, pool.image, built), packages.replaced(python), keras)
        head = tuple((pool.container or {}).get("command", ())) or ("python", "-m", built.module)
        head = (str(python), *head[1:]) if head[0] in ("python", "python3") else head
        kept = tuple(filter(None, notes))
        return ReplicaProgram(head, tuple(pool.args), (python.parent,), settings=settings, substitutes=kept)
    command = tuple((pool.container or {}).get("command", ()))
    local = first_match(options.images, pool.image)
    if local is not None:
        return _mapped(local, command, tuple(pool.args), base, pool.image)
    if options.docker and docker():
        return ReplicaProgram(command, tuple(pool.args), image=pool.image)
    raise JobFailedError(
        f"image {pool.image!r} cannot be run here: no Docker engine answers, and no entry of the image map fits it. "
        f"Start Docker, or map the image to a folder and an entry point under local: images: in the project file; "
        f"`vertexrig check FILE --trainer FOLDER`, with the folder of its Dockerfile, prints the lines to put there"
    )


def _package(uri: str, root: Path) -> Path:
    path = local_path(uri, root)
    if not path.is_file():
        hint = (
            f"; copy it there with `gcloud storage cp` while pointed at the local Vertex (it is looked for at {path})"
            if uri.startswith("gs://")
            else ""
        )
        raise PackageError(f"CommandException: No URLs matched: {uri}{hint}")
    return path


def _mapped(
    local: LocalImage, command: Sequence[str], args: Sequence[str], base: packages.Interpreter, image: str
) -> ReplicaProgram:
    folder = Path(local.path)
    if not folder.is_dir():
        raise JobFailedError(f"image {image!r} is mapped to {folder}, which is not a folder")
    head = tuple(command) or local.command
    if not head:
        raise JobFailedError(
            f"image {image!r} is mapped to {folder} without an entry point, and the spec has no command"
        )
    note = f"folder {folder.name} and Python {base.version} of this machine for the image {image}"
    settings, keras = keras2.of_folder(base, image, folder)
    notes = tuple(filter(None, (note, keras)))
    return ReplicaProgram(head, tuple(args), (Path(base.python).parent,), folder, settings=settings, substitutes=notes)


def docker_argv(
    engine: str, name: str, program: ReplicaProgram, variables: Variables, own: Sequence[str], root: Path, gpus: bool
) -> list[str]:
    """The `docker run` command of a replica: `command` replaces ENTRYPOINT (and drops CMD), `args` replaces CMD.

    Args:
        engine: The docker program.
        name: Name of the container.
        program: What to run.
        variables: The replica's variables, for `$(NAME)`.
        own: Names of the variables the container gets, with the values docker finds in its own environment.
        root: The local Vertex's folder; its buckets are mounted at /gcs.
        gpus: Give the container the machine's GPUs.
    """
    argv = [engine, "run", "--rm", "--name", name, "--network", "host", "--volume", f"{bucket_folder(root)}:/gcs"]
    argv += ["--gpus", "all"] if gpus else []
    for variable in own:
        argv += ["--env", variable]
    words = program.argv(variables, "/gcs")
    if program.head:
        return [*argv, "--entrypoint", words[0], program.image, *words[1:]]
    return [*argv, program.image, *words]
