"""jsonargparse's command line of one function."""

from jsonargparse import CLI


def train(data: str, epochs: int = 3, lr: float = 0.1, amp: bool = False):
    pass


if __name__ == "__main__":
    CLI(train)
