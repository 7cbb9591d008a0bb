"""Names, labels and keys that stand outside the spec, checked as plain values."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check, findings, rules
from vertexrig.checks.identity import check_kms_key
from vertexrig.checks.naming import check_display_name, check_labels
from vertexrig.checks.storage import bucket_problem
from vertexrig.finding import Severity


@pytest.mark.parametrize("name", ["x", "x" * 128, "größe und mehr", "a\nb"])
def test_display_names_of_1_to_128_characters_pass(name: str) -> None:
    """Any text of 1 to 128 characters may be a display name."""
    assert check_display_name(name, load()) == []


@pytest.mark.parametrize("name", ["", "   ", "x" * 129])
def test_other_display_names_do_not(name: str) -> None:
    """An empty or longer one may not."""
    assert len(check_display_name(name, load())) == 1


def test_labels_become_findings_of_their_rule() -> None:
    """What `check_labels` finds is told as the rule `labels`, with its severity, source and a fix."""
    (found,) = findings("labels", check_labels({"Team": "vision"}, load()))
    assert (found.id, found.severity, found.path, found.fix) == ("labels", Severity.ERROR, "labels.Team", "write team")
    assert found.source and found.line is None and found.file == ""


def test_capitals_of_any_alphabet_are_no_labels() -> None:
    """A capital beyond A to Z is found too, and its small letter is the fix."""
    assert [problem.fix for problem in check_labels({"k": "École"}, load())] == ["write école"]


@given(st.dictionaries(st.text(max_size=70), st.text(max_size=70), max_size=4))
def test_a_fix_for_a_label_is_a_label(labels: dict[str, str]) -> None:
    """Whatever the labels, the check ends, and what it tells to write is itself allowed."""
    for problem in check_labels(labels, load()):
        if problem.fix.startswith("write "):
            text = problem.fix.removeprefix("write ")
            as_key = "is not the key" in problem.message
            assert check_labels({text: "v"} if as_key else {"k": text}, load()) == []


@given(st.text(alphabet="ab0-_.A{ ", max_size=70))
def test_bucket_names_follow_the_documented_rules(name: str) -> None:
    """A name passes exactly when each documented rule holds, each asked for by itself."""
    holds = (
        re.fullmatch(r"[a-z0-9._-]+", name) is not None
        and name[0].isalnum()
        and name[-1].isalnum()
        and ".." not in name
        and not re.fullmatch(r"\d+\.\d+\.\d+\.\d+", name)
        and (3 <= len(name) <= 63 if "." not in name else 3 <= len(name) <= 222)
        and all(len(part) <= 63 for part in name.split("."))
    )
    assert (bucket_problem(name) == "") == holds


def test_keys_must_be_in_the_region_of_the_job() -> None:
    """A key of another region, or something that is no key, is one problem."""
    key = "projects/p/locations/europe-west4/keyRings/r/cryptoKeys/k"
    assert check_kms_key(key, "europe-west4") == [] and check_kms_key(key, "") == []
    assert len(check_kms_key(key, "us-central1")) == 1
    assert len(check_kms_key(key + "/cryptoKeyVersions/1", "")) == 1


def test_messages_stay_short() -> None:
    """A value of any length gives a message of bearable length, soon."""
    long = "a@" + "." * 200_000
    text = f"""
workerPoolSpecs:
- machineSpec: {{machineType: "{long}"}}
  replicaCount: 1
  containerSpec: {{imageUri: "{long}", args: ["--x={long}"]}}
serviceAccount: "{long}"
network: "{long}"
tensorboard: "{long}"
persistentResourceId: "{long}"
baseOutputDirectory: {{outputUriPrefix: "gs://{long}"}}
"""
    found = check(spec.parse(text), Context(load(), region="us-central1"))
    assert {"image-form", "service-account", "network", "persistent-resource"} <= {finding.id for finding in found}
    assert max(len(finding.message) for finding in found) <= 1000


def test_every_rule_says_what_holds() -> None:
    """No summary is asked as a question or left long: the reference page prints it in one line."""
    assert all(len(rule.summary) <= 110 for rule in rules())
