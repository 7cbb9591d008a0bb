"""What the README and the other pages show is what happens; `pytest tests/repository/test_pages.py --accept` brings them up to date.

With `--accept` a page's outputs that no longer hold are rewritten in place: ids, times and numbers of training that differ
between any two runs stay as they are, ellipses stay where they are, and nothing is written if a command does not end as
the page says.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.page_runs import Ran, run
from tests.support.pages import PageError
from tests.support.tools import REPOSITORY, module, need, typed
from tools import picture
from vertexrig.checks.images import AVAILABILITY
from vertexrig.cli import VERBS
from vertexrig.package.discover import trainers

PAGES = pages.all_pages()
PROGRAMS = ("gcloud", "curl", "jq")
"""What pages type that a developer may not have."""
LIBRARIES = {"docs/pytorch.md": "torch", "examples/pytorch-ddp/README.md": "torch"}
"""What trainers of pages import that a developer may not have."""
SMALL = {
    "docs/local.md", "docs/rehearse.md", "docs/trigger.md",
    "examples/s4-blog-tuning/README.md", "examples/s5-practical-vision/README.md",
}  # fmt: skip
"""Pages that show what is around a trainer of this repository, so that a small one may stand for it."""
WHOLE = {
    "docs/after-a-sweep.md", "docs/candidates.md", "docs/fidelity.md", "docs/local.md", "docs/rehearse.md",
    "docs/studies.md", "docs/testing.md", "docs/trainer.md", "docs/trigger.md", "docs/tutorial.md",
    "examples/s1-distributed-tuning/README.md", "examples/s2-hands-on-ml/README.md",
    "examples/s3-multi-worker/README.md", "examples/s4-blog-tuning/README.md",
    "examples/s5-practical-vision/README.md", "examples/scikit-learn/README.md", *LIBRARIES,
}  # fmt: skip
"""Pages whose commands take over 5 s of processor."""


def name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


TYPED = [
    page
    for page in PAGES
    if any(
        block.language in pages.RUN and not block.reason
        for block in pages.blocks(page.read_text(encoding="utf-8"), name(page))
    )
]


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=[pytest.mark.whole] * (name(page) in WHOLE)) for page in TYPED]
)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each command of the page, typed in order in one project, ends as the page says and prints what the page shows."""
    text = page.read_text(encoding="utf-8")
    for program in PROGRAMS:
        if re.search(rf"^(\$ )?{program} |\| {program} ", text, re.MULTILINE):
            need(program)
    if name(page) in LIBRARIES:
        module(LIBRARIES[name(page)])
    done = list(run(page, text, tmp_path, small=name(page) in SMALL))
    failed = [one for one in done if not one.as_expected]
    assert not failed, difference(page, failed[0])
    stale = [one for one in done if not pages.same(one.command.shown, one.output)]
    if stale and request.config.getoption("--accept"):
        outputs = [
            (one.command, one.block.indent, pages.updated(one.command.shown, one.output)) for one in stale
        ]  # fmt: skip
        assert page.read_text(encoding="utf-8") == text, (
            f"{name(page)} changed while its commands ran: nothing is written"
        )
        page.write_text(pages.rewritten(text, outputs), encoding="utf-8")
    elif stale:
        parts = [difference(page, one) for one in stale]
        pytest.fail("\n\n".join([*parts, f"to accept: pytest --accept {request.node.nodeid}"]), pytrace=False)


def difference(page: Path, ran: Ran) -> str:
    """What a command did, for a person: its line, how it ended, and how its output differs from the page's."""
    end = "did not end in time" if ran.code is None else f"ended with {ran.code}, the page says {ran.command.exits}"
    head = f"{name(page)}:{ran.command.line}: $ {ran.command.text}\n{end}"
    if not ran.command.shown or not ran.as_expected:
        return "\n".join([head, *ran.output[-60:]])
    lines = difflib.unified_diff(
        ran.command.shown, pages.updated(ran.command.shown, ran.output), "shown", "now", lineterm=""
    )
    return "\n".join([head, *lines])


def test_what_is_not_run_says_why(golden: Callable[[str, str], None]) -> None:
    """Every block that is not run gives its reason; the list of them is held."""
    lines = [
        f"{name(page)}: {block.reason}: {block.body[0] if block.body else ''}\n"
        for page in PAGES
        for block in pages.blocks(page.read_text(encoding="utf-8"), name(page))
        if block.reason
    ]
    golden("pages/not-run.txt", "".join(lines))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file that is there."""
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_named_on_a_page_are_there(page: Path) -> None:
    """Every `vertexrig VERB` that a page names is a verb."""
    named = set(re.findall(r"(?:`|^\$ )vertexrig ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= VERBS.keys(), sorted(named - VERBS.keys())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("```consle\n$ true\n```\n", "not 'consle'"),
        ("```sh\nif true; then\n```\n", "the last command never ends"),
        ("<!-- not run: -->\n```sh\ntrue\n```\n", "`not run:` says nothing"),
    ],
)
def test_a_page_that_cannot_be_read_is_refused(text: str, why: str) -> None:
    """A fence of an unknown language, a command that never ends and a comment without its reason are refused with page and line."""
    with pytest.raises(PageError, match=r"^p\.md:\d+: ") as caught:
        for block in pages.blocks("# A page\n\n" + text, "p.md"):
            pages.commands(block, "p.md") if block.language in pages.RUN else None
    assert why in str(caught.value)


def test_only_lines_that_no_longer_hold_are_brought_up_to_date() -> None:
    """Any other number, word or line is a difference; ids and times of the other lines stay, and so do the ellipses."""
    shown = ["job 3179294386125220461", "...", "accuracy 0.5", "wrote old.yaml", "end"]
    real = ["job 1179294386125220462", "a", "b", "accuracy 0.7", "wrote new.yaml", "", "end"]
    assert not pages.same(shown, real) and not pages.same(["timeout: 3600s"], ["timeout: 7200s"])
    now = pages.updated(shown, real)
    assert now == ["job 3179294386125220461", "...", "accuracy 0.5", "wrote new.yaml", "", "end"]
    assert pages.same(now, real)


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=name)
def test_a_trainer_of_a_page_has_no_finding(page: Path, tmp_path: Path) -> None:
    """`check` warns of nothing in a trainer of a page for which `init` made the project file, but of its image's date."""
    for block in pages.blocks(page.read_text(encoding="utf-8"), name(page)):
        if block.language == "python":
            (tmp_path / block.notes.get("file", f"line{block.line}.py")).write_text("\n".join(block.body) + "\n")
    assert typed("init", cwd=tmp_path).exit_code == 0
    if trainers(tmp_path):
        findings = typed("check", "--format", "json", cwd=tmp_path).document["findings"]
        assert [one for one in findings if one["severity"] != "info" and one["id"] != AVAILABILITY] == []


def test_pictures_show_what_the_pages_show() -> None:
    """Each picture is the one that its block gives: `python -m tools.picture` draws them anew."""
    drawn = picture.pictures()
    assert drawn and {file: svg for file, svg in drawn.items() if file.read_text(encoding="utf-8") != svg} == {}


def test_every_page_is_in_the_list_of_pages() -> None:
    """docs/README.md has each page of docs/ once, under one of its four headings."""
    text = (REPOSITORY / "docs/README.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+):", text, re.MULTILINE) == ["Tutorial", "How-to", "Reference", "Explanation"]
    listed = re.findall(r"^- \[[^\]]+\]\(([^)/#]+\.md)\)", text, re.MULTILINE)
    assert sorted(listed) == sorted(
        page.name for page in (REPOSITORY / "docs").glob("*.md") if page.name != "README.md"
    )


def test_the_places_to_change_are_there() -> None:
    """Every folder and file that CONTRIBUTING names is there."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(
        r"`((?:vertexrig|localvertex|templates|functions|tests|tools|trainer_pkg|fidelity)/[\w./]*)`", text
    )
    made = {"VERB", "NAME", "ROOM", "NAME_api"}
    assert len(named) > 20
    assert [one for one in named if not (REPOSITORY / one).exists() and not made & set(re.split(r"[/.]", one))] == []


def test_every_threat_names_a_test_that_is_there() -> None:
    """Each `FILE::NAME` of docs/security.md is a test function, and each row of its tables of threats has one."""
    text = (REPOSITORY / "docs/security.md").read_text(encoding="utf-8")
    rows = [line for part in text.split("| threat |")[1:] for line in part.split("\n\n")[0].splitlines()[2:]]
    assert len(rows) > 20 and [row for row in rows if "::test_" not in row] == []
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", text)
    missing = [f"{file}::{test}" for file, test in named if not _defines(REPOSITORY / "tests" / file, test)]
    assert missing == []


def _defines(file: Path, test: str) -> bool:
    return file.is_file() and re.search(rf"^def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None
