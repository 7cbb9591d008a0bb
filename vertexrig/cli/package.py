"""`vertexrig package`: build the trainer's source package."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from vertexrig.cli import options, remote, streams
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.package import builder
from vertexrig.project.config import PACKAGES_FOLDER
from vertexrig.project.model import Job
from vertexrig.workspace import Workspace


@click.command("package")
@click.argument("name", required=False)
@options.project_options
@click.option("--trainer", type=click.Path(path_type=Path), help="Folder of the trainer; by default the project's.")
@click.option(
    "--tf-version",
    metavar="VERSION",
    help="TensorFlow version of the image, such as 2.17; by default that of the job's image.",
)
@click.option("--output-dir", type=click.Path(path_type=Path), help="Folder to write to; by default build/packages.")
@click.option("--wheel", is_flag=True, help="Also build a wheel, for containers without access to a package index.")
@click.option(
    "--verify/--no-verify",
    default=True,
    show_default=True,
    help="Build a wheel of the package and check its imports, without running it.",
)
@click.option(
    "--trust", is_flag=True, help="Let the build run the trainer's setup.py or build backend, until it changes."
)
@click.option("--upload", is_flag=True, help="Upload the package to the project's bucket, if it is not there yet.")
@options.format_option("text", "json")
def command(
    name: str | None,
    project: options.ProjectOptions,
    trainer: Path | None,
    tf_version: str | None,
    output_dir: Path | None,
    wheel: bool,
    trust: bool,
    verify: bool,
    upload: bool,
    format_: str,
) -> None:
    """Build the trainer package for the image of job NAME (or for trainer.image), and print its path.

    The package's name has a hash of the sources, so a second build of the same sources does nothing. With --upload its
    gs:// URI is printed, too. To upload to another server than Cloud Storage, set STORAGE_EMULATOR_HOST.
    """
    if upload and (trainer or tf_version):
        raise UsageError(
            "--upload is for the packages that the project's jobs use: leave out --trainer and --tf-version"
        )
    workspace = project.workspace(name)
    loaded = workspace.loaded
    module = loaded.project.trainer.module
    if name is not None:
        found = loaded.runnable(name)
        job = found if isinstance(found, Job) else loaded.project.jobs[found.job]
        module = job.module or module
    make = partial(
        builder.build,
        trainer or loaded.path(loaded.project.trainer.path, "trainer", "path"),
        output_dir or loaded.output(PACKAGES_FOLDER),
        tf_version=tf_version or workspace.renderer.tf_version(name),
        module=module,
        verify=verify,
        wheel=wheel,
        most_mib=loaded.project.trainer.package_mib,
    )
    try:
        built = make(trusted=trust)
    except builder.SetupRunsError as error:
        if not (sys.stdin.isatty() and click.confirm(f"{error}\nRun it?", err=True)):
            raise
        built = make(trusted=True)
    for warning in built.warnings:
        streams.note(f"warning: {warning}")
    streams.note("built" if built.fresh else "already built: the sources have not changed")
    uris = _upload(workspace, name) if upload else []
    paths = {"path": str(built.path), "wheel": str(built.wheel) if built.wheel else None}
    data = {**paths, "version": built.id.version, "digest": built.id.digest, "fresh": built.fresh, "uris": uris}
    result(
        format_,
        {**data, "warnings": list(built.warnings)},
        "\n".join([*(path for path in paths.values() if path), *uris]),
    )


def _upload(workspace: Workspace, name: str | None) -> list[str]:
    """Upload the packages of a job or sweep, or the one for trainer.image; return their URIs."""
    from vertexrig.submit import publish  # 28 ms

    storage = remote.bucket(workspace.loaded, "packages")
    if name is None:
        wanted = {workspace.renderer.tf_version(): {workspace.loaded.project.trainer.module}}
        return publish.upload(workspace, wanted, storage)
    uris = publish.upload_packages(workspace, [name], storage)
    if not uris:
        streams.note(f"nothing was uploaded: {name} does not use a package of the project's trainer")
    return uris
