"""Gives google-auth the key file of the made-up account in place of one that a program names and that is not there."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"
"""Names the made-up account's file; a program has no reason to change it, as it may change GOOGLE_APPLICATION_CREDENTIALS."""


def _there(path: Any) -> Any:
    """Return the path of a key file, or of the made-up account's if there is no such file."""
    instead = os.environ.get(VARIABLE)
    return instead if instead and isinstance(path, (str, os.PathLike)) and not os.path.exists(path) else path


def _replace(owner: Any, name: str) -> None:
    inner = getattr(owner, name)
    setattr(owner, name, lambda path, *args, **kwargs: inner(_there(path), *args, **kwargs))


def apply_to_default() -> None:
    """For `google.auth.default` and `load_credentials_from_file`."""
    _replace(sys.modules["google.auth._default"], "load_credentials_from_file")


def apply_to_service_account() -> None:
    """For `service_account.Credentials.from_service_account_file`."""
    _replace(sys.modules["google.auth._service_account_info"], "from_filename")


def apply_to_client() -> None:
    """For `storage.Client.from_service_account_json` and its like."""
    mixin = sys.modules["google.cloud.client"]._ClientFactoryMixin
    inner = mixin.from_service_account_json.__func__
    mixin.from_service_account_json = classmethod(
        lambda cls, path, *args, **kwargs: inner(cls, _there(path), *args, **kwargs)
    )
