"""Images without a container engine: what a Dockerfile of gcloud's autopackaging makes, as a folder that runs in a stand-in.

gcloud writes such a Dockerfile itself and hands it to `docker build` on stdin: FROM, WORKDIR, ENV, COPY, RUN with pip, ENTRYPOINT.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from localvertex.runner import engine
from vertexrig.errors import UsageError
from vertexrig.files import write_text

_RECORD, _FILES = "image.json", "files"
# What gcloud has run that needs no stand-in: a folder for every user, and Vertex's own hooks, which are in its images alone.
_NEEDLESS = re.compile(r"mkdir -m 777 -p \S+ \S+|rm -rf /var/sitecustomize")


@dataclass(frozen=True)
class ImageStandIn:
    """What is known of an image.

    Args:
        name: The image with its tag.
        base: The image that it is built from.
        folder: Its working directory on this machine.
        entrypoint: What it runs.
        pip: Arguments of each `pip install`, whose paths are below `folder`.
        env: Its variables.
    """

    name: str
    base: str
    folder: str
    entrypoint: tuple[str, ...]
    pip: tuple[tuple[str, ...], ...]
    env: dict[str, str]


def _place(root: Path, name: str) -> Path:
    return root / "images" / hashlib.sha256(tagged(name).encode()).hexdigest()[:20]


def tagged(name: str) -> str:
    """Return an image's name with its tag."""
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def find(root: Path, name: str) -> ImageStandIn | None:
    """Return the image of a state folder, None if it was not built."""
    return _read(_place(root, name) / _RECORD)


def every(root: Path) -> list[ImageStandIn]:
    """Return all images of a state folder, by name."""
    found = [_read(file) for file in (root / "images").glob(f"*/{_RECORD}")]
    return sorted(filter(None, found), key=lambda one: one.name)


def digests(root: Path, choice: str = "auto") -> dict[str, str]:
    """Return the digests of the images on this machine by name: the engine's, and those of a state folder unless an engine is named."""
    choice = engine.wanted(choice)
    found, own = engine.find(choice), dict[str, str]()
    if found is None or choice == "auto":
        own = {one.name: f"sha256:{hashlib.sha256(one.folder.encode()).hexdigest()}" for one in every(root)}
    if found is None:
        return own
    lines = found.call("images", "--no-trunc", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}").stdout.splitlines()
    pairs = (line.split() for line in lines if "<none>" not in line)
    return {**own, **{name: f"sha256:{digest.removeprefix('sha256:')}" for name, digest in pairs}}


def _read(file: Path) -> ImageStandIn | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        pip = tuple(map(tuple, data["pip"]))
        return ImageStandIn(**{**data, "entrypoint": tuple(data["entrypoint"]), "pip": pip})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def tag(root: Path, source: str, name: str) -> None:
    """Give an image another name; UsageError if there is none."""
    found = find(root, source)
    if found is None:
        raise UsageError(f"No such image: {source}")
    _store(root, {**asdict(found), "name": tagged(name)})


def _store(root: Path, data: dict[str, object]) -> None:
    place = _place(root, str(data["name"]))
    place.mkdir(parents=True, exist_ok=True)
    write_text(place / _RECORD, json.dumps(data))


def build(root: Path, name: str, dockerfile: str, context: Path) -> ImageStandIn:
    """Make the stand-in of an image, in place of an earlier one, from the text of its Dockerfile and the folder of what that copies.

    Raises:
        UsageError: An instruction needs an engine, or a file is missing.
    """
    # By content: an environment made for the files of an earlier build must not serve these.
    folder = _place(root, name) / _FILES
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    base, entrypoint, pip, env = "", tuple[str, ...](), list[tuple[str, ...]](), dict[str, str]()
    for line in _instructions(dockerfile):
        word, _, rest = line.partition(" ")
        match word.upper():
            case "FROM" if not base and len(rest.split()) == 1:
                base = rest
            case "WORKDIR":
                pass  # the folder is that of all its files
            case "ENV" if "=" in rest:
                variable, _, value = rest.partition("=")
                env |= {} if variable == "HOME" else {variable: " ".join(shlex.split(value))}
            case "COPY" if rest.startswith("["):
                _copy(context, folder, json.loads(rest), root)
            case "RUN" if re.match(r"pip3? install ", rest):
                pip.append(tuple(_located(folder, shlex.split(rest)[2:])))
            case "RUN" if _NEEDLESS.fullmatch(rest):
                pass
            case "ENTRYPOINT" if rest.startswith("["):
                entrypoint = tuple(json.loads(rest))
            case _:
                raise UsageError(
                    f"this needs a container engine, and none answers: {line[:200]}. Without one, only the Dockerfiles that gcloud "
                    "writes for local-package-path are built. Start docker or podman"
                )
    _store(
        root,
        {"name": tagged(name), "base": base, "folder": str(folder), "entrypoint": entrypoint, "pip": pip, "env": env},
    )
    found = find(root, name)
    assert found is not None
    return found


def base(dockerfile: str) -> str:
    """Return the image that a Dockerfile begins with, "" for one of several stages, or of none."""
    found = [line.split()[1:] for line in _instructions(dockerfile) if line.split()[0].upper() == "FROM"]
    return found[0][0] if len(found) == 1 == len(found[0]) and found[0] != ["scratch"] else ""


def _instructions(text: str) -> Iterator[str]:
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line.strip()


def _copy(context: Path, folder: Path, words: list[str], root: Path) -> None:
    source, target = (Path(context, words[0]).resolve(), Path(folder, words[1]).resolve())
    if not source.is_relative_to(context.resolve()) or not target.is_relative_to(folder.resolve()):
        raise UsageError(f"COPY {json.dumps(words)} points outside the build context")
    if source.is_dir():
        # The state folder of this machine is often in the context.
        state = root.resolve()

        def left_out(path: str, names: list[str]) -> list[str]:
            return [name for name in names if name in (".git", "__pycache__") or Path(path, name).resolve() == state]

        shutil.copytree(source, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    else:
        raise UsageError(f"COPY failed: {words[0]} is not in {context}")


def _located(folder: Path, words: list[str]) -> Iterator[str]:
    """Yield the arguments of pip with paths of this machine in place of those in the image."""
    for word in words:
        if word != "--no-cache-dir":
            yield str(folder / word) if (folder / word).exists() else word
