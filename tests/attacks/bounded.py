"""`python -m tests.attacks.bounded WORDS`: the command line within bounds; its peak of memory is written to the file `peak`."""

from __future__ import annotations

import math
import re
import resource
import sys
import time
from pathlib import Path

MIB = 1024 * 1024
CPU_S, PEAK_MIB = 3, 200
"""What a bomb may take: processor time in whole seconds, not time of day, so that other work on the machine does not matter.
On 2026-11-26 69,000 unknown fields took most, 2.4 s and 107 MiB, on a busy machine of 2 cores."""


def limited(seconds: int = CPU_S) -> None:
    """Ends this process when from now on it takes more than these seconds of processor time, or PEAK_MIB more of addresses."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + PEAK_MIB * MIB, -1))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, -1))


def peak_mib() -> int:
    """The most memory that this process has held; ru_maxrss of a new process begins at its parent's."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


if __name__ == "__main__":
    from vertexrig.cli import run

    limited()
    code = run(sys.argv[1:])
    Path("peak").write_text(str(peak_mib()))
    sys.exit(code)
