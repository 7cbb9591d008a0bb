"""What follows from a finished study: entries of the project file, decided from the trials, written without a change elsewhere."""

from __future__ import annotations

import json
import math
import random
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tools import REPOSITORY
from vertexrig import catalog, yamltext
from vertexrig.checks.workspace import Workspace
from vertexrig.errors import UsageError
from vertexrig.package.source.model import Flag
from vertexrig.project import config
from vertexrig.spec.parameters import top
from vertexrig.spec.space import Space
from vertexrig.studies import edit, follow_up, promote, register
from vertexrig.studies.chain import joined
from vertexrig.studies.decide import decide
from vertexrig.studies.outcome import outcome

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


# ---- the project file


@pytest.mark.parametrize(
    "text",
    [
        "project: p\n",
        "project: p",
        "project: p\nsweeps:\n",
        "project: p\nsweeps: {}\njobs: {}\n",
        "project: p\nsweeps: ~ # none yet\njobs: {a: {}}\n",
        "project: p\nsweeps: {a: {job: b}} # in brackets\n",
        "project: p\nsweeps:\n  a: &x\n    args:\n    - |\n      text\n\n\n# a comment\njobs: {b: *x}\n",
        "{project: p, sweeps: {a: {job: b}}}",
        "project: p\r\nsweeps:\r\n  a: {job: c} # d\r\n    # of a\r\n\r\njobs:\r\n  x: {}",
        "\ufeffproject: p\nsweeps:\n  a: {}\n...\n",
        "---\nsweeps:\n    a:\n        job: >\n          x\n          y\n",
        "sweeps: {\n a: {job: b} # one\n}\n",
        "base: &base {job: b}\nsweeps:\n  a:\n    <<: *base\n  # commented: out\n\n  b: *base\n\n# the end\n",
    ],
)
def test_an_entry_is_added_and_every_other_byte_stays(text: str) -> None:
    """Without what was added the new text is the old one, comments, anchors, line ends and marks included."""
    entry = edit.Entry("sweeps", "new", {"job": "b", "over": {"x": [1, 2]}}, {(): ["why"], ("over", "x"): ["kept"]})
    made = edit.added(text, entry, "f.yaml")
    data = yamltext.read(made.removeprefix("\ufeff")).data
    assert data["sweeps"]["new"] == {"job": "b", "over": {"x": [1, 2]}}
    start = next((i for i, (a, b) in enumerate(zip(text, made, strict=False)) if a != b), len(text))
    tail = len(text) - start
    kept = made[:start] + (made[-tail:] if tail else "")
    null = text.replace("{}\n", "\n", 1) if "sweeps: {}" in text else text.replace(" ~", "", 1)
    assert kept == text or made.replace(made[start : len(made) - tail], "", 1) == text or "sweeps:" in null


KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.none(), st.text("ab: #'\"{}[]\n-é$", max_size=8), st.floats(-9, 9)
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    before=st.dictionaries(KEYS, DATA, max_size=4),
    jobs=st.dictionaries(KEYS, DATA, max_size=3),
    entry=st.dictionaries(KEYS, DATA, max_size=3),
    flow=st.sampled_from([None, False, True]),
    indent=st.integers(2, 5),
    crlf=st.booleans(),
)
def test_whatever_the_layout_the_old_lines_stay_in_order(
    before: dict[str, Any], jobs: dict[str, Any], entry: dict[str, Any], flow: bool | None, indent: int, crlf: bool
) -> None:
    """Any YAML that PyYAML writes, with comments between its lines, keeps each line, and reads as before plus the entry."""
    data = {**before, "jobs": jobs, "zz": 1}
    lines = yaml.safe_dump(
        data, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True
    ).splitlines()
    plain = not any(line.endswith(("|", ">", "|-", ">-", "|+", ">+")) or "'" in line or '"' in line for line in lines)
    if plain and flow is False:
        lines = [one for n, line in enumerate(lines) for one in (f"{' ' * (n % 7)}# {n}", line)]
    text = ("\r\n" if crlf and plain else "\n").join(lines) + "\n"
    try:
        read = edit.data_of(text, "f")
        made = edit.added(text, edit.Entry("jobs", "NEW", entry, {(): ["why"]}), "f")
    except UsageError as error:
        assert "cannot be added" in str(error) or "already" in str(error) or "YAML" in str(error)
        return
    assert edit.data_of(made, "f") == {**read, "jobs": {**(read["jobs"] or {}), "NEW": entry}}
    if flow is False and jobs:
        old = iter(made.splitlines(keepends=True))
        assert all(line in old for line in text.splitlines(keepends=True)), made


def test_what_cannot_be_added_is_said_with_the_lines_to_add(tmp_path: Path) -> None:
    """An alias in place of the group, a taken name and a file that is no mapping are refused; nothing is written."""
    entry = edit.Entry("sweeps", "new", {"job": "b"})
    with pytest.raises(UsageError, match=r"by hand:\nnew:\n  job: b"):
        edit.added("x: &s\n  a: {}\nsweeps: *s\n", entry, "f")
    with pytest.raises(UsageError, match="f has sweeps.new already; choose another name with --as"):
        edit.added("sweeps: {new: {}}\n", entry, "f")
    with pytest.raises(UsageError, match="its top is not a mapping"):
        edit.added("- a\n", entry, "f")
    with pytest.raises(UsageError, match="sweeps is not a mapping"):
        edit.added("sweeps: [a]\n", entry, "f")


def test_a_file_is_replaced_as_a_whole_with_its_permissions_and_links(tmp_path: Path) -> None:
    """Permissions, a link, a byte order mark and line ends survive; nothing else is left in the folder."""
    real = tmp_path / "real.yaml"
    real.write_bytes(b"\xef\xbb\xbfproject: p\r\n")
    real.chmod(0o600)
    (tmp_path / "link.yaml").symlink_to(real)
    edit.write(tmp_path / "link.yaml", edit.read(tmp_path / "link.yaml") + "x: 1\r\n")
    assert real.read_bytes() == b"\xef\xbb\xbfproject: p\r\nx: 1\r\n"
    assert (tmp_path / "link.yaml").is_symlink() and real.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_a_literal_dollar_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${X}` in a value of a job means itself after the project file has filled in its variables."""
    for text in ("${X}", "$${X}", "a${X}b$", "$$"):
        made = edit.added("project: p\n", edit.Entry("jobs", "a", {"args": edit.literal({"x": text})}), "f")
        assert config.loads(made, file=Path("f")).project.jobs["a"].args == {"x": text}


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
        (DOUBLE, [0.0, 0.01, 0.002], "freeze", {"value": 0}),  # nothing lies below 0
        (DOUBLE, [0.1, 0.09, 0.12], "narrow", {"min_value": 0.08, "max_value": 0.13}),
        (DOUBLE, [0.2, 0.19, 0.15], "widen", {"min_value": 0.13, "max_value": 0.3}),
        (DOUBLE, [0.1, 0.01, 0.19], "keep", {"min_value": 0, "max_value": 0.2}),
        (LOG, [0.0001, 0.0002, 0.0004], "widen", {"min_value": 3.1e-06, "max_value": 0.00057}),
        (LOG, [0.01, 0.005, 0.02], "narrow", {"min_value": 0.0035, "max_value": 0.029}),
        (INTEGER, [100, 97, 80], "widen", {"min_value": 75, "max_value": 150}),
        (INTEGER, [40, 50, 60], "narrow", {"min_value": 35, "max_value": 65}),
        (LISTED, [64, 64, 64], "widen", {"values": [32, 64, 128]}),
        (LISTED, [16, 32, 16], "widen", {"values": [8, 16, 32]}),
        (LISTED, [32, 32, 32], "freeze", {"value": 32}),
        (LISTED, [32, 64, 32], "narrow", {"values": [32, 64]}),
        (EVEN, [24, 24, 16], "widen", {"values": [16, 24, 32]}),
        (EVEN, [8, 8, 8], "freeze", {"value": 8}),  # 0 would be the next
        (TEXT, ["sgd", "sgd", "sgd"], "freeze", {"value": "sgd"}),
        (TEXT, ["sgd", "adam", "sgd"], "narrow", {"values": ["adam", "sgd"]}),
        (TEXT, ["sgd", "adam", "rmsprop"], "keep", {"values": ["adam", "sgd", "rmsprop"]}),
    ],
)
def test_what_the_best_trials_say_decides(
    dimension: Any, top: list[Any], action: str, expected: dict[str, Any]
) -> None:
    """Settled values are frozen, ranges follow the best trials, and a best value on a bound widens its range."""
    row = decide(dimension, top[0], top).row()
    assert row.pop("parameter") == "p" and row.pop("reason")
    assert row == {"action": action, **expected}


@settings(max_examples=200, deadline=None)
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
    decision = decide(found, values[0], values)
    if decision.action != "freeze":
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
    and no colour distortion: what the book's hparam-continue.yaml and its script have."""
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
    """A settled parent is frozen and its child decided like any other; one that is not settled stays whole; a grid freezes it."""
    sgd = [trial(n, 0.9 - 0.01 * n, lr=0.01 + n / 1000, optimizer="sgd", momentum=0.5 + n / 100) for n in range(1, 5)]
    adam = [trial(n, 0.1, lr=0.5, optimizer="adam") for n in range(5, 9)]
    text, found = follow(study([LR, OPTIMIZER], sgd + adam), project, "tune")
    assert {one.name: one.action for one in found.decisions} == {
        "lr": "narrow",
        "optimizer": "freeze",
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
    frozen = {one.name: one.value for one in found.decisions if one.action == "freeze"}
    assert (
        frozen["optimizer"] == "sgd"
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


def test_a_settled_study_is_promoted_rather_than_followed(project: Path) -> None:
    """Where every parameter is frozen there is nothing to search."""
    cat = {"parameterId": "mode", "categoricalValueSpec": {"values": ["fast", "slow"]}}
    job = study([cat], [trial(n, 0.9 - n / 100, mode="slow") for n in range(1, 5)])
    with pytest.raises(UsageError, match="tune is settled: nothing is left to search"):
        follow(job, project, "tune")


def test_several_objectives_follow_the_pareto_set(project: Path) -> None:
    """With two objectives the ranges follow the trials that no other beats in both."""
    job = study([LR], [trial(n, n / 10, lr=0.01 * n) for n in range(1, 9)])
    job["studySpec"]["metrics"].append({"metricId": "seconds", "goal": "MINIMIZE"})
    for n, row in enumerate(job["trials"], 1):
        row["finalMeasurement"]["metrics"].append({"metricId": "seconds", "value": 100.0 if n < 5 else float(n)})
    found = outcome("tune", job)
    assert found.front == 4 and {one.id for one in found.top} == {"5", "6", "7", "8"}
    assert follow(job, project, "tune")[1].decisions[0].action in ("narrow", "widen")


def test_a_chain_of_studies_is_one() -> None:
    """Trials of both, with what the second study froze as a value of its trials, under one space that holds them all."""
    first = study(
        [LR, {"parameterId": "b", "discreteValueSpec": {"values": [16, 32]}}],
        [trial(1, 0.5, lr=0.1, b=16.0)],
        displayName="tune",
    )
    second = study(
        [{"parameterId": "lr", "discreteValueSpec": {"values": [0.01, 2.0]}}],
        [trial(1, 0.9, lr=2.0)],
        displayName="tune-2",
    )
    second["trialJobSpec"] = {"workerPoolSpecs": [{"containerSpec": {"imageUri": "i", "args": ["--b=64"]}}]}
    whole = joined([first, second])
    from vertexrig.studies import trials

    table = trials.table(whole)
    assert [row["trial"] for row in table] == ["tune-2/1", "tune/1"]
    assert table[0]["parameters"] == {"lr": 2.0, "b": 64.0} and table[0]["note"] == "best"
    (lr, batch) = (one.bounds for one in top(whole["studySpec"]["parameters"]))
    assert lr == (0.001, 2.0) and batch == (16, 64)


# ---- the promoted job


def test_the_best_trial_becomes_a_job(project: Path) -> None:
    """Its parameters are arguments over the sweep's and the job's; flags change the rest; the sweep's own keys stay."""
    text = edit.read(project)
    ended = outcome("tune", study([LR], rows(0.2, 0.9, None)), least=1)
    entry = promote.promoted(
        ended, promote.chosen(ended, None), edit.data_of(text, "f"), "tune", "best", args={"epochs": 30},
        topology="gpu", machine_type="n1-standard-8", changes=["accelerator_type=NVIDIA_TESLA_T4", "accelerator_count=1", "args.seed=7"],
    )  # fmt: skip
    job = config.loads(edit.added(text, entry, "f"), file=project).project.jobs["best"]
    assert job.args == ("--mode=fast", "--verbose", "--lr=0.02", "--epochs=30", "--seed=7")
    assert (job.topology, job.machine_type, job.accelerator_count) == ("gpu", "n1-standard-8", 1)
    assert job.labels == {"promoted_from": "tune", "trial": "2"}
    assert "# trial 2 of tune, the best of 2 that count: accuracy 0.9" in edit.added(text, entry, "f")
    with pytest.raises(UsageError, match="tune has no trial '3' that counts"):
        promote.chosen(ended, "3")
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


# ---- the registered model


def trained(**more: Any) -> register.Trained:
    return register.Trained(
        **{"uri": "gs://b/m", "metric": "accuracy", "value": 0.9, "goal": "MAXIMIZE", "job": "j", **more}
    )


@pytest.mark.parametrize(
    ("image", "expected", "said"),
    [
        ("us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-14.py310:latest", "tf2-cpu.2-14", "support ended 2026-01-14"),
        ("us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-15.py310:latest", "tf2-cpu.2-15", "available until 2027-01-14"),
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-12.py310:latest",
            "tf2-cpu.2-14",
            "the model was saved by 2.12",
        ),
        (
            "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
            "tf2-cpu.2-15",
            "the model was saved by 2.17",
        ),
        ("us-docker.pkg.dev/p/r/own:1", "tf2-cpu.2-15", "does not say its version"),
    ],
)
def test_the_serving_image_follows_the_training_image(image: str, expected: str, said: str) -> None:
    """The same version of TensorFlow, otherwise the nearest newer, otherwise the newest, with its dates and what to check."""
    found = register.serving(trained(image=image), catalog.load(), "europe-west4", None, date(2026, 11, 21))
    assert found.uri == f"europe-docker.pkg.dev/vertex-ai/prediction/{expected}:latest" and said in found.text
    assert register.serving(trained(), catalog.load(), "us-central1", "own:1", date(2026, 11, 21)).uri == "own:1"


@pytest.mark.parametrize(
    ("goal", "there", "least", "better", "said"),
    [
        ("MAXIMIZE", None, 0.5, True, "there is no such model yet"),
        ("MAXIMIZE", 0.8, 0.05, True, "0.9 against 0.8 of version 3: better by 0.1"),
        ("MAXIMIZE", 0.8, 0.2, False, "at least 0.2 is asked for"),
        ("MAXIMIZE", 0.9, 0.0, False, "equal; any gain is enough"),
        ("MINIMIZE", 0.8, 0.0, False, "worse by 0.1"),
        ("MINIMIZE", 1.5, 0.0, True, "better by 0.6"),
    ],
)
def test_a_model_has_to_beat_the_one_that_is_there(
    goal: str, there: float | None, least: float, better: bool, said: str
) -> None:
    """By the same metric, in the direction of its goal, by the least gain."""
    labels = {"metric": "accuracy", "metric_value": register.number_label(there or 0)}
    present = None if there is None else {"versionId": "3", "labels": labels}
    found = register.compare(trained(goal=goal), present, least)
    assert found.better is better and said in found.text


def test_what_cannot_be_compared_is_not_better() -> None:
    """A version without labels, or with another metric, keeps its place unless --force is given."""
    for labels, said in (
        ({}, "nothing says its metric"),
        ({"metric": "f1", "metric_value": "0_5"}, "its metric is f1"),
    ):
        found = register.compare(trained(), {"versionId": "1", "labels": labels}, 0)
        assert not found.better and said in found.text and "--force" in found.text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_version_s_own_description_goes_before_labels_that_versions_may_share(value: float) -> None:
    """What register writes into the description is read back exactly."""
    body = register.model_body(trained(value=value), "m", "image", "champion", {})
    assert register.measured({**body, "labels": {"metric": "f1", "metric_value": "0_5"}}) == ("accuracy", value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_survives_as_a_label(value: float) -> None:
    """Every finite number is a label's value of at most 63 characters that the API takes, and the same number again."""
    text = register.number_label(value)
    assert register.label_number(text) == value and len(text) <= 63 and set(text) <= set("0123456789_-e")
    assert register.label(text) == text
