"""Output of replicas as lines: what a log entry holds, how bytes become entries, and the files they are written to."""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from vertexrig import times

SERVICE = "service"
"""Task name of the lines the service itself writes."""

LONGEST = 64 * 1024
"""Most characters of one entry; a longer line becomes several (Cloud Logging takes 256 KB per entry)."""

SEVERITIES = ("DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY")
_OTHER_WORDS = {
    "TRACE": "DEBUG", "FINE": "DEBUG", "CONFIG": "DEBUG", "WARN": "WARNING", "ERR": "ERROR", "SEVERE": "ERROR",
    "CRIT": "CRITICAL", "FATAL": "CRITICAL", "EMERG": "EMERGENCY",
}  # fmt: skip
"""Names of other loggers for a severity, which Cloud Logging's agent takes, too (fluent-plugin-google-cloud, out_google_cloud.rb)."""
_BY_EXECUTOR = {"stdout": "INFO", "stderr": "ERROR"}
_BY_CONTAINER = {"stdout": "DEFAULT", "stderr": "DEFAULT"}
"""The severity of each stream's lines: those of the executor of a Python package, and those of a container."""


@dataclass(frozen=True)
class Line:
    """One log entry of a job.

    Args:
        time: Seconds since 1970, when the runner read it; strictly rising within one stream of one replica.
        task: `workerpool0-0`, or `service` for what the service says.
        severity: A Cloud Logging severity: that of its stream, or what a JSON line names.
        text: The line without its end.
        payload: The line as data, when it is a JSON object (Cloud Logging's jsonPayload).
        shown: Whether a rehearsal prints it. It leaves out what the log of every job has: most lines of the service (`servicelog`), what
            pip writes to stdout, and how a replica starts.
        stderr: The replica wrote it to stderr.
        ours: The local Vertex says it, and the service would not: it is in the log files, and not in Cloud Logging.
        container: A container printed it, and not the executor of a package.
    """

    time: float
    task: str
    severity: str
    text: str
    payload: dict[str, Any] | None = None
    shown: bool = True
    stderr: bool = False
    ours: bool = False
    container: bool = False

    @property
    def timestamp(self) -> str:
        """The time in RFC 3339, in microseconds."""
        return times.rfc3339(self.time)


OnLine = Callable[[Line], None]


_NEWLINE, _ENDS = re.compile("\n"), re.compile("[\r\n]")


class Splitter:
    """Turns the bytes of a replica's stdout or stderr into lines, as they come.

    The executor of a Python package ends a line at a carriage return, too, and drops empty lines: the progress bars and
    the blank lines of public trainers and of pip are so in their logs (index ids 63335018367 and 63144808081, 2026-02).
    """

    def __init__(self, task: str, stream: str, *, by_executor: bool) -> None:
        self.task, self.stderr, self._by_executor = task, stream == "stderr", by_executor
        self.severity = (_BY_EXECUTOR if by_executor else _BY_CONTAINER)[stream]
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._last = 0.0

    def feed(self, data: bytes, *, final: bool = False) -> list[Line]:
        """Return the lines completed by `data`; with `final`, also the one that never ended."""
        text = self._rest + self._decoder.decode(data, final)
        *parts, self._rest = (_ENDS if self._by_executor else _NEWLINE).split(text)
        # A program that never ends its line must not fill the memory.
        if final or len(self._rest) > LONGEST:
            if self._rest:
                parts.append(self._rest)
            self._rest = ""
        # Times are shown in microseconds; each line has its own, by which logs are sorted.
        now = max(time.time(), self._last + 1e-6)
        lines = []
        for part in parts:
            if self._by_executor and not part:
                continue
            # In a container a progress bar writes \r inside its line, and that stays.
            part = part[:-1] if part.endswith("\r") else part
            for start in range(0, max(len(part), 1), LONGEST):
                lines.append(self._line(now, part[start : start + LONGEST]))
                now += 1e-6
        self._last = now
        return lines

    def _line(self, now: float, text: str) -> Line:
        payload = _json_object(text)
        severity = named_severity(payload or {}) or self.severity
        return Line(now, self.task, severity, text, payload, stderr=self.stderr, container=not self._by_executor)


def _json_object(text: str) -> dict[str, Any] | None:
    """Return a line of JSON as data, None for any other text."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        payload: dict[str, Any] = json.loads(text)
        # NaN, 1e999 and lone surrogates pass json.loads, but no answer of an API can hold them.
        json.dumps(payload, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):  # deeply nested JSON of a user is text like any other
        return None
    return payload


def named_severity(payload: Mapping[str, Any]) -> str:
    """Return the severity that a line of JSON names, "" if it names none."""
    named = str(payload.get("severity", "")).upper()
    return named if named in SEVERITIES else _OTHER_WORDS.get(named, "")


class LogFiles:
    """One text file per task, made with its first line: `workerpool0-0.log`, each line with its time and severity.

    Attributes:
        trouble: Why lines could not be written (a full disk), None while they can; after that they are dropped.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        root.mkdir(parents=True, exist_ok=True)
        self.trouble: OSError | None = None
        self._files: dict[str, TextIO] = {}

    def write(self, line: Line) -> None:
        """Append one line; it is on disk after the next `flush`."""
        if self.trouble is not None:
            return
        try:
            file = self._files.get(line.task)
            if file is None:
                # If the root was removed meanwhile, it is not created again: the write fails.
                self.folder.mkdir(parents=self.root.exists(), exist_ok=True)
                path = self.folder / f"{line.task}.log"
                file = self._files[line.task] = path.open("a", encoding="utf-8", errors="replace")
            file.write(f"{line.timestamp} {line.severity} {line.text}\n")
        except OSError as error:
            self.trouble = error

    def flush(self) -> None:
        """Hand what was written to the system, where it survives this process."""
        try:
            for file in self._files.values() if self.trouble is None else ():
                file.flush()
        except OSError as error:
            self.trouble = error

    def close(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._files.clear()
