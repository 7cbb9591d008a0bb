"""What keeps part of a trainer from being read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceProblem:
    """Something that kept part of the trainer from being read.

    Args:
        message: What is wrong, in one line.
        file: The file, relative to the trainer's folder; empty if it concerns no file.
        line: Its line, counted from 1; None if unknown.
        code: `module` (there is no such module), `unnamed` (none was named), `syntax` (a file does not parse), or empty.
        nearest: The module that may have been meant.
    """

    message: str
    file: str = ""
    line: int | None = None
    code: str = ""
    nearest: str = ""
