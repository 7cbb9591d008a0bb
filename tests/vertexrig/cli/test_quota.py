"""`vertexrig quota` against stand-ins of Cloud Quotas and Cloud Monitoring: real HTTP, and the answers' documented form."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.tools import need
from tests.support.web import answering
from vertexrig import cli
from vertexrig.cloud.quotas import QuotaLimit
from vertexrig.explain import headroom
from vertexrig.project import config
from vertexrig.workspace import Workspace

METRIC = "aiplatform.googleapis.com/custom_model_training_"
PROJECT = """
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {image: tf-2.17}
jobs:
  l4: {topology: gpu, machine_type: g2-standard-8, accelerator_type: NVIDIA_L4, accelerator_count: 1, container: {image_uri: gcr.io/a/b}}
  spot: {topology: gpu, machine_type: n1-standard-8, accelerator_type: NVIDIA_TESLA_T4, accelerator_count: 1, strategy: SPOT, container: {image_uri: gcr.io/a/b}}
  ways:
    topology: gpu
    machine_type: g2-standard-8
    accelerator_type: NVIDIA_L4
    accelerator_count: 1
    container: {image_uri: gcr.io/a/b}
    candidates:
      - {machine_type: g2-standard-48, accelerator_count: 4}
      - {region: us-east1, bucket: gs://my-bucket-east, accelerator_count: 1}
      - {machine_type: n1-standard-8, accelerator_type: NVIDIA_TESLA_T4}
"""


def info(
    metric: str, quota_id: str, *places: tuple[Mapping[str, str], str | None, list[str]], **more: Any
) -> dict[str, Any]:
    """A QuotaInfo as REST has it: int64 as text, and a zero left out."""
    infos = [
        {
            **({"dimensions": where} if where else {}),
            "details": {} if value is None else {"value": value},
            "applicableLocations": regions,
        }
        for where, value, regions in places
    ]
    return {
        "name": f"projects/my-project/locations/global/services/aiplatform.googleapis.com/quotaInfos/{quota_id}",
        "quotaId": quota_id, "metric": METRIC + metric, "service": "aiplatform.googleapis.com", "isPrecise": True,
        "containerType": "PROJECT", "dimensions": ["region"], "dimensionsInfos": infos,
        "quotaIncreaseEligibility": {"isEligible": True}, **more,
    }  # fmt: skip


REFUSED = {"ineligibilityReason": "NOT_ENOUGH_USAGE_HISTORY"}
US = ["us-central1", "us-east1"]
INFOS = [
    info("nvidia_l4_gpus", "CustomModelTrainingL4GPUsPerProjectPerRegion", ({"region": "us-central1"}, "1", ["us-central1"]), ({}, "28", US)),
    info("g2_cpus", "CustomModelTrainingG2CPUsPerProjectPerRegion", ({}, "-1", US)),
    info("pd_ssd", "CustomModelTrainingPDSSDPerProjectPerRegion", ({}, "4000", US)),
    info("preemptible_cpus", "CustomModelTrainingPreemptibleCPUsPerProjectPerRegion", ({}, "1", US), quotaIncreaseEligibility=REFUSED),
    info("preemptible_nvidia_t4_gpus", "CustomModelTrainingPreemptibleT4GPUsPerProjectPerRegion", ({}, None, US)),
    info("requests", "PerMinute", ({}, "5", US), refreshInterval="minute"),
]  # fmt: skip
SERIES = [
    {
        "metric": {
            "type": "serviceruntime.googleapis.com/quota/allocation/usage",
            "labels": {"quota_metric": METRIC + "nvidia_l4_gpus"},
        },
        "resource": {
            "type": "consumer_quota",
            "labels": {"location": "us-central1", "service": "aiplatform.googleapis.com"},
        },
        "points": [{"value": {"int64Value": "1"}}, {"value": {"int64Value": "0"}}],
    }
]
Answers = Callable[[str, dict[str, list[str]]], tuple[int, dict[str, Any]]]


def works(path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
    """Two pages of limits, and what is in use where the filter names the region."""
    if path.endswith("/quotaInfos"):
        assert path == "/v1/projects/my-project/locations/global/services/aiplatform.googleapis.com/quotaInfos"
        first = "pageToken" not in query
        return 200, {"quotaInfos": INFOS[:3], "nextPageToken": "next"} if first else {"quotaInfos": INFOS[3:]}
    assert path == "/v3/projects/my-project/timeSeries" and query["interval.startTime"] < query["interval.endTime"]
    (asked,) = query["filter"]
    assert 'resource.label.service="aiplatform.googleapis.com"' in asked
    return 200, {"timeSeries": SERIES if 'location="us-central1"' in asked else []}


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[Answers], str]]:
    """Serve answers as both services, in the folder of a project."""
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:

        def start(answers: Answers) -> str:
            def answer(method: str, path: str, data: bytes) -> tuple[int, Any]:
                parts = urlsplit(path)
                return answers(parts.path, parse_qs(parts.query))

            url = stack.enter_context(answering(answer))
            for name in ("CLOUDQUOTAS", "MONITORING"):
                monkeypatch.setenv(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}", f"{url}/")
            return url

        yield start


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What a call prints as JSON."""
    assert cli.run(["quota", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_job_that_does_not_fit_says_by_what_sum(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in use and what the job needs is compared with the region's own limit; the request asks for their sum."""
    serve(works)
    data = told(capsys, "l4")
    (l4,) = [one for one in data["quotas"] if one["item"] == "NVIDIA_L4"]
    assert (l4["limit"], l4["used"], l4["amount"], l4["known"], l4["fits"], data["fits"]) == (
        1,
        1,
        1,
        "project",
        False,
        False,
    )
    assert cli.run(["quota", "l4"]) == 0
    shown = capsys.readouterr().out
    assert (
        "1 in use + 1 needed of 1" in shown
        and "iam-admin/quotas?project=my-project&service=aiplatform.googleapis.com" in shown
    )
    assert (
        "--quota-id=CustomModelTrainingL4GPUsPerProjectPerRegion --preferred-value=2 --dimensions=region=us-central1"
        in shown
    )


def test_another_region_has_its_own_limit(serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str]) -> None:
    """Where no row is for the region itself, the one that applies to it counts."""
    serve(works)
    data = told(capsys, "l4", "--region", "us-east1")
    (l4,) = [one for one in data["quotas"] if one["item"] == "NVIDIA_L4"]
    assert (l4["limit"], l4["used"], l4["fits"], data["request"]) == (28, None, True, [])


def test_a_request_that_would_be_refused_is_said(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of 0 that the answer leaves out is 0, and the service's reason against a request is shown."""
    serve(works)
    quotas = {one["metric"].removeprefix(METRIC): one for one in told(capsys, "spot")["quotas"]}
    assert quotas["preemptible_nvidia_t4_gpus"]["limit"] == 0
    assert (
        quotas["preemptible_cpus"]["refusal"] == "NOT_ENOUGH_USAGE_HISTORY" and not quotas["preemptible_cpus"]["fits"]
    )
    assert cli.run(["quota", "spot"]) == 0
    assert "preemptible_cpus: a request for more would be refused: NOT_ENOUGH_USAGE_HISTORY" in capsys.readouterr().out


def test_without_a_name_all_quotas_of_training_are_shown(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Limits and use of the region; what is counted by the minute is left out, -1 is no limit."""
    serve(works)
    rows = {row["metric"].removeprefix(METRIC): (row["limit"], row["used"]) for row in told(capsys)["quotas"]}
    assert rows == {
        "nvidia_l4_gpus": (1, 1), "g2_cpus": (None, None), "pd_ssd": (4000, None), "preemptible_cpus": (1, None),
        "preemptible_nvidia_t4_gpus": (0, None),
    }  # fmt: skip


def test_each_candidate_is_held_against_the_limits_of_its_region(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Candidates stand beside the job with their own region, sum and answer; the limits of all regions are asked for once."""
    asked = []
    serve(lambda path, query: asked.append(path) or works(path, query))
    data = told(capsys, "ways")
    found = {}
    for way in data["candidates"]:
        gpus = next(one for one in way["quotas"] if one["unit"] == "GPUs")
        keys = ("used", "amount", "limit", "known", "fits")
        found[way["candidate"]] = (way["region"], *(gpus[key] for key in keys), way["fits"])
    assert found == {
        1: ("us-central1", 1, 1, 1, "project", False, False),
        2: ("us-central1", 1, 4, 1, "project", False, False),
        3: ("us-east1", None, 1, 28, "project", True, True),
        4: ("us-central1", None, 1, 12, "default", True, True),
    }
    assert [path.endswith("quotaInfos") for path in asked].count(True) == 2  # two pages
    assert cli.run(["quota", "ways"]) == 0
    shown = capsys.readouterr().out
    assert "ways in us-central1: does NOT fit\n" in shown and "candidate 3 of ways in us-east1: fits\n" in shown
    assert "1 in use + 4 needed of 1" in shown and "--preferred-value=5" in shown


def test_a_candidate_cannot_fit_by_the_services_limits_alone() -> None:
    """What is over the project's limit cannot fit; a limit that is not known, or a default of the catalog, refuses nothing."""
    prepared = Workspace(config.loads(PROJECT, file=Path("vertexrig.yaml"))).prepare_candidates("ways", check=False)
    limits = {METRIC + "nvidia_l4_gpus": QuotaLimit(METRIC + "nvidia_l4_gpus", "L4", 1)}
    said = f"{METRIC}nvidia_l4_gpus in us-central1: 4 needed of 1"
    assert [headroom.cannot_fit(one, limits) for one in prepared] == ["", said, "", ""]
    assert [headroom.cannot_fit(one, None) for one in prepared] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("refused", "permission", "known"),
    [("quotaInfos", "cloudquotas.quotas.get", "default"), ("timeSeries", "monitoring.timeSeries.list", "project")],
)
def test_a_permission_that_is_missing_is_named(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str], refused: str, permission: str, known: str
) -> None:
    """Without a permission stderr names it, and the limits are those of the catalog, marked; without the other only the use is not known."""

    def answers(path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        error = {"error": {"code": 403, "message": "Permission denied.", "status": "PERMISSION_DENIED"}}
        return (403, error) if path.endswith(refused) else works(path, query)

    serve(answers)
    assert cli.run(["quota", "l4", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert f"it needs the permission {permission}, for example by roles/servicemanagement.quotaViewer" in err
    (l4,) = [one for one in json.loads(out)["quotas"] if one["item"] == "NVIDIA_L4"]
    assert (l4["known"], l4["used"]) == (known, None)


@pytest.mark.parametrize(
    "garbage", [{"quotaInfos": [7, {"metric": 3, "dimensionsInfos": [{"details": {"value": "x"}}]}]}, {"quotaInfos": 3}]
)
def test_answers_of_no_form_are_no_traceback(
    serve: Callable[[Answers], str], capsys: pytest.CaptureFixture[str], garbage: dict[str, Any]
) -> None:
    """An answer of another form leads to the catalog's limits or to none, never to a traceback."""
    serve(lambda path, query: (200, garbage))
    assert cli.run(["quota", "l4"]) == 0
    out, err = capsys.readouterr()
    assert "custom_model_training_nvidia_l4_gpus" in out and "Traceback" not in err


@pytest.mark.whole
def test_gcloud_reads_the_same_limits(serve: Callable[[Answers], str], tmp_path: Path) -> None:
    """The unmodified gcloud takes the stand-in's answers for those of Cloud Quotas, with the same value."""
    serve(lambda path, query: works(path.replace("/v1beta/", "/v1/"), query))  # gcloud 528 asks v1beta
    words = [
        "beta",
        "quotas",
        "info",
        "list",
        "--service=aiplatform.googleapis.com",
        "--project=my-project",
        "--format=json",
    ]
    environment = {
        **os.environ,
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "True",
    }
    done = subprocess.run([need("gcloud"), *words], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = {row["quotaId"]: row for row in json.loads(done.stdout)}
    assert rows["CustomModelTrainingL4GPUsPerProjectPerRegion"]["dimensionsInfos"][0]["details"]["value"] == "1"
    assert len(rows) == len(INFOS)
