"""The section `local:` of `vertexrig.yaml`: how jobs run on this machine."""

# No postponed annotations: they are read at run time.
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vertexrig.schema.typed import Given, given

# A listed host is passed on to the network: with Google's among them a trainer would reach the real service.
ALLOWED_HOST = (
    r"(?!.*(?:googleapis\.com|google\.internal)(?::|$))(\*\.)?[a-z0-9][a-z0-9-]*(\.[a-z0-9-]+)*(:[0-9]{1,5})?",
    "a host such as huggingface.co, or index.example.com:8443 for another port than 443; Google's APIs are never passed on",
)

AUTO = "auto"
"""Value of `interpreters` by which each prebuilt image gets an environment of its own."""
BUCKET_NAME = (r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]", "a bucket's name, without gs://, such as cloud-samples-data")


@dataclass(frozen=True, eq=False, repr=False)
class LocalImage(Given):
    """A folder that is run in place of a container image on this machine, also where a container engine has the image."""

    path: str = given("Folder with the image's code, relative to the project file.")
    command: tuple[str, ...] = given("Its entry point, run in that folder; `python` is the interpreter of the image.")
    framework: Literal["tf", "pytorch", "jax", "sklearn", "xgboost"] | None = given(
        "Its framework, imported ahead of its trainers; by default that of the image's name or of its Dockerfile's FROM.",
        None,
    )


@dataclass(frozen=True, eq=False, repr=False)
class LocalSettings(Given):
    """How jobs run on this machine."""

    slots: int | None = given("Replicas that may run at one time; by default one per core, and at least 4.", None)
    images: Mapping[str, LocalImage] = given("The stand-in for each image pattern (* matches anything).", factory=dict)
    engine: Literal["auto", "docker", "podman", "nerdctl", "none"] = given(
        "Container engine that runs images. With `auto` the first that answers runs an image that it has, and a stand-in runs "
        "in place of any other image; a named engine runs every image, or the job fails; `none` uses stand-ins alone.",
        "auto",
    )
    pull: Literal["never", "missing"] = given(
        "Whether the engine pulls an image that is not on this machine: `missing` does, with its progress in the job's log.",
        "never",
    )
    limits: Literal["none", "machine"] = given(
        "`machine` gives each container the memory and the processors of its machine type, as far as this machine has them.",
        "none",
    )
    interpreters: Mapping[str, str] | Literal["auto"] = given(
        "Python interpreter by image pattern: a program's name, a path seen from the project file, or an image that `vertexrig local python --image` made one for. "
        "`auto` makes an environment for each prebuilt image when a job needs it.",
        factory=dict,
    )
    gs_paths: Literal["mapped", "kept"] | None = given(
        "What `gs://` in a job's variables and arguments becomes with `local run` and `local up`: `kept`, so that replicas reach "
        "the local storage by the real names (the default of `local run`, and of `local up` where `/gcs` can be shown), or "
        "`mapped` to a folder, as rehearsals do.",
        None,
    )
    warm: bool = given(
        "Start trials, and other replicas from the second one of an environment on, from a process that has made their imports; Linux only.",
        True,
    )
    discrete: Literal["retry", "decimal", "whole"] = given(
        "How discrete values that are whole numbers reach a trainer: `decimal` (128.0), `whole` (128), or `retry`: as 128.0, "
        "and once more as 128 where the trainer ends at its start.",
        "retry",
    )
    allow_hosts: tuple[str, ...] = given(
        "Hosts that `local run` passes on in addition to package registries, such as huggingface.co or *.example.com; never one "
        "of Google's APIs.",
        (),
        pattern=ALLOWED_HOST,
    )
    public_buckets: tuple[str, ...] = given(
        "Public buckets of Cloud Storage whose objects programs under `local run`, and their jobs, read from Google without "
        "credentials, such as cloud-samples-data; a bucket of that name on this machine comes first.",
        (),
        pattern=BUCKET_NAME,
    )
