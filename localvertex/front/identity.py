"""The made-up service account of a state folder, its tokens, and the metadata server.

The key and the tokens are valid on this machine alone: no Google account has them.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.auth import jwt
from google.auth.crypt import RSASigner
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from localvertex.front.variables import ACCESS_TOKEN, CREDENTIALS, GCLOUD
from localvertex.http import Endpoint, Json, endpoint, invalid, not_found, read_body
from vertexrig.files import write_bytes

TOKEN_URI = "https://oauth2.googleapis.com/token"
# As Google's own token endpoint answers.
LIFETIME = 3599
_SCOPES = "https://www.googleapis.com/auth/cloud-platform"
# google-auth takes a server for the metadata server by this header.
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}


class Account:
    """The made-up service account of one state folder, whose key file is made there if it is missing or damaged."""

    def __init__(self, folder: Path, project: str, project_number: str) -> None:
        self.project, self.number = project, project_number
        self.path = folder / CREDENTIALS
        self._file = self._kept() or self._made()
        self.email = str(self._file["client_email"])
        self._known_to_gcloud(folder / GCLOUD / "credentials.db")

    def _known_to_gcloud(self, file: Path) -> None:
        """Put the account where `gcloud auth list` reads (googlecloudsdk/core/credentials/creds.py)."""
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS credentials (account_id TEXT PRIMARY KEY, value BLOB)")
            connection.execute("DELETE FROM credentials")
            connection.execute("INSERT INTO credentials VALUES (?, ?)", (self.email, json.dumps(self._file)))
        file.chmod(0o600)

    def _kept(self) -> Json | None:
        try:
            found = json.loads(self.path.read_bytes())
            RSASigner.from_service_account_info(found)  # type: ignore[no-untyped-call]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        self.path.chmod(0o600)
        # Clients read their project from this file, so another project needs another one.
        return found if found.get("project_id") == self.project and found.get("client_email") else None

    def _made(self) -> Json:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        made = {
            "type": "service_account",
            "project_id": self.project,
            "private_key_id": secrets.token_hex(20),
            "private_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            # The prefix of a domain-scoped project (`example.com:`) is not part of an address.
            "client_email": f"local-vertex@{self.project.rpartition(':')[2]}.iam.gserviceaccount.com",
            # 21 digits, as Google's have.
            "client_id": str(10**20 + secrets.randbelow(10**20)),
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": TOKEN_URI,
            "auth_provider_x509_cert_url": "https://www.googleapis.com/oauth2/v1/certs",
            "universe_domain": "googleapis.com",
        }
        write_bytes(self.path, json.dumps(made, indent=2).encode(), 0o600)
        return made

    def id_token(self, audience: str) -> str:
        """Return an identity token for an audience, signed with the account's own key."""
        now = int(time.time())
        claims = {
            "iss": "https://accounts.google.com",
            "aud": audience,
            "azp": self.email,
            "sub": self._file["client_id"],
            "email": self.email,
            "email_verified": True,
            "iat": now,
            "exp": now + LIFETIME,
        }
        return str(jwt.encode(RSASigner.from_service_account_info(self._file), claims), "ascii")  # type: ignore[no-untyped-call]

    # -- the token endpoint

    async def token(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /token: an access token, or an identity token where the assertion names an audience."""
        form = parse_qs((await read_body(request)).decode("utf-8", "replace"))
        if not form.get("grant_type"):
            return JSONResponse({"error": "invalid_request", "error_description": "grant_type is missing"}, 400)
        audience = _audience((form.get("assertion") or [""])[0])
        if audience:
            return JSONResponse({"id_token": self.id_token(audience)})
        return JSONResponse(self._access())

    def _access(self) -> Json:
        return {"access_token": ACCESS_TOKEN, "expires_in": LIFETIME, "token_type": "Bearer"}

    async def token_info(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET or POST /tokeninfo."""
        await read_body(request)
        return JSONResponse({"azp": self.email, "email": self.email, "expires_in": str(LIFETIME), "scope": _SCOPES})

    async def revoke(self, request: Request, path: Mapping[str, str]) -> Response:
        """POST /revoke."""
        await read_body(request)
        return JSONResponse({})

    def oauth_table(self) -> list[Endpoint]:
        """Routes of oauth2.googleapis.com, and of www.googleapis.com as older clients ask it."""
        tokens, infos = "(?:/oauth2/v[34]|/o/oauth2)?/token", "(?:/oauth2/v[123])?/tokeninfo"
        return [
            endpoint("POST", tokens, self.token),
            endpoint("GET", infos, self.token_info),
            endpoint("POST", infos, self.token_info),
            endpoint("POST", "/revoke", self.revoke),
        ]

    # -- the metadata server

    async def metadata(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET below /computeMetadata/v1."""
        if request.headers.get("metadata-flavor") != "Google":
            return PlainTextResponse("Missing required header: Metadata-Flavor: Google", 403, headers=_FLAVOR)
        where = path.get("rest", "").strip("/")
        account = where.removeprefix("instance/service-accounts/")
        name, _, field = account.partition("/")
        if account != where and name in ("default", self.email):
            found = self._account(field, request)
        else:
            found = self._facts().get(where)
        if found is None:
            raise not_found(f"The local metadata server has no {where[:200]!r}.")
        if isinstance(found, dict):
            return JSONResponse(found, headers=_FLAVOR)
        return PlainTextResponse(found, headers={**_FLAVOR, "Content-Type": "application/text"})

    def _facts(self) -> Mapping[str, str | Json]:
        zone = "us-central1-a"
        return {
            "": "instance/\noslogin/\nproject/\n",
            "universe/universe-domain": "googleapis.com",
            "universe/universe_domain": "googleapis.com",
            "project/project-id": self.project,
            "project/numeric-project-id": self.number,
            "instance/id": "1234567890123456789",
            "instance/name": "local-vertex",
            "instance/hostname": "local-vertex.internal",
            "instance/zone": f"projects/{self.number}/zones/{zone}",
            "instance/region": f"projects/{self.number}/regions/{zone[:-2]}",
            "instance/service-accounts": f"default/\n{self.email}/\n",
        }

    def _account(self, field: str, request: Request) -> str | Json | None:
        shown = {"email": self.email, "scopes": f"{_SCOPES}\n", "aliases": "default\n"}
        if field == "token":
            return self._access()
        if field == "identity":
            audience = request.query_params.get("audience", "")
            if not audience:
                raise invalid("non-empty audience parameter required")
            return self.id_token(audience)
        # google-auth asks so for the address and the scopes.
        if field == "" and request.query_params.get("recursive", "").lower() == "true":
            return {"aliases": ["default"], "email": self.email, "scopes": [_SCOPES]}
        return "\n".join([*shown, "identity", "token", ""]) if field == "" else shown.get(field)

    def metadata_table(self) -> list[Endpoint]:
        """Routes of the metadata server."""
        return [
            endpoint("GET", "/", self.metadata),
            endpoint("GET", "/computeMetadata/v1/?", self.metadata),
            endpoint("GET", "/computeMetadata/v1/{rest*}", self.metadata),
        ]

    # -- service accounts

    async def locations(self, request: Request, path: Mapping[str, str]) -> Response:
        """GET …/serviceAccounts/EMAIL/allowedLocations, which google-auth asks with each token: anywhere."""
        return JSONResponse({"locations": [], "encodedLocations": "0x0"})

    def accounts_table(self) -> list[Endpoint]:
        """Routes of the Service Account Credentials API."""
        return [endpoint("GET", "/v1/projects/[^/]+/serviceAccounts/[^/]+/allowedLocations", self.locations)]


def _audience(assertion: str) -> str:
    """Return `target_audience` of a JWT assertion, "" if there is none in it or it is not a JWT."""
    try:
        return str(jwt.decode(assertion, verify=False).get("target_audience") or "")  # type: ignore[no-untyped-call]
    except ValueError:
        return ""
