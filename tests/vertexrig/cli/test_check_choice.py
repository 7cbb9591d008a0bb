"""Which findings `check` reports, of which files, and in whose words."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.tools import typed

POOL = "- machineSpec: {machineType: n1-standard-8}\n  replicaCount: 1\n  containerSpec: {imageUri: us-docker.pkg.dev/my-project/r/i:1}\n"
GOOD = f"workerPoolSpecs:\n{POOL}scheduling: {{timeout: 60s}}\nbaseOutputDirectory: {{outputUriPrefix: gs://my-bucket/a}}\n"
BAD = GOOD.replace("replicaCount: 1", "replicaCount: 2").replace("timeout: 60s", "timeout: 60s, wrong: 1")


def ids(*words: str, cwd: Path) -> set[str]:
    """Ids of errors and warnings."""
    found = typed("check", *words, "--format", "json", cwd=cwd).document["findings"]
    return {one["id"] for one in found if one["severity"] != "info"}


def test_rules_are_chosen_by_id_and_pattern(tmp_path: Path) -> None:
    """--select and --ignore take ids and patterns, a project file may have both, and a rule that is not there is refused."""
    (tmp_path / "job.yaml").write_text(BAD)
    assert ids("job.yaml", cwd=tmp_path) == {"chief-replicas", "unknown-field"}
    assert ids("job.yaml", "--select", "chief-*,image-*", cwd=tmp_path) == {"chief-replicas"}
    assert ids("job.yaml", "--ignore", "chief-*", cwd=tmp_path) == {"unknown-field"}
    (tmp_path / "vertexrig.yaml").write_text("project: my-project\ncheck: {ignore: [unknown-field]}\n")
    assert ids("job.yaml", cwd=tmp_path) == {"chief-replicas"}
    assert typed("check", "job.yaml", "--ignore", "chief-replicas", cwd=tmp_path).exit_code == 0
    refused = typed("check", "job.yaml", "--select", "chief-replica", cwd=tmp_path)
    assert refused.exit_code == 2 and "Did you mean 'chief-replicas'?" in refused.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("replicaCount: 2", "replicaCount: 2 # vertexrig: ignore[chief-replicas] the fork of the service takes it"),
        (
            "  replicaCount: 2",
            "  # vertexrig: ignore[chief-replicas, image-form] as above\n  # more\n  replicaCount: 2",
        ),
    ],
)
def test_a_comment_leaves_out_what_its_line_has(tmp_path: Path, old: str, new: str) -> None:
    """A comment on the finding's line, or above it, leaves out the rules it names and no others."""
    (tmp_path / "job.yaml").write_text(BAD.replace(old, new))
    assert ids("job.yaml", cwd=tmp_path) == {"unknown-field"}


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("ignore[chief-replicas]", "gives a reason"),
        ("ignore because", "names their rules"),
        ("ignore[chief-replica] x", "Did you mean 'chief-replicas'?"),
        ("ignore[image-form] x", "no finding of image-form is at line 3"),
    ],
)
def test_a_comment_that_ignores_nothing_is_a_finding(tmp_path: Path, comment: str, said: str) -> None:
    """Without a reason, with a rule that is not there, or on a line without the finding, it leaves out nothing and is found itself."""
    (tmp_path / "job.yaml").write_text(BAD.replace("replicaCount: 2", f"replicaCount: 2 # vertexrig: {comment}"))
    done = typed("check", "job.yaml", cwd=tmp_path)
    assert "chief-replicas" in done.stdout and "job.yaml:3: warning[ignore-comment]" in done.stdout, done
    assert said in done.stdout


def test_a_comment_in_the_project_file_holds_for_every_verb(tmp_path: Path) -> None:
    """What a comment in vertexrig.yaml leaves out keeps no job from being rendered."""
    project = (
        "project: my-project\nbucket: gs://my-bucket\ntrainer: {package_uris: [gs://my-bucket/t.tar.gz]}\n"
        "jobs:\n  one:\n    topology: gpu\n    machine_type: n1-standard-8\n    accelerator_type: NVIDIA_TESLA_T4\n"
        "    accelerator_count: 3 #\n    timeout: 60s\n"
    )
    (tmp_path / "vertexrig.yaml").write_text(project)
    assert typed("render", "one", cwd=tmp_path).exit_code == 1
    (tmp_path / "vertexrig.yaml").write_text(
        project.replace("#", "# vertexrig: ignore[accelerator-count] a new machine")
    )
    assert typed("render", "one", cwd=tmp_path).exit_code == 0
    assert "accelerator-count" not in ids(cwd=tmp_path) and "ignore-comment" not in ids(cwd=tmp_path)


def test_a_baseline_holds_what_is_known(tmp_path: Path) -> None:
    """What was found when it was written is not reported, also on another line; what came since then is."""
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/a.yaml").write_text(BAD)
    missing = typed("check", "jobs", "--baseline", "known.json", cwd=tmp_path)
    assert missing.exit_code == 2 and "--write-baseline" in missing.stderr
    assert typed("check", "jobs", "--baseline", "known.json", "--write-baseline", cwd=tmp_path).exit_code == 0
    (tmp_path / "jobs/a.yaml").write_text("# one line more\n" + BAD)
    done = typed("check", "jobs", "--baseline", "known.json", cwd=tmp_path)
    assert done.exit_code == 0 and "are in known.json and not shown" in done.stderr
    (tmp_path / "jobs/b.yaml").write_text(BAD)
    (tmp_path / "jobs/a.yaml").write_text(BAD.replace("n1-standard-8", "n1-standard-9"))
    found = typed("check", "jobs", "--baseline", "known.json", "--format", "json", cwd=tmp_path).document["findings"]
    loud = {(one["file"], one["id"]) for one in found if one["severity"] == "error"}
    assert loud == {
        ("jobs/a.yaml", "machine-unknown"),
        ("jobs/b.yaml", "chief-replicas"),
        ("jobs/b.yaml", "unknown-field"),
    }


def test_a_baseline_knows_the_entries_of_a_project_file(tmp_path: Path) -> None:
    """What is known of one job is new in another, and what is known of a line that jobs share stays known."""
    project = (
        "project: my-project\nbucket: gs://my-bucket\n"
        "trainer: {package_uris: [gs://my-bucket/t.tar.gz], image: us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-71.py310:latest}\n"
        "jobs:\n  b: {machine_type: n1-standard-1, timeout: 60s}\n"
    )
    (tmp_path / "vertexrig.yaml").write_text(project)
    assert {"machine-not-for-training", "image-unknown"} <= ids(cwd=tmp_path)
    assert typed("check", "--baseline", "known.json", "--write-baseline", cwd=tmp_path).exit_code == 0
    assert not ids("--baseline", "known.json", cwd=tmp_path)
    (tmp_path / "vertexrig.yaml").write_text(
        project.replace("jobs:\n", "jobs:\n  a: {machine_type: n1-standard-1, timeout: 60s}\n")
    )
    found = typed("check", "--baseline", "known.json", "--format", "json", cwd=tmp_path).document["findings"]
    assert {(one["id"], one["line"]) for one in found if one["severity"] != "info"} == {("machine-not-for-training", 5)}


def test_folders_are_walked_as_git_sees_them(tmp_path: Path) -> None:
    """Patterns name files, a .gitignore at any depth and `exclude` leave some out, as git itself says."""
    files = {
        ".gitignore": "build/\n*.local.yaml\n!kept.local.yaml\n/top.yaml\n",
        "top.yaml": BAD, "jobs/top.yaml": BAD, "jobs/a.local.yaml": BAD, "jobs/kept.local.yaml": BAD, "jobs/build/b.yaml": BAD,
        "jobs/sub/.gitignore": "!x.local.yaml\ny.yaml\n", "jobs/sub/x.local.yaml": BAD, "jobs/sub/y.yaml": BAD, "old/z.yaml": BAD,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "vertexrig.yaml").write_text("project: my-project\ncheck: {exclude: [/old]}\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    seen = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    wanted = {name for name in seen.stdout.split() if name.endswith(".yaml")} - {"old/z.yaml", "vertexrig.yaml"}
    for words in ((".",), ("*.yaml", "**/*.yaml")):
        found = typed("check", *words, "--select", "chief-replicas", "--format", "json", cwd=tmp_path).document[
            "findings"
        ]
        assert {os.path.normpath(one["file"]) for one in found} == wanted, words
    inside = typed("check", "sub", "--format", "json", cwd=tmp_path / "jobs").document["findings"]
    assert {one["file"] for one in inside} == {"sub/x.local.yaml"}


def test_a_code_host_reads_the_reports(tmp_path: Path) -> None:
    """GitHub's commands, GitLab's issues and JUnit's cases have every error with its file, line, rule and fix."""
    (tmp_path / "job.yaml").write_text(BAD.replace("wrong: 1", "timout: 1%,\n  disableRetrie: true"))
    (tmp_path / "good.yaml").write_text(GOOD)
    found = typed("check", ".", "--format", "json", cwd=tmp_path).document["findings"]
    loud = [one for one in found if one["severity"] != "info"]
    lines = typed("check", ".", "--format", "github", cwd=tmp_path).stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == [f"::{one['severity']}" for one in loud]
    assert "::error file=./job.yaml,line=6,title=unknown-field%3A scheduling.disableRetrie::" in lines[-1]
    assert lines[-1].endswith("Fix: write disableRetries")
    issues = json.loads(typed("check", ".", "--format", "gitlab", cwd=tmp_path).stdout)
    assert [one["location"]["lines"]["begin"] for one in issues] == [one["line"] for one in found]
    assert len({one["fingerprint"] for one in issues}) == len(found)
    suites = ElementTree.fromstring(typed("check", ".", "--format", "junit", cwd=tmp_path).stdout)
    failures = [case.get("name") for case in suites.iter("testcase") if case.find("failure") is not None]
    assert failures == [f"{one['id']} {one['path']}".strip() for one in loud]
    assert {suite.get("name") for suite in suites} == {"./good.yaml", "./job.yaml"}
    assert suites.find("testsuite[@name='./good.yaml']").get("failures") == "0"  # type: ignore[union-attr]
