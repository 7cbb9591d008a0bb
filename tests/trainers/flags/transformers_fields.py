"""HfArgumentParser over two data classes."""

from dataclasses import dataclass, field
from typing import Optional

from transformers import HfArgumentParser


@dataclass
class ModelArguments:
    model_name: str = field(metadata={"help": "which"})
    revision: Optional[str] = field(default=None)


@dataclass
class DataArguments:
    max_length: int = 128
    shuffle: bool = True
    splits: list[str] = field(default_factory=list)


def main():
    parser = HfArgumentParser((ModelArguments, DataArguments))
    model, data = parser.parse_args_into_dataclasses()


if __name__ == "__main__":
    main()
