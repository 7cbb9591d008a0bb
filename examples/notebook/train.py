import argparse

import hypertune

parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()
loss = 1.0
for step in range(args.steps):
    loss *= 1 - args.rate
    hypertune.HyperTune().report_hyperparameter_tuning_metric(
        hyperparameter_metric_tag="loss", metric_value=loss, global_step=step
    )
print("loss", loss)
