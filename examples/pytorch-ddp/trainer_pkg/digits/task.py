"""`python -m digits.task --epochs=10`: the program that a replica runs."""

from __future__ import annotations

import argparse
import logging
import os
import sys

import torch

from digits import cluster
from digits.cluster import ClusterError
from digits.outputs import OutputError
from digits.training import SIGTERM_CODE, PeerLostError, Run, StoppedError


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="digits.task", description="Train a classifier of scikit-learn's digits.")
    flags.add_argument("--epochs", type=int, default=10)
    flags.add_argument("--batch_size", type=int, default=60, help="examples of a step, over all processes together")
    flags.add_argument("--learning_rate", type=float, default=0.1)
    flags.add_argument("--momentum", type=float, default=0.9)
    flags.add_argument("--dropout", type=float, default=0.1)
    # a discrete parameter of a sweep arrives as 64.0
    flags.add_argument("--num_units", type=lambda text: int(float(text)), default=64)
    flags.add_argument("--seed", type=int, default=1)
    flags.add_argument("--save_steps", type=int, default=10, help="steps between two saves")
    flags.add_argument("--output", default="outputs", help="folder for model and checkpoints outside a job")
    return flags


def main(words: list[str] | None = None) -> int:
    """Exit code: 0 done, 1 a failure that is explained, 143 ended on SIGTERM after a save."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    log = logging.getLogger("digits")
    options = parser().parse_args(words)
    try:
        place = cluster.from_environment()
        use_gpu = torch.cuda.is_available()
        device = torch.device("cuda", place.local_rank) if use_gpu else torch.device("cpu")
        log.info("process %d of %d on %s", place.rank + 1, place.size, device)
        if use_gpu:
            # NCCL sends objects by way of the current device, which is the first one in every process otherwise
            torch.cuda.set_device(device)
        cluster.join(place, device)
        Run(options, place, device).run()
    except StoppedError as error:
        log.warning("%s", error)
        os._exit(SIGTERM_CODE)  # the others may be gone: a farewell would wait for them
    except (ClusterError, OutputError) as error:
        log.error("%s", error)
        return 1
    except PeerLostError as error:
        log.error("%s", error)
        os._exit(1)
    cluster.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main())
