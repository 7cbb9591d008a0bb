"""The parts of a front, put together for one server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from localvertex import state
from localvertex.front.authority import Authority
from localvertex.front.call_names import APIS
from localvertex.front.hosts import DOMAIN, METADATA, Hosts, registries
from localvertex.front.identity import Account
from localvertex.front.pipes import Upstream
from localvertex.front.proxy import Connections, Journal, NewHttp, most_connections
from localvertex.front.routing import FrontApp, HostedApi
from localvertex.front.runs import Commands
from localvertex.front.variables import FOLDER, GCLOUD, TOKEN
from localvertex.http import Api
from localvertex.runner import image_stand_ins
from localvertex.services.housekeeping import Housekeeping
from localvertex.state import make_private
from vertexrig.files import write_bytes
from vertexrig.guard import LoopbackGuard

_DOMAIN = DOMAIN.replace(".", r"\.")
_METADATA = "|".join(sorted(METADATA)).replace(".", r"\.")
# Several APIs share www.googleapis.com; that of Cloud Storage has these paths.
_STORAGE_PATHS = r"/(storage|(resumable/)?upload/storage|download/storage|batch/storage)(/|$)"
_TOKEN_PATHS = r"/(.*/)?(token|tokeninfo|revoke)$"


class Front:
    """What the front of one server consists of.

    Args:
        root: The state folder.
        project: Project of the made-up account.
        project_number: Number of every project.
        allowed: Patterns of hosts that pass, besides package registries.
        engine: Which engine has the images that are listed; see `engine.look`.
    """

    def __init__(
        self, root: Path, project: str, project_number: str, allowed: Iterable[str], engine: str = "auto"
    ) -> None:
        self.root, self.engine = root, engine
        self.folder = make_private(root / FOLDER)
        make_private(self.folder / GCLOUD)
        self.authority = Authority(self.folder)
        self.identity = Account(self.folder, project, project_number)
        self.hosts = Hosts([*allowed, *registries(os.environ)])
        self.journal = Journal()
        self.runs = Commands()
        self.token = self._token()

    def _token(self) -> str:
        """Return the folder's token, which is stored, so that a shell that has it can use the next server."""
        path = self.folder / TOKEN
        try:
            kept = path.read_text(encoding="ascii")
        except (OSError, UnicodeError):
            kept = ""
        # A file that was cut off or edited; the token is part of a URL.
        if len(kept) < 32 or not kept.isalnum():
            kept = secrets.token_hex(24)
            write_bytes(path, kept.encode(), 0o600)
        return kept

    def app(self, plain: ASGIApp, apis: ASGIApp, xml: ASGIApp, public: Callable[[ASGIApp], ASGIApp]) -> ASGIApp:
        """Return the application for both ports.

        Args:
            plain: Answers the server's own port.
            apis: Answers by path prefix, without the guard of the server's own port.
            xml: Answers the XML API of Cloud Storage.
            public: Wraps what answers for Cloud Storage, for buckets that are read from Google.
        """
        who = self.identity
        metadata = Api(who.metadata_table())
        table = [
            HostedApi(f"{name}.{DOMAIN}", rf"(?:[a-z0-9-]+-)?{name}\.{_DOMAIN}", Api(routes), path=path, stand_in=True)
            for name, (path, routes) in Housekeeping(partial(image_stand_ins.digests, self.root, self.engine))
            .apis()
            .items()
        ]
        table += [
            HostedApi(f"{name}.{DOMAIN}", rf"(?:[a-z0-9-]+-)?{name}(?:\.[a-z0-9-]+\.rep)?\.{_DOMAIN}", apis, prefix)
            for name, (prefix, _) in APIS.items()
        ]
        table += [
            # The JSON API before the XML API, which has any other path of the same host.
            HostedApi(f"storage.{DOMAIN}", rf"(?:storage|www)\.{_DOMAIN}", public(apis), path=_STORAGE_PATHS),
            HostedApi(f"storage.{DOMAIN}", rf"storage\.{_DOMAIN}", public(xml)),
            HostedApi(f"storage.{DOMAIN}", rf"([a-z0-9][a-z0-9._-]+)\.storage\.{_DOMAIN}", public(xml), r"/\1"),
            HostedApi(f"oauth2.{DOMAIN}", rf"(?:oauth2|www)\.{_DOMAIN}", Api(who.oauth_table()), path=_TOKEN_PATHS),
            HostedApi(f"iamcredentials.{DOMAIN}", rf"iamcredentials\.{_DOMAIN}", Api(who.accounts_table())),
            HostedApi("metadata.google.internal", f"(?:{_METADATA})", metadata),
        ]
        app = FrontApp(_beside(plain, LoopbackGuard(metadata)), tuple(table), self.journal)
        return self.runs.around(app, self.journal.piped)

    def connections(self, port: int, new_http: NewHttp) -> Connections:
        """Return what the connections of the front at a port share."""

        def grpc_port() -> int | None:
            # Asked at each connection: the gRPC port is known after the front has begun to listen.
            here = state.find(self.root)
            return here.grpc_port if here is not None else None

        return Connections(
            self.authority,
            self.hosts,
            self.token,
            new_http,
            grpc_port,
            self.journal,
            Upstream(port),
            self.runs.at,
            most_connections(),
        )


def _beside(plain: ASGIApp, metadata: ASGIApp) -> ASGIApp:
    """Return the server's own port with the metadata server, to which GCE_METADATA_HOST leads."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"].startswith("/computeMetadata/")
        await (metadata if asked else plain)(scope, receive, send)

    return app
