"""Arguments of the trainer: as the project file gives them, as the program gets them, and those that a study decides."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vertexrig.project import model
from vertexrig.project.study import Study
from vertexrig.schema.typed import Scalar
from vertexrig.text import is_flag


def arguments(args: model.Args) -> tuple[str, ...]:
    """Return `args` of the project file as the program gets them: `--key=value` for each pair, a list unchanged."""
    if not isinstance(args, Mapping):
        return args
    return tuple(f"--{key}" if value is None else f"--{key}={scalar_text(value)}" for key, value in args.items())


_BOOLEANS = ("true", "false")


def with_flags(words: Iterable[Any], values: Mapping[str, Any]) -> list[Any]:
    """Return a list of arguments with these flags in place of those of the same names, and of the values in the words behind them.

    A flag whose new value is none or a boolean is taken for a switch: the word behind it is its value only where that is a boolean, too.
    """
    kept, dropped = list[Any](), ""
    for word in words:
        text = str(word)
        if dropped and not is_flag(text):  # the value of a flag in two words
            switch = values[dropped] is None or str(values[dropped]).lower() in _BOOLEANS
            dropped = ""
            if not switch or text.lower() in _BOOLEANS:
                continue
        name, joined, _ = text.partition("=")
        ours = is_flag(text) and name.lstrip("-") in values
        dropped = name.lstrip("-") if ours and not joined else ""
        kept += [] if ours else [word]
    return [*kept, *arguments(values)]


def scalar_text(value: Scalar) -> str:
    """Return a scalar as an argument or environment variable carries it: booleans as true and false, 1e-05 as 1e-05."""
    if isinstance(value, bool):
        return "true" if value else "false"
    # json.dumps writes a float as repr does, which is the shortest text that reads as the same number.
    return value if isinstance(value, str) else json.dumps(value)


def parameter_ids(study: Study) -> Iterator[str]:
    """Yield the names of a study's parameters, of conditional ones too."""
    for name, parameter in study.parameters.items():
        yield name
        pending = list(parameter.conditional_parameter_specs)
        while pending:
            child = pending.pop().parameter_spec
            yield child.parameter_id
            pending += child.conditional_parameter_specs
