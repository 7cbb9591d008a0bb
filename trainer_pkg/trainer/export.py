"""The exported SavedModel: plain TensorFlow, loadable without Keras, checked by loading it and scoring it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainer import data, models, outputs
from trainer.config import Config
from trainer.data import Shard, Source
from trainer.errors import DataError, OutputError, cause
from trainer.framework import keras, tf

LOG = logging.getLogger("trainer")
GRAPH = "saved_model.pb"
#: A larger gap between training's own validation accuracy and the exported model's means a broken export; smaller ones
#: come from the order of additions and from 16-bit training.
TOLERANCE = 0.02


def local_model(config: Config, source: Source, weights: Sequence[np.ndarray] | None) -> Any:
    """Return a model of this process alone, outside any strategy, with the given weights if any."""
    model = models.build(config, source.image_shape, source.num_classes, pretrained=False)
    if weights is not None:
        model.set_weights(weights)
    return model


def save(model: Any, source: Source, path: str) -> None:
    """Write the SavedModel of `model` to `path`, by way of a local directory.

    Signatures: `serving_default` takes `image_bytes` (JPEG, PNG, GIF or BMP files; the name's ending lets Vertex AI and
    TensorFlow Serving accept base64) and `serving_arrays` takes `images` (float32, 0 to 255). Both give `probabilities`
    and `label`.
    """
    height, width, channels = source.image_shape

    @tf.function(input_signature=[tf.TensorSpec((None, height, width, channels), tf.float32, name="images")])
    def serving_arrays(images: Any) -> dict[str, Any]:
        probabilities = model(images, training=False)
        return {"probabilities": probabilities, "label": tf.argmax(probabilities, axis=-1)}

    def decode(content: Any) -> Any:
        image = tf.io.decode_image(content, channels=channels, expand_animations=False)
        image.set_shape((None, None, channels))
        resized = tf.image.resize(image, (height, width))
        return tf.clip_by_value(tf.round(resized), 0.0, 255.0)

    @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="image_bytes")])
    def serving_bytes(image_bytes: Any) -> Any:
        spec = tf.TensorSpec((height, width, channels), tf.float32)
        # The graph of the other signature, so that the model is traced once.
        return serving_arrays(tf.map_fn(decode, image_bytes, fn_output_signature=spec))

    module = tf.Module()
    module.model_variables = list(model.weights)  # in the order of get_weights, for a later warm start
    signatures = {"serving_default": serving_bytes, "serving_arrays": serving_arrays}
    with outputs.temporary_directory() as local:
        with outputs.writing(local):
            tf.saved_model.save(module, local, signatures=signatures)
        outputs.copy_tree(local, path, last=GRAPH)


def read_weights(path: str) -> list[np.ndarray]:
    """Return the weights of a model that `save` wrote, in the order of `get_weights`.

    Raises:
        DataError: there is no such model.
    """
    try:
        reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    except (tf.errors.OpError, ValueError, OSError):
        raise DataError(f"--warm_start_from={path}: no model of this trainer there; give the model directory of a run, "
                        f"which holds {GRAPH} and variables/") from None  # fmt: skip
    names = [name for name in reader.get_variable_to_shape_map() if name.startswith("model_variables/")]
    # by number: as text model_variables/10 would come before model_variables/2
    return [reader.get_tensor(name) for name in sorted(names, key=lambda name: int(name.split("/")[1]))]


def warm_start(model: Any, path: str) -> None:
    """Set the weights of an earlier model. Where only the last layer's shape differs, that layer starts afresh.

    Raises:
        DataError: nothing there, or another architecture.
    """
    old, new = read_weights(path), model.get_weights()
    fits = [a.shape == b.shape for a, b in zip(old, new, strict=False)]
    last_layer = 2  # kernel and bias
    if len(old) != len(new) or not all(fits[:-last_layer]):
        raise DataError(f"--warm_start_from={path}: the model there has {len(old)} weights that do not fit the "
                        f"{len(new)} of this one; give the same --model and sizes")  # fmt: skip
    model.set_weights([a if fit else b for a, b, fit in zip(old, new, fits, strict=False)])
    LOG.info("warm start from %s%s", path, "" if all(fits) else "; the last layer has other classes and starts afresh")


def score(predict: Callable[[Any], Any], source: Source, config: Config, batch: int) -> tuple[float, float]:
    """(mean cross-entropy, accuracy) over a whole source, on this process alone.

    Args:
        predict: float32 images -> probabilities.
    """
    steps = data.validation_steps(source, 1, batch)
    loss = right = total = 0.0
    for images, labels, weights in data.validation_batches(source, Shard(), batch, config, steps):
        probabilities = predict(images)
        hits = tf.cast(tf.argmax(probabilities, axis=-1, output_type=tf.int32) == labels, tf.float32)
        losses = keras.losses.sparse_categorical_crossentropy(labels, probabilities)
        loss += float(tf.reduce_sum(losses * weights))
        right += float(tf.reduce_sum(hits * weights))
        total += float(tf.reduce_sum(weights))
    return loss / max(1.0, total), right / max(1.0, total)


def score_saved(path: str, source: Source, config: Config, batch: int) -> tuple[float, float]:
    """Load what `save` wrote and score it on a whole source: (loss, accuracy).

    Raises:
        OutputError: it does not load.
    """
    try:
        loaded = tf.saved_model.load(path)
        signature = loaded.signatures["serving_arrays"]
    except (tf.errors.OpError, OSError, KeyError, ValueError) as error:
        raise OutputError(f"the exported model in {path} cannot be loaded: {cause(error)}") from error
    return score(lambda images: signature(images=images)["probabilities"], source, config, batch)


def verify(path: str, source: Source, config: Config, batch: int, expected: float) -> float:
    """Load what was written and score it on the whole validation set; its accuracy, which is the one to report.

    Raises:
        OutputError: it does not load, or it is not the model that was validated.
    """
    _, accuracy = score_saved(path, source, config, batch)
    if abs(accuracy - expected) > TOLERANCE:
        raise OutputError(
            f"the exported model in {path} has a validation accuracy of {accuracy:.4f}, training had {expected:.4f}"
        )
    return accuracy
