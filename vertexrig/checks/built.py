"""The project's own images: which pools of a document run one, what is in it, and whether it goes with the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.checks.model import BUILT, BuiltImage, Context, Problem, Rule
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool


def _pools(document: Document, context: Context) -> Iterator[tuple[Pool, BuiltImage]]:
    """Pools on images of our own, one of each image."""
    seen: set[str] = set()
    for pool in document.pools:
        if pool.image in context.built and pool.image not in seen:
            seen.add(pool.image)
            yield pool, context.built[pool.image]


def image_lock(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _pools(document, context):
        if not image.locked:
            text = f"{image.row.name} was never made here: it has no lock file {image.lock}"
            yield Problem(f"{pool.program_path}.imageUri", text, "run `vertexrig image NAME`, and commit the lock file")


def image_python(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _pools(document, context):
        least = re.search(r"(?:>=|~=|==|>)\s*3\.(\d+)", image.needs_python)
        if least is not None and int(least[1]) > int(image.row.python.partition(".")[2]):
            text = f"the trainer needs Python {image.needs_python}, and {image.row.name} has {image.row.python}"
            yield Problem(f"{pool.program_path}.imageUri", text, f'write python: "3.{least[1]}" under trainer.build')


RULES = (
    Rule("image-lock", Severity.INFO, "An image of the project's own trainer has a lock file.", BUILT, image_lock),
    Rule(
        "image-python",
        Severity.ERROR,
        "An image of the project's own trainer has the Python that it needs.",
        BUILT,
        image_python,
    ),
)
