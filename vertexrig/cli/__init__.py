"""The command line: one module per verb, nothing but translation between words and the tool's functions.

`main` is the one place that turns an error into a message and an exit code: 0 done; 1 findings of severity error, or
the job failed; 2 bad usage or configuration; 3 the service refused or could not be reached; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from vertexrig import __version__
from vertexrig.errors import UsageError, VertexrigError, did_you_mean

# verb -> (module of vertexrig.cli, one line of help); the module is imported when the verb is used
VERBS = {
    "init": ("init", "Write a project file to begin with."),
    "keys": ("keys", "List the keys of the project file."),
    "render": ("render", "Write a job's YAML, check it, and print the gcloud command."),
    "check": ("check", "Check jobs of the project, or any YAML file."),
    "checks": ("checks", "List the rules."),
    "explain": ("explain", "Show the cluster a job makes, its quota and its price."),
    "catalog": ("catalog", "Print machines, accelerators, regions, images or prices."),
    "package": ("package", "Build the trainer's package."),
    "rehearse": ("rehearse", "Run a job's or sweep's YAML on this machine."),
    "local": ("local", "Start and stop the local Vertex: the REST APIs on this machine."),
    "submit": ("submit", "Create a job or sweep on Vertex AI, exactly once."),
    "jobs": ("jobs", "List jobs and sweeps."),
    "watch": ("watch", "Follow a job to its end."),
    "logs": ("logs", "Stream a job's log."),
    "cancel": ("cancel", "Stop a job, and see that it stops."),
    "trials": ("trials", "Show the trials of a sweep."),
    "best": ("best", "Show a sweep's best trial."),
    "report": ("report", "Write a job as a Markdown page."),
    "schedule": ("schedule", "Make Cloud Scheduler match the project file."),
    "function": ("function", "Stage, serve and deploy the Cloud Function that starts jobs."),
    "doctor": ("doctor", "Look whether everything is there that a job needs."),
}


class Verbs(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"vertexrig.cli.{VERBS[cmd_name][0]}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}. {did_you_mean(args[0], VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # from the table: help imports no verb
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="vertexrig")
def vertexrig() -> None:
    """Render, check, rehearse and launch training jobs on Vertex AI."""


def run(args: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; every message for a person goes to stderr."""
    try:
        vertexrig.main(args=list(args) if args is not None else None, prog_name="vertexrig", standalone_mode=False)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.Abort:
        return _say("interrupted", 130)
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except click.ClickException as error:
        error.show(sys.stderr)
        return 2
    except VertexrigError as error:
        return _say(f"error: {error}", error.exit_code)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a file that cannot be read or written, wherever that shows
        if error.strerror is None:
            raise
        place = f"{str(error.filename)[:200]}: " if error.filename is not None else ""
        return _say(f"error: {place}{error.strerror}", UsageError.exit_code)
    except UnicodeEncodeError as error:
        return _say(f"error: {ascii(error.object)[:200]} holds bytes that are no text", UsageError.exit_code)


def _say(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def main() -> None:
    """The console script."""
    sys.exit(run())
