"""`vertexrig function`: stage, serve and deploy the trigger."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from vertexrig.cli import options, steps, streams
from vertexrig.cli.groups import Group
from vertexrig.cli.local_shell import in_local_shell
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.project import config


@click.group("function", cls=Group)
def command() -> None:
    """Stage, serve and deploy the Cloud Function that starts jobs."""


@command.command("build")
@options.file_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder to write; by default build/function.")
@options.format_option("text", "json")
def build(file: Path | None, output: Path | None, format_: str) -> None:
    """Stage the function's folder and print its path."""
    from vertexrig.trigger import stage

    loaded = config.load(file)
    staged = stage.stage(loaded, output or loaded.path(stage.FOLDER))
    streams.note(f"{staged.files} files, {staged.size / 1024:.0f} KiB, {staged.requirements} packages to install")
    if output is None:
        streams.note(f"what deploys it, printed and not run:\n{steps.line('function', 'deploy', *steps.named(file))}")
    result(format_, {**asdict(staged), "folder": str(staged.folder)}, str(staged.folder))


@command.command("serve", short_help="Stage the function and serve it on this machine.")
@options.file_option
@click.option("--port", type=options.Integer(1, 65535), default=8080, show_default=True, help="Its port on 127.0.0.1.")
@click.option(
    "--target",
    type=click.Choice(["trigger", "on_event"]),
    default="trigger",
    show_default=True,
    help="Which function: trigger answers HTTP requests, on_event takes events.",
)
def serve(file: Path | None, port: int, target: str) -> None:
    """Stage the function and serve it on this machine with functions-framework, until interrupted. It answers only
    programs of this user, with JSON bodies, and no web page of another origin.

    Jobs go where VERTEXRIG_AIPLATFORM says; without it, to the local Vertex that runs in .vertexrig/. Never to the cloud.
    """
    from vertexrig.cli import extras
    from vertexrig.errors import UsageError
    from vertexrig.local import control, state
    from vertexrig.trigger import stage

    extras.need("functions_framework", "requests", "uvicorn")
    loaded = config.load(file)
    environment = dict(os.environ)
    # Without it the staged function would ask Google, with the credentials of whoever tries it out.
    if not environment.get("VERTEXRIG_AIPLATFORM"):
        here = state.find(loaded.path(config.STATE_FOLDER))
        if here is None:
            raise UsageError("no local Vertex runs here: start one with `vertexrig local up`")
        environment |= control.env(here)
    staged = stage.stage(loaded, loaded.path(stage.FOLDER))
    streams.note(f"serving {staged.folder} on http://127.0.0.1:{port}")
    # The script gets no folder of the tool on its path: the function imports the staged copy, as in the cloud.
    start = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    script = Path(__file__).with_name("function_server.py")
    words = [sys.executable, "-c", start, str(script), str(staged.folder), target, str(port)]
    sys.stdout.flush()
    # In place of this process, not below it: Ctrl-C and SIGTERM reach the server itself. What was printed is flushed
    # before, since the buffer goes with the process.
    os.execve(sys.executable, words, environment)


@command.command("package", short_help="Upload the trainer packages of triggered runs.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.file_option
@options.format_option("text", "json")
def package(names: tuple[str, ...], file: Path | None, format_: str) -> None:
    """Build and upload the trainer packages that triggered runs use: those of the jobs named, or of all.

    Jobs with `image: build` run the image that is in the registry now, which `vertexrig image NAME --push` makes.
    """
    from vertexrig.cli import remote
    from vertexrig.submit import submission

    workspace = options.workspace(file)
    storage = remote.bucket(workspace.loaded, "packages")
    uris = submission.publish(workspace, names or workspace.loaded.project.jobs, storage)
    result(format_, {"packages": uris}, "\n".join(uris))


@command.command("deploy", short_help="Print, or run, the gcloud commands that deploy it.")
@options.file_option
@click.option("--run", is_flag=True, help="Run the commands; without it they are printed.")
@options.format_option("text", "json")
def deploy(file: Path | None, run: bool, format_: str) -> None:
    """Stage the function and print, or run, the gcloud commands that deploy it and give it the roles it needs."""
    from vertexrig.trigger import deploy, stage

    if run and in_local_shell():
        raise UsageError(
            "this shell's jobs go to the local Vertex, and --run would deploy to Google Cloud: run it in another shell, or try "
            "the function here with `vertexrig function serve`"
        )
    loaded = config.load(file)
    staged = stage.stage(loaded, loaded.path(stage.FOLDER))
    plan = deploy.commands(loaded, staged.folder, staged.variables)
    rows = [{"why": step.why, "command": step.line, "outcome": None} for step in plan]
    if not run:
        result(format_, {"steps": rows}, "\n".join(f"# {row['why']}\n{row['command']}" for row in rows))
        return
    outcomes: dict[str, str] = {}
    for step, outcome in deploy.run(plan):
        streams.note(f"{outcome}: {step.why}")
        outcomes[step.line] = outcome
    result(format_, {"steps": [{**row, "outcome": outcomes.get(str(row["command"]))} for row in rows]}, "")
