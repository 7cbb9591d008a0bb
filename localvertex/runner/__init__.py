"""Runs a CustomJobSpec on this machine, as the training service would: see `run_job`."""

from localvertex.runner.lines import Line
from localvertex.runner.options import Control, RunOptions
from localvertex.runner.result import JobResult
from localvertex.runner.run import run_job

__all__ = ["Control", "JobResult", "Line", "RunOptions", "run_job"]
