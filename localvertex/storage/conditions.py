"""The four preconditions of Cloud Storage requests.

Source: https://cloud.google.com/storage/docs/request-preconditions
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localvertex.http import ApiError, invalid_parameter

MESSAGE = "At least one of the pre-conditions you specified did not hold."


@dataclass(frozen=True)
class Conditions:
    """Conditions on the live object (or bucket) without which a request is refused.

    Args:
        generation_match: The live generation; 0 means that there is no live object.
        generation_not_match: Not the live generation; 0 means that there is one.
        metageneration_match: The live metageneration.
        metageneration_not_match: Not the live metageneration.
    """

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    @staticmethod
    def of(values: Mapping[str, object], *, source: bool = False) -> Conditions:
        """Read `ifGenerationMatch` and its relatives (`ifSourceGenerationMatch`... with `source`) from a mapping."""
        start = "ifSource" if source else "if"
        return Conditions(
            whole_number(values, f"{start}GenerationMatch"),
            whole_number(values, f"{start}GenerationNotMatch"),
            whole_number(values, f"{start}MetagenerationMatch"),
            whole_number(values, f"{start}MetagenerationNotMatch"),
        )

    def check(self, generation: int | None, metageneration: int | None, header: str = "If-Match") -> None:
        """Raise 412, or 304 for a failed "not match", of a write too; `generation` None means there is no live object.

        The error of a bucket's condition names no `header` (zig-gcp's recording of 2026-09-29).
        """
        live = generation or 0
        if self.generation_match is not None and self.generation_match != live:
            raise ApiError(412, MESSAGE)
        if self.metageneration_match is not None and self.metageneration_match != metageneration:
            raise ApiError(412, MESSAGE, header=header)
        unchanged = (self.generation_not_match is not None and self.generation_not_match == live) or (
            self.metageneration_not_match is not None and self.metageneration_not_match == (metageneration or 0)
        )
        if unchanged:
            # Also of a write, which is not made (fireemu's recording of an upload, zig-gcp's of a bucket's PATCH).
            raise ApiError(304, MESSAGE)


def whole_number(values: Mapping[str, object], name: str) -> int | None:
    """Return a number such as a generation, from a query or a body; None without it, 400 for any other text."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not re.fullmatch(r"-?[0-9]{1,19}", str(value)):
        raise invalid_parameter(name, f"Invalid long value: '{str(value)[:80]}'.")
    return int(str(value))
