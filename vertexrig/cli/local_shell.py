"""Whether the shell that started this program is one of the local Vertex."""

from __future__ import annotations

import os


def in_local_shell() -> bool:
    """Tell whether this shell's jobs go to the local Vertex."""
    if not os.environ.get("VERTEXRIG_AIPLATFORM"):
        return False
    from vertexrig.submit import images  # 130 ms

    return images.is_local()
