"""Time as the firing engine sees it, so that tests can move it."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone

LONGEST = 30.0
"""Most seconds slept at once: a laptop that was asleep, or whose clock was set, is noticed this soon."""


class Clock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time, aware, in UTC."""
        return datetime.now(timezone.utc)

    async def wait(self, event: asyncio.Event, until: datetime | None) -> None:
        """Return when `event` is set, at `until`, or after `LONGEST` seconds: the caller looks again."""
        left = LONGEST if until is None else min(LONGEST, max(0.0, (until - self.now()).total_seconds()))
        try:
            await asyncio.wait_for(event.wait(), timeout=left)
        except asyncio.TimeoutError:
            return
