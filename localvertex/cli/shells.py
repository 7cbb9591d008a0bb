"""Variables in the syntax of a shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping

Unset = Iterable[str]
Found = Mapping[str, str]


def _sh(unset: Unset, found: Found) -> str:
    """For the shells of POSIX, bash and zsh."""
    return "\n".join(
        [
            *(f"unset {name}" for name in unset),
            *(f"export {name}={shlex.quote(value)}" for name, value in found.items()),
        ]
    )


def _fish(unset: Unset, found: Found) -> str:
    """For fish, in whose single quotes a backslash quotes itself and the quote."""
    quoted = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in found.items()}
    return "\n".join(
        [*(f"set -e {name}" for name in unset), *(f"set -gx {name} '{value}'" for name, value in quoted.items())]
    )


SHELLS: Mapping[str, Callable[[Unset, Found], str]] = {"sh": _sh, "fish": _fish}
"""By the name of `local env --shell`: the lines that remove variables and set others."""
