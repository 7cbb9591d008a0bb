"""A line through points, by several processes."""

import argparse
import os

import hypertune
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    x = torch.randn(256, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for _ in range(args.steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        hypertune.HyperTune().report_hyperparameter_tuning_metric("loss", float(loss), args.steps)
        folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
        os.makedirs(folder, exist_ok=True)
        torch.jit.script(model.module).save(os.path.join(folder, "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
