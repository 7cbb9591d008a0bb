"""What follows from a finished study: entries of the project file, decided from the trials, written without a change elsewhere."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import REPOSITORY, examples
from vertexrig import yamltext
from vertexrig.bring import edit
from vertexrig.errors import UsageError
from vertexrig.project import config
from vertexrig.spec.parameters import top
from vertexrig.spec.space import Space
from vertexrig.studies import follow_up, promote
from vertexrig.studies.decisions import decision_on, gridded
from vertexrig.studies.outcome import chosen, outcome
from vertexrig.trainer_source.trainer_model import Flag
from vertexrig.workspace import Workspace

S5 = REPOSITORY / "examples/s5-practical-vision/vertexrig.yaml"


def trial(number: int, value: float | None, **parameters: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": str(number),
        "state": "INFEASIBLE" if value is None else "SUCCEEDED",
        "parameters": [{"parameterId": name, "value": one} for name, one in parameters.items()],
    }
    if value is not None:
        row["finalMeasurement"] = {"metrics": [{"metricId": "accuracy", "value": value}]}
    return row


def study(parameters: list[dict[str, Any]], rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    spec = {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "parameters": parameters}
    return {"state": "JOB_STATE_SUCCEEDED", "studySpec": spec, "trials": rows, "maxTrialCount": len(rows), **more}


# ---- decisions


def dimension(**spec: Any) -> Any:
    return Space([{"parameterId": "p", **spec}]).dimensions[0]


DOUBLE = dimension(doubleValueSpec={"minValue": 0.0, "maxValue": 0.2})
LOG = dimension(doubleValueSpec={"minValue": 0.0001, "maxValue": 0.1}, scaleType="UNIT_LOG_SCALE")
INTEGER = dimension(integerValueSpec={"minValue": 1, "maxValue": 100})
LISTED = dimension(discreteValueSpec={"values": [16, 32, 64]})
EVEN = dimension(discreteValueSpec={"values": [8, 16, 24]})
TEXT = dimension(categoricalValueSpec={"values": ["adam", "sgd", "rmsprop"]})


@pytest.mark.parametrize(
    ("dimension", "top", "action", "expected"),
    [
        (DOUBLE, [0.0, 0.01, 0.002], "fix", {"value": 0}),  # nothing lies below 0
        (DOUBLE, [0.1, 0.09, 0.12], "narrow", {"min_value": 0.08, "max_value": 0.13}),
        (DOUBLE, [0.2, 0.19, 0.15], "widen", {"min_value": 0.13, "max_value": 0.3}),
        (DOUBLE, [0.1, 0.01, 0.19], "keep", {"min_value": 0, "max_value": 0.2}),
        (LOG, [0.0001, 0.0002, 0.0004], "widen", {"min_value": 3.1e-06, "max_value": 0.00057}),
        (LOG, [0.01, 0.005, 0.02], "narrow", {"min_value": 0.0035, "max_value": 0.029}),
        (INTEGER, [100, 97, 80], "widen", {"min_value": 75, "max_value": 150}),
        (INTEGER, [40, 50, 60], "narrow", {"min_value": 35, "max_value": 65}),
        (LISTED, [64, 64, 64], "widen", {"values": [32, 64, 128]}),
        (LISTED, [16, 32, 16], "widen", {"values": [8, 16, 32]}),
        (LISTED, [32, 32, 32], "fix", {"value": 32}),
        (LISTED, [32, 64, 32], "narrow", {"values": [32, 64]}),
        (EVEN, [24, 24, 16], "widen", {"values": [16, 24, 32]}),
        (EVEN, [8, 8, 8], "fix", {"value": 8}),  # 0 would be the next
        (TEXT, ["sgd", "sgd", "sgd"], "fix", {"value": "sgd"}),
        (TEXT, ["sgd", "adam", "sgd"], "narrow", {"values": ["adam", "sgd"]}),
        (TEXT, ["sgd", "adam", "rmsprop"], "keep", {"values": ["adam", "sgd", "rmsprop"]}),
    ],
)
def test_what_the_best_trials_say_decides(
    dimension: Any, top: list[Any], action: str, expected: dict[str, Any]
) -> None:
    """A value that the best trials share is fixed, ranges follow the best trials, and a best value on a bound widens its range."""
    row = decision_on(dimension, top[0], top).row()
    assert row.pop("parameter") == "p" and row.pop("reason")
    assert row == {"action": action, **expected}


@settings(max_examples=examples(60, 2000), deadline=None)
@given(
    low=st.floats(-100, 100),
    width=st.floats(0.001, 1000),
    units=st.lists(st.floats(0, 1), min_size=3, max_size=8),
    log=st.booleans(),
)
def test_the_best_value_is_always_inside_the_new_range(low: float, width: float, units: list[float], log: bool) -> None:
    """Whatever the scale, the new range holds the best value, and is a range that a study takes."""
    low = abs(low) + 0.001 if log else low
    scale = {"scaleType": "UNIT_LOG_SCALE"} if log else {}
    found = dimension(doubleValueSpec={"minValue": low, "maxValue": low + width}, **scale)
    values = [found.from_unit(unit) for unit in units]
    decision = decision_on(found, values[0], values)
    if decision.action != "fix":
        assert decision.low <= values[0] <= decision.high
        Space([{"parameterId": "p", "doubleValueSpec": {"minValue": decision.low, "maxValue": decision.high}, **scale}])


# ---- the sweep that follows


def flowers(seed: int = 27) -> dict[str, Any]:
    """FlowersHpTuningJob as it may have ended: l2 does harm, larger batches and layers help, crops of three quarters are best."""
    document = Workspace(config.load(S5)).prepare("flowers-hp", check=False).document
    draw, rows = random.Random(seed), []
    for number in range(1, 51):
        l2 = draw.choice([draw.uniform(0, 0.2), draw.uniform(0, 0.01)])
        batch, hidden = draw.choice([16, 32, 64, 64]), draw.choice([8, 16, 24, 24])
        distort, crop = (
            draw.choice(["false", "false", "true"]),
            draw.choice([draw.uniform(0.5, 0.8), draw.uniform(0.68, 0.8)]),
        )
        accuracy = (
            0.7
            - 2 * l2
            + 0.03 * math.log2(batch / 16)
            + 0.002 * hidden
            - 0.1 * (distort == "true")
            - 0.9 * abs(crop - 0.74)
        )
        values = {
            "l2": l2,
            "batch_size": float(batch),
            "num_hidden": float(hidden),
            "with_color_distort": distort,
            "crop_ratio": crop,
        }
        rows.append(trial(number, accuracy, **values))
    return {
        "state": "JOB_STATE_SUCCEEDED",
        "displayName": "FlowersHpTuningJob",
        "studySpec": document.study,
        "trials": rows,
        "maxTrialCount": 50,
    }


def follow(job: dict[str, Any], file: Path, sweep: str, **options: Any) -> tuple[str, follow_up.FollowUp]:
    text = edit.read(file)
    found = follow_up.follow_up(outcome(sweep, job), edit.data_of(text, str(file)), sweep, f"{sweep}-2", **options)
    return edit.added(text, found.entry, str(file)), found


def test_the_book_s_grid_of_45_comes_out_of_its_first_study() -> None:
    """3 x 3 x 5 combinations around the best: batch sizes 48, 64 and 96, 16, 24 or 32 units, five crop ratios from 0.65, l2 of 0
    and no colour distortion: what the book's hparam-continue.yaml and its script have.
    """
    text, found = follow(flowers(), S5, "flowers-hp", grid=45)
    data = yamltext.read(text).data["sweeps"]["flowers-hp-2"]
    assert data["over"] == {
        "batch_size": [48, 64, 96], "num_hidden": [16, 24, 32], "crop_ratio": [0.65, 0.7, 0.75, 0.8, 0.85],
    }  # fmt: skip
    assert data["args"] == {"l2": 0, "with_color_distort": "false"}
    assert (data["max_trial_count"], data["parallel_trial_count"], data["job"]) == (45, 2, "two-gpus")
    rendered = Workspace(config.loads(text, file=S5)).prepare("flowers-hp-2")
    assert rendered.ok and rendered.document.data["maxTrialCount"] == 45
    assert Space(rendered.document.study["parameters"]).size == 45  # type: ignore[index]
    assert {"--l2=0", "--with_color_distort=false"} <= set(rendered.document.pools[0].args)
    reasons = {one.name: one.reason for one in found.decisions}
    for name, reason in reasons.items():
        assert reason in text, name
    assert "# every combination once: 3 x 3 x 5 = 45" in text


def test_without_a_grid_ranges_follow_the_best_trials() -> None:
    """The study keeps its algorithm and early stopping; each parameter has its reason above it, and the sweep names what it follows."""
    text, _ = follow(flowers(), S5, "flowers-hp", trials=20)
    data = yamltext.read(text).data["sweeps"]["flowers-hp-2"]
    parameters = data["study"]["parameters"]
    assert parameters["batch_size"] == {"discrete_value_spec": {"values": [16, 32, 64, 128]}}
    assert parameters["crop_ratio"]["double_value_spec"]["min_value"] > 0.6
    assert data["args"] == {"l2": 0, "with_color_distort": "false"} and data["max_trial_count"] == 20
    assert "median_automated_stopping_spec" in data["study"] and data["labels"] == {"follows": "flowers-hp"}
    assert Workspace(config.loads(text, file=S5)).prepare("flowers-hp-2").ok


LR = {"parameterId": "lr", "doubleValueSpec": {"minValue": 0.001, "maxValue": 1.0}, "scaleType": "UNIT_LOG_SCALE"}
OPTIMIZER = {
    "parameterId": "optimizer",
    "categoricalValueSpec": {"values": ["adam", "sgd"]},
    "conditionalParameterSpecs": [
        {
            "parentCategoricalValues": {"values": ["sgd"]},
            "parameterSpec": {"parameterId": "momentum", "doubleValueSpec": {"minValue": 0.0, "maxValue": 0.9}},
        }
    ],
}
PROJECT = """# mine
project: my-project
bucket: gs://my-bucket
trainer: {package_uris: ["gs://my-bucket/t.tar.gz"]}
jobs:
  base:
    machine_type: n1-standard-4
    args: [--mode=fast, --lr=0.5, "${EXTRA:---verbose}"] # a list
sweeps:
  tune: # the first
    job: base
    max_trial_count: 4
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters: {lr: {double_value_spec: {min_value: 0.001, max_value: 1}, scale_type: UNIT_LOG_SCALE}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    file = tmp_path / "vertexrig.yaml"
    file.write_text(PROJECT)
    return file


def rows(*values: float | None, **fixed: Any) -> list[dict[str, Any]]:
    return [trial(n, value, lr=0.01 * n, **fixed) for n, value in enumerate(values, 1)]


def test_conditional_parameters_go_with_their_parent(project: Path) -> None:
    """A fixed parent has its child decided like any other; one that is not fixed stays whole; a grid fixes it."""
    sgd = [trial(n, 0.9 - 0.01 * n, lr=0.01 + n / 1000, optimizer="sgd", momentum=0.5 + n / 100) for n in range(1, 5)]
    adam = [trial(n, 0.1, lr=0.5, optimizer="adam") for n in range(5, 9)]
    text, found = follow(study([LR, OPTIMIZER], sgd + adam), project, "tune")
    assert {one.name: one.action for one in found.decisions} == {
        "lr": "narrow",
        "optimizer": "fix",
        "momentum": "narrow",
    }
    mixed = [*sgd[:1], trial(2, 0.885, lr=0.01, optimizer="adam"), *sgd[2:], *adam]
    text, found = follow(study([LR, OPTIMIZER], mixed), project, "tune")
    kept = yamltext.read(text).data["sweeps"]["tune-2"]["study"]["parameters"]["optimizer"]
    assert (
        set(found.kept) == {"optimizer"}
        and kept["conditional_parameter_specs"][0]["parameter_spec"]["parameter_id"] == "momentum"
    )
    assert config.loads(text, file=project).project.sweeps["tune-2"]
    text, found = follow(study([LR, OPTIMIZER], mixed), project, "tune", grid=9)
    fixed = {one.name: one.value for one in found.decisions if one.action == "fix"}
    assert (
        fixed["optimizer"] == "sgd"
        and math.prod(map(len, yamltext.read(text).data["sweeps"]["tune-2"]["over"].values())) <= 9
    )


def test_what_the_former_sweep_laid_over_its_study_does_not_undo_the_new_one(project: Path) -> None:
    """Of `spec:` all is kept but parameters, metrics and algorithm; an output folder becomes one beside the former's."""
    more = "    base_output_directory: gs://my-bucket/tune/\n    spec: {study_spec: {parameters: [{scaleType: X}], observationNoise: LOW}}\n"
    project.write_text(
        PROJECT.replace("    max_trial_count: 4\n", "    max_trial_count: 4\n    parallel_trial_count: 9\n" + more)
    )
    text, _ = follow(study([LR], rows(0.1, 0.2, 0.3, 0.4)), project, "tune", trials=2)
    data = yamltext.read(text).data["sweeps"]["tune-2"]
    assert data["spec"] == {"studySpec": {"observationNoise": "LOW"}} and data["parallel_trial_count"] == 2
    assert data["base_output_directory"] == "gs://my-bucket/tune/tune-2"


def test_a_list_of_arguments_and_variables_stay(project: Path) -> None:
    """Frozen values replace arguments of their name in a list; `${…}` of the file is not filled in."""
    cat = {"parameterId": "mode", "categoricalValueSpec": {"values": ["fast", "slow"]}}
    listed = [trial(n, 0.9 - n / 100, lr=0.01 * n, mode="slow" if n < 4 else "fast") for n in range(1, 9)]
    text, _ = follow(study([LR, cat], listed), project, "tune")
    assert yamltext.read(text).data["sweeps"]["tune-2"]["args"] == ["--lr=0.5", "${EXTRA:---verbose}", "--mode=slow"]


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (study([LR], [], state="JOB_STATE_PENDING"), "tune has no trials yet: its state is PENDING"),
        (study([LR], rows(0.5), state="JOB_STATE_RUNNING"), "tune has not ended: its state is RUNNING"),
        (study([LR], rows(0.5)), "of 1 trials 1 counts; at least 3 are needed"),
        (study([LR], rows(None, None, None)), r"of 3 trials none counts \(3 infeasible\); at least 3 are needed"),
        (study([LR], rows(math.nan, 0.5, None)), r"1 counts \(1 infeasible, 1 without a finite value of accuracy"),
        (study([LR], [trial(n, 0.5 + n / 10, lr=7.0) for n in range(1, 5)]), "trial, 4, has the value 7.0 of lr"),
        (study([LR], [trial(n, 0.5 + n / 10) for n in range(1, 5)]), "trial, 4, has no value of lr"),
        ({"jobSpec": {}}, "not a HyperparameterTuningJob"),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(job: dict[str, Any], message: str, project: Path) -> None:
    """A study that has not begun, still runs, has too few trials that count, or does not fit itself, is refused."""
    with pytest.raises(UsageError, match=message) as caught:
        follow(job, project, "tune")
    assert "\n" not in str(caught.value)


def test_a_study_whose_parameters_are_all_fixed_is_promoted(project: Path) -> None:
    """Where every parameter is fixed there is nothing to search."""
    cat = {"parameterId": "mode", "categoricalValueSpec": {"values": ["fast", "slow"]}}
    job = study([cat], [trial(n, 0.9 - n / 100, mode="slow") for n in range(1, 5)])
    with pytest.raises(
        UsageError, match="the next sweep of tune has nothing to search, because every parameter is fixed"
    ):
        follow(job, project, "tune")


def test_several_objectives_follow_the_pareto_set(project: Path) -> None:
    """With two objectives the ranges follow the trials that no other beats in both."""
    job = study([LR], [trial(n, n / 10, lr=0.01 * n) for n in range(1, 9)])
    job["studySpec"]["metrics"].append({"metricId": "seconds", "goal": "MINIMIZE"})
    for n, row in enumerate(job["trials"], 1):
        row["finalMeasurement"]["metrics"].append({"metricId": "seconds", "value": 100.0 if n < 5 else float(n)})
    found = outcome("tune", job)
    assert len(found.study.best) == 4 and {one.id for one in found.top} == {"5", "6", "7", "8"}
    assert follow(job, project, "tune")[1].decisions[0].action in ("narrow", "widen")


# ---- the promoted job


def test_the_best_trial_becomes_a_job(project: Path) -> None:
    """Its parameters are arguments over the sweep's and the job's; flags change the rest; the sweep's own keys stay."""
    text = edit.read(project)
    ended = outcome("tune", study([LR], rows(0.2, 0.9, None)), least=1)
    entry = promote.promoted(
        ended, chosen(ended, None), edit.data_of(text, "f"), "tune", "best", args={"epochs": 30},
        topology="gpu", machine_type="n1-standard-8", changes=["accelerator_type=NVIDIA_TESLA_T4", "accelerator_count=1", "args.seed=7"],
    )  # fmt: skip
    job = config.loads(edit.added(text, entry, "f"), file=project).project.jobs["best"]
    assert job.args == ("--mode=fast", "--verbose", "--lr=0.02", "--epochs=30", "--seed=7")
    assert (job.topology, job.machine_type, job.accelerator_count) == ("gpu", "n1-standard-8", 1)
    assert job.labels == {"promoted_from": "tune", "trial": "2"}
    assert "# trial 2 of tune, the best of 2 trials with a result: accuracy 0.9" in edit.added(text, entry, "f")
    with pytest.raises(UsageError, match="tune has no trial '3' that counts"):
        chosen(ended, "3")
    for change, message in {
        "nonsense": "write KEY=VALUE",
        "machine_type.x=1": "is not a mapping",
        "a=[": "not YAML",
    }.items():
        with pytest.raises(UsageError, match=message):
            promote.promoted(ended, ended.best, edit.data_of(text, "f"), "tune", "best", changes=[change])


def test_json_of_decisions_is_plain() -> None:
    """Each row of the decisions can be written as JSON."""
    json.dumps([one.row() for one in follow(flowers(), S5, "flowers-hp", grid=45)[1].decisions])


def flag(*names: str) -> Flag:
    return Flag(names, names[0].lstrip("-"))


def test_the_flag_for_a_model_to_start_from_is_found_by_its_name() -> None:
    """Usual names are known; another one is named by hand, and must be one of the trainer's."""
    for name in ("warm_start_from", "init-model", "pretrained", "initial_weights", "load_model"):
        assert promote.warm_start_flag([flag("--epochs"), flag(f"--{name}")], None, "t") == name
    assert promote.warm_start_flag([flag("--base")], "base", "t") == "base"
    with pytest.raises(
        UsageError, match="t has no flag that names a model to start from; name it: --warm-start-flag NAME"
    ):
        promote.warm_start_flag([flag("--epochs"), flag("--restart")], None, "t")
    with pytest.raises(UsageError, match="t has no flag --bse. Did you mean 'base'"):
        promote.warm_start_flag([flag("--base")], "bse", "t")


# ---- several pools, and what is not of the study

POOLS = """project: my-project
bucket: gs://my-bucket
trainer: {package_uris: ["gs://my-bucket/t.tar.gz"]}
jobs:
  base:
    topology: multi-worker
    machine_type: n1-standard-4
    base_output_directory: gs://my-bucket/shared/
    labels: {team: vision}
    args: {epochs: 2}
    worker: {replica_count: 2, args: {epochs: 2, prefetch: 4}}
sweeps:
  tune:
    job: base
    max_trial_count: 4
    kms_key_name: projects/p/locations/us-central1/keyRings/r/cryptoKeys/k
    labels: {follows: tune-0, owner: me}
    candidates: [{machine_type: n1-standard-8}]
    wait: 20m
    study:
      metrics: {accuracy: MAXIMIZE}
      parameters: {lr: {double_value_spec: {min_value: 0.001, max_value: 1}, scale_type: UNIT_LOG_SCALE}}
"""
MODE = {"parameterId": "mode", "categoricalValueSpec": {"values": ["fast", "slow"]}}


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    file = tmp_path / "vertexrig.yaml"
    file.write_text(POOLS)
    return file


def promoted(file: Path, job: dict[str, Any], **options: Any) -> dict[str, Any]:
    text, ended = edit.read(file), outcome("tune", job, least=1)
    entry = promote.promoted(ended, ended.best, edit.data_of(text, "f"), "tune", "best", **options)
    return {**entry.data, "text": edit.added(text, entry, "f")}


def test_a_promoted_job_has_the_trial_s_values_in_every_pool(pools: Path) -> None:
    """In the sweep each pool got them, also one with arguments of its own; the sweep's key and labels stay."""
    data = promoted(pools, study([LR], rows(0.2, 0.9, 0.1)), args={"epochs": 30})
    document = Workspace(config.loads(data["text"], file=pools)).prepare("best", check=False).document
    assert [list(pool.args) for pool in document.pools] == [
        ["--epochs=30", "--lr=0.02"],
        ["--epochs=30", "--prefetch=4", "--lr=0.02"],
    ]
    assert data["kms_key_name"].endswith("/k")
    assert data["labels"] == {"team": "vision", "owner": "me", "promoted_from": "tune", "trial": "2"}


def test_a_parameter_that_was_not_active_stays_away(pools: Path) -> None:
    """The trial had none of it, whatever the job's arguments say for jobs without a study."""
    pools.write_text(POOLS.replace("    args: {epochs: 2}\n", "    args: {epochs: 2, momentum: 0.9}\n"))
    adam = [trial(n, 0.9 - n / 100, lr=0.01 * n, optimizer="adam") for n in range(1, 4)]
    assert promoted(pools, study([LR, OPTIMIZER], adam))["args"] == {"epochs": 2, "lr": 0.01, "optimizer": "adam"}


@pytest.mark.parametrize("grid", [None, 3])
def test_what_is_fixed_reaches_every_pool(pools: Path, grid: int | None) -> None:
    """Where a pool has arguments of its own, a fixed parameter stays in the study with one value, and no rule complains."""
    listed = [trial(n, 0.9 - n / 100, lr=0.01 * n, mode="slow") for n in range(1, 9)]
    text, found = follow(study([LR, MODE], listed), pools, "tune", grid=grid)
    assert [one.action for one in found.decisions if one.name == "mode"] == ["fix"]
    prepared = Workspace(config.loads(text, file=pools)).prepare("tune-2")
    parameters = {one.id: one.values for one in top((prepared.document.study or {})["parameters"])}
    assert parameters["mode"] == ("slow",) and "fixed: all of the 3 best trials" in text
    assert "parameter-one-value" not in {one.id for one in prepared.findings if one.severity.value != "info"}
    assert grid is None or prepared.document.data["maxTrialCount"] == 3


def test_a_fixed_number_is_no_range_of_one_value(pools: Path) -> None:
    """A range of one value is refused by Vertex AI: a fixed integer becomes a categorical text, a fixed double a discrete number."""
    space = [
        LR,
        {"parameterId": "units", "integerValueSpec": {"minValue": "0", "maxValue": "99"}},
        {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.0, "maxValue": 0.9}},
    ]
    listed = [trial(n, 0.9 - n / 100, lr=0.01 * n, units=0.0, rate=0.0) for n in range(1, 9)]
    text, _ = follow(study(space, listed), pools, "tune")
    prepared = Workspace(config.loads(text, file=pools)).prepare("tune-2")
    specs = {one["parameterId"]: one for one in (prepared.document.study or {})["parameters"]}
    assert specs["units"]["categoricalValueSpec"] == {"values": ["0"]}
    assert specs["rate"]["discreteValueSpec"] == {"values": [0]}
    assert not [one for one in prepared.findings if one.id.startswith("parameter-")]


def test_a_follow_up_runs_where_the_former_did_and_leaves_its_models_alone(pools: Path) -> None:
    """Candidates, waiting and topology are the former's; the folder of its job gets one more below it."""
    own = POOLS.replace("    job: base\n", "    job: base\n    topology: ours\n")
    pools.write_text(own)
    data = yamltext.read(follow(study([LR], rows(0.1, 0.2, 0.3, 0.4)), pools, "tune")[0]).data["sweeps"]["tune-2"]
    assert data["base_output_directory"] == "gs://my-bucket/shared/tune-2"
    assert (data["topology"], data["candidates"], data["wait"]) == ("ours", [{"machine_type": "n1-standard-8"}], "20m")
    pools.write_text(own.replace("topology: ours", "topology: grid"))
    text, _ = follow(study([LR], rows(0.1, 0.2, 0.3, 0.4)), pools, "tune")
    assert "topology" not in yamltext.read(text).data["sweeps"]["tune-2"]


def test_an_empty_list_of_a_sweep_replaces_the_job_s_arguments(project: Path) -> None:
    """The trials had none of the job's, so the promoted job has none either."""
    project.write_text(PROJECT.replace("    max_trial_count", "    args: []\n    max_trial_count"))
    assert promoted(project, study([LR], rows(0.2, 0.9)))["args"] == ["--lr=0.02"]


def test_a_grid_of_whole_numbers_on_a_log_scale_has_each_once() -> None:
    """Neighbours on the scale round to one number, which discreteValueSpec takes once."""
    found = dimension(integerValueSpec={"minValue": 1, "maxValue": 4}, scaleType="UNIT_LOG_SCALE")
    (made,) = gridded([decision_on(found, 2, [2, 1, 4])], 7, {})
    assert len(set(made.values)) == len(made.values) and list(made.values) == sorted(made.values)
