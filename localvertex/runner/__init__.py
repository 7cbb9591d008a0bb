"""Runs a CustomJobSpec on this machine, as the training service would: see `JobRun`."""

from localvertex.runner.lines import Line
from localvertex.runner.options import Control, RunOptions
from localvertex.runner.result import JobResult
from localvertex.runner.run import JobRun

__all__ = ["Control", "JobResult", "JobRun", "Line", "RunOptions"]
