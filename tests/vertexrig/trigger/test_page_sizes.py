"""The numbers that docs/trigger-reference.md and the benchmarks' page name are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import clouds
from tests.support.tools import REPOSITORY
from vertexrig.submit import claims
from vertexrig.trigger import request, stage

PAGE = " ".join((REPOSITORY / "docs/trigger-reference.md").read_text(encoding="utf-8").split())
BENCH = (REPOSITORY / "bench/README.md").read_text(encoding="utf-8")


def said(pattern: str) -> tuple[str, ...]:
    """What the page says at one place."""
    (found,) = re.findall(pattern, PAGE)
    return found if isinstance(found, tuple) else (found,)


def test_limits() -> None:
    """The largest body, and the seconds after which a delivery takes a claim over, and until which Cloud Scheduler has to retry."""
    assert said(r"413 \| more than (\d+) KiB") == (str(request.LIMIT // 1024),)
    assert said(r"waits up to (\d+) s for the job") == (f"{claims.WAIT_S:g}",)
    assert said(r"a repeat more than (\d+) s after the first") == (f"{claims.LEASE_S:g}",)
    assert said(r"last retry must come at least (\d+) s after") == (f"{claims.FREE_AFTER_S:g}",)


def test_the_cost() -> None:
    """The calls of a month that the page calls free are within the free part that it names, by 1 vCPU and 1 GiB."""
    cpu, memory, calls = said(r"free each month: ([0-9,]+) vCPU-s, ([0-9,]+) GiB-s, (\d+) million requests")
    assert said(
        "A (thousand) calls a day of (two) seconds each, and a tick every (ten) minutes, stay within the free tier"
    )
    month = 31 * (1_000 + 24 * 6)
    assert month * 2 < min(number(cpu), number(memory)) and month < number(calls) * 1_000_000


def test_the_staged_folder(tmp_path: Path) -> None:
    """The folder's size, within a tenth, and the packages that are installed with it."""
    staged = stage.stage(clouds.loaded(tmp_path), tmp_path / "out")
    ((size, packages),) = re.findall(r"staged folder; packages installed with it \| ([0-9,]+) KiB; (\d+) \|", BENCH)
    assert abs(number(size) * 1024 / staged.size - 1) < 0.1 and int(packages) == staged.requirements


def number(text: str) -> float:
    return float(text.replace(",", ""))
