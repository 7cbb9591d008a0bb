"""Names that others chose, in Markdown, HTML, XML, SARIF and GitHub's commands: each stays text, and every renderer uses one function."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import localvertex
import vertexrig
from tests.support import made_studies
from tests.support.tools import examples
from vertexrig import catalog, library
from vertexrig.checks import reports
from vertexrig.cli import diff
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.explain.change import Change, Side
from vertexrig.finding import Finding, Severity
from vertexrig.results.history import Record
from vertexrig.results.rehearsal import Rehearsal
from vertexrig.studies import html as html_report
from vertexrig.studies import report
from vertexrig.studies.cost import spent
from vertexrig.studies.reproduce import reproduction
from vertexrig.text import clean, code, command, fenced, markdown, markup, sarif

PIECES = (
    "#", "##", "# a", "- ", "+ ", "> ", "1. ", "1) ", "---", "===", "***", "```", "````", "~~~", "`", "*", "**", "_", "__", "~~", "|", "\\", "\n", "\r\n",
    "[a](javascript:alert(1))", "![a](http://b/c.png)", "[a]: javascript:b", "<javascript:a>", "<http://b>", "<b>", "</td>", "<!--", "-->", "<script>alert(1)</script>",
    "]]>", "<![CDATA[", "&lt;", "&#106;", "&amp", "@user", " @user", "$a$", "::error::", "::add-mask::a", "%0A::b::", "\x1b[2J", "\x1b]0;t\x07", "\u202e", "\u2028", "\0",
    "\t", "    code", "a", "b_c", " ", '"', "'", "=", ":", "-1.5",
)  # fmt: skip
NAMES = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=8).map("".join)
HOSTILE = "\n# a\n```\n</pre></script><script>alert(1)</script>[a](javascript:b)|<img src=x onerror=c>\x1b[2J\u202e @user `x` ````"
"""One name with all that."""
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("\u200b", "")).strip()


def inline(source: str, kind: str) -> tuple[list[str], str]:
    """The kinds of tokens in the first inline content of one block, and its text."""
    tokens = PARSER.parse(source)
    assert kind in [token.type for token in tokens], source
    block = next(token for token in tokens if token.type == "inline")
    return [one.type for one in block.children or ()], plain("".join(one.content for one in block.children or ()))


@given(NAMES)
@example("1. a")
@example("a #")
@example("__0__")
@settings(max_examples=examples(25, 5000), deadline=None)
def test_a_name_in_markdown_is_plain_text(name: str) -> None:
    """In a heading, an item and a cell, a name is the text that it is, and nothing else."""
    wanted = plain(clean(name))
    for before, after, kind in (
        ("# ", "", "heading_open"),
        ("- ", ": b", "bullet_list_open"),
        ("| a |\n| --- |\n| ", " |", "table_open"),
    ):
        text = markdown(name)
        assert "\n" not in text and not re.search(r"(?<!\w)@\w", text)
        source = f"{before}{text}{after}"
        if kind == "table_open":
            cells = [token for token in PARSER.parse(source) if token.type == "inline"]
            assert len(cells) == 2 and {one.type for one in cells[1].children or ()} <= {
                "text",
                "text_special",
            }
            assert plain("".join(one.content for one in cells[1].children or ())) == wanted
            continue
        if not wanted:
            continue
        kinds, found = inline(source, kind)
        assert set(kinds) <= {"text", "text_special"} and found == plain(f"{wanted}{after}"), source


@given(NAMES)
@settings(max_examples=examples(12, 2000), deadline=None)
def test_a_name_in_code_html_xml_sarif_and_commands_is_text(name: str) -> None:
    """A span and a block of code, an element, an attribute, a message and a workflow command hold a name as text."""
    wanted = plain(clean(name))
    if wanted:
        kinds, found = inline(f"- {code(name)}", "bullet_list_open")
        assert kinds == ["code_inline"] and found == wanted
    blocks = PARSER.parse(fenced(name, "diff"))
    assert [one.type for one in blocks] == ["fence"] and not ACTS.search(blocks[0].content)
    element = ElementTree.fromstring(f'<a b="{markup(name)}">{markup(name)}</a>')
    assert element.text == element.get("b") == clean(name) or not clean(name).strip() or "\t" in clean(name)
    assert "\n" not in command(name) and not {":", ","} & set(command(name, inside=True))
    assert not re.search(r"(?<!\\)\[[^\]]*\]\(", sarif(name))


def job(name: str) -> RemoteJob:
    """A study in which every name that a user chooses is this one."""
    text = json.dumps(made_studies.tuning_job(12))
    for old in ("learning_rate", "accuracy", "adam"):
        text = text.replace(json.dumps(old), json.dumps(f"{old}{name}"))
    data = json.loads(text)
    return RemoteJob({**data, "displayName": name, "labels": {"a": name}, "error": {"code": 3, "message": name}})


def attempted(name: str) -> list[dict[str, Any]]:
    return [{"candidate": name, "changes": name, "job": name, "waited_s": 1, "usd": 1.0, "reason": name, "text": name}]


def finding(name: str) -> Finding:
    return Finding(name, Severity.ERROR, name, name, name, "source", file=name, line=1)


def markdown_pages(name: str) -> dict[str, str]:
    """Each Markdown page that has names."""
    study = job(name)
    record = Record(name, study.data, run=name, metrics={name: 1.0}, differences=(name,))
    change = Change(
        name, Side(yaml=f"a: {name}"), Side(yaml=f"b: {name}", quota={name: 1}, findings=(finding(name),), problem=name)
    )
    rehearsed = Rehearsal(name, "JOB_STATE_FAILED", name, 1.0, None, metrics={name: 1.0})
    return {
        "report": report.page(study, name, record, attempted(name)),
        "diff": diff.comment(name, [change], 1, [(name, None, rehearsed)]),
    }


def html_pages(name: str) -> dict[str, str]:
    """Each page, table and document of HTML or XML that has names."""
    study = job(name)
    cost = spent(study, catalog.load())
    again = reproduction(study, project=name, again=name)
    found = html_report.insight(study)
    page = html_report.page(study, found, cost=cost, reproduction=again, console=name, attempted=attempted(name))
    return {
        "job": page.replace(name, "name"),
        "findings": library.Findings([finding(name)], {name: name})._repr_html_(),
        "rehearsal": Rehearsal(
            name, name, name, 1.0, None, metrics={name: 1.0}, trials=({"trial": name},)
        )._repr_html_(),
        "junit": reports.FILED["junit"].piece(name, [finding(name)]),
    }


class Tags(HTMLParser):
    """The tags of a page with the names of their attributes, and their links."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[object] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        links = [
            value for key, value in attrs if key in ("href", "src", "action") and not (value or "").startswith("#")
        ]
        self.tags.append((tag, [key for key, _ in attrs], links))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(tag)


@pytest.mark.whole
def test_no_page_gets_another_structure_from_a_name() -> None:
    """A page with a hostile name has the blocks, links and tags that it has with a harmless one."""

    def structure(source: str) -> list[object]:
        return [
            (one.type, one.tag, [each.type for each in one.children or () if "text" not in each.type])
            for one in PARSER.parse(source)
        ]

    hostile = {**markdown_pages(HOSTILE), **html_pages(HOSTILE)}
    for kind, page in markdown_pages("zzz").items():
        assert structure(hostile[kind]) == structure(page), kind
    for kind, page in html_pages("zzz").items():
        # a name with blanks makes more rows and spans of the same kind
        assert set(map(str, Tags(hostile[kind]).tags)) == set(map(str, Tags(page).tags)), kind
        assert not ACTS.search(hostile[kind]), kind


def test_each_form_of_output_has_one_function() -> None:
    """No module but `text` has an escape function of its own; `variables` looks for all forms of a value, and Jinja escapes the HTML report."""
    own = {"vertexrig/text.py", "vertexrig/variables.py"}
    for package in (vertexrig, localvertex):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            text = path.read_text("utf-8")
            name = str(path.relative_to(root.parent))
            assert name in own or not re.search(r"(?m)^\s*(from|import) (html|xml\.sax\.saxutils)( |$)", text), name
            assert name in {*own, "vertexrig/trigger/notify.py"} or not re.search(r"&(lt|#64|amp|quot);", text), name


def test_a_name_of_the_console_is_text() -> None:
    """The console's pages make elements from texts only: no markup is parsed, and each link begins in the page itself."""
    root = Path(localvertex.__file__).parent / "front/page"
    for path in root.glob("*.js"):
        text = path.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(", text), (
            path.name
        )
        for link in re.findall(r"href: (.{12})", text):
            assert re.match(r"[\"`]([#/]|https://sto)|address\(", link), (path.name, link)
