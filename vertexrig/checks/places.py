"""What the strict reading already refused, so that no check reports it again."""

from __future__ import annotations

from vertexrig.errors import meant
from vertexrig.finding import Severity
from vertexrig.spec.document import Document
from vertexrig.spec.strict import stem


def already_reported(document: Document, path: str) -> bool:
    """Whether the strict reading already refused what belongs at `path`: the value, one around it, or a misspelt key.

    A check that misses a value then finds nothing, so that one mistake is reported once.
    """
    places = [path]
    while "." in places[-1]:
        places.append(places[-1].rpartition(".")[0])
    for finding in document.findings:
        if finding.severity is not Severity.ERROR:
            continue
        # "" is a finding on the file as a whole
        if finding.path in (*places, ""):
            return True
        if finding.id == "unknown-field":  # misspelt, or at a level too high
            parent, _, key = finding.path.rpartition(".")
            if path == key:
                return True  # it belongs at the top of the file
            above = [place for place in places if not parent or place.startswith(f"{parent}.")]
            if any(_same(key, place.rpartition(".")[2]) for place in above):
                return True
    return False


def refused(document: Document, path: str) -> bool:
    """Whether the strict reading refused `path`, what is around it, or something in it: no rule reports it again then."""
    if already_reported(document, path):
        return True
    inside = (f"{path}.", f"{path}[")
    errors = (found.path for found in document.findings if found.severity is Severity.ERROR)
    return any(found.startswith(inside) for found in errors)


def _same(written: str, key: str) -> bool:
    return stem(written) == stem(key) or meant(written, [key]) is not None
