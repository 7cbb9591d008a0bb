"""Leads the names of Google's APIs to the local Vertex, for libraries that ask no proxy; refuses the hosts that its proxy refuses.

Python's own HTTP, asyncio, aiohttp and urllib3 ask `socket.getaddrinfo`; some connect by the name. VERTEXRIG_NAMES has the address and
port where TLS for these names begins at once; HTTPS_PROXY has the proxy, which says what becomes of any other host.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "VERTEXRIG_NAMES"
_DOMAIN = "googleapis.com"
_TLS = (443, "443", "https")
_WEB = (80, "80", "http", *_TLS)
_asked: dict[str, str] = {}
"""Why a host is refused, "" if it is not, of those that were asked about."""


def apply() -> None:
    """Replace what asks for a name in Python: `socket.getaddrinfo`, and `socket.connect` with a name."""
    socket: Any = sys.modules["socket"]
    looked_up, connected = socket.getaddrinfo, socket.socket.connect

    def getaddrinfo(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        return looked_up(*_led(host, port, socket), *args, **kwargs)

    def connect(self: Any, address: Any) -> Any:
        if isinstance(address, tuple) and self.family in (socket.AF_INET, socket.AF_INET6):
            address = (*_led(address[0], address[1], socket), *address[2:])
        return connected(self, address)

    socket.getaddrinfo, socket.socket.connect = getaddrinfo, connect


def apply_to_uvloop() -> None:
    """Replace what asks for a name in uvloop, which calls the system's C library: its loop's `getaddrinfo` and `create_connection`."""
    loop, socket = sys.modules["uvloop"].Loop, sys.modules["socket"]
    looked_up, connected = loop.getaddrinfo, loop.create_connection

    async def getaddrinfo(self: Any, host: Any, port: Any, **kwargs: Any) -> Any:
        # In a thread, as asyncio does: the proxy may have to be asked.
        return await looked_up(self, *await self.run_in_executor(None, _led, host, port, socket), **kwargs)

    async def create_connection(self: Any, factory: Any, host: Any = None, port: Any = None, **kwargs: Any) -> Any:
        if host:
            if kwargs.get("ssl") and kwargs.get("server_hostname") is None:
                kwargs["server_hostname"] = host
            host, port = await self.run_in_executor(None, _led, host, port, socket)
        return await connected(self, factory, host, port, **kwargs)

    loop.getaddrinfo, loop.create_connection = getaddrinfo, create_connection


def _led(host: Any, port: Any, socket: Any) -> tuple[Any, Any]:
    """Return the address and port that a host's name and port lead to.

    Raises:
        OSError: The host is refused.
    """
    name = (host.decode("latin-1") if isinstance(host, bytes) else host or "").rstrip(".").lower()
    asked = port.decode("latin-1") if isinstance(port, bytes) else port
    if asked not in _WEB or not os.environ.get(VARIABLE):
        return host, port
    if name == _DOMAIN or name.endswith("." + _DOMAIN):
        if asked not in _TLS:
            raise socket.gaierror(socket.EAI_NONAME, f"{name} accepts only https here")
        address, _, own = os.environ[VARIABLE].rpartition(":")
        return address, int(own)
    # A name without a dot, or an address, is of the machine's own network.
    if "." in name and not name.replace(".", "").isdigit():
        refusal = _refusal(name, socket)
        if refusal:
            raise socket.gaierror(socket.EAI_NONAME, refusal)
    return host, port


def _refusal(name: str, socket: Any) -> str:
    """Ask the proxy what becomes of a host, until it has decided; it counts what it refuses."""
    if name not in _asked:
        import base64
        from urllib.parse import unquote, urlsplit
        from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

        proxy = urlsplit(os.environ.get("HTTPS_PROXY", ""))
        if not proxy.hostname or proxy_bypass_environment(name):
            return ""
        login = base64.b64encode(unquote(f"{proxy.username}:{proxy.password}").encode()).decode()
        head = f"CONNECT {name}:443 HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n"
        try:
            with socket.create_connection((proxy.hostname, proxy.port), timeout=15) as connection:
                connection.sendall(head.encode())
                code, _, why = connection.makefile("rb").readline().decode("latin-1").partition(" ")[2].partition(" ")
        except (OSError, UnicodeError) as error:
            code, why = "", f"{name} cannot be reached: the local Vertex's proxy does not answer: {error}"
        refusal = (
            "" if code == "200" else why.strip() or f"{name} cannot be reached: the local Vertex's proxy gave no answer"
        )
        # Another answer, such as that of a proxy with too many connections, is of this moment only.
        if code not in ("200", "403"):
            return refusal
        _asked[name] = refusal
    return _asked[name]
