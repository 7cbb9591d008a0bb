"""How the classes of typed values are made, here and in the rooms above.

Every command makes a hundred such classes when it starts. `dataclasses.dataclass` writes and compiles the methods of each,
0.3 ms a class on Python 3.11; with the `dataclass` of this module they share one set of methods, and a class takes 0.02 ms
(2026-11-22). In turn a value takes a few microseconds more. All else is that of dataclasses: `field`, `fields`, `replace`,
`asdict`, keyword-only fields, `__post_init__`, inheritance from each other. A type checker sees `dataclasses.dataclass`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

__all__ = ["dataclass"]

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: Literal[True], kw_only: bool = False) -> Callable[[type[T]], type[T]]:
        """Makes a class a frozen dataclass, as `dataclasses.dataclass` with the same options would."""

        def made(cls: type[T]) -> type[T]:
            own = vars(cls)
            methods = {name: method for name, method in _METHODS.items() if name not in own}
            if own.get("__hash__") is None and "__eq__" in own:  # Python's own doing for a class with __eq__
                methods["__hash__"] = _hash
            # Not frozen to dataclasses: that would compile a __setattr__ and __delattr__ for each class.
            dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
            for name, method in methods.items():
                setattr(cls, name, method)
            return cls

        return made


@cache
def _fields(cls: type) -> tuple[tuple[str, ...], dict[str, dataclasses.Field[Any]]]:
    """The names that may be given by position, and all fields by name."""
    fields = dataclasses.fields(cls)
    return tuple(one.name for one in fields if not one.kw_only), {one.name: one for one in fields}


def _init(self: Any, /, *args: Any, **given: Any) -> None:
    positional, fields = _fields(self.__class__)
    whole = given.keys() == fields.keys() and not args  # as from `replace`
    # Past __setattr__, which refuses.
    vars(self).update(given if whole else _completed(self.__class__.__name__, positional, fields, args, given))
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _completed(
    name: str,
    positional: tuple[str, ...],
    fields: dict[str, dataclasses.Field[Any]],
    args: tuple[Any, ...],
    given: dict[str, Any],
) -> dict[str, Any]:
    """Every field with the value that is given for it, or its default."""
    if len(args) > len(positional):
        raise TypeError(f"{name} takes {len(positional)} values by position, and {len(args)} were given")
    by_position = dict(zip(positional, args, strict=False))
    if not given.keys().isdisjoint(by_position) or not given.keys() <= fields.keys():
        wrong = sorted(given.keys() & by_position.keys() | given.keys() - fields.keys())
        raise TypeError(f"{name} takes no {', '.join(wrong)}, or has it by position already")
    given |= by_position
    state = {}
    for key, field in fields.items():
        if key in given:
            state[key] = given[key]
        elif field.default is not dataclasses.MISSING:
            state[key] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            state[key] = field.default_factory()
        else:
            raise TypeError(f"{name} needs {key}")
    return state


def _values(self: Any) -> tuple[Any, ...]:
    state = vars(self)
    return tuple(state[name] for name in _fields(self.__class__)[1])


def _repr(self: Any) -> str:
    shown = (f"{name}={getattr(self, name)!r}" for name, field in _fields(self.__class__)[1].items() if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _setattr(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}
