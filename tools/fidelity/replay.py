"""Replays a recording: sends its requests again, in their order, and compares what comes with what came then.

An id of the recording (`<id 3>`) is the third id that the replay meets; `<project>`, `<number>` and `<bucket>` are the
target's. Times are the same if they have the same digits, and where the recorded answer has a state, the replay waits
for that state.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localvertex.recording import Blanks
from tools.fidelity.target import Caller, Target
from vertexrig.errors import UsageError

_MARK = re.compile(r"<(id \d+|project|number|bucket|[a-z]+)>")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_WAIT_S = 30.0


@dataclass(frozen=True)
class Divergence:
    """A place in which an answer is another one than recorded.

    Args:
        line: Of the recording, from 1.
        request: Method and path, as recorded.
        place: In the answer, such as `body.jobSpec.workerPoolSpecs[0]`.
        recorded: What was there, None for nothing.
        seen: What is there now, None for nothing.
    """

    line: int
    request: str
    place: str
    recorded: Any
    seen: Any


@dataclass(frozen=True)
class Replay:
    """What came of a replay.

    Args:
        made: Requests that were sent.
        left_out: Lines whose request holds what a recording does not keep.
        differs: In the order of the recording.
    """

    made: int
    left_out: tuple[int, ...]
    differs: tuple[Divergence, ...]


def read(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a recording.

    Raises:
        UsageError: It is not one.
    """
    lines = []
    try:
        texts = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the recording {file} cannot be read: {error}") from None
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            lines.append({"request": dict(line["request"]), "answer": dict(line["answer"])})
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{file}:{number} is not a line of a recording: a request and its answer as JSON"
            ) from None
    return lines


def replay(lines: Sequence[Mapping[str, Any]], target: Target) -> Replay:
    """Send the requests of a recording again.

    Args:
        lines: As `read` returns them.
        target: Where to.

    Raises:
        ServiceError: The target does not answer.
    """
    call, blanks = Caller(target), Blanks({target.bucket: "<bucket>"})
    marks = {"project": target.project, "number": target.project, "bucket": target.bucket}
    left_out: list[int] = []
    differs: list[Divergence] = []
    for number, line in enumerate(lines, 1):
        request, recorded = line["request"], line["answer"]
        known = {**marks, **{mark.strip("<>"): id for id, mark in blanks.ids.items()}}
        made = _filled(request, known) if request.get("api") in target.urls else None
        if made is None:
            left_out.append(number)
            continue
        seen = _answer(call, made, recorded, blanks)
        words = f"{request['method']} {request['path']}"
        differs += [Divergence(number, words, *found) for found in _differences(recorded, seen, "")]
    return Replay(len(lines) - len(left_out), tuple(left_out), tuple(differs))


def _filled(request: Any, known: Mapping[str, str]) -> Any:
    """Return a request with the marks of the recording replaced, None if one of them means nothing here."""
    text = json.dumps(request)
    # Such as <token>, or an id that no answer has shown yet.
    if any(mark not in known for mark in _MARK.findall(text)):
        return None
    return json.loads(_MARK.sub(lambda match: known[match[1]], text))


def _answer(call: Caller, made: Mapping[str, Any], recorded: Mapping[str, Any], blanks: Blanks) -> dict[str, Any]:
    """Return the answer, blanked; asked again until it has the recorded state."""
    wanted = recorded["body"].get("state") if isinstance(recorded.get("body"), dict) else None
    body, until = made.get("body"), time.monotonic() + _WAIT_S
    text = isinstance(body, str)
    # A body that is text in a recording was not JSON.
    headers = {"Content-Type": "text/plain"} if text else None
    while True:
        answer = call(
            made["api"], made["method"], made["path"], None if text else body, body if text else None, headers
        )
        seen = answer["body"].get("state") if isinstance(answer["body"], dict) else None
        # Only a read may be made again.
        if made["method"] != "GET" or wanted in (None, seen) or time.monotonic() > until:
            found: dict[str, Any] = blanks({"status": answer["status"], "body": answer["body"]})
            return found
        time.sleep(0.05)


def _differences(recorded: Any, seen: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Places in which two blanked answers differ in more than a time or a measured number."""
    if isinstance(recorded, dict) and isinstance(seen, dict):
        for key in [*recorded, *(key for key in seen if key not in recorded)]:
            # At the top of a script's record are other things, too, such as the states that were seen.
            if place or key in ("status", "body"):
                yield from _differences(recorded.get(key), seen.get(key), f"{place}.{key}" if place else key)
    elif isinstance(recorded, list) and isinstance(seen, list) and len(recorded) == len(seen):
        for index, pair in enumerate(zip(recorded, seen, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    # Measured, such as a metric or a duration.
    elif isinstance(recorded, float) and isinstance(seen, float):
        return
    elif _form(recorded) != _form(seen):
        yield place, recorded, seen


def _form(value: Any) -> Any:
    # The number of digits is part of the form, and the time itself is not.
    return _TIME.sub(lambda match: f"<time {len(match[1] or '')}>", value) if isinstance(value, str) else value
