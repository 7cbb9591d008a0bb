"""New entries in a project file's text: everything else stays byte for byte as it was.

Positions come from PyYAML's nodes, so that comments, anchors, order and line ends need no second writer of YAML (ruamel.yaml's would lay other lines out again). What was
written is read again before it is kept: the new text must hold the old values and the new entry, and nothing else.
"""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from vertexrig import files, yamltext
from vertexrig.errors import UsageError
from vertexrig.spec.api_names import snake_keys
from vertexrig.text import clean
from vertexrig.yamltext import flow

Path_ = tuple[str, ...]
_WIDTH = 100
BOM = "\ufeff"


@dataclass(frozen=True)
class Entry:
    """A job or sweep to add, or another key of a section.

    Args:
        group: `jobs` or `sweeps`, or another section.
        name: Its name.
        data: Its keys, or a text: plain values; a text with `${` stays a variable of the project file, see `literal`.
        comments: Lines above a key, by its path inside the entry; the empty path has those above the entry itself.
    """

    group: str
    name: str
    data: Any
    comments: Mapping[Path_, Sequence[str]] = field(default_factory=dict)


def literal(value: Any) -> Any:
    """Return plain data whose texts mean what they are: `${` is written `$${`, which the project file reads back as `${`."""
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, Mapping):
        return {key: literal(item) for key, item in value.items()}
    return [literal(item) for item in value] if isinstance(value, (list, tuple)) else value


def metrics_of(study: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a StudySpec as the project file writes them: a goal, or a mapping where there is more to say."""
    found = {}
    for row in study.get("metrics", ()):
        settings = {"goal": "MAXIMIZE", **snake_keys({key: value for key, value in row.items() if key != "metricId"})}
        found[str(row.get("metricId", ""))] = settings["goal"] if len(settings) == 1 else settings
    return found


def read(path: Path) -> str:
    """Return the text of a project file with its byte order mark and line ends, if it has them."""
    files.read_text(path)  # its size and encoding, with the messages of every other file
    return path.read_bytes().decode("utf-8")


def added(text: str, entry: Entry, file: str = "") -> str:
    """Return the text with one more entry.

    Raises:
        UsageError: The entry is there, or the text is laid out so that nothing can be added without changing it.
    """
    before = data_of(text, file)
    group = before.get(entry.group)
    if group is not None and not isinstance(group, Mapping):
        raise UsageError(f"{file}: {entry.group} is not a mapping, so nothing can be added to it")
    if group and entry.name in group:
        raise UsageError(f"{file} has {entry.group}.{entry.name} already; choose another name with --as")
    made = _insert(text, entry)
    try:
        after = data_of(made, file) if made is not None else None
    except UsageError:  # in this layout the new lines mean something else
        after = None
    # only a text that means exactly this is kept
    if made is None or after != {**before, entry.group: {**(group or {}), entry.name: entry.data}}:
        shown = "\n".join(_lines(entry, 0))
        raise UsageError(
            f"{file}: {entry.name} cannot be added without a change to other entries; add it below `{entry.group}:` by hand:\n{shown}"
        )
    return made


def difference(before: str, after: str, file: str) -> str:
    """Return what an edit changes, as a unified diff; empty if nothing."""
    old, new = before.removeprefix(BOM).splitlines(), after.removeprefix(BOM).splitlines()
    return "\n".join(difflib.unified_diff(old, new, f"a/{file}", f"b/{file}", lineterm=""))


def write(path: Path, before: str, after: str, entries: Sequence[Entry]) -> None:
    """Replace a project file as a whole; its permissions stay, and a link stays a link.

    Args:
        path: The file.
        before: Its text when it was read; empty if there was none.
        after: Its new text, with the entries.
        entries: Added again to the present text if the file was saved since it was read, so that both changes stay.

    Raises:
        UsageError: It cannot be written, or an entry does not go with what is there now; the old text stays.
    """
    # the file behind a link is replaced, not the link
    target = path.resolve()
    with files.locked(target.parent):
        there = target.exists()
        now = read(target) if there else ""
        if now != before:
            after = now
            for entry in entries:
                after = added(after, entry, str(path))
        files.write_bytes(target, after.encode("utf-8"), stat.S_IMODE(target.stat().st_mode) if there else 0o644)


def data_of(text: str, file: str) -> dict[str, Any]:
    """Return the plain values of a project file, variables as they are written; UsageError if it is not YAML with a mapping."""
    try:
        data = yamltext.read(text.removeprefix(BOM)).data
    except yamltext.YamlError as error:
        raise UsageError(f"{file}: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UsageError(f"{file} is not a project file: its top is not a mapping")
    return data


def _lines(entry: Entry, indent: int) -> list[str]:
    margin = " " * indent
    above = [f"{margin}# {clean(line)}".rstrip() for line in entry.comments.get((), ())]
    inner = {path: lines for path, lines in entry.comments.items() if path}
    if isinstance(entry.data, str):
        return [*above, f"{margin}{flow(entry.name)}: {flow(entry.data)}"]
    if not entry.data:
        return [*above, f"{margin}{flow(entry.name)}: {{}}"]
    return [*above, f"{margin}{flow(entry.name)}:", *_block(entry.data, inner, (), indent + 2)]


def _block(data: Mapping[str, Any], comments: Mapping[Path_, Sequence[str]], at: Path_, indent: int) -> Iterator[str]:
    margin = " " * indent
    for key, value in data.items():
        path = (*at, key)
        yield from (f"{margin}# {clean(line)}".rstrip() for line in comments.get(path, ()))
        name = flow(key)
        commented = any(len(own) > len(path) and own[: len(path)] == path for own in comments)
        short = flow(value)
        if isinstance(value, Mapping) and value and (commented or not _is_small(value, short, indent + len(name))):
            yield f"{margin}{name}:"
            yield from _block(value, comments, path, indent + 2)
        elif isinstance(value, (list, tuple)) and value and not _is_small(value, short, indent + len(name)):
            yield f"{margin}{name}:"
            for item in value:
                yield from _item(item, indent)
        else:
            yield f"{margin}{name}: {short}"


def _item(item: Any, indent: int) -> Iterator[str]:
    """Yield one item of a block list."""
    margin = " " * indent
    if isinstance(item, Mapping) and item:
        first, *rest = _block(item, {}, (), indent + 2)
        yield f"{margin}- {first.lstrip(' ')}"
        yield from rest
    else:
        yield f"{margin}- {flow(item)}"


def _is_small(value: Any, short: str, before: int) -> bool:
    """Whether a list or mapping reads well on one line: short, and flat but for one list or mapping."""
    inner = list(value.values()) if isinstance(value, Mapping) else list(value)
    nested = [one for one in inner if isinstance(one, (Mapping, list, tuple)) and one]
    return before + len(short) + 2 <= _WIDTH and len(nested) <= (1 if len(inner) == 1 else 0)


def _insert(text: str, entry: Entry) -> str | None:
    """Return the text with the entry at the end of its group; None if its layout cannot take one."""
    end = "\r\n" if "\r\n" in text else "\n"
    shift = len(text) - len(text.removeprefix(BOM))  # PyYAML's positions do not count the byte order mark
    root = yaml.compose(text[shift:], Loader=yaml.SafeLoader)
    if root is None:
        return text + ("" if not text or text.endswith("\n") else end) + _joined(_whole(entry), end)
    if not isinstance(root, yaml.MappingNode):
        return None
    found = next(((k, v) for k, v in root.value if isinstance(k, yaml.ScalarNode) and k.value == entry.group), None)
    if found is None:
        if root.flow_style:
            return into_flow(text, root, shift, f"{flow(entry.group)}: {flow({entry.name: entry.data})}")
        return after_node(text, root, shift, ["", *_whole(entry)], end)
    key, group = found
    if isinstance(group, yaml.ScalarNode) and group.tag == "tag:yaml.org,2002:null":
        at = group.end_mark.index + shift if group.value else text.index(":", key.end_mark.index + shift) + 1
        if group.value:  # `jobs: null` or `jobs: ~`
            text = text[: group.start_mark.index + shift].rstrip(" ") + text[at:]
            at = group.start_mark.index + shift - 1
        return _at_line(text, at, _lines(entry, key.start_mark.column + 2), end)
    if not isinstance(group, yaml.MappingNode) or group.start_mark.index < key.end_mark.index:
        return None  # an alias: what is added there would be added where its anchor is, too
    if group.flow_style and group.value:
        return into_flow(text, group, shift, f"{flow(entry.name)}: {flow(entry.data)}")
    if group.flow_style:
        start, stop = group.start_mark.index + shift, group.end_mark.index + shift
        # `jobs: {}` alone on a line becomes a block; inside of other brackets, or over several lines, it cannot
        if "\n" in text[start:stop] or "{" in text[:start].rpartition("\n")[2]:
            return None
        head = text[:start].rstrip(" ")
        return _at_line(head + text[stop:], len(head), _lines(entry, key.start_mark.column + 2), end)
    lines = _lines(entry, group.value[0][0].start_mark.column)
    return after_node(text, group, shift, [*_gap(text, group, shift), *lines], end)


def _gap(text: str, group: yaml.MappingNode, shift: int) -> list[str]:
    """Return a blank line, if the entries of a group have one between them."""
    above = text[: group.value[-1][0].start_mark.index + shift].splitlines()[:-1]
    # comments above an entry belong to it: a blank line above them counts
    while above and above[-1].lstrip().startswith("#"):
        above.pop()
    return [""] if len(group.value) > 1 and above and not above[-1].strip() else []


def _whole(entry: Entry) -> list[str]:
    return [f"{entry.group}:", *_lines(entry, 2)]


def _joined(lines: Sequence[str], end: str) -> str:
    return "".join(f"{line}{end}" for line in lines)


def into_flow(text: str, node: yaml.MappingNode, shift: int, pair: str) -> str:
    """Return the pair before the closing bracket of a mapping in brackets."""
    close = node.end_mark.index + shift - 1
    head = text[:close].rstrip()
    comma = "" if head.endswith(("{", ",")) else ","
    last = node.value[-1][1].end_mark.index + shift if node.value else 0
    if "#" in text[last:close]:  # a comment after the last pair would swallow the comma
        return text[:last] + ", " + pair + text[last:]
    return head + comma + (" " if comma or head.endswith(",") else "") + pair + text[len(head) :]


def after_node(text: str, node: yaml.MappingNode, shift: int, lines: list[str], end: str) -> str:
    """Return the lines below a block mapping, and below the comments that are moved in further than its keys."""
    index = last_of(node) + shift
    column = node.value[0][0].start_mark.column
    while True:
        newline = text.find("\n", index)
        if newline < 0:
            break
        following = text[newline + 1 :].partition("\n")[0]
        margin = len(following) - len(following.lstrip(" "))
        if not following.lstrip(" ").startswith("#") or margin <= column:
            break
        index = newline + 1 + len(following)
    if lines and lines[0] == "" and not node.value:
        lines = lines[1:]
    return _at_line(text, index, lines, end)


def _at_line(text: str, index: int, lines: Sequence[str], end: str) -> str:
    """Return the lines below the line that holds `index`."""
    newline = text.find("\n", index)
    if newline < 0:
        return text + end + _joined(lines, end)
    return text[: newline + 1] + _joined(lines, end) + text[newline + 1 :]


def last_of(node: yaml.Node) -> int:
    """Return where the last value of a node ends: PyYAML ends a block mapping where the next node begins, after comments."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        pair = last if isinstance(last, tuple) else (last,)
        return max(last_of(one) for one in pair)
    end = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">") and end:
        return end - 1  # a block of text ends with its last line
    return end
