"""The strategies of tf.distribute by name: in a trainer's source, and as the value of a flag."""

from __future__ import annotations

MIRRORED, MULTI, SERVER = "MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy"
TPU, ONE, CENTRAL = "TPUStrategy", "OneDeviceStrategy", "CentralStorageStrategy"
STRATEGY_FLAGS = tuple("strategy distribute distribution distribution_strategy distribute_strategy tf_strategy".split())
_BY_NAME = {
    "mirrored": MIRRORED, "gpusonemachine": MIRRORED, "multigpu": MIRRORED, "onedevice": ONE,
    "cpu": ONE, "none": ONE, "no": ONE, "off": ONE, "single": ONE, "multi": MULTI, "multiworker": MULTI,
    "multiworkermirrored": MULTI, "gpusmultiplemachines": MULTI, "mwms": MULTI, "ps": SERVER,
    "parameterserver": SERVER, "parameterservers": SERVER, "tpu": TPU, "tpucaip": TPU, "central": CENTRAL,
    "centralstorage": CENTRAL,
}  # fmt: skip


def strategy_named(value: str) -> str | None:
    """Return the strategy that a flag's value names; None for a value of another meaning."""
    # multi_worker, MultiWorker and MultiWorkerMirroredStrategy are one
    plain = "".join(char for char in value.casefold() if char.isalnum()).removesuffix("strategy")
    return _BY_NAME.get(plain)


STRATEGIES = {
    **{name: name for name in (MIRRORED, MULTI, SERVER, TPU, CENTRAL, ONE)},
    "CollectiveAllReduceStrategy": MULTI,
    "ParameterServerStrategyV2": SERVER,
    "TPUStrategyV2": TPU,
}
"""The name used today of each strategy of tf.distribute, by every name that it has or had."""
