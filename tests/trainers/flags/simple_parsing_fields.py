"""simple_parsing: data classes added to its parser."""

from dataclasses import dataclass

from simple_parsing import ArgumentParser, choice


@dataclass
class Options:
    data: str
    epochs: int = 3
    fast: bool = False
    optimizer: str = choice("adam", "sgd", default="adam")


parser = ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_arguments(Options, dest="options")
args = parser.parse_args()
