"""A replica as a container: the image that a pool names, its packages, and what its programs find in it."""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from localvertex.runner import engine, environment, packages
from localvertex.runner.engine import JOB_LABEL, OWNER_LABEL, ROOT_LABEL, Engine, Image
from localvertex.runner.options import RunOptions
from vertexrig import guard
from vertexrig.catalog import load
from vertexrig.errors import JobFailedError, PackageError, UsageError
from vertexrig.spec.document import Pool

_PACKAGES = "/vertexrig/packages"
"""Where a container has what pip installed for it."""
# Of the user's settings of pip those that no file belongs to.
_PIP = (
    "PIP_DEFAULT_TIMEOUT", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_NO_INDEX", "PIP_PROXY", "PIP_RETRIES",
    "PIP_TRUSTED_HOST",
)  # fmt: skip
# The image belongs to the job, so that its system's packages need no protection from pip (PEP 668).
_OWN_PIP = {**packages.QUIET_PIP, "PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_NO_CACHE_DIR": "1"}
_SHARED = ("PYTHONPATH", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS")
"""Variables of several entries: those of the image stay."""
_KEY = "ca.key"


@dataclass(frozen=True)
class Container:
    """What the replicas of a pool run in.

    Args:
        engine: What runs it.
        image: What it is made of.
        options: The job's.
        root: The local Vertex's folder.
        user: Id of the user of its programs, None if that is not known.
        installed: Folder of what pip has installed for it.
    """

    engine: Engine
    image: Image
    options: RunOptions
    root: Path
    user: int | None = 0
    installed: Path | None = None

    @property
    def is_another_user(self) -> bool:
        """Whether its programs may write only where every user may."""
        return self.user not in (0, os.geteuid())

    def variables(self) -> dict[str, str]:
        """Return the variables that the image sets."""
        pairs = (str(one).partition("=") for one in self.image.config.get("Env") or ())
        return {name: value for name, _, value in pairs}

    def with_packages(self, files: Sequence[Path], installer: packages.Installer) -> Container:
        """Return this container with packages installed by its own pip, as the executor of a prebuilt image does; once for each image.

        Raises:
            PackageError: A package does not install; the message names it.
        """
        digest = hashlib.sha256(self.image.id.encode())
        for file in files:
            digest.update(f"{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
        folder = installer.cache / f"image-{digest.hexdigest()[:20]}"

        def pip(place: str, *words: str) -> tuple[int, packages.PipLines]:
            name = self._name("pip")
            mounts = {folder: _PACKAGES, **{file: f"/vertexrig/{file.name}" for file in files}}
            settings = {name: value for name in _PIP if (value := os.environ.get(name)) and "file:" not in value}
            variables = {**settings, **_OWN_PIP, **self._of_front(), "PYTHONUSERBASE": _PACKAGES}
            given, own = engine.environment(variables, folder.with_suffix(".env"))
            argv = self.engine.run(
                self.image.name, ["-m", "pip", "install", "--user", *words, place], entrypoint="python3", name=name,
                labels=self._labels(), mounts=mounts, read_only=self._read_only(), options=[*self._user(), *given],
            )  # fmt: skip
            try:
                return installer.execute(argv, {**os.environ, **own}, archive=Path(place))
            finally:
                self.engine.call(*self.engine.removal(name)[1:])

        def build() -> Mapping[str, packages.InstallationLog]:
            folder.mkdir()
            log: packages.InstallationLog = []
            if self.is_another_user:
                engine.open_to_all([folder])
            inside = [f"/vertexrig/{file.name}" for file in files]
            try:
                for file, place in zip(files, inside, strict=True):
                    installer.begin_step(file, False)
                    code, lines = pip(place, "--upgrade", "--force-reinstall", "--no-deps")
                    log.append((file.name, False, lines))
                    if code != 0:
                        raise PackageError(
                            f"package {file.name} cannot be installed in {self.image.name}; pip's output says why"
                        )
                for file, place in zip(files, inside, strict=True):
                    installer.begin_step(file, True)
                    code, lines = pip(place)
                    log.append((file.name, True, lines))
                    if code != 0:
                        raise PackageError(f"the requirements of {file.name} cannot be installed in {self.image.name}")
            finally:
                self.engine.reclaim(self.image, [folder], self._labels())
            return {"steps": log}

        begun(self.root)
        with answered(self):
            packages.once(folder, installer.give_up, build)
        return replace(self, installed=folder)

    def command(
        self,
        pool: Pool,
        entry: Sequence[str],
        args: Sequence[str],
        variables: Mapping[str, str],
        replica: str,
        host: str,
        hosts: Sequence[str],
        folder: Path,
    ) -> tuple[list[str], dict[str, str], list[str], list[str]]:
        """Return the command that runs a replica, its environment, the command that removes it, and the one that says how it ended.

        Args:
            pool: Its pool.
            entry: What replaces the image's ENTRYPOINT; with it CMD is not used.
            args: What replaces CMD.
            variables: Those of the service and of the job's spec.
            replica: Its name.
            host: The name that its machine has for it, "" for the machine's own.
            hosts: Names of all replicas.
            folder: The replica's, which the container has at the same place: a variable names its metric file.
        """
        self._open([folder, environment.bucket_folder(self.root)])
        front = self._of_front(hosts)
        image = self.variables()
        if environment.needs_startup_hook({**front, **variables}):
            front["PYTHONPATH"] = str(environment.STARTUP)
        inside = {"PYTHONUNBUFFERED": "1", **front, **variables}
        inside |= {name: f"{image[name]}{os.pathsep if name == 'PYTHONPATH' else ' '}{front[name]}"
                   for name in _SHARED if name in image and name in front and name not in variables}  # fmt: skip
        if "PYTHONPATH" in front and "PYTHONPATH" in variables:
            inside["PYTHONPATH"] = f"{variables['PYTHONPATH']}{os.pathsep}{front['PYTHONPATH']}"
        given, passed = engine.environment(inside, folder / "environment")
        # Recorded of packages: the executor runs in the root folder, as root.
        place = ["--workdir", "/"] if pool.python_package is not None and self.user == 0 else []
        place += ["--hostname", host] if host else []
        name = self._name(replica)
        mounts = {environment.bucket_folder(self.root): "/gcs", folder: str(folder)}
        mounts |= {self.installed: _PACKAGES} if self.installed else {}
        argv = self.engine.run(
            self.image.name,
            [*entry[1:], *args],
            name=name,
            labels={**self._labels(), JOB_LABEL: f"{self.options.job_id}/{replica}"},
            entrypoint=entry[0] if entry else "",
            options=[
                *given,
                *place,
                *self._user(),
                *_limits(pool, self.options),
                *(self.engine.gpus() if _has_gpus(pool) else []),
            ],
            mounts=mounts,
            read_only=self._read_only(),
            hosts=hosts,
        )
        return argv, {**os.environ, **passed}, self.engine.removal(name), self.engine.state(name)

    def tool(
        self,
        entry: str,
        words: Sequence[str],
        variables: Mapping[str, str],
        place: str,
        mounts: Mapping[Path, str],
        folder: Path,
    ) -> tuple[list[str], dict[str, str], list[str]]:
        """Return the command that runs a program of an image beside the jobs, its environment, and the command that removes it.

        Args:
            entry: What replaces the image's ENTRYPOINT, "" for the image's own.
            words: What replaces CMD.
            variables: Its own, besides those by which it reaches the local Vertex.
            place: Its working directory.
            mounts: Folders of this machine, which it may write, and where it has them.
            folder: For a file with variables.
        """
        self._open(mounts)
        given, passed = engine.environment({**self._of_front(), **variables}, folder / "environment")
        name = self._name("step")
        argv = self.engine.run(
            self.image.name, words, name=name, labels=self._labels(), entrypoint=entry, mounts=mounts,
            options=[*given, *self._user(), "--rm", "--workdir", place], read_only=self._read_only(),
        )  # fmt: skip
        return argv, {**os.environ, **passed}, self.engine.removal(name)

    def reclaim(self, folder: Path) -> str:
        """Give what all containers of a job have written to this user, by the image of this one; a sentence where that is not possible."""
        folders = [environment.bucket_folder(self.root), folder]
        why = self.engine.reclaim(self.image, folders, self._labels())
        if not why:
            return ""
        return f"files that the image wrote still belong to another user: {why}; to change that: sudo chown -R $USER {folders[0]}"

    def _name(self, what: str) -> str:
        # Another one for each start: a container that a killed server has left may still have the old name.
        return f"vertexrig-{self.options.job_id}-{what}-{secrets.token_hex(3)}"

    def _labels(self) -> dict[str, str]:
        return {ROOT_LABEL: str(self.root), OWNER_LABEL: str(os.getpid()), JOB_LABEL: self.options.job_id}

    def _of_front(self, hosts: Sequence[str] = ()) -> dict[str, str]:
        """Return the variables by which programs reach the local Vertex, with credentials that are passed on and the folder of installed packages.

        Args:
            hosts: Names of the job's replicas, which reach each other without its proxy.
        """
        found = dict(self.options.extra_env)
        if not found:  # a rehearsal has no server: nobody waits for the metadata server that is not there
            found = {"NO_GCE_CHECK": "true"}
        for name in ("NO_PROXY", "no_proxy"):
            if name in found:
                found[name] = ",".join([found[name], *hosts])
        if self.options.credentials:
            found |= environment.credentials(os.environ)
        if self.installed is not None:
            found["PYTHONUSERBASE"] = _PACKAGES
        return found

    def _read_only(self) -> list[Path]:
        """Return what the variables above name: certificates and credentials, and what Python and Node load at their start."""
        paths = [environment.STARTUP]
        paths += [self.root / "front", self.root / "boto.cfg", environment.NODE] if self.options.extra_env else []
        key = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return [path for path in (*paths, *([Path(key)] if self.options.credentials and key else [])) if path.exists()]

    def _open(self, folders: Iterable[Path]) -> None:
        """Note that a state folder has a container. Let the container's user, if that is another one, write below folders, and read the
        front's certificates and account below the private state folder, but not the authority's key.
        """
        begun(self.root)
        if self.is_another_user:
            engine.open_to_all(folders)
            for path in (self.root / "front", *(self.root / "front").rglob("*")):
                if path.name != _KEY and path.exists():
                    path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))

    def _user(self) -> list[str]:
        """Return the options by which a rootless podman makes the image's user this one."""
        one = self.engine
        mapped = one.rootless and one.name == "podman" and self.user
        return ["--userns", f"keep-id:uid={self.user},gid={self.user}"] if mapped else []


class Choice(NamedTuple):
    """Whether an image runs as itself.

    Args:
        container: Its container; None if the image does not run here.
        why: Why it does not and, if an engine answers, what to do; "" if it does, or if `local.images` names a folder for it.
        engine: The name of the container engine that answers, "" if none does or none was asked.
    """

    container: Container | None = None
    why: str = ""
    engine: str = ""


def chosen(
    image: str, options: RunOptions, root: Path, execute: packages.Execute, log: Callable[[str], None], base: str
) -> Choice:
    """Return whether an image runs as itself.

    Args:
        image: As the job names it.
        options: The job's.
        root: The local Vertex's folder.
        execute: Runs what pulls the image, its output in the job's log.
        log: Called before that.
        base: The image that gcloud has built it from, "" if no stand-in was built.

    Raises:
        JobFailedError: The user has named an engine, and it does not answer or does not have the image.
    """
    wanted = engine.wanted(options.engine)
    found, why = engine.look(wanted)
    base = base if wanted == "auto" else ""
    if found is None:
        if wanted in engine.PROGRAMS:
            raise JobFailedError(
                f"image {image!r} is to be run by {wanted}, which does not answer: {why}. Start it, or use --engine auto"
            )
        return Choice(why=f"no container engine answers ({why})" if wanted == "auto" else why)
    try:
        here = found.image(image)
        if here is None and options.pull == "missing" and not base:
            log(f"{found.name} pulls the image {image}, which is not on this machine.")
            if execute([found.program, "pull", image], os.environ)[0] == 0:
                here = found.image(image)
    except UsageError as error:
        raise JobFailedError(str(error)) from error
    if here is None:
        line = f"`{found.name} pull {image}`, or write `pull: missing` under local: in the project file"
        if wanted in engine.PROGRAMS:
            raise JobFailedError(f"image {image!r} is not on this machine. To get it: {line}")
        if base:
            line = f"`{found.name} pull {base}`, and run the command again that built it"
        return Choice(None, f"the image {image} is not on this machine; to run it: {line}", found.name)
    return Choice(Container(found, here, options, root, found.user_id(here)), engine=found.name)


def begun(root: Path) -> None:
    """Note that a state folder has had containers."""
    with suppress(OSError):
        (root / engine.USED).touch()


def clean(root: Path) -> threading.Thread | None:
    """Begin to remove the containers that a killed server or rehearsal has left; None where there never were any."""
    if not (root / engine.USED).is_file():
        return None

    def work() -> None:
        for name in engine.PROGRAMS:
            found = engine.find(name)
            if found is not None:
                found.clean(root)

    thread = threading.Thread(target=work, name="containers left", daemon=True)
    thread.start()
    return thread


@contextmanager
def answered(*containers: Container | None) -> Iterator[None]:
    """Have the servers of this process answer the users of containers while they run."""
    users = [one.user for one in containers if one is not None and one.user is not None and one.is_another_user]
    guard.ANSWERED.extend(users)
    try:
        yield
    finally:
        for user in users:
            guard.ANSWERED.remove(user)


def _has_gpus(pool: Pool) -> bool:
    return bool(pool.accelerator_type) and bool(environment.accelerators_here())


def _limits(pool: Pool, options: RunOptions) -> list[str]:
    """Return the options that give a container the memory and processors of its machine type, as far as this machine has them."""
    memory, found = options.memory_limit, list[str]()
    machine = load().machines.get(pool.machine_type) if options.limits == "machine" else None
    if machine is not None and machine.memory_gb:
        memory = memory or int(machine.memory_gb * 2**30)
    if machine is not None and machine.vcpus:
        found += ["--cpus", str(min(machine.vcpus, os.cpu_count() or 1))]
    # --memory-swap is memory and swap together: the same number leaves no swap.
    return [*found, *(["--memory", str(memory), "--memory-swap", str(memory)] if memory else [])]
