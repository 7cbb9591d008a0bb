"""`python -m trainer.task`: reads the flags and calls `train_and_evaluate`.

Every flag has a default, so that it runs with none. Each is declared by a plain `parser.add_argument("--name", ...)`:
tools that match a study's parameters with these flags read this file without importing it.
"""

from __future__ import annotations

import time

# before all other imports, so that `seconds_to_first_step` counts them too
STARTED = time.time()

import argparse  # noqa: E402
import logging  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402

from trainer import cluster, config, ending, fence  # noqa: E402
from trainer.config import (  # noqa: E402
    Config,
    boolean,
    count,
    fraction,
    integer,
    not_negative,
    number,
    positive_integer,
    step_range,
)
from trainer.errors import PeerLostError, TrainerError, did_you_mean  # noqa: E402

DEFAULTS = Config()
LOG = logging.getLogger("trainer")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every flag. `--name value` and `--name=value` are the same; names are never abbreviated."""
    parser = argparse.ArgumentParser(
        prog="trainer.task",
        description="Train an image classifier on one device or many.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add_data_flags(parser)
    add_model_flags(parser)
    add_loop_flags(parser)
    add_machine_flags(parser)
    return parser


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what to train on, and how it is read."""
    d = DEFAULTS
    parser.add_argument("--data", default=d.data, help="digits, tfds:NAME, tfrecord:PATTERN or csv:FILE")
    parser.add_argument("--validation_data", default=d.validation_data, help="like --data; empty: a part of --data")
    parser.add_argument("--validation_split", type=fraction, default=d.validation_split, help="that part")
    parser.add_argument("--data_dir", default=d.data_dir, help="tfds: its data directory; csv: base of relative paths")
    parser.add_argument("--image_key", default=d.image_key, help="tfrecord: feature of the image; empty: find it")
    parser.add_argument("--label_key", default=d.label_key, help="tfrecord: feature of the label; empty: find it")
    parser.add_argument("--image_size", type=count, default=d.image_size, help="side in pixels; 0: the model's own")
    parser.add_argument("--num_classes", type=count, default=d.num_classes, help="0: from the data")
    parser.add_argument("--cache", default=d.cache, help="auto, memory, none or a directory for decoded images")
    parser.add_argument("--shuffle", type=boolean, default=d.shuffle, help="true or false")
    parser.add_argument("--shuffle_buffer", type=count, default=d.shuffle_buffer, help="images; 0: all that fit")
    parser.add_argument("--deterministic", type=boolean, default=d.deterministic, help="same order on every run")
    parser.add_argument("--scan", type=boolean, default=d.scan, help="tfrecord: read all records once, first")
    parser.add_argument("--examples_per_epoch", type=count, default=d.examples_per_epoch, help="virtual epoch; 0: all")
    parser.add_argument("--batch_size", type=positive_integer, default=d.batch_size, help="per replica")
    parser.add_argument("--global_batch_size", type=count, default=d.global_batch_size, help="0: batch_size x replicas")
    parser.add_argument("--crop_ratio", type=fraction, default=d.crop_ratio, help="side of random crops; 1: no crop")
    parser.add_argument("--with_color_distort", type=boolean, default=d.with_color_distort, help="true or false")
    parser.add_argument("--flip", type=boolean, default=d.flip, help="random left-right flips")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the model and its optimizer."""
    d = DEFAULTS
    parser.add_argument("--model", choices=config.MODELS, default=d.model, help="the architecture")
    parser.add_argument("--num_units", type=positive_integer, default=d.num_units, help="cnn: units of its dense layer")
    parser.add_argument("--n_hidden", type=count, default=d.n_hidden, help="dense: hidden layers")
    parser.add_argument("--n_neurons", type=positive_integer, default=d.n_neurons, help="dense: units of each of them")
    parser.add_argument("--num_hidden", type=count, default=d.num_hidden, help="backbones: units before the last layer")
    parser.add_argument("--weights", default=d.weights, help="backbones: imagenet, none or a weights file")
    parser.add_argument(
        "--fine_tune", type=integer, default=d.fine_tune, help="backbones: last layers to train; -1: all"
    )
    parser.add_argument("--dropout", type=fraction, default=d.dropout, help="before the last layer")
    parser.add_argument("--l1", type=not_negative, default=d.l1, help="L1 penalty of the kernels")
    parser.add_argument("--l2", type=not_negative, default=d.l2, help="L2 penalty of the kernels")
    parser.add_argument("--optimizer", choices=config.OPTIMIZERS, default=d.optimizer, help="the optimizer")
    parser.add_argument("--learning_rate", type=number, default=d.learning_rate, help="its peak")
    parser.add_argument("--momentum", type=fraction, default=d.momentum, help="sgd, rmsprop")
    parser.add_argument("--weight_decay", type=not_negative, default=d.weight_decay, help="adamw")
    parser.add_argument("--clip_norm", type=not_negative, default=d.clip_norm, help="global gradient norm; 0: no clip")
    parser.add_argument("--schedule", choices=config.SCHEDULES, default=d.schedule, help="after the warm-up")
    parser.add_argument("--warmup_steps", type=count, default=d.warmup_steps, help="linear, from 0")


def add_loop_flags(parser: argparse.ArgumentParser) -> None:
    """How long to train, what to save and where."""
    d = DEFAULTS
    parser.add_argument("--epochs", type=positive_integer, default=d.epochs, help="passes over the data")
    parser.add_argument("--patience", type=count, default=d.patience, help="stop after so many epochs without a gain")
    parser.add_argument("--save_every", type=count, default=d.save_every, help="steps between saves; 0: each epoch")
    parser.add_argument("--resume", type=boolean, default=d.resume, help="go on from an unfinished run's last save")
    parser.add_argument("--resume_from", default=d.resume_from, help="checkpoint directory of an earlier run")
    parser.add_argument("--warm_start_from", default=d.warm_start_from, help="model directory of an earlier run")
    parser.add_argument("--evaluate", type=boolean, default=d.evaluate, help="score saved models, and train none")
    parser.add_argument("--champion", default=d.champion, help="evaluate: model directory of the one that is there")
    parser.add_argument("--challenger", default=d.challenger, help="evaluate: model directory of the new one")
    parser.add_argument("--seed", type=count, default=d.seed, help="of weights, order and augmentation")
    parser.add_argument("--output_dir", default=d.output_dir, help="where AIP_MODEL_DIR and the others are not set")
    parser.add_argument("--tensorboard", type=boolean, default=d.tensorboard, help="write scalars and the graph")
    parser.add_argument("--histograms", type=boolean, default=d.histograms, help="of the weights, too")
    parser.add_argument("--profile_steps", type=step_range, default=d.profile_steps, help="FIRST,LAST step")
    parser.add_argument("--plot", type=boolean, default=d.plot, help="training_curves.png beside the model")


def add_machine_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the devices and how they are used."""
    d = DEFAULTS
    parser.add_argument("--strategy", choices=config.STRATEGIES, default=d.strategy, help="auto: from the environment")
    parser.add_argument("--collective", choices=("auto", "ring", "nccl"), default=d.collective, help="multi-worker")
    parser.add_argument("--tpu", default=d.tpu, help="the TPU's name; local: the one of this TPU VM")
    parser.add_argument("--precision", choices=config.PRECISIONS, default=d.precision, help="of the computation")
    parser.add_argument("--jit", type=boolean, default=d.jit, help="compile the step with XLA")
    parser.add_argument("--steps_per_execution", type=count, default=d.steps_per_execution, help="0: 1, on TPU 32")
    parser.add_argument("--intra_op_threads", type=count, default=d.intra_op_threads, help="0: TensorFlow decides")


def parse(argv: Sequence[str] | None = None) -> Config:
    """Return the flags as a Config. An unknown flag or a bad value ends the process with code 2 and the nearest valid flag."""
    parser = build_parser()
    namespace, unknown = parser.parse_known_args(argv)
    if unknown:
        flags = [option for action in parser._actions for option in action.option_strings]
        name = unknown[0].split("=", 1)[0]
        parser.error(f"unknown argument {unknown[0]!r}{did_you_mean(name, flags)} (--help lists all flags)")
    return Config(**vars(namespace), started=STARTED)


def main(argv: Sequence[str] | None = None) -> int:
    """Train; the exit code. Errors meant for a person are printed without a traceback."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    LOG.setLevel(logging.INFO)
    ending.install()
    settings = parse(argv)
    try:
        fence.check()
        place = cluster.from_environment()
        from trainer.loop import train_and_evaluate  # imports TensorFlow, seconds: only once the flags are right

        train_and_evaluate(settings, place)
    except TrainerError as error:
        if ending.asked():
            ending.end()
        print(f"trainer: error: {error}", file=sys.stderr, flush=True)
        if isinstance(error, PeerLostError):
            ending.end(error.exit_code)
        return error.exit_code
    except BaseException:
        if ending.asked():  # SIGTERM, or what TensorFlow made of it
            ending.end()
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main())
