"""A user's overlay over the catalog: what it corrects and adds, and what it may not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tools import examples
from vertexrig.catalog import KEYS, Catalog, by_name, load
from vertexrig.catalog.overlay import catalog_with, lay_over
from vertexrig.catalog.rows import TABLES
from vertexrig.errors import ConfigError
from vertexrig.spec.estimate import hourly


def overlaid(folder: Path, text: str) -> Catalog:
    """The catalog under an overlay of this text."""
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return catalog_with(file)


def test_shipped_rows_pass_the_overlay_schema(tmp_path: Path) -> None:
    """The shipped rows, given as an overlay, are accepted and change nothing but source and date."""
    shipped = {table: by_name(table) for table in KEYS if table != "sources"}
    left_out = {"name", "item", "key", "source", "date"}
    kept = {
        table: {name: {k: v for k, v in row.items() if k not in left_out} for name, row in rows.items()}
        for table, rows in shipped.items()
    }
    for row in kept["accelerators"].values():
        row.pop("pod_name", None)
    file = tmp_path / "overlay.yaml"
    file.write_text(json.dumps(kept), encoding="utf-8")
    laid = lay_over(file)
    for table, rows in shipped.items():
        for name, row in rows.items():
            mine = {**laid[table][name], "source": row["source"], "date": row["date"]}
            assert {k: v for k, v in mine.items() if v != ""} == {k: v for k, v in row.items() if v != ""}
            assert laid[table][name]["source"] == f"your overlay {file}"


def test_overlay_corrects(tmp_path: Path) -> None:
    """A correction changes the named fields of a row, merges its mappings, and leaves all else and the shipped rows."""
    found = overlaid(
        tmp_path,
        """
        machines: {n1-standard-8: {memory_gb: 31.5, accelerators: {NVIDIA_TESLA_T4: [1]}, source: we measured}}
        regions: {us-central1: {quotas: {l4: 8}}}
        prices:
          n1-standard-4: {compute_engine_usd: 0.2}
          n1-standard-8: {usd_per_hour: 0.41, date: 2026-11-01}
        limits: {labels.max: {value: 65}}
        quotas: {p4: {metric: nvidia_p4_gpus}}
        """,
    )
    machine = found.machines["n1-standard-8"]
    assert (machine.memory_gb, machine.vcpus, machine.source, machine.date) == (31.5, 8, "we measured", "undated")
    assert machine.accelerators == {**load().machines["n1-standard-8"].accelerators, "NVIDIA_TESLA_T4": (1,)}
    assert found.default_quota("us-central1", "NVIDIA_L4") == 8
    assert found.default_quota("us-central1", "NVIDIA_TESLA_T4") == 12
    mine = found.prices["n1-standard-8"]
    assert (mine.usd_per_hour, mine.basis, mine.date, mine.note) == (0.41, "listed", "2026-11-01", "")
    assert mine.source == f"your overlay {tmp_path / 'mine.yaml'}"
    derived = found.prices["n1-standard-4"]
    assert derived.basis == "derived"
    assert derived.usd_per_hour == pytest.approx(0.23)
    assert found.limits.integer("labels.max") == 65
    assert found.accelerators["NVIDIA_TESLA_P4"].quota == "nvidia_p4_gpus"
    assert load().machines["n1-standard-8"].memory_gb == 30
    assert load().default_quota("us-central1", "NVIDIA_L4") == 0


def test_overlay_adds(tmp_path: Path) -> None:
    """New rows of every kind are found by the questions, and may refer to each other."""
    found = overlaid(
        tmp_path,
        """
        machines:
          x9-gpu-2: {family: x9, vcpus: 8, memory_gb: 64, accelerators: {NVIDIA_X9: [2]}, accelerator_required: true}
          n1-standard-2: {family: n1, vcpus: 2, memory_gb: 7.5}
          ct9-standard-4t: {family: ct9, vcpus: null, memory_gb: null, tpu: TPU_V6E, tpu_topologies: {2x2: [4, 1]}}
        accelerators: {NVIDIA_X9: {kind: gpu, max_per_vm: 2}}
        quotas: {x9: {unit: GPUs, applies_to: [NVIDIA_X9], metric: nvidia_x9_gpus}}
        regions: {moon-east1: {gcloud: false, training: [NVIDIA_X9], quotas: {x9: 3}}}
        prices:
          NVIDIA_X9: {kind: accelerator, usd_per_hour: 9}
          n4-vcpu: {kind: vcpu, usd_per_hour: 4e-2}
        images:
          tf-gpu.2-99: {framework: tf, version: "2.99", python: "3.13", kind: gpu, hypertune: true,
            end_of_support: 2030-01-01,
            end_of_availability: 2031-01-01,
            repository_path: "vertex-ai/training/tf-gpu.2-99:latest"}
        """,
    )
    assert found.count_allowed("x9-gpu-2", "NVIDIA_X9", 2)
    assert found.accelerators["NVIDIA_X9"].machines == ("x9-gpu-2",)
    assert found.regions_with("NVIDIA_X9") == ("moon-east1",)
    assert found.quota_metric("NVIDIA_X9") == "aiplatform.googleapis.com/custom_model_training_nvidia_x9_gpus"
    assert found.default_quota("moon-east1", "NVIDIA_X9") == 3
    assert hourly(found, "x9-gpu-2", "NVIDIA_X9", 2)[1].usd_per_hour == 18
    assert found.prices["n4-vcpu"].usd_per_hour == 0.04
    assert found.find_short("tf-2.99", "gpu") is not None
    assert found.why_not("n1-standard-2") is None
    assert found.machines["ct9-standard-4t"].tpu_topologies["2x2"].vms == 1
    assert all(row["source"] and row["date"] for table in TABLES for row in found.rows(table))


def test_documented_overlay(tmp_path: Path) -> None:
    """The overlay shown in docs/catalog.md is accepted and does what it says."""
    page = Path(__file__).parents[3] / "docs" / "catalog.md"
    found = overlaid(tmp_path, page.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0])
    assert (found.machines["n1-standard-8"].memory_gb, found.machines["n9-standard-4"].vcpus) == (31, 4)
    assert (found.prices["n1-standard-8"].usd_per_hour, found.prices["n2-vcpu"].basis) == (0.41, "derived")
    assert found.default_quota("us-central1", "NVIDIA_L4") == 8


NEW = "{family: x, vcpus: 1, memory_gb: 1"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("\nmachine: {}", 2, "Did you mean 'machines'"),
        ("- machines", 1, "is a list; a mapping belongs here"),
        ("machines: 3", 1, "3 is a whole number; a mapping belongs here"),
        ("machines:\n  n1-standard-4:", 2, "null is nothing; a mapping belongs here"),
        ("machines:\n  n1-standard-4:\n    memory: 3", 3, "Did you mean 'memory_gb'"),
        ("machines:\n  n1-standard-4:\n    vcpus: '4'", 3, "'4' is text; a whole number belongs here"),
        ("machines:\n  n1-standard-4:\n    vcpus: 4.0", 3, "4.0 is a number; a whole number belongs here"),
        ("machines:\n  n1-standard-4:\n    vcpus: true", 3, "true is a boolean; a whole number"),
        ("machines:\n  n1-standard-4:\n    vcpus: -1", 3, "-1 is below 0"),
        ("machines:\n  n1-standard-4:\n    memory_gb: .nan", 3, "nan is not a finite number"),
        ("machines:\n  n1-standard-4: {accelerators:\n    {NVIDIA_TESLA_T5: [1]}}", 3, "'NVIDIA_TESLA_T5' is not"),
        ("machines: {n1-standard-4: {accelerators: {NVIDIA_L4: [0]}}}", 1, "0 is below 1"),
        ("machines: {n1-standard-4: {accelerators: {NVIDIA_L4: 1}}}", 1, "1 is a whole number; a list belongs here"),
        ("machines: {n1-standard-4: {accelerators: [NVIDIA_L4]}}", 1, "is a list; a mapping belongs here"),
        ("machines: {x: {family: x}}", 1, "machines.x: the row is new and lacks vcpus, memory_gb"),
        (f"machines: {{x: {NEW}, tpu: TPU_V9}}}}", 1, "'TPU_V9' is not known"),
        (f"machines: {{x: {NEW}, tpu_topologies: {{2x2: [4]}}}}}}", 1, "2 belong here"),
        ("machines: {x: {}, x: {}}", 1, "key 'x' is there twice"),
        ("machines: {4: {}}", 1, "machines.4: the row is new"),
        ("images: {tf-cpu.2-17.py310: {version: 2.17}}", 1, "2.17 is a number; text belongs here: put it in quotes"),
        ("images: {tf-cpu.2-17.py310: {end_of_support: soon}}", 1, "a date such as 2026-11-20"),
        ("images: {tf-cpu.2-17.py310: {kind: cpus}}", 1, "Did you mean 'cpu'"),
        ("images: {tf-cpu.2-17.py310: {hypertune: 1}}", 1, "1 is a whole number; true or false belongs here"),
        ("prices: {n1-standard-4: {usd_per_hour: cheap}}", 1, "'cheap' is text; a number belongs here"),
        ("prices: {x: {kind: machine}}", 1, "lacks usd_per_hour"),
        ("prices: {x: {kind: machine, compute_engine_usd: null}}", 1, "compute_engine_usd is null; a number belongs"),
        ("prices: {n1-standard-4: {usd_per_hour: 1, compute_engine_usd: 1}}", 1, "not both"),
        ("regions: {us-central1: {training: [NVIDIA_TESLA_T5]}}", 1, "is not known"),
        ("regions: {us-central1: {quotas: {tt4: 1}}}", 1, "Did you mean 't4'"),
        ("regions: {us-central1: {training: NVIDIA_L4}}", 1, "'NVIDIA_L4' is text; a list belongs here"),
        ("limits: {label.max: {value: 1}}", 1, "Did you mean 'labels.max'"),
        ("limits: {labels.max: {value: many}}", 1, "must stay of type int"),
        ("machines: {n1-standard-4: {source: ''}}", 1, "source: '' is not a text"),
        ("machines: {n1-standard-4: {source: 3}}", 1, "source: 3 is a whole number; text belongs here"),
        ("machines: {n1-standard-4: {date: yesterday}}", 1, "a date such as"),
        ("sources: {x: {}}", 1, "has no table of this name"),
        ("machines: [", None, "not valid YAML"),
        ("a: b\n\tc: d", 2, "a tab is where"),
        ("a: 1\n---\nb: 2", 2, "not valid YAML"),
        ("machines: *nothing", 1, "not valid YAML"),
        ("machines: &a {n1-standard-4: *a}", 1, "an alias refers to a value that contains it"),
        ("machines: {n1-standard-4: {vcpus: !!python/object:os.system x}}", 1, "not valid YAML"),
        ("machines: {n1-standard-4: {vcpus: !!int x}}", 1, "not a value of its kind"),
        ("? [a]\n: b", 1, "a key must be plain text"),
        ("\0", None, "not valid YAML"),
        ("[" * 5000, 1, "nested more than 100 deep"),
    ],
)  # fmt: skip
def test_overlay_bad_input(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    """A bad overlay is a configuration error that names the file, the line, the value and the rule."""
    with pytest.raises(ConfigError) as caught:
        overlaid(tmp_path, text)
    assert says in caught.value.message
    assert caught.value.file == str(tmp_path / "mine.yaml")
    assert line is None or caught.value.line == line


def test_overlay_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no text are configuration errors that name the file."""
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "none.yaml", tmp_path, binary):
        with pytest.raises(ConfigError) as caught:
            catalog_with(file)
        assert caught.value.file == str(file)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "machines: {}", "---\n"])
def test_overlay_without_rows(tmp_path: Path, text: str) -> None:
    """An overlay without rows is the shipped catalog."""
    assert overlaid(tmp_path, text).rows("machines") == load().rows("machines")


NAMES = st.sampled_from(
    ["machines", "prices", "regions", "limits", "images", "quotas", "accelerators", "n1-standard-4", "us-central1",
     "labels.max", "value", "vcpus", "accelerators", "quotas", "NVIDIA_L4", "l4", "source", "tf-cpu.2-17.py310"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=examples(40, 1500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_overlay_of_any_shape(tmp_path: Path, value: object) -> None:
    """Whatever an overlay holds, it is either a configuration error or a catalog whose tables all come out."""
    try:
        found = overlaid(tmp_path, json.dumps(value))
    except ConfigError as error:
        assert error.file
        return
    for table in KEYS:
        found.rows(table)
