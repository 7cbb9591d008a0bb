"""What the rules about studies share: their sources, the parameters of a document, what was refused already."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.places import told
from vertexrig.finding import Severity
from vertexrig.spec import parameters as written
from vertexrig.spec.document import Document
from vertexrig.spec.parameters import Parameter

__all__ = ["OVERVIEW_DOC", "REST_JOB", "REST_STUDY", "Parameter", "parameters", "refused", "top_parameters"]

REST_STUDY = "REST reference v1 of StudySpec and its types (copy of 2026-08-22)"
REST_JOB = "REST reference v1 of HyperparameterTuningJob (copy of 2026-08-22)"
OVERVIEW_DOC = "hyperparameter-tuning-overview page (copy of 2026-08-22)"


def top_parameters(document: Document) -> list[Parameter]:
    """The study's parameters that are active in every trial."""
    return written.top((document.study or {}).get("parameters", ()))


def parameters(document: Document) -> Iterator[Parameter]:
    """Every parameter of the study, in the order of the file, conditional ones after their parent."""
    return written.everywhere(top_parameters(document))


def refused(document: Document, path: str) -> bool:
    """Whether the strict reading refused `path`, what is around it, or something in it: no rule says it again then."""
    if told(document, path):
        return True
    inside = (f"{path}.", f"{path}[")
    errors = (found.path for found in document.findings if found.severity is Severity.ERROR)
    return any(found.startswith(inside) for found in errors)
