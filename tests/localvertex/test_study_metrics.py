"""The metric file: read while it is written, by hypertune and by others, whatever stands in it."""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localvertex.jobs.metrics import MetricFile
from tests.support.tools import examples


def reader(path: Path, *ids: str, started: float | None = None, after: float = -1.0) -> MetricFile:
    return MetricFile(path, ids or ("accuracy",), started=time.time() if started is None else started, after=after)


def line(value: object, step: int, tag: str = "accuracy", **more: object) -> str:
    return json.dumps({tag: value, "global_step": str(step), **more}) + "\n"


def seen(file: MetricFile) -> list[tuple[int, float]]:
    return [(found.step, found.metrics["accuracy"]) for found in file.read()]


def test_reports_of_the_real_hypertune_arrive_once_each(tmp_path: Path) -> None:
    """250 reports of cloudml-hypertune in a process of its own, read all the while, come in order and once."""
    path = tmp_path / "m" / "output.metrics"
    code = (
        "import hypertune, time\nh = hypertune.HyperTune()\n"
        "for i in range(1, 251):\n"
        "    h.report_hyperparameter_tuning_metric('accuracy', i / 1000, i)\n    time.sleep(0.004)\n"
    )
    file = reader(path)
    process = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "CLOUD_ML_HP_METRIC_FILE": str(path)})
    found = []
    while process.poll() is None:
        found += file.read()
    found += file.read()
    assert process.returncode == 0
    assert [own.step for own in found] == list(range(1, 251))
    assert [own.metrics["accuracy"] for own in found] == [i / 1000 for i in range(1, 251)]
    assert all(one.elapsed < other.elapsed for one, other in itertools.pairwise(found))


def test_a_window_of_the_last_100_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """With equal lines and no timestamps, what is new is told by how the window slid."""
    path = tmp_path / "m"
    file, rows, total = reader(path), [], 0
    for _ in range(140):
        rows.append(line(0.5, 0))
        path.write_text("".join(rows[-100:]) + " " * (len(rows) % 7))
        total += len(file.read())
    assert total == 100  # 100 equal lines and 101 look the same; nobody can tell them apart
    path.write_text("".join([*rows[-99:], line(0.6, 0)]))
    assert seen(file) == [(0, 0.6)]


def test_a_half_written_line_waits(tmp_path: Path) -> None:
    """A line is read when it is complete; a complete object without a newline counts."""
    path = tmp_path / "m"
    file = reader(path)
    path.write_text(line(0.1, 1) + line(0.2, 2)[:9])
    assert seen(file) == [(1, 0.1)]
    path.write_text(line(0.1, 1) + line(0.2, 2).rstrip("\n"))
    assert seen(file) == [(2, 0.2)]
    path.write_text(line(0.1, 1) + line(0.2, 2))
    assert seen(file) == []


def test_a_file_caught_in_the_middle_of_a_rewrite_brings_no_old_line_again(tmp_path: Path) -> None:
    """A truncated file, then half of it, then all and one more: only the one more is new."""
    path = tmp_path / "m"
    file = reader(path)
    rows = [line(i / 10, i) for i in range(1, 6)]
    path.write_text("".join(rows))
    assert len(seen(file)) == 5
    for part in ("", "".join(rows[:2]), "".join(rows[1:3]), rows[4][:5]):
        path.write_text(part)
        assert seen(file) == []
    path.write_text("".join(rows[1:]) + line(0.6, 6))
    assert seen(file) == [(6, 0.6)]


def test_a_study_taken_up_again_skips_what_it_knows(tmp_path: Path) -> None:
    """After a crash, entries with a time no later than the last known measurement are left out."""
    path, started = tmp_path / "m", time.time() - 10
    path.write_text(line("0.1", 1, timestamp=started + 1) + line("0.2", 2, timestamp=started + 2))
    assert seen(reader(path, started=started, after=1.0)) == [(2, 0.2)]


def test_values_come_as_text_number_or_not_at_all(tmp_path: Path) -> None:
    """Nan and infinities give no measurement but are remembered; junk lines are passed over."""
    path = tmp_path / "m"
    file = reader(path)
    path.write_text(line("0.5", 1) + line(0.6, 2) + "junk\n[1]\n" + line(None, 3) + line("nan", 4))
    assert seen(file) == [(1, 0.5), (2, 0.6)]
    assert file.diverged == "nan"
    assert file.explain() == "Invalid objective value: nan"
    with path.open("a") as out:
        out.write(line("0.7", 5) + '{"accuracy": -Infinity}\n')
    assert seen(file) == [(5, 0.7)]
    assert file.diverged == "-inf"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "wrote no metric file"),
        ("", "wrote no metric file"),
        (line("0.5", 1, tag="acuracy"), "'acuracy', but the study's metricId is 'accuracy'"),
        (line("0.5", 1, tag="training/hptuning/metric"), "empty tag"),
        (line("high", 1), "Invalid objective value: high"),
        ("epoch 1: 0.5\n", "none of which is a report"),
    ],
)
def test_no_measurement_is_explained(tmp_path: Path, text: str | None, says: str) -> None:
    """The explanation tells a missing file, a wrong tag, an empty tag, a wrong value and junk apart."""
    path = tmp_path / "m"
    if text is not None:
        path.write_text(text)
    file = reader(path)
    assert file.read() == []
    assert says in file.explain()


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    """A folder in the file's place does not end the study."""
    file = reader(tmp_path)
    assert file.read() == []
    assert "cannot be read" in file.explain()


def test_a_huge_file_is_read_from_its_tail(tmp_path: Path) -> None:
    """Of 40 MB the last lines arrive, and of one endless line nothing does."""
    path = tmp_path / "m"
    path.write_text("x" * 40_000_000 + "\n" + line(0.9, 7))
    assert seen(reader(path)) == [(7, 0.9)]
    path.write_text('{"accuracy": ' + "1" * 40_000_000)
    assert seen(reader(path)) == []


@settings(max_examples=examples(60, 150))
@given(
    st.lists(
        st.binary(max_size=60)
        | st.builds(lambda v, s, t: json.dumps({"accuracy": v, "global_step": s, "timestamp": t}).encode() + b"\n",
                    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.lists(st.integers()),
                    st.none() | st.floats() | st.integers() | st.text(max_size=5), st.floats() | st.text(max_size=3)),
        max_size=8,
    )
)  # fmt: skip
def test_whatever_stands_in_the_file_is_survived(tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]) -> None:
    """Random bytes and random entries give finite measurements with steps from 0, or none, and an explanation."""
    path = tmp_path_factory.mktemp("fuzz") / "m"
    file = reader(path)
    for i in range(len(parts)):
        path.write_bytes(b"".join(parts[: i + 1]))
        for found in file.read():
            assert found.step >= 0 and found.elapsed >= 0 and math.isfinite(found.metrics["accuracy"])
            json.dumps(found.to_dict(), allow_nan=False)
    assert file.explain()


@settings(max_examples=examples(40, 100))
@given(st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(0, 40), max_size=6), st.integers(1, 12))
def test_appended_lines_arrive_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], stops: list[int], window: int
) -> None:
    """However a growing file of repeated lines is cut up by the reads, every line arrives once and in order."""
    path = tmp_path_factory.mktemp("append") / "m"
    file, found = reader(path), []
    for stop in [*sorted(stops), len(values)]:
        path.write_text("".join(line(value, 0) for value in values[:stop]))
        found += [int(own.metrics["accuracy"]) for own in file.read()]
    assert found == values
