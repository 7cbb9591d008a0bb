"""YAML with line numbers: mappings of nodes, refused when a key repeats, and errors that know their line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vertexrig.errors import ConfigError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Leaves dates as the strings they were written as, and reads `1e-4` as the number gcloud reads in it."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != _TIMESTAMP]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+\Z"), list("-+0123456789")
)


@dataclass(frozen=True)
class Document:
    """A parsed file.

    Args:
        name: The file as the user named it.
        root: The root node; None if the file holds nothing.
    """

    name: str
    root: yaml.Node | None

    def error(self, node: yaml.Node, message: str) -> ConfigError:
        """A ConfigError at a node's line."""
        return ConfigError(message, file=self.name, line=node.start_mark.line + 1)

    def mapping(self, node: yaml.Node, what: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """A mapping node as key to (key node, value node).

        Raises:
            ConfigError: It is not a mapping, a key is not a string, or a key repeats.
        """
        if not isinstance(node, yaml.MappingNode):
            raise self.error(node, f"{what} must be a mapping, not {kind_of(node)}")
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value:
            key = scalar(key_node)
            if not isinstance(key, str):
                raise self.error(
                    key_node, f"a key of {what} must be a string, not {kind_of(key_node)}: put it in quotes"
                )
            if key in found:
                raise self.error(key_node, f"{what} has the key {key[:80]!r} twice")
            found[key] = (key_node, value_node)
        return found


def read_document(file: Path) -> Document:
    """The nodes of a YAML file of one document.

    Raises:
        ConfigError: It cannot be read, or is not YAML.
    """
    name = str(file)
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the overlay: {error.strerror}", file=name) from None
    except UnicodeDecodeError:
        raise ConfigError("the overlay is not UTF-8 text", file=name) from None
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = f"not valid YAML: {error.problem or error.context}"
        raise ConfigError(message, file=name, line=mark.line + 1 if mark else None) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {str(error).splitlines()[0]}", file=name) from None
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply", file=name) from None
    if isinstance(root, yaml.ScalarNode) and scalar(root) is None:
        root = None
    return Document(name, root)


def scalar(node: yaml.Node) -> Any:
    """The value of a scalar node (str, int, float, bool or None); the node itself if it is no plain scalar."""
    if not isinstance(node, yaml.ScalarNode):
        return node
    try:
        value = _Loader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node
    return value if value is None or isinstance(value, (str, int, float, bool)) else node


def kind_of(node: yaml.Node) -> str:
    """What a node is, for a message: `a list`, `true`, `2.17`."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    value = scalar(node)
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    shown = str(node.value)[:80]
    return f"the string {shown!r}" if isinstance(value, str) else shown
