"""Patterns of .gitignore: what git itself says of them, whatever they are, and that no pattern takes long."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.tools import typed
from vertexrig.cli import gitignore
from vertexrig.cli.gitignore import Ignored, Patterns, Work
from vertexrig.errors import UsageError

JOB = "displayName: a\nworkerPoolSpecs: []\n"
NAMES = (
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"a.b",
    b"aXb",
    b"a b",
    b"-",
    b"[",
    b"\xc3\xa9",
    b"\xff",
    b".a",
    b"a\\",
    b"!a",
    b"#",
    b"1",
)
TOKENS = (
    b"a", b"b", b"ab", b".", b"*", b"**", b"?", b"/", b"/", b"**/", b"/**", b"!", b"#", b" ", b"\\", b"\\*", b"\\ ", b"[", b"]",
    b"[ab]", b"[!a]", b"[^b]", b"[a-c]", b"[z-a]", b"[]a]", b"[a-]", b"[\\]a]", b"[[:alpha:]]", b"[[:nope:]]", b"[[:digit:]1]", b"[/]",
    b"[", b"-", b"\xc3\xa9", b"\xff", b"X", b"\r", b"\t",
)  # fmt: skip
LINES = st.lists(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=7).map(b"".join), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[bytes], set[bytes]]:
    """A repository with files three folders deep, its paths, and those of folders."""
    root = os.fsencode(tmp_path_factory.mktemp("repository"))
    subprocess.run(["git", "init", "-q", root], check=True)
    paths, folders = [], set()
    for first in (b"a", b"ab", b"b", b".a"):
        for second in (b"a", b"b", b"a.b"):
            os.makedirs(os.path.join(root, first, second))
            folders |= {first, b"%b/%b" % (first, second)}
            for name in (b"a", b"ab", b"1"):
                paths.append(b"%b/%b/%b" % (first, second, name))
        for name in NAMES:
            paths.append(b"%b/%b" % (first, name))
    paths += NAMES
    for path in paths:
        if not os.path.isdir(os.path.join(root, path)):
            with open(os.path.join(root, path), "w"):
                pass
    return root, sorted({*paths, *folders}), folders


def is_gits_own_fault(line: bytes) -> bool:
    """Whether git compares the text before `**` with the beginning of a name alone: gitignore(5) says otherwise."""
    text = line.lstrip(b"!")
    before, stars, _ = text.partition(b"**")
    return bool(stars) and before != b"" and not before.endswith(b"/")


@given(LINES)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_ignored_exactly_if_git_ignores_it(
    repository: tuple[bytes, list[bytes], set[bytes]], lines: list[bytes]
) -> None:
    """Of every path of a repository, for any lines of a .gitignore, git says the same."""
    root, paths, folders = repository
    lines = [line for line in lines if not is_gits_own_fault(line)]
    with open(os.path.join(root, b".gitignore"), "wb") as file:
        file.write(b"\n".join(lines))
    asked = subprocess.run(
        ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=root, input=b"\0".join(paths), capture_output=True, check=False,
    )  # fmt: skip
    assert asked.returncode in (0, 1), asked
    work = Work()
    ignored = Ignored(work)
    ignored.add(os.fsdecode(root), Patterns(lines, work))
    ours = {path for path in paths if ignored.has(os.fsdecode(os.path.join(root, path)), is_folder=path in folders)}
    assert ours == set(asked.stdout.split(b"\0")) - {b""}


SLOW = {
    "stars": ["*a" * 499 + "*b"],
    "stars in a path": ["x/" + "*a" * 490 + "*b/y"],
    "folders": ["**/a" * 240 + "/b"],
    "brackets": ["[ab]*" * 190 + "c"],
    "many": ["*" + "a" * 100 + "b*"] * 4_000,
}


@pytest.mark.parametrize("lines", SLOW.values(), ids=SLOW)
def test_no_pattern_hangs_a_check(lines: list[str], tmp_path: Path) -> None:
    """Patterns that make a matcher try many ways take little time, in .gitignore as in check.exclude."""
    deep = tmp_path.joinpath(*["a"] * 100)
    deep.mkdir(parents=True)
    for number in range(20):
        (deep / f"{'a' * 200}{number}.yaml").write_text(JOB)
    (tmp_path / ".gitignore").write_text("\n".join(lines))
    (tmp_path / "vertexrig.yaml").write_text(f"project: my-project\ncheck: {{exclude: {lines[:100]}}}\n")
    began = time.process_time()
    done = typed("check", ".", "--format", "json", "--jobs", "1", cwd=tmp_path)
    assert done.exit_code in (0, 1, 2) and time.process_time() - began < 10, done


def test_a_check_ends_when_patterns_cost_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound of comparisons a check says so and what to do."""
    monkeypatch.setattr(gitignore, "MOST_WORK", 100_000)
    (tmp_path / ".gitignore").write_text("*a*b*c\n" * 20)
    (tmp_path / "job.yaml").write_text(JOB)
    done = typed("check", ".", cwd=tmp_path)
    assert done.exit_code == 2 and "take more than 100,000 comparisons" in done.stderr
    with pytest.raises(UsageError):
        Patterns([b"a"] * 20, Work())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("!", "it has no name"),
        ("/", "it has no name"),
        ("\\", "a backslash stands at its end"),
        ("[/]", "a bracket allows no character"),
        ("[a", "a bracket is not closed"),
        ("[[:nope:]]", "an unknown class"),
        ("x" * 1001, "at most 1,000 bytes"),
    ],
)
def test_a_wrong_line_is_skipped_and_named_once(line: str, why: str, tmp_path: Path) -> None:
    """A line that can match nothing ignores nothing and ends nothing; stderr names it, and the other lines hold."""
    (tmp_path / ".gitignore").write_text(f"# ours\n{line}\nskipped.yaml\n")
    for name in ("skipped.yaml", "job.yaml"):
        (tmp_path / name).write_text(JOB)
    done = typed("check", ".", ".", "--format", "json", cwd=tmp_path)
    assert done.exit_code == 1 and {one["file"] for one in done.document["findings"]} == {"./job.yaml"}, done
    assert done.stderr.count(".gitignore: line 2 (") == 1 and why in done.stderr
