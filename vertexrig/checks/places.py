"""What many checks ask of a document beside its pools: what was refused already, how long a duration is."""

from __future__ import annotations

from vertexrig.finding import Severity
from vertexrig.spec.document import Document


def told(document: Document, path: str) -> bool:
    """Whether the strict reading already refused what belongs at `path`: the value, one around it, or a misspelt key.

    A check that misses a value must stay silent then, or one mistake would be reported twice.
    """
    places = [path]
    while "." in places[-1]:
        places.append(places[-1].rpartition(".")[0])
    for finding in document.findings:
        if finding.severity is not Severity.ERROR:
            continue
        for place in places:
            parent, _, key = place.rpartition(".")
            near_miss = finding.id == "unknown-field" and finding.fix == f"write {key}"
            if finding.path in (place, "") or (near_miss and finding.path.rpartition(".")[0] == parent):
                return True
    return False
