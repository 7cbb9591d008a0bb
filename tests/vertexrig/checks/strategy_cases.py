"""One failing and one passing job per rule on a TensorFlow trainer's distribution strategies, and the trainers of these cases."""

from __future__ import annotations

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.job_bases import TRAINER_IMAGE as IMAGE
from tests.vertexrig.checks.job_bases import TRAINER_POOL as POOL
from tests.vertexrig.checks.job_bases import changed

WORKERS = changed(POOL, {"replicaCount": 2})
POOLS = "workerPoolSpecs"
ARGS = f"{POOLS}[0].pythonPackageSpec.args"
MACHINE = f"{POOLS}[0].machineSpec"
TWO_GPUS = {MACHINE: {"machineType": "n1-standard-8", "acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": 2}}
ONE_GPU = {f"{MACHINE}.acceleratorType": "NVIDIA_TESLA_T4", f"{MACHINE}.acceleratorCount": 1}
TPU = {MACHINE: {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8}}
NEW_TPU = {MACHINE: {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}}
MULTI = {f"{POOLS}[1]": WORKERS}
SERVERS = {**MULTI, f"{POOLS}[2]": POOL}
REDUCTION = {
    **MULTI,
    f"{POOLS}[2]": {
        "machineSpec": {"machineType": "n1-highcpu-16"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "us-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"},
    },
}


def makes(*strategies: str, keras: str = "import tf_keras") -> str:
    made = "\n".join(f"    strategy = tf.distribute.{name}()" for name in strategies)
    return f"import argparse\nimport tensorflow as tf\n{keras}\ndef main():\n    pass\n{made}\nmain()\n"


PLAIN, MIRRORED, WORKER = makes(), makes("MirroredStrategy"), makes("MultiWorkerMirroredStrategy")
SERVER, ON_TPU = makes("ParameterServerStrategy"), makes("TPUStrategy")
EVERY = makes("MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy")
FLAG = EVERY.replace(
    "    pass", '    p = argparse.ArgumentParser()\n    p.add_argument("--distribute", default="auto")'
)
FLAG = FLAG.replace("\nmain()", "\n    p.parse_args()\nmain()")
KERAS_3 = makes("MultiWorkerMirroredStrategy", keras="import keras")
TF_KERAS = makes("MultiWorkerMirroredStrategy", keras="model = tf.keras.Sequential()")
LEGACY = makes(
    "MultiWorkerMirroredStrategy", keras='import os; os.environ["TF_USE_LEGACY_KERAS"] = "1"; tf.keras.Sequential()'
)
PYTHON = f"{POOLS}[0].pythonPackageSpec"
OLD_IMAGE = IMAGE.replace("2-17", "2-15")

TF = "import tensorflow as tf\n"

CASES = [
    Case("tensorflow-names", "job", {}, {}, PYTHON, f"{TF}x = tf.placeholder(tf.float32)\n",
         f"{TF}x = tf.compat.v1.placeholder(tf.float32)\n"),
    Case("tensorflow-names", "job", {}, {}, PYTHON, "import tensorflow.contrib.layers as layers\n",
         "try:\n  import tensorflow.contrib.layers\nexcept ImportError:\n  pass\n"),
    Case("tensorflow-names", "job", {}, {}, PYTHON, "from tensorflow import set_random_seed\n", "from tensorflow import random\n"),
    Case("tensorflow-names", "job", {}, {f"{PYTHON}.executorImageUri": OLD_IMAGE}, PYTHON, f"{TF}c = tf.estimator.RunConfig()\n"),
    Case("tensorflow-names", "job", {}, {}, PYTHON, f"{TF}def run():\n  return tf.Session()\n",
         f"{TF}def run():\n  return tf.Session() if tf.__version__ < '2' else None\n", severity="warning"),
    Case("tensorflow-names", "job", {}, {}, PYTHON, f"{TF}tf.train.Saver()\n", "import mine as tf\ntf.train.Saver()\n"),
    Case("tensorflow-names", "job", {}, {}, PYTHON, f"{TF}tf.app.run()\n", f"{TF}tf = tf.v1()\ntf.app.run()\n"),
    Case("strategy-replicas", "job", MULTI, MULTI, f"{POOLS}[1]", MIRRORED, EVERY),
    Case("strategy-replicas", "job", MULTI, {}, f"{POOLS}[1]", PLAIN),
    Case("strategy-replicas", "job", MULTI, MULTI, f"{POOLS}[1]", MIRRORED, "import horovod.tensorflow\n" + MIRRORED),
    Case("strategy-servers", "job", SERVERS, SERVERS, f"{POOLS}[2]", WORKER, SERVER),
    Case("strategy-servers", "job", SERVERS, REDUCTION, f"{POOLS}[2]", WORKER),
    Case("strategy-server-pools", "job", {}, SERVERS, POOLS, SERVER),
    Case("strategy-server-pools", "job", MULTI, MULTI, POOLS, SERVER, EVERY),
    Case("strategy-worker-pools", "job", {}, MULTI, POOLS, WORKER),
    Case("strategy-tpu", "job", TPU, TPU, MACHINE, MIRRORED, EVERY),
    Case("strategy-tpu", "job", NEW_TPU, NEW_TPU, MACHINE, PLAIN, ON_TPU),
    Case("strategy-tpu", "job", {}, TPU, MACHINE, ON_TPU),
    Case("idle-gpus", "job", TWO_GPUS, TWO_GPUS, f"{MACHINE}.acceleratorCount", PLAIN, MIRRORED),
    Case("idle-gpus", "job", TWO_GPUS, ONE_GPU, f"{MACHINE}.acceleratorCount", makes("OneDeviceStrategy")),
    Case("strategy-argument", "job", {**MULTI, ARGS: ["--distribute=mirrored"]},
         {**MULTI, ARGS: ["--distribute=multi_worker"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {ARGS: ["--distribute", "MultiWorkerMirroredStrategy"]},
         {ARGS: ["--distribute", "auto"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**MULTI, ARGS: ["--distribute=parameter-server"]},
         {**SERVERS, ARGS: ["--distribute=parameter-server"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {ARGS: ["--distribute=tpu"]}, {**TPU, ARGS: ["--distribute=tpu"]}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**TPU, ARGS: ["--distribute=mirrored"]}, {**TPU}, f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", {**TWO_GPUS, ARGS: ["--distribute=cpu"]}, {ARGS: ["--distribute=cpu"]},
         f"{ARGS}[0]", FLAG),
    Case("strategy-argument", "job", MULTI, {}, ARGS, FLAG.replace("auto", "mirrored")),
    Case("keras-3-workers", "job", MULTI, {}, PYTHON, KERAS_3),
    Case("keras-3-workers", "job", MULTI, MULTI, PYTHON, TF_KERAS, LEGACY),
    Case("keras-3-workers", "job", MULTI, {**MULTI, f"{PYTHON}.executorImageUri": OLD_IMAGE,
                                    f"{POOLS}[1].pythonPackageSpec.executorImageUri": OLD_IMAGE}, PYTHON, KERAS_3),
    Case("keras-3-workers", "job", MULTI,
         {**MULTI, f"{PYTHON}.env": [{"name": "TF_USE_LEGACY_KERAS", "value": "1"}],
          f"{POOLS}[1].pythonPackageSpec.env": [{"name": "TF_USE_LEGACY_KERAS", "value": "1"}]}, PYTHON, TF_KERAS),
]  # fmt: skip
