"""`http`: httpx for servers on this machine. `httpx.get` reads all root certificates at each call, 27 ms of processor."""

from __future__ import annotations

import httpx

http = httpx.Client(verify=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
