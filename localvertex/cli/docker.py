"""The `docker` that comes first on PATH under `vertexrig local run`.

It is the engine's own program, docker or podman, on this machine's own network, in all but two things: images of Google's registries
are neither pushed nor pulled, and without an engine, or where it lacks the executor image, the builds that gcloud asks for become
stand-ins. A program in place of a registry on this machine, because
clients would need that registry's certificate for names such as us-docker.pkg.dev, which engines take from system files alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from localvertex.front import control, variables
from localvertex.runner import engine, image_stand_ins, step_arguments
from vertexrig.errors import ServiceError, UsageError

_GOOGLE = re.compile(r"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/")
# Options of `docker build` with a value, which gcloud and programs write as two words.
_TAG, _FILE = ("-t", "--tag"), ("-f", "--file")
# Options of docker and podman with a value that stand before the command.
_GLOBAL = frozenset(
    "--address --cgroup-manager --config --conmon --connection --context --events-backend --hooks-dir --host --identity --imagestore "
    "--log-level --module --namespace --network-cmd-path --network-config-dir --registries-conf --root --runroot --runtime "
    "--runtime-flag --ssh --storage-driver --storage-opt --tlscacert --tlscert --tlskey --tmpdir --url --volumepath -a -c -H -l -n".split()
)
_NOT_RUN = "{0} is a stand-in, and only a job runs it. To run the image itself: `{1} pull {2}`, and build it again"
_NO_ENGINE = "no container engine answers, so this is not done: docker {}. Start docker or podman"


def main() -> int:
    """Run one command line: the state folder, the folder of this program, then docker's own words."""
    root, own, *words = sys.argv[1:]
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(one for one in path if os.path.abspath(one) != own)
    choice = _choice(Path(root))
    try:
        return _run(Path(root), step_arguments.confined(words), engine.find(choice), choice == "auto")
    except UsageError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _choice(root: Path) -> str:
    """Return which engine to use: the one of the server, so that a job finds the images that are built here."""
    try:
        here = control.status(root)
    except ServiceError:  # it stops
        here = None
    return engine.wanted(here["engine"] if here else "auto")


def _run(root: Path, words: list[str], found: engine.Engine | None, auto: bool) -> int:
    given, words = words, _command(words)
    if words[:1] == ["image"] and words[1:2] in (["push"], ["pull"], ["build"], ["tag"]):
        words = words[1:]
    verb, names = (words[0] if words else ""), [word for word in words[1:] if not word.startswith("-")]
    google = [name for name in names if _GOOGLE.match(name)]
    if verb in ("push", "pull") and google:
        return _here(root, google[-1], found, auto)
    if verb == "login" and names and _GOOGLE.match(f"{names[-1]}/"):
        sys.stdout.write("Login Succeeded\n")
        return 0
    if found is not None:
        if auto and verb == "build" and _lacks_base(root, words[1:], found):
            return 0
        built = [image_stand_ins.find(root, name) for name in names] if auto and verb == "run" else []
        for one in filter(None, built):
            if found.image(one.name) is None:
                raise UsageError(_NOT_RUN.format(one.name, found.name, one.base))
        os.execve(found.program, [found.name, *given], _environment(given))
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


def _command(words: list[str]) -> list[str]:
    """Return the command with its arguments, without the options before it; the words themselves where there is none."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GLOBAL else 1
    return words[at:] or words


def _environment(words: list[str]) -> dict[str, str]:
    """Return the environment of the engine's program: with the user's own proxies, because podman gives its proxies to RUN lines and
    containers, and they reach neither the front nor, by it, the registry of a FROM line.
    """
    # The front refuses Google's registries: a push that is not recognized above stays on this machine, too.
    pushes = not {"push", "--push"}.isdisjoint(words) and any(_GOOGLE.search(word) for word in words)
    return dict(os.environ) if pushes else variables.with_own_proxies(os.environ)


def _here(root: Path, name: str, found: engine.Engine | None, auto: bool) -> int:
    """Push or pull: the image is on this machine, or it is nowhere."""
    built = (found is None or auto) and image_stand_ins.find(root, name) is not None
    if not built and (found is None or found.image(name) is None):
        raise UsageError(
            f"{name} is not on this machine, and nothing is pulled from Google's registries: build it here first"
        )
    sys.stdout.write(f"{name}: the image stays on this machine\n")
    return 0


class _BuildWords(NamedTuple):
    """What is read of the arguments of `docker build`: the names, the Dockerfile ("-" for stdin) and the folder."""

    tags: list[str]
    file: str
    folder: str

    @classmethod
    def read(cls, words: list[str]) -> _BuildWords:
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
        return cls(tags, file, folder)

    def stand_ins(self, root: Path, text: str, why: str) -> None:
        """Build the stand-in of each name from the text of a Dockerfile."""
        for name in self.tags:
            made = image_stand_ins.build(root, name, text, Path(self.folder))
            sys.stdout.write(f"{made.name}: a stand-in, because {why}; a Python of this machine replaces {made.base}\n")


def _lacks_base(root: Path, words: list[str], found: engine.Engine) -> bool:
    """Whether stand-ins were built of a Dockerfile of gcloud's, whose executor image the engine neither has nor can pull.

    gcloud writes the Dockerfile to stdin; where the engine is to build it, stdin has it again.
    """
    build = _BuildWords.read(words)
    if build.file != "-" or not build.tags or not build.folder:
        return False
    text = sys.stdin.read()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as again:
        again.write(text)
        again.seek(0)
        os.dup2(again.fileno(), sys.stdin.fileno())
    base = image_stand_ins.base(text)
    if not base or any(found.image(name) for name in (base, *build.tags)):
        return False
    pull = [found.program, "pull", base]
    environ = variables.with_own_proxies(os.environ)
    if subprocess.run(pull, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0:
        return False
    try:
        build.stand_ins(root, text, f"{found.name} neither has nor can pull the image")
    except UsageError:  # it is not gcloud's
        return False
    return True


def _build(root: Path, words: list[str]) -> int:
    build = _BuildWords.read(words)
    if not build.tags or not build.folder:
        raise UsageError(_NO_ENGINE.format("build"))
    file = Path(build.file) if build.file else Path(build.folder, "Dockerfile")
    text = sys.stdin.read() if build.file == "-" else file.read_text(encoding="utf-8")
    build.stand_ins(root, text, "no container engine answers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
