"""One failing and one passing job spec per rule, written as edits of the valid specs of `job_bases`."""

from __future__ import annotations

from datetime import date
from typing import Any

from tests.vertexrig.checks.cases import Case
from tests.vertexrig.checks.job_bases import (
    C0,
    D0,
    DROP,
    IMAGE,
    L4,
    LATER,
    M0,
    M1,
    P0,
    PREBUILT,
    REDUCER,
    T,
    pool,
)


def _disk(kind: str = "pd-ssd", size: int = 100) -> dict[str, Any]:
    return {"bootDiskType": kind, "bootDiskSizeGb": size}


_ARM = f"{M0}.machineType"
_TORCHRUN = {"workerPoolSpecs[0].containerSpec.command": ["torchrun", "--nproc_per_node=4", "train.py"]}
_A4X = {_ARM: "a4x-highgpu-4g", f"{M0}.acceleratorType": "NVIDIA_GB200", f"{M0}.acceleratorCount": 4}
_H200 = {_ARM: "a3-ultragpu-8g", f"{M0}.acceleratorType": "NVIDIA_H200_141GB"}
_B200 = {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200", f"{M0}.acceleratorCount": 8}
_H200_POOL = pool("a3-ultragpu-8g", acceleratorType="NVIDIA_H200_141GB", acceleratorCount=8)
_NCCL = ["source /usr/local/gib/scripts/set_nccl_env.sh && python -m trainer.task"]
_ANY = {"reservationAffinityType": "ANY_RESERVATION"}
_SPECIFIC = {
    "reservationAffinityType": "SPECIFIC_RESERVATION",
    "key": "compute.googleapis.com/reservation-name",
    "values": ["projects/p/zones/us-central1-a/reservations/r"],
}
_NETWORK = {"network": "projects/123/global/networks/vpc"}
_PSC = {"pscInterfaceConfig": {"networkAttachment": "attachment"}}
_NFS = {"server": "10.0.0.2", "path": "/share", "mountPoint": "data"}
_LUSTRE = {"instanceIp": "10.0.0.2", "volumeHandle": "v", "filesystem": "lustre", "mountPoint": "data"}
_ACCOUNT = {"serviceAccount": "trainer@my-project.iam.gserviceaccount.com"}
_BOARD = "projects/1/locations/us-central1/tensorboards/2"
_KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
_CONTEXT = "projects/p/locations/us-central1/metadataStores/default/contexts/e"

HARDWARE = (
    Case("machine-missing", "gpu", {_ARM: DROP}),
    Case("machine-missing", "cpu", {M0: DROP, "workerPoolSpecs[0].replicaCount": DROP}),
    Case("machine-unknown", "cpu", {_ARM: "n1-standard-9"}, {_ARM: "n2-standard-8"}, severity="error"),
    Case("machine-not-for-training", "cpu", {_ARM: "n1-standard-1"}),
    Case("machine-not-for-training", "cpu", {_ARM: "m3-ultramem-32"}),
    Case("machine-not-for-training", "cpu", {_ARM: "n1-standard-2"}, severity="warning"),
    Case("accelerator-pair", "gpu", {f"{M0}.acceleratorCount": DROP}, {f"{M0}.acceleratorCount": 2}),
    Case("accelerator-pair", "gpu", {f"{M0}.acceleratorType": DROP}),
    Case("accelerator-pair", "gpu", {f"{M0}.acceleratorCount": 0}),
    Case("accelerator-pair", "gpu", {f"{M0}.acceleratorType": "ACCELERATOR_TYPE_UNSPECIFIED"}),
    Case("accelerator-missing", "l4", {f"{M0}.acceleratorType": DROP, f"{M0}.acceleratorCount": DROP}),
    Case("accelerator-on-machine", "gpu", {_ARM: "e2-standard-8"}),
    Case("accelerator-on-machine", "l4", {_ARM: "n1-standard-8"}),
    Case("accelerator-count", "gpu", {f"{M0}.acceleratorCount": 3}, {f"{M0}.acceleratorCount": 4}),
    Case("accelerator-count", "l4", {f"{M0}.acceleratorCount": 8}),
    Case("accelerator-count", "gpu", {f"{M0}.acceleratorCount": -1}),
    Case("accelerator-count", "tpu-v3", {f"{M0}.acceleratorCount": 4}, {f"{M0}.acceleratorCount": 64}),
    Case("accelerator-count", "tpu-v3", {f"{M0}.acceleratorCount": 40}, severity="warning"),
    Case("accelerator-retired", "gpu", {f"{M0}.acceleratorType": "NVIDIA_TESLA_K80"}),
    Case("accelerator-retired", "gpu", {f"{M0}.acceleratorType": "NVIDIA_TESLA_P100"}, severity="warning", today=LATER),
    Case("accelerator-retired", "gpu", {f"{M0}.acceleratorType": "NVIDIA_TESLA_P100"}, severity="info"),
    Case("gpu-on-small-machine", "gpu", {_ARM: "n1-highmem-2"}, {_ARM: "n1-highmem-4"}),
    Case("gpu-partition", "h100", {f"{M0}.gpuPartitionSize": "1g.10gb"},
         {f"{M0}.gpuPartitionSize": "1g.10gb", _ARM: "a3-highgpu-1g", f"{M0}.acceleratorCount": 1,
          "scheduling.strategy": "SPOT"}),
    Case("gpu-partition", "cpu", {f"{M0}.gpuPartitionSize": "1g.10gb"}),
    Case("gpu-shared", "gpu", {f"{M0}.acceleratorCount": 2, **_TORCHRUN}, {f"{M0}.acceleratorCount": 4, **_TORCHRUN},
         "workerPoolSpecs[0].containerSpec"),
    Case("gpu-one-zone", "workers", {f"{M1}.acceleratorType": "NVIDIA_TESLA_P4"}),
    Case("gpu-rdma", "h100", {_ARM: "a3-ultragpu-8g", f"{M0}.acceleratorType": "NVIDIA_H200_141GB",
                              "workerPoolSpecs[1]": pool("a3-ultragpu-8g", acceleratorType="NVIDIA_H200_141GB",
                                                          acceleratorCount=8)},
         {_ARM: "a3-ultragpu-8g", f"{M0}.acceleratorType": "NVIDIA_H200_141GB"}),
    Case("gpu-rdma", "h100", {**_H200, "workerPoolSpecs[1]": _H200_POOL},
         {**_H200, "workerPoolSpecs[1]": _H200_POOL, f"{C0}.args": _NCCL,
          "workerPoolSpecs[1].containerSpec.args": _NCCL}),
    Case("reservation-needed", "h100", _A4X, {**_A4X, f"{M0}.reservationAffinity": _ANY}),
    Case("not-on-demand", "h100", {_ARM: "a3-highgpu-2g", f"{M0}.acceleratorCount": 2},
         {_ARM: "a3-highgpu-2g", f"{M0}.acceleratorCount": 2, "scheduling.strategy": "FLEX_START"}),
    Case("scarce-capacity", "h100", {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200"}),
    Case("scarce-capacity", "h100", {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200"},
         {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200", "scheduling.strategy": "SPOT"}),
    Case("scarce-capacity", "h100", {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200"},
         {_ARM: "a4-highgpu-8g", f"{M0}.acceleratorType": "NVIDIA_B200", f"{M0}.reservationAffinity": _ANY}),
    Case("small-memory", "cpu", {_ARM: "n1-standard-4"}),
)  # fmt: skip

TPU = (
    Case("tpu-topology-missing", "tpu-v5e", {f"{M0}.tpuTopology": DROP}),
    Case("tpu-topology", "tpu-v5e", {f"{M0}.tpuTopology": "2x3"}, {f"{M0}.tpuTopology": "4x4"}),
    Case("tpu-topology", "tpu-v6e", {f"{M0}.tpuTopology": "2x2"}),
    Case("tpu-topology-machine", "tpu-v3", {f"{M0}.tpuTopology": "2x2"}),
    Case("tpu-topology-machine", "cpu", {f"{M0}.tpuTopology": "2x2"}),
    Case("tpu-accelerator-fields", "tpu-v6e", {f"{M0}.acceleratorType": "TPU_V5_LITEPOD", f"{M0}.acceleratorCount": 8}),
    Case("tpu-accelerator-fields", "tpu-v5e", {f"{M0}.acceleratorType": "TPU_V5_LITEPOD", f"{M0}.acceleratorCount": 4},
         severity="warning"),
    Case("tpu-accelerator-fields", "tpu-v6e", {f"{M0}.acceleratorCount": 8}),
    Case("tpu-one-pool", "tpu-v3", {"workerPoolSpecs[1]": pool("n1-standard-8")}),
    Case("tpu-one-replica", "tpu-v5e", {"workerPoolSpecs[0].replicaCount": 2}, also=("chief-replicas",)),
    Case("tpu-in-study", "sweep", {f"{T}{M0}": {"machineType": "ct5lp-hightpu-4t", "tpuTopology": "2x2"}}),
    Case("tpu-in-study", "sweep", {f"{T}{M0}": {"machineType": "cloud-tpu-v4-podslice"}}, also=("machine-unknown",)),
    Case("tpu-spot-pod", "tpu-v5e", {f"{M0}.tpuTopology": "4x4", "scheduling.strategy": "SPOT"},
         {"scheduling.strategy": "SPOT"}),
    Case("tpu-spot-pod", "tpu-v3", {f"{M0}.acceleratorCount": 32, "scheduling.strategy": "SPOT"}),
    Case("tpu-flex-start", "tpu-v3", {"scheduling.strategy": "FLEX_START"}),
    Case("tpu-v5e-environment", "tpu-v5e", {},
         {f"{C0}.env": [{"name": "NEXT_PLUGGABLE_DEVICE_USE_C_API", "value": "true"},
                        {"name": "TF_PLUGGABLE_DEVICE_LIBRARY_PATH", "value": "/lib/libtpu.so"}]}),
    Case("tpu-pod-command", "tpu-v3", {f"{M0}.acceleratorCount": 32, f"{C0}.command": ["python", "train.py"]},
         {f"{M0}.acceleratorCount": 32}),
)  # fmt: skip

REGIONS = (
    Case("region-unknown", "cpu", {}, region="us-foo1", ok_region="us-central1"),
    Case("region-unknown", "cpu", {}, region="asia-south2", ok_region="europe-west4"),
    Case("region-accelerator", "gpu", {}, region="europe-west6", ok_region="us-central1"),
    Case("region-accelerator", "tpu-v5e", {}, region="europe-west1", ok_region="us-west4"),
    Case("region-not-for-training", "l4", {}, region="europe-west6", ok_region="us-central1"),
    Case("region-not-for-training", "tpu-v5e", {}, region="europe-west4", ok_region="us-central1"),
    Case("region-machine", "cpu", {_ARM: "m1-ultramem-40"}, region="us-south1", also=("quota-zero",),
         ok_region="us-central1"),
    Case("protected-location", "cpu", {"protectedArtifactLocationId": "us-central1"},
         {"protectedArtifactLocationId": "europe-west4"}, region="us-central1", ok_region="us-central1"),
)  # fmt: skip

QUOTA = (
    Case("quota-draw", "gpu", {}, {"persistentResourceId": "my-cluster"}),
    Case("quota-zero", "l4", {}, {"scheduling.strategy": "SPOT"}, region="us-central1", ok_region="us-central1"),
    Case("quota-small", "workers", {"workerPoolSpecs[1].replicaCount": 12}, region="us-central1",
         ok_region="us-central1"),
    Case("quota-small", "cpu", {"scheduling.strategy": "SPOT"}, region="us-central1", ok_region="us-central1"),
    Case("quota-disk", "cpu", {D0: _disk("pd-ssd", 500)}, {D0: _disk("pd-standard", 500)},
         region="europe-north1", ok_region="europe-north1"),
)  # fmt: skip

CLUSTER = (
    Case("pools-missing", "cpu", {"workerPoolSpecs": DROP}, severity="warning"),
    Case("pools-missing", "cpu", {"workerPoolSpecs": []}, severity="error"),
    Case("pools-missing", "sweep", {"trialJobSpec": DROP}, also=("trial-timeout",)),
    Case("chief-empty", "workers", {"workerPoolSpecs[0]": {}}),
    Case("chief-replicas", "cpu", {"workerPoolSpecs[0].replicaCount": 5}),
    Case("replicas-negative", "workers", {"workerPoolSpecs[1].replicaCount": -2}),
    Case("machine-and-replicas", "cpu", {"workerPoolSpecs[0].replicaCount": DROP}),
    Case("machine-and-replicas", "cpu", {"workerPoolSpecs[0].machineSpec": DROP}),
    Case("machine-and-replicas", "cpu", {"workerPoolSpecs[0].replicaCount": 0}),
    Case("pool-empty-gcloud", "servers", {"workerPoolSpecs[2]": {}}),
    Case("pool-placeholder", "servers", {"workerPoolSpecs[2]": {"containerSpec": {"imageUri": IMAGE}}}),
    Case("pool-program", "cpu", {"workerPoolSpecs[0].containerSpec": DROP}),
    Case("evaluators", "servers", {"workerPoolSpecs[3].replicaCount": 2}),
    Case("reduction-image", "reduction",
         {"workerPoolSpecs[2].containerSpec.imageUri": "gcr.io/google/reduction-server:1"}),
    Case("reduction-pool", "reduction", {"workerPoolSpecs[1].containerSpec.imageUri": REDUCER,
                                         "workerPoolSpecs[2]": DROP, f"{M1}.machineType": "n1-highcpu-16",
                                         f"{M1}.acceleratorType": DROP, f"{M1}.acceleratorCount": DROP},
         also=("reduction-workers",)),
    Case("reduction-gpu", "reduction", {"workerPoolSpecs[2].machineSpec.acceleratorType": "NVIDIA_TESLA_T4",
                                        "workerPoolSpecs[2].machineSpec.acceleratorCount": 1}),
    Case("reduction-workers", "reduction", {f"{M1}.acceleratorType": DROP, f"{M1}.acceleratorCount": DROP}),
    Case("reduction-workers", "reduction", {"workerPoolSpecs[1]": {}}, also=("pool-empty-gcloud",)),
    Case("reduction-framework", "reduction",
         {f"{C0}.imageUri": f"{PREBUILT}/sklearn-gpu.1-6:latest"},
         {f"{C0}.imageUri": f"{PREBUILT}/tf-gpu.2-17.py310:latest"}, also=("image-executor",)),
    Case("reduction-machine", "reduction", {"workerPoolSpecs[2].machineSpec.machineType": "n1-highcpu-32"}),
)  # fmt: skip

_SH, _TRIAL = f"{C0}.command", f"{T}{C0}"
_PLAIN = "pip install x && python train.py --epochs=3"
SHELL = (
    Case("entrypoint-shell", "sweep", {f"{_TRIAL}.command": ["bash", "-c"], f"{_TRIAL}.args": [_PLAIN]},
         {f"{_TRIAL}.command": ["bash", "-c"], f"{_TRIAL}.args": [f'{_PLAIN} "$@"', "bash"]}, f"{_TRIAL}.args[0]", severity="warning"),
    # the first value is $0
    Case("entrypoint-shell", "sweep", {f"{_TRIAL}.command": ["sh", "-ec", f'{_PLAIN} "$@"'], f"{_TRIAL}.args": DROP},
         {f"{_TRIAL}.command": ["sh", "-ec", f'{_PLAIN} "$0" "$@"'], f"{_TRIAL}.args": DROP}, f"{_TRIAL}.command[2]", severity="warning"),
    Case("entrypoint-shell", "sweep", {f"{_TRIAL}.args": ["/bin/bash", "-o", "pipefail", "-c", _PLAIN, "bash"]},
         {f"{_TRIAL}.args": ["/bin/bash", "-o", "pipefail", "-c", f"{_PLAIN} ${{1}}", "bash"]}, f"{_TRIAL}.args[4]", severity="warning"),
    Case("entrypoint-shell", "cpu", {_SH: ["bash", "-c", _PLAIN], f"{C0}.args": ["--lr=1"]},
         {_SH: ["bash", "-c", _PLAIN], f"{C0}.args": ["trainer"]}, f"{_SH}[2]", severity="warning"),
    *(Case("entrypoint-shell", "cpu", {_SH: ["bash", "-c", _PLAIN], f"{C0}.args": ["bash", "--lr=1"]},
           {_SH: ["bash", "-c", good], f"{C0}.args": ["--", "--lr=1"]}, f"{_SH}[2]", severity="warning")
      for good in ("python train.py ${*}", "while getopts l: o; do :; done", "for w do echo; done", ". /opt/run.sh", "source run.sh",
                   "eval $LINE", "$LINE", "python train.py {{ flags }}")),
    Case("entrypoint-shell", "cpu", {_SH: ["bash", "-c", _PLAIN], f"{C0}.args": ["bash", "--lr=1"]},
         {_SH: ["bash", "run.sh", "-c", "a"], f"{C0}.args": ["bash", "--lr=1"]}, f"{_SH}[2]", severity="warning"),
    Case("entrypoint-shell", "workers", {_SH: ["bash", "-c", _PLAIN], "workerPoolSpecs[1].containerSpec.command": ["bash", "-c", _PLAIN]},
         {_SH: ["bash", "-c", _PLAIN], f"{C0}.args": "${ARGS}"}, f"{_SH}[2]", severity="warning"),
)  # fmt: skip
_LINES = "python train.py\ngsutil cp -r out gs://my-bucket/out"
_NO_ARGS = {f"{C0}.args": DROP}
SHELL += (
    *(Case("shell-status", "cpu", {_SH: ["bash", "-c", bad], **_NO_ARGS}, {_SH: ["bash", "-c", good], **_NO_ARGS}, f"{_SH}[2]")
      for bad, good in (
          (_LINES, f"set -e\n{_LINES}"),
          (_LINES, _LINES.replace("\n", " && ")),
          (_LINES, _LINES.replace("\n", " || exit 1\n")),
          ("torchrun --nnodes=1 train.py # all\necho done", "pip install x  # first\ntorchrun --nnodes=1 train.py"),
          ("X=1 exec /opt/bin/python3 -m trainer.task; ls", "python -m pip install x; python3 -m trainer.task"),
          ("cd /app; python a.py; python b.py", "for i in 1 2; do python a.py; done; ls"),
          ("python a.py --name='x;y'; ls", "python a.py --name='x;y'"),
          ("python a.py | tee log", "set -o pipefail; python a.py | tee log"),
          ("(cd /app && python a.py); python b.py; ls", "(cd /app; python a.py)"),
          ("if [ -n ${X} ]; then ls; fi\npython a.py $(cat args)\nls", "if true; then\n  python a.py; ls\nfi; ls"),
          ("set -e\npython a.py | tee log", "if python a.py; then ls; fi; ls"),
      )),
    Case("shell-status", "cpu", {_SH: ["sh", "-c", _LINES], **_NO_ARGS}, {_SH: ["sh", "-ec", _LINES], **_NO_ARGS}),
    Case("shell-status", "cpu", {_SH: ["sh", "-c", _LINES], **_NO_ARGS}, {_SH: ["sh", "-c", "echo 'a\n" + _LINES], **_NO_ARGS}),
)  # fmt: skip
_LIBRARIES = f"{PREBUILT}/tf-cpu.2-17.py310:latest"
_GPU = f"{PREBUILT}/tf-gpu.2-17.py310:latest"
IMAGES = (
    Case("image-missing", "cpu", {f"{C0}.imageUri": DROP}),
    Case("image-missing", "python", {f"{P0}.executorImageUri": ""}),
    Case("image-form", "cpu", {f"{C0}.imageUri": "https://us-docker.pkg.dev/p/r/i:1"},
         {f"{C0}.imageUri": "python:3.10"}),
    Case("image-form", "cpu", {f"{C0}.imageUri": "us-docker.pkg.dev/p/r/My-image:1"}),
    Case("image-form", "cpu", {f"{C0}.imageUri": "gcr.io/europe-west1-docker.pkg.dev/my-project/r/i@sha256:" + "a" * 64},
         {f"{C0}.imageUri": "mirror.example.com/us-docker.pkg.dev/my-project/r/i:1"}),
    Case("image-form", "cpu", {f"{C0}.imageUri": "docker.io/us-docker.pkg.dev/my-project/r/i:1"},
         {f"{C0}.imageUri": "us-docker.pkg.dev/example.com/my/r/i:1"}),
    Case("image-form", "python", {f"{P0}.executorImageUri": f"gcr.io/{PREBUILT}/tf-cpu.2-17.py310:latest"}),
    Case("image-form", "cpu", {f"{C0}.imageUri": "us-docker.pkg.dev/my_project/r/i:1"},
         {f"{C0}.imageUri": "us-docker.pkg.dev/my-project/my_repository/i:1"}, severity="warning"),
    *(Case("image-form", "cpu", {f"{C0}.imageUri": f"us-docker.pkg.dev/{bad}/r/i:1"},
           {f"{C0}.imageUri": f"us-docker.pkg.dev/{good}/r/i:1"}, severity="warning")
      for bad, good in (("abcde", "abcdef"), ("a" * 31, "a" * 30), ("1project", "project1"), ("0-1", "123456789"))),
    Case("image-form", "cpu", {f"{C0}.imageUri": "gcr.io/wik/i:1"}, {f"{C0}.imageUri": "gcr.io/google_containers/pause:3"},
         severity="warning", also=("image-gcr",)),
    Case("image-executor", "python", {f"{P0}.executorImageUri": IMAGE}),
    Case("image-executor", "cpu", {f"{C0}.imageUri": _LIBRARIES}, {f"{C0}.imageUri": "us-docker.pkg.dev/vertex-ai/training/tf-tpu-pod-base-cp310:latest"},
         f"{C0}.imageUri", severity="warning"),
    Case("image-executor", "cpu", {f"{C0}.imageUri": _LIBRARIES, f"{C0}.args": DROP},
         {f"{C0}.imageUri": _LIBRARIES, f"{C0}.args": ["sh", "-c", "gsutil cp gs://b/t.py . && python t.py"]}, f"{C0}.imageUri",
         severity="warning"),
    Case("image-executor", "workers", {f"{C0}.imageUri": _GPU, "workerPoolSpecs[1].containerSpec.imageUri": _GPU}, {}, f"{C0}.imageUri",
         severity="warning"),
    Case("image-executor", "cpu", {f"{C0}.imageUri": "gcr.io/cloud-aiplatform/training/tf-cpu.2-17:latest"},
         {f"{C0}.imageUri": _LIBRARIES, f"{C0}.args": "${ARGS}"}, severity="warning", also=("image-legacy",)),
    *(Case("image-executor", "cpu", {f"{C0}.imageUri": _LIBRARIES, f"{C0}.command": bad},
           {f"{C0}.imageUri": _LIBRARIES, f"{C0}.command": good}, f"{C0}.command", severity="warning")
      for bad, good in (
          (["python3", "train.py"], ["python3", "/gcs/my-bucket/train.py"]),
          (["torchrun", "./src/train.py"], ["python", "-m", "torch.distributed.run", "/mnt/nfs/train.py"]),
          (["python", "my_trainer/task.py"], ["python", "gcs/my-bucket/train.py"]),
          (["python", "train.py"], ["python", "-c", "print()"]),
      )),
    Case("image-unknown", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-71.py310:latest"},
         {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-16.py310:latest"}),
    Case("image-tag", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310:20240101"},
         {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310"}),
    Case("image-tag", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310:20240101"},
         {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310@sha256:" + "a" * 64}),
    Case("image-gcr", "cpu", {f"{C0}.imageUri": "gcr.io/my-project/trainer:1"}, {f"{C0}.imageUri": IMAGE}),
    Case("image-gcr", "cpu", {f"{C0}.imageUri": "eu.gcr.io/my-project/team/trainer@sha256:" + "a" * 64},
         {f"{C0}.imageUri": "gcr.io/deeplearning-platform-release/tf2-cpu:latest"}),
    Case("image-legacy", "python", {f"{P0}.executorImageUri": "gcr.io/cloud-aiplatform/training/tf-cpu.2-17:latest"}),
    Case("image-availability", "python", {}, today=LATER, severity="info"),
    Case("image-availability", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-9:latest"}),
    Case("image-support", "python", {}, ok_today=date(2025, 1, 1)),
    Case("image-accelerator", "python-gpu", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-cpu.2-17.py310:latest"}),
    Case("image-accelerator", "tpu-image", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-gpu.2-17.py310:latest"}),
    Case("image-gpu-unused", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-gpu.2-17.py310:latest"}),
    Case("image-tpu-unused", "python", {f"{P0}.executorImageUri": f"{PREBUILT}/tf-tpu.2-15.cp310:latest"},
         today=date(2025, 1, 1)),
    Case("image-tpu-generation", "tpu-v6e", {f"{C0}.imageUri": f"{PREBUILT}/tf-tpu.2-15.cp310:latest"},
         today=date(2025, 1, 1), also=("image-executor",)),
    Case("image-tpu-generation", "tpu-v5e", {f"{C0}.imageUri": f"{PREBUILT}/tf-tpu.2-15.cp310:latest"},
         today=date(2025, 1, 1), also=("image-executor",)),
    Case("image-hypertune", "sweep", {}, {f"{T}workerPoolSpecs[0].containerSpec.imageUri":
                                          f"{PREBUILT}/tf-cpu.2-17.py310:latest"}, severity="info"),
    Case("image-hypertune", "sweep-gpu",
         {f"{T}workerPoolSpecs[0].containerSpec.imageUri": f"{PREBUILT}/pytorch-gpu.1-6:latest"},
         {f"{T}workerPoolSpecs[0].containerSpec.imageUri": f"{PREBUILT}/pytorch-gpu.2-4.py310:latest"},
         today=date(2023, 1, 1), also=("image-executor",)),
    Case("image-far", "python", {}, region="europe-west4", ok_region="us-central1"),
    Case("image-arm", "h100", {**_A4X, f"{M0}.reservationAffinity": _ANY}),
)  # fmt: skip

PROGRAM = (
    Case("module-missing", "python", {f"{P0}.pythonModule": DROP}),
    Case("module-form", "python", {f"{P0}.pythonModule": "trainer/task.py"}, {f"{P0}.pythonModule": "task"}),
    Case("module-form", "python", {f"{P0}.pythonModule": "my-trainer.task"}, severity="warning"),
    Case("arg-quotes", "python", {f"{P0}.args": ['--distribute="cpu"']}, {f"{P0}.args": ['--config={"a": "b"}']}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ["'--epochs=3'"]}, {f"{C0}.args": ['--names="a","b"']}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ["training='exp1'"]}, {f"{C0}.args": ["training=exp1", "note='a, b'"]}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ['+model.layers="2"']}, {f"{C0}.args": ["tags='[a, b]'", "name=''"]}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ["epochs='1'"]}, {f"{C0}.command": ["./run.sh"], f"{C0}.args": ["epochs='1'"]}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ["epochs='1'"]}, {f"{C0}.args": ["/app/run.sh", "epochs='1'"]}),
    Case("arg-quotes", "cpu", {f"{C0}.args": ["epochs='1'"]}, {f"{C0}.command": ["bash", "-c"], f"{C0}.args": ["epochs='1'"]}),
    Case("arg-glued", "python", {f"{P0}.args": ["--epochs 10"]}, {f"{P0}.args": ["--epochs", "10", "--note=a b"]}),
    Case("arg-glued", "cpu", {f"{C0}.args": ["--epochs=3 --lr=0.1"]}, {f"{C0}.args": ["--note=from a - to b", "--command=python -u t.py"]}, severity="warning"),
    Case("arg-glued", "cpu", {f"{C0}.args": ["--epochs 10"]},
         {f"{C0}.command": ["/bin/bash", "-c"], f"{C0}.args": ["--x 1"]}, severity="warning"),
    Case("arg-glued", "python", {f"{P0}.args": ["--train_args", "--lr 0.1 --epochs 3"]}, severity="warning"),
    Case("arg-blank", "python", {f"{P0}.args": [""]}, {f"{P0}.args": ["--reg_dir", ""]}),
    Case("arg-blank", "python", {f"{P0}.args": ["--epochs=3", " "]}, {f"{P0}.args": []}),
    Case("arg-blank", "workers", {f"{C0}.args": ["--reg_dir"], "workerPoolSpecs[1].containerSpec.args": [""]}),
    Case("arg-blank", "python", {f"{P0}.args": [" --epochs=3"]}),
    Case("arg-spellings", "python", {f"{P0}.args": ["--learning_rate=1", "--learning-rate=2"]}, {f"{P0}.args": ["-n", "2", "-N", "3"]}),
    Case("arg-repeated", "python", {f"{P0}.args": ["--epochs=1", "--epochs=2"]}),
    Case("args-length", "python", {f"{P0}.args": ["--data=" + "x" * 99_993]},
         {f"{P0}.args": ["--data=" + "x" * 99_992]}),
    Case("arg-commas", "python", {f"{P0}.args": ["--sizes=16,32"]}),
    Case("command-alone", "cpu", {f"{C0}.command": ["train"], f"{C0}.args": DROP}),
    Case("env-name", "cpu", {f"{C0}.env": [{"name": "MY-NAME", "value": "1"}]},
         {f"{C0}.env": [{"name": "MY_NAME", "value": "1"}]}),
    Case("env-name", "cpu", {f"{C0}.env": [{"value": "1"}]}),
    Case("env-name", "cpu", {f"{C0}.env": [{"name": "1A", "value": "1"}]}, {f"{C0}.env": [{"name": "_A1", "value": "1"}]}),
    Case("env-twice", "cpu", {f"{C0}.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
    Case("env-value", "cpu", {f"{C0}.env": [{"name": "A", "value": ""}]}, {f"{C0}.env": [{"name": "A", "value": " "}]}, at=f"{C0}.env[0].value"),
    Case("env-value", "cpu", {f"{C0}.env": [{"name": "A"}]}, {f"{C0}.env": [{"name": "A", "value": "0"}]}),
    Case("env-value", "cpu", {f"{C0}.env": [{"name": "A", "value": None}]}),
    Case("env-value", "cpu", {f"{C0}.env": [{"name": "A", "value": "${B:-}"}]}, {f"{C0}.env": [{"name": "A", "value": "${B:-}x"}]},
         severity="warning", also=("placeholder",)),
    Case("env-apostrophe", "cpu", {f"{C0}.env": [{"name": "A", "value": "['a']"}]}, {f"{C0}.env": [{"name": "A", "value": '["a"]'}]}),
    Case("env-apostrophe", "cpu", {f"{C0}.env": [{"name": "A", "value": "it's"}]}, {f"{C0}.env": [{"name": "A", "value": "it\\'s"}]}),
    Case("env-apostrophe", "cpu", {f"{C0}.env": [{"name": "A", "value": "${X}'s"}]}, also=("placeholder",)),
    Case("gcsfuse", "cpu", {f"{C0}.args": ["gcsfuse data /data && python t.py"]}, {f"{C0}.args": ["/opt/gcsfuse-notes.txt"]}, at=f"{C0}.args[0]"),
    Case("gcsfuse", "cpu", {f"{C0}.command": ["gcsfuse"], f"{C0}.args": ["data", "/data"]}, {f"{C0}.command": ["python", "/gcs/data/t.py"]}),
    Case("env-service-name", "cpu", {f"{C0}.env": [{"name": "TF_CONFIG", "value": "{}"}]}),
    Case("env-service-name", "cpu", {f"{C0}.env": [{"name": "AIP_MODEL_DIR", "value": "/tmp"}]},
         {f"{C0}.env": [{"name": "AIP_MODEL_DIR", "value": "/tmp"}], "baseOutputDirectory": DROP}),
    Case("env-service-name", "cpu", {f"{C0}.env": [{"name": "AIP_TENSORBOARD_API_URI", "value": "x"}],
                                     "tensorboard": _BOARD, **_ACCOUNT},
         {f"{C0}.env": [{"name": name, "value": "x"} for name in ("AIP_TENSORBOARD_API_URI", "AIP_TRAINING_DATA_URI",
                                                                  "AIP_DATA_FORMAT")]}),
    Case("env-reference", "cpu", {f"{C0}.env": [{"name": "A", "value": "$(B)"}, {"name": "B", "value": "1"}]},
         {f"{C0}.env": [{"name": "B", "value": "$$(A)"}, {"name": "A", "value": "$(B)"}]}),
    Case("env-reference", "cpu", {f"{C0}.env": [{"name": "A", "value": "x-$(A)"}]},
         {f"{C0}.env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]}, at=f"{C0}.env[0].value"),
    Case("env-reference", "cpu", {f"{C0}.env": [{"name": "A", "value": "$(gcloud config get project)"}]},
         {f"{C0}.env": [{"name": "A", "value": "$$(cat /a)"}, {"name": "B", "value": "echo $(date +%s) > /b"}]}),
    Case("env-reference", "cpu", {f"{C0}.env": [{"name": "A", "value": "gs://my-bucket/$(date +%F)/x"}]},
         {f"{C0}.env": [{"name": "A", "value": "$(date +%F)"}], f"{C0}.args": ["eval echo $A"]}),
    Case("env-reference", "cpu", {f"{C0}.env": [{"name": "API_KEY", "value": "`cat /run/key`"}]},
         {f"{C0}.env": [{"name": "A", "value": "use `x y` here"}]}),
)  # fmt: skip

SCHEDULING_CASES = (
    Case("timeout-unset", "cpu", {"scheduling": DROP}),
    Case("timeout-unset", "workers", {"scheduling.timeout": DROP}),
    Case("duration-negative", "cpu", {"scheduling.timeout": "-5s"}),
    Case("duration-negative", "cpu", {"scheduling.timeout": "0s"}, severity="warning"),
    Case("flex-start-timeout", "l4", {"scheduling": {"strategy": "FLEX_START", "timeout": "700000s"}},
         {"scheduling": {"strategy": "FLEX_START", "timeout": "604800s"}}),
    Case("flex-start-accelerator", "gpu", {"scheduling.strategy": "FLEX_START"}),
    Case("flex-start-accelerator", "cpu", {"scheduling.strategy": "FLEX_START"}),
    Case("flex-start-machines", "l4", {"scheduling.strategy": "FLEX_START",
                                       "workerPoolSpecs[1]": pool("g2-standard-12", **L4)},
         {"scheduling.strategy": "FLEX_START", "workerPoolSpecs[1]": pool("g2-standard-8", **L4)}),
    Case("flex-start-reservation", "l4", {"scheduling.strategy": "FLEX_START", f"{M0}.reservationAffinity": _ANY},
         {f"{M0}.reservationAffinity": _ANY}),
    Case("max-wait", "cpu", {"scheduling.maxWaitDuration": "60s"}),
    Case("max-wait", "l4", {"scheduling": {"strategy": "FLEX_START", "maxWaitDuration": "0s", "timeout": "60s"}},
         {"scheduling": {"strategy": "FLEX_START", "maxWaitDuration": "60s", "timeout": "60s"}}, severity="info"),
    Case("strategy-deprecated", "cpu", {"scheduling.strategy": "LOW_COST"}, {"scheduling.strategy": "SPOT"}),
    Case("retries", "cpu", {"scheduling.disableRetries": True, "scheduling.restartJobOnWorkerRestart": True},
         {"scheduling.disableRetries": True}),
    Case("spot-restarts", "cpu", {"scheduling.strategy": "SPOT"}),
    Case("spot-restarts", "cpu", {"scheduling.strategy": "SPOT", "baseOutputDirectory": DROP}, severity="warning"),
    Case("spot-restarts", "cpu", {"scheduling.strategy": "SPOT", "scheduling.disableRetries": True,
                                  "baseOutputDirectory": DROP}, severity="info"),
)  # fmt: skip

STORAGE = (
    Case("output-uri", "cpu", {"baseOutputDirectory.outputUriPrefix": "s3://b/x"}),
    Case("output-uri", "cpu", {"baseOutputDirectory.outputUriPrefix": "gs://My_Bucket/x"},
         {"baseOutputDirectory.outputUriPrefix": "gs://my.bucket.example/x/"}),
    Case("output-uri", "cpu", {"baseOutputDirectory.outputUriPrefix": "gs://my-bucket-/x"}),
    Case("output-uri", "cpu", {"baseOutputDirectory": {}}),
    Case("output-unset", "cpu", {"baseOutputDirectory": DROP}),
    Case("gcs-regions", "cpu", {f"{C0}.args": ["--data=/gcs/one/x", "--more=/gcs/two/x"]},
         {f"{C0}.args": ["--data=/gcs/one/x", "--more=/gcs/one/y"]}),
    Case("gcs-image", "cpu", {**_B200, f"{C0}.args": ["--data=/gcs/one/x"]}, {**_B200, f"{C0}.args": ["--data=gs://one/x"]}),
    Case("stray-uri", "cpu", {f"{C0}.args": ["--data=gs://my bucket/x"]}, {f"{C0}.args": ["--data=gs://my-bucket/x"]}),
    Case("stray-uri", "cpu", {f"{C0}.args": ["gs:/my-bucket/x"]}, {f"{C0}.args": ["gs://$(BUCKET)/x"]}),
    Case("stray-uri", "cpu", {f"{C0}.env": [{"name": "DATA", "value": "/gcs/My Bucket/x"}]},
         {f"{C0}.env": [{"name": "DATA", "value": "/gcs/my-bucket/x"}]}),
    Case("stray-uri", "cpu", {f"{C0}.args": ["--out=/gcs/output"]}, {f"{C0}.args": ["--out=/gcs/output-of-runs"]}),
    *(Case("stray-uri", "cpu", {f"{C0}.args": [bad]}, {f"{C0}.args": [good]})
      for bad, good in (
          ("/gcs/config.yaml", "/gcs/my-bucket/config.yaml"),
          ("--data=/gcs/Train_2.csv", "--data=/gcs/data.example.com/train.csv"),
          ("--weights=/gcs/model.pth", "--weights=/gcs/model.pth/best"),
      )),
    Case("stray-uri", "cpu", {f"{C0}.args": ["--data", "/gcs/datasets/x"]},
         {f"{C0}.args": ["--data", "/gcs/datasets/x", "--list=gs://datasets/y"]}, at=f"{C0}.args[1]"),
    Case("package-missing", "python", {f"{P0}.packageUris": DROP}),
    Case("package-uri", "python", {f"{P0}.packageUris": ["dist/trainer-0.1.tar.gz"]}),
    Case("package-uri", "python", {f"{P0}.packageUris": ["/gcs/my-bucket/trainer-0.1.tar.gz"]}),
    Case("package-form", "python", {f"{P0}.packageUris": ["gs://my-bucket/trainer"]}),
    Case("package-form", "python", {f"{P0}.packageUris": ["gs://my-bucket/t-1-py3-none-any.whl"]}, severity="info"),
)  # fmt: skip

DISKS = (
    Case("disk-type", "cpu", {D0: _disk("pd-sdd")}, {D0: _disk("pd-standard")}),
    Case("disk-type", "cpu", {D0: _disk("pd-balanced")}),
    Case("disk-size", "cpu", {D0: _disk(size=50)}, {D0: _disk(size=64_000)}),
    Case("disk-size", "cpu", {D0: _disk(size=64_001)}, {D0: {"bootDiskType": "pd-ssd"}}),
    Case("disk-machine", "cpu", {_ARM: "n4-standard-8", D0: _disk()},
         {_ARM: "n4-standard-8", D0: _disk("hyperdisk-balanced")}),
    Case("disk-machine", "cpu", {_ARM: "n4-standard-8"}, severity="info"),
    Case("disk-machine", "h100", {_ARM: "a3-ultragpu-8g", f"{M0}.acceleratorType": "NVIDIA_H200_141GB", D0: _disk()},
         severity="error"),
)  # fmt: skip

IDENTITY = (
    Case("service-account", "cpu", {"serviceAccount": "trainer"}, _ACCOUNT),
    Case("service-account", "cpu", {"serviceAccount": "me@example.com"}, severity="warning"),
    Case("service-account", "cpu", {"serviceAccount": "projects/-/serviceAccounts/a@p.iam.gserviceaccount.com"}),
    Case("account-roles", "cpu", _ACCOUNT),
    Case("tensorboard", "cpu", {"tensorboard": "my-board", **_ACCOUNT}, {"tensorboard": _BOARD, **_ACCOUNT}),
    Case("tensorboard", "cpu", {"tensorboard": _BOARD, **_ACCOUNT}, severity="warning", region="europe-west4",
         ok_region="us-central1"),
    Case("tensorboard", "cpu", {"tensorboard": "gs://your-bucket/logs", **_ACCOUNT}, {"tensorboard": "projects/your-project/locations/us-central1/tensorboards/7", **_ACCOUNT}, also=("placeholder",)),
    Case("tensorboard-account", "cpu", {"tensorboard": _BOARD}, {"tensorboard": _BOARD, **_ACCOUNT}),
    Case("tensorboard-account", "cpu", {"tensorboard": "projects/${P}/locations/us-central1/tensorboards/1"},
         {"tensorboard": _BOARD, **_ACCOUNT}, also=("placeholder",)),
    Case("experiment", "cpu", {"experiment": "mine", **_ACCOUNT}, {"experiment": _CONTEXT, **_ACCOUNT}),
    Case("experiment", "cpu", {"experiment": _CONTEXT, "tensorboard": _BOARD, **_ACCOUNT}),
    Case("experiment-where", "workers", {"experiment": _CONTEXT, **_ACCOUNT}),
    Case("experiment-where", "tpu-v5e", {"experiment": _CONTEXT, **_ACCOUNT}),
    Case("experiment-where", "cpu", {"experiment": _CONTEXT, **_ACCOUNT}, severity="info"),
    Case("kms-key", "sweep", {"encryptionSpec": {}}, {"encryptionSpec.kmsKeyName": _KEY}),
    Case("kms-key", "sweep", {"encryptionSpec.kmsKeyName": "my-key"}, {"encryptionSpec.kmsKeyName": _KEY}),
    Case("kms-key", "sweep", {"encryptionSpec.kmsKeyName": _KEY}, {"encryptionSpec.kmsKeyName": _KEY},
         region="europe-west4", ok_region="us-central1"),
    Case("persistent-resource", "cpu", {"persistentResourceId": "My_Cluster"},
         {"persistentResourceId": "my-cluster-1"}),
    Case("persistent-resource", "cpu", {"persistentResourceId": "cluster-"}),
    Case("persistent-resource", "cpu", {"persistentResourceId": "1a"}),
    Case("reservation", "gpu", {f"{M0}.reservationAffinity": {"reservationAffinityType": "SPECIFIC_RESERVATION"}},
         {f"{M0}.reservationAffinity": _SPECIFIC}),
    Case("reservation", "gpu", {f"{M0}.reservationAffinity": {"key": "compute.googleapis.com/reservation-name"}}),
    Case("reservation", "gpu", {f"{M0}.reservationAffinity": {**_SPECIFIC, "values": ["my-reservation"]}}),
    Case("reservation", "gpu", {f"{M0}.reservationAffinity": {**_SPECIFIC, **_ANY}}, severity="warning"),
    Case("reservation", "gpu", {f"{M0}.reservationAffinity": {**_ANY, "key": "k"}}, severity="warning"),
    Case("reservation-region", "gpu", {f"{M0}.reservationAffinity": _SPECIFIC},
         {f"{M0}.reservationAffinity": _SPECIFIC}, region="europe-west4", ok_region="us-central1"),
)  # fmt: skip

NETWORKS = (
    Case("network", "cpu", {"network": "projects/my-project/global/networks/vpc"}, _NETWORK),
    Case("network", "cpu", {"network": "vpc"}),
    Case("network-twice", "cpu", {**_NETWORK, **_PSC}, _PSC),
    Case("reserved-ip-ranges", "cpu", {"reservedIpRanges": ["range"]}, {"reservedIpRanges": ["range"], **_NETWORK}),
    Case("psc-attachment", "cpu", {"pscInterfaceConfig.networkAttachment": "My/Attachment"}, _PSC),
    Case("psc-attachment", "cpu", {"pscInterfaceConfig": {"dnsPeeringConfigs": []}}),
    Case("psc-attachment", "cpu",
         {"pscInterfaceConfig.networkAttachment": "projects/p/regions/us-east1/networkAttachments/a"},
         {"pscInterfaceConfig.networkAttachment": "projects/p/regions/us-central1/networkAttachments/a"},
         region="us-central1", ok_region="us-central1"),
    Case("dns-peering", "cpu", {**_PSC, "pscInterfaceConfig.dnsPeeringConfigs":
                                [{"domain": "corp", "targetProject": "p", "targetNetwork": "vpc"}]},
         {**_PSC, "pscInterfaceConfig.dnsPeeringConfigs":
          [{"domain": "corp.", "targetProject": "p", "targetNetwork": "vpc"}]}),
    Case("mount-network", "cpu", {"workerPoolSpecs[0].nfsMounts": [_NFS]},
         {"workerPoolSpecs[0].nfsMounts": [_NFS], **_NETWORK}),
    Case("nfs-mount", "cpu", {"workerPoolSpecs[0].nfsMounts": [{**_NFS, "path": "share"}], **_NETWORK},
         {"workerPoolSpecs[0].nfsMounts": [_NFS], **_PSC}),
    Case("nfs-mount", "cpu", {"workerPoolSpecs[0].nfsMounts": [{"server": "10.0.0.2"}], **_NETWORK}),
    Case("nfs-mount", "cpu", {"workerPoolSpecs[0].nfsMounts": [{**_NFS, "mountPoint": "/mnt/nfs/data"}], **_NETWORK},
         severity="warning"),
    Case("nfs-mount", "cpu", {"workerPoolSpecs[0].nfsMounts": [_NFS, _NFS], **_NETWORK}, severity="warning"),
    Case("nfs-mount", "cpu", {"workerPoolSpecs[0].nfsMounts": [{**_NFS, "server": "10.0.2"}], **_NETWORK}),
    Case("lustre-mount", "cpu", {"workerPoolSpecs[0].lustreMounts": [{"instanceIp": "10.0.0.2"}], **_NETWORK},
         {"workerPoolSpecs[0].lustreMounts": [_LUSTRE], **_NETWORK}),
)  # fmt: skip

NAMING = (
    Case("display-name", "sweep", {"displayName": "x" * 129}, {"displayName": "x" * 128}),
    Case("display-name", "sweep", {"displayName": " "}),
    Case("display-name-flag", "sweep", {"displayName": "sweep"}),
    Case("labels", "sweep", {"labels": {"Team": "vision"}}, {"labels": {"team": "vision", "empty": "", "größe": "m"}}),
    Case("labels", "sweep", {"labels": {"-team": "vision"}}, {"labels": {"9-lives_x": "-a_1", "équipe": "a"}}),
    Case("labels", "sweep", {"labels": {"te.am": "vision"}}),
    Case("labels", "sweep", {"labels": {"team": "a b"}}, {"labels": {"team": "a_b"}}),
    Case("labels", "sweep", {"labels": {"team": "語" * 43}}, {"labels": {"team": "語" * 42}}),
    Case("labels", "sweep", {"labels": {"team": "x" * 64}}, {"labels": {"team": "x" * 63}}),
    Case("labels", "sweep", {"labels": {f"l{i}": "x" for i in range(65)}},
         {"labels": {f"l{i}": "x" for i in range(64)}}),
)  # fmt: skip

GCLOUD = (
    Case("gcloud-accelerator", "sweep-gpu", {f"{T}{M0}": {"machineType": "g4-standard-48", "acceleratorCount": 1,
                                                          "acceleratorType": "NVIDIA_RTX_PRO_6000"}}),
    Case("gcloud-field", "sweep", {f"{T}pscInterfaceConfig.networkAttachment": "a"}),
    Case("gcloud-field", "sweep", {f"{T}workerPoolSpecs[0].lustreMounts": [_LUSTRE],
                                   f"{T}network": "projects/1/global/networks/vpc"}),
)  # fmt: skip


def _env(name: str, value: str) -> dict[str, Any]:
    return {f"{C0}.env": [{"name": name, "value": value}]}


# made up, and put together so that no scanner takes them for real ones
_GOOGLE_KEY, _HUB_KEY, _WANDB_KEY = "AI" + "za" + "Sy0" * 12, "hf" + "_" + "Ab1" * 11, "0f" * 20
_KAGGLE_KEY = "KG" + "AT_" + "0f" * 16
SECRETS = (
    Case("plain-secret", "cpu", _env("MAPS", _GOOGLE_KEY), _env("MAPS", "AIza")),
    Case("plain-secret", "cpu", _env("HUB", _HUB_KEY), _env("HUB", "hf_home")),
    Case("plain-secret", "cpu", _env("WANDB_API_KEY", _WANDB_KEY), _env("WANDB_MODE", "disabled")),
    Case("plain-secret", "cpu", _env("DB_PASSWORD", "hunter2"), _env("DB_PASSWORD", "$(FROM_ABOVE)")),
    Case("plain-secret", "cpu", _env("HF_TOKEN", "not-a-known-form"),
         _env("HF_TOKEN", "projects/p/secrets/hf/versions/latest")),
    Case("plain-secret", "cpu", _env("CLIENT_SECRET", "abcdefgh"), _env("CLIENT_SECRET", "/secrets/client")),
    Case("plain-secret", "cpu", _env("OPENAI_API_KEY", "sk" + "-" + "a1" * 12), _env("MAX_TOKEN", "4096")),
    Case("plain-secret", "cpu", _env("KAGGLE_KEY", _KAGGLE_KEY), _env("KAGGLE_KEY", "my-kaggle-key")),
    Case("plain-secret", "cpu", _env("KAGGLE_KEY", "0f" * 16), _env("CACHE_KEY", "0f" * 16)),
    Case("plain-secret", "cpu", {f"{C0}.args": ["--wandb_key=" + "0f" * 20]}, {f"{C0}.args": ["--commit=" + "0f" * 20]}),
    Case("plain-secret", "cpu", {f"{C0}.command": ["bash", "-c", "export WANDB_API_KEY=" + "0f" * 20 + " && python t.py"], **_NO_ARGS},
         {f"{C0}.command": ["bash", "-c", "export WANDB_API_KEY=$(cat /run/key) && python t.py"], **_NO_ARGS}),
    Case("plain-secret", "cpu", _env("DATABASE_URL", "postgresql://me:hunter22@db.example.com/runs"),
         _env("DATABASE_URL", "postgresql://me@db.example.com:5432/runs")),
    Case("plain-secret", "cpu", {f"{C0}.args": ["--kaggle-key", "0f" * 16]}, {f"{C0}.args": ["--md5", "0f" * 16]}),
    Case("plain-secret", "cpu", {f"{C0}.args": ["--api_key=abcdefghij"]}, {f"{C0}.args": ["--api_key=$(API_KEY)"]}),
    Case("plain-secret", "cpu", {f"{C0}.args": ["--hub-token", "abcdefghij"]}, {f"{C0}.args": ["--hub-token", "</s>"]}),
    Case("plain-secret", "sweep", {f"{T}{C0}.env": [{"name": "A", "value": _HUB_KEY}]},
         {f"{T}{C0}.env": [{"name": "TOKENIZER", "value": "bert-base-uncased"}]}),
)  # fmt: skip

CASES: dict[str, tuple[Case, ...]] = {
    "hardware": HARDWARE,
    "tpu": TPU,
    "regions": REGIONS,
    "quotas": QUOTA,
    "cluster": CLUSTER,
    "images": IMAGES,
    "shell": SHELL,
    "program": PROGRAM,
    "scheduling": SCHEDULING_CASES,
    "storage": STORAGE,
    "disks": DISKS,
    "identity": IDENTITY,
    "network": NETWORKS,
    "naming": NAMING,
    "secrets": SECRETS,
    "gcloud": GCLOUD,
}
