"""Tokens of the account that a function runs as, from the metadata server beside it.

google.auth gives them too, but loads cryptography for key files on the way, which no function has: 12 MiB and a tenth of its
start (2026-11-22). It serves every other kind of credentials, see `rest`.

Source: https://cloud.google.com/run/docs/container-contract (variables of a service; the metadata server's paths), read
2026-11-22; the times are those of google-auth 2.62.2.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from urllib3.util import Retry

from vertexrig.errors import ServiceError

_PATH = "/computeMetadata/v1/instance/service-accounts/default/token"
_FLAVOR = {"Metadata-Flavor": "Google"}
_TIMEOUT_S = 3.0
_EARLY_S = 225.0
"""A token is asked for anew so long before it ends, seconds; the metadata server keeps one for all who ask."""
_RETRY = Retry(total=4, backoff_factor=0.2, status_forcelist=(404, 429, 500, 502, 503, 504), raise_on_status=False)


class NoTokenError(ServiceError):
    """The metadata server gave no token."""


def has_account() -> bool:
    """Whether this process is a Cloud Run service or a function, with no key file named in its place."""
    return "K_SERVICE" in os.environ and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ


class RuntimeAccount(AuthBase):
    """Signs requests with the token of the account that this process runs as.

    Args:
        scope: What the token is for.
    """

    def __init__(self, scope: str) -> None:
        self._scope = scope
        self._lock = threading.Lock()  # the function answers several requests at a time, each in its thread
        self._token, self._until = "", 0.0

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request; a 401 is answered with another token, once."""
        request.headers["Authorization"] = f"Bearer {self.token()}"
        request.register_hook("response", self._once_more)
        return request

    def token(self) -> str:
        """A token that is good for some minutes.

        Raises:
            NoTokenError: There is none to be had.
        """
        with self._lock:
            if time.monotonic() >= self._until:
                self._token, seconds = _ask(self._scope)
                self._until = time.monotonic() + seconds - _EARLY_S
            return self._token

    def _once_more(self, answer: requests.Response, **how: Any) -> requests.Response:
        if answer.status_code != 401:
            return answer
        with self._lock:
            if answer.request.headers["Authorization"] == f"Bearer {self._token}":  # else another thread has asked
                self._until = 0.0
        answer.close()
        again = answer.request.copy()
        again.headers["Authorization"] = f"Bearer {self.token()}"
        # By the adapter and not the session, so that this hook does not run again.
        return answer.connection.send(again, **how)


def _ask(scope: str) -> tuple[str, float]:
    """A token, and the seconds until its end."""
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    with requests.Session() as session:
        session.trust_env = False  # the metadata server is never behind a proxy
        session.mount("http://", HTTPAdapter(max_retries=_RETRY))
        try:
            answer = session.get(f"http://{host}{_PATH}", params={"scopes": scope}, headers=_FLAVOR, timeout=_TIMEOUT_S)
            answer.raise_for_status()
            data = answer.json()
            return str(data["access_token"]), float(data["expires_in"])
        except requests.RequestException as error:
            text = " ".join(str(error).split())[:300]
            raise NoTokenError(f"the metadata server at {host} gave no token: {text}") from None
        except (KeyError, TypeError, ValueError):
            raise NoTokenError(f"the metadata server at {host} answered with something other than a token") from None
