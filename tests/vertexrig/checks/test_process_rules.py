"""The rules on what a trainer reads from buckets, and on what the processes of a replica share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.packages import trainer_of, trainer_with
from tests.vertexrig.checks.cases import context, document
from tests.vertexrig.checks.job_bases import TRAINER_JOB as JOB
from tests.vertexrig.checks.process_cases import CSV
from vertexrig.checks.trainer_files import gs_path_read
from vertexrig.trainer_source.trainer_model import TrainerSource


def messages(trainer: TrainerSource) -> list[str]:
    return [problem.message for problem in gs_path_read(document(JOB), context(trainer))]


@pytest.mark.parametrize(
    "call",
    [
        "open('gs://b/x')", "open(file='gs://b/x')", "np.load('gs://b/x')", "np.loadtxt(fname='gs://b/x')", "torch.load('gs://b/x')",
        "joblib.load(f'gs://b/{n}')", "Image.open('gs://b/' + n)", "h5py.File(os.path.join('gs://b', n))", "os.listdir('gs://b')",
        "os.path.exists('gs://b/x')", "Path('gs://b/x')", "np.load(DATA)", "fetch('gs://b/x')", "glob.glob('gs://b/*')",
        "torch.load(os.path.join(os.environ['AIP_CHECKPOINT_DIR'], 'x.pt'))",
    ],
)  # fmt: skip
def test_what_reads_files_of_the_machine(call: str) -> None:
    """Each of these raises FileNotFoundError, or finds nothing, whatever a bucket holds."""
    source = (
        "import glob, os, joblib, h5py, torch\nimport numpy as np\nfrom pathlib import Path\nfrom PIL import Image\n"
        f"DATA = 'gs://b/x'\nn = input()\ndef fetch(path):\n    return np.load(path)\n{call}\n"
    )
    if not call.startswith("fetch("):
        source = source.replace("def fetch(path):\n    return np.load(path)\n", "")
    assert len(messages(trainer_with(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ntf.io.gfile.GFile('gs://b/x')\n", "import pandas as pd\npd.read_parquet('gs://b/x')\n",
        "import gcsfs\nopen = gcsfs.GCSFileSystem().open\nopen('gs://b/x')\n", "import numpy as np\nnp.load(input())\n",
        "import numpy as np\nnp.load('gs://b/x'.replace('gs://', '/gcs/'))\n", "import fsspec\nfsspec.open('gs://b/x')\n",
    ],
)  # fmt: skip
def test_what_can_read_a_bucket_is_left_alone(source: str) -> None:
    """TensorFlow, pyarrow, fsspec, a function of the trainer's own, and a path that is changed first."""
    assert messages(trainer_with(source)) == []


def test_gcsfs_in_the_requirements_is_enough(tmp_path: Path) -> None:
    """Pandas imports gcsfs by itself, so the trainer need not."""
    (tmp_path / "requirements.txt").write_text("pandas\ngcsfs>=2024\n")
    assert messages(trainer_of(tmp_path, CSV)) == []
