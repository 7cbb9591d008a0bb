"""The command `vertexrig`, and `python -m vertexrig`."""

import sys


def main() -> None:
    """Run the console script."""
    try:
        from vertexrig import cli

        cli.main()
    except KeyboardInterrupt:  # while modules are imported; later ones end in `cli.run`
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
