"""What the service requires of the folders that requests name: the location of the bucket, and a model's file."""

from __future__ import annotations

import re
import sys

from localvertex.http import precondition
from localvertex.storage import ObjectStore
from localvertex.storage.resources import MULTI_REGIONS
from localvertex.storage.store import Query

_GOOGLES = re.compile(r"(?:(?:us|europe|asia)-docker\.pkg\.dev/vertex-ai|gcr\.io/cloud-aiplatform)/prediction/")
_PREBUILT = re.compile(rf"{_GOOGLES.pattern}(pytorch|sklearn|tf2?)-[cg]pu\.")
_SAVED_MODEL = ("saved_model.pb", "saved_model.pbtxt")
_MODEL_FILES = {
    "pytorch": ("model.mar",),
    "sklearn": ("model.pkl", "model.joblib"),
    "tf": _SAVED_MODEL,
    "tf2": _SAVED_MODEL,
}
"""By kind of prebuilt prediction image: the files of which a model's folder has one. Public reports quote these three lists alone."""


def require_regional(objects: ObjectStore, uri: str, parent: str) -> None:
    """Refuse a gs:// folder in a bucket that was made in a multi-region (python-aiplatform issue 885).

    A bucket without a location is accepted: folders of this machine are such buckets.
    """
    bucket, _ = _split(uri)
    if not objects.files.has_bucket(bucket):
        return
    location, region = str(objects.bucket(bucket).meta.get("location", "")), parent.rpartition("/")[2]
    if location.upper() in MULTI_REGIONS:
        raise precondition(
            f"The Cloud Storage bucket of `{uri}` is in location `{location.lower()}`. "
            f"It must be in the same regional location as the service location `{region}`."
        )


def is_prebuilt(image: str) -> bool:
    """Whether an image is one of Google's for predictions."""
    return _GOOGLES.match(image) is not None


def has_files(objects: ObjectStore, uri: str) -> bool:
    """Whether a gs:// folder has objects, also those whose names are no paths, such as `model//model.joblib`."""
    bucket, folder = _split(uri)
    return objects.files.has_bucket(bucket) and bool(objects.list(bucket, Query(prefix=folder, limit=1)).items)


def require_model_file(objects: ObjectStore, uri: str, image: str) -> None:
    """Refuse a model's folder without exactly one of the files that a prebuilt prediction image reads.

    A folder that holds nothing here is not looked at.
    """
    bucket, folder = _split(uri)
    prebuilt = _PREBUILT.match(image)
    if prebuilt is None or not has_files(objects, uri):
        return
    files = _MODEL_FILES[prebuilt[1]]
    if sum(objects.files.stamp(bucket, f"{folder}{name}", odd=False) is not None for name in files) != 1:
        raise precondition(f"Model directory {uri} is expected to contain exactly one of: [{', '.join(files)}].")


def copy_folder(objects: ObjectStore, uri: str, to: str) -> None:
    """Copy all objects of a gs:// folder into another one."""
    (bucket, folder), (target, prefix) = _split(uri), _split(to)
    for found in objects.list(bucket, Query(prefix=folder, limit=sys.maxsize)).items:
        objects.copy(found, target, prefix + found.name.removeprefix(folder), None)


def _split(uri: str) -> tuple[str, str]:
    """Return the bucket of a gs:// folder, "" for another address, and the prefix of the objects in the folder."""
    bucket, _, folder = uri.removeprefix("gs://").partition("/") if uri.startswith("gs://") else ("", "", "")
    return bucket, f"{folder.rstrip('/')}/" if folder.strip("/") else ""
