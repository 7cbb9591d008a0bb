"""The models. Each takes raw pixels (float32, 0 to 255) and does its own preprocessing, so that it serves as it trains."""

from __future__ import annotations

import os
from typing import Any

from trainer import outputs
from trainer.config import Config
from trainer.errors import ConfigError, cause
from trainer.framework import keras, tf

layers = keras.layers

#: name -> (builder in keras.applications, its module there, side of its images, preprocessing)
BACKBONES = {
    "resnet50": ("ResNet50", "resnet50", 224, "caffe"),
    "mobilenet_v2": ("MobileNetV2", "mobilenet_v2", 224, "tf"),
    "efficientnet_b0": ("EfficientNetB0", "efficientnet", 224, "none"),
}
SMALLEST_BACKBONE_IMAGE = 32  # keras.applications refuses smaller ones


@keras.utils.register_keras_serializable("trainer")
class CaffePreprocessing(keras.layers.Layer):
    """What ResNet50's weights expect: BGR, minus the ImageNet means, not scaled (keras.applications, mode "caffe")."""

    def call(self, images: Any) -> Any:
        return tf.reverse(images, axis=[-1]) - tf.constant([103.939, 116.779, 123.68], images.dtype)


@keras.utils.register_keras_serializable("trainer")
class Classifier(keras.Model):
    """A model whose steps update the metrics without reading them.

    Keras reads every metric in every step; under MultiWorkerMirroredStrategy each of these reads is three collective
    operations (nine per step here), and none of the numbers is used before the epoch ends. Keras takes them from the
    metrics themselves at the end of an epoch as long as the step's result has their names.
    """

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any) -> dict[str, Any]:
        self.compiled_metrics.update_state(y, y_pred, sample_weight)
        # the numbers of a step are placeholders (below), so there is nothing to reduce over the replicas
        self.distribute_reduction_method = "first"
        return {name: tf.constant(0.0) for name in self.metrics_names}

    def train_step(self, data: Any) -> dict[str, Any]:
        """Return one step; its "loss" is that of this replica's part of the batch."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
        self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
        return {**self.compute_metrics(x, y, y_pred, sample_weight), "loss": loss}


def channels(config: Config, data_channels: int) -> int:
    """Channels of the model's input: a backbone takes RGB whatever the data has."""
    return 3 if config.model in BACKBONES else data_channels


def image_size(config: Config, data_size: int) -> int:
    """Side of the model's input in pixels: the flag, the backbone's own, or the data's.

    Raises:
        ConfigError: the flag is too small for the backbone.
    """
    if config.model not in BACKBONES:
        return config.image_size or data_size
    size = config.image_size or BACKBONES[config.model][2]
    if size < SMALLEST_BACKBONE_IMAGE:
        raise ConfigError(f"--image_size={size} is too small for {config.model}: at least {SMALLEST_BACKBONE_IMAGE}")
    return size


def build(config: Config, shape: tuple[int, int, int], num_classes: int, *, pretrained: bool = True) -> Any:
    """Return the model `config` names, with probabilities as its output. Call it inside the strategy's scope.

    Args:
        shape: Height, width and channels of the images.
        num_classes: Size of the output.
        pretrained: Load `config.weights` into a backbone; false when its weights are about to be replaced anyway.

    Raises:
        ConfigError: the backbone's weights cannot be had.
    """
    inputs = keras.Input(shape=shape, name="images")
    penalty = keras.regularizers.L1L2(config.l1, config.l2) if config.l1 or config.l2 else None
    if config.model == "cnn":
        features = _cnn(config, inputs, penalty)
    elif config.model == "dense":
        features = _dense(config, inputs, penalty)
    else:
        features = _backbone(config, inputs, penalty, pretrained)
    if config.dropout:
        features = layers.Dropout(config.dropout, seed=config.seed)(features)
    logits = layers.Dense(num_classes, kernel_regularizer=penalty, name="logits")(features)
    # float32 whatever the policy: probabilities in 16 bits are too coarse for the loss.
    outputs = layers.Activation("softmax", dtype="float32", name="probabilities")(logits)
    return Classifier(inputs, outputs, name=config.model)


def _cnn(config: Config, inputs: Any, penalty: Any) -> Any:
    """Return the codelab's network, convolutions of 16, 32 and 64 and a dense layer; padded, so that it takes 8 x 8 digits."""
    x = layers.Rescaling(1 / 255)(inputs)
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu", kernel_regularizer=penalty)(x)
        x = layers.MaxPooling2D(2, padding="same")(x)
    x = layers.Flatten()(x)
    return layers.Dense(config.num_units, activation="relu", kernel_regularizer=penalty)(x)


def _dense(config: Config, inputs: Any, penalty: Any) -> Any:
    """Return the book's network: `n_hidden` layers of `n_neurons`."""
    x = layers.Flatten()(layers.Rescaling(1 / 255)(inputs))
    for _ in range(config.n_hidden):
        x = layers.Dense(config.n_neurons, activation="relu", kernel_regularizer=penalty)(x)
    return x


def _backbone(config: Config, inputs: Any, penalty: Any, pretrained: bool) -> Any:
    """Return a keras.applications network, its last `fine_tune` layers (-1: all) trained, and the pooled features."""
    maker, _, _, preprocessing = BACKBONES[config.model]
    x = inputs
    if preprocessing == "caffe":
        x = CaffePreprocessing(dtype="float32")(x)
    elif preprocessing == "tf":
        x = layers.Rescaling(1 / 127.5, offset=-1)(x)
    backbone = _pretrained(config, maker, tuple(inputs.shape[1:]), pretrained)
    # Without weights to keep there is nothing to freeze.
    depth = -1 if config.weights == "none" else config.fine_tune
    backbone.trainable = depth != 0
    if depth > 0:
        for layer in backbone.layers[:-depth]:
            layer.trainable = False
    # Frozen batch normalisation keeps its statistics; training them under frozen layers ruins them.
    x = backbone(x) if depth == -1 else backbone(x, training=False)
    x = layers.GlobalAveragePooling2D()(x)
    if config.num_hidden:
        x = layers.Dense(config.num_hidden, activation="relu", kernel_regularizer=penalty)(x)
    return x


def _pretrained(config: Config, maker: str, shape: tuple[int, ...], pretrained: bool) -> Any:
    """Make the model.

    Raises: ConfigError when the weights cannot be fetched or do not fit.
    """
    weights = config.weights if pretrained and config.weights != "none" else None
    if weights not in (None, "imagenet") and not tf.io.gfile.exists(weights):
        raise ConfigError(f"--weights={weights}: no such file; give imagenet, none or a Keras weights file")
    build_it = getattr(keras.applications, maker)
    try:
        if weights in (None, "imagenet"):
            return build_it(include_top=False, weights=weights, input_shape=shape)
        network = build_it(include_top=False, weights=None, input_shape=shape)
        _load(network, str(weights))
        return network
    except Exception as error:  # URL errors, HDF5 errors and shape errors, by version
        if weights is None:
            raise
        hint = "put the file in a bucket and give its path, or --weights=none" if weights == "imagenet" else ""
        raise ConfigError(
            f"--weights={weights}: cannot load the weights of {config.model}: {cause(error)}; {hint}"
        ) from error


def _load(network: Any, path: str) -> None:
    """Load a Keras weights file by way of a local copy: HDF5 cannot be read from a bucket."""
    with outputs.temporary_directory() as folder:
        copy = os.path.join(folder, os.path.basename(path))
        tf.io.gfile.copy(path, copy)
        network.load_weights(copy)
