"""The command line: one module per verb, which turns words and options into calls of the library.

`run` turns errors into messages and exit codes; for Ctrl-C during imports, `vertexrig.__main__` does. The codes: 0 done; 1 findings of
severity error, a failed job, or another negative result; 2 bad usage or configuration; 3 the service refused or could not be reached;
130 interrupted.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import click

from vertexrig import __version__, variables
from vertexrig.cli import output, streams
from vertexrig.cli.groups import Group
from vertexrig.cli.problems import Failure, failure_of
from vertexrig.errors import UsageError
from vertexrig.waiting import set_wait_printer

OF_EMULATOR = frozenset({"console", "local", "rehearse"})
"""Verbs that `localvertex` provides; `vertexrig.workspace.emulator` loads them."""
# verb -> one line of help; a verb's module, which is named after it, is imported when the verb is used
VERBS = {
    "init": "Write a first project file.",
    "keys": "List the keys of the project file.",
    "render": "Write a job's YAML, check it, and print the gcloud command.",
    "check": "Check jobs of the project, or any YAML file for gcloud.",
    "diff": "Show how jobs changed since a git revision.",
    "explain": "Show the cluster that a job creates, its quota and its price.",
    "quota": "Show each quota's limit and use, and whether a job fits.",
    "catalog": "Print machines, accelerators, regions, images, prices or quotas.",
    "package": "Build the trainer's source package.",
    "image": "Write, build and push a custom image of the trainer.",
    "rehearse": "Run a job or sweep on this machine, from its YAML.",
    "local": "Start and stop the local Vertex: the APIs of Vertex AI on this machine.",
    "submit": "Create a job or sweep on Vertex AI, exactly once.",
    "jobs": "List jobs and sweeps.",
    "watch": "Follow a job until it has ended.",
    "logs": "Stream a job's log.",
    "cancel": "Cancel a job, and wait until it has ended.",
    "trials": "Show the trials of a sweep.",
    "best": "Show a sweep's best trial.",
    "report": "Write a report of a job as Markdown or HTML.",
    "follow-up": "Add a sweep that follows a finished sweep to the project file.",
    "promote": "Add a job with a sweep's best parameters to the project file.",
    "register": "Add a trained model to the Model Registry if it is better.",
    "pull": "Turn a job of Vertex AI into an entry of a project file.",
    "convert": "Turn a YAML file for gcloud into entries of a project file.",
    "console": "Show schedules, runs, jobs and models in a browser.",
    "schedule": "Manage the schedules of the project file in Cloud Scheduler.",
    "function": "Build, serve and deploy the trigger, a Cloud Function that starts jobs.",
    "completion": "Print the shell completion script.",
    "doctor": "Check that everything a submitted job needs exists.",
}

# names of commands in other tools -> the verbs that do the same here
_ELSEWHERE = {
    "run": ("rehearse", "submit"), "train": ("rehearse", "submit"), "create": ("submit",), "start": ("submit",), "launch": ("submit",),
    "apply": ("submit", "schedule apply"), "ai": ("submit",), "custom-jobs": ("jobs", "submit"), "hp-tuning-jobs": ("jobs", "submit"),
    "list": ("jobs",), "ls": ("jobs",), "status": ("jobs", "local status"), "ps": ("jobs",), "describe": ("report", "explain"),
    "show": ("report", "explain"), "delete": ("cancel",), "stop": ("cancel",), "kill": ("cancel", "local kill"), "stream-logs": ("logs",),
    "tail": ("logs",), "lint": ("check",), "validate": ("check",), "test": ("check", "rehearse"), "plan": ("explain", "schedule plan"),
    "build": ("package", "image"), "push": ("image",), "deploy": ("function deploy",), "serve": ("function serve", "local up"),
    "up": ("local up",), "down": ("local down",), "help": ("--help",), "version": ("--version",), "new": ("init",),
}  # fmt: skip


class Verbs(Group):
    """A group whose commands are imported when they are used."""

    others = _ELSEWHERE

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        # Imported here and not at the top: imports take most of a verb's start, and a command line runs one verb.
        if cmd_name in OF_EMULATOR:
            from vertexrig.workspace import emulator

            return emulator.verb(cmd_name)
        command: click.Command = import_module(f"vertexrig.cli.{cmd_name.replace('-', '_')}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # from the table, so that help imports no verb
            formatter.write_dl([*VERBS.items()])


_EPILOG = """\b
Start with `vertexrig init`. Options of a command: `vertexrig COMMAND --help`.
Exit codes: 0 done; 1 findings of severity error, a failed job, or another
negative result (see the command's help); 2 bad usage or configuration;
3 a service refused or could not be reached; 130 interrupted."""


def _show_version(ctx: click.Context, option: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    output.say(f"vertexrig {__version__}, {_origin()}")
    ctx.exit()


def _origin() -> str:
    """Return what this installation was made from: a release, a commit, a wheel, or the sources of a folder."""
    built = Path(__file__).parents[1] / "built.txt"  # `make release` puts it there
    if built.exists():
        return built.read_text("utf-8").strip()
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        # PEP 610: pip and uv write it for what does not come from an index
        url = json.loads(distribution("vertexrig").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        url = {}
    if url.get("vcs_info"):
        return f"from commit {url['vcs_info'].get('commit_id', '')} of {url.get('url', '')}"
    if str(url.get("url", "")).endswith((".whl", ".tar.gz")):
        return f"from {url['url'].rpartition('/')[2]}"
    return f"from the sources in {Path(__file__).parents[2]}" if url else "from sources"


@click.group(
    cls=Verbs, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Print the version and its build, and exit.",
)
def vertexrig() -> None:
    """Write, check, rehearse, submit and schedule Vertex AI training jobs."""


def run(args: Sequence[str] | None = None, *, command: click.Command | None = None, name: str = "vertexrig") -> int:
    """Run a command line and return its exit code.

    Messages, which go to stderr, show `${NAME}` instead of the value of an environment variable that the project file uses, and so do the
    results of the verbs in `output.MASKED_VERBS`. Commands to paste have the value.

    Args:
        args: Its words, by default those of this process.
        command: What to run in place of `vertexrig`, for the maintainers' tools.
        name: Its name in usage errors.
    """
    words = list(sys.argv[1:] if args is None else args)
    verb = next((word for word in words if not word.startswith("-")), "")
    with variables.recording(results=verb in output.MASKED_VERBS):
        streams.prepare()
        set_wait_printer(streams.note)
        # where there is no metadata server, google-auth looks for one three times, which takes 11 s in all
        os.environ.setdefault("GCE_METADATA_DETECT_RETRIES", "1")
        document = output.CommandOutput(wanted=output.wants_json(words))
        failure: Failure | None = None
        code = 0
        try:
            # Not standalone: click would print its own errors and exit, past the JSON document and the exit codes of this
            # tool.
            returned = (command or vertexrig).main(args=words, prog_name=name, standalone_mode=False, obj=document)
            code = returned if isinstance(returned, int) else 0  # click catches an Exit and returns its code
            sys.stdout.flush()
        # This "error" is the help text of a group without a verb: it has no "error:" before it and no JSON document.
        except click.exceptions.NoArgsIsHelpError as wanting:
            return _print_error(wanting.format_message(), UsageError.exit_code)
        except (BrokenPipeError, SystemExit) as gone:  # click exits where the reader of stderr has gone
            streams.drop_broken()
            code = gone.code if isinstance(gone, SystemExit) and isinstance(gone.code, int) else 0
        except BaseException as error:
            failure = failure_of(error)
            if failure is None:
                raise
        finally:
            set_wait_printer(None)
        if document.wanted:
            try:
                document.send(failure)
            except UsageError as error:  # stdout takes no more
                failure = failure or failure_of(error)
        if failure is None:
            return code
        if not failure.message:  # the result shows it already
            return failure.exit_code
        return _print_error(failure.text(color=streams.wants_color(sys.stderr, os.environ)), failure.exit_code)


def _print_error(message: str, code: int) -> int:
    try:
        streams.tell(message)
    except BrokenPipeError:
        streams.drop_broken()
    return code


def main() -> None:
    """Run the command line of this process, and exit with its code."""
    # The objects that imports make stay until the end; collecting among them took 6 % of a short verb's time.
    gc.set_threshold(50_000)
    sys.exit(run())
