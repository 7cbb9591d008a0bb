"""Identity tokens of callers, checked by google-auth against Google's certificates."""

from __future__ import annotations

from vertexrig.cloud.rest import Rest, RestError

CERTIFICATES = "https://www.googleapis.com/oauth2/v1/certs"
ISSUERS = ("https://accounts.google.com", "accounts.google.com")
SKEW_S = 60
"""Seconds by which the clocks of Google and of this machine may differ."""


def email_of(token: str, audience: str, certificates: str = CERTIFICATES) -> str:
    """Return the verified e-mail of an identity token; "" if the token is wrong, or is for another audience."""
    from google.auth import exceptions  # with the next two 60 ms, for a function whose platform does not check tokens
    from google.auth.transport.requests import Request
    from google.oauth2 import id_token

    try:
        claims = id_token.verify_token(token, Request(), audience, certificates, clock_skew_in_seconds=SKEW_S)
    except exceptions.TransportError as error:
        raise RestError(f"the certificates of identity tokens cannot be read: {error}", status=503) from None
    except (ValueError, exceptions.GoogleAuthError):
        return ""
    good = claims.get("iss") in ISSUERS and claims.get("email_verified") is True
    return str(claims.get("email", "")) if good else ""


def refuses_anonymous(url: str) -> bool:
    """Whether the platform refuses a call without a token before it reaches the function."""
    try:
        Rest(url, "The function's own URL", attempts=1).call("GET", "/openapi.json", raw=True)
    except RestError as error:
        if error.status is None or error.status >= 500:
            raise
        return error.status in (401, 403, 404)  # 404: no ingress from the internet
    return False
