"""Optimizers and their learning-rate schedule."""

from __future__ import annotations

import math
from typing import Any

from trainer.config import Config
from trainer.framework import keras, tf


@keras.utils.register_keras_serializable("trainer")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 to `peak` over `warmup` steps, then stays, or falls to 0 at `total` steps.

    Args:
        peak: The learning rate at the end of the warm-up.
        warmup: Steps of the warm-up; 0 starts at the peak.
        total: Steps of the whole run.
        shape: "constant", "cosine" or "linear".
    """

    def __init__(self, peak: float, warmup: int, total: int, shape: str) -> None:
        super().__init__()
        self.peak, self.warmup, self.total, self.shape = peak, warmup, total, shape

    def __call__(self, step: Any) -> Any:
        step = tf.cast(step, tf.float32)
        # step counts from 0: without the 1 the first step would learn nothing
        rising = tf.minimum(1.0, (step + 1.0) / max(1, self.warmup + 1))
        progress = tf.clip_by_value((step - self.warmup) / max(1, self.total - self.warmup), 0.0, 1.0)
        if self.shape == "cosine":
            falling = 0.5 * (1.0 + tf.cos(math.pi * progress))
        elif self.shape == "linear":
            falling = 1.0 - progress
        else:
            falling = tf.ones_like(progress)
        return self.peak * rising * falling

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup": self.warmup, "total": self.total, "shape": self.shape}


def learning_rate(config: Config, total_steps: int) -> Any:
    """Return a number, or a schedule over `total_steps` when one is asked for."""
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    return WarmUp(config.learning_rate, config.warmup_steps, total_steps, config.schedule)


def build(config: Config, total_steps: int) -> Any:
    """Return the optimizer `config` names. Call it inside the strategy's scope."""
    rate = learning_rate(config, total_steps)
    clip = config.clip_norm or None
    makers = {
        "sgd": lambda: keras.optimizers.SGD(rate, momentum=config.momentum, global_clipnorm=clip),
        "adam": lambda: keras.optimizers.Adam(rate, global_clipnorm=clip),
        "adamw": lambda: keras.optimizers.AdamW(rate, weight_decay=config.weight_decay, global_clipnorm=clip),
        "rmsprop": lambda: keras.optimizers.RMSprop(rate, momentum=config.momentum, global_clipnorm=clip),
    }
    return makers[config.optimizer]()
