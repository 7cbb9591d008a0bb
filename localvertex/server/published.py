"""A local Vertex that other containers and machines may use: the program of the image that the Containerfile builds.

The server itself answers its own machine alone. This program passes on to it every connection that reaches the container, so
whoever reaches a published port may run programs in the container.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from localvertex.jobs.settings import Settings
from localvertex.runner.options import RunOptions
from localvertex.server import serve
from localvertex.state import HOST, RunningServer

ROOT = Path("/var/lib/vertexrig")
REST, FRONT, GRPC = 8642, 8643, 8644
HOSTS = "LOCAL_VERTEX_HOSTS"
"""Variable with the names by which clients call the container, separated by commas; without it nothing is passed on."""


def main() -> None:
    """Serve until SIGTERM."""
    names = tuple(name.strip().lower() for name in os.environ.get(HOSTS, "").split(",") if name.strip())
    if not names:
        sys.exit(
            f"error: {HOSTS} is not set. Everybody who reaches a port of this container may run programs in it. To allow that, name "
            f"the hosts by which clients call the container: {HOSTS}=localhost,local-vertex"
        )
    run = RunOptions(project=os.environ.get("GOOGLE_CLOUD_PROJECT") or "my-project", keep_gs=True, engine="none")
    with suppress(KeyboardInterrupt):
        serve(Settings(ROOT, options=run, hosts=names), 0, published)


def published(here: RunningServer) -> None:
    """Pass on connections to the image's ports, in a thread, and say so."""
    ports = {REST: here.port, FRONT: here.front_port, GRPC: here.grpc_port or 0}
    listening = threading.Event()
    threading.Thread(target=lambda: asyncio.run(_forward(ports, listening)), daemon=True).start()
    if listening.wait(10):
        sys.stderr.write(f"the local Vertex answers at the ports {REST} (REST), {FRONT} (proxy) and {GRPC} (gRPC)\n")


async def _forward(ports: Mapping[int, int], listening: threading.Event) -> None:
    servers = [await asyncio.start_server(partial(_connected, to), "0.0.0.0", port) for port, to in ports.items() if to]
    listening.set()
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _connected(to: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        inner, outer = await asyncio.open_connection(HOST, to)
        await asyncio.gather(_pass(reader, outer), _pass(inner, writer))
        outer.close()
    writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction to its end; the other one may go on."""
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()


if __name__ == "__main__":
    main()
