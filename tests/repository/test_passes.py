"""One document, one pass: what a rendering and a request to the trigger do is counted where they are done."""

from __future__ import annotations

from tools import passes


def test_a_render_is_one_pass() -> None:
    """`render tpu` resolves once, renders once, and reads two texts: the project file, opened once, and what was rendered."""
    found = passes.of_render()
    assert (found.resolves, found.renders, found.reads, found.files) == (1, 1, 2, 1)
    assert found.modules <= 92
