"""How a value is shown to people."""

from __future__ import annotations


def clean(text: str) -> str:
    """Text that is safe to print: control characters, escape sequences and half surrogates become a replacement."""
    return "".join(char if char.isprintable() else " " if char in "\t\n\r" else "\ufffd" for char in text)


def shown(value: object, digits: int = 6) -> str:
    """A value as a table's cell: nothing for None, a fraction with so many digits, all else as it is."""
    return "" if value is None else f"{value:.{digits}g}" if isinstance(value, float) else str(value)
