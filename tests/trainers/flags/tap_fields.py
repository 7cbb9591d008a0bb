"""Tap: a class with a base, a list, a Literal, and names changed in configure."""

from typing import List, Literal, Optional

from tap import Tap


class Common(Tap):
    data_path: str  # Where the data is
    seed: Optional[int] = None


class Args(Common):
    epochs: int = 3
    lr: float = 1e-3
    augment: bool = False
    keep: bool = True
    optimizer: Literal["adam", "sgd"] = "adam"
    layers: List[int] = [32, 16]
    batch: int = 32

    def configure(self):
        self.add_argument("-b", "--batch")

    def process_args(self):
        self.lr = max(self.lr, 1e-6)


args = Args().parse_args()
