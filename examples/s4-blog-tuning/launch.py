"""The blog's `HyperparameterTuningJob.run()`, from the rendered YAML.

Usage: python launch.py [bayesian | random | grid]
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import sdk  # noqa: E402


def main(name: str = "bayesian") -> None:
    """Run sweep `name` and wait for it."""
    sdk.connect()
    sweep = sdk.read(HERE, name)
    job = sdk.tuning_job(name, sweep)
    job.run(**sdk.run_options(sweep["trialJobSpec"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
