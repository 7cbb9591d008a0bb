"""Variables in the syntax of a shell; `make test-clients` has bash, zsh and fish read them."""

from __future__ import annotations

import shlex
import subprocess

from hypothesis import given
from hypothesis import strategies as st

from localvertex.cli.shells import SHELLS

AWKWARD = 'a\'b\\c $HOME "d" *'


def test_fish_quotes_in_its_own_way() -> None:
    """In fish's single quotes a backslash quotes the quote and itself, and nothing else has a meaning."""
    assert SHELLS["fish"](["OLD"], {"NEW": AWKWARD}).splitlines() == [
        "set -e OLD",
        "set -gx NEW 'a\\'b\\\\c $HOME \"d\" *'",
    ]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_text_is_one_word_of_a_posix_shell(text: str) -> None:
    """What is exported is the text, whatever is in it."""
    assert shlex.split(SHELLS["sh"]([], {"NEW": text})) == ["export", f"NEW={text}"]


def test_sh_reads_what_is_printed() -> None:
    """A real shell removes one variable and exports the other."""
    lines = SHELLS["sh"](["OLD"], {"NEW": AWKWARD})
    done = subprocess.run(
        ["sh", "-c", f'{lines}\nprintf %s "${{OLD-gone}}:$NEW"'], env={"OLD": "1"}, capture_output=True, text=True
    )
    assert done.stdout == f"gone:{AWKWARD}"
