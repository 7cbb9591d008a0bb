"""The values every check works with: what it sees, what it yields, and the row that registers it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import date

from vertexrig.catalog import Catalog, Image
from vertexrig.catalog.value import dataclass
from vertexrig.finding import Severity
from vertexrig.package.source.model import TrainerSource
from vertexrig.spec.document import Document


@dataclass(frozen=True)
class BuiltImage:
    """An image that `vertexrig image` makes of the project's trainer.

    Args:
        row: What is in it, as for a prebuilt image.
        lock: Its lock file, relative to the project file.
        locked: Whether that is there.
        needs_python: The Python that the trainer's metadata asks for, such as `>=3.11`, "" if it asks for none.
    """

    row: Image
    lock: str
    locked: bool
    needs_python: str = ""


@dataclass(frozen=True)
class Context:
    """What a check may know beside the document.

    Args:
        catalog: Machines, accelerators, regions, images, prices and limits.
        region: The region the job will run in, "" if it is not known.
        today: The day that end dates are compared with.
        trainer: The trainer's source as read, None if it is not at hand.
        trainer_unused: Why the document does not run the trainer that was named; empty if it does, or none was named.
        built: Images of the project's own trainer, by URI.
    """

    catalog: Catalog
    region: str = ""
    today: date = field(default_factory=date.today)
    trainer: TrainerSource | None = None
    trainer_unused: str = ""
    built: Mapping[str, BuiltImage] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """One thing a check found: the path in API camelCase, the message, and what to write instead.

    `severity` is the rule's own unless given here. `key_fix` is what to write instead where the project file gives the value
    by a key of its own, if that differs by more than the spelling of fields.
    """

    path: str
    message: str
    fix: str = ""
    severity: Severity | None = None
    key_fix: str = ""


@dataclass(frozen=True)
class Rule:
    """One check: a row of a topic's `RULES` table.

    Args:
        id: The id that findings carry and that `silence` in the project file names.
        severity: How much a finding of it matters, unless the problem has its own.
        summary: What holds when nothing is found, in one sentence.
        source: Where the rule comes from, with its date.
        run: The function that looks.
    """

    id: str
    severity: Severity
    summary: str
    source: str
    run: Callable[[Document, Context], Iterable[Problem]]
