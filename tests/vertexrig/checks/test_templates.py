"""Files that are still to be rendered: said once, and never held against a type, an enum or the form of a name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.vertexrig.checks.job_bases import C0, D0, M0, P0, TODAY, T, edited
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.finding import Finding, Severity

_ENV = f"{C0}.env"
_VALUE = [{"name": "WANDB_API_KEY", "value": "${WANDB_API_KEY}"}]

# the base, the edits that leave something to be filled in, and a close value that is one
STRUCTURE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("cpu", {f"{C0}.imageUri": "us-docker.pkg.dev/${PROJECT}/r/i:1"}, {f"{C0}.imageUri": "us-docker.pkg.dev/p/r/i:1"}),
    ("cpu", {f"{C0}.imageUri": "$IMAGE"}, {}),
    ("cpu", {f"{C0}.imageUri": "gcr.io/PROJECT_ID/trainer:latest"}, {}),
    ("cpu", {f"{C0}.imageUri": "REGION-docker.pkg.dev/PROJECT/REPO/IMAGE:TAG"}, {}),
    ("cpu", {f"{C0}.imageUri": "<region>-docker.pkg.dev/<project>/taqi/train:latest"}, {}),
    ("cpu", {f"{C0}.imageUri": "gcr.io/[PROJECT]/trainer"}, {f"{C0}.imageUri": "python:3.10"}),
    ("cpu", {f"{C0}.imageUri": "{image_uri}"}, {}),
    ("cpu", {f"{C0}.imageUri": "us-docker.pkg.dev/[project-id]/r/t:1"}, {}),
    ("cpu", {"serviceAccount": "x@[projectId].iam.gserviceaccount.com"}, {}),
    ("cpu", {f"{C0}.imageUri": "us-docker.pkg.dev/YOUR_PROJECT/r/i"}, {}),
    ("cpu", {f"{M0}.machineType": "${MACHINE:-n1-standard-4}"}, {}),
    ("cpu", {f"{M0}.machineType": "MACHINE_TYPE"}, {}),
    ("cpu", {"workerPoolSpecs[0].replicaCount": "$REPLICAS"}, {"workerPoolSpecs[0].replicaCount": "1"}),
    ("gpu", {f"{M0}.acceleratorType": "{{ accelerator }}"}, {}),
    ("gpu", {f"{M0}.acceleratorType": "ACCELERATOR_TYPE"}, {}),
    ("gpu", {f"{M0}.acceleratorCount": "<count>"}, {f"{M0}.acceleratorCount": "2"}),
    ("cpu", {D0: {"bootDiskType": "{{ disk }}", "bootDiskSizeGb": "{{ size }}"}}, {}),
    ("cpu", {"scheduling.timeout": "${TIMEOUT}s"}, {"scheduling.timeout": "60s"}),
    ("cpu", {"scheduling.strategy": "${STRATEGY}"}, {"scheduling.strategy": "STANDARD"}),
    ("cpu", {"enableWebAccess": "{{ debug }}"}, {"enableWebAccess": False}),
    ("cpu", {"baseOutputDirectory.outputUriPrefix": "gs://{BUCKET}/x"}, {}),
    ("cpu", {"baseOutputDirectory.outputUriPrefix": "gs://BUCKET/x"}, {}),
    ("cpu", {"baseOutputDirectory.outputUriPrefix": "${BUCKET_URI}/x"}, {}),
    ("cpu", {"serviceAccount": "trainer@PROJECT_ID.iam.gserviceaccount.com"},
     {"serviceAccount": "trainer@my-project.iam.gserviceaccount.com"}),
    ("cpu", {"network": "projects/${NUMBER}/global/networks/vpc"}, {"network": "projects/12/global/networks/vpc"}),
    ("cpu", {"persistentResourceId": "__RESOURCE__"}, {"persistentResourceId": "mine"}),
    ("cpu", {f"{M0}": "${MACHINE_SPEC}"}, {}),
    ("cpu", {"workerPoolSpecs": "{{ pools }}"}, {}),
    ("python", {f"{P0}.packageUris": ["gs://<bucket>/trainer.tar.gz"]}, {}),
    ("python", {f"{P0}.pythonModule": "PYTHON_MODULE"}, {}),
    ("sweep", {"maxTrialCount": "${TRIALS}"}, {"maxTrialCount": "20"}),
    ("sweep", {"studySpec.parameters[0].doubleValueSpec.minValue": "{{ low }}"}, {}),
    ("sweep", {"labels": {"team": "${TEAM}"}}, {"labels": {"team": "vision"}}),
    ("sweep", {f"{T}{C0}.imageUri": "$IMAGE"}, {}),
]  # fmt: skip

# the same in what a program is given: a warning, for it may be meant
PROGRAM: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({_ENV: _VALUE}, {_ENV: [{"name": "HOME_OF", "value": "$(HOME)"}]}),
    ({_ENV: [{"name": "WANDB_API_KEY", "value": "YOUR_API_KEY"}]}, {_ENV: [{"name": "YOUR_MODE", "value": "x"}]}),
    ({_ENV: [{"name": "BUCKET", "value": "<your-bucket>"}]}, {_ENV: [{"name": "PAD", "value": "<pad>"}]}),
    ({f"{C0}.args": ["--project=PROJECT_ID"]}, {f"{C0}.args": ["--mode=TRAIN"]}),
    ({f"{C0}.args": ["run=${RUN:-x}"]}, {f"{C0}.args": ["run=${now:%Y-%m-%d}", "user=${oc.env:USER}", "nets=[bucket]"]}),
    ({f"{C0}.args": ["--project=PROJECT_ID"]}, {f"{C0}.args": ["--project=$(PROJECT_ID)"]}),
    ({f"{C0}.args": ["--data", "gs://your-bucket/x"]}, {f"{C0}.args": ["--ckpt", "model-{epoch:02d}.keras"]}),
    ({f"{C0}.args": ["--epochs=${EPOCHS}"]}, {f"{C0}.args": ["--pattern=^a$"]}),
    ({f"{C0}.args": ["--token=[CLS_TOKEN]"]}, {f"{C0}.args": ["--token=[CLS]", "--range=[A-Z]+"]}),
    ({f"{C0}.command": ["{{ python }}", "-m", "task"]},
     {f"{C0}.command": ["bash", "-c"], f"{C0}.args": ["echo $HOME ${X:-1}"]}),
    ({f"{C0}.args": "$ARGS"}, {f"{C0}.args": "TRAIN_ARGS"}),
    ({f"{C0}.command": "${CMD}", f"{C0}.args": "{{ args }}"}, {}),
    ({"baseOutputDirectory.outputUriPrefix": "gs://your-bucket/x"},
     {"baseOutputDirectory.outputUriPrefix": "gs://yourbucket/x"}),
]  # fmt: skip


def _check(text: str) -> list[Finding]:
    return check(spec.parse(text, file="job.yaml"), Context(load(), region="us-central1", today=TODAY))


def _loud(text: str) -> list[tuple[str, str]]:
    return [(one.id, one.severity.value) for one in _check(text) if one.severity is not Severity.INFO]


@pytest.mark.parametrize(("base", "edits", "good"), STRUCTURE, ids=str)
def test_what_is_to_be_filled_in_is_said_once(base: str, edits: dict[str, Any], good: dict[str, Any]) -> None:
    """One error that says to render first, and no other; with a value in that place there is none."""
    assert _loud(edited(base, edits)) == [("placeholder", "error")]
    assert not [one for one in _loud(edited(base, good)) if one[0] == "placeholder" or one[1] == "error"]


@pytest.mark.parametrize(("edits", "good"), PROGRAM, ids=str)
def test_what_a_program_is_given_may_be_meant(edits: dict[str, Any], good: dict[str, Any]) -> None:
    """In variables and arguments it is a warning; marks that programs and shells use themselves are none."""
    assert _loud(edited("cpu", edits)) == [("placeholder", "warning")]
    assert "placeholder" not in dict(_loud(edited("cpu", good)))


def test_a_placeholder_with_text_around_it_is_no_list() -> None:
    """`args: --data=${DATA}` stays one text, whatever is filled in: a list is still missing."""
    assert _loud(edited("cpu", {f"{C0}.args": "--data=${DATA}"})) == [
        ("not-a-list", "warning"),
        ("placeholder", "warning"),
    ]
    shell = {f"{C0}.command": ["bash", "-c"], f"{C0}.args": "echo $HOME"}
    assert _loud(edited("cpu", shell)) == [("not-a-list", "warning")]


def test_a_trials_value_is_nothing_to_render() -> None:
    """`{{trial.parameters.lr}}` is left to the rule that says what Vertex AI passes; what else is to be filled in is listed."""
    values = [
        "--rate={{trial.parameters.learning_rate}}",
        "--learning_rate",
        "{{$trial.learning_rate}}",
        "--a={{ trial.b }}",
    ]
    found = _check(edited("sweep", {f"{T}{C0}.args": values}))
    (listed,) = [one for one in found if one.id == "placeholder"]
    assert listed.message.endswith("still to be filled in: {{ trial.b }} (line 25)"), listed.message
    found = _check(edited("sweep", {f"{T}{C0}.args": values[:3]}))
    assert [(one.id, one.path) for one in found if one.severity is Severity.ERROR] == [
        ("argument-and-parameter", f"{T}{C0}.args[0]"),
        ("argument-and-parameter", f"{T}{C0}.args[1]"),
    ]
    assert (
        "Vertex AI replaces nothing in '{{trial.parameters.learning_rate}}', and passes --learning_rate=VALUE"
        in str(found)
    )


UNQUOTED = """
workerPoolSpecs:
- machineSpec: {machineType: {{ machine }}}
  replicaCount: {{ replicas }}
  containerSpec:
    imageUri: {{ registry }}/trainer:{{ tag }}
    args: [--epochs, {{ epochs }}]
{% if debug %}
enableWebAccess: true
{% endif %}
scheduling: {timeout: 60s}
serviceAccount: {ACCOUNT}
"""


def test_a_template_without_quotes_is_read_around_its_marks() -> None:
    """Jinja that is no YAML by itself is one finding, with the lines of its marks, and the rest is still checked."""
    (found,) = [one for one in _check(UNQUOTED) if one.severity is not Severity.INFO]
    assert (found.id, found.line) == ("placeholder", 3)
    assert found.message == (
        "still to be filled in: {{ machine }} (line 3), {{ replicas }} (line 4), {{ registry }} (line 6), "
        "{{ tag }} (line 6), {{ epochs }} (line 7), {ACCOUNT} (line 12)"
    )
    assert "render this first" in found.fix
    assert ("unknown-field", "error") in _loud(UNQUOTED.replace("replicaCount", "replicaCuont"))


def test_a_template_that_cannot_be_read_at_all_is_still_one() -> None:
    """A file that stays broken with its marks taken for text is said to be a template, at its first mark."""
    (found,) = _check("{% for pool in pools %}\n  - [{{ pool }\n{% endfor %}\n")
    assert (found.id, found.line) == ("placeholder", 1)


def test_what_has_been_rendered_is_taken_as_it_is() -> None:
    """A REST body, and a job of a project file, may hold `${X}`: it is a value there, and a wrong one is an error."""
    data = {"workerPoolSpecs": [{"machineSpec": {"acceleratorType": "${X}"}, "containerSpec": {"args": ["${X}"]}}]}
    assert [finding.id for finding in spec.from_data(data).findings] == ["unknown-enum-value"]
    assert not spec.parse(edited("cpu", {f"{C0}.args": ["${X}"]}), for_gcloud=False).findings
