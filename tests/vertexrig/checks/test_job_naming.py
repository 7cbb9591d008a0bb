"""Names, labels and keys that stand outside the spec, checked as plain values."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.checks.naming import check_labels
from vertexrig.checks.storage import bucket_problem
from vertexrig.finding import Severity


def test_labels_become_findings_of_their_rule() -> None:
    """What `check_labels` finds is told as the rule `labels`, with its severity, source and a fix."""
    job = spec.from_data({"workerPoolSpecs": []}, kind="CustomJobSpec")
    (found,) = (one for one in check(job, Context(load(), flags={"labels": {"Team": "vision"}})) if one.id == "labels")
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
