"""`vertexrig console`: a page of the project's jobs, runs, schedules and models on Google Cloud."""

from __future__ import annotations

from pathlib import Path

import click

from localvertex.front import control
from vertexrig.cli import extras, options, streams
from vertexrig.cloud.vertex import is_local
from vertexrig.project import config


@click.command("console")
@options.file_option
@click.option("--project", help="Show this project in place of the project file's.")
@click.option("--region", help="Show this region in place of the project file's.")
@click.option(
    "--port",
    type=options.Integer(0, 65535),
    default=0,
    help="Port on 127.0.0.1; by default a free one.",
)
def command(file: Path | None, project: str | None, region: str | None, port: int) -> None:
    """Show the project's schedules, runs, jobs and models in a browser, with your credentials.

    The page is the same as the console of `vertexrig local up`. It is read-only, and only you can open it. To stop it, press
    Ctrl-C.
    """
    extras.need("starlette", "uvicorn", "requests")
    import uvicorn  # 60 ms, and an extra
    from starlette.applications import Starlette

    from localvertex.front.console import sandboxed
    from localvertex.front.project_console import ProjectConsole
    from vertexrig.guard import LoopbackGuard, serving_protocol

    given = {"project": project, "region": region}
    loaded = config.load(file, overrides=[f"{key}={value}" for key, value in given.items() if value])
    if not is_local():
        loaded.require_environment()
    app = Starlette(routes=ProjectConsole(loaded, loaded.output(config.STATE_FOLDER)).routes())
    with control.bound(port) as listener:
        streams.note(f"the console of {loaded.project.project} is at http://127.0.0.1:{listener.getsockname()[1]}/")
        served = uvicorn.Config(
            sandboxed(LoopbackGuard(app)),
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            http=serving_protocol(),
        )
        uvicorn.Server(served).run(sockets=[listener])
