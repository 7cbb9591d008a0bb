"""Write the sources of the site: the pages, a page for each rule with an example, and the builder's configuration.

`python -m tools.site FOLDER` writes it; `make docs` builds the site. The pages stay as a code host shows them: a link that
leads out of the site goes to the repository, and two or more blocks, each below a line of bold text alone, are tabs.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from tests.vertexrig.checks.cases import Case, findings_of
from tests.vertexrig.checks.job_bases import edited
from tests.vertexrig.checks.test_rules import ALL
from tools.checks_page import READING, escaped, title
from vertexrig import __version__
from vertexrig.checks import rules
from vertexrig.checks.formats import blocks
from vertexrig.checks.model import IGNORE_MARK, Rule
from vertexrig.spec.strict import READING_RULES, ReadingRule

REPOSITORY = Path(__file__).resolve().parents[1]
URL = "https://github.com/vertexrig/vertexrig"
ELSEWHERE = {"bench/README.md": "benchmarks.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
"""Pages beside docs/ -> their places in the site."""
FIXES = {
    "safe": "`vertexrig check --fix` makes it, where the finding says what to write.",
    "unsafe": "`vertexrig check --unsafe-fixes` makes it, where the finding says what to write.",
    "": "None is made: what is meant is not in the file.",
}
FENCE = re.compile(r" *```")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
TABS = re.compile(r"(?:^\*\*[^*\n]+\*\*\n\n(?:<!--[^\n]*-->\n)*```.*?\n```\n(?:\n|\Z)){2,}", re.MULTILINE | re.DOTALL)
TAB = re.compile(r"\*\*([^*\n]+)\*\*\n\n(?:<!--[^\n]*-->\n)*(```.*?\n```\n)", re.DOTALL)


def places() -> dict[Path, str]:
    """Return every page of the repository that is in the site, with its place there."""
    own = {path: path.name.replace("README", "index") for path in sorted((REPOSITORY / "docs").glob("*.md"))}
    examples = {
        path: f"examples/{path.parent.name}.md" for path in sorted((REPOSITORY / "examples").glob("*/README.md"))
    }
    return {**own, **{REPOSITORY / name: place for name, place in ELSEWHERE.items()}, **examples}


def relinked(text: str, page: Path, staged: dict[Path, str]) -> str:
    """Return a page with its links as the site has them.

    Raises:
        SystemExit: A link leads to no file of the repository.
    """

    def one(match: re.Match[str]) -> str:
        path = Path(os.path.normpath(page.parent / match[1]))
        if path in staged:
            return os.path.relpath(staged[path], Path(staged[page]).parent)
        if not path.exists() or not path.is_relative_to(REPOSITORY):
            sys.exit(f"{page.relative_to(REPOSITORY)}: the link to {match[1]} leads to no file")
        name = path.relative_to(REPOSITORY)
        if name.parts[:2] == ("docs", "images"):
            return os.path.relpath(name.relative_to("docs"), Path(staged[page]).parent)
        return f"{URL}/{'tree' if path.is_dir() else 'blob'}/main/{name}"

    return outside_fences(text, lambda line: LINK.sub(one, line))


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Return a text with every line changed that is in no fence."""
    lines, fenced = [], False
    for line in text.splitlines(keepends=True):
        opens = FENCE.match(line) is not None
        lines.append(line if fenced or opens else change(line))
        fenced ^= opens
    return "".join(lines)


def tabbed(text: str) -> str:
    """Return a page with neighbouring blocks below bold lines as tabs."""

    def one(match: re.Match[str]) -> str:
        parts = [(name, "".join(f"    {line}\n" for line in body.splitlines())) for name, body in TAB.findall(match[0])]
        return "".join(f'=== "{name}"\n\n{body}\n' for name, body in parts)

    return TABS.sub(one, text)


def examples() -> dict[str, Case]:
    """Return a test case for each rule, if possible one that changes the job."""
    found: dict[str, Case] = {}
    for case, _ in ALL:
        if case.rule not in found or (case.bad and not found[case.rule].bad):
            found[case.rule] = case
    return found


def difference(before: str, after: str, name: str) -> str:
    """Return the change that makes the mistake, as a diff; "" if nothing changes."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), name, name, lineterm="", n=2))
    return "\n".join(["```diff", *lines, "```", ""]) if lines else ""


def example(case: Case) -> Iterator[str]:
    """Return the lines of a page with a mistake and the findings of `check`."""
    bad = edited(case.base, case.bad)
    yield "## Example\n\nThis change makes the mistake:\n"
    yield difference(edited(case.base, case.good), bad, "job.yaml")
    yield difference(case.better, case.trainer, "trainer/task.py")
    found = findings_of(bad, case.trainer, case.region, case.today)
    shown = blocks([one for one in found if one.id == case.rule], {"job.yaml": bad})
    yield "`vertexrig check job.yaml` says:\n\n```text\n" + "\n\n".join(shown) + "\n```\n"


def rule_page(rule: Rule | ReadingRule, topic: str, case: Case | None) -> str:
    """Return a rule's page."""
    parts = [
        f"# {rule.id}\n\n**{rule.severity.value}**: {escaped(rule.summary)}\n\nTopic: [{topic}](../checks.md)\n",
        f"Fix: {FIXES[rule.edits]}\n",
        *(example(case) if case else ()),
        f"## Leave it out\n\n```yaml\nkey: value # {IGNORE_MARK}[{rule.id}] why it is meant\n```\n" if case else "",
        f"Or `vertexrig check --ignore {rule.id}`; [more ways](../check.md).\n" if case else "",
        "## Sources\n",
        *(f"- {escaped(one)}" for one in rule.source.split("; ")),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def rule_pages() -> Iterator[tuple[str, str]]:
    """Give the name and text of every rule's page."""
    cases = examples()
    for reading in READING_RULES:
        yield reading.id, rule_page(reading, READING, None)
    for module, group in groupby(rules(), key=lambda rule: rule.run.__module__):
        for rule in group:
            yield rule.id, rule_page(rule, title(module), cases.get(rule.id))


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the pages in the order of the index: its headings, and the pages of the site below each."""
    parts: list[dict[str, Any]] = [{"Home": "index.md"}]
    for section in index.split("\n## ")[1:]:
        links = re.findall(r"^- \[(.+)\]\((?!http)([^#)]+)\)", section, re.MULTILINE)
        if links:
            parts.append({section.partition("\n")[0].partition(":")[0]: [{name: place} for name, place in links]})
    return [*parts, {"Project": [{"Changelog": "changelog.md"}, {"Contributing": "contributing.md"}, {"Source": URL}]}]


def built_from() -> str:
    """Return the commit, "" outside a git checkout."""
    asked = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def configuration(index: str) -> dict[str, Any]:
    """Return the builder's configuration. Nothing of a page is fetched from another host."""
    schemes = [
        {"media": f"(prefers-color-scheme: {name})", "scheme": scheme, "toggle": {"icon": icon, "name": f"Go {other}"}}
        for name, scheme, icon, other in (
            ("light", "default", "lucide/sun", "dark"),
            ("dark", "slate", "lucide/moon", "light"),
        )
    ]
    commit = built_from()
    return {
        "site_name": f"vertexrig {__version__}",
        "site_description": "Render, check, rehearse and launch training jobs on Vertex AI",
        "copyright": f"vertexrig {__version__}{f', from {commit}' if commit else ''}. Apache-2.0.",
        "docs_dir": "docs",
        "site_dir": "site",
        "use_directory_urls": False,
        "nav": navigation(index),
        "plugins": ["search"],
        "theme": {
            "name": "material",
            "font": False,
            "palette": schemes,
            "features": ["content.code.copy", "content.tabs.link", "navigation.top", "search.highlight", "toc.follow"],
        },
        "markdown_extensions": [
            "tables",
            "sane_lists",
            {"toc": {"permalink": True, "slugify": "SLUGIFY"}},
            {"pymdownx.highlight": {"pygments_lang_class": True}},
            "pymdownx.superfences",
            {"pymdownx.tabbed": {"alternate_style": True}},
        ],
    }


def stage(folder: Path) -> None:
    """Write the input of the builder into a folder, and remove its earlier content."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "docs"
    shutil.copytree(REPOSITORY / "docs/images", pages / "images")
    staged = places()
    texts = {place: tabbed(relinked(path.read_text("utf-8"), path, staged)) for path, place in staged.items()}
    texts["checks.md"] = re.sub(r"^### (.+)$", r"### [\1](rules/\1.md)", texts["checks.md"], flags=re.MULTILINE)
    for name, text in [*texts.items(), *((f"rules/{name}.md", text) for name, text in rule_pages())]:
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(text, encoding="utf-8")
    # GitHub's anchors: a function's name is a tag that YAML writers of strings do not write
    slugify = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    config = yaml.safe_dump(configuration(texts["index.md"]), sort_keys=False, allow_unicode=True)
    (folder / "mkdocs.yml").write_text(config.replace("SLUGIFY", slugify), encoding="utf-8")


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
