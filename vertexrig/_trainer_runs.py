"""What a trainer does when it runs, as far as its syntax trees show it: repeated reports, variables it needs."""

from __future__ import annotations

import ast

from vertexrig._trainer_names import Call, Code, Module, dotted, last_name

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CAUGHT = {"KeyError", "LookupError", "Exception", "BaseException"}
_MAX_DEPTH = 6


class Runs:
    """Answers for one trainer; keeps the parents of each module's nodes once they are asked for."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._parents: dict[str, dict[int, ast.AST]] = {}

    def repeats(self, call: Call, depth: int = 0) -> bool | None:
        """Whether a call is made again and again (in a loop, a Keras callback); None if that cannot be told."""
        parents = self._parents_of(call.module)
        here: ast.AST | None = call.node
        while here is not None:
            if isinstance(here, _LOOPS):
                return True
            if isinstance(here, ast.Lambda):
                return None
            if isinstance(here, _FUNCTIONS):
                return self._called_again(here, call.module, depth)
            here = parents.get(id(here))
        return False

    def _called_again(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, depth: int
    ) -> bool | None:
        if function.name.startswith("on_"):
            return True  # a method of a Keras callback
        owner = self._parents_of(module).get(id(function))
        name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
        calls = self._code.callers(name)
        if depth > _MAX_DEPTH or not calls or self._handed_on(name, calls):
            return None
        answers = [self.repeats(call, depth + 1) for call in calls]
        return True if True in answers else None if None in answers else False

    def _handed_on(self, name: str, calls: list[Call]) -> bool:
        """Whether the function is also used as a value: then somebody else calls it, and how often is theirs to say."""
        called = {id(call.node.func) for call in calls}
        return any(
            isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == name and id(node) not in called
            for module in self._code.modules
            for node, _ in module.nodes
        )

    def _parents_of(self, module: Module) -> dict[int, ast.AST]:
        if module.file not in self._parents:
            found: dict[int, ast.AST] = {}
            for parent in ast.walk(module.tree):
                found.update((id(child), parent) for child in ast.iter_child_nodes(parent))
            self._parents[module.file] = found
        return self._parents[module.file]

    def needed(self, name: str) -> tuple[str, int] | None:
        """File and line of `os.environ[name]`, if the trainer looks the variable up that way only and does not catch
        its absence; else None."""
        first: tuple[str, int] | None = None
        for module in self._code.modules:
            plain = [node for node, _ in module.nodes if isinstance(node, ast.Constant) and node.value == name]
            for node in plain:
                parent = self._parents_of(module).get(id(node))
                if not isinstance(parent, ast.Subscript) or not isinstance(parent.ctx, ast.Load):
                    return None
                if not dotted(parent.value).endswith("environ") or self._caught(parent, module):
                    return None
                first = first or (module.file, node.lineno)
        return first

    def _caught(self, node: ast.AST, module: Module) -> bool:
        parents = self._parents_of(module)
        here: ast.AST | None = node
        while here is not None:
            parent = parents.get(id(here))
            if isinstance(parent, ast.Try) and here in parent.body and any(map(_catches, parent.handlers)):
                return True
            here = parent
        return False


def _catches(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(last_name(kind) in _CAUGHT for kind in types)
