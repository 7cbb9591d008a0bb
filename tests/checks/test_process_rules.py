"""The rules on what a trainer reads from buckets, and on what the processes of a replica share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import Case, context, document, must_accept, must_find, names, trainer_of
from job_bases import TRAINER_JOB as JOB
from job_bases import TRAINER_POOL as POOL
from job_bases import changed

from vertexrig.checks import processes, reading

POOLS = "workerPoolSpecs"
PROGRAM = f"{POOLS}[0].pythonPackageSpec"
ARGS = f"{PROGRAM}.args"
MULTI = {f"{POOLS}[1]": changed(POOL, {"replicaCount": 2})}
FLAGS = (
    "import argparse\nimport numpy as np\np = argparse.ArgumentParser()\np.add_argument('--data', default='data.npy')\n"
)
FLAGS += "args = p.parse_args()\n"
FROM_FLAG = f"{FLAGS}x = np.load(args.data)\n"
SORTED_OUT = f"{FLAGS}x = fetch(args.data) if args.data.startswith('gs://') else np.load(args.data)\n"
CSV = "import pandas as pd\nframe = pd.read_csv('gs://my-bucket/rows.csv')\n"
STRATEGY = (
    "import tensorflow as tf\nfrom http.server import HTTPServer, SimpleHTTPRequestHandler as Handler\n"
    "strategy = tf.distribute.{}\nserver = HTTPServer(('', {}), Handler)\n"
)
MIRRORED = "MultiWorkerMirroredStrategy()"
LOADER = "import os\nimport torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader([1], num_workers={})\n"
WORKERS = (
    "import argparse\nimport torch\np = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default={})\n"
    "args = p.parse_args()\nloader = torch.utils.data.DataLoader([1], num_workers=args.workers)\n"
)

CASES = [
    Case("gs-path-read", "job", {}, {}, PROGRAM, "x = open('gs://my-bucket/a')\n", "x = open('/gcs/my-bucket/a')\n"),
    Case("gs-path-read", "job", {ARGS: ["--data=gs://my-bucket/a.npy"]}, {ARGS: ["--data=/gcs/my-bucket/a.npy"]},
         f"{ARGS}[0]", FROM_FLAG),
    Case("gs-path-read", "job", {ARGS: ["--data=gs://my-bucket/a.npy"]}, {ARGS: ["--data=gs://my-bucket/a.npy"]},
         f"{ARGS}[0]", FROM_FLAG, SORTED_OUT),
    Case("gs-path-read", "job", {}, {}, PROGRAM, CSV, f"import gcsfs\n{CSV}"),
    Case("cluster-port", "job", MULTI, {}, PROGRAM, STRATEGY.format(MIRRORED, 2222)),
    Case("cluster-port", "job", MULTI, MULTI, PROGRAM, STRATEGY.format(MIRRORED, 2222), STRATEGY.format(MIRRORED, 8080)),
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format(4), LOADER.format(0)),
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format("os.cpu_count()"), LOADER.format(0)),
    Case("loader-shared-memory", "job", {ARGS: ["--workers=2"]}, {}, PROGRAM, WORKERS.format(0)),
    Case("loader-shared-memory", "job", {}, {ARGS: ["--workers=0"]}, PROGRAM, WORKERS.format(8)),
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format(4), LOADER.format(4) + "print('/dev/shm')\n"),
]  # fmt: skip
IDS = names(CASES)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_finds(case: Case, tmp_path: Path) -> None:
    """The rule finds the mistake, once, where it is."""
    must_find(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_accepts(case: Case, tmp_path: Path) -> None:
    """The rule has nothing to say about the job, or the trainer, beside it that is right."""
    must_accept(case, tmp_path)


def test_every_rule_has_cases() -> None:
    """No rule of the two modules is without a failing and a passing case."""
    assert {case.rule for case in CASES} == {rule.id for rule in (*processes.RULES, *reading.RULES)}


def messages(folder: Path, source: str, rules: Any, changes: dict[str, Any] | None = None) -> list[str]:
    around = context(trainer_of(folder, source))
    return [problem.message for rule in rules for problem in rule.run(document(JOB, changes or {}), around)]


@pytest.mark.parametrize(
    "call",
    [
        "open('gs://b/x')", "open(file='gs://b/x')", "np.load('gs://b/x')", "np.loadtxt(fname='gs://b/x')", "torch.load('gs://b/x')",
        "joblib.load(f'gs://b/{n}')", "Image.open('gs://b/' + n)", "h5py.File(os.path.join('gs://b', n))", "os.listdir('gs://b')",
        "os.path.exists('gs://b/x')", "Path('gs://b/x')", "np.load(DATA)", "fetch('gs://b/x')", "glob.glob('gs://b/*')",
        "torch.load(os.path.join(os.environ['AIP_CHECKPOINT_DIR'], 'x.pt'))",
    ],
)  # fmt: skip
def test_what_reads_files_of_the_machine(tmp_path: Path, call: str) -> None:
    """Each of these raises FileNotFoundError, or finds nothing, whatever a bucket holds."""
    source = (
        "import glob, os, joblib, h5py, torch\nimport numpy as np\nfrom pathlib import Path\nfrom PIL import Image\n"
        f"DATA = 'gs://b/x'\nn = input()\ndef fetch(path):\n    return np.load(path)\n{call}\n"
    )
    if not call.startswith("fetch("):
        source = source.replace("def fetch(path):\n    return np.load(path)\n", "")
    assert len(messages(tmp_path, source, reading.RULES)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import tensorflow as tf\ntf.io.gfile.GFile('gs://b/x')\n", "import pandas as pd\npd.read_parquet('gs://b/x')\n",
        "import gcsfs\nopen = gcsfs.GCSFileSystem().open\nopen('gs://b/x')\n", "import numpy as np\nnp.load(input())\n",
        "import numpy as np\nnp.load('gs://b/x'.replace('gs://', '/gcs/'))\n", "import fsspec\nfsspec.open('gs://b/x')\n",
    ],
)  # fmt: skip
def test_what_can_read_a_bucket_is_left_alone(tmp_path: Path, source: str) -> None:
    """TensorFlow, pyarrow, fsspec, a function of the trainer's own, and a path that is changed first."""
    assert messages(tmp_path, source, reading.RULES) == []


def test_gcsfs_in_the_requirements_is_enough(tmp_path: Path) -> None:
    """pandas imports gcsfs by itself, so the trainer need not."""
    (tmp_path / "requirements.txt").write_text("pandas\ngcsfs>=2024\n")
    assert messages(tmp_path, CSV, reading.RULES) == []


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("sock.bind(('0.0.0.0', 2222))", 2222), ("HTTPServer(('', PORT), None)", 2222), ("debugpy.listen(2222)", 2222),
        ("prometheus_client.start_http_server(2222)", 2222), ("server.add_insecure_port('[::]:2222')", 2222),
        ("app.run(host='0.0.0.0', port=2222)", 2222), ("subprocess.Popen(['tensorboard', '--port', '2222'])", 2222),
        ("os.system('ray start --head --port=2222')", 2222), ("sock.listen(2222)", None), ("run(2222)", None),
        ("sock.connect(('a', 2222))", None), ("sock.bind(('', input()))", None),
    ],
)  # fmt: skip
def test_which_port_a_call_listens_on(tmp_path: Path, line: str, port: int | None) -> None:
    """A plain number, a host and a port, an address, and the --port of a program; no queue lengths and no clients."""
    trainer = trainer_of(tmp_path, f"import debugpy, os, socket, subprocess\nPORT = 2222\n{line}\n")
    assert [one.port for one in trainer.listens] == ([port] if port else [])
