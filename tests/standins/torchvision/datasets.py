"""MNIST's interface over scikit-learn's 1,797 digits; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_digits


class MNIST:
    """Images of 28 × 28 pixels from 0 to 255 with their labels: each fifth is a test image.

    Args:
        root: Taken and not used.
        train: The training images; the test images otherwise.
        transform: Applied to each image as it is read.
        download: Taken and not used.
    """

    def __init__(
        self, root: str, train: bool = True, transform: Callable[[Any], Any] | None = None, download: bool = False
    ) -> None:
        images, labels = load_digits(return_X_y=True)
        chosen = (np.arange(len(labels)) % 5 != 0) == train
        large = images[chosen].reshape(-1, 8, 8).repeat(3, axis=1).repeat(3, axis=2) * (255 / 16)
        self.data = np.pad(large, ((0, 0), (2, 2), (2, 2))).astype("uint8")
        self.targets = labels[chosen].tolist()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self.data[index]
        return (self.transform(image) if self.transform else image), self.targets[index]
