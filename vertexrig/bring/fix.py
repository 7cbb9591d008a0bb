"""Fixes of findings, made in the text of a file: what they do not touch stays byte for byte as it was.

Each edit is made at the positions of the file's nodes, and the new text is read again before it is kept: its data must be the old data with this one change.
A fix counts only if its finding is gone afterwards.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from vertexrig import yamltext
from vertexrig.bring.edit import BOM, after_node, into_flow, last_of
from vertexrig.finding import Act, Edit, Finding
from vertexrig.yamltext import FileKey, flow, scalar

_PASSES = 50
"""A fix may show the next mistake; each pass ends at least one."""
_BARE = re.compile(r"(?:--)?\w[\w./@=+-]*(?::[\w./@=+-]+)*", re.ASCII)
_Node = Any
"""Of PyYAML, whose nodes have more attributes than its types."""


@dataclass(frozen=True)
class Fixed:
    """A text after its fixes.

    Args:
        text: The text.
        left: What is found in it.
        done: The findings that are gone by a fix.
    """

    text: str
    left: Sequence[Finding]
    done: Sequence[Finding] = ()


def fixed(text: str, check: Callable[[str], Sequence[Finding]], *, unsafe: bool = False) -> Fixed:
    """Return a text with the safe fixes of its findings, or all of them, made until none is left.

    Args:
        text: Of a YAML or JSON file.
        check: Returns what is found in a text; an edit whose `location` is not known is not made.
        unsafe: Make the unsafe ones, too.
    """
    found, done, refused, seen = check(text), list[Finding](), set[object](), {text}
    for _ in range(_PASSES):
        wanted = {"safe", "unsafe"} if unsafe else {"safe"}
        todo = [one for one in found if one.fixable in wanted and not one.given and _key(one) not in refused]
        made, applied = _pass(text, todo)
        if not applied:
            break
        # an edit that does not end its finding is not made, nor one that undoes another
        after = [] if made in seen else check(made)
        kept = {_key(one) for one in (applied if made in seen else after)}.intersection(map(_key, applied))
        if kept:
            refused |= kept
            continue
        text, found = made, after
        seen.add(text)
        done += applied
    return Fixed(text, found, done)


def _key(finding: Finding) -> object:
    return finding.id, finding.path, finding.message


def _pass(text: str, todo: Sequence[Finding]) -> tuple[str, list[Finding]]:
    """Return a text with one edit after the other, and the findings whose edits were all possible."""
    applied, moved = [], list[FileKey]()
    for finding in sorted(todo, key=lambda one: max(map(_order, one.edits))):
        made: str | None = text
        for edit in sorted(finding.edits, key=_order):
            # below a new key or in a shorter list the locations differ: the next pass finds them
            clear = edit.location and not any(edit.location[: len(location)] == location for location in moved)
            made = edited(made, edit) if made is not None and clear else None
        if made is not None:
            text = made
            applied.append(finding)
            moved += [
                edit.location if edit.key else edit.location[:-1]
                for edit in finding.edits
                if edit.key or (edit.value is Act.REMOVE and isinstance(edit.location[-1], int))
            ]
    return text, applied


def _order(edit: Edit) -> tuple[int, int]:
    """Return the order of edits: values, then removals, then keys from the innermost on, so that each location stays valid."""
    return (2 if edit.key else 1 if edit.value is Act.REMOVE else 0), -len(edit.location)


def edited(text: str, edit: Edit) -> str | None:
    """Return a text after an edit at its `location`; None if it cannot be made without a change to anything else."""
    text, mark = text.removeprefix(BOM), BOM if text.startswith(BOM) else ""
    try:
        made = _made(text, edit)
        data = yamltext.read(text).data
        wanted = _expected(data, edit, text)
        same = made is not None and yamltext.read(made).data == wanted
    except (yamltext.YamlError, LookupError, TypeError, ValueError):  # no such location, or the new text is not YAML
        return None
    return mark + made if made is not None and same else None


def _expected(data: Any, edit: Edit, text: str) -> Any:
    data = copy.deepcopy(data)
    around = data
    new = not edit.key and not isinstance(edit.value, Act)
    for step in edit.location[:-1]:
        around = around.setdefault(step, {}) if new and isinstance(around, dict) else around[step]
    last: Any = edit.location[-1]
    if edit.key:
        if edit.key in around:
            raise ValueError(edit.key)
        around[edit.key] = around.pop(last)
    elif edit.value is Act.REMOVE:
        del around[last]
    elif edit.value is Act.QUOTE:
        around[last] = _find(text, edit.location)[2].value
    else:
        around[last] = [around[last]] if edit.value is Act.MAKE_LIST else edit.value
    return data


def _find(text: str, location: FileKey) -> tuple[_Node, int, _Node]:
    """Return the node around a location, the index of the location in it, and its node; KeyError if there is none."""
    around: _Node = None
    index, node = 0, yamltext.compose(text)
    for step in location:
        around = node
        if isinstance(around, yaml.MappingNode):
            names = [key.value for key, _ in around.value]
            index = names.index(step)
            node = around.value[index][1]
        elif isinstance(around, yaml.SequenceNode) and isinstance(step, int):
            index, node = step, around.value[step]
        else:
            raise KeyError(step)
    if around is None or node is None:
        raise KeyError(location)
    return around, index, node


def _made(text: str, edit: Edit) -> str | None:
    try:
        around, index, node = _find(text, edit.location)
    except (LookupError, ValueError):
        return None if edit.key or isinstance(edit.value, Act) else _inserted(text, edit)
    start, end = node.start_mark.index, last_of(node)
    if "${" in text[start:end] and not edit.key and edit.value is not Act.REMOVE:
        return None  # what a variable holds is not written here
    if edit.key:
        key = around.value[index][0]
        name = scalar(edit.key) if key.style == '"' else f"'{edit.key}'" if key.style else edit.key
        return text[: key.start_mark.index] + name + text[key.end_mark.index :]
    if edit.value is Act.REMOVE:
        return _removed(text, around, index)
    if isinstance(node, yaml.ScalarNode) and (node.style in ("|", ">") or text[start : start + 1] in ("&", "!", "*")):
        return None
    if edit.value is Act.MAKE_LIST:
        return _as_list(text, node)
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and isinstance(around, yaml.MappingNode):
        key = around.value[index][0].end_mark.index
        return None if "#" in text[key:end] else f"{text[:key]}: {flow(edit.value)}{text[end:]}"
    value = scalar(node.value) if edit.value is Act.QUOTE else _written(edit.value, around, node)
    return text[:start] + value + text[end:]


def _written(value: Any, around: _Node, node: _Node) -> str:
    """Return a value in the style of the one it takes the location of."""
    if not isinstance(value, str):
        return scalar(value) if _is_json(around) else flow(value)
    if isinstance(node, yaml.ScalarNode) and node.style == "'":
        return "'" + value.replace("'", "''") + "'"
    bare = not node.style if isinstance(node, yaml.ScalarNode) else False
    if bare and _BARE.fullmatch(value):
        reading = yamltext.read(value)
        if reading.data == value and not reading.notes:
            return value
    return scalar(value)


def _is_json(around: _Node) -> bool:
    return bool(around.flow_style) and isinstance(around, yaml.MappingNode) and around.value[0][0].style == '"'


def _inserted(text: str, edit: Edit) -> str | None:
    """Return a text with a key more, in the mapping that is there and with those that are not."""
    around: _Node = None
    location, value = edit.location, edit.value
    while len(location) > 1:
        try:
            around = _find(text, location[:-1])[2]
            break
        except (LookupError, ValueError):
            location, value = location[:-1], {location[-1]: value}
    else:
        around = yamltext.compose(text)
    if not isinstance(around, yaml.MappingNode) or not around.value or not isinstance(location[-1], str):
        return None
    write = scalar if _is_json(around) else flow
    pair = f"{write(location[-1])}: {write(value)}"
    if around.flow_style:
        return into_flow(text, around, 0, pair)
    indent = " " * around.value[0][0].start_mark.column
    return after_node(text, around, 0, [indent + pair], "\r\n" if "\r\n" in text else "\n")


def _removed(text: str, around: _Node, index: int) -> str | None:
    """Return a text without one pair of a mapping or item of a list; if it is the only one, an empty mapping or list stays.

    None if a comment would go with it.
    """
    parts: list[tuple[_Node, _Node]] = [one if isinstance(one, tuple) else (one, one) for one in around.value]
    (key, value), later = parts[index], parts[index + 1 :]
    start, end = key.start_mark.index, last_of(value)
    between = text[key.end_mark.index : value.start_mark.index] if key is not value else ""
    if isinstance(value, yaml.ScalarNode):  # in its text "#" is no comment, but for the line of a `|`
        inner = text[value.start_mark.index : end].partition("\n")[0] if value.style in ("|", ">") else ""
    else:
        inner = text[start:end]
    if "#" in between + inner:
        return None
    empty, is_list = ("[]", True) if isinstance(around, yaml.SequenceNode) else ("{}", False)
    if around.flow_style:
        if len(parts) == 1:
            return text[:start] + text[end:]
        before, after = (start, later[0][0].start_mark.index) if later else (last_of(parts[index - 1][1]), end)
        return None if "#" in text[before:start] + text[end:after] else text[:before] + text[after:]
    if is_list:
        start = text.rindex("-", 0, start)
    if len(parts) == 1:
        return text[:start] + empty + text[end:]
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].strip():  # the first key after a dash: the next one takes its location
        following = later[0][0].start_mark.index
        return None if "#" in text[end:following] else text[:start] + text[following:]
    newline = text.find("\n", end)
    if "#" in text[end : newline if newline >= 0 else None]:
        return None
    return text[:line] + (text[newline + 1 :] if newline >= 0 else "")


def _as_list(text: str, node: _Node) -> str:
    start, end = node.start_mark.index, last_of(node)
    if isinstance(node, yaml.MappingNode) and not node.flow_style:
        inner = re.sub(r"\n(?=[^\r\n])", "\n  ", text[start:end])
        return f"{text[:start]}- {inner}{text[end:]}"
    bare = isinstance(node, yaml.ScalarNode) and not node.style
    inner = flow(node.value) if bare else text[start:end]
    return f"{text[:start]}[{inner}]{text[end:]}"


def located(found: Iterable[Finding], locations: dict[str, FileKey]) -> list[Finding]:
    """Return findings whose edits know their location in the file, by the path of each value that is there."""
    return [
        replace(one, edits=tuple(replace(edit, location=_location(edit.path, locations)) for edit in one.edits))
        if one.edits
        else one
        for one in found
    ]


def _location(path: str, locations: dict[str, FileKey]) -> FileKey:
    """Return the keys of a path; of what is not there yet, below the nearest mapping around it."""
    if path in locations or not path:
        return locations.get(path, ())
    above, _, name = path.rpartition(".")
    around = _location(above, locations)
    return (*around, name) if (around or not above) and not name.endswith("]") else ()
