"""The command `vertexrig`, and `python -m vertexrig`."""

import os
import sys


def main() -> None:
    """Run the command line of this process."""
    try:
        from vertexrig import cli

        cli.main()
    except KeyboardInterrupt:  # while modules are imported; a later interrupt ends in `cli.run`
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    # `python -m` puts the working directory first on the path: no module of a project is imported from there
    first = sys.path[0]
    if first != os.path.dirname(os.path.dirname(__file__)) and os.path.exists(first) and os.path.samefile(first, "."):
        del sys.path[0]
    main()
