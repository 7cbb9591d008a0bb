"""scikit-learn's digits, split once, and the part of each batch that a process gets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

CLASSES = 10
PIXELS = 64
VALIDATION_EVERY = 5  # each fifth image is for validation


@dataclass(frozen=True)
class Examples:
    """Images and their labels.

    Args:
        images: float32 of shape (examples, 64), 0 to 1.
        labels: int64 of shape (examples,).
    """

    images: torch.Tensor
    labels: torch.Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: torch.Tensor) -> Examples:
        return Examples(self.images[rows], self.labels[rows])

    def to(self, device: torch.device) -> Examples:
        return Examples(self.images.to(device), self.labels.to(device))


def load() -> tuple[Examples, Examples]:
    """Training and validation examples, the same in every process."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    every = Examples(torch.tensor(bunch.data, dtype=torch.float32) / 16, torch.tensor(bunch.target))
    rows = torch.arange(len(every))
    held_out = rows % VALIDATION_EVERY == 0
    return every.part(rows[~held_out]), every.part(rows[held_out])


def steps(examples: int, global_batch: int) -> int:
    """Batches of an epoch; the last may be smaller."""
    return -(-examples // global_batch)


def batches(examples: int, global_batch: int, *, epoch: int, seed: int, begin: int = 0) -> Iterator[torch.Tensor]:
    """The rows of each batch of an epoch, from batch `begin` on.

    The order depends on seed and epoch alone, so that every process has the same one, a run that goes on after a kill
    sees the rest of its epoch, and a run with other replicas trains on the same batches.
    """
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed * 100_003 + epoch))
    for step in range(begin, steps(examples, global_batch)):
        yield order[step * global_batch : (step + 1) * global_batch]


def share(rows: torch.Tensor, rank: int, size: int) -> torch.Tensor:
    """The part of `rows` for one process: the parts of all processes are disjoint and make up the whole.

    DistributedSampler repeats examples to make all parts equally long; then some count twice in the metric.
    """
    return rows[rank::size]
