"""What the rules about studies share: their sources, and what the strict reading refused already."""

from __future__ import annotations

from vertexrig.checks.places import already_reported
from vertexrig.finding import Severity
from vertexrig.spec.document import Document

REST_STUDY = "REST reference v1 of StudySpec and its types (copy of 2026-08-22)"
REST_JOB = "REST reference v1 of HyperparameterTuningJob (copy of 2026-08-22)"
OVERVIEW_DOC = "hyperparameter-tuning-overview page (copy of 2026-08-22)"


def refused(document: Document, path: str) -> bool:
    """Whether the strict reading refused `path`, what is around it, or something in it: no rule reports it again then."""
    if already_reported(document, path):
        return True
    inside = (f"{path}.", f"{path}[")
    errors = (found.path for found in document.findings if found.severity is Severity.ERROR)
    return any(found.startswith(inside) for found in errors)
