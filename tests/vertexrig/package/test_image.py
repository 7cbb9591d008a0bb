"""`image: build`: the name and the files of the trainer's own image, and the checks that know it."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.images import GPU, JOBS, project, rendered
from tests.support.packages import lock_nothing
from tests.support.tools import gcloud_run, need, vertexrig
from vertexrig.errors import ConfigError, PackageError
from vertexrig.package import dockerfile, image, locking
from vertexrig.package.recipes import RECIPES
from vertexrig.project import config
from vertexrig.workspace import Workspace

HOME = "us-central1-docker.pkg.dev/my-project/vertexrig"


# The name


def test_the_image_is_a_container_with_its_own_entry_point(tmp_path: Path) -> None:
    """The kind follows the machines; args are as before; a module of the job's own is its command; a prebuilt image that a
    user names stays, with its package.
    """
    loaded = project(tmp_path, framework="tf-2.21")
    pool = rendered(loaded, "cpu")
    assert "pythonPackageSpec" not in pool and pool["containerSpec"]["args"] == ["--epochs=2"]
    assert re.fullmatch(rf"{HOME}/trainer-cpu:[0-9a-f]{{12}}", pool["containerSpec"]["imageUri"])
    assert "command" not in pool["containerSpec"]
    assert rendered(loaded, "other")["containerSpec"]["command"] == ["python", "-m", "trainer.other"]
    for kind in ("gpu", "tpu"):
        assert f"/trainer-{kind}:" in rendered(loaded, kind)["containerSpec"]["imageUri"]
    assert rendered(loaded, "prebuilt")["pythonPackageSpec"]["packageUris"]


@pytest.mark.parametrize("change", ["code", "lock", "base_image", "framework", "python", "module", "nothing"])
def test_the_tag_follows_what_goes_into_the_image(tmp_path: Path, change: str) -> None:
    """Each change of what the image is made of gives another tag; another folder with the same content gives none."""
    loaded = project(tmp_path / "one", framework="sklearn")
    before = image.identify_image(loaded, "cpu").uri
    settings = {"base_image": "python:3.12-slim", "framework": "sklearn-1.6", "python": "3.9"}
    build = {change: settings[change]} if change in settings else {}
    again = project(tmp_path / "two", **{"framework": "sklearn", **build})
    if change == "code":
        (tmp_path / "two/code/trainer/task.py").write_text("print('new')\n")
    if change == "lock":
        (tmp_path / "two/locks").mkdir()
        (tmp_path / "two/locks/trainer-cpu.txt").write_text("six==1.17.0\n")
    if change == "module":
        trainer = replace(again.project.trainer, module="trainer.other")
        again = replace(again, project=replace(again.project, trainer=trainer))
    after = image.identify_image(again, "cpu").uri
    assert (after == before) == (change == "nothing")


def test_a_repository_elsewhere(tmp_path: Path) -> None:
    """A repository with host and project is taken as it is."""
    loaded = project(tmp_path, repository="europe-docker.pkg.dev/images-project/shared", name="digits")
    assert image.identify_image(loaded, "gpu").uri.startswith("europe-docker.pkg.dev/images-project/shared/digits-gpu:")


# The files


def test_the_dockerfile_keeps_hadolint_s_rules(tmp_path: Path) -> None:
    """Hadolint finds nothing at all in any variant, with Debian packages too."""
    hadolint = need("hadolint")
    for number, (framework, kind) in enumerate(RECIPES):
        loaded = project(tmp_path, framework=framework, apt=["libgomp1"] if number % 2 else [])
        (tmp_path / f"{framework}-{kind}.Dockerfile").write_text(image.identify_image(loaded, kind).dockerfile)
    words = [hadolint, "--no-color", *tmp_path.glob("*.Dockerfile")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize(("framework", "kind"), RECIPES)
def test_the_dockerfile_as_our_own_reader_takes_it(tmp_path: Path, framework: str, kind: str) -> None:
    """Two stages of one tagged base, an entry point that gets args, hashes held by pip, and no other user than root, on
    which hypertune depends.
    """
    made = image.identify_image(project(tmp_path, framework=framework), kind)
    read = dockerfile.parse(made.dockerfile)
    assert read.base == made.base == f"python:{made.python}-slim-bookworm"
    assert (read.entrypoint, read.shell, read.cmd) == (("python", "-m", "trainer.task"), False, ())
    assert made.dockerfile.count("\nFROM ") == 2 and "--require-hashes" in made.dockerfile
    assert not re.search(r"(?m)^USER ", made.dockerfile) and "hypertune" in made.dockerfile
    assert read.environment["PATH"].startswith("/opt/venv/bin:")
    assert ("LD_LIBRARY_PATH" in read.environment) == (kind == "gpu")


def test_debian_packages_are_installed_in_the_image_that_runs(tmp_path: Path) -> None:
    """`build.apt` is one layer of the last stage."""
    text = image.identify_image(project(tmp_path, apt=["libgomp1", "libgl1"]), "cpu").dockerfile
    build, _, last = text.partition("\nFROM ")[2].partition("\nFROM ")
    assert "apt-get" not in build and "install --yes --no-install-recommends libgomp1 libgl1 \\\n" in last


def test_the_debian_packages_that_wheels_need_are_proposed(tmp_path: Path) -> None:
    """By the lock file: the distribution, the package, the line to write and the source; what is there is not named again."""
    loaded = project(tmp_path)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/trainer-cpu.txt").write_text(
        "lightgbm==4.7.0 \\\n    --hash=sha256:0\nopencv-python-headless==5.0.0\n"
    )
    made = image.identify_image(loaded, "cpu")
    (said,) = image.system_packages(made, ())
    assert re.match(
        r"lightgbm needs libgomp1, which python:.*-bookworm lacks: build: \{apt: \[libgomp1\]\} \(its wheel", said
    )
    assert image.system_packages(made, ["libgomp1"]) == []


def test_a_base_with_a_digest_is_in_both_stages(tmp_path: Path) -> None:
    """`base_image` is taken as it is, and the hint at a digest is gone."""
    base = f"python:3.12-slim@sha256:{'0' * 64}"
    text = image.identify_image(project(tmp_path, base_image=base), "cpu").dockerfile
    assert text.count(f"FROM {base}") == 2 and "by its digest" not in text


@pytest.mark.parametrize(
    "given",
    [
        {"base_image": "python:3.12\nRUN curl evil | sh"},
        {"base_image": "a b"},
        {"base_image": "--platform=x"},
        {"lock": "../x"},
        {"framework": "tf-2.21\nx"},
        {"framework": "tensorflow"},
        {"python": "3.12\nRUN x"},
        {"python": "3.12-slim@x"},
        {"repository": "x/../y"},
        {"repository": "evil.example.com/p/r"},
        {"repository": "us-docker.pkg.dev/p/r --push"},
        {"name": "a:b"},
        {"name": "a/../b"},
        {"apt": ["libgomp1; curl evil | sh"]},
        {"apt": ["-o=x"]},
        {"apt": ["libgomp1\n"]},
    ],
)
def test_a_value_that_would_be_more_than_a_value_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    """A line break or blank would be an instruction of the Dockerfile, and the lock files stay in the project."""
    with pytest.raises(ConfigError, match=next(iter(given))):
        image.identify_image(project(tmp_path, **given), "cpu")


@pytest.mark.whole
def test_cloud_build_s_own_reader_takes_the_config(tmp_path: Path) -> None:
    """Gcloud reads the config before it asks who one is; a misspelt field would end there."""
    need("gcloud")
    loaded = project(tmp_path)
    lock_nothing(loaded, "cpu")
    made = image.identify_image(loaded, "cpu")
    wheel = locking.wheel_of(loaded).wheel
    assert wheel is not None
    folder = image.stage(made, wheel, tmp_path / "context")

    def submit() -> str:
        words = image.build_commands(made, folder, "my-project", "us-central1")["gcloud"][0]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CLOUDSDK_CONFIG": str(tmp_path / "gcloud")}
        return gcloud_run(*words[1:], "--quiet", cwd=tmp_path, env=env).stderr

    assert "as build config" not in (said := submit()) and "auth" in said
    text = (folder / "cloudbuild.yaml").read_text()
    (folder / "cloudbuild.yaml").write_text(text.replace('"images"', '"imagez"'))
    assert "as build config: .imagez: unused" in submit()


def test_compiled_code_is_refused(tmp_path: Path) -> None:
    """A wheel for this machine may not run in the image, and what to do is said."""
    loaded = project(tmp_path)
    with pytest.raises(PackageError, match="compiled code for this machine.*image: custom"):
        image.stage(image.identify_image(loaded, "cpu"), Path("t-1-cp311-cp311-linux_x86_64.whl"), tmp_path / "out")


def test_a_kind_without_an_image_names_those_that_have_one(tmp_path: Path) -> None:
    """scikit-learn has no image for TPUs."""
    project(tmp_path, framework="sklearn-1.6")
    done = vertexrig("render", "tpu", cwd=tmp_path)
    assert (
        done.returncode == 2 and "framework sklearn has no TPU image. These have one: jax, pytorch, tf" in done.stderr
    )


# Checks


def test_checks_know_the_image(tmp_path: Path) -> None:
    """A missing lock file; the trainer's Python; another machine's image; a module that is not there; TensorFlow's Keras."""
    task = "from tensorflow import keras\nimport tensorflow as tf\nSTRATEGY = tf.distribute.MultiWorkerMirroredStrategy()\n"
    task += "with STRATEGY.scope():\n    model = keras.Sequential()\nmodel.compile()\nmodel.fit(1)\n"
    uri = image.identify_image(project(tmp_path, task=task, framework="tf-2.21"), "cpu").uri
    jobs = {
        **JOBS,
        "mixed": {**GPU, "container": {"image_uri": uri}},
        "lost": {**JOBS["cpu"], "module": "trainer.nowhere"},
        "many": {"topology": "multi-worker", "machine_type": "n1-standard-4", "worker": {"replica_count": 2}},
    }
    loaded = project(tmp_path, task=task, framework="tf-2.21", jobs=jobs)

    def findings(name: str, of: config.Loaded = loaded) -> dict[str, str]:
        return {finding.id: finding.message for finding in Workspace(of).prepare(name).findings}

    assert "locks/trainer-cpu.txt" in findings("cpu")["image-lock"] and "image-hypertune" not in findings("cpu")
    assert "has no GPU support" in findings("mixed")["image-accelerator"]
    assert any("trainer.nowhere" in message for message in findings("lost").values())
    assert any("TensorFlow 2.21" in message for message in findings("many").values())
    older = project(tmp_path, task=task, framework="tf-2.15", jobs=jobs)
    assert not any("TensorFlow 2.15" in message for message in findings("many", older).values())
    (tmp_path / "code/setup.py").unlink()
    (tmp_path / "code/pyproject.toml").write_text(
        '[project]\nname = "trainer"\nversion = "1"\nrequires-python = ">=3.13"\n'
    )
    assert ">=3.13, and trainer-cpu has 3.12" in findings("cpu", project_as(loaded, python="3.12"))["image-python"]
    assert "image-python" not in findings("cpu", project_as(loaded, python="3.13"))


def project_as(loaded: config.Loaded, **build: str) -> config.Loaded:
    trainer = loaded.project.trainer
    trainer = replace(trainer, build=replace(trainer.build, **build))
    return replace(loaded, project=replace(loaded.project, trainer=trainer))
