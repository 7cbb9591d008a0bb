"""Scale tiers and machine types of AI Platform Training, which is retired: what of each is documented, and what is not.

Sources, both read 2026-11-21. REFERENCE: TrainingInput of the AI Platform Training API, as google-api-ruby-client's generated
`ml_v1/classes.rb` and the Notebooks API's ExecutionTemplate have it; it says which GPUs a type has, and no type's processors or memory.
COURSE: Google's course "Distributed training" (GoogleCloudPlatform/training-data-analyst@a3083130,
courses/machine_learning/deepdive/02_tensorflow/g_distributed.ipynb), which names the machines of STANDARD_1. Nothing at hand
names those of PREMIUM_1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

REFERENCE = "TrainingInput in the API reference of AI Platform Training (copy read 2026-11-21)"
COURSE = "GoogleCloudPlatform/training-data-analyst@a3083130, g_distributed.ipynb (read 2026-11-21)"
_K80, _P100, _V100 = "NVIDIA_TESLA_K80", "NVIDIA_TESLA_P100", "NVIDIA_TESLA_V100"


@dataclass(frozen=True)
class LegacyMachine:
    """A machine type of AI Platform's own.

    Args:
        accelerator: Its GPU, "" without one.
        count: How many of it.
        about: What the reference says of its size.
        source: Where that is from.
    """

    accelerator: str = ""
    count: int = 0
    about: str = ""
    source: str = REFERENCE


MACHINES: Mapping[str, LegacyMachine] = MappingProxyType(
    {
        "standard": LegacyMachine(about="a basic machine for simple models"),
        "large_model": LegacyMachine(about="a lot of memory, for parameter servers of large models"),
        "complex_model_s": LegacyMachine(about="more computation than standard"),
        "complex_model_m": LegacyMachine(about="about twice the cores and memory of complex_model_s"),
        "complex_model_l": LegacyMachine(about="about twice the cores and memory of complex_model_m"),
        **{
            name: LegacyMachine(gpu, count, f"as {name.rpartition('_')[0]}")
            for name, gpu, count in (
                ("standard_gpu", _K80, 1),
                ("complex_model_m_gpu", _K80, 4),
                ("complex_model_l_gpu", _K80, 8),
                ("standard_p100", _P100, 1),
                ("complex_model_m_p100", _P100, 4),
                ("standard_v100", _V100, 1),
                ("large_model_v100", _V100, 1),
                ("complex_model_m_v100", _V100, 4),
                ("complex_model_l_v100", _V100, 8),
            )
        },
    }
)
"""By name; `cloud_tpu`, a TPU with its host, is not a machine of this list."""


@dataclass(frozen=True)
class ScaleTier:
    """A cluster that AI Platform gave by its name.

    Args:
        about: What it was.
        input: The keys of `trainingInput` that say the same with scaleTier CUSTOM; empty where no source names the machines.
        accelerator: The accelerator of its one machine, "" without one.
        count: How many of it.
        single: It has one machine, whose size no source names.
        source: Where that is from.
    """

    about: str
    input: Mapping[str, str | int] = field(default_factory=dict)
    accelerator: str = ""
    count: int = 0
    single: bool = False
    source: str = REFERENCE


TIERS: Mapping[str, ScaleTier] = MappingProxyType(
    {
        "BASIC": ScaleTier("a single machine", single=True),
        "STANDARD_1": ScaleTier(
            "a master, 4 workers and 3 parameter servers",
            {
                "masterType": "n1-highcpu-8",
                "workerType": "n1-highcpu-8",
                "workerCount": 4,
                "parameterServerType": "n1-standard-4",
                "parameterServerCount": 3,
            },
            source=COURSE,
        ),
        "PREMIUM_1": ScaleTier("a large number of workers with many parameter servers"),
        "BASIC_GPU": ScaleTier("a single machine with a K80 GPU", accelerator=_K80, count=1, single=True),
        "BASIC_TPU": ScaleTier("a single machine with a Cloud TPU", accelerator="TPU_V2", count=8, single=True),
    }
)
"""By name; CUSTOM is none of them: its machines are in the file."""
