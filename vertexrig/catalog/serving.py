"""Prebuilt images that serve a model, with their dates, and the file that each expects.

Sources: "Prebuilt containers for inference and explanations" and "Export model artifacts for inference and explanation"
(https://docs.cloud.google.com/gemini-enterprise-agent-platform/machine-learning/predictions/pre-built-containers and
…/training/exporting-model-artifacts, copies of 2026-08-22 in apstndb/gemini-enterprise-agent-platform-docs-mirror@a1850260). Of
versions that are not in the table the page lists no image any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType

SOURCE = "prebuilt containers for inference (copy of 2026-08-22)"


@dataclass(frozen=True)
class ServingImage:
    """An image for inference.

    Args:
        framework: tf, pytorch, sklearn or xgboost.
        version: The framework's version, `2.15`.
        kind: "cpu" or "gpu".
        end_of_support: ISO date after which no new versions are published.
        end_of_availability: ISO date after which it may be gone.
    """

    framework: str
    version: str
    kind: str
    end_of_support: str
    end_of_availability: str

    def uri(self, host: str = "us-docker.pkg.dev") -> str:
        """Return the full URI on one of the three hosts."""
        name = "tf2" if self.framework == "tf" else self.framework
        return f"{host}/vertex-ai/prediction/{name}-{self.kind}.{self.version.replace('.', '-')}:latest"

    def dates(self, today: date) -> str:
        """Return its dates in words."""
        gone = self.end_of_availability < today.isoformat()
        support = "ended" if self.end_of_support < today.isoformat() else "ends"
        return f"support {support} {self.end_of_support}, {'not available since' if gone else 'available until'} {self.end_of_availability}"


IMAGES = tuple(
    ServingImage(framework, version, kind, support, availability)
    for framework, version, kinds, support, availability in (
        ("tf", "2.15", "cpu gpu", "2026-07-14", "2027-01-14"),
        ("tf", "2.14", "cpu gpu", "2026-01-14", "2027-01-14"),
        ("pytorch", "2.4", "cpu gpu", "2026-07-14", "2027-01-14"),
        ("pytorch", "2.3", "cpu gpu", "2026-01-14", "2027-01-14"),
        ("pytorch", "2.2", "cpu gpu", "2026-01-14", "2027-01-14"),
        ("sklearn", "1.6", "cpu", "2026-10-14", "2027-10-14"),
        ("sklearn", "1.5", "cpu", "2026-07-14", "2027-01-14"),
        ("sklearn", "1.4", "cpu", "2026-01-14", "2027-01-14"),
        ("xgboost", "2.1", "cpu", "2026-07-14", "2027-01-14"),
        ("xgboost", "2.0", "cpu", "2026-01-14", "2027-01-14"),
    )
    for kind in kinds.split()
)
"""Newest first."""
SERVED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tf": ("saved_model.pb",),
        "pytorch": ("model.mar",),
        "sklearn": ("model.joblib",),
        "xgboost": ("model.bst", "model.joblib"),
    }
)
"""The file, one of these, that an image of the framework serves."""
NAMES: Mapping[str, str] = MappingProxyType(
    {"tf": "TensorFlow", "pytorch": "PyTorch", "xgboost": "XGBoost", "sklearn": "scikit-learn"}
)


def serving_image(framework: str, version: str, kind: str = "cpu") -> ServingImage:
    """Return the image for a model that a framework saved: of the same version, otherwise the nearest newer one, otherwise the newest.

    The version is "" if that is not known.
    """
    fitting = [image for image in IMAGES if (image.framework, image.kind) == (framework, kind)]
    if not version:
        return fitting[0]
    wanted = _number(version)
    newer = [image for image in fitting if _number(image.version) >= wanted]
    return min(newer, key=lambda image: _number(image.version), default=fitting[0])


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
