"""What is said about a study afterwards: how sure the best is, importance, timeline, cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.support import made_studies
from tests.support.made_studies import tuning_job
from vertexrig import catalog, cli
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.errors import UsageError
from vertexrig.results import study as studies
from vertexrig.results.importance import importance
from vertexrig.results.timeline import running, timeline
from vertexrig.studies.certainty import certainty
from vertexrig.studies.cost import spent
from vertexrig.studies.watching import watched

PROJECT: dict[str, Any] = {
    "project": "my-project", "region": "us-central1", "bucket": "gs://my-bucket",
    "trainer": {"path": "none", "image": "tf-2.17", "package_uris": ["gs://my-bucket/packages/trainer.tar.gz"]},
    "jobs": {"cpu": {"machine_type": "n1-standard-4"}},
    "sweeps": {
        "sweep": {
            "job": "cpu", "max_trial_count": 8, "parallel_trial_count": 2,
            "study": {"metrics": {"accuracy": "MAXIMIZE"},
                      "parameters": {"lr": {"double_value_spec": {"min_value": 0.1, "max_value": 1}}}},
        }
    },
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VERTEXRIG_AIPLATFORM", "http://127.0.0.1:9")
    return tmp_path


def run(*words: str, fails: type[Exception] | None = None) -> Result:
    done = CliRunner().invoke(cli.vertexrig, list(words))
    if fails is None:
        assert done.exit_code == 0, (done.output, done.exception)
    else:
        assert isinstance(done.exception, fails), (done.output, done.exception)
    return done


def with_values(*values: tuple[float, float], goal: str = "MAXIMIZE") -> RemoteJob:
    """A study of one parameter: each row is its value and the accuracy."""
    job = tuning_job(len(values), points=1)
    job["studySpec"]["parameters"] = [made_studies.LEARNING_RATE]
    job["studySpec"]["metrics"] = [{"metricId": "accuracy", "goal": goal}]
    for trial, (rate, accuracy) in zip(job["trials"], values, strict=True):
        trial |= {"state": "SUCCEEDED", "parameters": [{"parameterId": "learning_rate", "value": rate}]}
        trial["finalMeasurement"] = {"metrics": [{"metricId": "accuracy", "value": accuracy}]}
    return RemoteJob(job)


# ---- how sure the best is


def test_the_lead_is_over_the_next_parameters() -> None:
    """A repeat of the best trial is not the next best; the lead is over the best trial with other parameters."""
    found = certainty(studies.read(with_values((0.01, 0.9), (0.01, 0.88), (0.02, 0.8), (0.03, 0.7))))
    assert found is not None and (found.next_trial, found.same) == ("3", 2)
    assert found.lead == pytest.approx(0.1) and found.noise == pytest.approx(0.0141, abs=1e-4)
    assert found.within_noise is False and "chance alone does not explain" in found.text()


def test_a_lead_within_the_noise_is_called_so() -> None:
    """Where trials with equal parameters differ as much as the lead, the text says so, with the number of repeats."""
    found = certainty(
        studies.read(with_values((0.01, 0.90), (0.01, 0.70), (0.02, 0.89), (0.02, 0.69), goal="MAXIMIZE"))
    )
    assert found is not None and found.within_noise is True and found.repeats == 2
    assert "(2 repeats): chance alone could explain a difference of 0.01." in found.text()
    least = certainty(studies.read(with_values((0.01, 0.3), (0.02, 0.1), goal="MINIMIZE")))
    assert (
        least is not None
        and least.next_trial == "1"
        and "between trials with the same parameters is unknown" in least.text()
    )
    assert "result to compare it with" in certainty(studies.read(with_values((0.01, 0.3)))).text()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"trials": []}, "has no trial yet"),
        ({"trials": [{"id": "1", "state": "ACTIVE"}]}, "none of the 1 trials of sweep has ended"),
        ({"trials": [{"id": "1", "state": "INFEASIBLE"}]}, "of 1 that ended 1 are infeasible"),
    ],
)
def test_no_best_trial_has_a_reason(project: Path, change: dict[str, Any], sentence: str) -> None:
    """A study that has not begun, runs, or failed throughout: best says which of these it is."""
    made_studies.keep(project, {**tuning_job(3), **change})
    assert sentence in str(run("best", "sweep", "--local", fails=UsageError).exception)


def test_best_in_every_format(project: Path) -> None:
    """Flags, YAML and JSON have the same parameters; of conditional ones those that the trial has."""
    made_studies.keep(project, tuning_job(40))
    (best,) = json.loads(run("best", "sweep", "--local", "--format=json").stdout)["best"]
    assert yaml.safe_load(run("best", "sweep", "--local", "--format=yaml").stdout) == best["parameters"]
    flags = run("best", "sweep", "--local", "--format=flags").stdout
    assert flags.split() == [f"--{name}={value}" for name, value in best["parameters"].items()]
    assert flags == run("best", "sweep", "--local", "--format=args").stdout
    assert " than the next best, trial " in run("best", "sweep", "--local").stderr


def test_the_pareto_set_is_a_table_with_conditional_parameters(project: Path) -> None:
    """Trials that lack a parameter have an empty cell, and every row has every column."""
    made_studies.keep(project, tuning_job(60, two_goals=True))
    found = json.loads(run("best", "sweep", "--local", "--format=json").stdout)
    assert found["certainty"] is None and {len(own["parameters"]) for own in found["best"]} == {4, 5}
    headings, _, *rows = run("best", "sweep", "--local").stdout.splitlines()
    assert "momentum" in headings and len(rows) == len(found["best"])


# ---- importance and timeline


@pytest.mark.whole
def test_importance_finds_what_decides() -> None:
    """The parameter that the made study depends on ranks first, ranges hold its share, and the shares sum to 1."""
    found = importance(studies.read(made_studies.remote(trials=200)))
    first = found.weights[0]
    assert first.parameter == "learning_rate" and first.share > 0.5 and first.low <= first.share <= first.high + 0.05
    assert sum(weight.share for weight in found.weights) == pytest.approx(1)
    assert found.left_out == {"momentum": "only some trials have it"}
    assert found == importance(studies.read(made_studies.remote(trials=200)))


def test_importance_of_few_trials_is_refused() -> None:
    """Under ten trials nothing is ranked, and the reason is given."""
    found = importance(studies.read(made_studies.remote(trials=8)))
    assert found.weights == () and "importance is estimated from 10 on" in found.why_not


def test_the_timeline_counts_places_and_pauses() -> None:
    """Trials at one time never exceed what was asked; pauses are those that the study was made with."""
    when = timeline(studies.read(made_studies.remote(trials=40)))
    assert when.most == 4 and when.wait == pytest.approx(176) and 142 <= (when.gap or 0) <= 205
    assert max(many for _, many in running(when.spans)) == 4
    assert 0 < when.mean_parallel < 4
    assert timeline(studies.read(RemoteJob({**tuning_job(2), "trials": []}))).spans == ()


def test_an_end_in_whole_seconds_does_not_count_as_a_further_trial() -> None:
    """A trial whose end was rounded up to after the next one's start has ended at that start: one ran at a time, without a pause."""
    rows = [("1", "10.2", "11"), ("2", "10.7", "12"), ("3", "11.5", "12")]
    trials = [
        {"id": name, "state": "SUCCEEDED", "startTime": f"2026-01-01T00:00:{start}Z", "endTime": f"2026-01-01T00:00:{end}Z"}
        for name, start, end in rows
    ]  # fmt: skip
    when = timeline(studies.read(RemoteJob({**tuning_job(2), "parallelTrialCount": 1, "trials": trials})))
    assert when.most == 1 and when.gap == 0 and [many for _, many in running(when.spans)] == [1, 1, 1, 0]


def test_cost_is_the_trials_duration_at_the_catalog_s_prices() -> None:
    """Only time between a trial's start and end is paid for; trials that run count until now."""
    job = made_studies.remote(trials=12)
    found = spent(job, catalog.load())
    when = timeline(studies.read(job))
    assert found.seconds == pytest.approx(when.busy) and found.units == 12
    assert found.usd == pytest.approx(found.price.usd_per_hour * when.busy / 3600)
    longer = spent(made_studies.remote(trials=12, running=2), catalog.load(), now=made_studies.BEGAN + 36_000)
    assert longer.seconds > found.seconds


# ---- while it runs


def test_what_a_watcher_sees() -> None:
    """Best so far, each running trial with its last metric, time and money so far and at the end."""
    job = made_studies.remote(trials=12, running=3)
    now = made_studies.BEGAN + 2_000
    seen = watched(job, spent(job, catalog.load(), now=now), now)
    facts = dict(seen.facts)
    assert "RUNNING" in seen.state and "3 active" in seen.state and len(seen.trials) == 3
    assert facts["best so far"].startswith("accuracy 0.") and "at step 12" in seen.trials[0].last
    for name in ("time so far", "time left, an estimate", "cost so far, an estimate", "cost at the end, an estimate"):
        assert facts[name], name
    done = watched(made_studies.remote(trials=12), None, now)
    assert done.trials == () and "time left, an estimate" not in dict(done.facts)
