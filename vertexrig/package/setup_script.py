"""A setup.py read without running it: what it gives to setup(), and that as a setup.py of our own.

Only the plain part of Python that such files are written in is carried out, over values of our own: texts, lists, and files of
the trainer's folder. A script with anything else in it is left to its user's decision.
"""

from __future__ import annotations

import ast
import builtins
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vertexrig.package.folders import read_bytes
from vertexrig.package.requirements import setup_tree

if TYPE_CHECKING:
    from configparser import RawConfigParser

MOST_NODES, MOST_CHARACTERS = 1500, 200_000
"""Of a script, and of each text it makes or file it reads: enough for any, and nothing that takes a second."""

_SAFE = tuple(
    getattr(ast, name)
    for name in """
    Module Import ImportFrom alias Expr Assign AnnAssign FunctionDef arguments Return With withitem If Name Load Store Constant
    List Tuple Dict Set Call keyword Attribute Subscript Slice ListComp comprehension Compare BoolOp UnaryOp BinOp Add Div USub
    JoinedStr FormattedValue boolop cmpop Not Pass
    """.split()
)
_ATTRIBUTES = frozenset(
    """
    strip lstrip rstrip split splitlines startswith endswith lower read readlines read_text open with_name joinpath
    parent resolve absolute path join dirname abspath realpath setup find_packages find_namespace_packages Path core
    """.split()
)
_NAMES = frozenset({"__file__", "__name__", "__version__"})
_LEADS_OUT = re.compile(r"(^|[\s,=/])\.\.(/|$|[\s,])|(^|[\s,=])/")
_FINDERS = ("find_packages", "find_namespace_packages")
_PATHS = frozenset(
    """
    packages package_dir py_modules package_data exclude_package_data data_files scripts license_files
    """.split()
)
_TAKEN = _PATHS.union(
    """
    name version install_requires extras_require python_requires entry_points include_package_data zip_safe description
    long_description long_description_content_type author author_email maintainer maintainer_email url download_url project_urls
    license keywords classifiers platforms tests_require test_suite namespace_packages provides requires obsoletes
    """.split()
)


Read = Callable[[str], "bytes | None"]


class UnreadableScript(Exception):
    """A setup.py has more in it than is carried out here; the text says what."""


class _Given(BaseException):
    """What setup() was given: ends the reading, and no `except` is carried out."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


@dataclass(frozen=True)
class FoundPackages:
    """A call of find_packages, which setuptools carries out."""

    name: str
    words: tuple[Any, ...]
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        words = [*map(repr, self.words), *(f"{key}={value!r}" for key, value in self.options.items())]
        return f"{self.name}({', '.join(words)})"


class _Place:
    """A path in the trainer's folder, in place of pathlib's."""

    def __init__(self, read: Read, *parts: Any) -> None:
        self.read, self.name = read, posixpath.normpath(posixpath.join(*map(str, parts)))

    def __str__(self) -> str:
        return self.name

    def __truediv__(self, other: Any) -> _Place:
        return _Place(self.read, self.name, other)

    joinpath = __truediv__

    def with_name(self, name: str) -> _Place:
        return _Place(self.read, posixpath.dirname(self.name), name)

    @property
    def parent(self) -> _Place:
        return _Place(self.read, posixpath.dirname(self.name) or ".")

    def resolve(self) -> _Place:
        return self

    absolute = resolve

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        data = self.read(self.name)
        if data is None or len(data) > MOST_CHARACTERS:
            raise UnreadableScript(f"it reads {self.name}, which is not in the package, or too large")
        return data.decode("utf-8", "replace").replace("\r\n", "\n")

    def open(self, mode: str = "r", encoding: str = "utf-8", errors: str = "strict") -> _Stream:
        return _Stream(self.read_text())


class _Stream(list[str]):
    """An open file: its lines."""

    def __init__(self, text: str) -> None:
        super().__init__(text.splitlines(keepends=True))

    def read(self) -> str:
        return "".join(self)

    def readlines(self) -> list[str]:
        return list(self)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


def setup_keywords(files: Mapping[str, Path]) -> Mapping[str, Any]:
    """Return what a setup.py gives to setup(), by name; None for what a script that cannot be carried out does not say plainly.

    Args:
        files: Those of the trainer's folder, by their path in it.

    Raises:
        PackageError: It cannot be read or parsed.
    """

    def read(name: str) -> bytes | None:
        return read_bytes(files[name], name) if name in files else None

    script = read("setup.py") or b""
    try:
        return _values(script, read)
    except UnreadableScript:
        tree, plain = setup_tree(script), _constants("setup", read)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        str(one.arg): one.value.value if isinstance(one.value, ast.Constant) else plain.get(ast.unparse(one.value))
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] == "setup"
        for one in call.keywords
    }


def plain_script(script: bytes, read: Read) -> bytes:
    """Return a setup.py that gives setup() what `script` gives it, and does nothing else.

    Args:
        script: A setup.py.
        read: Gives the bytes of a file of the package by its path; None if there is none.

    Raises:
        UnreadableScript: That cannot be told without running it.
    """
    return _written(_values(script, read))


def _values(script: bytes, read: Read) -> dict[str, Any]:
    try:
        tree = ast.parse(script)
        _must_be_plain(tree)
        tree = ast.fix_missing_locations(_Sums().visit(tree))
        names = _names(tree, read)  # takes the imports out
        exec(compile(tree, "setup.py", "exec"), names)
    except _Given as given:
        return given.values
    except UnreadableScript:
        raise
    except Exception as error:  # whatever a value of another kind leads to
        raise UnreadableScript(f"{type(error).__name__}: {error}") from None
    raise UnreadableScript("it does not call setup() at its top")


def _must_be_plain(tree: ast.Module) -> None:
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for count, node in enumerate(ast.walk(tree)):
        where = f"line {getattr(node, 'lineno', 1)}"
        if count > MOST_NODES or not isinstance(node, _SAFE):
            raise UnreadableScript(f"{where} is more than a list of values ({type(node).__name__})")
        if isinstance(node, ast.Attribute) and node.attr not in _ATTRIBUTES:
            raise UnreadableScript(f"{where} uses .{node.attr}")
        if isinstance(node, ast.Name) and node.id.startswith("_") and node.id not in _NAMES:
            raise UnreadableScript(f"{where} uses {node.id}")
        inner = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        # No function calls another, or itself, so that each call is soon done.
        if isinstance(node, ast.FunctionDef) and (node not in tree.body or node.decorator_list or functions & inner):
            raise UnreadableScript(f"{where} defines more than a plain function")
        if isinstance(node, ast.ListComp):
            nested = any(isinstance(one, ast.ListComp) for one in ast.walk(node) if one is not node)
            if nested or len(node.generators) > 1 or functions & inner:
                raise UnreadableScript(f"{where} has a list within a list")
        if isinstance(node, ast.JoinedStr) and sum(isinstance(one, ast.FormattedValue) for one in node.values) > 1:
            raise UnreadableScript(f"{where} puts texts together")


class _Sums(ast.NodeTransformer):
    """`a + b` becomes a call that keeps texts small: forty doublings would fill the memory."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            return node
        return ast.Call(ast.Name("_sum", ast.Load()), [node.left, node.right], [])


def _sum(one: Any, other: Any) -> Any:
    if (
        not (type(one) is type(other) and isinstance(one, (str, list, tuple)))
        or len(one) + len(other) > MOST_CHARACTERS
    ):
        raise UnreadableScript("it adds up more than texts and lists")
    return one + other


def _names(tree: ast.Module, read: Read) -> dict[str, Any]:
    """Return what the names of a script stand for: of its imports only those that every such script has."""

    def setup(**values: Any) -> None:
        raise _Given(values)

    def at(*parts: Any) -> _Place:
        return _Place(read, *(parts or (".",)))

    def open_(path: Any, mode: str = "r", encoding: str = "utf-8", errors: str = "strict") -> _Stream:
        return at(path).open(mode)

    def same(path: Any) -> str:
        return str(at(path))

    def finder(name: str) -> Any:
        return lambda *words, **options: FoundPackages(name, words, options)

    paths = SimpleNamespace(
        join=lambda *parts: str(at(*parts)), dirname=lambda path: str(at(path).parent), abspath=same, realpath=same
    )
    tools = SimpleNamespace(setup=setup, **{name: finder(name) for name in _FINDERS})
    known: dict[tuple[str, str], Any] = {
        ("setuptools", ""): tools, ("distutils", ""): SimpleNamespace(core=tools), ("pathlib", ""): SimpleNamespace(Path=at),
        ("pathlib", "Path"): at, ("os", ""): SimpleNamespace(path=paths), ("os", "path"): paths, ("os.path", ""): paths,
        ("io", ""): SimpleNamespace(open=open_), ("io", "open"): open_, ("codecs", ""): SimpleNamespace(open=open_),
        ("distutils.core", "setup"): setup,
        **{("setuptools", name): value for name, value in vars(tools).items()},
        **{("os.path", name): value for name, value in vars(paths).items()},
    }  # fmt: skip
    # No builtins: `open` is ours, and the rest makes new values of values.
    safe = {name: getattr(builtins, name) for name in ("list", "dict", "tuple", "set", "sorted", "str", "len")}
    found = {"__builtins__": {**safe, "open": open_}, "__file__": "setup.py", "__name__": "__main__", "_sum": _sum}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                value = known.get((alias.name, "")) or known.get((alias.name.partition(".")[0], ""))
                found |= {alias.asname or alias.name.partition(".")[0]: value} if value is not None else {}
        elif isinstance(node, ast.ImportFrom):
            given = {} if node.level else _constants(str(node.module), read)
            for alias in node.names:
                value = known.get((str(node.module), alias.name), given.get(alias.name))
                found |= {alias.asname or alias.name: value} if value is not None else {}
    tree.body = [node for node in tree.body if not isinstance(node, (ast.Import, ast.ImportFrom))]
    return found


def _constants(module: str, read: Read) -> dict[str, Any]:
    """Return the plain values that a module of the trainer assigns, such as its version."""
    stem = module.replace(".", "/")
    data = read(f"{stem}.py") or read(f"{stem}/__init__.py") or b""
    found: dict[str, Any] = {}
    for node in ast.parse(data).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found |= {one.id: node.value.value for one in node.targets if isinstance(one, ast.Name)}
    return found


def _written(values: Mapping[str, Any]) -> bytes:
    unknown = sorted(values.keys() - _TAKEN)
    if unknown:
        raise UnreadableScript(f"it gives setup() {', '.join(unknown)}")
    for key, value in values.items():
        for one in _leaves(value):
            if key in _PATHS and isinstance(one, str) and (one.startswith("/") or ".." in one.split("/")):
                raise UnreadableScript(f"{key} names {one}, which is not in the package")
    given = "".join(f"    {key}={value!r},\n" for key, value in values.items())
    text = f"from setuptools import {', '.join(reversed(_FINDERS))}, setup\n\nsetup(\n{given})\n"
    return text.encode("utf-8", "replace")


def _leaves(value: Any, depth: int = 0) -> list[Any]:
    """Return what a value is made of; UnreadableScript if it is no plain data, or there is too much of it."""
    if isinstance(value, FoundPackages):
        value = [*value.words, value.options]
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, (list, tuple, set)):
        found = [leaf for one in value for leaf in _leaves(one, depth + 1)] if depth < 8 and len(value) < 5000 else None
        if found is None or len(found) > MOST_CHARACTERS:
            raise UnreadableScript("it gives setup() more than a package needs")
        return found
    if value is not None and not isinstance(value, (str, int, float, bool)):
        raise UnreadableScript(f"it gives setup() a {type(value).__name__}")
    return [value]


def unsafe_setting(config: RawConfigParser, read: Read) -> str:
    """Return what of a setup.cfg makes setuptools run code of the package, or leads out of it; "" if nothing does."""
    for section in config.sections():
        if not (section == "metadata" or section.startswith("options")):
            continue  # not put into the package
        for key, value in config.items(section):
            if key in ("cmdclass", "setup_requires"):
                return f"setup.cfg has {key}"
            module, _, name = value.removeprefix("attr:").strip().rpartition(".")
            if value.startswith("attr:") and not any(
                name in _constants(f"{root}{module}", read) for root in ("", "src/")
            ):
                return f"setup.cfg names {value}, which is not a plain value"
            is_path = section in (
                "options.package_data",
                "options.data_files",
                "options.exclude_package_data",
                "options.packages.find",
            )
            if (is_path or key in _PATHS) and _LEADS_OUT.search(value):
                return f"{key} in [{section}] of setup.cfg leads out of the package"
    return ""
