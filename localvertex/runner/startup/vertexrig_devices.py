"""Gives any TensorFlow trainer as many devices as its replica has accelerators on Vertex AI: logical devices of the CPU.

It acts once TensorFlow is imported, in the process of the replica, on the number in TRAINER_VIRTUAL_DEVICES. A MirroredStrategy
that names no devices then has that many replicas, and one that names GPUs gets these devices in their place. The GPUs themselves
are not imitated: `tf.config.list_physical_devices("GPU")` is empty. PyTorch needs nothing: on a CPU its processes meet over gloo.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VARIABLE = "TRAINER_VIRTUAL_DEVICES"
held = False
"""Whether this process only makes imports for others; they call `apply` themselves."""


def wanted() -> int:
    """Return how many devices; 0 in a cluster, where each process has one, as far as TensorFlow's strategies go on a CPU."""
    try:
        tasks = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
        count = int(os.environ.get(_VARIABLE) or 0)
    except (ValueError, AttributeError):
        return 0
    return count if sum(len(tasks.get(role, ())) for role in ("chief", "master", "worker", "ps")) <= 1 else 0


def apply() -> None:
    """Split the CPU, if TensorFlow is imported and has not begun to use it."""
    tf = sys.modules.get("tensorflow")
    count = 0 if held else wanted()
    # One device is what TensorFlow has anyway.
    if tf is None or count < 2:
        return
    try:
        if tf.config.list_physical_devices("GPU"):
            return
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
        _rename(tf)
    except (AttributeError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"the CPU stays one device: {error}\n")


def _rename(tf: Any) -> None:
    """Have a MirroredStrategy over named GPUs run on the devices that replace them."""
    mirrored = sys.modules["tensorflow.python.distribute.mirrored_strategy"].MirroredExtended
    begin = mirrored.__init__

    def __init__(self: Any, container_strategy: Any, devices: Any = None, cross_device_ops: Any = None) -> None:
        if devices:
            devices = [re.sub(r"(?i)\bgpu\b", "CPU", str(device)) for device in devices]
        if isinstance(cross_device_ops, tf.distribute.NcclAllReduce):  # it is between GPUs only
            cross_device_ops = tf.distribute.ReductionToOneDevice()
        begin(self, container_strategy, devices, cross_device_ops)

    mirrored.__init__ = __init__
