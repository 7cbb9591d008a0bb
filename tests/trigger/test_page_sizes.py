"""The numbers that docs/trigger.md names are those of the code and of the benchmarks' page."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import clouds
from tests.support.tools import REPOSITORY
from vertexrig.project.triggered import TriggerSettings
from vertexrig.trigger import deploy, request, stage

PAGE = " ".join((REPOSITORY / "docs/trigger.md").read_text(encoding="utf-8").split())
BENCH = (REPOSITORY / "bench/README.md").read_text(encoding="utf-8")


def said(pattern: str) -> tuple[str, ...]:
    """What the page says at one place."""
    (found,) = re.findall(pattern, PAGE)
    return found if isinstance(found, tuple) else (found,)


def test_permissions_and_limits() -> None:
    """Permissions of each role, the largest body and the memory of an instance."""
    assert said(r"tuning jobs: (\d+) permissions") == (str(len(deploy.JOB_CALLS)),)
    assert said(r"delete objects: (\d+)\)") == (str(len(deploy.OBJECT_CALLS)),)
    assert said(r"also has (\d+) permissions on models") == (str(len(deploy.MODEL_CALLS)),)
    assert said(r"413 \| more than (\d+) KiB") == (str(request.LIMIT // 1024),)
    assert said(r"With (\d+) MiB an instance") == (str(TriggerSettings().memory.removesuffix("Mi")),)


def test_the_cost() -> None:
    """The seconds and calls of a month follow from what the page says of them."""
    (cpu,) = said(r"an instance has ([0-9.]+) vCPU")
    calls, length, seconds, cpu_seconds, memory = said(
        r"A (thousand) calls a day of (two) seconds each are ([0-9,]+) s a month: ([0-9,]+) vCPU-s and ([0-9,]+) GiB-s"
    )
    month = 1_000 * 2 * 30
    assert (calls, length) == ("thousand", "two") and number(seconds) == month
    assert abs(number(cpu_seconds) - month * float(cpu)) < 100 and number(memory) == month / 2
    (ticks,) = said(r"every ten minutes makes ([0-9,]+) calls a month")
    assert abs(number(ticks) - 365.25 / 12 * 24 * 6) < 50


def test_start_and_memory() -> None:
    """The start, the memory and their ratios are those of the newest measurement on the benchmarks' page."""
    start, memory, ratio, share = said(
        r"([0-9.]+) s from process start to the first job and ([0-9]+) MiB at most .*?, ([0-9.]+) and ([0-9.]+) of a function"
    )
    lines = BENCH.splitlines()
    (first,) = [line for line in lines if "process start to first job created, against a function" in line]
    (peak,) = [line for line in lines if "peak memory of the largest process" in line]
    assert start in first and ratio in first, first
    assert memory in peak and share in peak, peak


def test_the_staged_folder(tmp_path: Path) -> None:
    """The folder's size, within a tenth, and the packages that are installed with it."""
    staged = stage.stage(clouds.loaded(tmp_path), tmp_path / "out")
    ((size, packages),) = re.findall(r"staged folder; packages installed with it \| ([0-9,]+) KiB; (\d+) \|", BENCH)
    assert abs(number(size) * 1024 / staged.size - 1) < 0.1 and int(packages) == staged.requirements


def number(text: str) -> float:
    return float(text.replace(",", ""))
