"""The real gcloud and google-cloud-storage against the local Cloud Storage."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localvertex.storage import ObjectStore, routes
from tests.support.web import http

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "root")


@pytest.fixture
def url(store: ObjectStore, serve: Callable[..., str]) -> str:
    return serve(routes(store))


@pytest.mark.whole
def test_gcloud_storage(gcloud: Command, store: ObjectStore, url: str, tmp_path: Path) -> None:
    """Gcloud storage makes a bucket, copies up (simple and resumable) and down, lists, prints, moves and removes."""
    big = os.urandom(9 * 1024 * 1024)
    (tmp_path / "small.txt").write_text("hello\n")
    (tmp_path / "big.bin").write_bytes(big)
    gcloud("storage", "buckets", "create", "gs://bkt", "--location=us-central1", url=url)
    gcloud("storage", "cp", "small.txt", "big.bin", "gs://bkt/dir/", url=url)
    assert (store.files.bucket("bkt") / "dir/big.bin").read_bytes() == big
    assert gcloud("storage", "ls", "gs://bkt/dir", url=url).stdout.split() == [
        "gs://bkt/dir/big.bin",
        "gs://bkt/dir/small.txt",
    ]
    assert gcloud("storage", "cat", "gs://bkt/dir/small.txt", url=url).stdout == "hello\n"
    gcloud("storage", "cp", "gs://bkt/dir/big.bin", "back.bin", url=url)
    assert (tmp_path / "back.bin").read_bytes() == big
    gcloud("storage", "mv", "gs://bkt/dir/small.txt", "gs://bkt/moved.txt", url=url)
    gcloud("storage", "rm", "-r", "gs://bkt/dir", url=url)
    assert [one.name for one in store.files.bucket("bkt").iterdir()] == ["moved.txt"]
    gcloud("storage", "rm", "-r", "gs://bkt", url=url)
    assert not store.files.has_bucket("bkt")


def test_google_cloud_storage(store: ObjectStore, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """google-cloud-storage uploads, claims, reads ranges, lists, copies, composes, patches and batches."""
    from google.api_core.exceptions import NotFound, PreconditionFailed
    from google.cloud import storage

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    client = storage.Client(project="my-project")
    bucket = client.create_bucket("bkt")
    claim = bucket.blob("claims/1")
    claim.metadata = {"k": "v"}
    claim.upload_from_string("mine", if_generation_match=0)
    with pytest.raises(PreconditionFailed):
        bucket.blob("claims/1").upload_from_string("yours", if_generation_match=0)
    data = os.urandom(2 * 1024 * 1024 + 7)
    (tmp_path / "big").write_bytes(data)
    big = bucket.blob("big", chunk_size=256 * 1024)
    big.upload_from_filename(str(tmp_path / "big"))
    assert big.download_as_bytes() == data and bucket.blob("big").download_as_bytes(start=5, end=9) == data[5:10]
    bucket.blob("empty").upload_from_string("")
    bucket.blob("empty", chunk_size=256 * 1024).download_to_filename(str(tmp_path / "empty"))
    assert (tmp_path / "empty").read_bytes() == b""
    bucket.blob("empty").delete()
    with bucket.blob("stream").open("wb") as out:
        out.write(data)
    assert (store.files.bucket("bkt") / "stream").read_bytes() == data
    for name in ("a//b", "dir/", "../x", "claims/1/deep", "ü/ x?#%2F"):
        bucket.blob(name).upload_from_string(name)
        assert bucket.blob(name).download_as_text() == name
    whole = client.list_blobs(bucket, delimiter="/")
    assert [blob.name for blob in whole] == ["big", "stream"]
    assert whole.prefixes == {"../", "a/", "claims/", "dir/", "ü/"}
    bucket.rename_blob(bucket.copy_blob(claim, bucket, "copied"), "renamed")
    composed = bucket.blob("composed")
    composed.compose([claim, bucket.blob("renamed")])
    assert composed.download_as_text() == "minemine" and composed.component_count == 2
    claim.metadata = {"k": None, "z": "1"}
    claim.patch()
    assert bucket.get_blob("claims/1").metadata == {"z": "1"}
    with client.batch():
        for name in ("renamed", "composed"):
            bucket.blob(name).delete()
    with pytest.raises(NotFound):
        bucket.blob("renamed").reload()
    assert bucket.get_blob("none") is None and client.lookup_bucket("none") is None
    bucket.delete(force=True)
    assert list(client.list_buckets()) == []


def test_a_buckets_policy(store: ObjectStore, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """google-cloud-storage sets a bucket's IAM policy and reads it back; one read before another's change is refused."""
    from google.api_core import exceptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud.storage import Client

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
    store.create_bucket("bkt")
    bucket = Client(project="my-project", credentials=AnonymousCredentials()).bucket("bkt")
    stale, policy = bucket.get_iam_policy(), bucket.get_iam_policy()
    assert [one["role"] for one in policy.bindings] == [
        "roles/storage.legacyBucketOwner",
        "roles/storage.legacyBucketReader",
    ]
    policy.bindings = [{"role": "roles/storage.objectViewer", "members": {"user:A@example.com"}}]
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"user:a@example.com"}})
    bucket.set_iam_policy(policy)
    kept = bucket.get_iam_policy()
    assert kept.bindings == [{"role": "roles/storage.objectViewer", "members": {"user:a@example.com"}}]
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(stale)
    wrong = http.put(f"{url}/storage/v1/b/bkt/iam", json={"bindings": [{"members": ["a"]}]})
    assert wrong.status_code == 400 and "'role'" in wrong.json()["error"]["message"]
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
    bucket.delete()
    store.create_bucket("bkt")
    assert len(bucket.get_iam_policy().bindings) == 2, "a new bucket of the name has its own"


def test_policies_as_the_service_keeps_them(store: ObjectStore, url: str) -> None:
    """Bindings of one role are one, conditions are shown to clients that know them, and the public is kept out where that is enforced."""
    uniform = {
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}, "publicAccessPrevention": "enforced"}
    }
    http.post(f"{url}/storage/v1/b?project=pr", json={"name": "pol", **uniform})
    where = f"{url}/storage/v1/b/pol/iam"
    policy = http.get(where).json()
    assert len(policy["bindings"]) == 4
    assert policy["bindings"][1] == {"role": "roles/storage.legacyBucketReader", "members": ["projectViewer:pr"]}
    viewer, condition = {"role": "roles/storage.objectViewer"}, {"title": "always", "expression": "true"}
    bindings = [{**viewer, "members": ["user:A@b.c"]}, {**viewer, "members": ["user:a@B.c", "serviceAccount:X@y"]}]
    bindings += [
        {"role": "roles/storage.admin", "members": []},
        {**viewer, "members": ["user:d@e"], "condition": condition},
    ]
    kept = http.put(where, json={"version": 3, "bindings": bindings}).json()
    assert kept["bindings"][0]["members"] == ["serviceAccount:x@y", "user:a@b.c"] and len(kept["bindings"]) == 2
    shown = http.get(where).json()
    assert (shown["version"], "condition" in shown["bindings"][1]) == (1, False)
    assert shown["bindings"][1]["role"].startswith("roles/storage.objectViewer_withcond_")
    assert http.get(where, params={"optionsRequestedPolicyVersion": 3}).json()["bindings"][1]["condition"] == condition
    assert http.put(where, json={"bindings": [{**viewer, "members": ["allUsers"]}]}).status_code == 412
