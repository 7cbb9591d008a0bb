"""What every kind of data needs: image files to tensors of the model's size, and the part held out for validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from trainer import models
from trainer.config import Config
from trainer.framework import tf

DEFAULT_IMAGE_SIZE = 150  # the codelab's


def decoder(config: Config, data_channels: int = 3) -> tuple[Callable[[Any], Any], tuple[int, int, int]]:
    """(image file's bytes -> uint8 image, its shape) for the model's size and channels."""
    side = models.image_size(config, DEFAULT_IMAGE_SIZE)
    wanted = models.channels(config, data_channels)

    def decode(content: Any) -> Any:
        image = tf.io.decode_image(content, channels=wanted, expand_animations=False)
        return fit(tf.ensure_shape(image, (None, None, wanted)), side, wanted)

    return decode, (side, side, wanted)


def fit(image: Any, side: int, wanted: int) -> Any:
    """Return an image of any size as uint8 (side, side, wanted channels)."""
    if image.shape[-1] == 1 and wanted == 3:
        image = tf.image.grayscale_to_rgb(image)
    if image.shape[:2] != (side, side):
        image = tf.image.resize(image, (side, side))
        image = tf.cast(tf.clip_by_value(tf.round(image), 0.0, 255.0), tf.uint8)
    return tf.cast(tf.ensure_shape(image, (side, side, wanted)), tf.uint8)


def hold_out(size: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the training and of the validation part: always the same, whatever `--seed` is."""
    # RandomState's numbers are the same in every release of NumPy, so a resumed run holds out the same examples
    order = np.random.RandomState(0).permutation(size)
    cut = round(size * share)
    return np.sort(order[cut:]), np.sort(order[:cut])
