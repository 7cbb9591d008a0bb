"""Container engines: docker, podman and nerdctl, through the command line that they share.

An engine is found by asking its program, and so is an image. Every container that runs part of a job has a label with the state folder
that it belongs to, by which a later server or rehearsal removes what a killed one has left.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from localvertex.state import HOST, lives
from vertexrig.errors import UsageError

PROGRAMS = ("docker", "podman", "nerdctl")
CHOICES = ("auto", *PROGRAMS, "none")
VARIABLE = "VERTEXRIG_ENGINE"
"""Variable with the engine to use where neither an option nor the project file names one."""
ROOT_LABEL, OWNER_LABEL, JOB_LABEL = "vertexrig.root", "vertexrig.process", "vertexrig.job"
USED = "containers"
"""File of a state folder in which a container was started: a server or rehearsal that starts looks for ones that are left."""
_AGAIN_S = 30.0
"""Seconds after which an engine that answered, or gave no answer in time, is asked again; one that is not there is asked each time."""
_ASK_S = 10.0
"""Seconds that an engine has to answer where it is one of several."""
_NAMED_S = 120.0
"""The same where the user named it, or where it is asked for an image: podman is silent while it stores one."""
_SILENT = 124
"""Exit code in place of that of a program that gave no answer in time, as `timeout` has it."""
# Names that the program of an engine, or the libraries below it, read from their own environment.
_OF_ENGINE = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|TZ|LD_.*|XDG_.*|DBUS_.*|SSH_.*|GO[A-Z]+|SSL_CERT_.*|.*_proxy|"
    r"(DOCKER|CONTAINERS?|CONTAINERD|PODMAN|NERDCTL|BUILDAH|BUILDKIT|REGISTRY|STORAGE|NOTIFY|LISTEN)_.*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Image:
    """An image on this machine.

    Args:
        name: As jobs name it.
        id: Of its content.
        user: Whom its programs run as, "" for root.
        config: What it says of its programs: `Entrypoint`, `Cmd`, `Env`, `WorkingDir`.
    """

    name: str
    id: str
    user: str
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Engine:
    """A container engine that has answered.

    Args:
        name: docker, podman or nerdctl.
        program: Path of its program.
        version: Its version.
        rootless: Whether root in a container is the engine's own user outside.
    """

    name: str
    program: str
    version: str
    rootless: bool = False

    def call(self, *words: str, timeout: float | None = 60) -> subprocess.CompletedProcess[str]:
        """Run its program to the end, with the user's environment."""
        argv, text = [self.program, *words], {"text": True, "errors": "replace"}
        try:
            return subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout, **text)  # type: ignore[call-overload, no-any-return]
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(argv, _SILENT, "", f"{self.name} gave no answer within {timeout:g} s")
        except OSError as error:  # it was removed meanwhile
            return subprocess.CompletedProcess(argv, 127, "", str(error))

    def image(self, name: str) -> Image | None:
        """Return an image of this machine, None if it is not here.

        Raises:
            UsageError: The engine does not answer.
        """
        asked = self.call("image", "inspect", name, timeout=_NAMED_S)
        if asked.returncode == _SILENT:
            raise UsageError(f"it is not known whether the image {name} is on this machine: {asked.stderr}")
        with suppress(ValueError, IndexError, KeyError, TypeError, AttributeError):
            found = json.loads(asked.stdout)[0] if asked.returncode == 0 else None
            if found is not None:
                config = found.get("Config") or {}
                return Image(name, str(found["Id"]), str(config.get("User") or found.get("User") or ""), config)
        return None

    def run(
        self,
        image: str,
        words: Sequence[str] = (),
        *,
        name: str,
        labels: Mapping[str, str],
        entrypoint: str = "",
        options: Sequence[str] = (),
        mounts: Mapping[Path, str] = {},
        read_only: Iterable[Path] = (),
        hosts: Iterable[str] = (),
    ) -> list[str]:
        """Return the command that runs a container to its end, on the host's network, with its output.

        Args:
            image: The image.
            words: What replaces the image's CMD.
            name: Of the container.
            labels: Of the container.
            entrypoint: What replaces the image's ENTRYPOINT, and with it CMD.
            options: Further options.
            mounts: Folders of this machine, and where the container has them.
            read_only: Files and folders that the container has where this machine has them.
            hosts: Names that lead to this machine.
        """
        # The network of the host, because replicas and servers find each other at its loopback ports. The stop timeout is for
        # `rm --force` of some engines, which would wait for it.
        argv = [self.program, "run", "--name", name, "--network", "host", "--stop-timeout", "0", "--shm-size", "8g"]
        argv += ["--pull", "never"]
        if self.name != "nerdctl":
            argv += ["--log-driver", "none", "--security-opt", "label=disable"]
        argv += [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        argv += [word for folder, place in mounts.items() for word in ("--volume", f"{folder}:{place}")]
        argv += [word for path in read_only for word in ("--volume", f"{path}:{path}:ro")]
        argv += [word for host in hosts for word in ("--add-host", f"{host}:{HOST}")]
        argv += [*options, *(["--entrypoint", entrypoint] if entrypoint else [])]
        return [*argv, image, *words]

    def gpus(self) -> list[str]:
        """Return the options that give a container the machine's GPUs."""
        return ["--device", "nvidia.com/gpu=all"] if self.name == "podman" else ["--gpus", "all"]

    def removal(self, *names: str) -> list[str]:
        """Return the command that kills containers and removes them with their volumes."""
        # podman waits ten seconds for a program that does not heed SIGTERM.
        now = ["--time", "0"] if self.name == "podman" else []
        return [self.program, "rm", "--force", "--volumes", *now, *names]

    def state(self, name: str) -> list[str]:
        """Return the command that prints a container's status, and whether it ran out of memory."""
        return [self.program, "container", "inspect", "--format", "{{.State.Status}} {{.State.OOMKilled}}", name]

    def clean(self, root: Path) -> int:
        """Remove the containers of a state folder whose process has ended; how many that were."""
        found = self.call("ps", "--all", "--quiet", "--filter", f"label={ROOT_LABEL}={root}").stdout.split()
        form = f'{{{{.Id}}}} {{{{index .Config.Labels "{OWNER_LABEL}"}}}}'
        asked = self.call("container", "inspect", "--format", form, *found) if found else None
        rows = [line.split() for line in asked.stdout.splitlines()] if asked is not None else []
        names = [name for name, *owner in rows if not (owner and owner[0].isdecimal() and lives(int(owner[0])))]
        if names:
            self.call(*self.removal(*names)[1:])
        return len(names)

    def user_id(self, image: Image) -> int | None:
        """Return the id of the user that an image's programs run as, None if that cannot be found out."""
        user = image.user.partition(":")[0]
        if user in ("", "root"):
            return 0
        return int(user) if user.isdecimal() else _user_id(self, image)

    def reclaim(self, image: Image, folders: Sequence[Path], label: Mapping[str, str]) -> str:
        """Give what containers wrote as another user to this user; why that failed, "" if it did not."""
        own, group = os.geteuid(), os.getegid()
        foreign = [path for folder in folders for path in _below(folder) if path.lstat().st_uid != own]
        if not foreign:
            return ""
        if own == 0:
            for path in foreign:
                with suppress(OSError):  # it was removed meanwhile
                    os.chown(path, own, group, follow_symlinks=False)
            return ""
        to = "0:0" if self.rootless else f"{own}:{group}"
        name = f"vertexrig-chown-{os.getpid()}-{time.monotonic_ns()}"
        mounts = {folder: str(folder) for folder in folders}
        argv = self.run(
            image.name, ["-R", to, *mounts.values()], name=name, labels=label, entrypoint="chown",
            options=["--rm", "--user", "0"], mounts=mounts,
        )  # fmt: skip
        done = self.call(*argv[1:])
        return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["chown failed"])[-1]


@lru_cache(maxsize=256)
def _user_id(engine: Engine, image: Image) -> int | None:
    name = f"vertexrig-id-{os.getpid()}-{time.monotonic_ns()}"
    argv = engine.run(image.name, ["-u"], name=name, labels={}, entrypoint="id", options=["--rm"])
    asked = engine.call(*argv[1:]).stdout.strip()
    return int(asked) if asked.isdecimal() else None


def _below(folder: Path) -> Iterator[Path]:
    yield folder
    for parent, folders, files in os.walk(folder):
        yield from (Path(parent, name) for name in (*folders, *files))


def open_to_all(folders: Iterable[Path]) -> None:
    """Let every user write below folders, for an image whose programs run as another user; the state folder above is private."""
    for path in (path for folder in folders for path in _below(folder)):
        with suppress(OSError):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))


def environment(variables: Mapping[str, str], file: Path) -> tuple[list[str], dict[str, str]]:
    """Return the options that give a container variables, and those of them that the engine's program itself is started with.

    Every user of the machine sees a command line, so values are not there, but in the program's environment. A variable that the program
    would take for its own is in a private file. Such a file holds no value of several lines, so only those are on the command line.
    """
    options: list[str] = []
    passed, lines = dict[str, str](), list[str]()
    for name, value in sorted(variables.items()):
        if not _OF_ENGINE.fullmatch(name):
            options += ["--env", name]
            passed[name] = value
        elif "\n" in value or "\r" in value:
            options += ["--env", f"{name}={value}"]
        else:
            lines.append(f"{name}={value}\n")
    if lines:
        file.touch(mode=0o600)
        file.write_text("".join(lines), encoding="utf-8")
        options += ["--env-file", str(file)]
    return options, passed


_known: dict[str, tuple[float, Engine | None, str]] = {}
"""By program: until when the answer holds, the engine, and why there is none."""


def wanted(given: str = "auto") -> str:
    """Return which engine to use: what is given, or what the variable names where that is `auto`."""
    variable = os.environ.get(VARIABLE, "") if given == "auto" else ""
    return variable if variable in CHOICES else given


def look(given: str = "auto") -> tuple[Engine | None, str]:
    """Return the engine to use, and why there is none.

    Args:
        given: One of `CHOICES`; `auto` is the first that answers.
    """
    named = wanted(given)
    if named == "none":
        return None, "engine is none"
    reasons = []
    for name in PROGRAMS if named == "auto" else (named,):
        engine, why = _asked(name, _ASK_S if named == "auto" else _NAMED_S)
        if engine is not None:
            return engine, ""
        reasons.append(f"{name}: {why}")
    return None, "; ".join(reasons)


def described(given: str = "auto") -> str:
    """Return a sentence on what runs images on this machine, and why."""
    named, (engine, why) = wanted(given), look(given)
    if engine is None:
        return f"stand-ins run in place of images: {'the engine is set to none' if named == 'none' else f'no engine answers ({why})'}"
    others = "; a stand-in runs in place of an image that it does not have" if named == "auto" else ""
    return f"images are run by {engine.name} {engine.version}{others}"


def find(given: str = "auto") -> Engine | None:
    """Return the engine to use, None if there is none; see `look`."""
    return look(given)[0]


def _asked(name: str, patience_s: float) -> tuple[Engine | None, str]:
    program = shutil.which(name)
    if program is None:
        return None, "not installed"
    known = _known.get(program)
    if known is not None:
        until, engine, why = known
        # No answer within _ASK_S says nothing to a caller who waits for _NAMED_S.
        if time.monotonic() < until and (engine is not None or patience_s <= _ASK_S):
            return engine, why
    engine, why = _answer(Engine(name, program, ""), patience_s)
    # One that hangs costs ten seconds; one that says at once that it is not there may be started by now.
    waits = 0.0 if engine is None and "no answer" not in why else _AGAIN_S
    _known[program] = (time.monotonic() + waits, engine, why)
    return engine, why


def _answer(engine: Engine, patience_s: float) -> tuple[Engine | None, str]:
    """Ask an engine for its version; docker's program may be podman's under another name."""
    asked = engine.call("info", "--format", "{{json .}}", timeout=patience_s)
    said = asked.stderr.strip().splitlines()
    try:
        data = json.loads(asked.stdout)
        version = data.get("ServerVersion") or data.get("version", {}).get("Version")
        host = data.get("host") or {}
        rootless = bool((host.get("security") or {}).get("rootless")) or any(
            "rootless" in str(one) for one in data.get("SecurityOptions") or ()
        )
    except (ValueError, AttributeError):
        version = None
    if asked.returncode or not version:
        return None, said[-1] if said else "no engine answers it"
    name = "podman" if "version" in data and engine.name == "docker" else engine.name
    return Engine(name, engine.program, str(version), rootless), ""
