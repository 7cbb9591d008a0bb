"""Cloud Build: builds that gcloud submits, whose steps the container engine of this machine runs.

What a build says, and the names of its log and of its default bucket, are those of
https://docs.cloud.google.com/build/docs/api/reference/rest/v1/projects.builds (2026-11) and of public logs (googlecodelabs/feedback#1156).
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import VERB, ApiError, Endpoint, Json, endpoint, in_thread, not_found, precondition, read_json
from localvertex.jobs import resources
from localvertex.jobs.listing import answer, page, page_size
from localvertex.jobs.settings import Settings
from localvertex.jobs.store import ResourceStore
from localvertex.runner import containers, engine, step_arguments
from localvertex.runner.children import marked
from localvertex.runner.engine import Engine
from localvertex.runner.supervisor import processes
from localvertex.services import build_config
from localvertex.services.collection import predicate
from localvertex.services.log_store import LogStore
from localvertex.storage import ObjectStore
from vertexrig.errors import UsageError
from vertexrig.times import duration_seconds

KIND = "builds"
_PLACE = r"/v1/projects/{project}(?:/locations/{location})?"
_OPERATION = "google.devtools.cloudbuild.v1.BuildOperationMetadata"
_DEFAULT_S = 3600.0
_AT_ONCE = 2
"""Builds that run at once; others are QUEUED."""
_FLUSH_S = 0.3
_MARK = "VERTEXRIG_STEP_OF"
"""Variable of a docker step's programs, with the folder of the build."""
_CLEANUP_S = 5.0
"""Seconds in which podman ends after a RUN process of its was killed."""
_STEP = "USER_BUILD_STEP"
_ENDED = {"SUCCESS", "FAILURE", "INTERNAL_ERROR", "TIMEOUT", "CANCELLED"}


class _End(Exception):
    """The end of a build before its last step: its status, what is wrong, and the type of a failure (`FailureInfo`)."""

    def __init__(self, status: str, message: str, kind: str = "OTHER") -> None:
        self.status, self.kind = status, kind
        super().__init__(message)


@dataclass(eq=False)
class Builds:
    """The builds of one server.

    Args:
        settings: Its folder, and which engine runs images.
        store: Where builds are kept.
        objects: The buckets: sources, and logs.
        logs: Cloud Logging.
        account: E-mail address of the account that builds run as.
        programs: Returns the folder with the `docker` of `local run`.
    """

    settings: Settings
    store: ResourceStore
    objects: ObjectStore
    logs: LogStore
    account: str
    programs: Callable[[], Path]

    def __post_init__(self) -> None:
        self._workers = ThreadPoolExecutor(_AT_ONCE, "build")
        self._running: dict[str, _Build] = {}

    def table(self) -> list[Endpoint]:
        """Return the routes below the API's mount."""
        one = f"{_PLACE}/builds/{{id}}"
        return [
            endpoint("POST", f"{_PLACE}/builds", self._create),
            endpoint("GET", f"{_PLACE}/builds", self._list),
            endpoint("GET", one, self._get),
            endpoint("POST", f"{one}{VERB}cancel", self._cancel),
            endpoint("GET", "/v1/operations/build/{project}/{operation}", self._operation),
        ]

    def recover(self) -> None:
        """End the builds that a server which was killed has left."""
        for one in self.store.unfinished(KIND):
            self._end(one.name, _End("INTERNAL_ERROR", "the local Vertex was stopped while the build ran"))
        table = processes()
        for session in {table[pid][1] for pid in marked(f"{_MARK}={self.settings.root.absolute()}/") if pid in table}:
            _end_session(session)
        shutil.rmtree(self.settings.root / KIND, ignore_errors=True)

    def close(self) -> None:
        """Stop every build."""
        for one in list(self._running.values()):
            one.stop("CANCELLED", "the local Vertex was stopped")
        self._workers.shutdown(cancel_futures=True)

    async def _create(self, request: Request, path: Mapping[str, str]) -> Response:
        build = await in_thread(self._made, path, await read_json(request))
        return JSONResponse(_operation(build))

    def _made(self, path: Mapping[str, str], given: Json) -> Json:
        build_config.check(given)
        project, location, id_ = path["project"], path.get("location", "global"), str(uuid.uuid4())
        parent = _parent(path)
        made = build_config.substituted(given, build_config.built_ins(project, location, id_, self.account))
        found, why = engine.look(self.settings.options.engine)
        if found is None:
            raise precondition(
                f"Cloud Build needs a container engine on this machine, and none answers ({why}). Install docker "
                "(https://docs.docker.com/engine/install) or podman (https://podman.io/docs/installation), or start it, and submit again."
            )
        self._has_images(made["steps"], found)
        bucket = str(made.get("logsBucket", ""))
        default = f"{resources.project_number(project)}.cloudbuild-logs.googleusercontent.com"
        if bucket:
            self.objects.bucket(bucket.removeprefix("gs://").partition("/")[0])
        else:
            with suppress(ApiError):  # it is there
                self.objects.create_bucket(default, reserved=True)
        images = made.get("images") or (made.get("artifacts") or {}).get("images") or []
        source = (made.get("source") or {}).get("storageSource")
        body = {
            "timeout": "3600s", "queueTtl": "3600s", "logsBucket": f"gs://{default}", **made, "name": f"{parent}/{KIND}/{id_}", "id": id_,
            "projectId": resources.project_id(project), "status": "QUEUED", "createTime": resources.now(),
            "options": {"logging": "LEGACY", **(made.get("options") or {})},
            **({"images": images, "artifacts": {"images": images}} if images else {}),
            **({"sourceProvenance": {"resolvedStorageSource": source}} if source else {}),
        }  # fmt: skip
        build = _Build(self, body, found)
        body["logUrl"] = build.log.place
        self.store.add(KIND, parent, body["name"], body)
        self._running[body["name"]] = build
        self._workers.submit(self._run, build)
        return body

    def _has_images(self, steps: list[Json], found: Engine) -> None:
        """Refuse a step whose image is neither here nor made by a step before it."""
        earlier = ""
        for number, step in enumerate(steps):
            name = str(step["name"])
            try:
                own = build_config.docker_words(step, {})
                absent = own is None and name not in earlier and found.image(name) is None
            except UsageError as error:
                raise precondition(f"build step {number}: {error}") from None
            pulled = absent and self.settings.options.pull == "missing" and found.call("pull", name, timeout=None)
            if absent and (not pulled or pulled.returncode):
                raise precondition(
                    f"build step {number}: the image {name} is not on this machine. Steps of gcr.io/cloud-builders/docker and "
                    f"{build_config.KANIKO} need no image here; any other needs its own: `{found.name} pull {name}`, or remove the step."
                )
            earlier += f" {' '.join(map(str, step.get('args') or ()))} {step.get('script', '')}"

    def _run(self, build: _Build) -> None:
        end = _End("SUCCESS", "")
        try:
            build.run()
        except _End as error:
            end = error
        except Exception as error:
            end = _End("INTERNAL_ERROR", f"{type(error).__name__}: {error}")
        # Before the status: gcloud reads the log for the last time when the build has ended.
        with suppress(OSError):  # a log that cannot be written must not keep the build at work
            build.log.close(f"\nERROR\nERROR: {end}" if str(end) else "\nDONE")
        self._end(build.body["name"], end, build.body)
        self._running.pop(build.body["name"], None)
        shutil.rmtree(build.folder, ignore_errors=True)

    def _end(self, name: str, end: _End, more: Mapping[str, Any] | None = None) -> None:
        def edit(body: Json, _: Json) -> bool:
            why = str(end)
            body.update(more or {})
            body.update({"status": end.status, "finishTime": resources.now()})
            if why:
                body["statusDetail"] = why
            if end.status == "FAILURE":
                detail = f"Build step failure: {why}" if end.kind == _STEP else why
                body["failureInfo"] = {"type": end.kind, "detail": detail}
            return True

        self.store.change(name, edit)

    def keep(self, body: Json) -> None:
        """Store the state of a build that runs."""
        self.store.change(body["name"], lambda stored, _: stored.update(body))

    def _stored(self, path: Mapping[str, str]) -> Json:
        found = self.store.get(f"{_parent(path)}/{KIND}/{path['id']}")
        if found is None:
            raise not_found()
        return found.body

    async def _get(self, request: Request, path: Mapping[str, str]) -> Response:
        return JSONResponse(await in_thread(self._stored, path))

    async def _operation(self, request: Request, path: Mapping[str, str]) -> Response:
        try:
            id_ = base64.b64decode(path["operation"], validate=True).decode()
        except ValueError:
            raise not_found() from None
        stored = (one for one in self.store.newest(KIND, 1000)[1] if one.name.endswith(f"/{id_}"))
        found = next(stored, None)
        if found is None:
            raise not_found()
        return JSONResponse(_operation(found.body))

    async def _list(self, request: Request, path: Mapping[str, str]) -> Response:
        query = request.query_params
        text, token, size = query.get("filter", ""), query.get("pageToken", ""), page_size(query)
        found, following = await in_thread(page, self.store, KIND, _parent(path), text, "", size, token, predicate)
        return JSONResponse(answer(KIND, [one.body for one in found], following))

    async def _cancel(self, request: Request, path: Mapping[str, str]) -> Response:
        body = await in_thread(self._stored, path)
        running = self._running.get(body["name"])
        if running is None:
            raise precondition(f"Cannot cancel build {body['id']}: its status is {body['status']}.")
        await in_thread(running.stop, "CANCELLED", "the build was cancelled")
        return JSONResponse({**body, "status": "CANCELLED"})


def _parent(path: Mapping[str, str]) -> str:
    return f"projects/{resources.project_number(path['project'])}/locations/{path.get('location', 'global')}"


def _operation(build: Json) -> Json:
    id_ = base64.b64encode(str(build["id"]).encode()).decode()
    made: Json = {
        "name": f"operations/build/{build['projectId']}/{id_}",
        "metadata": {"@type": f"type.googleapis.com/{_OPERATION}", "build": build},
    }
    if build["status"] in _ENDED:
        ok = build["status"] == "SUCCESS"
        end = {"response": {"@type": "type.googleapis.com/google.devtools.cloudbuild.v1.Build", **build}}
        made |= {
            "done": True,
            **(end if ok else {"error": {"code": 2, "message": f"Build failed; {build.get('statusDetail', '')}"}}),
        }
    return made


class _Log:
    """The log of a build: an object that grows in its bucket, and entries of Cloud Logging."""

    def __init__(self, builds: Builds, body: Json) -> None:
        mode = body["options"]["logging"]
        bucket, _, folder = str(body["logsBucket"]).removeprefix("gs://").partition("/")
        name = f"{folder.rstrip('/')}/log-{body['id']}.txt".lstrip("/")
        path = builds.objects.files.plain_path(bucket, name, make=True)
        if path is None:
            raise precondition(f"logs_bucket {body['logsBucket']!r} cannot hold the log of a build.")
        self.place = path.absolute().as_uri()
        self._path = path if mode in ("LEGACY", "GCS_ONLY", "LOGGING_UNSPECIFIED") else None
        self._store = builds.logs if mode not in ("GCS_ONLY", "NONE") else None
        about = {"build_id": body["id"], "project_id": body["projectId"]}
        self._entry = {
            "logName": f"projects/{body['projectId']}/logs/cloudbuild", "severity": "INFO",
            "resource": {"type": "build", "labels": {**about, "build_trigger_id": ""}},
        }  # fmt: skip
        self._lines: list[str] = []
        self._flushed = 0.0

    def line(self, text: str) -> None:
        self._lines.append(text)
        if time.monotonic() - self._flushed > _FLUSH_S:
            self._flush()

    def close(self, last: str) -> None:
        self.line(last)
        self._flush()

    def _flush(self) -> None:
        lines, self._lines, self._flushed = self._lines, [], time.monotonic()
        if self._path is not None and lines:
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write("\n".join([*lines, ""]))
        if self._store is not None:
            self._store.keep([({**self._entry, "textPayload": line}, None) for line in lines if line.strip()])


class _Build:
    """One build from its source to its images."""

    def __init__(self, builds: Builds, body: Json, found: Engine) -> None:
        self.builds, self.body, self.engine, self.log = builds, body, found, _Log(builds, body)
        self.folder = builds.settings.root.absolute() / KIND / body["id"]
        self.workspace = self.folder / "workspace"
        self._job = f"build-{body['id']}"
        labels = {engine.ROOT_LABEL: builds.settings.root, engine.OWNER_LABEL: os.getpid(), engine.JOB_LABEL: self._job}
        self._labels = [f"{name}={value}" for name, value in labels.items()]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._stopped: _End | None = None

    def stop(self, status: str, why: str) -> None:
        """End the build, and what runs for it."""
        with self._lock:
            self._stopped = self._stopped or _End(status, why)
            process = self._process
        if process is not None:
            _end_session(process.pid)
            self._remove_containers()

    def run(self) -> None:
        """Run it to its end.

        Raises:
            _End: It does not succeed.
        """
        self.body |= {"status": "WORKING", "startTime": resources.now()}
        self.builds.keep(self.body)
        self.log.line(f'starting build "{self.body["id"]}"\n')
        seconds = duration_seconds(str(self.body["timeout"])) or _DEFAULT_S
        try:
            with self._limited(seconds, "build timed out"):
                with self._phase("FETCHSOURCE"):
                    self._fetch()
                with self._phase("BUILD"):
                    for number in range(len(self.body["steps"])):
                        self._step(number)
                if self.body.get("images"):
                    with self._phase("PUSH"):
                        self._push()
        finally:
            self._remove_containers()

    @contextmanager
    def _limited(self, seconds: float, why: str) -> Iterator[None]:
        """Stop the build where the block takes longer."""
        timer = threading.Timer(seconds, self.stop, ("TIMEOUT", why))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self.log.line(name)
        with _timed(self.body.setdefault("timing", {}), name):
            yield

    def _fetch(self) -> None:
        self.workspace.mkdir(parents=True, mode=0o700)
        source = (self.body.get("source") or {}).get("storageSource")
        if not source:
            return
        found = self.builds.objects.get(str(source["bucket"]), str(source["object"]))
        self.log.line(f"Fetching storage object: gs://{found.bucket}/{found.name}#{found.generation}")
        _, archive = self.builds.objects.gather([found])
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(self.workspace)
            else:
                with tarfile.open(archive) as tar:
                    unpack(tar, self.workspace)
        except (tarfile.TarError, zipfile.BadZipFile, OSError) as error:
            raise _End("FAILURE", f"the source gs://{found.bucket}/{found.name} cannot be unpacked: {error}") from None
        finally:
            archive.unlink(missing_ok=True)

    def _step(self, number: int) -> None:
        step = self.body["steps"][number]
        id_ = step.get("id")
        label = f"Step #{number}{f' - {chr(34)}{id_}{chr(34)}' if id_ else ''}"
        several = len(self.body["steps"]) > 1
        if several:
            self.log.line(f"Starting {label}")
        prefix = f"{label}: " if several else ""
        with _timed(step, "timing"):
            step["status"] = "WORKING"
            self.builds.keep(self.body)
            try:
                code = self._execute(step, prefix)
            except UsageError as error:
                step["status"] = "FAILURE"
                raise _End("FAILURE", f'build step {number} "{step["name"]}" failed: {error}', _STEP) from None
            except _End as end:
                step["status"] = end.status
                raise
        allowed = step.get("allowFailure") or code in (step.get("allowExitCodes") or ())
        step["status"] = "FAILURE" if code else "SUCCESS"
        if code and not allowed:
            why = f'build step {number} "{step["name"]}" failed: step exited with non-zero status: {code}'
            raise _End("FAILURE", why, _STEP)
        if several:
            self.log.line(f"Finished {label}")

    def _execute(self, step: Json, prefix: str) -> int:
        workspace = self.workspace.resolve()
        place = Path(str(step.get("dir") or "."))
        if place.is_absolute() and place.is_relative_to(build_config.WORKSPACE):
            place = place.relative_to(build_config.WORKSPACE)
        folder = (workspace / place).resolve()
        if not folder.is_relative_to(workspace) or not folder.is_dir():
            raise UsageError(f"its dir {step['dir']!r} is not a folder of the source")
        pairs = [*((self.body.get("options") or {}).get("env") or ()), *(step.get("env") or ())]
        env = dict(str(pair).split("=", 1) for pair in pairs if "=" in str(pair))
        volumes = {}
        for volume in (*(step.get("volumes") or ()), *((self.body.get("options") or {}).get("volumes") or ())):
            kept = self.folder / "volumes" / re.sub(r"\W", "-", str(volume["name"]))
            kept.mkdir(parents=True, exist_ok=True)
            volumes[str(volume["path"]).rstrip("/")] = str(kept.resolve())
        # A volume may be below another one's place.
        folders = dict(sorted({**volumes, build_config.WORKSPACE: str(workspace)}.items(), reverse=True))
        words = build_config.docker_words(step, folders)
        seconds = duration_seconds(str(step.get("timeout") or "0s")) or 0.0
        if words is not None:
            programs = self.builds.programs()
            own = {
                "PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
                engine.VARIABLE: Path(self.engine.program).name,
                _MARK: f"{self.folder}/",
                step_arguments.VARIABLE: json.dumps({"folders": folders, "labels": self._labels}),
            }
            return self._program(words, {**os.environ, **env, **own}, folder, prefix, seconds)
        return self._in_image(step, env, folder, folders, prefix, seconds)

    def _in_image(
        self, step: Json, env: dict[str, str], folder: Path, folders: Mapping[str, str], prefix: str, seconds: float
    ) -> int:
        """Run a step of an image of this machine, which has the folders of the build at their places."""
        image = self.engine.image(str(step["name"]))
        if image is None:
            raise UsageError(f"the image is not on this machine: `{self.engine.name} pull {step['name']}`")
        entry, words = str(step.get("entrypoint") or ""), [str(one) for one in step.get("args") or ()]
        if step.get("script"):
            text = str(step["script"])
            script = self.workspace / f".script-{uuid.uuid4().hex[:8]}"
            script.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}")
            script.chmod(0o755)
            entry, words = f"{build_config.WORKSPACE}/{script.name}", []
        settings = self.builds.settings
        options = replace(settings.options, job_id=self._job)
        container = containers.Container(self.engine, image, options, settings.root, self.engine.user_id(image))
        place = f"{build_config.WORKSPACE}/{folder.relative_to(self.workspace.resolve())}".removesuffix("/.")
        mounts = {Path(here): place for place, here in folders.items()}
        argv, own, removal = container.tool(entry, words, env, place, mounts, self.folder)
        with containers.answered(container):
            try:
                return self._program(argv, own, folder, prefix, seconds)
            finally:
                self.engine.call(*removal[1:])
                self.engine.reclaim(image, list(mounts), {})

    def _program(self, words: list[str], env: Mapping[str, str], folder: Path, prefix: str, seconds: float) -> int:
        """Run a program, its output in the log; its exit code."""
        with self._lock:
            if self._stopped is not None:
                raise self._stopped
            try:
                self._process = subprocess.Popen(
                    words, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True, errors="replace", start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise UsageError(str(error)) from None
        process = self._process
        assert process.stdout is not None
        limit = self._limited(seconds, f"build step timed out after {seconds:g}s") if seconds else nullcontext()
        with limit, process:
            for line in process.stdout:
                self.log.line(f"{prefix}{line.rstrip()}")
        with self._lock:
            self._process = None
            if self._stopped is not None:
                raise self._stopped
        return process.returncode

    def _remove_containers(self) -> None:
        """Remove the containers that steps have started."""
        found = self.engine.call("ps", "--all", "--quiet", "--filter", f"label={engine.JOB_LABEL}={self._job}").stdout
        if found.strip():
            self.engine.call(*self.engine.removal(*found.split())[1:])

    def _push(self) -> None:
        images = [str(name) for name in self.body["images"]]
        try:
            found = {name: self.engine.image(name) for name in images}
        except UsageError as error:
            raise _End("FAILURE", str(error)) from None
        missing = " ".join(f'"{name}"' for name, one in found.items() if one is None)
        if missing:
            raise _End("FAILURE", f"failed to find one or more images after execution of build steps: [{missing}]")
        rows = []
        for name, one in found.items():
            assert one is not None
            digest = f"sha256:{one.id.removeprefix('sha256:')}"
            self.log.line(f"{name}: the image stays on this machine, digest: {digest}")
            rows.append({"name": name, "digest": digest})
        self.body["results"] = {"images": rows, "buildStepImages": [""] * len(self.body["steps"])}


def _end_session(session: int) -> None:
    """Kill the programs of a step. podman gets the time to remove what it has made for a RUN, whose process is killed first.

    That process has a session of its own, and outlives a podman that is killed. docker's are its daemon's, which ends them.
    """
    until = time.monotonic() + _CLEANUP_S
    while time.monotonic() < until:
        table = processes()
        own = {pid for pid, row in table.items() if row[1] == session}
        engines = {pid for pid in own if table[pid][3] == "podman"}
        if not engines:
            break
        below, found = own, set[int]()
        while below := {pid for pid, row in table.items() if row[0] in below} - found:
            found |= below
        for pid in (own | found) - engines:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def unpack(tar: tarfile.TarFile, into: Path) -> None:
    """Unpack an archive so that no file of it is written outside of the folder.

    Raises:
        tarfile.TarError: A member, or the file that a link of it names, is outside, or is no file, folder or link.
    """
    if hasattr(tarfile, "data_filter"):
        tar.extractall(into, filter="data")
        return
    folder = into.resolve()  # Python 3.10.11, 3.11.3 and older have no filters
    for member in tar:
        at = folder / member.name
        written = [at, (at.parent if member.issym() else folder) / member.linkname] if member.linkname else [at]
        if any(not one.resolve().is_relative_to(folder) for one in written):
            raise tarfile.TarError(f"{member.name!r} would be outside of the folder")
        if not (member.isfile() or member.isdir() or member.issym() or member.islnk()):
            raise tarfile.TarError(f"{member.name!r} is a special file")
        tar.extract(member, folder)


@contextmanager
def _timed(into: Json, key: str) -> Iterator[None]:
    """Write when the block began and ended below a key."""
    into[key] = {"startTime": resources.now()}
    try:
        yield
    finally:
        into[key]["endTime"] = resources.now()
