"""Job specs are read strictly, against Google's own messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples
from vertexrig import spec
from vertexrig.finding import Finding
from vertexrig.spec import descriptors, messages, strict

JOB = """
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-4}
  replicaCount: 1
  containerSpec: {imageUri: gcr.io/p/i}
"""


def ids(text: str, kind: spec.Kind | None = None) -> list[str]:
    return [finding.id for finding in spec.parse(text, kind=kind).findings]


def only(text: str, kind: spec.Kind | None = None) -> Any:
    findings = spec.parse(text, kind=kind).findings
    assert len(findings) == 1, findings
    return findings[0]


def test_a_good_job_has_no_findings_and_becomes_a_message() -> None:
    """A valid spec gives no finding, keeps its data, and parses into Google's message."""
    document = spec.parse(JOB)
    assert document.findings == ()
    message = messages.to_message(document.kind, document.data)
    assert message.worker_pool_specs[0].machine_spec.machine_type == "n1-standard-4"
    assert document.pools[0].replica_count == 1


def test_unknown_key_names_path_nearest_and_line() -> None:
    """A typo that gcloud would forward is an error with the path, the nearest field and the line."""
    finding = only(JOB.replace("machineType", "machinetype"))
    assert (finding.id, finding.path, finding.line) == (
        "unknown-field",
        "workerPoolSpecs[0].machineSpec.machinetype",
        3,
    )
    assert "'machineType'" in finding.message and finding.fix == "write machineType"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("replicaCount: 1", "replicaCount: 1.0"), "workerPoolSpecs[0].replicaCount"),
        (("replicaCount: 1", "replicaCount: true"), "workerPoolSpecs[0].replicaCount"),
        (("replicaCount: 1", "replicaCount: '1.0'"), "workerPoolSpecs[0].replicaCount"),
        (("replicaCount: 1", "replicaCount: 99999999999999999999"), "workerPoolSpecs[0].replicaCount"),
        (("gcr.io/p/i", "8500"), "workerPoolSpecs[0].containerSpec.imageUri"),
        (("gcr.io/p/i", "on"), "workerPoolSpecs[0].containerSpec.imageUri"),
        (("gcr.io/p/i", "i, args: [1]"), "workerPoolSpecs[0].containerSpec.args[0]"),
        (("{machineType: n1-standard-4}", "n1"), "workerPoolSpecs[0].machineSpec"),
        (("workerPoolSpecs:", "scheduling: {timeout: 3600}\nworkerPoolSpecs:"), "scheduling.timeout"),
        (("workerPoolSpecs:", "scheduling: {timeout: 10h}\nworkerPoolSpecs:"), "scheduling.timeout"),
        (("workerPoolSpecs:", "enableWebAccess: 'yes'\nworkerPoolSpecs:"), "enableWebAccess"),
    ],
)
def test_wrong_types_are_refused_where_they_stand(change: tuple[str, str], path: str) -> None:
    """A value of another type than the field's is an error at its path, and is left out of the data."""
    finding = only(JOB.replace(*change))
    assert (finding.id, finding.path) == ("wrong-type", path)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (("replicaCount: 1", "replicaCount: '1'"), []),
        (("replicaCount", "replica_count"), ["snake-case-key"]),
        (("workerPoolSpecs:\n- machineSpec", "workerPoolSpecs:\n  machineSpec"), ["not-a-list"]),
        (("gcr.io/p/i", "i, command: python"), ["not-a-list"]),
    ],
)
def test_what_gcloud_accepts_is_accepted(change: tuple[str, str], rule: list[str]) -> None:
    """int64 as text passes; other spellings, and a value where a list belongs, pass with a warning and mean the same."""
    text = JOB.replace(*change)
    assert ids(text) == rule
    assert spec.parse(text).pools[0].replica_count == 1


def test_two_alternatives_of_a_union_are_refused() -> None:
    """ContainerSpec beside pythonPackageSpec, and two value specs on a parameter, are errors."""
    assert ids(JOB + "  pythonPackageSpec: {pythonModule: a}\n") == ["one-of"]
    study = (
        "studySpec: {parameters: [{parameterId: x, doubleValueSpec: {minValue: 1}, integerValueSpec: {minValue: 1}}]}"
    )
    assert ids(study) == ["one-of"]


@pytest.mark.parametrize(
    ("container", "package", "fix"),
    [
        (
            "imageUri: a/b",
            "executorImageUri: c/d",
            "remove pythonPackageSpec, which has no packageUris and no pythonModule",
        ),
        (
            "args: [a]",
            "executorImageUri: c/d, packageUris: [e], pythonModule: f",
            "remove containerSpec, which has no imageUri",
        ),
        ("imageUri: a/b", "executorImageUri: c/d, packageUris: [e], pythonModule: f", "remove {} or {}"),
        ("args: [a]", "pythonModule: f", "remove {} or {}"),
    ],
)
def test_the_alternative_that_lacks_what_it_needs_is_to_be_removed(container: str, package: str, fix: str) -> None:
    """Where one of two alternatives is not whole, the fix names it, and the other one is read, whichever comes first."""
    both = {"containerSpec": container, "pythonPackageSpec": package}
    for names in (list(both), list(both)[::-1]):
        pool = "".join(f", {name}: {{{both[name]}}}" for name in names)
        document = spec.parse(
            f"workerPoolSpecs: [{{machineSpec: {{machineType: n1-standard-4}}, replicaCount: 1{pool}}}]\n"
        )
        (one,) = document.findings
        assert one.id == "one-of" and one.fix == fix.format(*names)
        kept = [name for name in names if name in document.data["workerPoolSpecs"][0]]
        removed = [name for name in names if f"remove {name}, " in fix] or names[1:]
        assert kept == [name for name in names if name not in removed] and one.path.endswith(removed[0])


def test_a_limit_of_zero_or_still_to_be_filled_in_is_not_missing() -> None:
    """An alternative is whole with a minValue of 0, and with values that are placeholders."""
    values = "doubleValueSpec: {minValue: 0, maxValue: 1}, integerValueSpec: {maxValue: 1}"
    (one,) = spec.parse(f"studySpec: {{parameters: [{{parameterId: x, {values}}}]}}").findings
    assert one.fix == "remove integerValueSpec, which has no minValue"
    text = JOB + '  pythonPackageSpec: {executorImageUri: "${A}", packageUris: ["${B}"], pythonModule: "${C}"}\n'
    assert [one.fix for one in spec.parse(text).findings if one.id == "one-of"] == [
        "remove containerSpec or pythonPackageSpec"
    ]


def test_a_wrapped_custom_job_is_named_and_its_spec_still_read() -> None:
    """DisplayName and jobSpec around the spec, which gcloud would send wrongly, is one error; the inner spec is checked."""
    inner = "".join(f"  {line}\n" for line in JOB.strip().replace("machineType", "machineTyp").splitlines())
    document = spec.parse(f"displayName: x\njobSpec:\n{inner}")
    assert [finding.id for finding in document.findings] == ["custom-job-wrapper", "unknown-field"]
    assert document.pools[0].image == "gcr.io/p/i"


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("1h", "3600s"),
        ("90 min", "5400s"),
        ("PT1H30M", "5400s"),
        ("2 days", "172800s"),
        ("3600", "3600s"),
        ("soon", ""),
    ],
)
def test_a_duration_as_people_write_it_gets_its_seconds(written: str, fix: str) -> None:
    """The fix is the text that the API takes."""
    (finding,) = spec.parse(f"{JOB}scheduling: {{timeout: '{written}'}}\n").findings
    assert (finding.id, finding.fix) == ("wrong-type", f"write {fix}" if fix else "")


def test_a_wrapper_in_snake_case_is_a_custom_job() -> None:
    """display_name and job_spec, as Kubeflow Pipelines writes them, are not read as a tuning job."""
    document = spec.parse(
        "display_name: x\njob_spec: {worker_pool_specs: [{machine_spec: {machine_type: n1-standard-4}}]}"
    )
    assert document.kind == "CustomJobSpec" and "custom-job-wrapper" in {finding.id for finding in document.findings}
    assert document.pools[0].machine_type == "n1-standard-4"


@pytest.mark.parametrize(
    "text", ["trainingInput: {scaleTier: CUSTOM}", "trainingInput:\n  hyperparameters: {goal: MAXIMIZE}"]
)
def test_legacy_files_are_one_error(text: str) -> None:
    """A file for AI Platform Training is named as such, once."""
    assert ids(text) == ["legacy-ai-platform"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (JOB, "CustomJobSpec"),
        ("studySpec: {}", "HyperparameterTuningJob"),
        ("maxTrialCount: 3", "HyperparameterTuningJob"),
        ("studySpecs: {}", "HyperparameterTuningJob"),
        ("baseOutputDirectory: {outputUriPrefix: gs://b}", "CustomJobSpec"),
    ],
)
def test_the_keys_tell_the_kind(text: str, kind: str) -> None:
    """Without being told, a file is taken for the resource whose keys it has, a typo in them notwithstanding."""
    assert spec.parse(text).kind == kind


@pytest.mark.parametrize("text", ["", "3", "- 1", "a: [", "null", "text"])
def test_files_that_are_no_mapping_are_one_error(text: str) -> None:
    """An empty file, a scalar, a list or broken YAML is one yaml-syntax error."""
    assert ids(text) == ["yaml-syntax"]


def test_enums_are_taken_as_numbers_too() -> None:
    """The SDK sends enums as integers: they come out as names."""
    document = spec.from_data({"workerPoolSpecs": [{"machineSpec": {"acceleratorType": 5, "acceleratorCount": "2"}}]})
    assert document.findings == ()
    pool = document.pools[0]
    assert (pool.accelerator_type, pool.accelerator_count) == ("NVIDIA_TESLA_T4", 2)


def test_a_refused_pool_keeps_the_places_of_the_others() -> None:
    """A pool's index is its role, so one that cannot be read leaves an empty place."""
    document = spec.from_data({"workerPoolSpecs": ["x", {"replicaCount": 2}]})
    assert [pool.empty for pool in document.pools] == [True, False]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


def _names(message: descriptors.Message, seen: frozenset[str] = frozenset()) -> set[str]:
    found = set(message.json_names)
    for field in message.fields:
        if field.message is not None and field.message.full_name not in seen:
            found |= _names(field.message, seen | {message.full_name})
    return found


NAMES = sorted(_names(descriptors.message("CustomJobSpec")) | _names(descriptors.message("HyperparameterTuningJob")))
NEAR = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["3600s", "n1-standard-4", "NVIDIA_TESLA_T4", "gs://b/o", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=40,
)


@pytest.mark.whole
@settings(max_examples=examples(60, 3000), deadline=None)
@given(JSON | NEAR, st.sampled_from([None, *spec.KINDS]))
def test_any_data_is_read_and_what_is_kept_is_a_message(data: Any, kind: spec.Kind | None) -> None:
    """Whatever the shape of the data, reading it never raises, and what it keeps parses into Google's message."""
    document = spec.from_data(data, kind=kind)
    messages.to_message(document.kind, document.data)
    assert all(finding.message for finding in document.findings)
    again = spec.from_data(json.loads(json.dumps(document.data)), kind=document.kind)
    assert again.data == document.data and again.findings == ()


@settings(max_examples=examples(25, 1000), deadline=None)
@given(NEAR)
def test_yaml_and_data_are_read_alike(data: Any) -> None:
    """Data written as YAML and read from it gives the same canonical data as the data itself."""
    text = yaml.safe_dump(data)
    read = spec.parse(text, kind="CustomJobSpec", for_gcloud=False)
    assert read.data == spec.from_data(data, kind="CustomJobSpec").data


@pytest.mark.parametrize(
    ("path", "most", "item"),
    [
        ("workerPoolSpecs", 4, {}),
        ("workerPoolSpecs[0].containerSpec.env", 100, {"name": "A", "value": "1"}),
        ("workerPoolSpecs[0].pythonPackageSpec.packageUris", 100, "gs://b/t.tar.gz"),
        ("workerPoolSpecs[0].containerSpec.args", strict.MOST_ITEMS, "x"),
        ("workerPoolSpecs[0].nfsMounts", strict.MOST_ITEMS, {"server": "10.0.0.1"}),
    ],
)
def test_a_list_is_bounded_before_the_rules(path: str, most: int, item: object) -> None:
    """A list of the most items is read whole; of a longer one, one finding names the list, its length and the bound."""

    def read(length: int) -> tuple[list[Finding], list[object]]:
        value: object = [item] * length
        for key in reversed(path.split(".")):
            value = {key.removesuffix("[0]"): [value] if key.endswith("[0]") else value}
        document = spec.from_data(value)
        at: object = document.data
        for key in path.split("."):
            at = at[key.removesuffix("[0]")]  # type: ignore[index]
            at = at[0] if key.endswith("[0]") else at  # type: ignore[index]
        assert isinstance(at, list)
        return [one for one in document.findings if one.id == "list-length"], at

    assert (read(most)[0], len(read(most)[1])) == ([], most)
    found, kept = read(most + 1)
    assert [(one.path, one.severity.value) for one in found] == [(path, "error")] and len(kept) == most
    name = path.rpartition(".")[2]
    assert f"{name} has {most + 1:,} items" in found[0].message and f"at most {most:,}" in found[0].message
