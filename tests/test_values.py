"""The typed values of a project file are frozen dataclasses: what holds of `dataclasses.dataclass(frozen=True)` holds of ours."""

from __future__ import annotations

import dataclasses
import importlib
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

MAKERS = {"library": dataclasses.dataclass, "ours": importlib.import_module("vertexrig.catalog.value").dataclass}


def made(maker: Any) -> dict[str, type]:
    """The same classes by either decorator."""

    @maker(frozen=True)
    class Base:
        """A base."""

        name: str
        count: int = 1

    @maker(frozen=True)
    class Child(Base):
        """With a factory, a keyword and a value computed once."""

        words: tuple[str, ...] = dataclasses.field(default_factory=tuple)
        quiet: bool = dataclasses.field(default=False, kw_only=True, repr=False)

        @cached_property
        def twice(self) -> int:
            return 2 * self.count

    @maker(frozen=True)
    class Strict:
        """Refuses what is negative, and compares by itself."""

        size: int

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.size % 10 == other.size % 10

    return {"Base": Base, "Child": Child, "Strict": Strict}


CLASSES = {maker: made(function) for maker, function in MAKERS.items()}
VALUES = st.one_of(st.integers(-3, 3), st.text(max_size=2), st.tuples(st.text(max_size=1)), st.just([]))
ARGUMENTS = st.tuples(
    st.lists(VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["name", "count", "words", "quiet", "size", "other"]), VALUES, max_size=3),
)


def outcome(maker: str, name: str, args: list[Any], given: dict[str, Any]) -> Any:
    """What making a value, and looking at it, gives: the kind of error, or all that can be seen of it."""
    cls = CLASSES[maker][name]
    try:
        value = cls(*args, **given)
    except (TypeError, ValueError) as error:
        return type(error)
    try:
        hashed: Any = hash(value)
    except TypeError:
        hashed = TypeError
    shown = repr(value).rpartition(".")[2]
    return shown, dataclasses.asdict(value), hashed if name != "Strict" else None, value == cls(*args, **given)


@given(st.sampled_from(["Base", "Child", "Strict"]), ARGUMENTS)
def test_a_value_is_made_shown_and_compared_as_a_dataclass(name: str, arguments: tuple[Any, Any]) -> None:
    """Any arguments give the same value, the same text and the same hash, or the same kind of error."""
    assert outcome("ours", name, *arguments) == outcome("library", name, *arguments)


@pytest.mark.parametrize("maker", MAKERS)
def test_a_value_cannot_be_changed(maker: str) -> None:
    """Neither setting nor deleting a field is possible; `replace` makes another value, with its checks."""
    child = CLASSES[maker]["Child"]("a", quiet=True)
    for change in (lambda: setattr(child, "name", "b"), lambda: delattr(child, "name"), lambda: setattr(child, "x", 1)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    other = dataclasses.replace(child, count=3)
    assert (other.name, other.twice, child.twice, other.quiet) == ("a", 6, 2, True)
    assert child != other and child == CLASSES[maker]["Child"]("a", quiet=True)
    assert child != CLASSES[maker]["Base"]("a")
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(CLASSES[maker]["Strict"](1), size=-1)


def test_a_wrong_call_names_the_class_and_the_field() -> None:
    """The error of a missing, unknown or doubled field says which."""
    base = CLASSES["ours"]["Base"]
    with pytest.raises(TypeError, match=r"Base needs name"):
        base()
    with pytest.raises(TypeError, match=r"Base takes no other"):
        base("a", other=1)
    with pytest.raises(TypeError, match=r"Base takes no name, or has it by position already"):
        base("a", name="b")
    with pytest.raises(TypeError, match=r"Base takes 2 values by position, and 3 were given"):
        base("a", 1, 2)
