"""Candidates: each is the job with some overrides, with errors and findings at its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from vertexrig.errors import ConfigError
from vertexrig.project import candidates, config
from vertexrig.workspace import Workspace

BASE = """project: my-project
bucket: gs://my-project-b
trainer: {image: tf-2.17}
jobs:
  train:
    topology: gpu
    machine_type: g2-standard-8
    accelerator_type: NVIDIA_L4
    accelerator_count: 1
    args: {epochs: 1}
    timeout: 3600s
    package_uris: [gs://my-project-b/trainer.tar.gz]
    candidates:
      - %s
sweeps:
  sweep:
    job: train
    study: {metrics: {accuracy: MAXIMIZE}, parameters: {lr: {double_value_spec: {min_value: 0, max_value: 1}}}}
    max_trial_count: 10
    candidates: [{parallel_trial_count: 2, strategy: SPOT, labels.tier: spot}]
"""


def loaded(candidate: str = "strategy: SPOT", *overrides: str, target: str | None = None) -> config.Loaded:
    file = Path("vertexrig.yaml")
    return config.loads(BASE % candidate, file=file, overrides=overrides, target=target, environ={})


def test_a_candidate_is_the_job_with_its_overrides() -> None:
    """Keys of the job, of the project's place, nested ones, lists and removed ones change, and all others stay."""
    text = (
        "{region: europe-west4, bucket: gs://my-project-eu, worker: {replica_count: 2}, args.epochs: 3, timeout: null, "
        "package_uris: [gs://my-project-eu/trainer.tar.gz]}"
    )
    (found,) = candidates.others(loaded(text, "jobs.train.args.batch=8"), "train")
    job = found.project.jobs["train"]
    assert (found.project.region, found.project.bucket) == ("europe-west4", "gs://my-project-eu")
    assert job.worker is not None and job.worker.replica_count == 2 and job.timeout is None
    assert job.args == {"epochs": "3", "batch": "8"} and job.machine_type == "g2-standard-8"
    assert job.package_uris == ("gs://my-project-eu/trainer.tar.gz",)


def test_an_entry_that_was_left_out_stays_out() -> None:
    """Where a command goes on without an entry that is wrong, the candidates of the others are read without it, too."""
    text = BASE % "strategy: SPOT" + "  wrong: {job: nothing}\n"
    left = config.loads(text, file=Path("vertexrig.yaml"), without=[("sweeps", "wrong")], environ={})
    (found,) = candidates.others(left, "train")
    assert found.project.jobs["train"].strategy == "SPOT" and "wrong" not in found.project.sweeps


def test_overrides_by_a_short_key_hold_for_candidates() -> None:
    """What `--set KEY=VALUE` changes of the job that a command names is changed in its candidates, too."""
    (found,) = candidates.others(loaded("strategy: SPOT", "args.epochs=7", target="train"), "train")
    assert found.project.jobs["train"].args == {"epochs": "7"} and found.project.jobs["train"].strategy == "SPOT"


def test_an_override_of_the_project_stays_one_in_candidates() -> None:
    """Where several jobs are named, `--set labels.team=b` changes the project's labels; it does not change the candidate's own."""
    several, one = (loaded("strategy: SPOT", "labels.team=b", target=target) for target in (None, "train"))
    for given, own in ((several, {}), (one, {"team": "b"})):
        (found,) = candidates.others(given, "train")
        assert found.project.jobs["train"].labels == given.project.jobs["train"].labels == own
        assert found.project.labels == given.project.labels


def test_a_sweeps_candidate_changes_sweep_and_job() -> None:
    """A key that the sweep has is changed there, any other in the job it runs."""
    (found,) = candidates.others(loaded(), "sweep")
    sweep, job = found.project.sweeps["sweep"], found.project.jobs["train"]
    assert (sweep.parallel_trial_count, sweep.labels, job.strategy) == (2, {"tier": "spot"}, "SPOT")
    assert not job.labels


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        ("strategy: SPOTTY", r"vertexrig.yaml:14: jobs.train.candidates\[?.?0\]?.*'SPOTTY'.*'SPOT'"),
        ("stratgy: SPOT", r"vertexrig.yaml:14: .*a candidate cannot change 'stratgy'. Did you mean 'strategy'"),
        ("candidates: []", "a candidate cannot change 'candidates'"),
        ("{}", "a candidate changes nothing"),
        ("network: null", "there is no jobs.train.network to remove"),
    ],
)
def test_what_a_candidate_cannot_say(candidate: str, message: str) -> None:
    """A wrong key or value of a candidate is an error at its line, with the choices."""
    with pytest.raises(ConfigError, match=message):
        list(candidates.others(loaded(candidate), "train"))


def test_findings_name_the_candidate() -> None:
    """A finding of a candidate alone names it, has its line and no edit of the job; what the job has too is not repeated."""
    first, second = Workspace(loaded("{strategy: SPOT, accelerator_count: 3}")).prepare_candidates("train")
    assert first.ok and not second.ok
    (count,) = [one for one in second.findings if one.id == "accelerator-count"]
    assert count.message.startswith("candidate 2: g2-standard-8 cannot have 3") and (count.line, count.edits) == (
        14,
        (),
    )
    assert not {(one.id, one.path, one.message) for one in first.findings} & {
        (one.id, one.path, one.message.removeprefix("candidate 2: ")) for one in second.findings
    }
    assert '"SPOT"' in second.text and '"SPOT"' not in first.text


@pytest.mark.parametrize("key", ["wait", "retry_for"])
@pytest.mark.parametrize("value", ["1.5h", "soon", "0m", "20", "1h30"])
def test_a_time_that_says_nothing_is_refused(key: str, value: str) -> None:
    """A duration that nobody can read is no duration without end: of a job, a sweep and a candidate it is refused, with its form."""
    for name in ("train", "sweep"):
        text = (BASE % "strategy: SPOT").replace("    candidates:", f"    {key}: {value}\n    candidates:", 1)
        if name == "sweep":
            text = BASE % "strategy: SPOT" + f"    {key}: {value}\n"
        with pytest.raises(ConfigError, match=f"{value}.* is .* duration such as|{value} is a number without a unit"):
            config.loads(text, file=Path("vertexrig.yaml"), environ={})
    with pytest.raises(ConfigError, match=value if key == "wait" else "cannot change 'retry_for'"):
        list(candidates.others(loaded(f"{{strategy: SPOT, {key}: {value}}}"), "train"))


@pytest.mark.parametrize("key", ["wait", "retry_for"])
def test_a_time_without_candidates_is_refused(key: str) -> None:
    """Nothing would be tried after it, so it is refused with its line."""
    text = (BASE % "strategy: SPOT").replace("    candidates:\n      - strategy: SPOT", f"    {key}: 2h")
    project = config.loads(text, file=Path("vertexrig.yaml"), environ={})
    with pytest.raises(ConfigError, match=f"jobs.train.{key}: {key} is about candidates: list some, or remove it"):
        Workspace(project).prepare_candidates("train")
