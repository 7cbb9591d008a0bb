"""Names that a module uses and binds nowhere: a misspelt name, a forgotten import. pyflakes finds them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from typing import Any

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

from vertexrig.errors import nearest
from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import Module
from vertexrig.trainer_source.reachability import Runs
from vertexrig.trainer_source.trainer_model import Defect

_IPYTHON = frozenset({"get_ipython", "display"})
_PYTHON_2 = frozenset("unicode basestring unichr buffer long file xrange raw_input reload cmp reduce execfile".split())
"""Names that only a branch for Python 2 uses."""
_CATCH = frozenset({"NameError", "Exception", "BaseException"})
_LIKE = 0.75
"""How like a name must be to be proposed: `rnage` is `range`, and `location` is not `annotations`."""


class _NameChecker(Checker):  # type: ignore[misc]
    """pyflakes without what else it reports, and without annotations, which may stay text."""

    def __init__(self, module: Module) -> None:
        self.bound = set(dir(builtins))
        super().__init__(module.tree, module.file, builtins=_IPYTHON)

    def report(self, kind: type, *args: Any, **more: Any) -> None:
        if kind is UndefinedName and isinstance(args[0], ast.Name) and isinstance(args[0].ctx, ast.Load):
            super().report(kind, *args, **more)
            self.messages[-1].node = args[0]

    @property
    def undefined(self) -> list[ast.Name]:
        # kept with the messages, because a later `global` statement takes its names out of them
        return sorted((one.node for one in self.messages), key=lambda node: (node.lineno, node.col_offset))

    def addBinding(self, node: Any, value: Any) -> None:
        self.bound.add(value.name)
        super().addBinding(node, value)

    def handleAnnotation(self, annotation: Any, node: Any) -> None:
        if annotation is getattr(node, "returns", None) and not self.annotationsFutureEnabled:
            self.handleNode(annotation, node)

    def handleStringAnnotation(self, *args: Any) -> None:
        pass


def undefined_names(code: Code, runs: Runs) -> Iterator[Defect]:
    """Yield the first use of each such name in each module, with what may have been meant."""
    for module in code.modules:
        if module.open_ended:
            continue
        try:
            checker = _NameChecker(module)
        except RecursionError:  # nested more deeply than pyflakes can follow
            continue
        scopes = {id(node): scope for node, scope in module.nodes} if checker.messages else {}
        seen = set(_PYTHON_2)
        for name in checker.undefined:
            scope = scopes.get(id(name))  # None: behind the main guard of a module that is not run
            if name.id in seen or scope is None or code.idle(scope) or runs.caught(name, module, _CATCH):
                continue
            seen.add(name.id)
            likely = (
                nearest(name.id, {one for one in checker.bound - {name.id} if not one.startswith("__")}, _LIKE) or ""
            )
            yield Defect("name", module.file, name.lineno, name.id, likely, runs.reached(name, module))
