"""What a Cloud Build configuration asks for: its substitutions, and each step as a command of this machine.

Error messages are Cloud Build's (cloud-build-local's `validate.go`, archived in 2022, and public issues of 2022 to 2026:
kubernetes-sigs/windows-gmsa#64, GoogleCloudPlatform/cortex-data-foundation#21, datacommonsorg/website#6392).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from localvertex.http import Json, invalid
from localvertex.jobs import resources
from vertexrig.errors import UsageError

DOCKER = frozenset({"gcr.io/cloud-builders/docker", "docker"})
KANIKO = "gcr.io/kaniko-project/executor"
WORKSPACE = "/workspace"
_SHELLS = ("bash", "sh", "/bin/bash", "/bin/sh")
_OWN_KEY = re.compile(r"_[A-Z0-9_]+")
_OF_SOURCE = ("REPO_NAME", "BRANCH_NAME", "TAG_NAME", "REVISION_ID", "COMMIT_SHA", "SHORT_SHA")
"""Substitutions that a caller may give, and that are empty without a repository."""
_OF_TRIGGER = ("REPO_FULL_NAME", "REF_NAME", "TRIGGER_NAME", "TRIGGER_BUILD_CONFIG_PATH")
_TEMPLATE = re.compile(r"\$(?:(\$)|([A-Z_][A-Z0-9_]*)|\{([A-Z_][A-Z0-9_]*)\})")
_FIELDS = ("steps", "images", "tags", "logsBucket", "artifacts", "options")
"""Fields of a build in which substitutions stand."""
# Options of kaniko with a value that `docker build` takes, too; all others speed up or push, which needs nothing here.
_KANIKO = {
    "--build-arg": "--build-arg",
    "--target": "--target",
    "--label": "--label",
    "--destination": "--tag",
    "-d": "--tag",
}
_KANIKO_FLAGS = ("--no-push", "--cleanup", "--reproducible", "--single-snapshot", "--use-new-run", "--force", "--insecure",
                 "--skip-tls-verify", "--cache-copy-layers", "--cache-run-layers", "--cache")  # fmt: skip


def substituted(build: Json, built_in: Mapping[str, str]) -> Json:
    """Return a build with its substitutions made; a 400 for a key that is unknown, missing or without use."""
    given = {str(key): str(value) for key, value in (build.get("substitutions") or {}).items()}
    for key in given:
        if not _OWN_KEY.fullmatch(key) and key not in _OF_SOURCE:
            raise invalid(
                f'invalid build: invalid .substitutions field: substitution key "{key}" does not respect format '
                '"^_[A-Z0-9_]+$" and is not an overridable built-in substitutions'
            )
    known = {**dict.fromkeys((*_OF_SOURCE, *_OF_TRIGGER), ""), **built_in, **given}
    options = build.get("options") or {}
    used, absent = set[str](), list[str]()

    def value(match: re.Match[str]) -> str:
        key = match[2] or match[3]
        if match[1]:
            return "$"
        used.add(key)
        if key not in known:
            if not _OWN_KEY.fullmatch(key):
                raise invalid(
                    "generic::invalid_argument: invalid value for 'build.substitutions': key in the template "
                    f'"{key}" is not a valid built-in substitution'
                )
            absent.append(f'key in the template "{key}" is not matched in the substitution data')
        return known.get(key, "")

    def within(one: Any, name: str = "") -> Any:
        # A script sees substitutions as variables alone.
        if isinstance(one, str):
            return one if name == "script" else _TEMPLATE.sub(value, one)
        if isinstance(one, list):
            return [within(part) for part in one]
        return {key: within(part, key) for key, part in one.items()} if isinstance(one, dict) else one

    if options.get("dynamicSubstitutions"):
        for key in given:
            known[key] = _TEMPLATE.sub(value, known[key])
    made = {**build, **{key: within(build[key]) for key in _FIELDS if key in build}}
    if options.get("automapSubstitutions") or any(step.get("automapSubstitutions") for step in build["steps"]):
        used |= set(given)
    absent += [
        f'key "{key}" in the substitution data is not matched in the template' for key in given if key not in used
    ]
    if absent and options.get("substitutionOption") != "ALLOW_LOOSE":
        raise invalid(f"generic::invalid_argument: {';'.join(dict.fromkeys(absent))}")
    for step in made["steps"]:
        if options.get("automapSubstitutions") or step.get("automapSubstitutions"):
            step["env"] = [*(f"{key}={one}" for key, one in known.items()), *(step.get("env") or ())]
    return made


def built_ins(project: str, location: str, id_: str, account: str) -> dict[str, str]:
    """Return the substitutions that Cloud Build makes itself."""
    number = resources.project_number(project)
    return {
        **{"PROJECT_ID": resources.project_id(project), "PROJECT_NUMBER": number, "LOCATION": location, "BUILD_ID": id_},
        **{"SERVICE_ACCOUNT_EMAIL": account, "SERVICE_ACCOUNT": f"projects/{number}/serviceAccounts/{account}"},
    }  # fmt: skip


def check(build: Json) -> None:
    """Raise a 400 for a build that Cloud Build refuses, or that has what is not done here."""
    steps = build.get("steps") or []
    if not steps:
        raise invalid("invalid build: invalid .steps field: no build steps are specified")
    for number, step in enumerate(steps):
        if not step.get("name"):
            raise invalid(f"invalid build: invalid .steps field: build step {number} must specify name")
        if step.get("script") and (step.get("args") or step.get("entrypoint")):
            raise invalid(f"invalid build: build step {number} has a script, and args or an entrypoint")
    options = build.get("options") or {}
    own = build.get("logsBucket") or options.get("defaultLogsBucketBehavior") == "REGIONAL_USER_OWNED_BUCKET"
    if build.get("serviceAccount") and not own and options.get("logging") not in ("CLOUD_LOGGING_ONLY", "NONE"):
        raise invalid(
            "generic::invalid_argument: if 'build.service_account' is specified, the build must either (a) specify 'build.logs_bucket', "
            "(b) use the REGIONAL_USER_OWNED_BUCKET build.options.default_logs_bucket_behavior option, or (c) use either "
            "CLOUD_LOGGING_ONLY / NONE logging options"
        )
    source = build.get("source") or {}
    more = [key for key in ("secrets", "availableSecrets") if build.get(key)]
    more += [f"artifacts.{key}" for key in build.get("artifacts") or {} if key != "images"]
    more += [f"source.{key}" for key in source if key != "storageSource"]
    if more:
        raise invalid(
            f"The local Vertex does not do {', '.join(more)} of a build. It runs the steps of a source that gcloud uploads, and "
            "keeps the images. Remove the field for a build on this machine."
        )


def plain(image: str) -> str:
    """Return an image's name without its tag and digest."""
    head, _, last = image.partition("@")[0].rpartition("/")
    return f"{head}/{last.partition(':')[0]}".lstrip("/")


def docker_words(step: Mapping[str, Any], folders: Mapping[str, str]) -> list[str] | None:
    """Return the words of the command that does a docker or kaniko step here, None for a step of another image.

    Args:
        step: Of the build, after substitutions.
        folders: The folders of this machine by their place in the build: `/workspace`, and volumes.

    Raises:
        UsageError: The step has an entrypoint that is no shell.
    """
    name, args, entry = plain(str(step["name"])), [str(one) for one in step.get("args") or ()], step.get("entrypoint")
    if name == KANIKO:
        return ["docker", *_of_kaniko(args)]
    if name not in DOCKER:
        return None
    if step.get("script"):
        return ["sh", "-c", _here(str(step["script"]), folders)]
    if entry in _SHELLS:
        return [str(entry), *(_here(one, folders) for one in args)]
    if entry and entry not in ("docker", "/usr/bin/docker"):
        raise UsageError(f"the entrypoint {entry!r} of {step['name']} is not run here: only docker, bash and sh are")
    return ["docker", *args]


def _here(text: str, folders: Mapping[str, str]) -> str:
    """Return the text of a shell with folders of this machine in place of those of a build."""
    places = "|".join(map(re.escape, folders))
    return (
        re.sub(rf"(?<![\w./:-])({places})(?=[/:\s\"']|$)", lambda match: folders[match[1]], text) if folders else text
    )


def _of_kaniko(args: Sequence[str]) -> Iterator[str]:
    yield from ("build", "--network", "host")
    folder, file = WORKSPACE, "Dockerfile"
    rest = iter(args)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in _KANIKO_FLAGS:
            continue
        value = value if equals else next(rest, "")
        if option in ("--context", "-c"):
            folder = os.path.join(WORKSPACE, value.removeprefix("dir://"))
        elif option in ("--dockerfile", "-f"):
            file = value
        elif option in _KANIKO:
            yield from (_KANIKO[option], value)
    yield from ("--file", os.path.join(folder, file), folder)
