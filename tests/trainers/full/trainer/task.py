"""Every form of declaration the reader must know, in one trainer."""

import argparse
import os

import hypertune
import tensorflow as tf

from trainer import model
from trainer.options import METRIC, add_data_flags, tolerant_int

os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")


def parse(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--learning_rate", "-l", type=float, default=0.1)
    parser.add_argument("--units", type=int, required=True)
    parser.add_argument("--batch_size", type=tolerant_int, default=32)
    parser.add_argument("--epochs", type=lambda text: int(float(text)), default=1)
    parser.add_argument("--cache", type=bool, default=False)
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--job-dir", dest="model_dir", default=os.environ.get("AIP_MODEL_DIR", "model"))
    parser.add_argument("--layers", nargs="+", type=int)
    for name in ("l1", "l2"):
        parser.add_argument(f"--{name}", type=float, default=0.0)
    add_data_flags(parser)
    return parser.parse_args(argv)


def main():
    args = parse()
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        net = model.build(args.units)
    for epoch in range(args.epochs):
        accuracy = net.step(epoch)
        hypertune.HyperTune().report_hyperparameter_tuning_metric(
            hyperparameter_metric_tag=METRIC, metric_value=accuracy, global_step=epoch
        )


if __name__ == "__main__":
    main()
