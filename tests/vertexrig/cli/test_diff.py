"""`vertexrig diff`: what a change does to each job, against any revision."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest

from tests.repository.test_ci import PROJECT, TRAIN, git
from tests.support.tools import typed
from vertexrig.bring import revision
from vertexrig.errors import UsageError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a project in a folder of it."""
    folder = tmp_path / "team/project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(TRAIN)
    (folder / "vertexrig.yaml").write_text(PROJECT)
    (folder / "away").symlink_to("/etc")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    return folder


def test_a_change_is_shown_for_each_job_that_it_touches(repository: Path) -> None:
    """A machine, a new error, a job that is gone and one that is new are shown; a job that stays is not."""
    (repository / "vertexrig.yaml").write_text(
        PROJECT.replace("accelerator_count: 1", "accelerator_count: 3").replace("  two: {", "  three: {")
        + "labels: {}\n"
    )
    done = typed("diff", cwd=repository)
    assert done.exit_code == 1 and "the change adds errors" in done.stderr
    assert "one: changed" in done.stdout and "-    acceleratorCount: 1\n  +    acceleratorCount: 3" in done.stdout
    assert "+ error[accelerator-count]: n1-standard-8 cannot have 3" in done.stdout
    assert "two: removed" in done.stdout and "three: added" in done.stdout
    jobs = {one["name"]: one for one in typed("diff", "--format", "json", cwd=repository).document["jobs"]}
    assert {name: one["change"] for name, one in jobs.items()} == {"one": "changed", "two": "removed", "three": "added"}
    one = jobs["one"]
    assert [side["quota"]["custom_model_training_nvidia_t4_gpus"] for side in (one["before"], one["after"])] == [1, 3]
    assert one["after"]["usd_per_month"] == pytest.approx(30 * one["after"]["usd_per_run"])
    assert jobs["three"]["before"] is None and jobs["three"]["after"]["usd_per_month"] == 0


def test_templates_and_code_count_too(repository: Path) -> None:
    """A template of the project and the trainer's code change a job as its keys do; a comment in the file changes nothing."""
    (repository / "vertexrig.yaml").write_text(f"# more\n{PROJECT}")
    assert typed("diff", cwd=repository).stdout == "no difference from HEAD in 2 jobs and sweeps\n"
    (repository / "train.py").write_text(f"{TRAIN}print(loss)\n")
    done = typed("diff", cwd=repository)
    assert done.exit_code == 0 and done.stdout.count('+    - "gs://my-bucket') == 2, done
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "two")
    assert "in 2 jobs and sweeps" in typed("diff", cwd=repository).stdout
    assert "one: changed" in typed("diff", "HEAD~1", cwd=repository).stdout
    assert git(repository, "status", "--porcelain") == ""


def test_a_revision_that_is_not_there_is_refused(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An unknown revision, an option in its place and a folder that is in no repository are named."""
    cases = (
        ("nope", "has no commit, branch or tag 'nope'"),
        ("one", "one is a job or sweep: `diff` compares all of them"),
        ("--output=x", "no such option"),
    )
    for rev, said in cases:
        done = typed("diff", rev, cwd=repository)
        assert done.exit_code == 2 and said in done.stderr.lower(), done
    outside = tmp_path_factory.mktemp("outside")
    (outside / "vertexrig.yaml").write_text(PROJECT)
    assert "not a git repository" in typed("diff", cwd=outside).stderr
    git(outside, "init", "-q")
    assert f"the repository of {outside} has no commit yet" in typed("diff", cwd=outside).stderr


def test_a_markdown_comment_calls_nobody_and_breaks_nothing(repository: Path) -> None:
    """What a change writes into the comment stays in its cell: no mention, no tag, no column."""
    (repository / "vertexrig.yaml").write_text(
        PROJECT.replace("region: us-central1", "region: us-central1\nlabels: {a: '@x<b>|c'}")
    )
    done = typed("diff", "--format", "markdown", cwd=repository)
    table = done.stdout.partition("<details>")[0]
    assert "@&#8203;x&lt;b>\\|c" in table and "@x" not in table


def _hash(folder: Path, *words: str, data: bytes) -> str:
    done = subprocess.run(["git", *words], cwd=folder, input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "/OUTSIDE/out.txt"])
def test_no_name_of_a_revision_leads_out(repository: Path, tmp_path: Path, name: str) -> None:
    """A repository that came along may store names that git itself never makes: such a revision is refused, and nothing is written."""
    top, outside = repository.parents[1], tmp_path / "outside"
    outside.mkdir()
    tree = _hash(top, "hash-object", "-w", "--stdin", data=b"mine\n")
    name = name.replace("/OUTSIDE", str(outside))
    for part in [name] if name.startswith("/") else reversed(name.split("/")):
        kind = b"100644" if part.endswith("out.txt") else b"40000"
        row = kind + b" " + part.encode() + b"\0" + bytes.fromhex(tree)
        tree = _hash(top, "hash-object", "-w", "-t", "tree", "--stdin", "--literally", data=row)
    commit = git(top, "commit-tree", tree, "-m", "x").strip()
    into = tmp_path / "made/into"
    into.mkdir(parents=True)
    with pytest.raises(UsageError, match="leads out"):
        revision.write(top, commit, into)
    assert [path.name for path in (tmp_path / "made").rglob("*")] == ["into"] and not list(outside.iterdir())


@pytest.mark.parametrize("url", ["ext::SCRIPT", "ssh://host.invalid/x", "PLACE"])
@pytest.mark.parametrize("missing", ["team", "team/project/train.py"])
def test_no_program_of_a_repository_s_configuration_runs(
    repository: Path, tmp_path: Path, url: str, missing: str
) -> None:
    """A promisor remote names what git is to run for an object that is missing: it is not fetched, and its absence is named."""
    top, script = repository.parents[1], tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    for key, value in {
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": url.replace("SCRIPT", str(script)).replace("PLACE", str(top)), "remote.origin.uploadpack": str(script),
        "core.sshCommand": str(script), "protocol.allow": "always",
    }.items():  # fmt: skip
        git(top, "config", key, value)
    gone = git(top, "rev-parse", f"HEAD:{missing}").strip()
    (top / ".git/objects" / gone[:2] / gone[2:]).unlink()
    done = typed("diff", cwd=repository)
    assert done.exit_code == 2 and not (tmp_path / "ran").exists(), done
    subprocess.run(["git", "cat-file", "-p", gone], cwd=top, capture_output=True, check=False)
    assert (tmp_path / "ran").exists(), "git by itself runs it"


def _commit(top: Path, tree: str) -> str:
    return git(top, "commit-tree", tree, "-m", "x").strip()


def _tree(top: Path, rows: list[tuple[bytes, str]], mode: bytes = b"100644") -> str:
    data = b"".join(mode + b" " + name + b"\0" + bytes.fromhex(oid) for name, oid in rows)
    return _hash(top, "hash-object", "-w", "-t", "tree", "--stdin", "--literally", data=data)


@pytest.mark.parametrize("kind", ["one blob named 3,000 times", "trees named by trees", "a long path"])
def test_a_small_repository_cannot_fill_the_memory(repository: Path, tmp_path: Path, kind: str) -> None:
    """Number, sum and names of a revision's files are bounded before they are read."""
    top = repository.parents[1]
    blob = _hash(top, "hash-object", "-w", "--stdin", data=b"\0" * 2**20)
    if kind.startswith("one"):
        tree = _tree(top, [(b"%05d" % number, blob) for number in range(3_000)])
    elif kind == "a long path":
        tree = _tree(top, [(b"x" * 5_000, blob)])
    else:
        tree = _tree(top, [(b"%d" % number, blob) for number in range(10)])
        for _ in range(9):
            tree = _tree(top, [(b"%d" % number, tree) for number in range(10)], b"40000")
    revised = _commit(top, tree)
    into = tmp_path / "made"
    into.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match="more than 50,000 files|too long"):
        revision.write(top, revised, into)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024 and not any(into.iterdir())


def test_git_has_a_bound_of_its_own(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be less than this process has: git still runs, and one that needs more says so."""
    top = repository.parents[1]
    large = _hash(top, "hash-object", "-w", "-t", "tag", "--literally", "--stdin", data=b"\0" * 2**27)
    monkeypatch.setattr(revision, "_GIT_MEMORY", 2**26)
    ballast = bytearray(2**27)
    with revision.reading(top, "rev-parse", "HEAD") as out:
        assert len(out.read().strip()) == 40 and ballast
    with pytest.raises(UsageError, match="memory|allocate"), revision.reading(top, "cat-file", "tag", large) as out:
        out.read()


def test_a_git_that_is_killed_says_by_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal that is not ours is named, so that a lack of memory is not taken for a lack of time."""
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(UsageError, match="git was ended by SIGKILL"), revision.reading(tmp_path, "status") as out:
        out.read()
