"""Random changes to training images, computed in the graph, a new draw for every image of every batch.

The draws are stateless: they depend on (seed, batch number) alone, so a resumed run repeats those of an undisturbed one.
"""

from __future__ import annotations

from typing import Any

from trainer.config import Config
from trainer.framework import tf

CONTRAST = (0.5, 1.5)
BRIGHTNESS = 0.2 * 255  # images are 0 to 255
SATURATION = (0.5, 1.5)


def wanted(config: Config) -> bool:
    """Tell whether `config` asks for any augmentation."""
    return config.flip or config.with_color_distort or config.crop_ratio < 1


def augment(images: Any, seed: Any, config: Config) -> Any:
    """Flip, crop and distort a batch.

    Args:
        images: float32 (batch, height, width, channels), 0 to 255.
        seed: Two int64, different for each batch.
    """
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 3), axis=0)
    if config.flip:
        images = _flip(images, seeds[0])
    if config.crop_ratio < 1:
        images = _crop(images, seeds[1], config.crop_ratio)
    if config.with_color_distort:
        images = _distort(images, seeds[2])
    return images


def _per_image(images: Any, seed: Any, low: float, high: float) -> Any:
    """Return one number for each image, shaped to broadcast over it."""
    return tf.random.stateless_uniform((tf.shape(images)[0], 1, 1, 1), seed, low, high)


def _flip(images: Any, seed: Any) -> Any:
    return tf.where(_per_image(images, seed, 0.0, 1.0) < 0.5, images, tf.reverse(images, axis=[2]))


def _crop(images: Any, seed: Any, ratio: float) -> Any:
    """Return a random square of `ratio` of the side, scaled back to the full side."""
    total = tf.shape(images)[0]
    # boxes are in parts of the side, from 0 to 1
    corner = tf.random.stateless_uniform((total, 2), seed, 0.0, 1.0 - ratio)
    boxes = tf.concat([corner, corner + ratio], axis=1)
    cropped = tf.image.crop_and_resize(images, boxes, tf.range(total), images.shape[1:3])
    return tf.ensure_shape(cropped, images.shape)


def _distort(images: Any, seed: Any) -> Any:
    """Contrast and brightness; saturation as well where there is colour."""
    seeds = tf.unstack(tf.random.experimental.stateless_split(seed, 3), axis=0)
    if images.shape[-1] == 3:
        grey = tf.image.rgb_to_grayscale(images)
        images = grey + (images - grey) * _per_image(images, seeds[0], *SATURATION)
    mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
    images = mean + (images - mean) * _per_image(images, seeds[1], *CONTRAST)
    return tf.clip_by_value(images + _per_image(images, seeds[2], -BRIGHTNESS, BRIGHTNESS), 0.0, 255.0)
