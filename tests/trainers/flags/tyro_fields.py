"""tyro over a data class with another in it."""

from dataclasses import dataclass, field

import tyro


@dataclass
class Optimizer:
    learning_rate: float = 0.1


@dataclass
class Config:
    data_dir: str
    epochs: int = 3
    amp: bool = False
    optimizer: Optimizer = field(default_factory=Optimizer)


if __name__ == "__main__":
    config = tyro.cli(Config)
