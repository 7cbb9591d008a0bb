"""The trainer's own image, really built by buildah and run: what the entry point leaves is looked at. `make test-image` runs it.

Nothing is pulled: the base image is Debian with its own Python, made by debootstrap and named by `build.base_image`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.tools import REPOSITORY, need, vertexrig

FOLDER = os.environ.get("TEST_IMAGE", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="builds images, which takes minutes: make test-image")
BASE, PYTHON = "localhost/vertexrig-base:bookworm", "3.11"  # Debian bookworm's Python
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# A folder of wheels that pip is configured with is uv's and the build's, too.
WHEELS = os.environ.get("PIP_FIND_LINKS", "")
MOUNTS = [f"--volume={WHEELS}:{WHEELS}:ro"] if Path(WHEELS).is_dir() and WHEELS else []
#: What both other trainers end with: a model and a summary, as Vertex AI's folder has them.
SAVE = """
import json, os, pathlib
model = pathlib.Path(os.environ["AIP_MODEL_DIR"])
model.mkdir(parents=True, exist_ok=True)
"""
TRAINERS = {
    "lightgbm": (
        """
import lightgbm
import numpy as np
x = np.random.default_rng(0).random((200, 3))
y = (x[:, 0] > 0.5).astype(int)
trained = lightgbm.train({"objective": "binary", "verbose": -1}, lightgbm.Dataset(x, y), num_boost_round=10)
accuracy = float(((trained.predict(x) > 0.5) == y).mean())
"""
        + SAVE
        + 'trained.save_model(str(model / "model.txt"))\n'
    ),
    "torch": (
        """
import torch
torch.manual_seed(0)
x = torch.rand(200, 3)
y = (x[:, :1] > 0.5).float()
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
for _ in range(300):
    optimizer.zero_grad()
    torch.nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
    optimizer.step()
accuracy = float(((net(x) > 0) == (y > 0)).float().mean())
"""
        + SAVE
        + 'torch.save(net.state_dict(), model / "model.pt")\n'
    ),
}
SUMMARY = '(model / "summary.json").write_text(json.dumps({"accuracy": accuracy}))\n'
APT = {"lightgbm": "libgomp1"}


def buildah(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run buildah with a storage of its own."""
    place = Path(FOLDER).resolve()
    storage = [f"--root={place / 'storage'}", f"--runroot={place / 'run'}"]
    done = subprocess.run([need("buildah"), *storage, *words], capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def base() -> str:
    """The base image, made once and kept in the folder."""
    need("buildah")
    bootstrap = need("debootstrap")
    if os.geteuid() != 0:
        pytest.skip("debootstrap needs root")
    if not buildah("images", "--quiet", BASE, check=False).stdout.strip():
        root = Path(FOLDER).resolve() / "base"
        shutil.rmtree(root, ignore_errors=True)
        packages = "--include=python3,python3-venv,python-is-python3,ca-certificates"
        mirror = "http://deb.debian.org/debian"
        subprocess.run([bootstrap, "--variant=minbase", packages, "bookworm", str(root), mirror], check=True)
        # the network of this machine may have a certificate of its own
        shutil.copyfile(CERTIFICATES, f"{root}{CERTIFICATES}")
        (container,) = buildah("from", "scratch").stdout.split()
        buildah("add", container, str(root), "/")
        buildah("config", f"--env=PIP_CERT={CERTIFICATES}", f"--env=SSL_CERT_FILE={CERTIFICATES}", container)
        buildah("commit", container, BASE)
        buildah("rm", container)
        shutil.rmtree(root)
    return BASE


def built(project: Path) -> tuple[str, str]:
    """Build the image of a project's job `cpu` from what `vertexrig image` writes; its name, and what that verb said."""
    env = {"IMAGE": "build", **({"UV_FIND_LINKS": WHEELS} if MOUNTS else {})}
    done = vertexrig("image", "cpu", "--set", f"trainer.build.base_image={BASE}", cwd=project, env=env)
    assert done.returncode == 0, done.stderr
    uri, folder = done.stdout.strip(), project / "build/images/trainer-cpu"
    words = ["--isolation=chroot", "--layers", f"--tag={uri}", *MOUNTS]
    buildah("build", *words, str(folder))
    return uri, done.stderr


def ran(project: Path, uri: str, out: Path) -> subprocess.CompletedProcess[str]:
    """Run the image's own entry point with the arguments of the rendered job, and Vertex AI's folder for the model."""
    out.mkdir()
    rendered = vertexrig("render", "cpu", "-o", "-", "--no-check", cwd=project, env={"IMAGE": "build"}).stdout
    args = yaml.safe_load(rendered)["workerPoolSpecs"][0]["containerSpec"].get("args", [])
    (container,) = buildah("from", uri).stdout.split()
    entry = json.loads(buildah("inspect", container).stdout)["OCIv1"]["config"]["Entrypoint"]
    words = ["--isolation=chroot", f"--volume={out}:/out", "--env=AIP_MODEL_DIR=/out/model"]
    done = buildah("run", *words, container, "--", *entry, *args, check=False)
    buildah("rm", container)
    return done


def test_this_repository_s_image_trains(base: str, tmp_path: Path) -> None:
    """The image of this repository's trainer, from its lock file, trains an epoch and leaves a model and a summary."""
    for name in ("trainer_pkg", "locks"):
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    text = (REPOSITORY / "vertexrig.yaml").read_text()
    (tmp_path / "vertexrig.yaml").write_text(text.replace("args: {epochs: 15}", "args: {epochs: 1, model: dense}", 1))
    lock = (tmp_path / "locks/trainer-cpu.txt").read_text()
    uri, _ = built(tmp_path)
    assert (tmp_path / "locks/trainer-cpu.txt").read_text() == lock  # the one that is committed
    done = ran(tmp_path, uri, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "out/model/saved_model.pb").is_file()
    summary = json.loads((tmp_path / "out/model/summary.json").read_text())
    assert summary["epochs"] == 1 and 0 < summary["accuracy"] <= 1


@pytest.mark.parametrize("framework", TRAINERS)
def test_a_trainer_from_pip_trains(base: str, tmp_path: Path, framework: str) -> None:
    """A script with a requirements.txt becomes an image that trains; the Debian package that a wheel needs is proposed, and
    without it the image ends with the library's name.
    """
    need("uv")
    (tmp_path / "train.py").write_text(TRAINERS[framework] + SUMMARY)
    # PyPI's torch brings gigabytes of CUDA: where the folder of wheels has one for CPUs, that is the one
    here = [file.name.split("-")[1] for file in Path(WHEELS).glob(f"{framework}-*.whl")] if MOUNTS else []
    (tmp_path / "requirements.txt").write_text(f"{framework}{''.join(f'=={version}' for version in here[:1])}\nnumpy\n")
    file = tmp_path / "vertexrig.yaml"
    head = "project: p\nbucket: gs://my-bucket\njobs: {cpu: {machine_type: n1-standard-4, timeout: 600s}}\n"
    trainer = f"trainer: {{path: train.py, module: train, image: build, build: {{python: '{PYTHON}'"
    file.write_text(f"{head}{trainer}}}}}\n")
    uri, said = built(tmp_path)
    package = APT.get(framework)
    if package is not None:
        assert f"{framework} needs {package}" in said and f"apt: [{package}]" in said
        done = ran(tmp_path, uri, tmp_path / "without")
        assert done.returncode != 0 and f"{package.rstrip('1')}.so.1" in done.stderr
        file.write_text(f"{head}{trainer}, apt: [{package}]}}}}\n")
        uri, said = built(tmp_path)
    assert " needs " not in said
    done = ran(tmp_path, uri, tmp_path / "out")
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "out/model/summary.json").read_text())["accuracy"] > 0.9
    assert list((tmp_path / "out/model").glob("model.*"))
