"""How a value is shown to people."""

from __future__ import annotations


def shown(value: object, digits: int = 6) -> str:
    """A value as a table's cell: nothing for None, a fraction with so many digits, all else as it is."""
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)
