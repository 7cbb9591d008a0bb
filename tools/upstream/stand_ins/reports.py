"""In place of an image that a study tunes: it reports a metric for the parameters it is given."""

import argparse

import hypertune

parser = argparse.ArgumentParser()
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--momentum", type=float, default=0.5)
parser.add_argument("--num_neurons", type=float, default=64)
args = parser.parse_args()
accuracy = 1 / (1 + abs(args.learning_rate - 0.1) + abs(args.momentum - 0.9) + args.num_neurons / 1e4)
hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", accuracy, global_step=1)
