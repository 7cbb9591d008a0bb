"""Where the clients of these tests are: in the environment of the tests, on the path, or where `make test-clients` puts them.

`make test-clients` names its folder by TEST_CLIENTS. Without that variable a client that is missing skips its tests; with
it they fail, unless the set-up recorded that a registry cannot be reached: then they skip with that reason.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

MADE = Path(os.environ["TEST_CLIENTS"]) if os.environ.get("TEST_CLIENTS") else None
"""The folder of `make test-clients`, None in other runs."""
AT_LENGTH = pytest.mark.skipif(MADE is None, reason="make test-clients runs it, beside its twin")
REASONS = "absent.json"
"""File in that folder: why a client is not in it, by the client's name."""


def missing(client: str, what: str) -> NoReturn:
    """Skip, or fail where the client should be here.

    Args:
        client: Name of a step of the set-up (`tests.clients.install`).
        what: What was looked for.
    """
    if MADE is None:
        pytest.skip(f"{what} is not here; make test-clients installs it")
    reasons = json.loads((MADE / REASONS).read_text(encoding="utf-8")) if (MADE / REASONS).is_file() else {}
    if client in reasons:
        pytest.skip(f"{what}: {reasons[client]}")
    pytest.fail(f"{what} is not here, and the set-up gave no reason; see {MADE / client}.log", pytrace=False)


def python(*modules: str, client: str = "python") -> str:
    """A Python with these modules: that of the tests, or the one of a client's own environment."""
    if client == "python" and all(_found(name) for name in modules):
        return sys.executable
    if MADE is not None:
        own = MADE / client / "bin/python"
        if own.exists() and _imports(str(own), modules):
            return str(own)
    missing(client, f"Python with {', '.join(modules)}")


def _found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:  # a package around it is missing
        return False


@cache
def _imports(own: str, modules: tuple[str, ...]) -> bool:
    program = "import importlib.util, sys; sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    return subprocess.run([own, "-c", program, *modules], capture_output=True).returncode == 0


def program(name: str, client: str) -> str:
    """A program of a client's folder, or else of the path."""
    own = MADE / client / "bin" / name if MADE is not None else None
    found = str(own) if own is not None and own.exists() else shutil.which(name)
    return found or missing(client, name)


def folder(client: str, name: str) -> Path:
    """A folder that the set-up of a client makes."""
    if MADE is None or not (MADE / client / name).is_dir():
        missing(client, f"{client}/{name}")
    return MADE / client / name
