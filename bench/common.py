"""Timing that several benchmarks share: whole processes in turn, medians, peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Runs:
    """Several runs of one command.

    Args:
        seconds: Wall time of each.
        peak_mib: The largest resident memory of any.
    """

    seconds: tuple[float, ...]
    peak_mib: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def once(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> tuple[float, float]:
    """One run: wall seconds and peak MiB; an error with its output if it fails."""
    begun = time.perf_counter()
    with subprocess.Popen(
        command, env=dict(env), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        error = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    if process.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)} ended with {process.returncode}:\n{error.decode(errors='replace')[-2000:]}"
        )
    return seconds, usage.ru_maxrss / 1024


def in_turn(commands: Mapping[str, Sequence[str]], env: Mapping[str, str], cwd: Path, runs: int) -> dict[str, Runs]:
    """Each command `runs` times, A B C A B C …, after one run of each that does not count."""
    # that first run may keep compiled modules, as an installation does
    env = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for command in commands.values():
        once(command, env, cwd)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            taken[name].append(once(command, env, cwd))
    return {
        name: Runs(tuple(seconds for seconds, _ in every), max(peak for _, peak in every))
        for name, every in taken.items()
    }


def row(what: str, ours: str, peer: str, ratio: float | None, bar: str, ok: bool | None) -> str:
    """One line of a table."""
    verdict = "" if ok is None else "ok" if ok else "MISSED"
    return f"{what} | {ours} | {peer} | {'' if ratio is None else f'{ratio:.2f}'} | {bar} | {verdict}"
