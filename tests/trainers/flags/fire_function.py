"""fire over one function."""

import fire


def train(data, epochs=3, lr=0.1, amp=False):
    pass


if __name__ == "__main__":
    fire.Fire(train)
