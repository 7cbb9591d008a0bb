"""Google's published PyTorch samples, unchanged, on the local Vertex.

They come from a checkout of GoogleCloudPlatform/vertex-ai-samples that the environment variable VERTEX_AI_SAMPLES names;
nothing of it is in this repository. Their data set cannot be downloaded everywhere, so the image that they run in has a
torchvision of our own (`tests/standins`), with scikit-learn's digits in the form of MNIST.
"""

from __future__ import annotations

import os
import re
import site
import venv
from pathlib import Path

import pytest

from tests.support import notebook
from tests.support.tools import REPOSITORY, module, vertexrig

GLOO = "notebooks/official/training/multi_node_ddp_gloo_vertex_training_with_custom_container.ipynb"
STANDINS = REPOSITORY / "tests/standins"
PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-project-vertexrig
local:
  gs_paths: mapped # the sample writes to /gcs, which a container has and this machine does not
  images: {"*/tf_serving": {path: trainer, command: [python, -m, task]}}
  interpreters: {"*/tf_serving": %s}
"""


def published(name: str) -> Path:
    """A file of the checkout that VERTEX_AI_SAMPLES names; without one the test skips."""
    folder = os.environ.get("VERTEX_AI_SAMPLES", "")
    if not folder:
        pytest.skip("VERTEX_AI_SAMPLES names no checkout of github.com/GoogleCloudPlatform/vertex-ai-samples")
    if not Path(folder, name).is_file():
        pytest.fail(f"VERTEX_AI_SAMPLES={folder} has no {name}")
    return Path(folder, name).absolute()


def image(folder: Path) -> None:
    """A Python environment with what this one has and the stand-ins, in place of the sample's image."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "around.pth").write_text("\n".join([str(STANDINS), *site.getsitepackages()]) + "\n")


@pytest.mark.whole
def test_the_notebook_on_gloo_trains_one_model_in_four_replicas(tmp_path: Path) -> None:
    """Google's notebook, unchanged: its script alone, then the same as a CustomContainerTrainingJob of four replicas, which
    meet over gloo by the variables of the service and train one model.
    """
    for name in ("torch", "sklearn", "tensorboard", "google.cloud.aiplatform"):
        module(name)
    sample = published(GLOO)
    (tmp_path / "vertexrig.yaml").write_text(PROJECT % (tmp_path / "image/bin/python"))
    (tmp_path / "trainer").mkdir()  # what `! mkdir` would make
    image(tmp_path / "image")
    given = [
        "PROJECT_ID=my-project",
        "BUCKET_URI=gs://my-project-vertexrig",
        "SERVICE_ACCOUNT=me@my-project.iam.gserviceaccount.com",
    ]
    done = vertexrig(
        "local", "run", "--", "image/bin/python", str(REPOSITORY / "tests/support/notebook.py"), str(sample), *given, cwd=tmp_path
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "training pipeline" in done.stderr and "SUCCEEDED" in done.stderr, done.stderr[-3000:]
    written = next(text for text in notebook.cells(sample) if text.startswith("%%writefile") and "/task.py" in text)
    assert (tmp_path / "trainer/task.py").read_text() == written.partition("\n")[2]

    logs = "\n".join(file.read_text() for file in tmp_path.glob(".vertexrig/jobs/*/logs/workerpool*"))
    met = re.findall(r"world_size = (\d+), rank = (\d+), backend=(\w+)", logs)
    assert sorted(met) == [("4", str(rank), "gloo") for rank in range(4)], logs[-3000:]
    (last,) = re.findall(r"Epoch: 25/25,.*test acc: ([\d.]+)%", logs)  # the chief's alone
    assert float(last) > 80
    assert list(tmp_path.glob(".vertexrig/gs/my-project-vertexrig/*/logs/*tfevents*"))
