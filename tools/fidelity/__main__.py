"""The command `python -m tools.fidelity`."""

import sys

from tools.fidelity.command import command
from vertexrig import cli

sys.exit(cli.run(command=command, name="python -m tools.fidelity"))
