"""`vertexrig local python`: an environment with an image's Python and versions, for rehearsals."""

from __future__ import annotations

from pathlib import Path

import click

from vertexrig.cli import options, streams
from vertexrig.cli.output import result
from vertexrig.errors import UsageError
from vertexrig.files import locked, write_text
from vertexrig.project import config
from vertexrig.project.config import Loaded
from vertexrig.project.local import AUTO
from vertexrig.project.model import BUILD
from vertexrig.yamltext import flow


@click.command("python", short_help="Make an environment with an image's Python and versions.")
@options.file_option
@click.option(
    "--image",
    required=True,
    metavar="NAME",
    help="Short name of a prebuilt image, such as tf-2.17, its whole name, such as tf-cpu.2-8, or `build` for the image of `image: build`.",
)
@click.option("--wire", is_flag=True, help="Add the lines under local.interpreters to the project file.")
@options.format_option("text", "json")
def command(file: Path | None, image: str, wire: bool, format_: str) -> None:
    """Make a Python environment with the versions of an image, and print its interpreter and its differences from the image.

    uv makes the environment, with a Python that it finds or downloads, and keeps it in your cache folder. The command
    also prints lines for the project file. They name the image instead of a path, so they work on every machine.
    """
    from localvertex.runner import pythons  # 80 ms
    from vertexrig.catalog.overlay import catalog_with

    loaded = _project(file, needed=image == BUILD or wire)
    overlay = loaded.project.catalog if loaded is not None else None
    catalog = catalog_with(loaded.path(overlay, "catalog") if loaded is not None and overlay else None)
    made = pythons.make_python(pythons.wanted(image, catalog, loaded), streams.note)
    streams.note("made the environment" if made.fresh else "the environment already exists")
    for one in made.differs:
        streams.note(f"differs: {one}")
    row = pythons.prebuilt(image, catalog)
    name = row.name if row is not None else f"{loaded.project.trainer.build.name}-cpu:" if loaded is not None else image
    lines = f"local:\n  interpreters: {flow({f'*{name}*': image})}\n"
    if wire and loaded is not None:
        _wire(loaded, lines, f"*{name}*")
    else:
        streams.note(f"to rehearse with it, add to the project file:\n{lines.rstrip()}")
    data = {"image": image, "python": str(made.python), "fresh": made.fresh, "differs": list(made.differs)}
    result(format_, {**data, "lines": lines}, str(made.python))


def _project(file: Path | None, *, needed: bool) -> Loaded | None:
    try:
        return config.load(file)
    except UsageError:
        if needed or file is not None:
            raise
        return None


def _wire(loaded: Loaded, lines: str, pattern: str) -> None:
    """Add the lines at the end of a project file that has no `local:`.

    Raises:
        UsageError: It has one, which a person must edit.
    """
    if loaded.project.local.interpreters == AUTO or pattern in loaded.project.local.interpreters:
        streams.note(f"{loaded.file} already names an interpreter for {pattern}")
        return
    # A second key `local` at the end would be an error of YAML, and merging into one would reflow the person's text.
    if ("local",) in loaded.origins.lines:
        raise UsageError(
            f"{loaded.file} already has the key `local:`; add to it:\n{lines.partition(chr(10))[2].rstrip()}"
        )
    with locked(loaded.file.parent):
        write_text(loaded.file, f"{loaded.file.read_text(encoding='utf-8').rstrip()}\n\n{lines}")
    streams.note(f"wrote {loaded.file}")
