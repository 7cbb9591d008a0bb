"""The fence: a job whose claim records another one ends at once; whatever else the claim says, it trains on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainer import fence
from trainer.errors import SurplusJobError

from tests.trainer.conftest import Launched

ID, MINE, OTHER = "a" * 32 + "-" + "b" * 12, "1" * 32, "2" * 32
JOB = "projects/p/locations/us-central1/customJobs/7"
RECORDED: dict[str, Any] = {"id": ID, "job": {"name": JOB}, "before": {}, "winners": {ID: OTHER}}


def variables(file: Path, token: str = f"{ID}.{MINE}") -> dict[str, str]:
    return {"VERTEXRIG_CLAIM": str(file), "VERTEXRIG_CLAIM_TOKEN": token}


@pytest.mark.parametrize(
    "claim",
    [
        RECORDED,
        {"id": "later", "job": {"name": "another"}, "before": {ID: JOB}, "winners": {ID: OTHER, "later": MINE}},
        {**RECORDED, "token": MINE},
    ],
    ids=["recorded", "a later window", "held by us"],
)
def test_another_recorded_job_is_an_error_that_names_it(tmp_path: Path, claim: dict[str, Any]) -> None:
    """The claim records another delivery's job for our id, now or in an earlier window: the error names that job."""
    (tmp_path / "claim.json").write_text(json.dumps(claim))
    with pytest.raises(SurplusJobError, match=JOB) as caught:
        fence.check(variables(tmp_path / "claim.json"))
    assert caught.value.exit_code == 4


GOES_ON = {
    "ours": json.dumps({**RECORDED, "winners": {ID: MINE}}),
    "not recorded yet": json.dumps({**RECORDED, "job": {}, "winners": {}}),
    "another id": json.dumps({**RECORDED, "winners": {"another": OTHER}}),
    "an older claim": json.dumps({"id": ID, "job": {"name": JOB}}),
    "garbage": "{",
    "a list": "[]",
    "not UTF-8": b"\xff\xfe".decode("latin-1"),
    "winners of another form": json.dumps({**RECORDED, "winners": [OTHER]}),
}


@pytest.mark.parametrize("content", [*GOES_ON.values(), None], ids=[*GOES_ON, "missing"])
def test_whatever_else_a_claim_says_the_job_trains_on(tmp_path: Path, content: str | None) -> None:
    """Our own record, no record, no claim and a claim that cannot be read stop nobody."""
    if content is not None:
        (tmp_path / "claim.json").write_text(content, encoding="latin-1")
    fence.check(variables(tmp_path / "claim.json"))


def test_only_a_job_with_a_claim_looks(tmp_path: Path) -> None:
    """Without both variables, or with half a token, nothing is read."""

    def read(uri: str) -> bytes:
        raise AssertionError(uri)

    for environ in (
        {},
        {"VERTEXRIG_CLAIM": "x"},
        variables(tmp_path, MINE),
        variables(tmp_path, ".x"),
        variables(tmp_path, "x."),
    ):
        fence.check(environ, read)


def test_a_bucket_is_read_where_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gs://BUCKET/OBJECT is read from the mounted bucket."""
    monkeypatch.setattr(fence, "MOUNTED", str(tmp_path))
    (tmp_path / "my-bucket/claims").mkdir(parents=True)
    (tmp_path / "my-bucket/claims/x.json").write_text(json.dumps(RECORDED))
    with pytest.raises(SurplusJobError, match="gs://my-bucket/claims/x.json"):
        fence.check({**variables(tmp_path), "VERTEXRIG_CLAIM": "gs://my-bucket/claims/x.json"})


def test_the_process_ends_at_once_with_one_line(launch: Callable[..., Launched], tmp_path: Path) -> None:
    """`python -m trainer.task` ends with code 4 and one line, before TensorFlow is imported; no output is made."""
    (tmp_path / "claim.json").write_text(json.dumps(RECORDED))
    hidden = {"PYTHONPATH": f"{tmp_path / 'hide'}:{fence.__file__.rsplit('/', 2)[0]}"}
    (tmp_path / "hide/tensorflow").mkdir(parents=True)
    (tmp_path / "hide/tensorflow/__init__.py").write_text("raise SystemExit('TensorFlow is imported')\n")
    ended = launch(env={**variables(tmp_path / "claim.json"), **hidden}, folder=tmp_path / "run").wait()
    assert ended.code == 4
    assert ended.text.splitlines() == [
        f"trainer: error: the claim {tmp_path / 'claim.json'} records {JOB} for the request that made this job: "
        "this one trains nothing"
    ]
    assert not (tmp_path / "run/model").exists()
