"""`vertexrig completion`: the lines with which a shell completes verbs, options, names of jobs, and keys of --set."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vertexrig.cli import output

SHELLS = {
    "bash": 'eval "$(vertexrig completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(vertexrig completion zsh)"  # in ~/.zshrc',
    "fish": "vertexrig completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(SHELLS.values()))
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(shell: str) -> None:
    """Print what makes SHELL complete verbs, options, names of jobs and sweeps, and keys of --set."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    root = click.get_current_context().find_root().command
    made = kind(root, {}, "vertexrig", "_VERTEXRIG_COMPLETE")
    output.say(made.source_template % made.source_vars())
