"""Entries added to a project file: they are there, and every other byte stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples
from vertexrig import yamltext
from vertexrig.bring import edit
from vertexrig.errors import UsageError
from vertexrig.project import config


@pytest.mark.parametrize(
    "text",
    [
        "project: p\n",
        "project: p",
        "project: p\nsweeps:\n",
        "project: p\nsweeps: {}\njobs: {}\n",
        "project: p\nsweeps: ~ # none yet\njobs: {a: {}}\n",
        "project: p\nsweeps: {a: {job: b}} # in brackets\n",
        "project: p\nsweeps:\n  a: &x\n    args:\n    - |\n      text\n\n\n# a comment\njobs: {b: *x}\n",
        "{project: p, sweeps: {a: {job: b}}}",
        "project: p\r\nsweeps:\r\n  a: {job: c} # d\r\n    # of a\r\n\r\njobs:\r\n  x: {}",
        "\ufeffproject: p\nsweeps:\n  a: {}\n...\n",
        "---\nsweeps:\n    a:\n        job: >\n          x\n          y\n",
        "sweeps: {\n a: {job: b} # one\n}\n",
        "base: &base {job: b}\nsweeps:\n  a:\n    <<: *base\n  # commented: out\n\n  b: *base\n\n# the end\n",
    ],
)
def test_an_entry_is_added_and_every_other_byte_stays(text: str) -> None:
    """Without what was added the new text is the old one, comments, anchors, line ends and marks included."""
    entry = edit.Entry("sweeps", "new", {"job": "b", "over": {"x": [1, 2]}}, {(): ["why"], ("over", "x"): ["kept"]})
    made = edit.added(text, entry, "f.yaml")
    data = yamltext.read(made.removeprefix("\ufeff")).data
    assert data["sweeps"]["new"] == {"job": "b", "over": {"x": [1, 2]}}
    start = next((i for i, (a, b) in enumerate(zip(text, made, strict=False)) if a != b), len(text))
    tail = len(text) - start
    kept = made[:start] + (made[-tail:] if tail else "")
    null = text.replace("{}\n", "\n", 1) if "sweeps: {}" in text else text.replace(" ~", "", 1)
    assert kept == text or made.replace(made[start : len(made) - tail], "", 1) == text or "sweeps:" in null


KEYS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
SCALARS = st.one_of(
    st.integers(-9, 9), st.booleans(), st.none(), st.text("ab: #'\"{}[]\n-é$", max_size=8), st.floats(-9, 9)
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=examples(30, 1000), deadline=None)
@given(
    before=st.dictionaries(KEYS, DATA, max_size=4),
    jobs=st.dictionaries(KEYS, DATA, max_size=3),
    entry=st.dictionaries(KEYS, DATA, max_size=3),
    flow=st.sampled_from([None, False, True]),
    indent=st.integers(2, 5),
    crlf=st.booleans(),
)
def test_whatever_the_layout_the_old_lines_stay_in_order(
    before: dict[str, Any], jobs: dict[str, Any], entry: dict[str, Any], flow: bool | None, indent: int, crlf: bool
) -> None:
    """Any YAML that PyYAML writes, with comments between its lines, keeps each line, and reads as before plus the entry."""
    data = {**before, "jobs": jobs, "zz": 1}
    lines = yaml.safe_dump(
        data, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True
    ).splitlines()
    plain = not any(line.endswith(("|", ">", "|-", ">-", "|+", ">+")) or "'" in line or '"' in line for line in lines)
    if plain and flow is False:
        lines = [one for n, line in enumerate(lines) for one in (f"{' ' * (n % 7)}# {n}", line)]
    text = ("\r\n" if crlf and plain else "\n").join(lines) + "\n"
    try:
        read = edit.data_of(text, "f")
        made = edit.added(text, edit.Entry("jobs", "NEW", entry, {(): ["why"]}), "f")
    except UsageError as error:
        assert "cannot be added" in str(error) or "already" in str(error) or "YAML" in str(error)
        return
    assert edit.data_of(made, "f") == {**read, "jobs": {**(read["jobs"] or {}), "NEW": entry}}
    if flow is False and jobs:
        old = iter(made.splitlines(keepends=True))
        assert all(line in old for line in text.splitlines(keepends=True)), made


def test_what_cannot_be_added_is_said_with_the_lines_to_add(tmp_path: Path) -> None:
    """An alias in place of the group, a taken name and a file that is no mapping are refused; nothing is written."""
    entry = edit.Entry("sweeps", "new", {"job": "b"})
    with pytest.raises(UsageError, match=r"by hand:\nnew:\n  job: b"):
        edit.added("x: &s\n  a: {}\nsweeps: *s\n", entry, "f")
    with pytest.raises(UsageError, match="f has sweeps.new already; choose another name with --as"):
        edit.added("sweeps: {new: {}}\n", entry, "f")
    with pytest.raises(UsageError, match="its top is not a mapping"):
        edit.added("- a\n", entry, "f")
    with pytest.raises(UsageError, match="sweeps is not a mapping"):
        edit.added("sweeps: [a]\n", entry, "f")


def test_a_file_is_replaced_as_a_whole_with_its_permissions_and_links(tmp_path: Path) -> None:
    """Permissions, a link, a byte order mark and line ends survive; nothing else is left in the folder."""
    real = tmp_path / "real.yaml"
    real.write_bytes(b"\xef\xbb\xbfproject: p\r\n")
    real.chmod(0o600)
    (tmp_path / "link.yaml").symlink_to(real)
    before = edit.read(tmp_path / "link.yaml")
    edit.write(tmp_path / "link.yaml", before, before + "x: 1\r\n", [])
    assert real.read_bytes() == b"\xef\xbb\xbfproject: p\r\nx: 1\r\n"
    assert (tmp_path / "link.yaml").is_symlink() and real.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]


def test_a_literal_dollar_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`${X}` in a value of a job means itself after the project file has filled in its variables."""
    for text in ("${X}", "$${X}", "a${X}b$", "$$"):
        made = edit.added("project: p\n", edit.Entry("jobs", "a", {"args": edit.literal({"x": text})}), "f")
        assert config.loads(made, file=Path("f")).project.jobs["a"].args == {"x": text}
