"""The process of a local Vertex in the background, which `control.up` starts."""

import sys

from localvertex.server import main
from vertexrig.errors import UsageError

try:
    main()
except UsageError as problem:
    sys.exit(f"error: {problem}")
except KeyboardInterrupt:
    sys.exit(130)
