"""Strategies of one process, on virtual devices: they run for real and train alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.conftest import QUICK, Launched, summary

FLAGS = (*QUICK, "--global_batch_size=48")


@pytest.mark.whole
def test_mirrored_learns_the_same_curve_as_one_device(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """2 and 4 mirrored devices and central storage give one device's curves on the same global batch."""
    runs = {
        "one": launch(*FLAGS, folder=tmp_path / "one"),
        "two": launch(*FLAGS, folder=tmp_path / "two", env={"TRAINER_VIRTUAL_DEVICES": "2"}),
        "four": launch(*FLAGS, folder=tmp_path / "four", env={"TRAINER_VIRTUAL_DEVICES": "4"}),
        "central": launch(*FLAGS, "--strategy=central-storage", folder=tmp_path / "central",
                          env={"TRAINER_VIRTUAL_DEVICES": "2"}),
    }  # fmt: skip
    told = {}
    for name, run in runs.items():
        ended = run.wait()
        assert ended.code == 0, ended.err
        told[name] = summary(tmp_path / name)
    assert "2 logical CPU devices as a stand-in" in runs["two"].err
    assert [told[name]["replicas"] for name in runs] == [1, 2, 4, 2]
    assert [told[name]["strategy"] for name in runs] == ["one-device", "mirrored", "mirrored", "central-storage"]
    for name in ("two", "four", "central"):
        for row, expected in zip(told[name]["history"], told["one"]["history"], strict=False):
            for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
                assert row[key] == pytest.approx(expected[key], rel=2e-3, abs=2e-3), (name, key)


@pytest.mark.whole
def test_batch_is_per_replica(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """--batch_size counts for each replica: the global batch and so the learning steps follow."""
    ended = launch(*QUICK, "--batch_size=16", "--epochs=1", env={"TRAINER_VIRTUAL_DEVICES": "3"}).wait()
    assert ended.code == 0, ended.err
    assert summary(tmp_path)["global_batch_size"] == 48 and summary(tmp_path)["steps"] == 1438 // 48
