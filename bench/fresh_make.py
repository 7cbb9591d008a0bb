"""`make tpu-job` and `make demo` in a fresh clone, an empty HOME, so no cache of uv or pip.

`python bench/fresh_make.py pip` takes one of the two installers alone. The network's speed is part of the figure: the
packages of a demo are about 495 MiB.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import REPOSITORY

INSTALLERS = ("uv", "pip")
PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"
#: what is typed in one clone after the other, and the bar in seconds; `make demo` again is typed in the clone of the first
ROWS = (("fresh `make tpu-job`", "tpu-job", 30), ("fresh `make demo`", "demo", 120), ("`make demo` again", "demo", 45))


def environment(installer: str, home: Path) -> dict[str, str]:
    """The caller's, without caches, bytecode settings, and, for pip, without uv on the path."""
    dropped = ("UV_", "XDG_", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PIP_CACHE_DIR", "MAKE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    path = env["PATH"] if installer == "uv" else PLAIN_PATH
    return {**env, "HOME": str(home), "PATH": path, "PIP_NO_CACHE_DIR": "1"}


def typed(verb: str, clone: Path, env: dict[str, str]) -> tuple[float, float]:
    """Wall seconds and processor seconds of one verb; an error with the end of its output if it fails."""
    python = getattr(sys, "_base_executable", sys.executable)
    used, begun = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]), time.perf_counter()
    done = subprocess.run(["make", verb, f"PYTHON={python}"], cwd=clone, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"make {verb} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return time.perf_counter() - begun, sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - used


def measure(installer: str) -> list[tuple[float, float]]:
    """Wall and processor seconds of each row."""
    with tempfile.TemporaryDirectory(prefix="vertexrig-fresh-") as name:
        folder, found = Path(name), []
        for place, (what, verb, _) in enumerate(ROWS):
            clone = folder / verb
            if not clone.exists():
                subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
            home = folder / f"home{place}"
            home.mkdir()
            found.append(typed(verb, clone, environment(installer, home)))
            print(f"{installer}: {what}: {found[-1][0]:.1f} s", file=sys.stderr, flush=True)
        return found


def main() -> None:
    """Print the table."""
    wanted = [name for name in INSTALLERS if name in sys.argv[1:]] or list(INSTALLERS)
    taken = {name: measure(name) for name in wanted}
    print(" | ".join(["set-up as typed, 2 cores", *(f"with {name}" for name in wanted), "bar", ""]))
    for place, (what, _, bar) in enumerate(ROWS):
        row = [every[place] for every in taken.values()]
        verdict = "ok" if max(wall for wall, _ in row) <= bar else "MISSED"
        cells = [f"{wall:.1f} s, {processor:.1f} s of processor" for wall, processor in row]
        print(" | ".join([what, *cells, f"≤ {bar} s", verdict]))


if __name__ == "__main__":
    main()
