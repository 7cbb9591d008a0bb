"""Which extra of the distribution brings a module that the base install does not: one table, and the one message."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

from vertexrig.errors import UsageError, install


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
    "croniter": Part("croniter", "submit"),
    "cron_descriptor": Part("cron-descriptor", "submit"),
    "google.auth": Part("google-auth", "submit"),
    "google.api_core": Part("google-api-core", "submit"),
    "google.cloud.scheduler_v1": Part("google-cloud-scheduler", "submit"),
    "functions_framework": Part("functions-framework", "trigger"),
    "starlette": Part("starlette", "local"),
    "anyio": Part("anyio", "local"),
    "uvicorn": Part("uvicorn", "local"),
    "httpx": Part("httpx", "local"),
    "optuna": Part("optuna", "local"),
    "google_crc32c": Part("google-crc32c", "local"),
    "cryptography": Part("cryptography", "local"),
    "certifi": Part("certifi", "local"),
    "grpc": Part("grpcio", "local"),
    "vl_convert": Part("vl-convert-python", "report"),
}
"""Modules outside the base install that vertexrig imports or runs; a parent includes the modules below it."""


INCLUDES: Mapping[str, frozenset[str]] = {name: frozenset({"submit"}) for name in ("trigger", "local", "report")}
"""Extras that bring what other extras bring, too."""


class MissingExtraError(UsageError):
    """Modules that extras bring are not installed (exit code 2).

    Args:
        modules: Keys of `PARTS`.
    """

    code = "missing-extra"

    def __init__(self, *modules: str) -> None:
        parts = [PARTS[module] for module in modules]
        names = " and ".join(dict.fromkeys(part.distribution for part in parts))
        wanted = {part.extra for part in parts}
        extras = ",".join(sorted(wanted - {less for more in wanted for less in INCLUDES.get(more, ())}))
        super().__init__(f"this needs {names}, which the base install leaves out: {install(extras)}")


def missing(error: ImportError) -> MissingExtraError | None:
    """Return the error for a person when an import failed because an extra is not installed; None if no extra brings the module."""
    absent = error.name or ""
    if not isinstance(error, ModuleNotFoundError):  # `from google.cloud import x` names the package, and x in its text
        absent = f"{absent}.{getattr(error, 'name_from', None) or ''}".rstrip(".")
    for module in PARTS:
        # The last one: without any library of Google Cloud's, an import fails at their parent, google.cloud.
        if absent == module or absent.startswith(f"{module}.") or (absent and module.startswith(f"{absent}.")):
            return MissingExtraError(module)
    return None


def need(*modules: str) -> None:
    """Import modules before the work begins, or before a process is started that would fail without them.

    Args:
        modules: Keys of `PARTS`.

    Raises:
        MissingExtraError: Some are not installed.
    """
    absent = []
    for module in modules:
        try:
            importlib.import_module(module)
        # Only that: a module that is there and fails in its own import is a defect, and shows its traceback.
        except ModuleNotFoundError:
            absent.append(module)
    if absent:
        raise MissingExtraError(*absent)
