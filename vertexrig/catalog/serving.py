"""Prebuilt images that serve a TensorFlow SavedModel, with their dates.

Source: "Prebuilt containers for inference and explanations", table TensorFlow
(https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/pre-built-containers, copy of
2026-08-22 in apstndb/gemini-enterprise-agent-platform-docs-mirror@a1850260). Of versions before 2.14 the page lists no image any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

SOURCE = "prebuilt containers for inference (copy of 2026-08-22)"


@dataclass(frozen=True)
class ServingImage:
    """An image for inference.

    Args:
        version: TensorFlow's version, `2.15`.
        kind: "cpu" or "gpu".
        end_of_support: ISO date after which no new versions are published.
        end_of_availability: ISO date after which it may be gone.
    """

    version: str
    kind: str
    end_of_support: str
    end_of_availability: str

    def uri(self, host: str = "us-docker.pkg.dev") -> str:
        """The full URI on one of the three hosts."""
        return f"{host}/vertex-ai/prediction/tf2-{self.kind}.{self.version.replace('.', '-')}:latest"

    def dates(self, today: date) -> str:
        """Its dates in words."""
        gone = self.end_of_availability < today.isoformat()
        support = "ended" if self.end_of_support < today.isoformat() else "ends"
        return f"support {support} {self.end_of_support}, {'not available since' if gone else 'available until'} {self.end_of_availability}"


IMAGES = tuple(
    ServingImage(version, kind, support, availability)
    for version, support, availability in (("2.15", "2026-07-14", "2027-01-14"), ("2.14", "2026-01-14", "2027-01-14"))
    for kind in ("cpu", "gpu")
)
"""Newest first."""


def serving_image(version: str | None, kind: str = "cpu") -> ServingImage:
    """The image for a model that a version of TensorFlow saved: of the same version, otherwise the nearest newer one, otherwise the newest."""
    fitting = [image for image in IMAGES if image.kind == kind]
    if version is None:
        return fitting[0]
    wanted = _number(version)
    newer = [image for image in fitting if _number(image.version) >= wanted]
    return min(newer, key=lambda image: _number(image.version), default=fitting[0])


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
