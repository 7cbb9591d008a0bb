"""What a check says: the one value that passes between the strict spec, the checks and every output format."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How much a finding matters: `error` stops a launch, `warning` costs or risks something, `info` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One result of a check.

    Args:
        id: The rule's id, such as `accelerator-count`; findings are silenced by it.
        severity: See `Severity`.
        path: Where in the resource, in API camelCase: `workerPoolSpecs[0].machineSpec.acceleratorCount`.
        message: What is wrong: the value, the rule, the choices.
        fix: What to write instead; empty when there is no single answer.
        source: Where the rule comes from, with its date.
        file: The file checked, as the user named it.
        line: The line of `path` in that file, counted from 1; None if the place has no line.
        override: The `KEY=VALUE` of a `--set` that the value comes from, in place of the file's own line.
    """

    id: str
    severity: Severity
    path: str
    message: str
    fix: str = ""
    source: str = ""
    file: str = ""
    line: int | None = None
    override: str = ""
