"""Exactly one job per request: claims, healing after crashes, and budgets."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.support.submitting import Make, maker, run, with_claim
from vertexrig import times
from vertexrig.cloud.rest import Answer, RestError
from vertexrig.cloud.storage import Storage
from vertexrig.errors import ConfigError, FindingsError, VertexrigError
from vertexrig.submit import claims
from vertexrig.submit.budget import OverBudgetError
from vertexrig.submit.claims import Claims, InProgressError, OtherBodyError, OtherCandidateError, request_key
from vertexrig.submit.submission import Request, Submitted
from vertexrig.submit.uploaded import NoPackageError, UploadedArtifacts, pointer


def test_a_repeat_finds_the_first_job(here: clouds.MemoryCloud, make: Make) -> None:
    """The same request id gives one job, the second time marked as a duplicate; the job carries claim and run as labels."""
    first, again = run(make(), "repeat"), run(make(), "repeat")
    assert not first.duplicate and again.duplicate and first.name == again.name
    assert with_claim(here, "repeat") == [first.name]
    job = clouds.vertex(here).get(first.name)
    assert job is not None and job.labels["vertexrig_run"] == "cpu" and job.labels["vertexrig_claim"] == first.claim
    assert first.packages == ("gs://my-bucket/packages/trainer.tar.gz",)


def test_the_same_id_with_another_body(make: Make) -> None:
    """A request id that comes again with another body is refused."""
    run(make(), "other-body")
    with pytest.raises(OtherBodyError):
        run(make(), "other-body", Request("cpu", {}, {"epochs": 3}))


def test_overrides_reach_the_job(here: clouds.MemoryCloud, make: Make) -> None:
    """Keys and arguments that were overridden are in the job; what a text holds is not evaluated."""
    request = Request("sweep", {"max_trial_count": 7, "labels.team": "vision"}, {"note": "{{7*7}} ${HOME} 'x': #"})
    job = clouds.vertex(here).get(run(make(), "overrides", request).name)
    assert job is not None and job.data["maxTrialCount"] == 7 and job.labels["team"] == "vision"
    args = job.data["trialJobSpec"]["workerPoolSpecs"][0]["pythonPackageSpec"]["args"]
    assert "--note={{7*7}} ${HOME} 'x': #" in args and "--epochs=2" in args


@pytest.mark.parametrize("set_", [{"max_trial_count": "five"}, {"max_trial_count": 2.5}, {"max_trial_count": True}])
def test_an_override_of_the_wrong_type(make: Make, set_: dict[str, Any]) -> None:
    """A value that does not fit its key's type is refused, with its path."""
    with pytest.raises(ConfigError, match=r"set\.max_trial_count"):
        make().prepare_candidates(Request("sweep", set_))[0]


def test_concurrent_submissions_make_one_job(here: clouds.MemoryCloud, make: Make) -> None:
    """Of twenty submissions of one request at the same time one makes the job and the others find it."""
    submitters = [make(claims=Claims(clouds.storage(here))) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        made = list(pool.map(lambda one: run(one, "concurrent"), submitters))
    assert len({one.name for one in made}) == 1 and sum(not one.duplicate for one in made) == 1
    assert len(with_claim(here, "concurrent")) == 1


def test_a_crash_after_the_claim_is_healed(here: clouds.MemoryCloud, make: Make) -> None:
    """A claim whose holder died before creating is taken over when its lease is out, by exactly one of ten deliveries."""
    store = Claims(clouds.storage(here), lease_s=3.0, wait_s=0.2)
    body = Request("cpu").digest
    store.take(request_key("died"), body, "cpu", lambda _: None, lambda _: {})
    with pytest.raises(InProgressError) as waiting:
        run(make(), "died")
    assert 1 <= waiting.value.retry_after <= 4
    here.clock.at += 4
    submitters = [make(claims=Claims(clouds.storage(here), lease_s=3.0, wait_s=8)) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda one: run(one, "died"), submitters))
    assert len({one.name for one in made}) == 1 and len(with_claim(here, "died")) == 1


def test_a_crash_after_the_create_is_healed(here: clouds.MemoryCloud, make: Make) -> None:
    """A job that was created but not recorded is found by its label, recorded, and not made again."""
    submitter = make()
    submitter.claims.record = lambda *_: (_ for _ in ()).throw(RestError("down"))  # type: ignore[method-assign]
    first = run(submitter, "unrecorded")
    store = Claims(clouds.storage(here), lease_s=60, wait_s=10)  # found long before its lease is out
    again = run(make(claims=store), "unrecorded")
    assert again.duplicate and again.name == first.name and len(with_claim(here, "unrecorded")) == 1
    found = clouds.storage(here).read_json(request_key("unrecorded").path)
    assert found is not None and found["state"] == "created" and found["job"]["name"] == first.name


def test_a_holder_out_of_time_starts_nothing(
    here: clouds.MemoryCloud, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder whose lease is nearly out gives its claim up instead of creating; the next delivery makes the job."""
    monkeypatch.setattr(claims, "CREATE_WITHIN_S", -1.0)
    with pytest.raises(RestError, match="took too long"):
        run(make(), "late")
    assert with_claim(here, "late") == []
    monkeypatch.undo()
    assert not run(make(), "late").duplicate


def test_a_refused_job_leaves_no_claim(here: clouds.MemoryCloud, make: Make) -> None:
    """A job that the service refuses for want of quota leaves no claim, so the next delivery can make it."""
    submitter = make(budget={"trials_per_day": 1})
    create = submitter.vertex.create
    submitter.vertex.create = lambda *_: (_ for _ in ()).throw(RestError("no quota", status=429))  # type: ignore[method-assign]
    with pytest.raises(RestError, match="no quota"):
        run(submitter, "quota")
    submitter.vertex.create = create  # type: ignore[method-assign]
    assert not run(submitter, "quota").duplicate
    assert len(clouds.jobs(here)) == 1


def test_no_package(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """A run whose trainer package was never uploaded is refused with the command that uploads it."""
    submitter = clouds.submitter(here, tmp_path, {**clouds.PROJECT, "trainer": {"image": "tf-2.16"}})
    with pytest.raises(NoPackageError, match="vertexrig function package"):
        submitter.prepare_candidates(Request("cpu"))[0]


def test_a_job_that_would_fail_is_not_claimed(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """Findings of severity error stop a run before anything is claimed."""
    gpu = {
        "topology": "gpu",
        "machine_type": "n1-standard-8",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 3,
    }
    submitter = clouds.submitter(here, tmp_path, {**clouds.PROJECT, "jobs": {**clouds.PROJECT["jobs"], "gpu": gpu}})
    with pytest.raises(FindingsError):
        run(submitter, "findings", Request("gpu"))
    assert submitter.storage.read(request_key("findings").path) is None


# --- budgets ---

OVER = [
    ({"usd_per_run": 2.0}, "sweep", r"\$2.45 at most = 10 trials × 1 h × \$0.2453/h \(.*\): more than \$2.00 per run"),
    ({"trials_per_run": 9}, "sweep", r"10 trials, and 9 are allowed per run \(trigger.budget.trials_per_run\)"),
    ({"usd_per_run": 30.0}, "forever", r"\$41.21 at most = 168 h \(default timeout\) × \$0.2453/h .*: more than \$30.00"),
]  # fmt: skip


@pytest.mark.parametrize("budget, name, said", OVER, ids=range(len(OVER)))
def test_over_budget_for_one_run(make: Make, budget: dict[str, Any], name: str, said: str) -> None:
    """A run over a limit is refused, and the message shows the arithmetic."""
    with pytest.raises(OverBudgetError, match=said):
        run(make(budget=budget), f"over-{name}-{list(budget)}", Request(name))


def test_a_day_that_is_used_up_shows_the_sum(make: Make) -> None:
    """A run over a day's budget is refused with what the day has had and what this run would add."""
    submitter = make(budget={"trials_per_day": 2})
    for number in range(2):
        run(submitter, f"day-{number}")
    said = r"2 trials for 2 runs on .* \(UTC\) \+ 1 for this run = 3: more than 2 per day"
    with pytest.raises(OverBudgetError, match=said):
        run(submitter, "one-more")


def test_live_jobs(here: clouds.MemoryCloud, make: Make) -> None:
    """A cap on live jobs counts jobs that run or wait, a sweep with its trials as one, and lets go of ended ones."""
    submitter = make(budget={"live_jobs": 2})
    submitter.ledger.now = here.clock.now
    run(submitter, "live-1")
    sweep = run(submitter, "live-2", Request("sweep"))
    with pytest.raises(OverBudgetError, match=r"2 live jobs \+ this one: more than 2"):
        run(submitter, "live-3")
    submitter.vertex.cancel(sweep.name)
    here.clock.at += 4  # the lease in which a run may still be about to start
    run(submitter, "live-3")


# --- the command ---


def test_the_command(tmp_path: Path) -> None:
    """`vertexrig submit` uploads the package, makes the job, prints its name, and repeats nothing for the same id."""
    (tmp_path / "trainer_pkg/trainer").mkdir(parents=True)
    (tmp_path / "trainer_pkg/setup.py").write_text("from setuptools import setup\nsetup(name='t', version='1', packages=['trainer'])\n")  # fmt: skip
    for name in ("__init__.py", "task.py"):
        (tmp_path / "trainer_pkg/trainer" / name).write_text("")
    data = {**clouds.PROJECT, "trainer": {"image": "tf-2.16"}, "jobs": {"cpu": {"machine_type": "n1-standard-4"}}}
    data = {key: value for key, value in data.items() if key not in ("sweeps", "trigger")}
    clouds.loaded(tmp_path, data)
    words = ("submit", "cpu", "--request-id=from-the-command", "--format=json")
    with clouds.cloud(tmp_path / "cloud") as here:
        done = [tools.vertexrig(*words, cwd=tmp_path, env=clouds.variables(here)) for _ in range(2)]
        assert [one.returncode for one in done] == [0, 0], done[0].stderr
        first, again = (json.loads(one.stdout) for one in done)
        assert first["name"] == again["name"] and again["duplicate"] and not first["duplicate"]
        (uri,) = first["packages"]
        storage = clouds.storage(here)
        assert storage.exists(uri.removeprefix("gs://my-bucket/"))
        assert storage.read_json("vertexrig/vertexrig/packages/trainer.task-tf-2.16.json")["uri"] == uri  # type: ignore[index]


# --- what the bucket says is checked ---

FOREIGN = [
    "gs://evil/packages/trainer.tar.gz", "gs://my-bucket/runs/x/trainer.tar.gz", "gs://my-bucket/packages/../evil.tar.gz",
    "gs://my-bucket/vertexrig/vertexrig/packages/trainer.task-tf-2.17.json", "gs://my-bucket/packages/", "https://evil.example/t.tar.gz",
    "gs://my-bucket.evil/packages/trainer.tar.gz", "gs://my-bucket/packages/none.tar.gz",
]  # fmt: skip


def test_a_package_from_elsewhere_is_not_run(here: clouds.MemoryCloud, make: Make) -> None:
    """The pointer in the bucket may name only a package in `packages/` of the own bucket, whose SHA-256 is the uploaded one."""
    submitter = make()
    for uri in FOREIGN:
        clouds.point_at(here, uri)
        with pytest.raises(NoPackageError, match="is missing or differs from the uploaded one"):
            submitter.prepare_candidates(Request("cpu"))[0]
    clouds.point_at(here)
    submitter.prepare_candidates(Request("cpu"))[0]
    here.storage.write("packages/trainer.tar.gz", b"another one")
    with pytest.raises(NoPackageError, match="vertexrig function package"):
        submitter.prepare_candidates(Request("cpu"))[0]


def test_triggers_of_a_bucket_have_their_own_trainers(here: clouds.MemoryCloud, tmp_path: Path) -> None:
    """Two functions with one bucket and one module name each run the package that was uploaded for them."""
    found = []
    for function in ("vertexrig", "other"):
        loaded = clouds.loaded(tmp_path, {**clouds.PROJECT, "trigger": {"function": function}})
        uploaded = UploadedArtifacts(loaded, here.storage)
        if function == "other":
            with pytest.raises(NoPackageError, match="vertexrig function package"):
                uploaded.package("2.17")
            here.storage.write("packages/other.tar.gz", b"o")
            row = {"uri": f"{clouds.BUCKET}/packages/other.tar.gz", "sha256": hashlib.sha256(b"o").hexdigest()}
            here.storage.write(pointer(loaded, "2.17"), json.dumps(row).encode())
        found.append(uploaded.package("2.17"))
    assert found == [f"{clouds.BUCKET}/packages/{name}.tar.gz" for name in ("trainer", "other")]


def test_a_package_is_read_only_if_it_was_written_again(here: clouds.MemoryCloud, make: Make) -> None:
    """The generation that the upload noted is the package; of another one the bytes decide."""
    name, data, reads = "packages/trainer.tar.gz", b"a package", list[str]()
    here.storage.write(name, data)
    clouds.point_at(here)
    submitter, read = make(), here.storage.read
    submitter.storage.read = lambda name, **options: (reads.append(name), read(name, **options))[1]  # type: ignore[method-assign, func-returns-value, misc]
    submitter.prepare_candidates(Request("cpu"))
    assert name not in reads
    here.storage.write(name, data)  # the same bytes
    submitter.prepare_candidates(Request("cpu"))
    assert reads.count(name) == 1
    for changed in (data[:-1], bytes([*data[:-1], data[-1] ^ 1])):  # cut short; as long as it was
        here.storage.write(name, changed)
        with pytest.raises(NoPackageError, match="is missing or differs from the uploaded one"):
            submitter.prepare_candidates(Request("cpu"))


@pytest.mark.parametrize(
    "part",
    [{"job": {"name": "projects/p/locations/r/models/1"}}, {"job": {"name": "../x"}}, {"job": {}}, {"id": "x" * 45}, {"state": "done"},
     {"id": "0" * 32 + "-" + "0" * 12}, {"run_id": "../../x"}, {"before": {"x": "y"}}, {"before": ["x"]}, {"asked": 1}],
    ids=range(10),
)  # fmt: skip
def test_a_claim_that_is_not_ours_is_left_alone(here: clouds.MemoryCloud, make: Make, part: dict[str, Any]) -> None:
    """A claim whose id, state, job's name or run id has not its form is not acted on; a person has to look."""
    id = f"forged-{json.dumps(part)}"
    first = run(make(), id)
    storage, path = clouds.storage(here), request_key(id).path
    stored = storage.read_json(path)
    assert stored is not None and stored["job"]["name"] == first.name
    storage.write(path, json.dumps({**stored, **part}).encode())
    with pytest.raises(VertexrigError, match="is not a claim"):
        run(make(), id)


def test_an_age_needs_no_header() -> None:
    """An object's age comes from its `updated`; an answer without a date leaves this machine's own clock to compare with."""
    storage = Storage(clouds.BUCKET, url="http://127.0.0.1:9")
    updated = times.rfc3339(times.now() - timedelta(seconds=100))

    def call(method: str, path: str, *, raw: bool = False, **_: Any) -> Answer:
        return Answer(b"{}") if raw else Answer({"generation": "7", "updated": updated})

    storage.rest.call = call  # type: ignore[method-assign,assignment]
    found = storage.read_aged("x")
    assert found is not None and found.generation == 7 and 99 <= found.age_s < 130
    updated = "yesterday"
    with pytest.raises(RestError, match="without an object's time"):
        storage.read_aged("x")


# --- a second job of one request ---


def _ending(here: clouds.MemoryCloud, name: str) -> bool:
    job = clouds.vertex(here).get(name)
    return job is not None and job.state in ("JOB_STATE_CANCELLING", "JOB_STATE_CANCELLED")


def _second_job(here: clouds.Cloud, first: Submitted) -> str:
    """Another job with the claim's label, as a holder makes it that was frozen and then woke up."""
    vertex = clouds.vertex(here)
    made = vertex.get(first.name)
    assert made is not None
    kept = {key: made.data[key] for key in ("displayName", "labels", "jobSpec")}
    return vertex.create(made.collection, kept).name


def test_a_request_is_not_ended_beside_its_sweep(here: clouds.MemoryCloud, make: Make) -> None:
    """A sweep whose holder died before it was recorded is found where the request ends, also if the project file has the sweep no more."""
    key, request = request_key("sweep-unrecorded"), Request("sweep")
    submitter = make()
    submitter.claims.record = lambda *_: (_ for _ in ()).throw(RestError("killed", status=503))  # type: ignore[method-assign]
    made = run(submitter, "sweep-unrecorded", request)
    assert "/hyperparameterTuningJobs/" in made.name
    here.clock.at += 3600
    claim = make().end(key, request.digest, "gone", {"reason": "changed", "text": ""})
    assert claim.state == "created" and claim.job.name == made.name


def test_another_candidate_does_not_wait_for_ever(here: clouds.MemoryCloud) -> None:
    """A claim that was taken for a candidate which the file has otherwise now is in progress until its lease is over, and then says so."""
    store = Claims(clouds.storage(here), lease_s=3.0, wait_s=0.2)
    key = request_key("other-candidate")
    store.take(key, "body.one", "cpu", lambda _: None, lambda _: {})
    with pytest.raises(InProgressError) as young:
        store.take(key, "body.two", "cpu", lambda _: None, lambda _: {})
    assert not isinstance(young.value, OtherCandidateError)
    here.clock.at += 4
    with pytest.raises(OtherCandidateError):
        store.take(key, "body.two", "cpu", lambda _: None, lambda _: {})


def test_a_further_delivery_cancels_a_second_job(here: clouds.MemoryCloud, make: Make) -> None:
    """A delivery that finds its job recorded cancels every other job with the label, and answers with the recorded one."""
    first = run(make(), "second-by-delivery")
    second = _second_job(here, first)
    assert run(make(), "second-by-delivery").name == first.name
    assert _ending(here, second) and not _ending(here, first.name)


def test_a_cancel_that_fails_is_tried_again(here: clouds.MemoryCloud, make: Make) -> None:
    """A second job that cannot be cancelled now makes the delivery fail, so that it comes again and cancels it."""
    first = run(make(), "cancel-fails")
    second = _second_job(here, first)
    submitter = make()
    submitter.vertex.cancel = lambda name: (_ for _ in ()).throw(RestError("down", status=503))  # type: ignore[method-assign]
    with pytest.raises(RestError, match="down"):
        run(submitter, "cancel-fails")
    assert not _ending(here, second)
    assert run(make(), "cancel-fails").name == first.name and _ending(here, second)


def test_jobs_cancels_a_second_job(tmp_path: Path) -> None:
    """`vertexrig jobs` cancels a second job of one request, says so, and shows the state that follows."""
    with clouds.cloud(tmp_path / "cloud") as here:
        own = Claims(clouds.storage(here).below("vertexrig/vertexrig"))  # as the command line reads them
        first = run(maker(here, tmp_path)(claims=own), "second-by-jobs")
        second = _second_job(here, first)
        done = tools.vertexrig("jobs", "--limit=1000", "--format=json", cwd=tmp_path, env=clouds.variables(here))
    assert done.returncode == 0, done.stderr
    assert f"cancelled {second.rpartition('/')[2]}: a second job of one request" in done.stderr
    states = {job["name"]: job["state"] for job in json.loads(done.stdout)["jobs"]}
    assert "CANCEL" in states[second] and "CANCEL" not in states[first.name]
