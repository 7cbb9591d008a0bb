"""The errors the trainer raises on purpose. `task.py` prints them without a traceback and ends with `exit_code`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


class TrainerError(Exception):
    """Base of all errors meant for a person."""

    exit_code = 1


class ConfigError(TrainerError):
    """A flag has a value the trainer cannot work with."""

    exit_code = 2


class ClusterError(TrainerError):
    """TF_CONFIG is broken, or the strategy asked for does not fit the cluster."""


class DataError(TrainerError):
    """The data is missing, unreadable, or contradicts the flags."""


class OutputError(TrainerError):
    """An output directory cannot be written, or what was written is not what was trained."""


class SurplusJobError(TrainerError):
    """Another job was recorded for the request that made this one."""

    exit_code = 4


class DivergedError(TrainerError):
    """The loss became infinite or not a number."""


class PeerLostError(TrainerError):
    """Another process of the cluster went away; a restart of the job goes on from the last save."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the nearest of `choices`, or nothing when none is near."""
    near = difflib.get_close_matches(word, list(choices), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


NOT_THE_CAUSE = ("Graph execution error", "Detected at node", "Node:", "File ", "Original stack trace", "Additional GRPC",
                 ":{", "[[", "The error could be from")  # fmt: skip

NODE = re.compile(r"\{\{.*?\}\}\s*")  # {{function_node ...}}


def cause(error: BaseException) -> str:
    """Return the line of a TensorFlow error that says what happened, without the call stacks around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("  ")]
    plain = [line for line in lines if not line.startswith(NOT_THE_CAUSE)]
    return NODE.sub("", (plain or lines or [type(error).__name__])[0])
