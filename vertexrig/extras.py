"""Which extra of the distribution brings a module that the base install does not: one table, and the one message."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from vertexrig.errors import UsageError


@dataclass(frozen=True)
class Part:
    """What brings a module.

    Args:
        distribution: The distribution on PyPI.
        extra: The extra of vertexrig that installs it.
    """

    distribution: str
    extra: str


PARTS: Mapping[str, Part] = {
    "requests": Part("requests", "submit"),
    "urllib3": Part("urllib3", "submit"),
    "google.auth": Part("google-auth", "submit"),
    "google.api_core": Part("google-api-core", "submit"),
    "google.cloud.scheduler_v1": Part("google-cloud-scheduler", "submit"),
    "functions_framework": Part("functions-framework", "trigger"),
    "starlette": Part("starlette", "local"),
    "anyio": Part("anyio", "local"),
    "uvicorn": Part("uvicorn", "local"),
    "httpx": Part("httpx", "local"),
    "optuna": Part("optuna", "local"),
    "croniter": Part("croniter", "local"),
    "google_crc32c": Part("google-crc32c", "local"),
}
"""Modules outside the base install that vertexrig imports or runs; a parent stands for the modules below it."""


class MissingExtraError(UsageError):
    """A module that an extra brings is not installed (exit code 2).

    Args:
        module: The module, a key of `PARTS`.
    """

    def __init__(self, module: str) -> None:
        part = PARTS[module]
        super().__init__(
            f'this needs {part.distribution}, which the extra "{part.extra}" brings: '
            f'pip install "vertexrig[{part.extra}]"'
        )


def missing(error: ImportError) -> MissingExtraError | None:
    """The error for a person when an import failed for want of an extra; None if no extra brings the module."""
    absent = error.name or ""
    if not isinstance(error, ModuleNotFoundError):  # `from google.cloud import x` names the package, and x in its text
        absent = f"{absent}.{getattr(error, 'name_from', None) or ''}".rstrip(".")
    for module in PARTS:
        if absent == module or absent.startswith(f"{module}.") or (absent and module.startswith(f"{absent}.")):
            return MissingExtraError(module)
    return None


def need(*modules: str) -> None:
    """Import modules before a process of its own is started that would fail without them.

    Raises:
        MissingExtraError: One is not installed.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            own = module in PARTS and f"{module}.".startswith(f"{error.name}.")
            raise (MissingExtraError(module) if own else missing(error) or error) from None
