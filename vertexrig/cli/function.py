"""`vertexrig function`: build, serve and deploy the trigger."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vertexrig import files
from vertexrig.cli import extras, next_commands, options, remote, streams
from vertexrig.cli.groups import Group
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.finding import Edit
from vertexrig.project import config, environments
from vertexrig.trigger import stage
from vertexrig.workspace import emulator

if TYPE_CHECKING:
    from vertexrig.trigger.deploy import DeployStep


_channel_option = click.option(
    "--channel",
    "channels",
    multiple=True,
    metavar="NAME",
    help="Notification channel of the alerts: projects/P/notificationChannels/ID.",
)


@click.group("function", cls=Group)
def command() -> None:
    """Build, serve and deploy the trigger, a Cloud Function that starts jobs."""


@command.command("build")
@options.file_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder to write to; by default build/function.")
@options.format_option("text", "json")
def build(file: Path | None, output: Path | None, format_: str) -> None:
    """Write the function's source folder, and print its path."""
    staged = _staged(remote.load(file, deployed=True), output)
    streams.note(f"{staged.files} files, {staged.size / 1024:.0f} KiB, {staged.requirements} packages to install")
    if output is None:
        streams.note(
            f"to print the commands that deploy it:\n{next_commands.line('function', 'deploy', *next_commands.named(file))}"
        )
    result(format_, {**asdict(staged), "folder": str(staged.folder)}, str(staged.folder))


def _staged(loaded: config.Loaded, output: Path | None = None) -> stage.Staged:
    """Return the built function of a project whose schedules can run."""
    if loaded.project.schedules:
        from vertexrig.trigger import schedules  # 60 ms

        schedules.check(loaded)
    return stage.stage(loaded, output or loaded.output(config.STAGED_FOLDER))


@command.command("serve", short_help="Build the function and serve it on this machine.")
@options.file_option
@click.option(
    "--port", type=options.Integer(1, 65535), default=stage.PORT, show_default=True, help="Port on 127.0.0.1."
)
@click.option(
    "--target",
    type=click.Choice(["trigger", "on_event"]),
    default="trigger",
    show_default=True,
    help="Function to serve: trigger answers HTTP requests, on_event takes events.",
)
def serve(file: Path | None, port: int, target: str) -> None:
    """Build the function and serve it on this machine with functions-framework, until interrupted.

    It answers only programs of this user that send JSON, and no web pages of other origins. Jobs go to the server that
    VERTEXRIG_AIPLATFORM names or, if it is not set, to the local Vertex of this project; never to Google Cloud by default.
    """
    extras.need("functions_framework", "requests", "uvicorn")
    loaded = config.load(file)
    environment = dict(os.environ)
    # Without it the staged function would send requests to Google with the credentials of the user.
    if not environment.get("VERTEXRIG_AIPLATFORM"):
        variables = emulator.load("vertexrig function serve").environment(loaded.output(config.STATE_FOLDER))
        if not variables:
            raise UsageError("the local Vertex is not running: start it with `vertexrig local up`")
        environment |= variables
    _must_be_free(port)
    staged = stage.stage(loaded, loaded.output(config.STAGED_FOLDER))
    files.write_text(loaded.output(stage.SERVED), f"http://127.0.0.1:{port}\n", below=loaded.folder)
    streams.note(f"starting the function in {staged.folder}")
    # The script gets no folder of the tool on its path: the function imports the staged copy, as in the cloud. Nor the
    # working directory, which is the project's.
    start = "import sys; sys.path[:] = filter(None, sys.path); import runpy; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"
    script = Path(__file__).with_name("function_server.py")
    words = [sys.executable, "-c", start, str(script), str(staged.folder), target, str(port)]
    sys.stdout.flush()
    # In place of this process, not below it: Ctrl-C and SIGTERM reach the server itself. What was printed is flushed
    # before, since the buffer goes with the process.
    os.execve(sys.executable, words, environment)


def _must_be_free(port: int) -> None:
    """Raise UsageError if a program listens on a port of 127.0.0.1."""
    with socket.socket() as listener:
        # as the server does: a connection of an earlier server that has not timed out yet does not keep the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(
                f"port {port} of 127.0.0.1 cannot be used: {error.strerror}. Stop the program that uses it, such as an earlier "
                "`vertexrig function serve`, or choose another port with --port"
            ) from None


@command.command("package", short_help="Upload the packages that triggered runs use.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@options.file_option
@options.format_option("text", "json")
def package(names: tuple[str, ...], file: Path | None, format_: str) -> None:
    """Build and upload the trainer packages that triggered runs of the named jobs use; without a NAME, of all jobs.

    For a job with `image: build`, triggered runs use the image of the current sources. It must be in the registry:
    `vertexrig image NAME --push`.
    """
    from vertexrig.submit import publish  # 50 ms

    workspace = options.workspace_of(file)
    storage = remote.bucket(workspace.loaded, "packages")
    uris = publish.publish(workspace, names or workspace.loaded.project.jobs, storage)
    result(format_, {"packages": uris}, "\n".join(uris))


@command.command("deploy", short_help="Print, or run, the gcloud commands that deploy the function.")
@options.file_option
@click.option("--run", is_flag=True, help="Run the commands instead of printing them.")
@click.option("--plan", is_flag=True, help="Show what the commands would change. Only reads are made.")
@click.option(
    "--only",
    type=click.Choice(["code"]),
    help="Only upload the code and update the deployed functions: no accounts, roles or bindings.",
)
@options.format_option("text", "json")
def deploy(file: Path | None, run: bool, plan: bool, only: str | None, format_: str) -> None:
    """Build the function, and print the gcloud commands that deploy it and grant its roles. With --run, run them.

    `--only code` is for a pipeline whose account must not change IAM policies. Deploy once without it before.
    """
    from vertexrig.submit import images  # 130 ms
    from vertexrig.trigger import changes, deploy

    if run and plan:
        raise UsageError("--plan shows what --run would change: type one of the two")
    if (run or plan) and images.is_local():
        raise UsageError(
            "this shell uses the local Vertex, and --run and --plan use Google Cloud: use another shell, or serve the function on "
            "this machine with `vertexrig function serve`"
        )
    loaded = remote.load(file, deployed=True)
    staged = _staged(loaded)
    if run and only and not loaded.project.trigger.uri:
        raise UsageError(
            f"{loaded.file} has no trigger.uri: first run `vertexrig function deploy --run`, which writes it"
        )
    commands = deploy.commands(loaded, staged.folder, staged.variables)
    if only:
        commands = deploy.code_only(commands)
    if plan:
        found = list(changes.changes(commands, deploy.gcloud))
        shown = [
            {"why": one.step.why, "command": one.step.line, "outcome": one.action, "changes": one.rows} for one in found
        ]
        result(format_, {"steps": shown}, "\n".join(one.text for one in found))
        return
    if not run:
        printed = [{"why": step.why, "command": step.line, "outcome": None} for step in commands]
        result(format_, {"steps": printed}, "\n".join(f"# {step.why}\n{step.line}" for step in commands))
        return
    rows, changed = list[dict[str, str]](), False
    for step, outcome in deploy.run(commands):
        rows.append(_row(step, outcome))
        changed |= step.tells and _keep_uri(loaded, outcome)
    if changed:
        streams.note(
            "deploying again: the first deployment had no trigger.uri, which the function needs to verify its callers"
        )
        loaded = remote.load(file, deployed=True)
        staged = _staged(loaded)
        again = deploy.commands(loaded, staged.folder, staged.variables)
        rows += [_row(step, outcome) for step, outcome in deploy.run([step for step in again if step.deploys])]
    result(format_, {"steps": rows}, "")


def _row(step: DeployStep, outcome: str) -> dict[str, str]:
    streams.note(f"{outcome}: {step.why}")
    return {"why": step.why, "command": step.line, "outcome": outcome}


def _keep_uri(loaded: config.Loaded, uri: str) -> bool:
    """Write the function's URL into the project file unless it has one; return whether it was written."""
    from vertexrig.bring import edit  # 30 ms

    there = loaded.project.trigger.uri
    if there is None:
        before, entry = edit.read(loaded.file), edit.Entry("trigger", "uri", uri)
        place = (*((environments.KEY, loaded.env) if loaded.env else ()), "trigger", "uri")
        if loaded.env:
            from vertexrig.bring import fix

            made = fix.edited(before, Edit(uri, location=place))
            if made is None:
                raise UsageError(
                    f"{loaded.file} cannot be changed here: write {'.'.join(place)}: {uri}, and deploy again"
                )
            edit.write(loaded.file, before, made, [])
        else:
            edit.write(loaded.file, before, edit.added(before, entry, str(loaded.file)), [entry])
        streams.note(f"{loaded.file}: {'.'.join(place)} is {uri}")
    elif str(there).rstrip("/") != uri:
        streams.note(
            f"{loaded.file} has another trigger.uri, {there}. If it is wrong, change it to {uri}, then run `vertexrig function "
            "deploy --run` and `vertexrig schedule apply`"
        )
    return there is None


@command.command("export", short_help="Write the deployment as Terraform files.")
@click.argument("form", type=click.Choice(["terraform"]), metavar="terraform")
@click.argument("folder", type=click.Path(path_type=Path), metavar="[DIR]", required=False)
@options.file_option
@_channel_option
@options.format_option("text", "json")
def export(form: str, folder: Path | None, file: Path | None, channels: tuple[str, ...], format_: str) -> None:
    """Write Terraform files for everything that `deploy`, `schedule apply` and `alerts` create, and for the bucket.

    DIR is build/terraform by default. It gets main.tf, iam.tf, schedules.tf, alerts.tf and the built function as an archive whose name
    has its hash. No command is run.
    """
    from vertexrig.trigger import deploy, terraform

    loaded = remote.load(file, deployed=True)
    staged = _staged(loaded)
    if loaded.project.trigger.command == "run":
        streams.note(
            "main.tf has a function of the Cloud Functions API, because the provider's Cloud Run service does not build the source. Write "
            f"trigger.deploy_with: functions into {loaded.file}, so that `deploy` and `status` use the same API"
        )
    name, data = stage.archive(staged)
    commands = deploy.commands(terraform.built(loaded), staged.folder, staged.variables)
    texts = terraform.hcl(loaded, commands, name, channels)
    target, below = folder or loaded.output(str(Path(terraform.FOLDER, loaded.env))), None if folder else loaded.folder
    for old in target.glob("source-????????????.zip"):
        old.unlink()
    files.write_bytes(target / name, data, below=below)
    for one, text in texts.items():
        files.write_text(target / one, text, below=below)
    if loaded.project.schedules and not loaded.project.trigger.uri:
        streams.note(
            "schedules.tf is empty, because trigger.uri is not set. After `terraform apply`, write the output `uri` into "
            f"{loaded.file} as trigger.uri, export again and apply again"
        )
    made = [str(target / one) for one in (*texts, name)]
    result(format_, {"files": made}, "\n".join(made))


@command.command("remove", short_help="Print the gcloud commands that delete the deployment.")
@options.file_option
@options.format_option("text", "json")
def remove(file: Path | None, format_: str) -> None:
    """Print the gcloud commands that delete everything that `deploy` created, and the schedules. No command is run.

    The bucket, the images, the enabled services and the accounts that the project file names are not deleted.
    """
    from vertexrig.trigger import deploy, schedules

    loaded = remote.load(file, deployed=True)
    names = [*loaded.project.schedules, *([config.TICK] if schedules.ticks(loaded) else [])]
    jobs = [schedules.job_id(loaded, name) for name in names]
    steps = deploy.removal(loaded, loaded.output(config.STAGED_FOLDER), jobs)
    rows = [{"why": step.why, "command": step.line} for step in steps]
    result(format_, {"steps": rows}, "\n".join(f"# {row['why']}\n{row['command']}" for row in rows))


@command.command("alerts", short_help="Write alert policies and a dashboard for Cloud Monitoring.")
@options.file_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Folder to write to; by default build/alerts.")
@_channel_option
@options.format_option("text", "json")
def alerts(file: Path | None, output: Path | None, channels: tuple[str, ...], format_: str) -> None:
    """Write alert policies and a dashboard as JSON, and print the gcloud commands that create them. No command is run."""
    from vertexrig.trigger import alerts

    loaded = remote.load(file, deployed=True)
    folder = output or loaded.output(str(Path("build/alerts", loaded.env)))
    made = [
        (name, data, ("policies", "create", "--policy-from-file"))
        for name, data in alerts.policies(loaded, channels).items()
    ]
    made.append(("dashboard", alerts.dashboard(loaded), ("dashboards", "create", "--config-from-file")))
    rows = []
    for name, data, (kind, verb, flag) in made:
        path = folder / f"{name}.json"
        files.write_text(path, json.dumps(data, indent=2) + "\n", below=None if output else loaded.folder)
        # policies are in the alpha track alone (gcloud 528)
        words = [
            "gcloud",
            *(["alpha"] if kind == "policies" else []),
            "monitoring",
            kind,
            verb,
            f"{flag}={path}",
            f"--project={loaded.project.project}",
        ]
        rows.append({"file": str(path), "why": str(data["displayName"]), "command": shlex.join(words)})
    result(format_, {"files": rows}, "\n".join(f"# {row['why']}\n{row['command']}" for row in rows))
