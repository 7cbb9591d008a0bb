"""The line of a finding, with marks under the part that its path names."""

from __future__ import annotations

import re
import unicodedata

from vertexrig.text import clean

WIDTH = 110
"""Longest piece of a line that is shown, in characters."""

_ITEM = re.compile(r"""\s*("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^,\[\]{}"'\s][^,\[\]{}]*?)\s*([,\]])""")


def snippet(line: str, path: str, *, width: int = WIDTH) -> tuple[str, str]:
    """One source line and the marks (`^^^`) to print below it.

    Args:
        line: The line, without its end.
        path: The finding's path: its last key, or the item of a list, is what gets marked.
        width: Longest piece of the line to show.
    """
    line = clean(line)
    start, end = _span(line, path)
    if len(line) > width:
        # a quarter of the room is left in front of the marked part, so that its key is seen too
        left = max(0, min(start - width // 4, len(line) - width))
        head, tail = "…" if left else "", "…" if left + width < len(line) else ""
        line = head + line[left : left + width] + tail
        start, end = start - left + len(head), min(end - left + len(head), width + len(head))
    line = line.rstrip()
    return line, " " * _columns(line[:start]) + "^" * max(1, _columns(line[start:end]))


def _span(line: str, path: str) -> tuple[int, int]:
    """Where in the line the value at `path` is; the line's whole content if that is not clear."""
    key = re.split(r"[.\[]", re.sub(r"(\[[0-9]+\])+$", "", path))[-1]
    # a path is in camelCase, a project file in snake_case
    snake = re.sub(r"([A-Z])", r"_\1", key).lower()
    names = "|".join(re.escape(name) for name in sorted({key, snake}) if name)
    found = re.search(rf"""(?<![\w-])["']?(?:{names})["']?\s*:\s*""", line) if names else None
    if found is not None:
        if path.endswith("]") and line[found.end() : found.end() + 1] == "[":
            return _item(line, found.end(), int(path.rpartition("[")[2].rstrip("]")))
        return found.start(), _value_end(line, found.end(), flow=bool(re.search(r"[{[]", line[: found.start()])))
    content = re.match(r"(\s*(?:-\s+)*)(.*?)\s*(?:\s#.*)?$", line)
    if content is None or not content.group(2):
        return 0, len(line)
    return content.start(2), content.end(2)


def _value_end(line: str, start: int, *, flow: bool) -> int:
    """Where the value ends that begins at `start`: at its closing bracket, a comma of a `{a: 1, b: 2}`, a comment."""
    depth, quoted, place = 0, "", start
    while place < len(line):
        char = line[place]
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "\"'" and line[start:place].rstrip()[-1:] in {"", ",", "[", "{", ":"}:
            quoted = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
            if depth < 0:
                break
        elif (char == "," and flow and not depth) or (char == "#" and line[place - 1] == " "):
            break
        place += 1
    end = start + len(line[start:place].rstrip().removesuffix(",").rstrip())  # JSON ends its lines with a comma
    return end if end > start else len(line[:start].rstrip())


def _item(line: str, start: int, index: int) -> tuple[int, int]:
    """Where item `index` of the one-line list at `start` is; the whole list if its items are not plain."""
    place = start + 1
    for number in range(index + 1):
        found = _ITEM.match(line, place)
        if found is None or (found.group(2) == "]" and number < index):
            break
        if number == index:
            return found.span(1)
        place = found.end()
    return start, _value_end(line, start, flow=False)


def _columns(text: str) -> int:
    """How many terminal columns a text takes."""
    # a wide character takes two columns and a combining one none, or the marks would be beside the value
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
