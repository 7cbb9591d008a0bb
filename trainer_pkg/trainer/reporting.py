"""Reports the metric to Vertex AI's hyperparameter tuning, through cloudml-hypertune."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping

LOG = logging.getLogger("trainer")
METRIC = "accuracy"
DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # cloudml-hypertune's own default


class Reporter:
    """Writes the metric file; does nothing on any process but the chief.

    A metric file that cannot be written fails the run only inside a trial, where it is the trial's result.
    """

    def __init__(self, *, is_chief: bool, environ: Mapping[str, str] = os.environ) -> None:
        self._hypertune = None
        self._in_trial = bool(environ.get("CLOUD_ML_TRIAL_ID") or environ.get("CLOUD_ML_HP_METRIC_FILE"))
        if not is_chief:
            return
        try:
            from hypertune import HyperTune

            folder = os.path.dirname(environ.get("CLOUD_ML_HP_METRIC_FILE", DEFAULT_FILE))
            os.makedirs(folder or ".", exist_ok=True)  # two processes at once: HyperTune itself would fail
            self._hypertune = HyperTune()
        except (ImportError, OSError) as error:
            if self._in_trial:
                raise
            LOG.info("no metric file is written: %s", error)

    def report(self, value: float, step: int) -> None:
        """Report `value` at `step`; a value that is not finite is left out, since it would count as a result."""
        if self._hypertune is None or not math.isfinite(value):
            return
        try:
            # the name as a literal, so that tools that read the source without running it find the metric
            self._hypertune.report_hyperparameter_tuning_metric(
                hyperparameter_metric_tag="accuracy", metric_value=value, global_step=step
            )
        except OSError as error:
            if self._in_trial:
                raise
            LOG.info("no metric file is written: %s", error)
            self._hypertune = None
