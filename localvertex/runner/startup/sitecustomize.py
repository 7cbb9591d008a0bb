"""Python imports this when it starts. It leaves nothing of itself but a hook: not in sys.path, and not in place of another one."""

from __future__ import annotations

import os
import sys

import vertexrig_after  # type: ignore[import-not-found]  # beside this file

vertexrig_after.install()
# Popped first, so that the import below looks for another one; kept, because a module that is being imported must end
# in sys.modules.
_own, _folder = sys.modules.pop("sitecustomize"), os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _folder]
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401  # the one of this machine, which this file has hidden
except ImportError:
    sys.modules["sitecustomize"] = _own
