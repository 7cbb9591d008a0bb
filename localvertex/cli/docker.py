"""The `docker` that comes first on PATH under `vertexrig local run`.

It is the engine's own program, docker or podman, on this machine's own network, in all but two things: images of Google's registries
are neither pushed nor pulled, and without an engine the builds that gcloud asks for become stand-ins. A program in place of a registry on this machine, because
clients would need that registry's certificate for names such as us-docker.pkg.dev, which engines take from system files alone.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from localvertex.front import variables
from localvertex.runner import engine, image_stand_ins, step_arguments
from vertexrig.errors import UsageError

_GOOGLE = re.compile(r"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/")
# Options of `docker build` with a value, which gcloud and programs write as two words.
_TAG, _FILE = ("-t", "--tag"), ("-f", "--file")
_NO_ENGINE = "no container engine answers, so this is not done: docker {}. Start docker or podman"


def main() -> int:
    """Run one command line: the state folder, the folder of this program, then docker's own words."""
    root, own, *words = sys.argv[1:]
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(one for one in path if os.path.abspath(one) != own)
    found = engine.find()
    try:
        return _run(Path(root), step_arguments.confined(words), found)
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run(root: Path, words: list[str], found: engine.Engine | None) -> int:
    if words[:1] == ["image"] and words[1:2] in (["push"], ["pull"], ["build"], ["tag"]):
        words = words[1:]
    verb, names = (words[0] if words else ""), [word for word in words[1:] if not word.startswith("-")]
    google = [name for name in names if _GOOGLE.match(name)]
    if verb in ("push", "pull") and google:
        return _here(root, verb, google[-1], found)
    if verb == "login" and names and _GOOGLE.match(f"{names[-1]}/"):
        sys.stdout.write("Login Succeeded\n")
        return 0
    if found is not None:
        os.execve(found.program, [found.name, *words], _environment(words))
    if verb == "build":
        return _build(root, words[1:])
    if verb == "tag" and len(names) == 2:
        image_stand_ins.tag(root, *names)
        return 0
    if verb == "images":
        for one in image_stand_ins.every(root):
            sys.stdout.write(f"{one.name}\n")
        return 0
    if verb in ("--version", "-v"):
        sys.stdout.write("Docker version 0.0.0, of vertexrig: no container engine answers\n")
        return 0
    raise UsageError(_NO_ENGINE.format(verb))


def _environment(words: list[str]) -> dict[str, str]:
    """Return the environment of the engine's program: with the user's own proxies, because podman gives its proxies to RUN lines and
    containers, and they reach neither the front nor, by it, the registry of a FROM line.
    """
    # The front refuses Google's registries: a push that is not recognized above stays on this machine, too.
    pushes = not {"push", "--push"}.isdisjoint(words) and any(_GOOGLE.search(word) for word in words)
    return dict(os.environ) if pushes else variables.with_own_proxies(os.environ)


def _here(root: Path, verb: str, name: str, found: engine.Engine | None) -> int:
    """Push or pull: the image is on this machine, or it is nowhere."""
    there = found.image(name) if found is not None else image_stand_ins.find(root, name)
    if there is None:
        raise UsageError(
            f"{name} is not on this machine, and nothing is pulled from Google's registries: build it here first"
        )
    sys.stdout.write(f"{name}: the image stays on this machine\n")
    return 0


def _build(root: Path, words: list[str]) -> int:
    tags, file, folder = list[str](), "", ""
    rest = iter(words)
    for word in rest:
        option, _, value = word.partition("=")
        if option in (*_TAG, *_FILE):
            value = value or next(rest, "")
            tags, file = ([*tags, value], file) if option in _TAG else (tags, value)
        elif word.startswith("-f") and not word.startswith("--"):
            file = word[2:]
        elif not word.startswith("-"):
            folder = word
    if not tags or not folder:
        raise UsageError(_NO_ENGINE.format("build"))
    context = Path(folder)
    text = (
        sys.stdin.read()
        if file == "-"
        else (Path(file) if file else context / "Dockerfile").read_text(encoding="utf-8")
    )
    for name in tags:
        made = image_stand_ins.build(root, name, text, context)
        sys.stdout.write(
            f"{made.name}: a stand-in, because no container engine answers; {made.base} is a Python of this machine\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
