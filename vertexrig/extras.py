"""Which extra of the distribution brings a module that the base installation does not have."""

from __future__ import annotations

# Longest name first where one lies in another. tests/test_extras.py holds this against setup.py.
_EXTRA_BY_MODULE = {
    "anyio": "local",
    "cron_descriptor": "submit",
    "croniter": "submit",
    "google.protobuf": "local",
    "google_crc32c": "local",
    "httpx": "local",
    "optuna": "local",
    "starlette": "local",
    "uvicorn": "local",
    "functions_framework": "trigger",
    "google": "submit",
    "requests": "submit",
    "urllib3": "submit",
}


def extra_of(module: str) -> str | None:
    """The extra that brings a module, such as `local` for `starlette.routing`; None for one that no extra names."""
    for name, extra in _EXTRA_BY_MODULE.items():
        if module == name or module.startswith(f"{name}."):
            return extra
    return None
