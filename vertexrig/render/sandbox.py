"""Templates from elsewhere, kept to making text: Jinja's sandbox, and a budget of work and memory for each rendering.

Jinja's sandbox keeps a template from Python's internals; it does not keep it from using up the machine. So every loop,
macro, include, call, filter and operator that can make much of little is charged before it is carried out. A rendering
within its budget is done in `MOST_SECONDS` and 200 MB; ours use less than a hundredth of it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import time
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.runtime import markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_STEPS = 100_000
"""Turns of loops, calls, filters and values written in one rendering."""
MOST_CHARACTERS = 8_000_000
"""Characters, and items of lists at 8 each, that one rendering makes in all."""
MOST_SECONDS = 1.5
"""Processor time of one rendering; looked at every 16 steps, and no step takes long. Ours take 0.02 s; the collection of garbage
in a process of 2 GB, which may fall into it, took over 0.5."""

MOST_SOURCE = 100_000
"""Characters of a template; compiling as many takes about a second. Ours have at most 5,000."""

_WIDTH = r"%[^a-zA-Z%]*(\*|\d{4,})"
_SCOPES = (nodes.Template, nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)


class LimitError(jinja2.TemplateRuntimeError):
    """A template asks for more work or memory than a rendering has."""


class RenderBudget:
    """What one rendering may still use."""

    def __init__(self) -> None:
        self.steps = self.characters = 0
        # this thread's processor time: a loaded machine, or other requests, must not make a template fail
        self.until = time.thread_time() + MOST_SECONDS

    def step(self, characters: int = 0) -> None:
        """Charge one step and what it makes."""
        self.steps += 1
        self.characters += characters
        if self.characters > MOST_CHARACTERS:
            raise LimitError(f"the template makes more than {MOST_CHARACTERS:,} characters")
        if self.steps % 16:  # what follows is looked at every 16 steps
            return
        if self.steps > MOST_STEPS:
            raise LimitError(f"the template takes more than {MOST_STEPS:,} steps")
        if time.thread_time() > self.until:
            raise LimitError(f"the template takes more than {MOST_SECONDS:g} s")


_budget: ContextVar[RenderBudget | None] = ContextVar("budget", default=None)


def charge(characters: int = 0) -> None:
    """Charge the rendering under way; what is folded while a template is compiled has a budget for itself."""
    (_budget.get() or RenderBudget()).step(characters)


def weight(value: Any) -> int:
    """Tell how much a value is: its characters, or those of all its items; LimitError if that is too much to count."""
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, int):
        # decimal digits, near enough, without writing the number out: str() of a huge one takes quadratic time
        return value.bit_length() // 3
    if isinstance(value, range):
        return 8 * len(value)
    if not isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return 8
    total, pending = 0, [value]
    while pending:  # one list may hold another many times: what it would be written out counts
        for item in _items(pending.pop()):
            total += 8
            if isinstance(item, (str, bytes)):
                total += len(item)
            elif isinstance(item, (list, tuple, set, frozenset, Mapping)):
                pending.append(item)
            if total > MOST_CHARACTERS:
                raise LimitError(f"the template makes a value of more than {MOST_CHARACTERS:,} characters")
    return total


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield item
    else:
        yield from value


def multiplied(*values: Any) -> None:
    """Refuse an operation that could make too much of these values: all lengths and numbers multiplied."""
    product = 1
    for value in values:
        size = abs(value) if isinstance(value, int) else weight(value) if hasattr(value, "__len__") else 1
        product *= max(1, size)
        if product > MOST_CHARACTERS:
            raise LimitError(f"the template makes a value of more than {MOST_CHARACTERS:,} characters")


def _counted(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        charge(8 + weight(item))
        yield item


def guarded_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter, charged for what it could make, and for each item if it makes them one by one."""
    # the environment or context that Jinja hands to the filter first is not part of its input
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        given = args[skipped:]
        if given and isinstance(given[0], types.GeneratorType):
            # a generator has no length: its items are counted while they are made
            given = (list(_counted(given[0])), *given[1:])
            args = (*args[:skipped], *given)
        multiplied(*given, *kwargs.values())
        result = function(*args, **kwargs)
        if isinstance(result, types.GeneratorType):
            return _counted(result)
        charge(weight(result))
        return result

    return guarded


def _format(value: Any, *args: Any) -> str:
    """Filter `format` and operator `%`, without widths that make much of little."""
    text = str(value)
    if re.search(_WIDTH, text):
        raise LimitError(f"{text[:60]!r} has a width of more than three digits, or one from elsewhere")
    # %r may write a character as several
    charge(len(text) + sum(2 * weight(one) for one in args))
    return text % (args[0] if len(args) == 1 and isinstance(args[0], (dict, tuple)) else args)


def _no_format(*_: Any, **__: Any) -> str:
    raise LimitError("str.format takes widths from values; join texts with ~, or use the filter format")


def _joined(parts: list[Any]) -> str:
    """Operator `~`."""
    charge(sum(weight(part) for part in parts))
    return markup_join(parts)


def _literal(value: Any) -> Any:
    """Return a list, tuple or mapping that the template writes out."""
    charge(weight(value))
    return value


@jinja2.pass_context  # which keeps it from being folded into the template when that is compiled
def _step(_: jinja2.runtime.Context, characters: int) -> str:
    charge(characters)
    return ""


class _Charged(NodeTransformer):
    """Puts a charge at the start of every loop, macro, block and template, and on what puts values together."""

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        node = super().visit(node, *args, **kwargs)
        if isinstance(node, _SCOPES):
            text = sum(len(one.data) for one in node.find_all(nodes.TemplateData))
            step = nodes.Filter(nodes.Const(text), "_step", [], [], None, None)
            # at the start of a loop's body, so that each turn is charged, before it does anything
            node.body.insert(0, nodes.ExprStmt(step).set_lineno(node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        parts = nodes.List([self.visit(one) for one in node.nodes])
        return nodes.Filter(parts, "_joined", [], [], None, None).set_lineno(node.lineno)

    def _literal(self, node: Any) -> Any:
        self.generic_visit(node)
        # the target of a for or set is not a value
        if getattr(node, "ctx", "load") != "load" or not any(True for _ in node.iter_child_nodes()):
            return node
        return nodes.Filter(node, "_literal", [], [], None, None).set_lineno(node.lineno)

    visit_List = visit_Tuple = visit_Dict = _literal


@functools.cache
def _own_fields(cls: Hashable) -> frozenset[str]:
    """Return the fields of our own dataclasses, which hold plain values: Jinja's search for unsafe ones takes longer than the rest."""
    own = isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__.startswith("vertexrig.")
    return frozenset(field.name for field in dataclasses.fields(cls)) if own else frozenset()  # type: ignore[arg-type]


class _Finalized(CodeGenerator):
    """Writes no call of `escape` around what `finalize` returns: Markup already, of which it would make another."""

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        if finalize.src is None or frame.eval_ctx.volatile or not frame.eval_ctx.autoescape:
            super()._output_child_pre(node, frame, finalize)
        else:
            self.write(f"({finalize.src}")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of templates from elsewhere, with a `finalize` that returns Markup. `bounded` renders one."""

    code_generator_class = _Finalized
    intercepted_binops = frozenset(["+", "*", "**", "%"])

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in ("xmlattr", "urlize", "pprint"):  # for HTML, and for debugging
            self.filters.pop(name, None)
        self.filters = {name: guarded_filter(function) for name, function in self.filters.items()}
        self.filters |= {"format": _format, "_joined": _joined, "_literal": _literal, "_step": _step}
        self.globals.clear()  # cycler, joiner, namespace and lipsum are Python classes that lead to all others

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        if len(source) > MOST_SOURCE:
            raise jinja2.TemplateSyntaxError(
                f"the template has more than {MOST_SOURCE:,} characters", 1, name, filename
            )
        tree: nodes.Template = _Charged().visit(super()._parse(source, name, filename))
        # the nodes put in above do not have one yet, and compiling asks them for it
        tree.set_environment(self)
        return tree

    def getattr(self, obj: Any, attribute: str) -> Any:
        cls: Any = type(obj)
        if attribute in _own_fields(cls):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        return None if super().wrap_str_format(value) is None else _no_format

    def call_binop(self, context: jinja2.runtime.Context, operator_: str, left: Any, right: Any) -> Any:
        if operator_ == "%" and isinstance(left, (str, bytes)):
            return _format(left, *(right if isinstance(right, tuple) else (right,)))
        if operator_ == "**" and isinstance(left, int) and isinstance(right, int):
            charge(left.bit_length() * abs(right))
        # "x" * 10**9 is charged before it is made
        elif operator_ == "*" and (hasattr(left, "__len__") or hasattr(right, "__len__")):
            multiplied(left, right)
        result = super().call_binop(context, operator_, left, right)
        charge(weight(result))
        return result

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # the names are Jinja's own, so that no argument of a template's can have them
        # macros and functions of ours charge what they do themselves; methods of str, list and dict cannot
        if not isinstance(__obj, types.BuiltinMethodType):
            charge()
            return super().call(__context, __obj, *args, **kwargs)
        multiplied(__obj.__self__, *args, *kwargs.values())
        result = super().call(__context, __obj, *args, **kwargs)
        charge(weight(result))
        return result

    def bounded(self, name: str, variables: Mapping[str, Any]) -> str:
        """Return a template rendered within one budget.

        Raises:
            LimitError: It asks for more.
            jinja2.TemplateError: It is wrong.
        """
        token = _budget.set(RenderBudget())
        try:
            return self.get_template(name).render(variables)
        finally:
            _budget.reset(token)
