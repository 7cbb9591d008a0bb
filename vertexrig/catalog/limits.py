"""The documented limits and defaults, read by key with the type the caller needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vertexrig.catalog.rows import Limit


class Limits(Mapping[str, Limit]):
    """Limits by key; `limits.json` in `vertexrig/catalog/data` lists them.

    The typed readers raise KeyError for an unknown key and TypeError for a value of another type: both are mistakes in
    our code, since an overlay can neither add a limit nor change its type.
    """

    def __init__(self, rows: Mapping[str, Limit]) -> None:
        self._rows = rows

    def __getitem__(self, key: str) -> Limit:
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def integer(self, key: str) -> int:
        """A whole number."""
        value = self[key].value
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"limit {key} is not a whole number")
        return value

    def number(self, key: str) -> float:
        """A number."""
        value = self[key].value
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise TypeError(f"limit {key} is not a number")
        return float(value)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of numbers."""
        value = self[key].value
        if not isinstance(value, list) or not all(isinstance(one, (int, float)) for one in value):
            raise TypeError(f"limit {key} is not a list of numbers")
        return tuple(map(float, value))

    def text(self, key: str) -> str:
        """A string; keys that end in `pattern` hold a regular expression for `re.fullmatch`."""
        value = self[key].value
        if not isinstance(value, str):
            raise TypeError(f"limit {key} is not a string")
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        value = self[key].value
        if not isinstance(value, list):
            raise TypeError(f"limit {key} is not a list")
        return tuple(value)

    def table(self, key: str) -> Mapping[str, str]:
        """A mapping of strings."""
        value = self[key].value
        if not isinstance(value, dict):
            raise TypeError(f"limit {key} is not a mapping")
        return dict(value)
