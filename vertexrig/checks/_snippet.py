"""The line a finding stands in, with marks under the part that its path names."""

from __future__ import annotations

import re
import unicodedata

WIDTH = 110
"""Longest piece of a line that is shown, in characters."""

_VALUE = r"""("(?:\\.|[^"\\])*"|'(?:''|[^'])*'|[^,}\]#]*)"""


def clean(text: str) -> str:
    """Text that is safe to print: control characters, escape sequences and half surrogates become a replacement."""
    return "".join(char if char.isprintable() else " " if char in "\t\n\r" else "\ufffd" for char in text)


def snippet(line: str, path: str) -> tuple[str, str]:
    """One source line and the marks (`^^^`) to print below it.

    Args:
        line: The line, without its end.
        path: The finding's path: its last key, or the item of a list, is what gets marked.
    """
    line = clean(line)
    start, end = _span(line, path)
    if len(line) > WIDTH:
        left = max(0, min(start - WIDTH // 4, len(line) - WIDTH))
        head, tail = "…" if left else "", "…" if left + WIDTH < len(line) else ""
        line = head + line[left : left + WIDTH] + tail
        start, end = start - left + len(head), min(end - left + len(head), WIDTH + len(head))
    line = line.rstrip()
    return line, " " * _columns(line[:start]) + "^" * max(1, _columns(line[start:end]))


def _span(line: str, path: str) -> tuple[int, int]:
    """Where in the line the thing at `path` stands; all of the line's content if it cannot be made out."""
    key = re.split(r"[.\[]", re.sub(r"(\[[0-9]+\])+$", "", path))[-1]
    snake = re.sub(r"([A-Z])", r"_\1", key).lower()
    names = "|".join(re.escape(name) for name in sorted({key, snake}) if name)
    found = re.search(rf"""(?<![\w-])["']?(?:{names})["']?\s*:\s*{_VALUE}""", line) if names else None
    if found is not None:
        if path.endswith("]") and line[found.start(1) : found.end(1)].lstrip().startswith("["):
            return _item(line, found.start(1), int(path.rpartition("[")[2].rstrip("]")))
        return found.start(), found.start() + len(found.group().rstrip())
    content = re.match(r"(\s*(?:-\s+)*)(.*?)\s*(?:\s#.*)?$", line)
    if content is None or not content.group(2):
        return 0, len(line)
    return content.start(2), content.end(2)


def _item(line: str, start: int, index: int) -> tuple[int, int]:
    """Where item `index` of a one-line list stands that begins at `start`; the whole list if it is not simple."""
    closing = line.find("]", start)
    inside = line[start:closing] if closing > 0 else ""
    parts = inside[inside.find("[") + 1 :].split(",")
    if not inside or index >= len(parts) or re.search(r"[\"'{\[]", inside[inside.find("[") + 1 :]):
        return start, closing + 1 if closing > 0 else len(line.rstrip())
    begin = start + inside.find("[") + 1 + sum(len(part) + 1 for part in parts[:index])
    word = parts[index]
    begin += len(word) - len(word.lstrip())
    return begin, begin + max(1, len(word.strip()))


def _columns(text: str) -> int:
    """How many terminal columns a text takes."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
