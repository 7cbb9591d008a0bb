"""`vertexrig completion`: print the script that completes commands, options, names of jobs, and keys of --set in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from vertexrig.cli import output

SHELLS = {
    "bash": 'eval "$(vertexrig completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(vertexrig completion zsh)"  # in ~/.zshrc',
    "fish": "vertexrig completion fish | source  # in ~/.config/fish/config.fish",
}

# Bash also splits words at `=`: this joins them for click, and gives back the part after the last `=`.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' word words=("$1") kind value before
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 1 && ( $word == = || ${words[-1]} == *= ) ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    before=${words[-1]%%"${words[-1]##*=}"}
    [[ $COMP_WORDBREAKS == *=* ]] || before=
    while IFS=, read -r kind value; do
        [[ $kind == plain ]] && COMPREPLY+=("${value#"$before"}")
        [[ $kind == plain && $value == *= ]] && compopt -o nospace
        [[ $kind == dir ]] && compopt -o dirnames
        [[ $kind == file ]] && compopt -o default
    done < <(COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command(
    "completion",
    epilog="\b\nTo load it, add one line to the startup file of your shell:\n" + "\n".join(SHELLS.values()),
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(shell: str) -> None:
    """Print the completion script for SHELL: it completes commands, options, names of jobs and sweeps, and keys of --set."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has these three
    root = click.get_current_context().find_root().command
    made = kind(root, {}, "vertexrig", "_VERTEXRIG_COMPLETE")
    output.say((_BASH if shell == "bash" else made.source_template) % made.source_vars())
