"""Imports one module in an isolated interpreter and writes what happened as JSON. Run by path, never imported.

The interpreter is started with `-I -S`, so it sees the standard library and the trainer's installed package, nothing
else. Packages the image or the requirements bring are stood in for by objects that can be called, subclassed, used as
decorators and calculated with; so the trainer's own module-level code runs, and TensorFlow need not be here.

argv[1]: {"target": folder, "module": name, "stand_ins": [names], "version": text, "result": file}
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import sys
import traceback
import types
from collections.abc import Sequence

used: set[str] = set()
starred: list[str] = []
version = "0"


class StandIn:
    """Whatever a missing package may offer."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> object:
        if name == "__version__":
            return version
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self._name}.{name}")

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = value

    def __call__(self, *args: object, **kwargs: object) -> object:
        # As a decorator: what is decorated stays itself.
        if len(args) == 1 and not kwargs and isinstance(args[0], (types.FunctionType, type)):
            return args[0]
        return StandIn(f"{self._name}()")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        def init_subclass(cls: type, /, **kwargs: object) -> None:
            pass

        def getattribute(self: object, name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(name)
            return StandIn(name)

        body: dict[str, object] = {"__init_subclass__": classmethod(init_subclass), "__getattr__": getattribute}
        return (type(str(self._name).rpartition(".")[2] or "Base", (), body),)

    def _same(self, *args: object) -> StandIn:
        return self

    __getitem__ = __enter__ = __aenter__ = __neg__ = __pos__ = __abs__ = __invert__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _same
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = _same

    def __setitem__(self, key: object, value: object) -> None: ...
    def __delitem__(self, key: object) -> None: ...
    def __exit__(self, *args: object) -> None: ...
    def __iter__(self) -> object:
        return iter(())

    def __contains__(self, item: object) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True

    def __int__(self) -> int:
        return 1

    __index__ = __int__

    def __float__(self) -> float:
        return 1.0

    def __lt__(self, other: object) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__

    def __instancecheck__(self, instance: object) -> bool:
        return False

    __subclasscheck__ = __instancecheck__


class StandInModule(types.ModuleType):
    """A module of a package that is not here."""

    def __getattr__(self, name: str) -> object:
        if name == "__all__":
            starred.append(self.__name__)
            return []
        if name == "__version__":
            return version
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module of the named packages; asked last, so real modules come first."""

    def __init__(self, names: list[str]) -> None:
        self.names = set(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """A stand-in's spec, or None for a package that must be there itself."""
        if fullname.split(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A stand-in module, noted as used."""
        used.add(spec.name.split(".")[0])
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def describe(error: BaseException, target: str) -> dict[str, object]:
    """The error, and the last line of the trainer's own code on the way to it."""
    place = ["", 0, ""]
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(target):
            place = [frame.filename[len(target) :].lstrip("/\\"), frame.lineno or 0, frame.line or ""]
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(target):
        place = [error.filename[len(target) :].lstrip("/\\"), error.lineno or 0, (error.text or "").strip()]
    return {
        "ok": False,
        "type": type(error).__name__,
        "kinds": [kind.__name__ for kind in type(error).__mro__],
        "message": str(error)[:500],
        "name": getattr(error, "name", None) if isinstance(error, ImportError) else None,
        "place": place,
    }


def main() -> None:
    """Imports the module named in argv[1] and writes the result file."""
    global version
    order = json.loads(sys.argv[1])
    sys.argv[1:] = []
    version = order["version"]
    sys.path.insert(0, order["target"])
    sys.meta_path.append(Finder(order["stand_ins"]))
    try:
        importlib.import_module(order["module"])
        result: dict[str, object] = {"ok": True}
    except BaseException as error:
        result = describe(error, order["target"])
    result |= {"used": sorted(used), "starred": bool(starred)}
    with open(order["result"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)


if __name__ == "__main__":
    main()
