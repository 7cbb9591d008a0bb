"""Runs a script: requests in their order, each with what earlier answers hold, and what came of each.

A step is one of
    a request     api, method, path, body or data, headers; with `until` it is repeated until that JMESPath
                  expression holds of its record, for at most `within` seconds
    gcloud        words; `config` is written to a file that ${config} names
    sdk           words for the manifest's sdk.py
    kill          a job and one of its replicas, which the local Vertex kills
    replicas      the id of a step that lists log entries: what each replica said about itself
    fault         a fault of the local Vertex, such as quota:n1-highmem-96:1
In every text `${expression}` is JMESPath over the records so far and the target's own words; `${expression|id}` is the
last part of that name.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jmespath
import yaml

from localvertex.front import control
from tools.fidelity.manifest import Manifest, ManifestRow, Script
from tools.fidelity.target import Caller, Target
from vertexrig.errors import ServiceError, VertexrigError
from vertexrig.spec.states import ENDED, of_pipeline

_PLACE = re.compile(r"\$\{([^{}]+)\}")
_STARTS_WORK = re.compile(r"projects/[^/]+/locations/[^/]+/(customJobs|hyperparameterTuningJobs|trainingPipelines)/\d+")
_OVER = frozenset({*ENDED, *map(of_pipeline, ENDED)})
WITHIN_S = 60.0
# gcloud and the SDK take seconds to start, and follow a job to its end.
CLIENT_S = 300.0


class StepError(VertexrigError):
    """A step cannot be made, since an earlier one did not come out as it should (never reaches a user)."""


class NotHereError(VertexrigError):
    """A step needs a program that is not installed, or a fault that only the local Vertex makes."""


@dataclass
class ScriptRecord:
    """What came of a script.

    Args:
        steps: Record by step.
        broken: Why it went no further, "" if it went to its end.
        missing: What it needs and is not here, "" if nothing is.
    """

    steps: dict[str, Any] = field(default_factory=dict)
    broken: str = ""
    missing: str = ""


class Player:
    """Runs the scripts of a manifest on a target.

    Args:
        manifest: The manifest.
        target: Where.
        folder: For files that clients read; theirs alone.
    """

    def __init__(self, manifest: Manifest, target: Target, folder: Path) -> None:
        self.manifest, self.target, self.folder = manifest, target, folder
        self.call = Caller(target)

    def play(self, script: Script) -> ScriptRecord:
        """Run a script to its end, or as far as it goes; jobs that still run are cancelled then."""
        record, words = ScriptRecord(), self.target.words()
        if script.only_local and self.target.server is None:
            record.missing = "it is tried on the local Vertex only"
            return record
        try:
            for name, step in script.steps.items():
                record.steps[name] = self._step(step, {**words, **record.steps})
        except NotHereError as error:
            record.missing = str(error)
        except (StepError, ServiceError, subprocess.TimeoutExpired) as error:
            record.broken = f"step {name}: {error}"
        finally:
            # Also after an error: in the cloud a job that nobody looks at costs money.
            self.stop(record.steps)
        return record

    def ask(self, row: ManifestRow) -> dict[str, Any]:
        """Return the answer to a row's own request; what it starts against expectation is cancelled."""
        answer = self._request(self.request_of(row), self.target.words())
        self.stop({"ask": answer})
        return answer

    def request_of(self, row: ManifestRow) -> dict[str, Any]:
        """Return a row's own request as a step: like a step of a script, with changes, or written out."""
        ask = dict(row.ask or {})
        changes, dropped = ask.pop("set", {}), ask.pop("drop", [])
        script, _, step = str(ask.pop("like", "")).partition(".")
        # Deep, because the changes below go into the step's own body.
        made = copy.deepcopy(dict(self.manifest.scripts[script].steps[step])) if script else {}
        made.update(ask)
        for path, value in changes.items():
            _change(made["body"], path, value)
        for path in dropped:
            _change(made["body"], path, None, drop=True)
        return made

    def stop(self, steps: Mapping[str, Any]) -> None:
        """Cancel what the steps started and did not see end."""
        known: dict[str, str] = {}
        for record in steps.values():
            body = record.get("body") if isinstance(record, dict) else None
            if isinstance(body, dict) and _STARTS_WORK.fullmatch(str(body.get("name", ""))):
                known[body["name"]] = str(body.get("state", ""))
        for name, state in known.items():
            if state not in _OVER:
                self.call("vertex", "POST", f"/v1/{name}:cancel", {})

    def _step(self, step: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
        if "gcloud" in step:
            return self._gcloud(step, known)
        if "sdk" in step:
            return self._sdk([str(filled(word, known)) for word in step["sdk"]])
        if "replicas" in step:
            return _replicas(known[step["replicas"]])
        if "fault" in step or "kill" in step:
            if self.target.server is None:
                raise NotHereError("only the local Vertex makes this fault on demand")
            if "fault" in step:
                control.add_fault(self.target.server, step["fault"])
            else:
                control.kill(self.target.server, str(filled(step["kill"][0], known)), step["kill"][1])
            return {}
        return self._request(step, known)

    def _request(self, step: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        made = {key: filled(value, known) for key, value in step.items() if key not in ("until", "within")}
        method = made.get("method") or ("POST" if "body" in made or "data" in made else "GET")
        words: dict[str, Any] = {key: made[key] for key in ("body", "data", "headers") if key in made}
        wanted = jmespath.compile(step["until"]) if "until" in step else None
        until = time.monotonic() + float(step.get("within", WITHIN_S)) * self.target.patience
        seen: list[str] = []
        while True:
            answer = self.call(made["api"], method, made["path"], **words)
            state = answer["body"].get("state") if isinstance(answer["body"], dict) else None
            # Rows look at the order of states; between two looks one may be missed.
            if state and (not seen or seen[-1] != state):
                seen.append(state)
            if wanted is None or wanted.search(answer) or time.monotonic() > until:
                request: dict[str, Any] = {"api": made["api"], "method": method, "path": made["path"], **words}
                return {**answer, "request": request, "seen": seen}
            time.sleep(self.target.poll_s)

    def _gcloud(self, step: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        program = shutil.which("gcloud")
        if program is None:
            raise NotHereError("gcloud is not installed")
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        config = folder / "config.yaml"
        if "config" in step:
            config.write_text(yaml.safe_dump(filled(step["config"], known)), encoding="utf-8")
        words = [str(filled(word, {**known, "config": str(config)})) for word in step["gcloud"]]
        # On the real service gcloud needs the user's login; here it must not find one.
        own: dict[str, str] = {} if self.target.cloud else {"CLOUDSDK_CONFIG": str(self.folder / "gcloud")}
        variables = {**own, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true"}
        return self._run([program, *words], variables)

    def _sdk(self, words: list[str]) -> dict[str, Any]:
        from importlib.util import find_spec

        try:
            found = find_spec("google.cloud.aiplatform")
        # find_spec raises where a parent package (google.cloud) is missing.
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise NotHereError("google-cloud-aiplatform is not installed")
        variables = {
            **{f"FIDELITY_{api.upper()}": url for api, url in self.target.urls.items()},
            "FIDELITY_PROJECT": self.target.project,
            "FIDELITY_REGION": self.target.region,
            "FIDELITY_BUCKET": f"gs://{self.target.bucket}/fidelity",
            "FIDELITY_PACKAGE": self.target.package,
            "FIDELITY_CLOUD": "1" if self.target.cloud else "",
        }
        return self._run([sys.executable, str(self.manifest.folder / "sdk.py"), *words], variables)

    def _run(self, argv: list[str], variables: Mapping[str, str]) -> dict[str, Any]:
        done = subprocess.run(
            argv, cwd=self.folder, env={**os.environ, **self.target.environment, **variables}, capture_output=True,
            text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=CLIENT_S * self.target.patience,
        )  # fmt: skip
        texts = {"stdout": done.stdout.splitlines(), "stderr": done.stderr.splitlines()}
        return {"exit": done.returncode, **texts, "request": {"argv": argv[1:]}}


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """Return a value with every `${...}` in its texts replaced.

    Raises:
        StepError: There is nothing at a place.
    """
    if isinstance(value, dict):
        return {key: filled(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, known) for item in value]
    if not isinstance(value, str):
        return value
    whole = _PLACE.fullmatch(value)
    # A place that is the whole text keeps its type: a number stays a number.
    return _found(whole[1], known) if whole else _PLACE.sub(lambda match: str(_found(match[1], known)), value)


def _found(expression: str, known: Mapping[str, Any]) -> Any:
    bare = expression.removesuffix("|id")
    try:
        found = jmespath.search(bare, dict(known))
    except jmespath.exceptions.JMESPathError:  # such as join() of what is not there
        found = None
    if found is None:
        raise StepError(f"there is no {bare}")
    return found if bare == expression else str(found).rpartition("/")[2]


def _change(body: Any, path: str, value: Any, *, drop: bool = False) -> None:
    """Set or drop what a path such as `jobSpec.workerPoolSpecs[0].replicaCount` names, making objects on the way."""
    parts: list[Any] = []
    for part in path.split("."):
        name, *indices = part.replace("]", "").split("[")
        parts += [name, *map(int, indices)]
    *way, last = parts
    for part, following in zip(way, parts[1:], strict=True):
        if isinstance(part, str) and part not in body:
            body[part] = [] if isinstance(following, int) else {}
        body = body[part]
    if drop:
        body.pop(last)
    # One past the end adds an item.
    elif isinstance(last, int) and last == len(body):
        body.append(value)
    else:
        body[last] = value


def _replicas(listed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what replicas said about themselves in a listing of log entries, by task."""
    found = {}
    for entry in (listed.get("body") or {}).get("entries") or []:
        said = (entry.get("jsonPayload") or {}).get("fidelity")
        if isinstance(said, dict):
            env = said.get("env") or {}
            specs = {
                key: _json(env[name])
                for key, name in (("cluster", "CLUSTER_SPEC"), ("config", "TF_CONFIG"))
                if name in env
            }
            # JMESPath reads a dash in a bare name as a mistake.
            found[entry["resource"]["labels"].get("task_name", "").replace("-", "_")] = {**said, **specs}
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
