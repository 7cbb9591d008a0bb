"""Strategies of one process, on virtual devices: they run for real and train alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import QUICK, Launched, summary

FLAGS = (*QUICK, "--global_batch_size=48")


@pytest.mark.whole
def test_mirrored_learns_the_same_curve_as_one_device(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """4 mirrored devices, whose --batch_size counts for each, and central storage give one device's curves on the same global batch."""
    runs = {
        "one": launch(*FLAGS, folder=tmp_path / "one"),
        "four": launch(*QUICK, "--batch_size=12", folder=tmp_path / "four", env={"TRAINER_VIRTUAL_DEVICES": "4"}),
        "central": launch(*FLAGS, "--strategy=central-storage", folder=tmp_path / "central",
                          env={"TRAINER_VIRTUAL_DEVICES": "2"}),
    }  # fmt: skip
    told = {}
    for name, run in runs.items():
        ended = run.wait()
        assert ended.code == 0, ended.err
        told[name] = summary(tmp_path / name)
    assert "4 logical CPU devices as a stand-in" in runs["four"].err
    assert [told[name]["replicas"] for name in runs] == [1, 4, 2]
    assert [told[name]["strategy"] for name in runs] == ["one-device", "mirrored", "central-storage"]
    assert [(told[name]["global_batch_size"], told[name]["steps"]) for name in runs] == [(48, 2 * (1438 // 48))] * 3
    for name in ("four", "central"):
        for row, expected in zip(told[name]["history"], told["one"]["history"], strict=True):
            for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
                assert row[key] == pytest.approx(expected[key], rel=2e-3, abs=2e-3), (name, key)
