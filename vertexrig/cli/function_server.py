"""Serve the staged Cloud Function on this machine behind the guard of the local Vertex: the process of `function serve`.

Run as a file with the folder, the target and the port. It imports nothing of the installed vertexrig, so that the
function imports the copy in its staged folder, as it will in the cloud; the application is functions-framework's own.
It is a WSGI one, for which `asgi` is the bridge: those of Starlette 1.10.0 and uvicorn 0.54.0 are deprecated (read 2026-11-22).
"""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def _guards() -> Any:
    """Load the module `guard` from its file, and return it."""
    spec = importlib.util.spec_from_file_location("vertexrig_guard", Path(__file__).parents[1] / "guard.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as in the recipe of importlib: a module may look itself up there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def environ(scope: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """Return the WSGI environment of an ASGI request and its body."""
    result: dict[str, Any] = {
        # PEP 3333: every text is latin-1 that holds the bytes of the request; ASGI gives the path decoded as UTF-8.
        "REQUEST_METHOD": scope["method"], "SCRIPT_NAME": "", "PATH_INFO": scope["path"].encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"), "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": scope["server"][0], "SERVER_PORT": str(scope["server"][1]), "REMOTE_ADDR": scope["client"][0],
        "wsgi.version": (1, 0), "wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(body), "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True, "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
    }  # fmt: skip
    for key, value in scope["headers"]:
        name = key.decode("latin-1").upper().replace("-", "_")
        name = name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
        text = value.decode("latin-1")
        # A header that came twice becomes one value with a comma, as in CGI.
        result[name] = f"{result[name]},{text}" if name in result else text
    return result | {"CONTENT_LENGTH": str(len(body))}  # a chunked body came without one


def asgi(wsgi: Callable[..., Any]) -> Callable[..., Any]:
    """Return a WSGI application as an ASGI one, called in a thread with the whole body."""
    import anyio.to_thread

    def call(environment: dict[str, Any]) -> tuple[str, list[tuple[str, str]], bytes]:
        answer: list[Any] = []
        chunks = wsgi(environment, lambda status, headers, _=None: answer.extend((status, headers)))
        try:
            body = b"".join(chunks)
        finally:
            # PEP 3333: the server calls close() of what the application returned, where it has one, also after an
            # error.
            getattr(chunks, "close", lambda: None)()
        return answer[0], answer[1], body

    async def application(scope: Any, receive: Any, send: Any) -> None:
        # One message has all of it: the guard around this application has read the body and limited its size.
        body = (await receive())["body"]
        status, headers, content = await anyio.to_thread.run_sync(call, environ(scope, body))
        raw = [(key.lower().encode("latin-1"), value.encode("latin-1")) for key, value in headers]
        await send({"type": "http.response.start", "status": int(status.split()[0]), "headers": raw})
        await send({"type": "http.response.body", "body": content})

    return application


def main(folder: str, target: str, port: str) -> None:
    """Serve the function that is staged in `folder` on 127.0.0.1 until interrupted."""
    import functions_framework
    import uvicorn

    kind = "http" if target == "trigger" else "cloudevent"

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                print(f"serving {target} on http://127.0.0.1:{port}", file=sys.stderr, flush=True)

    guard = _guards()
    function = asgi(functions_framework.create_app(target, str(Path(folder) / "main.py"), kind))  # type: ignore[no-untyped-call]
    settings = uvicorn.Config(
        # proxy_headers off: uvicorn would take the client's address from X-Forwarded-For, which any client can write.
        guard.LoopbackGuard(guard.BodyGuard(function)),
        host="127.0.0.1",
        port=int(port),
        lifespan="off",
        http=guard.serving_protocol(),
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        limit_concurrency=256,
    )
    server = Server(settings)
    server.run()
    if not server.started:  # uvicorn has logged why
        sys.exit(3)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:  # while modules are imported, or sent again by uvicorn, which has ended in order
        print("\ninterrupted", file=sys.stderr, flush=True)
        sys.exit(130)
