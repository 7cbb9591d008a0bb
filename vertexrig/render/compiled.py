"""Compiled templates, kept between processes: compiling two takes 20 ms of the 200 that a whole `render` has (2026-11-22).

What is kept is code, so it is never read from the project, which may come from elsewhere: Jinja keeps it in a folder of the
user's own, mode 700, below the folder for temporary files. A template has compiled code only for its path and its very text.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

from vertexrig import __version__
from vertexrig.render import sandbox


def compiled_templates() -> jinja2.BytecodeCache | None:
    """Jinja's cache for our environment; None where there is no safe folder for it."""
    code = Path(sandbox.__file__).stat()  # what puts the charges into every template
    maker = f"{jinja2.__version__} {__version__} {code.st_size} {code.st_mtime_ns}"
    try:
        # in the files' names, so that several releases beside each other keep their own
        return _Cache(pattern=f"vertexrig-{hashlib.sha256(maker.encode()).hexdigest()[:12]}-%s.cache")
    except (OSError, RuntimeError):  # Jinja's own, for a folder that others may write
        return None


class _Cache(jinja2.FileSystemBytecodeCache):
    """Where a file cannot be read or written the template is compiled, as if there were no cache."""

    def load_bytecode(self, bucket: Bucket) -> None:
        try:
            super().load_bytecode(bucket)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # cut off, or not a cache's file
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        try:
            super().dump_bytecode(bucket)
        # a full disk, or a folder that is gone by now
        except OSError:
            pass
