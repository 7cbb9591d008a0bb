"""What a job makes: the picture and its JSON, whole, and what holds for every job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples, typed, vertexrig
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.errors import FindingsError, UsageError
from vertexrig.explain import explanation as explain
from vertexrig.explain import picture as explain_text
from vertexrig.project import config
from vertexrig.spec.estimate import estimate
from vertexrig.times import length
from vertexrig.workspace import Workspace

TODAY = "2026-11-20"

PROJECT = """\
project: my-project
bucket: gs://my-bucket
trainer: {package_uris: [gs://my-bucket/packages/trainer-0.1.0.tar.gz]}
jobs:
  cpu: {machine_type: n1-standard-4, args: {epochs: 15}, timeout: 3600s}
  multi-worker:
    topology: multi-worker
    machine_type: n1-standard-8
    accelerator_type: NVIDIA_TESLA_T4
    accelerator_count: 1
    worker: {replica_count: 9}
    reduction_server: {replica_count: 2}
    evaluator: {}
    env: {NCCL_DEBUG: INFO}
    timeout: 7200s
  tpu: {topology: tpu, accelerator_type: TPU_V3, accelerator_count: 8, image: tf-2.15}
  pair: {topology: multi-worker, machine_type: n1-standard-4, worker: {replica_count: 1}, timeout: 3600s}
  spot: {machine_type: n1-standard-4, strategy: SPOT, timeout: 3600s}
sweeps:
  sweep:
    job: pair
    max_trial_count: 20
    parallel_trial_count: 3
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters:
        learning_rate: {double_value_spec: {min_value: 0.001, max_value: 1}, scale_type: UNIT_LOG_SCALE}
        optimizer:
          categorical_value_spec: {values: [sgd, adam]}
          conditional_parameter_specs:
          - parent_categorical_values: {values: [sgd]}
            parameter_spec: {parameter_id: momentum, discrete_value_spec: {values: [0, 0.9]}}
"""


def explained(name: str, region: str = "us-central1") -> explain.Explanation:
    """A job or sweep of the project above."""
    workspace = Workspace(config.loads(PROJECT, file=Path("vertexrig.yaml"), environ={}))
    rendered = workspace.renderer.render(name)
    document = spec.parse(rendered.text)
    assert not document.findings
    return explain.explain(document, workspace.catalog, region=region, name=name, topology=rendered.view.topology)


def from_pools(*pools: dict[str, Any], **more: Any) -> explain.Explanation:
    """A custom job of these worker pools."""
    document = spec.from_data({"workerPoolSpecs": list(pools), **more})
    assert not document.findings
    return explain.explain(document, load(), region="us-central1")


def pool(machine: str = "n1-standard-4", replicas: int = 1, **program: Any) -> dict[str, Any]:
    """A worker pool of a container."""
    return {
        "machineSpec": {"machineType": machine},
        "replicaCount": replicas,
        "containerSpec": {"imageUri": "gcr.io/p/i", **program},
    }


@pytest.mark.parametrize("name", ["multi-worker", "tpu", "sweep"])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    """The text for 80 columns is the recorded one."""
    golden(f"explain/{name}.txt", explain_text.text(explained(name), width=80, today=TODAY))


@pytest.mark.parametrize("name", ["cpu", "multi-worker", "tpu", "sweep", "spot"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_fits_the_terminal(name: str, width: int) -> None:
    """No line is wider than the terminal."""
    lines = explain_text.text(explained(name), width=width, today=TODAY).splitlines()
    assert [line for line in lines if len(line) > width] == []


def test_boxes_are_closed() -> None:
    """Every line of a table is as long as its first, and each pool has its column."""
    found = explained("multi-worker")
    rows = explain_text.picture(found.pools, found.replicas, 80)
    assert len({len(row) for row in rows}) == 1 and {row[0] + row[-1] for row in rows} == {"┌┐", "││", "├┤", "└┘"}
    assert sum(row.count("┌") + row.count("┬") for row in rows) == len(found.pools)


counts = st.lists(st.integers(0, 12), max_size=3)


@given(counts)
@settings(deadline=None)
def test_replicas_and_tf_config(workers: list[int]) -> None:
    """Replicas add up over the pools; TF_CONFIG is there if and only if there are two of them or more."""
    pools = [pool(), *(pool(replicas=count) if count else {} for count in workers)]
    found = from_pools(*pools)
    assert len(found.replicas) == 1 + sum(workers) == sum(one.replica_count for one in found.pools)
    plain = explain.data(found)
    for one, row in zip(found.replicas, plain["replicas"], strict=True):
        whole = found.tf_config(one)
        environment = found.environment(one)
        assert (whole is not None) == ("TF_CONFIG" in environment) == (len(found.replicas) > 1)
        assert json.loads(environment["CLUSTER_SPEC"]) == {**plain["cluster_spec"], "task": row["cluster_spec_task"]}
        if whole is None:
            assert plain["tf_config"] is None and row["tf_config_task"] is None
        else:
            assert (
                whole == {**plain["tf_config"], "task": row["tf_config_task"]} == json.loads(environment["TF_CONFIG"])
            )


@given(st.text(), st.text(max_size=40), st.text(min_size=1, max_size=10))
@settings(deadline=None)
def test_hostile_text_draws_no_line(machine: str, argument: str, name: str) -> None:
    """Text of a job adds no line to its box and no control character to the terminal."""
    found = from_pools(pool(machine, args=[argument], env=[{"name": name, "value": argument}]))
    rows = explain_text.picture(found.pools, found.replicas, 80)
    assert [row[0] for row in rows if row] == ["┌", "│", "├", *"│" * (len(rows) - 6), "├", "│", "└"]
    assert len({len(row) for row in rows}) == 1
    drawn = explain_text.text(found) + explain_text.replica_text(found, found.replicas[0])
    assert all(char.isprintable() for char in drawn.replace("\n", ""))


def test_price_of_a_known_machine() -> None:
    """n1-standard-4 with 100 GB of pd-ssd for two hours costs twice the sum of the two sourced prices."""
    price = from_pools(pool(), scheduling={"timeout": "7200s"}).price
    assert price.complete
    assert price.usd_per_hour == pytest.approx(0.21849885 + 100 * 0.0002678)
    assert price.usd_per_job == price.usd_at_most == pytest.approx(2 * price.usd_per_hour)
    assert price.wall_s == 7200


def test_price_of_a_sweep() -> None:
    """Twenty trials three at a time take seven rounds and cost twenty trials, each until its timeout."""
    price = explained("sweep").price
    assert (price.trials, price.parallel) == (20, 3)
    assert price.wall_s == 7 * 3600
    assert price.usd_at_most == pytest.approx(20 * price.usd_per_job)


def test_lines_of_equal_items_are_one() -> None:
    """Machines of the same type in several pools are one line whose price is the sum."""
    one, three = from_pools(pool()).price, from_pools(pool(), pool(replicas=2)).price
    assert [(line.item, line.quantity) for line in three.lines] == [("n1-standard-4", 3), ("pd-ssd", 300)]
    assert three.usd_per_hour == pytest.approx(3 * one.usd_per_hour)
    unknown = from_pools(pool("m9-none-1"), pool("m9-none-1")).price
    assert (unknown.lines[0].quantity, unknown.lines[0].usd_per_hour, unknown.complete) == (2, None, False)


def test_no_price_is_said() -> None:
    """Without a sourced price the line says so and the sums are lower bounds; with none at all they are unknown."""
    tpu = explain_text.text(explained("tpu"))
    assert "1 × cloud-tpu" in tpu and "price unknown" in tpu and "at least 0.0268" in tpu
    spot = explained("spot")
    assert not spot.price.complete and spot.price.usd_per_hour == 0
    assert [line.split()[-1] for line in explain_text.text(spot).splitlines() if "per hour" in line] == ["?"]


def test_no_timeout_is_the_default() -> None:
    """A job without a timeout is counted with the service's default of seven days, and told so."""
    found = from_pools(pool())
    assert found.price.timeout_s == 7 * 86400 and not found.price.timeout_written
    assert "timeout 7 days, the default" in explain_text.text(found)


def test_slices_of_several_hosts() -> None:
    """A TPU slice is one replica of as many VMs as its topology has; each is paid for."""
    data = pool("ct5lp-hightpu-4t")
    data["machineSpec"]["tpuTopology"] = "4x4"
    found = from_pools(data)
    assert (len(found.replicas), found.pools[0].vms, found.pools[0].accelerator_count) == (1, 4, 16)
    assert found.price.lines[0].quantity == 4
    assert "16 chips" in explain_text.text(found) and "4 VMs" in explain_text.text(found)


def test_directories_of_a_trial() -> None:
    """A trial's directories are below its id; its job's have none between."""
    assert explained("sweep").variables["AIP_MODEL_DIR"] == "gs://my-bucket/runs/sweep/1/model/"
    assert explained("cpu").variables["AIP_MODEL_DIR"] == "gs://my-bucket/runs/cpu/model/"
    assert "directories are not set: there is no" in explain_text.text(from_pools(pool()))


def test_end_dates_of_an_image() -> None:
    """An end date before today is marked, one after it is not."""
    found = explained("cpu")
    assert "end of availability 2026-07-11 (past)" in explain_text.text(found, today="2026-07-12")
    assert "end of availability 2026-07-11\n" in explain_text.text(found, today="2026-07-11")


def test_own_variables_are_expanded() -> None:
    """A replica finds the job's own variables after the service's, with references filled in."""
    found = from_pools(pool(env=[{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)/$(CLOUD_ML_REGION)"}]))
    assert found.environment(found.replicas[0])["B"] == "1/us-central1"


def test_reduction_server_is_named() -> None:
    """Pool 2 with Google's Reduction Server image is labelled so, though its task type is ps."""
    pools = {one.index: one for one in explained("multi-worker").pools}
    assert (pools[2].role, pools[2].label) == ("ps", "reduction server")


def test_quota_needs_the_region() -> None:
    """Without a region no default quota is claimed."""
    found = explained("cpu", region="")
    assert found.quota_date == "" and {draw.default for draw in found.quota} == {None}
    assert "region not known" in explain_text.text(found)


@pytest.mark.parametrize("text", ["", "{}", "workerPoolSpecs: []", "workerPoolSpecs: [{}]", "a: [", "- 1"])
def test_nothing_to_explain(text: str) -> None:
    """A file without a pool that makes a machine is refused with a reason."""
    with pytest.raises(FindingsError, match="no worker pool"):
        explain.explain(spec.parse(text, file="a.yaml"), load())


def test_too_many_replicas() -> None:
    """A cluster too large to list is refused before it is built; one just small enough is explained."""
    with pytest.raises(UsageError, match="2,000,000,001 replicas"):
        from_pools(pool(), pool(replicas=2_000_000_000))
    found = from_pools(pool(), pool(replicas=explain.MOST_REPLICAS - 1))
    assert "… 9,996 more" in explain_text.text(found)
    assert len(json.dumps(explain.data(found))) < 10_000_000


def test_unknown_replica() -> None:
    """A replica that does not exist is refused with those that do."""
    with pytest.raises(UsageError, match="Choices: workerpool0-0, workerpool1-0"):
        explained("sweep").replica("workerpool1-9")


trees = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["workerPoolSpecs", "machineSpec", "machineType", "replicaCount", "containerSpec", "imageUri", "args", "env",
         "name", "diskSpec", "bootDiskSizeGb", "scheduling", "timeout", "studySpec", "parameters", "metrics",
         "trialJobSpec", "maxTrialCount", "parallelTrialCount", "tpuTopology", "acceleratorType", "baseOutputDirectory"]
    ), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@pytest.mark.whole
@given(st.lists(trees, max_size=3), trees, trees, st.integers(-3, 3), st.integers(-3, 3))
@settings(deadline=None, max_examples=examples(40, 1000))
def test_any_file(pools: list[Any], scheduling: Any, study: Any, trials: int, parallel: int) -> None:
    """Whatever a file holds, it is explained or refused with a message."""
    job = {"workerPoolSpecs": [pool(), *pools], "scheduling": scheduling}
    tuning = {"trialJobSpec": job, "studySpec": study, "maxTrialCount": trials, "parallelTrialCount": parallel}
    for data in (job, tuning):
        document = spec.from_data(data)
        try:
            found = explain.explain(document, load(), region="us-central1")
        except (FindingsError, UsageError):
            continue
        explain_text.text(found)
        json.loads(json.dumps(explain.data(found)))


def test_estimate_of_no_trials() -> None:
    """A study of no trials costs nothing and takes no time."""
    document = spec.from_data({"trialJobSpec": {"workerPoolSpecs": [pool()]}, "studySpec": {}, "maxTrialCount": 0})
    price = estimate(document, load())
    assert (price.trials, price.usd_at_most, price.wall_s) == (0, 0, 0)


# ---- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the project above, in a terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "vertexrig.yaml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def test_command_by_name(folder: Path) -> None:
    """A name of the project is explained with its overrides, on stdout alone."""
    done = typed("explain", "multi-worker", "--set", "worker.replica_count=1", cwd=folder)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "[worker 0]" in done.stdout and "[worker 1]" not in done.stdout


def test_command_for_a_file(tmp_path: Path) -> None:
    """A file needs no project; what was refused in reading is told on stderr."""
    (tmp_path / "job.yaml").write_text(json.dumps({"workerPoolSpecs": [pool()], "bogus": 1}), encoding="utf-8")
    done = typed("explain", "job.yaml", "--format", "json", "--region", "us-west1", cwd=tmp_path)
    assert done.exit_code == 0 and done.document["region"] == "us-west1"
    assert "read as a CustomJobSpec" in done.stderr and "has 1 error that `explain` cannot read" in done.stderr


def test_command_for_one_replica(folder: Path) -> None:
    """`--replica` gives the exact texts of a replica's variables as JSON."""
    found = typed("explain", "sweep", "--replica", "workerpool1-0", "--format", "json", cwd=folder).document
    assert json.loads(found["environment"]["TF_CONFIG"]) == found["tf_config"]
    assert found["tf_config"]["task"] == {
        "type": "worker", "index": 0, "cloud": "<job id>-workerpool1-0", "trial": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["cpi"], 2, "Did you mean 'cpu'"),
        (["nowhere.yaml"], 2, "there is no file nowhere.yaml"),
        (["cpu", "--replica", "workerpool1-0"], 2, "no replica 'workerpool1-0'"),
        (["-"], 1, "stdin has no worker pool"),
    ],
)
def test_command_refuses(folder: Path, args: list[str], code: int, message: str) -> None:
    """A wrong name, file or replica is one message on stderr and an exit code, never a traceback."""
    done = vertexrig("explain", *args, cwd=folder, stdin="{}")
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.04, "0.04 s"), (5.25, "5.25 s"), (59.7, "1 min"), (3599.7, "1 h"), (90, "1 min 30 s"), (7539, "2 h 5 min"),
     (129_600, "36 h"), (604_800, "7 days"), (700_000, "8 days 2 h"), (1e9, "11,574 days 1 h")],
)  # fmt: skip
def test_a_length_of_time_is_said_in_its_two_largest_units(seconds: float, words: str) -> None:
    """A length of time has at most two units, the larger one first, and days only from two on."""
    assert length(seconds) == words
