"""What a trainer does when it runs, as far as its syntax trees show it: repeated reports, variables it needs."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import cached_property

from vertexrig.trainer_source.code import Code
from vertexrig.trainer_source.modules import FUNCTIONS, TRY, Module, SourceCall, catches
from vertexrig.trainer_source.trainer_model import SourcePlace

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_CAUGHT = {"KeyError", "LookupError", "Exception", "BaseException"}
_MAX_DEPTH = 50


class Runs:
    """Answers for one trainer. Each function is analysed once, when first asked for."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._again: dict[int, bool | None] = {}

    def repeats(self, call: SourceCall, depth: int = 0) -> bool | None:
        """Whether a call is made again and again (in a loop, a Keras callback); None if that is not known."""
        parents = call.module.parents
        here: ast.AST | None = call.node
        while here is not None:
            # a call that is written in a loop repeats, whatever the function around it does
            if isinstance(here, _LOOPS):
                return True
            # who calls a lambda, and how often, is not followed
            if isinstance(here, ast.Lambda):
                return None
            if isinstance(here, FUNCTIONS):
                if id(here) not in self._again:
                    self._again[id(here)] = None  # what a function that calls itself finds on its way
                    self._again[id(here)] = self._called_again(here, call.module, depth)
                return self._again[id(here)]
            here = parents.get(id(here))
        return False

    def _called_again(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, depth: int
    ) -> bool | None:
        # Keras names every method of a callback so: on_epoch_end, on_train_batch_end
        if function.name.startswith("on_"):
            return True  # a method of a Keras callback
        owner = module.parents.get(id(function))
        name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        calls = self._code.callers(name)
        # A function that is also handed on as a value is called by somebody else; how often is theirs to say.
        if depth > _MAX_DEPTH or not calls or name in self._handed_on:
            return None
        answers = [self.repeats(call, depth + 1) for call in calls]
        return True if True in answers else None if None in answers else False

    @cached_property
    def _handed_on(self) -> set[str]:
        """The names that are used other than by calling them."""
        called = {id(call.node.func) for call in self._code.calls}
        return {name for name, node in self._code.names if id(node) not in called}

    def needed(self) -> dict[str, SourcePlace]:
        """Return the environment variables whose absence would end the trainer, each with a place.

        They are looked up as `os.environ[name]` and in no other way, in no branch, and a KeyError is not caught.
        """
        candidates: dict[str, list[tuple[Module, ast.Subscript]]] = {}
        other: set[str] = set()
        for text, node, module in self._code.texts_written:
            if id(node) in self._code.looked_up:
                candidates.setdefault(text, []).append((module, self._code.looked_up[id(node)]))
            # Named anywhere else, the variable may be given a value or asked for first: then nothing is certain.
            else:
                other.add(text)
        return {
            name: SourcePlace(places[0][0].file, places[0][1].lineno, name)
            for name, places in candidates.items()
            if name not in other
            and not any(self.caught(node, module, _CAUGHT) for module, node in places)
            # one look-up that every run comes to is enough to end it
            and not all(self._branched(node, module) for module, node in places)
        }

    def reached(self, node: ast.AST, module: Module) -> bool:
        """Whether every run that ends well comes to a node: it is behind no branch, and its function is called."""
        return not self._branched(node, module)

    def _branched(self, node: ast.AST, module: Module, depth: int = 0) -> bool:
        """Whether a node is reached in some runs only: behind an if, or in a function that is only called so."""
        parents = module.parents
        here: ast.AST = node
        while (parent := parents.get(id(here))) is not None:
            if (
                isinstance(parent, (ast.If, ast.IfExp, ast.While))
                and here is not parent.test
                and not _is_main(parent.test)
            ):
                return True
            if isinstance(parent, ast.match_case) or (isinstance(parent, ast.BoolOp) and here is not parent.values[0]):
                return True
            if isinstance(parent, ast.Lambda):
                return True
            if isinstance(parent, FUNCTIONS) and here in parent.body:
                owner = parents.get(id(parent))
                in_class = isinstance(owner, ast.ClassDef) and parent.name == "__init__"
                calls = self._code.callers(owner.name if in_class and isinstance(owner, ast.ClassDef) else parent.name)
                if depth > _MAX_DEPTH or not calls or _ends_before(parent, here):
                    return True
                return all(self._branched(call.node, call.module, depth + 1) for call in calls)
            here = parent
        return False

    def caught(self, node: ast.AST, module: Module, errors: Collection[str]) -> bool:
        """Whether a `try` around a node, also one outside its function, has a handler for one of these errors."""
        parents = module.parents
        here: ast.AST | None = node
        while here is not None:
            parent = parents.get(id(here))
            if isinstance(parent, TRY) and here in parent.body and any(catches(one, errors) for one in parent.handlers):
                return True
            here = parent
        return False


def _is_main(test: ast.expr) -> bool:
    """Whether a test holds in the module that is run: `__name__ == "__main__"`, not another name of somebody's own."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    sides = (test.left, test.comparators[0])
    named = any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)
    return named and any(isinstance(side, ast.Constant) and side.value == "__main__" for side in sides)


def _ends_before(function: ast.FunctionDef | ast.AsyncFunctionDef, statement: ast.AST) -> bool:
    """Whether a branch before a function's statement may return: `if not distributed: return`."""
    for node in function.body:
        if node is statement:
            return False
        if isinstance(node, ast.If) and any(isinstance(part, (ast.Return, ast.Raise)) for part in ast.walk(node)):
            return True
    return False
