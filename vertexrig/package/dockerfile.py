"""A Dockerfile as far as it says what the container runs: the last stage's entry point, folders and copied files.

Nothing is built. What a base image brings (its own ENTRYPOINT, files) is not known, and what is taken from another
stage is not followed.
"""

from __future__ import annotations

import copy
import json
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vertexrig.files import is_inside

_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
# $NAME, ${NAME}, ${NAME:-default}; a backslash before the dollar keeps it as text
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)(?::?[-+]([^}]*))?\}|(\w+))")
_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
_NAME = re.compile(r"(.*[._-])?(docker|container)file([._-].*)?", re.IGNORECASE)
# Images of the same project that do not train: of its API, its page, its tests.
_OTHER_IMAGE = re.compile(r"api|serv|predict|infer|front|eval|test", re.IGNORECASE)
_MOST_FOLDERS = 500
"""Folders of one level that are searched for Dockerfiles: `--trainer` may name a folder of data, too."""


@dataclass(frozen=True)
class Copy:
    """One COPY or ADD from the build context: sources as written, and the absolute place in the image."""

    sources: tuple[str, ...]
    target: str


@dataclass
class DockerImage:
    """What the last stage of a Dockerfile makes.

    Args:
        base: The image it starts from, variables filled in; of a stage in the file, that stage's own.
        workdir: Its WORKDIR, absolute.
        entrypoint: The ENTRYPOINT's words; empty if there is none in the file.
        entrypoint_line: Its line, 0 if there is none.
        shell: Whether it is written in shell form, which passes no arguments on.
        cmd: The CMD's words.
        cmd_line: Its line, 0 if there is none.
        environment: Variables of ENV.
        copies: What is copied from the build context, in order.
        installed: Folders in the image that pip installs as a project.
        moved: Where RUN moved or copied a file to, and from where.
    """

    base: str = ""
    workdir: str = "/"
    entrypoint: tuple[str, ...] = ()
    entrypoint_line: int = 0
    shell: bool = False
    cmd: tuple[str, ...] = ()
    cmd_line: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)


def find(folder: Path) -> Path | None:
    """Return the Dockerfile of a folder: `Dockerfile`, else the only one (or the one for training) under a name like it."""
    # the name that `docker build` takes by itself goes before any other
    for place in (folder, folder / "docker"):
        if (place / "Dockerfile").is_file():
            return place / "Dockerfile"
        if not place.is_dir():
            continue
        names = sorted(path for path in place.iterdir() if _is_dockerfile(path))
        training = [path for path in names if "train" in path.name.casefold()]
        if len(names) == 1 or len(training) == 1:
            return (names if len(names) == 1 else training)[0]
    return None


def _is_dockerfile(path: Path) -> bool:
    return _NAME.fullmatch(path.name) is not None and path.suffix != ".dockerignore" and path.is_file()


def below(folder: Path) -> list[Path]:
    """Return the Dockerfiles of a folder and of the folders one and two levels below it.

    Those whose path has the word train go before all others; without one, those of an API, a page or tests are left out.
    """
    found: list[Path] = []
    places = [folder]
    for _ in range(3):
        entries = [entry for place in places[:_MOST_FOLDERS] for entry in _entries(place)]
        found += [entry for entry in entries if _is_dockerfile(entry) and is_inside(entry, folder)]
        places = [entry for entry in entries if entry.is_dir() and not entry.is_symlink()]
    return _for_training(found, folder)


def beside(folder: Path) -> list[Path]:
    """Return the Dockerfiles of the folder above, and of its folders docker and dockerfiles; chosen as those of `below`.

    Nothing that is not in the checkout of the folder is looked at.
    """
    above = folder.resolve().parent
    places = [place for place in (above, above / "docker", above / "dockerfiles") if is_inside(place, folder)]
    found = [entry for place in places for entry in _entries(place) if _is_dockerfile(entry)]
    return _for_training([entry for entry in found if is_inside(entry, folder)], above)


def _for_training(found: list[Path], folder: Path) -> list[Path]:
    names = {path: path.relative_to(folder).as_posix() for path in found}
    training = [path for path, name in names.items() if "train" in name.casefold()]
    return training or [path for path, name in names.items() if not _OTHER_IMAGE.search(name)]


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, without hidden files and installed packages; nothing if it may not be listed."""
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] != "." and path.name != "node_modules")
    except OSError:
        return []


def parse(text: str) -> DockerImage:
    """Read a Dockerfile's text; what is not understood is passed over."""
    stages: dict[str, DockerImage] = {}
    arguments: dict[str, str] = {}
    image = DockerImage()
    count = 0
    for line, name, rest in _instructions(text):
        if name == "FROM":
            words = [word for word in _filled(rest, arguments).split() if not word.startswith("--")]
            base = words[0] if words else ""
            # a stage that begins with another one has all of its settings and files
            image = copy.deepcopy(stages.get(base.casefold())) or DockerImage(base=base)
            if len(words) == 3 and words[1].upper() == "AS":
                stages[words[2].casefold()] = image
            stages[str(count)] = image  # COPY --from=0 counts stages, named ones too
            count += 1
        elif name == "ARG":
            for word in _words(rest):
                key, equals, value = word.partition("=")
                arguments[key] = _filled(value, arguments) if equals else arguments.get(key, "")
        else:
            _apply(image, line, name, rest, arguments, stages)
    return image


def _apply(
    image: DockerImage, line: int, name: str, rest: str, arguments: dict[str, str], stages: dict[str, DockerImage]
) -> None:
    # ENV goes before an ARG of the same name, as in a build
    known = {**arguments, **image.environment}
    if name == "WORKDIR":
        image.workdir = posixpath.normpath(posixpath.join(image.workdir, _filled(rest.strip().strip("\"'"), known)))
    elif name == "ENV":
        image.environment |= _pairs(rest, known)
    elif name in {"COPY", "ADD"}:
        _copy(image, rest, known, stages)
    elif name == "ENTRYPOINT":
        words = _exec_form(rest)
        image.shell = words is None
        image.entrypoint, image.entrypoint_line = tuple(words if words is not None else _words(rest)), line
        image.cmd, image.cmd_line = (), 0  # an ENTRYPOINT resets the CMD of the base
    elif name == "CMD":
        words = _exec_form(rest)
        image.cmd, image.cmd_line = tuple(words if words is not None else ("/bin/sh", "-c", rest.strip())), line
    elif name == "RUN":
        # `pip install .`, `-e ./src`, `.[gpu]`: a folder of the image becomes importable from anywhere
        for target in re.findall(r"pip3?\s+install\s[^&|;]*?(?:-e\s+|\s)(\.(?:/[\w./-]*)?)(?=\s|\[|$|[&;])", rest):
            image.installed.append(posixpath.normpath(posixpath.join(image.workdir, target)))
        for source, target in re.findall(r"\b(?:mv|cp)\s+(?:-\w+\s+)*([\w./-]+)\s+([\w./-]+)(?=\s*(?:$|[&;|]))", rest):
            there = posixpath.normpath(posixpath.join(image.workdir, target))
            image.moved[there] = posixpath.normpath(posixpath.join(image.workdir, source))


def _copy(image: DockerImage, rest: str, known: dict[str, str], stages: dict[str, DockerImage]) -> None:
    # the file's content is in the Dockerfile itself: nothing of the context is copied
    if "<<" in rest:
        return
    flags = re.match(r"(\s*--\S+)*", rest)
    plain = rest[flags.end() if flags else 0 :]
    # the JSON form allows blanks in names
    words = _exec_form(plain)
    words = [_filled(word, known) for word in (words if words is not None else _words(plain))]
    if len(words) < 2 or any(re.match(r"(https?|git)[:@]", word) for word in words[:-1]):
        return
    named = re.search(r"--from=(\S+)", flags[0]) if flags else None
    if named is not None:
        if stage := stages.get(named[1].casefold()):  # else it is another image, whose files are not known
            _from_stage(image, stage, words)
        return
    target = posixpath.normpath(posixpath.join(image.workdir, words[-1]))
    target += "/" if words[-1].endswith("/") or words[-1] in {".", "./"} or len(words) > 2 else ""
    image.copies.append(Copy(tuple(word.lstrip("/") or "." for word in words[:-1]), target))


def _from_stage(image: DockerImage, stage: DockerImage, words: list[str]) -> None:
    """Return what an earlier stage had from the build context, at the place where `COPY --from` puts it."""
    target = posixpath.normpath(posixpath.join(image.workdir, words[-1]))
    for word in words[:-1]:
        source = posixpath.normpath(posixpath.join("/", word))
        for own in stage.copies:
            there = own.target.rstrip("/")
            if f"{there}/".startswith(f"{source.rstrip('/')}/"):
                end = "/" if own.target.endswith("/") else ""
                image.copies.append(Copy(own.sources, f"{target.rstrip('/')}{there[len(source.rstrip('/')) :]}{end}"))
            elif source.startswith(f"{there}/"):
                rest = source[len(there) + 1 :]
                image.copies.append(Copy(tuple(posixpath.join(one, rest) for one in own.sources), target))


def _instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, name in capitals and the rest of each instruction, continued lines joined, comments left out."""
    lines = text.replace("\r\n", "\n").splitlines()
    # the directive that Dockerfiles for Windows begin with
    escape = "`" if re.match(r"\s*#\s*escape\s*=\s*`", text) else "\\"
    index = 0
    while index < len(lines):
        start = index
        parts: list[str] = []
        while index < len(lines):
            line = lines[index]
            index += 1
            # Docker drops comments and empty lines inside of a continued instruction, too
            if line.lstrip().startswith("#") or (parts and not line.strip()):
                continue
            more = line.rstrip().endswith(escape)
            parts.append(line.rstrip()[:-1] if more else line)
            if not more:
                break
        match = _INSTRUCTION.fullmatch(" ".join(parts))
        if match is None:
            continue
        name, rest = match[1].upper(), match[2]
        heredoc = _HEREDOC.search(rest) if name in {"RUN", "COPY", "ADD"} else None
        # its body looks like instructions and is none
        if heredoc is not None:
            while index < len(lines) and lines[index].strip() != heredoc[1]:
                index += 1
            index += 1
        yield start + 1, name, rest.strip()


def _exec_form(rest: str) -> list[str] | None:
    """Return the words of the JSON form; None if it is written for a shell."""
    try:
        found = json.loads(rest.strip())
    except (ValueError, RecursionError):
        return None
    return [str(word) for word in found] if isinstance(found, list) else None


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _pairs(rest: str, known: dict[str, str]) -> dict[str, str]:
    words = _words(rest)
    if words and "=" not in words[0]:  # the old form: ENV NAME value
        return {words[0]: _filled(" ".join(words[1:]), known)}
    return {key: _filled(value, known) for key, equals, value in (word.partition("=") for word in words) if equals}


def _filled(text: str, known: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: known.get(match[1] or match[3], match[2] or ""), text)
