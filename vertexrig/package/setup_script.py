"""A setup.py that is only a list of values: what it gives setup(), and whether running it does anything else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vertexrig.package.requirements import setup_tree

if TYPE_CHECKING:
    from configparser import RawConfigParser

_LEADS_OUT = re.compile(r"(^|[\s,=/])\.\.(/|$|[\s,])|(^|[\s,=])/")
_FINDERS = ("find_packages", "find_namespace_packages")
_MODULES = frozenset({"setuptools", "distutils.core", "__future__"})
_PATHS = frozenset(
    """
    packages package_dir py_modules package_data exclude_package_data data_files scripts license_files
    """.split()
)
_KEYS = _PATHS.union(
    """
    name version install_requires extras_require python_requires entry_points include_package_data zip_safe description
    long_description long_description_content_type author author_email maintainer maintainer_email url download_url project_urls
    license keywords classifiers platforms tests_require test_suite namespace_packages provides requires obsoletes
    """.split()
)
"""Keywords of setup() that make setuptools run no code of the package."""


def read_setup(script: bytes) -> tuple[Mapping[str, Any], str]:
    """Return what a setup.py gives setup(), and why it may not run unasked.

    Args:
        script: A setup.py.

    Returns:
        The keywords of setup() with their values, None for a computed one; and the first reason, in words: a line that does more than
        import setuptools, name values and give them to setup(), a keyword not in `_KEYS`, or a path out of the package; "" if none.

    Raises:
        PackageError: It cannot be parsed.
    """
    tree = setup_tree(script)
    names: dict[str, Any] = {}  # the values that the script names; `_plain` adds them
    more = [
        f"line {node.lineno} does more than import setuptools, assign a value or call setup()"
        for node in _statements(tree)
        if not _plain(node, names)
    ]
    given: dict[str, Any] = {}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "setup":
            more += [f"line {call.lineno} passes more than keywords to setup()"] if call.args else []
            for keyword in call.keywords:
                try:
                    value = _value(keyword.value, names)
                except (ValueError, TypeError):
                    value = None
                    more.append(f"line {keyword.value.lineno} passes a computed value to setup()")
                given[str(keyword.arg)] = value
    more += [f"it passes {key} to setup()" for key in sorted(given.keys() - _KEYS)]
    more += [
        f"{key} names {one}, which is not in the package"
        for key in sorted(given.keys() & _PATHS)
        for one in _texts(given[key])
        if one.startswith("/") or ".." in one.split("/")
    ]
    return given, more[0] if more else ""


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        # what `python setup.py` runs
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'" and not node.orelse:
            yield from node.body
        else:
            yield node


def _plain(node: ast.stmt, names: dict[str, Any]) -> bool:
    """Whether a statement imports setuptools, names a value, which is added to `names`, calls setup(), or is a constant (a docstring)."""
    if isinstance(node, ast.Import):
        return all(alias.name in _MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in _MODULES and not node.level
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        try:
            # without the names of others: sixty lines of `x = [x, x]` would fill the memory
            names[node.targets[0].id] = _value(node.value, {})
        except (ValueError, TypeError):
            return False
        return True
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    return isinstance(value, ast.Constant) or (
        isinstance(value, ast.Call) and ast.unparse(value.func) in {"setup", "setuptools.setup"}
    )


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return a value that is written out. A name stands for the value that it was given, a call of find_packages() for its arguments.

    Raises:
        ValueError: It is computed.
    """
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_value(item, names) for item in node.elts]
    if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("setuptools.") in _FINDERS:
        return [_value(item, names) for item in [*node.args, *(keyword.value for keyword in node.keywords)]]
    return ast.literal_eval(node)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, tuple, set, dict)):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from _texts(item)


def unsafe_setting(config: RawConfigParser) -> str:
    """Return the setting of a setup.cfg that makes setuptools run code of the package, or leads out of it; "" if none does."""
    for section in config.sections():
        if not (section == "metadata" or section.startswith("options")):
            continue  # not put into the package
        for key, value in config.items(section):
            if key in ("cmdclass", "setup_requires"):
                return f"setup.cfg has {key}"
            if value.startswith("attr:"):
                return f"setup.cfg names {value}, for which setuptools may import the module"
            is_path = section in (
                "options.package_data",
                "options.data_files",
                "options.exclude_package_data",
                "options.packages.find",
            )
            if (is_path or key in _PATHS) and _LEADS_OUT.search(value):
                return f"{key} in [{section}] of setup.cfg leads out of the package"
    return ""
