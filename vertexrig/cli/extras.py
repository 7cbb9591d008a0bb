"""Which extra installs a module that the base install does not have: one table, and the one message."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from vertexrig.errors import UsageError, install

PARTS: Mapping[str, tuple[str, str]] = {
    "requests": ("requests", "submit"),
    "urllib3": ("urllib3", "submit"),
    "croniter": ("croniter", "submit"),
    "cron_descriptor": ("cron-descriptor", "submit"),
    "google.auth": ("google-auth", "submit"),
    "google.api_core": ("google-api-core", "submit"),
    "google.cloud.scheduler_v1": ("google-cloud-scheduler", "submit"),
    "functions_framework": ("functions-framework", "trigger"),
    "starlette": ("starlette", "local"),
    "anyio": ("anyio", "local"),
    "uvicorn": ("uvicorn", "local"),
    "httpx": ("httpx", "local"),
    "optuna": ("optuna", "local"),
    "google_crc32c": ("google-crc32c", "local"),
    "cryptography": ("cryptography", "local"),
    "certifi": ("certifi", "local"),
    "grpc": ("grpcio", "local"),
    "vl_convert": ("vl-convert-python", "report"),
}
"""Modules outside the base install that vertexrig imports or runs: the distribution on PyPI that has the module, and the smallest extra
that installs it. A row also stands for the modules below its own.
"""

INCLUDES: Mapping[str, frozenset[str]] = {name: frozenset({"submit"}) for name in ("trigger", "local", "report")}
"""Extras that include the packages of other extras."""


class MissingExtraError(UsageError):
    """Modules that only extras install are missing (exit code 2).

    Args:
        modules: Keys of `PARTS`.
    """

    code = "missing-extra"

    def __init__(self, *modules: str) -> None:
        parts = [PARTS[module] for module in modules]
        names = " and ".join(dict.fromkeys(distribution for distribution, _ in parts))
        wanted = {extra for _, extra in parts}
        extras = ",".join(sorted(wanted - {less for more in wanted for less in INCLUDES.get(more, ())}))
        super().__init__(f"this needs {names}, which the base install does not include: {install(extras)}")


def missing(error: ImportError) -> MissingExtraError | None:
    """Return the error for a person if an import failed because an extra is not installed; None if no extra has the module."""
    absent = error.name or ""
    if not isinstance(error, ModuleNotFoundError):  # `from google.cloud import x` names the package, and x in its text
        absent = f"{absent}.{getattr(error, 'name_from', None) or ''}".rstrip(".")
    for module in PARTS:
        # the last case: without any library of Google Cloud, the import of their parent google.cloud fails
        if absent == module or absent.startswith(f"{module}.") or (absent and module.startswith(f"{absent}.")):
            return MissingExtraError(module)
    return None


def need(*modules: str) -> None:
    """Look for modules before the work starts, or before starting a process that needs them. They are not imported.

    Args:
        modules: Keys of `PARTS`.

    Raises:
        MissingExtraError: A module is not installed.
    """
    if absent := [module for module in modules if not _is_installed(module)]:
        raise MissingExtraError(*absent)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False
