"""The real gcloud takes the printed commands as they stand, and sends what was rendered."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.services import Endpoint
from tests.support.tools import REPOSITORY, brief, gcloud_run, vertexrig
from vertexrig import spec
from vertexrig.spec import messages


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    received: list[tuple[str, dict[str, Any]]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Kept", (Endpoint,), {"received": received}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", received
    server.shutdown()
    thread.join()


@pytest.fixture
def environment(endpoint: tuple[str, Any], tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": endpoint[0],
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
    }


@pytest.mark.parametrize("name", ["multi-worker", "sweep", "tpu"])
def test_gcloud_takes_the_printed_command(
    name: str, endpoint: tuple[str, list[Any]], environment: dict[str, str], tmp_path: Path
) -> None:
    """Gcloud accepts the printed line, and sends the spec and flags that were rendered."""
    file = tmp_path / f"{name}.yaml"
    done = vertexrig("render", name, "-o", str(file), "--file", str(REPOSITORY / "vertexrig.yaml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sent = gcloud_run(*shlex.split(done.stdout.splitlines()[-1])[1:], env=environment, cwd=tmp_path)
    assert sent.returncode == 0, sent.stderr
    ((path, body),) = endpoint[1]
    kind = "hyperparameterTuningJobs" if name == "sweep" else "customJobs"
    assert path.partition("?")[0].endswith(f"/locations/us-central1/{kind}")
    assert body["displayName"] == name and body["labels"] == {"team": "vision"}
    rendered = spec.parse(file.read_text())
    received = body["jobSpec"] if kind == "customJobs" else {k: body[k] for k in rendered.data}
    again = spec.from_data(received, kind=rendered.kind)
    assert again.findings == ()
    assert messages.to_message(again.kind, again.data) == messages.to_message(rendered.kind, rendered.data)


@pytest.mark.whole
def test_gcloud_gets_awkward_flags_unharmed(
    gcloud: str, endpoint: tuple[str, list[Any]], environment: dict[str, str], tmp_path: Path
) -> None:
    """A display name full of shell characters, labels and a KMS key arrive exactly as written."""
    name = 'it\'s "50%" $HOME & `more`; \\ #1'
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    (tmp_path / "vertexrig.yaml").write_text(
        "project: my-project\nbucket: gs://my-bucket\ntrainer: {package_uris: [gs://my-bucket/t-1.tar.gz]}\n"
        f"jobs: {{c: {{machine_type: n1-standard-4, timeout: 60s, display_name: {json.dumps(name)}, "
        f"labels: {{a: b-1, c: ''}}, kms_key_name: {key}}}}}\n"
    )
    done = vertexrig("render", "c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    sent = subprocess.run(
        ["bash", "-c", done.stdout], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert sent.returncode == 0, sent.stderr
    ((_, body),) = endpoint[1]
    assert body["displayName"] == name
    assert body["labels"] == {"a": "b-1", "c": ""}
    assert body["encryptionSpec"] == {"kmsKeyName": key}


# what gcloud does with a value of a field, and what the strict reading says of it
VALUES = [
    ("replicaCount: 2", True), ("replicaCount: '2'", True), ("replicaCount: 2.5", False), ("replicaCount: true", False),
    ("containerSpec: {imageUri: i, args: [a]}", True), ("containerSpec: {imageUri: i, args: [1]}", False),
    ("containerSpec: {imageUri: i, args: [on]}", False), ("containerSpec: {imageUri: i, args: [1e-4]}", False),
    ("containerSpec: {imageUri: i, args: ['1e-4']}", True), ("containerSpec: {imageUri: i, args: a}", True),
    ("containerSpec: {imageUri: i, env: [{name: A, value: 1}]}", False),
    ("diskSpec: {bootDiskSizeGb: 100}", True), ("diskSpec: {bootDiskSizeGb: 100.0}", False),
]  # fmt: skip


@pytest.mark.parametrize(("line", "accepted"), brief(VALUES, 3))
def test_types_are_refused_where_gcloud_refuses_them(
    line: str, accepted: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    """For each kind of value, the strict reading refuses it exactly where the real gcloud does."""
    pool = ["machineSpec: {machineType: n1-standard-4}", "replicaCount: 1", "containerSpec: {imageUri: i}"]
    others = [own for own in pool if own.partition(":")[0] != line.partition(":")[0]]
    text = "workerPoolSpecs:\n- " + "\n  ".join([line, *others])
    file = tmp_path / "job.yaml"
    file.write_text(text + "\n")
    create = ("ai", "custom-jobs", "create", "--project=p", "--region=us-central1", "--display-name=x")
    sent = gcloud_run(*create, f"--config={file}", env=environment, cwd=tmp_path)
    assert (sent.returncode == 0) is accepted, sent.stderr
    errors = [finding for finding in spec.parse(text).findings if finding.severity.value == "error"]
    assert (not errors) is accepted, errors


# what gcloud does with a line of a tuning job, and the severity the strict reading gives it
TUNING = [
    ("doubleValueSpec: {minValue: '0.1', maxValue: 1}", {"warning"}),
    ("doubleValueSpec: {minValue: 'low', maxValue: 1}", {"error"}),
    ("doubleValueSpec: {min_value: 0.1, maxValue: 1}", {"error"}),
    ("double_value_spec: {minValue: 0.1, maxValue: 1}", {"error"}),
    ("discreteValueSpec: {values: ['0.1', '2']}", {"warning"}),
    ("integerValueSpec: {minValue: '1', maxValue: '5'}", set()),
    ("integerValueSpec: {minValue: '1.0', maxValue: '5'}", {"error"}),
    ("categoricalValueSpec: {values: [1, 2]}", {"error"}),
]


@pytest.mark.parametrize(("line", "severities"), brief(TUNING, 2))
def test_a_tuning_job_is_refused_where_gcloud_refuses_it(
    line: str,
    severities: set[str],
    endpoint: tuple[str, list[Any]],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    """Quoted numbers reach the service as numbers, at most a warning; snake_case keys and wrong types do not pass."""
    text = (
        f"studySpec:\n  metrics: [{{metricId: a, goal: MAXIMIZE}}]\n  parameters:\n  - parameterId: x\n    {line}\n"
        "trialJobSpec:\n  workerPoolSpecs:\n  - machineSpec: {machineType: n1-standard-4}\n    replicaCount: 1\n"
        "    containerSpec: {imageUri: i}\n"
    )
    file = tmp_path / "study.yaml"
    file.write_text(text)
    create = ("ai", "hp-tuning-jobs", "create", "--project=p", "--region=us-central1", "--display-name=x")
    numbers = ("--max-trial-count=2", "--parallel-trial-count=1")
    sent = gcloud_run(*create, *numbers, f"--config={file}", env=environment, cwd=tmp_path)
    assert (sent.returncode == 0) is ("error" not in severities), sent.stderr
    read = spec.parse(text)
    assert {finding.severity.value for finding in read.findings} == severities
    if sent.returncode == 0:
        ((_, body),) = endpoint[1]
        assert spec.from_data(body["studySpec"] and {"studySpec": body["studySpec"]}).study == read.study
