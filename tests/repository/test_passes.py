"""One document, one pass: what a rendering and a request to the trigger do is counted where they are done."""

from __future__ import annotations

from tools import passes


def test_a_render_is_one_pass() -> None:
    """`render tpu` resolves once, renders once, and reads two texts: the project file, opened once, and what was rendered."""
    found = passes.of_render()
    assert (found.resolves, found.renders, found.reads, found.files) == (1, 1, 2, 1)
    assert found.modules <= 95


def test_a_post_resolves_once() -> None:
    """A `POST /` that creates a job resolves once, and renders and reads twice: to check it, and with the folder of its run."""
    found = passes.of_post()
    assert (found.resolves, found.renders, found.reads, found.files) == (1, 2, 2, 0)
