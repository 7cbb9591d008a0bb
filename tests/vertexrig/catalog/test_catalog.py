"""The catalog: its shipped tables and the questions asked of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import localvertex
import vertexrig
from vertexrig import catalog
from vertexrig.catalog import KEYS, load, read
from vertexrig.errors import UsageError

CATALOG = load()
T4_P4_P100_V100 = {
    "NVIDIA_TESLA_P4": (1, 2, 4),
    "NVIDIA_TESLA_P100": (1, 2, 4),
    "NVIDIA_TESLA_T4": (1, 2, 4),
    "NVIDIA_TESLA_V100": (1, 2, 4, 8),
}

# One case per machine type that was looked at by hand: name, vCPUs, GB, accelerators. Add one for a new machine type.
MACHINES = [
    ("n1-standard-4", 4, 15, T4_P4_P100_V100),
    ("n1-standard-8", 8, 30, T4_P4_P100_V100),
    ("n1-standard-16", 16, 60, {**T4_P4_P100_V100, "NVIDIA_TESLA_V100": (2, 4, 8)}),
    (
        "n1-standard-32",
        32,
        120,
        {
            "NVIDIA_TESLA_P4": (2, 4),
            "NVIDIA_TESLA_P100": (2, 4),
            "NVIDIA_TESLA_T4": (2, 4),
            "NVIDIA_TESLA_V100": (4, 8),
        },
    ),
    ("n1-standard-96", 96, 360, {"NVIDIA_TESLA_P4": (4,), "NVIDIA_TESLA_T4": (4,), "NVIDIA_TESLA_V100": (8,)}),
    ("n1-highcpu-16", 16, 14.4, {**T4_P4_P100_V100, "NVIDIA_TESLA_V100": (2, 4, 8)}),
    (
        "n1-highcpu-64",
        64,
        57.6,
        {"NVIDIA_TESLA_P4": (4,), "NVIDIA_TESLA_P100": (4,), "NVIDIA_TESLA_T4": (4,), "NVIDIA_TESLA_V100": (8,)},
    ),
    ("e2-standard-4", 4, 16, {}),
    ("e2-highmem-2", 2, 16, {}),
    ("n2-highcpu-80", 80, 80, {}),
    ("n4-highcpu-2", 2, 4, {}),
    ("c2-standard-60", 60, 240, {}),
    ("m1-megamem-96", 96, 1433.6, {}),
    ("a2-highgpu-1g", 12, 85, {"NVIDIA_TESLA_A100": (1,)}),
    ("a2-megagpu-16g", 96, 1360, {"NVIDIA_TESLA_A100": (16,)}),
    ("a2-ultragpu-8g", 96, 1360, {"NVIDIA_A100_80GB": (8,)}),
    ("a3-highgpu-8g", 208, 1872, {"NVIDIA_H100_80GB": (8,)}),
    ("a3-megagpu-8g", 208, 1872, {"NVIDIA_H100_MEGA_80GB": (8,)}),
    ("a3-ultragpu-8g", 224, 2952, {"NVIDIA_H200_141GB": (8,)}),
    ("a4-highgpu-8g", 224, 3968, {"NVIDIA_B200": (8,)}),
    ("a4x-highgpu-4g", 140, 884, {"NVIDIA_GB200": (4,)}),
    ("g2-standard-8", 8, 32, {"NVIDIA_L4": (1,)}),
    ("g2-standard-32", 32, 128, {"NVIDIA_L4": (1,)}),
    ("g2-standard-96", 96, 384, {"NVIDIA_L4": (8,)}),
    ("g4-standard-384", 384, 1440, {"NVIDIA_RTX_PRO_6000": (8,)}),
    ("cloud-tpu", None, None, {"TPU_V2": (8,), "TPU_V3": (8,)}),
    ("ct5lp-hightpu-4t", 112, 192, {}),
    ("ct6e-standard-8t", 360, 1440, {}),
    ("tpu7x-standard-4t", 224, 960, {}),
]

FAMILIES = {
    "a2": 9, "a3": 6, "a4": 1, "a4x": 1, "c2": 5, "cloud": 1, "ct5lp": 3, "ct6e": 3, "e2": 10, "g2": 8, "g4": 4,
    "m1": 4, "n1": 17, "n2": 20, "n4": 24, "tpu7x": 1,
}  # fmt: skip


@pytest.mark.parametrize(("name", "vcpus", "memory_gb", "accelerators"), MACHINES, ids=[row[0] for row in MACHINES])
def test_machine(
    name: str, vcpus: int | None, memory_gb: float | None, accelerators: dict[str, tuple[int, ...]]
) -> None:
    """A machine type has the documented size and takes the documented accelerators."""
    machine = CATALOG.machines[name]
    assert (machine.vcpus, machine.memory_gb, dict(machine.accelerators)) == (vcpus, memory_gb, accelerators)


def test_machine_families() -> None:
    """The 117 machine types documented on 2026-08-22 are there, by family, and each is in the family its name says."""
    counted: dict[str, int] = {}
    for machine in CATALOG.machines.values():
        counted[machine.family] = counted.get(machine.family, 0) + 1
        assert machine.name.partition("-")[0] == machine.family
    assert {family: counted.get(family, 0) >= least for family, least in FAMILIES.items()} == dict.fromkeys(
        FAMILIES, True
    )
    assert sum(FAMILIES.values()) == 117


def test_memory_of_regular_families() -> None:
    """Memory follows from vCPUs in the families where it does, so that no row is mistyped."""
    per_vcpu = {
        "n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9, "e2-standard": 4, "e2-highmem": 8, "e2-highcpu": 1,
        "n2-standard": 4, "n2-highmem": 8, "n2-highcpu": 1, "n4-standard": 4, "n4-highmem": 8, "n4-highcpu": 2,
        "c2-standard": 4, "g2-standard": 4, "g4-standard": 3.75,
    }  # fmt: skip
    checked = 0
    for machine in CATALOG.machines.values():
        series, _, size = machine.name.rpartition("-")
        if series in per_vcpu:
            assert machine.vcpus == int(size)
            assert machine.memory_gb == pytest.approx(per_vcpu[series] * machine.vcpus)
            checked += 1
    assert checked >= 88


def test_counts_are_powers_of_two() -> None:
    """Every accelerator count is a power of two, ascending, and within what one VM takes."""
    for machine in CATALOG.machines.values():
        for name, counts in machine.accelerators.items():
            most = CATALOG.accelerators[name].max_per_vm
            assert counts, machine.name
            assert list(counts) == sorted(set(counts))
            assert all(count & (count - 1) == 0 and (most is None or count <= most) for count in counts), machine.name


def test_fixed_machines_take_one_value() -> None:
    """A machine that comes with GPUs takes exactly one type and count, and its name's last number agrees."""
    for machine in CATALOG.machines.values():
        if machine.accelerator_required and machine.name != "cloud-tpu":
            ((_, counts),) = machine.accelerators.items()
            assert len(counts) == 1
            found = re.search(r"-(\d+)g$", machine.name)
            assert found is None or counts == (int(found[1]),)


def test_tpu_topologies() -> None:
    """A slice has the product of its dimensions in chips, and one VM per the machine's 1, 4 or 8 chips."""
    slices = 0
    for machine in CATALOG.machines.values():
        assert bool(machine.tpu) == bool(machine.tpu_topologies)
        for name, topology in machine.tpu_topologies.items():
            chips = 1
            for side in name.split("x"):
                chips *= int(side)
            assert topology.chips == chips
            assert topology.vms == chips // int(machine.name.rpartition("-")[2].removesuffix("t"))
            slices += 1
    assert slices == 27


def test_accelerators_and_machines_agree() -> None:
    """Each accelerator lists exactly the machines that take it, and no machine takes one that is not in the table."""
    for machine in CATALOG.machines.values():
        for name in machine.accelerators:
            assert machine.name in CATALOG.accelerators[name].machines
        if machine.tpu:
            assert machine.name in CATALOG.accelerators[machine.tpu].machines
    carried = {row.name: max((max(CATALOG.machines[m].accelerators[row.name]) for m in row.machines), default=0)
               for row in CATALOG.accelerators.values() if row.kind == "gpu"}  # fmt: skip
    assert carried == {row.name: row.max_per_vm for row in CATALOG.accelerators.values() if row.kind == "gpu"}


def test_accelerator_names_of_the_api() -> None:
    """The names marked as the API's are those of the installed client, and gcloud lacks the two newest."""
    names = pytest.importorskip("google.cloud.aiplatform_v1.types.accelerator_type").AcceleratorType.__members__
    ours = {row.name for row in CATALOG.accelerators.values() if row.api_enum}
    assert ours == set(names) - {"ACCELERATOR_TYPE_UNSPECIFIED"}
    missing = {row.name for row in CATALOG.accelerators.values() if row.api_enum and not row.gcloud_enum}
    assert missing == {"NVIDIA_GB200", "NVIDIA_RTX_PRO_6000"}


def test_retired_accelerators() -> None:
    """P100 ended on its documented date; K80 and TPU v4 are not for training; nothing else is retired."""
    retired = {row.name: row.retired for row in CATALOG.accelerators.values() if row.retired}
    assert retired.pop("NVIDIA_TESLA_P100") == "2026-09-15"
    assert set(retired) == {"NVIDIA_TESLA_K80", "TPU_V4_POD"}


def test_flex_start() -> None:
    """FLEX_START is for L4, A100, H100, H200 and B200 only."""
    assert {row.name for row in CATALOG.accelerators.values() if row.flex_start} == {
        "NVIDIA_L4", "NVIDIA_TESLA_A100", "NVIDIA_A100_80GB", "NVIDIA_H100_80GB", "NVIDIA_H100_MEGA_80GB",
        "NVIDIA_H200_141GB", "NVIDIA_B200",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "accelerator", "count", "allowed"),
    [
        ("n1-standard-8", "NVIDIA_TESLA_T4", 4, True),
        ("n1-standard-8", "NVIDIA_TESLA_T4", 3, False),
        ("n1-standard-8", "NVIDIA_L4", 1, False),
        ("e2-standard-4", "NVIDIA_TESLA_T4", 1, False),
        ("cloud-tpu", "TPU_V2", 8, True),
        ("cloud-tpu", "TPU_V2", 96, True),
        ("cloud-tpu", "TPU_V3", 16, False),
        ("cloud-tpu", "TPU_V3", 48, False),
        ("n1-standard-8", "TPU_V2", 32, False),
        ("nothing", "TPU_V2", 32, False),
        ("n1-standard-8", "NOTHING", 1, False),
    ],
)
def test_count_allowed(machine: str, accelerator: str, count: int, allowed: bool) -> None:
    """Only the table's counts are allowed, and multiples of 32 cores for TPU pods."""
    assert CATALOG.count_allowed(machine, accelerator, count) is allowed


def test_machines_that_are_not_for_training() -> None:
    """Known Compute Engine types and rejected families come with a reason; training and unknown types do not."""
    assert "predictions" in (CATALOG.why_not("n1-standard-2") or "")
    assert "not supported" in (CATALOG.why_not("n1-standard-1") or "")
    assert "rejects" in (CATALOG.why_not("c3-standard-8") or "")
    assert "rejects" in (CATALOG.why_not("m3-ultramem-32") or "")
    assert CATALOG.why_not("n1-standard-4") is None
    assert CATALOG.why_not("n9-standard-4") is None
    assert not set(CATALOG.other_machines) & set(CATALOG.machines)


def test_regions() -> None:
    """There are gcloud's 38 training regions and asia-south2, each with quotas that name a known key."""
    assert sum(region.gcloud for region in CATALOG.regions.values()) == 38
    assert [name for name, region in CATALOG.regions.items() if not region.gcloud] == ["asia-south2"]
    for region in CATALOG.regions.values():
        assert {*region.training, *region.not_for_training} <= set(CATALOG.accelerators)
        assert not set(region.training) & set(region.not_for_training)
        assert {"n1_e2_cpus", "ssd_gb"} <= set(region.quotas) <= set(CATALOG.quotas)
    assert "NVIDIA_L4" in CATALOG.regions["us-west4"].not_for_training


def test_regions_of_an_accelerator() -> None:
    """A machine and count give the name regions use, and that name gives the regions."""
    assert CATALOG.regional_name("cloud-tpu", "TPU_V2", 8) == "TPU_V2"
    assert CATALOG.regional_name("cloud-tpu", "TPU_V3", 32) == "TPU_V3_POD"
    assert CATALOG.regional_name("ct5lp-hightpu-4t") == "TPU_V5E"
    assert CATALOG.regional_name("n1-standard-4") is None
    assert CATALOG.regional_name("n1-standard-4", "NVIDIA_TESLA_T4", 1) == "NVIDIA_TESLA_T4"
    assert CATALOG.regions_with("TPU_V3_POD") == ("europe-west4",)
    assert CATALOG.regions_with("TPU_V5E") == ("us-central1", "us-east1", "us-west1", "us-west4")
    assert {row.pod_name for row in CATALOG.accelerators.values() if row.pod_step} <= set(CATALOG.accelerators)


def test_compute_engine_regions() -> None:
    """Compute Engine's own availability is there for the machines its dump of 2026-08-20 has."""
    assert CATALOG.compute_engine_regions("a2-megagpu-16g") == frozenset(
        ["asia-southeast1", "europe-west4", "us-central1"]
    )
    assert CATALOG.compute_engine_regions("cloud-tpu") is None  # an alias of Vertex AI's own
    assert sum(CATALOG.compute_engine_regions(name) is not None for name in CATALOG.machines) >= 116


def test_images() -> None:
    """There are 91 images; paths follow Google's pattern; support ends before availability."""
    assert len(CATALOG.images) == 91
    assert len({row.repository_path for row in CATALOG.images}) == 91
    pattern = r"vertex-ai/training/[a-z-]+-(cpu|gpu|tpu|xla)\.\d+-\d+(\.(py|cp)3\d+)?:latest"
    for row in CATALOG.images:
        assert re.fullmatch(pattern, row.repository_path)
        assert row.repository_path == f"vertex-ai/training/{row.name}:latest"
        assert row.end_of_support < row.end_of_availability
        assert (row.cuda is None) == (row.kind in ("cpu", "tpu"))
        assert row.version.split(".")[:2] == row.name.split(".")[1].split("-")
    newest = max(row.end_of_availability for row in CATALOG.images if row.framework != "ray")
    assert newest == "2026-10-23"


@pytest.mark.parametrize(
    ("short", "kind", "name"),
    [
        ("tf-2.17", "cpu", "tf-cpu.2-17.py310"),
        ("tf-2.17", "gpu", "tf-gpu.2-17.py310"),
        ("tensorflow-2.15", "tpu", "tf-tpu.2-15.cp310"),
        ("tf-2.17", "tpu", None),
        ("tf-2.11", "cpu", "tf-cpu.2-11.py310"),
        ("pytorch-2.4", "cpu", "pytorch-xla.2-4.py310"),
        ("pytorch-1.13", "cpu", "pytorch-gpu.1-13.py310"),
        ("scikit-learn-1.6", "cpu", "sklearn-cpu.1-6"),
        ("xgboost-2.1", "gpu", "xgboost-gpu.2-1"),
        ("ray-2.47", "cpu", "ray-cpu.2-47.py311"),
        ("ray-2.47.1", "cpu", "ray-cpu.2-47.py311"),
        ("tf-2.1", "cpu", "tf-cpu.2-1"),
        ("tf-2", "cpu", None),
        ("tf", "cpu", None),
        ("", "cpu", None),
    ],
)
def test_short_names(short: str, kind: str, name: str | None) -> None:
    """A short name and a kind find the newest image of that version, and nothing near it."""
    found = CATALOG.find_short(short, kind)
    assert (found.name if found else None) == name


def test_image_uris() -> None:
    """An image is known by its exact URI on any of the three hosts; a short name leads back to it."""
    for row in CATALOG.images:
        for host in ("us-docker.pkg.dev", "europe-docker.pkg.dev", "asia-docker.pkg.dev"):
            assert CATALOG.image(row.uri(host)) is row
        kind = row.kind.split("_")[0]
        assert CATALOG.find_image(row.framework, row.version, kind, row.python) is not None
        assert row.short_name in CATALOG.short_names()
    good = "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest"
    assert CATALOG.image(good) is not None
    for bad in (good.replace(":latest", ""), "gcr.io/" + good.partition("/")[2], good + " ", ""):
        assert CATALOG.image(bad) is None
    older = CATALOG.find_image("tf", "2.11", "cpu", python="3.7")
    assert older is not None and older.name == "tf-cpu.2-11"


def test_reduction_server() -> None:
    """Google's Reduction Server image is known on each host, and is no training image."""
    uri = "asia-docker.pkg.dev/vertex-ai-restricted/training/reductionserver:latest"
    assert CATALOG.is_reduction_server(uri)
    assert CATALOG.image(uri) is None
    assert not CATALOG.is_reduction_server("gcr.io/x/reductionserver:latest")
    assert CATALOG.limits.text("reduction_server.machine") in CATALOG.machines


def test_hosts() -> None:
    """Every region has the image host of its part of the world."""
    hosts = CATALOG.limits.names("images.hosts")
    assert {CATALOG.host_for_region(name) for name in CATALOG.regions} == set(hosts)
    assert CATALOG.host_for_region("europe-west4") == "europe-docker.pkg.dev"
    assert CATALOG.host_for_region("australia-southeast1") == "asia-docker.pkg.dev"
    assert CATALOG.host_for_region("mars-north1") == hosts[0]
    assert {name.partition("-")[0] for name in CATALOG.regions} <= set(CATALOG.limits.table("images.host_of_area"))


def test_every_row_has_source_and_date() -> None:
    """Every shipped row cites known sources, carries an ISO date, and no two rows share a name."""
    keys = {row["key"] for row in read("sources")}
    for table in [*KEYS, "other_machines", "machine_regions"]:
        rows = read(table)
        for row in rows:
            assert re.fullmatch(r"\d{4}-\d\d(-\d\d)?", row["date"]), row
            if table != "sources":
                assert row["source"] and set(row["source"].split()) <= keys, row
        if table in KEYS:
            assert len({row[KEYS[table]] for row in rows}) == len(rows)


def test_one_row_per_line() -> None:
    """Data files hold one row per line, so that a change of one row is a change of one line."""
    folder = Path(catalog.__file__).parent / "data"
    for file in folder.glob("*.json"):
        first, *lines, last = file.read_text(encoding="utf-8").splitlines()
        assert (first, last) == ("[", "]"), file.name
        assert [json.loads(line.rstrip(",")) for line in lines] == json.loads(file.read_text(encoding="utf-8"))
    assert {file.stem for file in folder.glob("*.json")} == {*KEYS, "other_machines", "machine_regions"}


def test_every_limit_has_a_reader() -> None:
    """Each row of limits.json is read by its key somewhere in the tool: a row that nothing reads says nothing."""
    folders = (Path(package.__file__ or "").parent for package in (vertexrig, localvertex))
    code = "".join(file.read_text(encoding="utf-8") for folder in folders for file in folder.rglob("*.py"))
    assert [key for key in CATALOG.limits if f'"{key}"' not in code] == []


def test_limits() -> None:
    """Limits have the documented values, read with their types; patterns are regular expressions."""
    limits = CATALOG.limits
    assert (limits.integer("boot_disk.min_gb"), limits.integer("boot_disk.max_gb")) == (100, 64000)
    assert limits.names("boot_disk.types") == ("pd-ssd", "pd-standard", "hyperdisk-balanced")
    assert limits.integer("args.max_chars") == 100_000
    assert limits.integer("scheduling.default_timeout_s") == 7 * 24 * 3600
    assert limits.number("price.factor") == 1.15
    with pytest.raises(TypeError):
        limits.text("labels.max")
    with pytest.raises(KeyError):
        limits.text("nothing")
    for key in ("machines.need_reservation", "machines.spot_or_flex_start_only", "machines.gpudirect_rdma"):
        assert set(limits.names(key)) <= set(CATALOG.machines)


@pytest.mark.parametrize(
    "table", ["machines", "accelerators", "regions", "images", "prices", "quotas", "limits", "sources"]
)
def test_rows_are_plain(table: str) -> None:
    """A table comes out as plain values that JSON takes, one per row, with its date."""
    rows = CATALOG.rows(table)
    assert len(rows) == len(getattr(CATALOG, table))
    assert json.loads(json.dumps(rows)) == rows
    assert all(row["date"] for row in rows)


def test_rows_of_an_unknown_table() -> None:
    """An unknown table is a usage error that names the nearest."""
    with pytest.raises(UsageError, match="Did you mean 'machines'"):
        CATALOG.rows("machine")
