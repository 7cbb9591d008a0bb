"""The Jinja environment of all templates: what a template may call, and how a value becomes YAML.

Values reach YAML only as JSON, which the environment makes of every `{{ }}`: no template can forget it, and no value
can add a key. Measured on 2026-11-20 on 11 awkward strings: bare interpolation got 4 wrong, JSON none.

A template may come from someone else, so the environment is Jinja's sandbox. The sandbox keeps a template from Python's
internals. It does not keep it from using up the machine: `vertexrig.render.bounded` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import traceback
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from markupsafe import Markup

from vertexrig import files
from vertexrig.errors import TemplateError, VertexrigError
from vertexrig.project.config import TEMPLATE_SUFFIX
from vertexrig.render.resolve import grid_study
from vertexrig.yamltext import scalar


class RefusedByTemplateError(VertexrigError):
    """A template calls `refuse`: the project file asks for something that the template cannot give."""


class Templates:
    """The templates of some folders, rendered in this process.

    Args:
        folders: Where the templates are; of two files of one name the one in the first folder counts.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = folders
        self._used: dict[str, set[str]] = {}

    @cached_property  # made by the first render: it takes some milliseconds
    def environment(self) -> Sandbox:
        return Sandbox(self.folders)

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """Return a template's text.

        Raises:
            RefusedByTemplateError: The template refuses the variables.
            TemplateError: The template is wrong.
        """
        with _explaining(template):
            return self.environment.get_template(template).render(variables)

    def names_used(self, template: str) -> set[str]:
        """Return every name that a template and those it includes take from outside."""
        if template not in self._used:
            assert self.environment.loader is not None
            source = self.environment.loader.get_source(self.environment, template)[0]
            with _explaining(template):
                tree = self.environment.parse(source)
            names = meta.find_undeclared_variables(tree)
            # stored before the loop, so that templates that include each other end; the loop adds to the same set
            self._used[template] = names
            for other in meta.find_referenced_templates(tree):
                # one that is not there may be included with `ignore missing`; without that, rendering has failed before
                with contextlib.suppress(jinja2.TemplateNotFound):
                    names |= self.names_used(other) if other is not None else set()
        return self._used[template]

    def compile(self, templates: Sequence[str]) -> None:
        """Compile templates, which the first render would do otherwise."""
        for template in templates:
            with _explaining(template):
                self.environment.get_template(template)


@contextlib.contextmanager
def _explaining(template: str) -> Iterator[None]:
    """Raise errors of Jinja and of expressions as a TemplateError with template and line."""
    try:
        yield
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError) as error:
        raise TemplateError(_explained(error, template)) from None
    except RecursionError as deep:
        endless = RecursionError("the template includes or calls itself without end")
        raise TemplateError(_explained(endless.with_traceback(deep.__traceback__), template)) from None


class _TemplateLoader(jinja2.FileSystemLoader):
    """Reads templates; a symbolic link that points outside the checkout is refused."""

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        # Only the project's own folder is checked: an installer may have linked the built-in templates.
        path = Path(self.searchpath[0], template)  # of two folders, the first is the project's
        if len(self.searchpath) > 1 and path.exists() and not files.is_inside(path, self.searchpath[0]):
            raise TemplateError(f"{path} is a link that points outside the checkout: it is not read")
        return super().get_source(environment, template)


@functools.cache
def _own_fields(cls: Hashable) -> frozenset[str]:
    """Return the field names of one of our dataclasses, else an empty set.

    Their values are plain, so Jinja's slower safety check is skipped.
    """
    own = isinstance(cls, type) and dataclasses.is_dataclass(cls) and cls.__module__.startswith("vertexrig.")
    return frozenset(field.name for field in dataclasses.fields(cls)) if own else frozenset()  # type: ignore[arg-type]


class _Finalized(CodeGenerator):
    """Compiles `{{ }}` without Jinja's `escape`, since `finalize` returns Markup."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        """Return what a literal in `{{ }}` becomes. Jinja would escape it for HTML before `finalize`."""
        if isinstance(node, nodes.TemplateData):
            return super()._output_child_to_const(node, frame, finalize)
        return str(finalize.const(node.as_const(frame.eval_ctx)))

    def _output_child_pre(self, node: nodes.Expr, frame: Frame, finalize: Any) -> None:
        """Open the call of `finalize` around an expression that is no literal. Jinja also calls `escape`, which would change nothing.

        A compiled template renders in 0.22 ms in place of 0.31 ms (9 jobs, 2 cores, 2026-11-29).
        """
        if finalize.src is None or frame.eval_ctx.volatile or not frame.eval_ctx.autoescape:
            super()._output_child_pre(node, frame, finalize)
        else:
            # Jinja's `_output_child_post` closes this parenthesis and that of `finalize.src`
            self.write(f"({finalize.src}")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, strict about undefined names, with JSON for every value."""

    code_generator_class = _Finalized

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(
            loader=_TemplateLoader(folders),
            undefined=jinja2.StrictUndefined,
            finalize=_emit,
            autoescape=True,  # so that text made by macros is distinct from values
            trim_blocks=True,
            lstrip_blocks=True,
            # templates do not change while a command runs; else each use would ask for the file's time
            auto_reload=False,
            # a template is rendered once, so folding its constants costs more time than it saves
            optimized=False,
        )
        for name in ("safe", "escape", "e", "forceescape", "striptags", "xmlattr", "urlize", "pprint"):
            del self.filters[name]  # ways around the JSON, or meant for HTML or debugging
        # Jinja's own `tojson` escapes <, > and & for HTML, and YAML would keep the escapes
        self.filters |= {"tojson": _emit, "nested": _nested}
        # cycler, joiner and namespace are Python classes, lipsum is a function: they lead to all other classes
        self.globals.clear()
        self.globals |= {"range": safe_range, "dict": dict, "zip": zip, "refuse": _refuse, "grid_study": grid_study}

    def getattr(self, obj: Any, attribute: str) -> Any:
        cls: Any = type(obj)
        if attribute in _own_fields(cls):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)


def _refuse(message: str) -> NoReturn:
    raise RefusedByTemplateError(message)


_NULL = Markup("null")


def _emit(value: Any) -> Markup:
    """Return a value as a JSON scalar, list or mapping on one line, in the part of JSON that every YAML reader agrees on."""
    if value is None:  # most fields of most jobs
        return _NULL
    if isinstance(value, Markup):
        return value
    if isinstance(value, jinja2.Undefined):
        str(value)  # raises, naming what is undefined
    return Markup(scalar(value))


def _nested(text: str, width: int, item: bool = False) -> Markup:
    """Filter: indent every line of `text` by `width`; with `item`, as one item of a list at that indentation."""
    lines = [line for line in str(text).splitlines() if line.strip()]
    if item:
        lines = [f"{'  ' if index else '- '}{line}" for index, line in enumerate(lines)]
    return Markup("".join(f"{' ' * width}{line}\n" for line in lines))


def _explained(error: Exception, template: str) -> str:
    """Return an error's text with the template and line that it comes from."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return f"{error.name or template}:{error.lineno}: {error.message}"
    if isinstance(error, jinja2.TemplateNotFound):
        return f"template {template} includes {error.name!r}, which is not there"
    # Jinja writes the template's own file and line into the traceback of its compiled code
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(TEMPLATE_SUFFIX)]
    if frames:
        return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: {error}"
    return f"{template}: {error}"
