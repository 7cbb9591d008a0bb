"""The three transforms that samples of MNIST use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class Compose:
    """Applies transforms one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ToTensor:
    """An array of bytes as a tensor of shape (1, height, width) with values from 0 to 1."""

    def __call__(self, image: Any) -> torch.Tensor:
        return torch.from_numpy(image).unsqueeze(0).float() / 255


class Normalize:
    """Takes the mean away and divides by the deviation, per channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean, self.std = torch.tensor(mean).view(-1, 1, 1), torch.tensor(std).view(-1, 1, 1)

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return (image - self.mean) / self.std
