"""The codelab's `CustomJob.run()`, from the rendered YAML.

Usage: python launch.py [multiworker-cassava-sdk | multiworker-cassava-cpu | all-pools]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import sdk  # noqa: E402


def main(name: str = "multiworker-cassava-sdk") -> None:
    """Run job `name` and wait for it."""
    sdk.connect()
    spec = sdk.read(HERE, name)
    sdk.custom_job(name, spec).run(**sdk.run_options(spec))


if __name__ == "__main__":
    main(*sys.argv[1:])
