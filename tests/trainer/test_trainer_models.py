"""Models and optimizers: sizes pinned, one real step each, preprocessing, schedules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from trainer.config import OPTIMIZERS, PRECISIONS, Config
from trainer.errors import ConfigError

from tests.trainer.lazily import keras, models, optimizers, tf

#: (flags, image shape, classes) -> parameters. The cnn on 150 x 150 has 19 x 19 x 64 features before its dense layer.
PARAMETERS = [
    ({}, (8, 8, 1), 10, 32_906),
    ({"num_units": 512}, (150, 150, 3), 2, 11_854_370),
    ({"model": "dense", "n_hidden": 2, "n_neurons": 100}, (8, 8, 1), 10, 17_610),
    ({"model": "dense", "n_hidden": 0}, (8, 8, 1), 10, 650),
    ({"model": "resnet50", "weights": "none"}, (32, 32, 3), 1016, 25_669_496),
    ({"model": "efficientnet_b0", "weights": "none"}, (32, 32, 3), 5, 4_055_976),
]


@pytest.fixture(autouse=True)
def _float32() -> object:
    """No test leaves another precision behind."""
    yield
    keras.mixed_precision.set_global_policy("float32")
    keras.backend.clear_session()


@pytest.mark.parametrize(("flags", "shape", "classes", "parameters"), PARAMETERS)
def test_parameter_counts(flags: dict[str, object], shape: tuple[int, int, int], classes: int, parameters: int) -> None:
    """The number of parameters of each model is as written here."""
    assert models.build(Config(**flags), shape, classes).count_params() == parameters  # type: ignore[arg-type]


def step(config: Config, *, eagerly: bool = False) -> tuple[list[np.ndarray], list[np.ndarray], float]:
    """Weights before and after one training step on noise, and its loss."""
    keras.utils.set_random_seed(1)
    keras.mixed_precision.set_global_policy(config.precision)
    model = models.build(config, (8, 8, 1), 3)
    model.compile(
        optimizers.build(config, 10), keras.losses.SparseCategoricalCrossentropy(), jit_compile=config.jit or None,
        run_eagerly=eagerly,
    )  # fmt: skip
    images = np.random.RandomState(0).uniform(0, 255, (4, 8, 8, 1)).astype(np.float32)
    before = [weight.numpy() for weight in model.trainable_weights]
    loss = model.train_on_batch(images, np.array([0, 1, 2, 0]))
    return before, [weight.numpy() for weight in model.trainable_weights], float(loss)


def test_one_step_of_the_default_model_changes_its_weights() -> None:
    """A real training step has a finite loss and moves trainable weights. Dense models are stepped below, and a backbone by
    `test_train_on_records_with_a_backbone`.
    """
    before, after, loss = step(Config(num_units=8, l1=1e-5, l2=1e-5, dropout=0.1))
    assert np.isfinite(loss)
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=False))


@pytest.mark.parametrize(("optimizer", "precision"), list(product(OPTIMIZERS, PRECISIONS)))
def test_every_optimizer_steps_in_every_precision(optimizer: str, precision: str) -> None:
    """Weights stay float32, move, and the loss is finite; one optimizer makes its steps in a graph, as training does."""
    config = Config(model="dense", n_neurons=8, optimizer=optimizer, precision=precision, clip_norm=1)
    before, after, loss = step(config, eagerly=optimizer != OPTIMIZERS[0])
    assert np.isfinite(loss) and {weight.dtype for weight in after} == {np.dtype("float32")}
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=False))


@pytest.mark.whole
def test_one_step_under_xla() -> None:
    """--jit compiles the step and gives the same loss."""
    plain = Config(model="dense", n_hidden=1, n_neurons=8)
    assert step(plain, eagerly=True)[2] == pytest.approx(step(replace(plain, jit=True))[2], rel=1e-5)


def test_gradients_are_clipped() -> None:
    """With SGD a tiny clip_norm bounds the size of the whole step."""
    config = Config(model="dense", n_neurons=8, optimizer="sgd", momentum=0, learning_rate=1, clip_norm=1e-3)
    before, after, _ = step(config, eagerly=True)
    assert np.sqrt(sum(np.sum((a - b) ** 2) for a, b in zip(before, after, strict=False))) == pytest.approx(
        1e-3, rel=1e-2
    )


def test_penalties_add_to_the_loss() -> None:
    """l1 and l2 penalise kernels."""
    assert models.build(Config(), (8, 8, 1), 3).losses == []
    model = models.build(Config(model="dense", n_hidden=1, n_neurons=4, l1=0.5, l2=0.25), (8, 8, 1), 3)
    kernels = [weight.numpy() for weight in model.weights if "kernel" in weight.name]
    expected = sum(0.5 * np.abs(kernel).sum() + 0.25 * (kernel**2).sum() for kernel in kernels)
    assert float(tf.add_n(model.losses)) == pytest.approx(expected, rel=1e-4)


def test_resnet_sees_what_its_weights_expect() -> None:
    """The layer before ResNet50 equals keras.applications' own preprocess_input."""
    images = np.random.RandomState(0).uniform(0, 255, (2, 32, 32, 3)).astype(np.float32)
    expected = keras.applications.resnet50.preprocess_input(images.copy())
    np.testing.assert_allclose(models.CaffePreprocessing()(images).numpy(), expected, rtol=1e-5, atol=1e-3)


def network(input_shape: tuple[int, int, int], **_: object) -> object:
    """A network of six layers in place of one of keras.applications, which takes seconds to make."""
    layers = [layer for _ in range(3) for layer in (keras.layers.Conv2D(4, 1), keras.layers.BatchNormalization())]
    return keras.Sequential([keras.Input(input_shape), *layers], name="network")


def test_fine_tune_depth_and_weights_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--weights=FILE loads; --fine_tune decides how many of the backbone's layers move."""
    monkeypatch.setattr(keras.applications, "MobileNetV2", network)
    source = network((32, 32, 3))
    source.save_weights(tmp_path / "w.h5")
    moving = []
    for depth in (0, 3, -1):
        config = Config(model="mobilenet_v2", weights=str(tmp_path / "w.h5"), fine_tune=depth)
        model = models.build(config, (32, 32, 3), 3)
        backbone = model.get_layer("network")
        np.testing.assert_array_equal(backbone.get_weights()[0], source.get_weights()[0])
        moving.append(len(backbone.trainable_weights))
        assert len(model.trainable_weights) - moving[-1] == 2
    assert moving == [0, 6, 12]


def test_weights_that_cannot_be_had() -> None:
    """A missing file is an error that lists the choices."""
    with pytest.raises(ConfigError, match="give imagenet, none or a Keras weights file"):
        models.build(Config(model="mobilenet_v2", weights="/nowhere.h5"), (32, 32, 3), 3)
    with pytest.raises(ConfigError, match="at least 32"):
        models.image_size(Config(model="resnet50", image_size=8), 8)


def test_imagenet_weights_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A download that fails is an error that says how to do without."""
    monkeypatch.setattr(
        "urllib.request.OpenerDirector.open", lambda *_, **__: (_ for _ in ()).throw(OSError("no route"))
    )

    def download(**_: object) -> object:
        return keras.utils.get_file("weights.h5", "https://example.invalid/weights.h5", cache_dir=str(tmp_path))

    monkeypatch.setattr(keras.applications, "MobileNetV2", download)
    with pytest.raises(ConfigError, match="--weights=imagenet: cannot load .*--weights=none"):
        models.build(Config(model="mobilenet_v2", weights="imagenet"), (32, 32, 3), 3)


def test_schedules_rise_and_fall() -> None:
    """Warm-up rises to the peak; cosine and linear end at zero; constant stays."""
    config = Config(learning_rate=2.0, warmup_steps=10)
    for shape, end in (("constant", 2.0), ("cosine", 0.0), ("linear", 0.0)):
        rate = optimizers.learning_rate(replace(config, schedule=shape), 110)
        values = [float(rate(step)) for step in range(111)]
        assert values[0] == pytest.approx(2 / 11) and max(values) == pytest.approx(2.0, rel=1e-2)
        assert values[110] == pytest.approx(end, abs=1e-6)
    assert optimizers.learning_rate(Config(), 100) == 0.003
