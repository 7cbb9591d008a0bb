"""One failing and one passing job per rule on what a trainer reads from buckets, and on what the processes of a replica share."""

from __future__ import annotations

from tests.vertexrig.checks.cases import Case

POOLS = "workerPoolSpecs"
PROGRAM = f"{POOLS}[0].pythonPackageSpec"
ARGS = f"{PROGRAM}.args"
FLAGS = (
    "import argparse\nimport numpy as np\np = argparse.ArgumentParser()\np.add_argument('--data', default='data.npy')\n"
)
FLAGS += "args = p.parse_args()\n"
FROM_FLAG = f"{FLAGS}x = np.load(args.data)\n"
SORTED_OUT = f"{FLAGS}x = fetch(args.data) if args.data.startswith('gs://') else np.load(args.data)\n"
CSV = "import pandas as pd\nframe = pd.read_csv('gs://my-bucket/rows.csv')\n"
TO_CSV = "import pandas as pd\nframe = pd.DataFrame()\nframe.to_csv('gs://my-bucket/rows.csv')\n"
LOADER = "import os\nimport torch\nfrom torch.utils.data import DataLoader\nloader = DataLoader([1], num_workers={})\n"
WORKERS = (
    "import argparse\nimport torch\np = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default={})\n"
    "args = p.parse_args()\nloader = torch.utils.data.DataLoader([1], num_workers=args.workers)\n"
)

OUT = f"{ARGS}[0]"
_PARSER = "import argparse, os, joblib\np = argparse.ArgumentParser()\np.add_argument('--out', default={})\na = p.parse_args()\n"
WRITES = _PARSER.format("'out'") + "os.makedirs(a.out, exist_ok=True)\njoblib.dump({}, a.out + '/model.joblib')\n"
BY_DEFAULT = _PARSER.format("os.environ['AIP_MODEL_DIR']") + "joblib.dump({}, os.path.join(a.out, 'model.joblib'))\n"
MAPPED = WRITES.replace("os.makedirs", "a.out = a.out.replace('gs://', '/gcs/')\nos.makedirs")

OR_VARIABLE = _PARSER.format("None").replace("'out'", "None") + "os.makedirs(a.out or os.environ['AIP_MODEL_DIR'])\n"
VARS = "import argparse, os\np = argparse.ArgumentParser()\np.add_argument('--out')\na = vars(p.parse_args())\nos.makedirs(a['out'])\n"
_IMPORTS = "import argparse, os\nfrom pathlib import Path\np = argparse.ArgumentParser()\np.add_argument('--out')\np.add_argument('--data')\n"
BESIDE = (
    _IMPORTS + "a = p.parse_args()\nif a.data.startswith('gs://'):\n  print(a.data)\nout = Path(a.out)\nout.mkdir()\n"
)
HELPED = (
    _IMPORTS
    + "a = p.parse_args()\ndef far(p):\n  return p.startswith('gs://')\nd = '/tmp/o' if far(a.out) else a.out\nos.makedirs(a.out)\n"
)
CHOSEN = (
    _IMPORTS
    + "a = p.parse_args()\ndef near(p):\n  os.makedirs(p)\ndef far(p):\n  pass\nif input():\n  far(a.out)\nelse:\n  near(a.out)\n"
)
ADDRESS = WRITES + "print(f'saved to gs://{a.out}')\n"
KERAS = (
    "import argparse, os\nimport tensorflow as tf\nfrom tensorflow.keras.models import save_model\n"
    "p = argparse.ArgumentParser()\np.add_argument('--out')\na = p.parse_args()\nmodel = tf.keras.Sequential()\n"
)

READING = (
    Case("gs-path-opened", "job", {}, {ARGS: ["--out=/gcs/my-bucket/o"]}, PROGRAM, OR_VARIABLE),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=/gcs/my-bucket/o"]}, OUT, VARS),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=/gcs/my-bucket/o"]}, OUT, ADDRESS),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=gs://my-bucket/o"]}, OUT, BESIDE, HELPED),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=gs://my-bucket/o"]}, OUT, BESIDE, CHOSEN),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=/gcs/my-bucket/o"]}, OUT, WRITES),
    Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=gs://my-bucket/o"]}, OUT, WRITES, MAPPED),
    Case("gs-path-opened", "job", {}, {ARGS: ["--out=/gcs/my-bucket/o"]}, PROGRAM, BY_DEFAULT),
    Case("gs-path-read", "job", {}, {}, PROGRAM, "x = open('gs://my-bucket/a')\n", "x = open('/gcs/my-bucket/a')\n"),
    Case("gs-path-read", "job", {ARGS: ["--data=gs://my-bucket/a.npy"]}, {ARGS: ["--data=/gcs/my-bucket/a.npy"]},
         f"{ARGS}[0]", FROM_FLAG),
    Case("gs-path-read", "job", {ARGS: ["--data=gs://my-bucket/a.npy"]}, {ARGS: ["--data=gs://my-bucket/a.npy"]},
         f"{ARGS}[0]", FROM_FLAG, SORTED_OUT),
    Case("gs-path-read", "job", {}, {}, PROGRAM, CSV, f"import gcsfs\n{CSV}"),
    Case("gs-path-read", "job", {}, {}, PROGRAM, TO_CSV, TO_CSV.replace("pandas as pd", "polars as pd")),
    Case("gs-path-read", "job", {}, {}, PROGRAM, TO_CSV, f"{TO_CSV}import gcsfs\n"),
    *(Case("gs-path-opened", "job", {ARGS: ["--out=gs://my-bucket/o"]}, {ARGS: ["--out=gs://my-bucket/o"]}, OUT,
           f"{KERAS}{save}\n", f"{KERAS}{save.replace('.h5', '.keras')}\n")
      for save in (
          "model.save(os.path.join(a.out, 'model.h5'))", "tf.keras.models.save_model(model, f'{a.out}/model.h5')",
          "save_model(model, filepath=a.out + '/model.h5')", "name = 'model.h5'\nmodel.save(a.out + name)",
          "c = tf.keras.callbacks.ModelCheckpoint(a.out + '/{epoch}.h5')",
      )),
)  # fmt: skip
PROCESSES = (
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format(4), LOADER.format(0)),
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format("os.cpu_count()"), LOADER.format(0)),
    Case("loader-shared-memory", "job", {ARGS: ["--workers=2"]}, {}, PROGRAM, WORKERS.format(0)),
    Case("loader-shared-memory", "job", {ARGS: ["--workers=2"]}, {ARGS: ["--workers=²"]}, PROGRAM, WORKERS.format(0)),
    Case("loader-shared-memory", "job", {}, {ARGS: ["--workers=0"]}, PROGRAM, WORKERS.format(8)),
    Case("loader-shared-memory", "job", {}, {}, PROGRAM, LOADER.format(4), LOADER.format(4) + "print('/dev/shm')\n"),
)  # fmt: skip
