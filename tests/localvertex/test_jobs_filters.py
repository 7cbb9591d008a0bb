"""List filters: text becomes a predicate, or a 400."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvertex.http import ApiError
from localvertex.jobs.listing import parse

BODY = {
    "displayName": "my job", "state": "JOB_STATE_FAILED", "labels": {"team": "vision", "empty": ""},
    "createTime": "2026-05-01T12:00:00.123456Z",
}  # fmt: skip


@pytest.mark.parametrize(
    "text, fits",
    [
        ("", True),
        ('display_name="my job"', True),
        ('display_name="my*"', True),
        ('display_name:"job"', True),
        ('displayName!="my job"', False),
        ("state=JOB_STATE_FAILED", True),
        ('state!="JOB_STATE_FAILED"', False),
        ("labels.team=vision AND labels.empty:*", True),
        ("labels.none:*", False),
        ('labels.none!="x"', True),
        ('create_time>="2026-05-01T12:00:00.123456Z"', True),
        ('create_time<"2026-05-01T14:00:00+02:00"', False),
        ("create_time>2026-01-01T00:00:00Z", True),
        ("NOT state=JOB_STATE_FAILED", False),
        ("-state=JOB_STATE_FAILED", False),
        ("state=a OR state=JOB_STATE_FAILED AND labels.team=vision", True),
        ("labels.team=other AND state=a OR state=JOB_STATE_FAILED", False),  # OR binds closer: AIP-160
        ("(labels.team=other AND state=a) OR state=JOB_STATE_FAILED", True),
    ],
)
def test_filters(text: str, fits: bool) -> None:
    """Each documented field and operator, and the precedence of AIP-160."""
    assert parse(text)(BODY) is fits


@pytest.mark.parametrize(
    "text", ['display_name:"a[1]"', 'display_name="a[1]*"', 'display_name:"?"', 'display_name="*]?"']
)
def test_a_star_is_the_only_wildcard(text: str) -> None:
    """Brackets and question marks of a name are themselves in a pattern, too."""
    assert parse(text)({"displayName": "a[1]?"}) and not parse(text)({"displayName": "a1x"})


words = st.sampled_from(
    [
        "AND",
        "OR",
        "NOT",
        "-",
        "(",
        ")",
        "=",
        "!=",
        ":",
        "<",
        "state",
        "labels.a",
        "create_time",
        '"x"',
        "x",
        "*",
        "2026",
    ]
)


@given(st.one_of(st.text(), st.lists(words).map(" ".join)))
def test_any_text_is_a_filter_or_a_400(text: str) -> None:
    """No text makes anything but a predicate or an INVALID_ARGUMENT."""
    try:
        found = parse(text)(BODY)
    except ApiError as error:
        assert error.code == 400 and error.message.startswith("Invalid filter")
    else:
        assert isinstance(found, bool)


def test_a_group_of_values_is_read_in_lists_too() -> None:
    """Lists and log entries share the grammar, with its groups of values."""
    assert parse("state=(JOB_STATE_RUNNING OR JOB_STATE_FAILED)")(BODY) is True
    assert parse("display_name='my job' -labels.team=(a OR b)")(BODY) is True
