"""`vertexrig image`: write, build and push the image of the trainer."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig.cli import extras, options, streams
from vertexrig.cli.arguments import NameArgument
from vertexrig.cli.output import result
from vertexrig.cloud.storage import Storage
from vertexrig.errors import JobFailedError, UsageError, VertexrigError
from vertexrig.project.config import Loaded
from vertexrig.submit import images
from vertexrig.trigger import deploy

if TYPE_CHECKING:
    from vertexrig.package.image import ImageId

PLAN, BUILD, PUSH = "plan", "build", "push"
# mode -> the programs that can do it, the preferred one first
_PROGRAMS = {BUILD: ("docker", "gcloud"), PUSH: ("gcloud", "docker")}
_INSTALL = {
    "docker": "Docker (https://docs.docker.com/engine/install/)",
    "gcloud": "gcloud (https://cloud.google.com/sdk/docs/install)",
}


@dataclass(frozen=True)
class _Made:
    """An image whose files are written."""

    image: ImageId
    folder: Path
    commands: dict[str, list[list[str]]]


@click.command("image")
@click.argument("name", cls=NameArgument)
@options.project_options
@click.option(
    "--plan", "mode", flag_value=PLAN, default=True, help="Write the files and print the commands (the default)."
)
@click.option(
    "--build",
    "mode",
    flag_value=BUILD,
    help="Build the image with Docker. If Docker is not installed, use Cloud Build, which also pushes it.",
)
@click.option(
    "--push",
    "mode",
    flag_value=PUSH,
    help="Build and push the image with Cloud Build, or with Docker if gcloud is not installed.",
)
@click.option("--lock", is_flag=True, help="Resolve the requirements again to the newest versions that fit.")
@options.format_option("text", "json")
def command(
    name: str,
    project: options.ProjectOptions,
    mode: str,
    lock: bool,
    format_: str,
) -> None:
    """Write the Dockerfile, the lock file and the Cloud Build config of the image that job or sweep NAME runs, and print the image's URI.

    NAME needs `image: build` in the project file. The image's tag is a hash of the trainer's sources, the lock file and the
    Dockerfile. uv makes the lock file if it is missing or the requirements have changed. Commit the lock file.
    """
    workspace = project.workspace(name)
    loaded = workspace.loaded
    kinds = list(workspace.renderer.view(name).own_images)
    if not kinds:
        raise UsageError(
            f"{name} does not run an image that vertexrig builds: write `image: build` under `trainer` or under the job"
        )
    if mode != PLAN and not images.is_local():
        loaded.require_environment()
    made = [_make(loaded, kind, lock) for kind in kinds]
    if mode == PLAN:
        _show(loaded, made)
    else:
        _do(loaded, made, mode)
    rows: list[dict[str, Any]] = [
        {
            "uri": one.image.uri,
            "kind": one.image.kind,
            "folder": str(one.folder),
            "lock": str(one.image.lock),
            "commands": one.commands,
        }
        for one in made
    ]
    result(format_, {"images": rows, "done": mode}, "\n".join(one.image.uri for one in made))


def _do(loaded: Loaded, made: list[_Made], mode: str) -> None:
    """Build the images, and push them if asked for, or if Cloud Build builds them."""
    local = images.is_local()
    program = None if local and mode == PUSH else _program(mode)
    if local and program != "docker":  # the local Vertex does not replace Cloud Build
        streams.note("nothing is built or pushed: the local Vertex runs the trainer's sources")
        for one in made:
            _remember(loaded, one.image)
        return
    for one in made:
        _run(loaded, one, str(program), pushed=mode == PUSH or program == "gcloud")


def _make(loaded: Loaded, kind: str, renew: bool) -> _Made:
    """Bring the lock file up to date, and write the build context."""
    from vertexrig.package import image, locking  # 50 ms

    made, package = image.identify_image(loaded, kind), locking.wheel_of(loaded)
    for warning in package.warnings:
        streams.note(f"warning: {warning}")
    assert package.wheel is not None
    # A digest of these lines is kept in the lock: the same digest means that the lock is current.
    lines = locking.inputs(loaded, kind, package.wheel)
    if renew or not locking.is_current(made, lines):
        streams.note(f"resolving {len(lines)} requirements for Python {made.python}")
        locking.write_lock(made, lines)
        streams.note(f"wrote {made.lock}: commit it")
        # Again: the text of the lock is part of the hash, which is the tag.
        made = image.identify_image(loaded, kind)
    for sentence in image.system_packages(made, loaded.project.trainer.build.apt):
        streams.note(f"note: {sentence}")
    folder = image.stage(made, package.wheel, loaded.output(f"{image.FOLDER}/{made.name.partition(':')[0]}"))
    streams.note(f"wrote {folder}")
    project = loaded.project
    return _Made(made, folder, image.build_commands(made, folder, project.project, project.region))


def _program(mode: str) -> str:
    """Return the program for a mode.

    Raises:
        UsageError: None is installed.
    """
    found = next((program for program in _PROGRAMS[mode] if shutil.which(program)), None)
    if found is None:
        missing = " and ".join(_INSTALL[program] for program in _PROGRAMS[mode])
        raise UsageError(f"neither docker nor gcloud is on the PATH, and --{mode} needs one of them: install {missing}")
    return found


def _run(loaded: Loaded, made: _Made, program: str, *, pushed: bool) -> None:
    """Run the commands that make an image; once it is in the registry, triggered runs use it.

    Raises:
        JobFailedError: A command failed.
    """
    if pushed and loaded.project.bucket:
        extras.need("requests")  # before anything is built
    if pushed:
        for step in deploy.registry_steps(loaded) if program == "gcloud" else ():
            # Where this succeeds the step was done before; gcloud fails at creating what is there.
            if deploy.is_done(step):
                continue
            _command(list(step.words))
    words = made.commands[program]
    # The first builds, the others push.
    for line in words if pushed else words[:1]:
        streams.note(shlex.join(line))
        _command(line)
    if pushed:
        # After the push, so that no triggered run asks for an image that the registry does not have yet.
        _remember(loaded, made.image)


def _command(words: list[str]) -> None:
    # the output goes to stderr: a script reads only this verb's result from stdout
    if subprocess.run(words, stdout=2, check=False).returncode != 0:
        raise JobFailedError(f"this command failed: {shlex.join(words)}")


def _remember(loaded: Loaded, image: ImageId) -> None:
    if not loaded.project.bucket:
        return
    try:
        images.remember(loaded, image.kind, image.uri, Storage(loaded.project.bucket, location=loaded.project.region))
    except VertexrigError as error:
        streams.note(
            f"warning: triggered runs still use the previous image; to change that, run `vertexrig function package`: {error}"
        )


def _show(loaded: Loaded, made: list[_Made]) -> None:
    """Show the commands that would run."""
    streams.note("once for the project:")
    for step in deploy.registry_steps(loaded):
        streams.note(f"  {step.line}", for_paste=True)
    for one in made:
        for program, lines in one.commands.items():
            streams.note(f"with {program}:")
            for line in lines:
                streams.note(f"  {shlex.join(line)}", for_paste=True)
