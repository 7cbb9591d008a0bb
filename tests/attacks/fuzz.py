"""`python -m tests.attacks.fuzz PARSER [OPTIONS OF LIBFUZZER]`: bytes that atheris finds by coverage, for one parser of strangers' files.

atheris is not among the packages of this checkout: `pip install atheris` first. Without PARSER, it prints the parsers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["vertexrig", "localvertex", "yaml"]):
    from localvertex.filters import parse
    from localvertex.http import ApiError, parse_json
    from localvertex.jobs.listing import LANGUAGE
    from vertexrig import yamltext
    from vertexrig.errors import VertexrigError
    from vertexrig.package import dockerfile, lock_files, pyproject, requirements, setup_script
    from vertexrig.trainer_source import reader

FOLDER = Path(tempfile.mkdtemp())


def text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def placed(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A parser of a file in a folder."""

    def parsed(data: bytes) -> object:
        (FOLDER / name).write_bytes(data)
        return read(FOLDER)

    return parsed


PARSERS: dict[str, Callable[[bytes], object]] = {
    "yaml": lambda data: yamltext.read(text(data)),
    "dockerfile": lambda data: dockerfile.parse(text(data)),
    "setup.py": setup_script.read_setup,
    "requirements": lambda data: requirements.rewrite("requirements.txt", data, (2, 17), requirements.Notes()),
    "pyproject.toml": placed("pyproject.toml", pyproject.read),
    "uv.lock": placed("uv.lock", lock_files.locked),
    "python": placed("task.py", lambda folder: reader.read(folder / "task.py")),
    "notebook": placed("train.ipynb", lambda folder: reader.read(folder / "train.ipynb")),
    "archive": placed("t.tar.gz", lambda folder: reader.read(folder / "t.tar.gz")),
    "filter": lambda data: parse(text(data), LANGUAGE),
    "json": parse_json,
}


def main() -> None:
    if sys.argv[1:2] == [] or sys.argv[1] not in PARSERS:
        sys.exit("\n".join(PARSERS))
    parser = PARSERS[sys.argv.pop(1)]

    def one(data: bytes) -> None:
        with suppress(VertexrigError, ApiError, yamltext.YamlError):
            parser(data)

    atheris.Setup([*sys.argv, "-timeout=10", "-rss_limit_mb=1024", "-max_len=4096"], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
