"""The trainer's own image: its Dockerfile and Cloud Build config, and its name, known without building it.

The tag is a hash of the Dockerfile, the lock file and the trainer's sources, so the same sources have the same image and
a queued trial never sees another one. Nothing is built here; `vertexrig.package.locking` makes the lock file.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.files import write_text
from vertexrig.package import folders
from vertexrig.package.recipes import DISTRIBUTIONS, KINDS, SYSTEM_PACKAGES, Recipe, pinned, recipe
from vertexrig.package.sources import DIGEST_LENGTH, identify
from vertexrig.project.config import Loaded
from vertexrig.project.model import Trainer

FOLDER = "build/images"
_FORMAT = b"vertexrig-image-1\n"
_HEADING = "# Made by `vertexrig image` for {what}. Change the project file, not this file.\n"
# With another user, trials report nothing: cloudml-hypertune cannot write its file.
_ROOT = """\
# It runs as root: Vertex AI's folder for metrics, /var/hypertune, can be written by root only
# (github.com/GoogleCloudPlatform/cloudml-hypertune/issues/6, open when read on 2026-11-21).
"""
# Versions are those of the base: a Debian release takes security fixes only.
_APT = """\
# hadolint ignore=DL3008
RUN apt-get update \\
    && apt-get install --yes --no-install-recommends {packages} \\
    && rm -rf /var/lib/apt/lists/*
"""


@dataclass(frozen=True)
class ImageId:
    """An image, known without building it.

    Args:
        uri: Its name in Artifact Registry, with the tag.
        kind: cpu, gpu or tpu.
        framework: tf, pytorch, jax, sklearn, xgboost, or "".
        version: The framework's version as far as it is known, "" if it is not.
        python: Its Python, `3.12`.
        base: The image it is built on.
        lock: Its lock file, which may not be there yet.
        locked: Whether that is there.
        dockerfile: The text of its Dockerfile.
    """

    uri: str
    kind: str
    framework: str
    version: str
    python: str
    base: str
    lock: Path
    locked: bool
    dockerfile: str

    @property
    def name(self) -> str:
        """The image's name without its registry: `trainer-gpu:1f0c8de2a4b7`."""
        return self.uri.rpartition("/")[2]


def repository(loaded: Loaded) -> str:
    """HOST/PROJECT/REPOSITORY of the images."""
    project = loaded.project
    named = project.trainer.build.repository
    return named if "/" in named else f"{project.region}-docker.pkg.dev/{project.project.replace(':', '/')}/{named}"


def patterns(loaded: Loaded) -> dict[str, str]:
    """Kind of image -> a pattern that fits the images of that kind, whatever their tag."""
    return {kind: f"{repository(loaded)}/{loaded.project.trainer.build.name}-{kind}:*" for kind in KINDS}


def describe_image(loaded: Loaded, kind: str) -> ImageId:
    """Return the image of the project's trainer for one kind of machine, without its tag, which the sources decide.

    Raises:
        PackageError: There is no image of that kind.
    """
    trainer = loaded.project.trainer
    framework, _, version = trainer.build.framework.partition("-")
    made = recipe(framework, kind)
    python = made.python or trainer.build.python
    lock = loaded.path(f"{trainer.build.lock}/{trainer.build.name}-{kind}.txt", "trainer", "build", "lock")
    content = lock.read_bytes() if lock.is_file() else b""
    base = trainer.build.base_image or f"python:{python}-slim-bookworm"
    uri, text = f"{repository(loaded)}/{trainer.build.name}-{kind}", dockerfile(trainer, made, kind, base)
    version = made.version or version or _locked_version(content, framework)
    return ImageId(uri, kind, framework, version, python, base, lock, bool(content), text)


def identify_image(loaded: Loaded, kind: str) -> ImageId:
    """Return the image of the project's trainer for one kind of machine, as the sources are now.

    Raises:
        PackageError: There is no image of that kind, or the trainer's sources cannot be read.
        ConfigError: There is no trainer.
    """
    image, folder = describe_image(loaded, kind), loaded.path(loaded.project.trainer.path, "trainer", "path")
    if not folder.is_dir() and not folders.is_bare(folder):
        raise loaded.error_at(folders.absent(folder), "trainer", "path")
    lock = image.lock.read_bytes() if image.locked else b""
    # The base's tag may move to a newer image: only a base that is named by its digest holds the whole image.
    parts = (
        _FORMAT + image.dockerfile.encode(),
        lock,
        identify(folder, most_mib=loaded.project.trainer.package_mib).digest.encode(),
    )
    tag = hashlib.sha256(b"\0".join(parts)).hexdigest()[:DIGEST_LENGTH]
    return replace(image, uri=f"{image.uri}:{tag}")


def _locked_version(lock: bytes, framework: str) -> str:
    name = DISTRIBUTIONS.get(framework, "")
    found = re.search(rf"(?m)^{re.escape(name)}(?:\[[^\]]*\])?==([0-9.]+)", lock.decode("utf-8", "replace"))
    return found[1] if name and found else ""


def system_packages(image: ImageId, there: Iterable[str]) -> list[str]:
    """Return a sentence for each distribution of the lock file that needs a Debian package in addition to those that are `there`."""
    names = re.findall(r"(?m)^([a-z0-9.-]+)(?:\[[^\]]*\])?==", image.lock.read_text(encoding="utf-8"))
    return [
        f"{name} needs {needed.package}, which {image.base} lacks: build: {{apt: [{needed.package}]}} ({needed.source})"
        for name in names
        if (needed := SYSTEM_PACKAGES.get(name)) is not None and needed.package not in there
    ]


def framework_requirements(loaded: Loaded, kind: str) -> tuple[list[str], Recipe]:
    """Return what the image's framework asks pip for."""
    framework, _, version = loaded.project.trainer.build.framework.partition("-")
    made = recipe(framework, kind)
    pin = pinned(made.version or version)
    return [line.format(pin=pin) for line in made.requirements], made


def dockerfile(trainer: Trainer, made: Recipe, kind: str, base: str) -> str:
    """Return the Dockerfile: one stage that installs into a virtual environment, and one that has only that."""
    framework, _, version = trainer.build.framework.partition("-")
    what = " on ".join(filter(None, ("-".join(filter(None, (framework, made.version or version))), kind.upper())))
    # the framework's build for TPUs takes the place of the one from PyPI
    wheel = f" \\\n    && pip install --no-cache-dir --no-deps --force-reinstall {made.wheel}" if made.wheel else ""
    unpinned = "" if "@sha256:" in base else "# build.base_image in the project file may name the base by its digest.\n"
    library = f"ADD {made.library} /lib/{made.library.rpartition('/')[2]}\n" if made.library else ""
    env = {"PATH": "/opt/venv/bin:$PATH", "PYTHONUNBUFFERED": "1", **made.env}
    words = json.dumps(["python", "-m", trainer.module])
    apt = _APT.format(packages=" ".join(trainer.build.apt)) if trainer.build.apt else ""
    return (
        _HEADING.format(what=what) + unpinned + f"FROM {base} AS build\n"
        "WORKDIR /build\n"
        "RUN python -m venv /opt/venv\n"
        "ENV PATH=/opt/venv/bin:$PATH\n"
        "COPY requirements.txt ./\n"
        f"RUN pip install --no-cache-dir --no-deps --require-hashes --requirement requirements.txt{wheel}\n"
        "# The trainer comes last, so that a change of its code leaves the layers above as they are.\n"
        "COPY wheels/ ./wheels/\n"
        "RUN pip install --no-cache-dir --no-deps --no-index ./wheels/*.whl\n"
        "\n"
        f"FROM {base}\n" + _ROOT + apt + f"ENV {' '.join(f'{key}={value}' for key, value in env.items())}\n"
        "COPY --from=build /opt/venv /opt/venv\n" + library + f"ENTRYPOINT {words}\n"
    )


def cloud_build(uri: str, kind: str) -> str:
    """Return the Cloud Build config: one docker build, and the image pushed; JSON, which is YAML too."""
    config = {
        "steps": [{"name": "gcr.io/cloud-builders/docker", "args": ["build", f"--tag={uri}", "."]}],
        "images": [uri],
        # frameworks for GPUs bring CUDA: some GB to install and to push
        "timeout": "1800s" if kind == "cpu" else "3600s",
        "options": {"logging": "CLOUD_LOGGING_ONLY"},
    }
    return json.dumps(config, indent=2) + "\n"


def stage(image: ImageId, wheel: Path, folder: Path) -> Path:
    """Return the build context in `folder`, in place of what was there: Dockerfile, cloudbuild.yaml, the lock file and the trainer's wheel.

    PackageError if the wheel is for this machine only.
    """
    # "none-any": no compiled code, so that any platform can install it (PEP 427)
    if not wheel.name.endswith("-none-any.whl"):
        raise PackageError(
            f"{wheel.name} holds compiled code for this machine, which may not run in the image. Write a Dockerfile of "
            "your own that builds it, and name its image with image: custom and custom_image"
        )
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "wheels").mkdir(parents=True)
    shutil.copyfile(wheel, folder / "wheels" / wheel.name)
    shutil.copyfile(image.lock, folder / "requirements.txt")
    write_text(folder / "Dockerfile", image.dockerfile)
    write_text(folder / "cloudbuild.yaml", cloud_build(image.uri, image.kind))
    return folder


def build_commands(image: ImageId, folder: Path, project: str, region: str) -> dict[str, list[list[str]]]:
    """Program -> the commands that make the image with it; gcloud's also pushes it."""
    build = ["docker", "build", "--platform=linux/amd64", f"--tag={image.uri}", str(folder)]
    place = (f"--project={project}", f"--region={region}")
    submit = ["gcloud", "builds", "submit", str(folder), f"--config={folder / 'cloudbuild.yaml'}", *place]
    return {"gcloud": [submit], "docker": [build, ["docker", "push", image.uri]]}
