"""Whole runs of one process: the default run and its outputs, early ends, bad input."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support import wheels
from tests.support.forks import Forks
from tests.trainer import makers
from tests.trainer.conftest import PACKAGE, QUICK, Launched, environment, metrics, summary
from tests.trainer.lazily import keras

#: Loads a SavedModel and scores both signatures on the digits' validation part.
FRESH = """
import json, sys
import numpy as np, tensorflow as tf
sys.path.insert(0, {package!r})
from trainer import sources
from trainer.config import Config
source = sources.load(Config()).validation
images, labels = zip(*source.elements(sources.Shard()).as_numpy_iterator())
model = tf.saved_model.load({model!r})
arrays = model.signatures["serving_arrays"](images=tf.constant(np.stack(images), tf.float32))["label"].numpy()
files = tf.constant([tf.io.encode_png(image).numpy() for image in images])
answers = model.signatures["serving_default"](image_bytes=files)
print(json.dumps([float((arrays == np.array(labels)).mean()), float((answers["label"].numpy() == np.array(labels)).mean()),
                  list(answers["probabilities"].shape)]))
"""


@pytest.fixture(scope="module")
def default_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one run without any flag, shared by all test workers."""

    def train(folder: Path) -> None:
        process = Launched([sys.executable, "-m", "trainer.task"], environment(folder), folder / "run", "task")
        ended = process.wait()
        assert ended.code == 0, ended.text

    return wheels.once("default-run", tmp_path_factory.getbasetemp(), train)


@pytest.mark.whole
def test_no_flags_train_digits_to_97_percent(default_run: Path) -> None:
    """The default run reaches 97 % and writes model, plot, summary, logs and nothing to the temporary directory."""
    assert summary(default_run)["accuracy"] >= 0.97
    assert {"saved_model.pb", "variables", "summary.json", "training_curves.png"} <= {
        path.name for path in (default_run / "model").iterdir()
    }
    assert (default_run / "model" / "training_curves.png").read_bytes().startswith(b"\x89PNG")
    assert list((default_run / "logs" / "train").iterdir()) and list((default_run / "logs" / "validation").iterdir())
    assert list((default_run / "tmp").iterdir()) == []


def test_trainers_are_forked_whatever_was_imported_here(forks: Forks, tmp_path: Path) -> None:
    """The trainer, imported into this process, sets variables that TensorFlow reads: they keep no later one from being forked."""
    assert keras.Sequential and forks.can(environment(tmp_path))


@pytest.mark.whole
def test_reports_per_epoch_and_last_what_the_summary_says(default_run: Path) -> None:
    """One report per epoch with its step, then that of the exported model, which is the best epoch's."""
    rows, told = metrics(default_run), summary(default_run)
    assert [int(row["global_step"]) for row in rows] == [*(44 * n for n in range(1, 13)), 528]
    assert float(rows[-1]["accuracy"]) == told["accuracy"]
    values = [row["val_accuracy"] for row in told["history"]]
    assert told["accuracy"] == pytest.approx(max(values), abs=1e-6) == values[told["best_epoch"] - 1]


@pytest.mark.whole
def test_summary_tells_how_it_was_trained(default_run: Path) -> None:
    """Strategy, replicas, epochs, seconds, speed and memory are in the summary."""
    told = summary(default_run)
    assert (told["strategy"], told["replicas"], told["processes"], told["epochs"]) == ("one-device", 1, 1, 12)
    assert 0 < told["seconds_to_first_step"] < told["seconds"]
    assert told["step_milliseconds"] > 0 and told["peak_memory_mib"] > 100
    assert told["parameters"] == 32_906


@pytest.mark.whole
def test_the_exported_model_gives_the_reported_accuracy_in_a_fresh_process(default_run: Path) -> None:
    """Both signatures, arrays and PNG bytes, have the reported accuracy."""
    code = FRESH.format(package=str(PACKAGE), model=str(default_run / "model"))
    told = subprocess.run([sys.executable, "-c", code], env=environment(default_run), check=True, capture_output=True,
                          text=True, timeout=400).stdout  # fmt: skip
    arrays, files, shape = json.loads(told.splitlines()[-1])
    assert arrays == pytest.approx(summary(default_run)["accuracy"], abs=1e-9)
    assert files == arrays and shape == [359, 10]


@pytest.mark.whole
def test_another_run_goes_on_from_it_or_starts_from_its_weights(
    default_run: Path, launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """--warm_start_from begins at the old accuracy; --resume_from counts the old epochs and steps."""
    warm = launch(*QUICK, "--num_units=128", "--epochs=1", f"--warm_start_from={default_run}/model", "--learning_rate=1e-5",
                  folder=tmp_path / "warm")  # fmt: skip
    more = launch(
        *QUICK, "--num_units=128", "--epochs=13", f"--resume_from={default_run}/checkpoints", folder=tmp_path / "more"
    )
    assert warm.wait().code == more.wait().code == 0, warm.err + more.err
    assert summary(tmp_path / "warm")["accuracy"] >= summary(default_run)["accuracy"] - 0.01
    assert summary(tmp_path / "warm")["epochs"] == 1
    assert (summary(tmp_path / "more")["epochs"], summary(tmp_path / "more")["steps"]) == (13, 13 * 44)
    assert summary(tmp_path / "more")["accuracy"] >= summary(default_run)["accuracy"]


@pytest.mark.whole
def test_two_models_are_measured_on_the_same_data(
    default_run: Path, launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """--evaluate trains nothing, and says of each model what it reaches on the data that is there; without a champion of the new one."""
    model = f"{default_run}/model"
    both = launch(*QUICK, "--evaluate=true", f"--champion={model}", f"--challenger={model}", folder=tmp_path / "both")
    alone = launch(*QUICK, "--evaluate=true", f"--challenger={model}", folder=tmp_path / "alone")
    assert both.wait().code == alone.wait().code == 0, both.err + alone.err
    found, trained = summary(tmp_path / "both"), summary(default_run)
    assert found["champion"] == found["challenger"] and found["accuracy"] == found["challenger"]["accuracy"]
    assert abs(found["accuracy"] - trained["accuracy"]) < 1e-6
    assert "champion" not in summary(tmp_path / "alone") and not (tmp_path / "both/model/saved_model.pb").exists()


def test_a_lost_loss_stops_the_run_with_the_steps(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """A loss that is not finite ends the run within the checked steps; nothing is reported or exported."""
    ended = launch(*QUICK, "--model=dense", "--optimizer=sgd", "--learning_rate=1e30", "--momentum=1").wait()
    assert ended.code == 1 and "Traceback" not in ended.err
    assert "the loss became nan between steps 1 and 20; try a smaller --learning_rate than 1e+30" in ended.err
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "metrics" / "output.metrics").exists()


def test_without_vertex_the_outputs_are_local(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """With none of the service's variables everything goes below --output_dir."""
    env = dict.fromkeys(("AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR"), "")
    ended = launch(*QUICK, "--epochs=1", "--tensorboard=true", "--histograms=true", "--profile_steps=3,4",
                   "--output_dir", str(tmp_path / "here"), env=env).wait()  # fmt: skip
    assert ended.code == 0, ended.err
    assert (tmp_path / "here" / "model" / "saved_model.pb").exists()
    assert (tmp_path / "here" / "checkpoints" / "checkpoint").exists()
    assert list((tmp_path / "here" / "logs").rglob("*.xplane.pb"))
    assert not (tmp_path / "model").exists()


@pytest.mark.whole
def test_train_on_records_with_a_backbone(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """TFRecords, a backbone, augmentation and a schedule in one real run."""
    pattern = makers.tfrecords(tmp_path / "data", 5, 8)
    ended = launch(*QUICK, "--epochs=1", f"--data=tfrecord:{pattern}", "--model=mobilenet_v2", "--weights=none",
                   "--image_size=32", "--batch_size=8", "--flip=true", "--crop_ratio=0.8", "--with_color_distort=1.0",
                   "--schedule=cosine", "--warmup_steps=2", "--optimizer=adamw").wait()  # fmt: skip
    assert ended.code == 0, ended.err
    told = summary(tmp_path)
    assert told["training_examples"] == 32 and told["image_shape"] == [32, 32, 3] and np.isfinite(told["val_loss"])
    assert told["parameters"] == 2_257_984 + 3 * (
        1_280 + 1
    )  # MobileNetV2 without its top, and a layer for three classes


@pytest.mark.whole
def test_train_on_csv_with_virtual_epochs_until_nothing_improves(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """A CSV file of images, and an epoch shorter than the data. With a patience of 2 and no learning the run ends after 3
    epochs, with the weights of the first.
    """
    path = makers.csv_images(tmp_path / "data", 30)
    ended = launch(*QUICK, f"--data=csv:{path}", "--image_size=16", "--batch_size=4", "--examples_per_epoch=8", "--epochs=50",
                   "--learning_rate=0", "--patience=2").wait()  # fmt: skip
    assert ended.code == 0, ended.err
    told = summary(tmp_path)
    assert (told["steps"], told["classes"]) == (6, ["cat", "dog"])
    assert told["epochs"] == 3 and told["best_epoch"] == 1


BAD = {
    "pattern": (["--data=tfrecord:/nowhere/*.tfrec"], {}, "no file matches"),
    "batch": (
        ["--global_batch_size=30"],
        {"TRAINER_VIRTUAL_DEVICES": "4"},
        "not divisible by the 4 replicas; try 28 or 32",
    ),
    "too-large": (["--batch_size=5000"], {}, "larger than the 1438 training examples"),
    "output": ([], {"AIP_MODEL_DIR": "/proc/model/"}, "cannot write to /proc/model"),
    "resume": (["--resume_from=/nowhere"], {}, "no checkpoint of this trainer there"),
    "evaluate": (["--evaluate=true"], {}, "--evaluate needs --challenger"),
    "no-model": (["--evaluate=true", "--challenger=/nowhere"], {}, "/nowhere cannot be loaded"),
    "warm": (["--warm_start_from=/nowhere"], {}, "no model of this trainer there"),
    "tf-config": ([], {"TF_CONFIG": "{"}, "TF_CONFIG is not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line_and_leaves_no_model(
    case: str, launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """Each kind of bad input ends non-zero before the first step, with a message and without a traceback."""
    flags, env, message = BAD[case]
    ended = launch(*QUICK, *flags, env=env).wait()
    assert ended.code in (1, 2)
    assert "error: " in ended.err and message in ended.err and "Traceback" not in ended.err
    assert "epoch 1" not in ended.out
    assert not (tmp_path / "model").exists() and list((tmp_path / "tmp").iterdir()) == []


def test_damaged_image_in_mid_training_is_named_without_traceback(
    launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """An image with a good beginning and a damaged body ends the run with a message, no model."""
    path = makers.csv_images(tmp_path / "data", 12)
    for name in ("005.png", "006.png", "007.png"):
        file = tmp_path / "data" / name
        file.write_bytes(file.read_bytes()[:60])
    ended = launch(*QUICK, f"--data=csv:{path}", "--image_size=16", "--batch_size=2").wait()
    assert ended.code == 1 and "Traceback" not in ended.err
    assert "an example cannot be used" in ended.err
    assert not (tmp_path / "model").exists()


@pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="the limit of another process's files can be set on Linux only"
)
@pytest.mark.parametrize("kib", [100, 180], ids=["best weights", "checkpoint"])
@pytest.mark.whole
def test_a_disk_that_is_full_ends_the_run_and_loses_nothing(
    kib: int, launch: Callable[..., Launched], tmp_path: Path
) -> None:
    """A write that fails in mid-run is told in one line and leaves no model; with room again, the same command ends well."""
    flags = (*QUICK, "--epochs=1")
    process = launch(*flags)
    resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (kib * 1024, kib * 1024))
    ended = process.wait()
    assert ended.code == 1 and "Traceback" not in ended.err, ended.err
    assert "error: cannot write to " in ended.err and "File too large" in ended.err
    assert not (tmp_path / "model").exists() and list((tmp_path / "tmp").iterdir()) == []
    if kib == 180:
        again = launch(*flags, name="again").wait()
        assert again.code == 0 and summary(tmp_path)["epochs"] == 1, again.err
