"""Sub-commands of argparse with a parent parser and a function that adds flags."""

import argparse


def add_model_flags(parser):
    parser.add_argument("--units", type=int, required=True)


def main():
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-v", "--verbose", action="count", default=0)
    common.add_argument("-q", action="store_true")
    common.add_argument("-n", type=int)
    common.add_argument("--data", required=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    sub = parser.add_subparsers(dest="command", required=True)
    p = sub.add_parser("train", parents=[common], aliases=["fit"])
    p.add_argument("--epochs", type=int, required=True)
    add_model_flags(p)
    p = sub.add_parser("export", parents=[common])
    p.add_argument("--format", choices=["h5", "keras"], required=True)
    tools = sub.add_parser("tools").add_subparsers()
    tools.add_parser("clean").add_argument("--force", action="store_true")
    args = parser.parse_args()
    print(args)


if __name__ == "__main__":
    main()
