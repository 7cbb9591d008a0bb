"""Runs a CustomJobSpec on this machine, as the training service would: see `run_job`."""

from vertexrig.local.runner.lines import Line
from vertexrig.local.runner.options import Control, RunOptions
from vertexrig.local.runner.result import JobResult
from vertexrig.local.runner.run import run_job

__all__ = ["Control", "JobResult", "Line", "RunOptions", "run_job"]
