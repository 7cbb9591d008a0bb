"""Noncurrent generations of a bucket with versioning, its policy and its access control list, and names that are taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from localvertex.storage import ObjectStore, routes
from localvertex.storage.xml import BucketPaths, XmlApi
from vertexrig.guard import LoopbackGuard


@pytest.fixture
def store(tmp_path: Any) -> ObjectStore:
    return ObjectStore(tmp_path)


@pytest.fixture
def client(store: ObjectStore, serving: Any) -> Iterator[httpx.Client]:
    with serving(LoopbackGuard(BucketPaths(XmlApi(store), Starlette(routes=routes(store))))) as url:
        with httpx.Client(base_url=url, timeout=30, verify=False) as client:
            made = {"name": "old", "versioning": {"enabled": True}}
            assert client.post("/storage/v1/b?project=p", json=made).status_code == 200
            yield client


def put(client: httpx.Client, name: str, text: str) -> str:
    """Store an object, and return its generation."""
    query = {"uploadType": "media", "name": name}
    return str(client.post("/upload/storage/v1/b/old/o", params=query, content=text.encode()).json()["generation"])


def listed(client: httpx.Client, **asked: str) -> list[tuple[str, str, bool]]:
    items = client.get("/storage/v1/b/old/o", params=asked).json().get("items", [])
    return [(item["name"], item["generation"], "timeDeleted" in item) for item in items]


ITEM = "/storage/v1/b/old/o/a"


@pytest.mark.parametrize("name", ["a", "a//b", "dir/a"])
def test_what_is_replaced_and_deleted_stays(client: httpx.Client, store: ObjectStore, name: str) -> None:
    """Each generation is listed and read by its number, also after a restart, and is gone once it is deleted by it."""
    item = f"/storage/v1/b/old/o/{name.replace('/', '%2F')}"
    first, second = put(client, name, "one"), put(client, name, "two")
    assert listed(client) == [(name, second, False)]
    assert listed(client, versions="true") == [(name, first, True), (name, second, False)]
    assert client.delete(item).status_code == 204 and client.get(item).status_code == 404
    assert listed(client) == [] and listed(client, versions="true") == [(name, first, True), (name, second, True)]
    for generation, text in ((first, "one"), (second, "two")):
        assert client.get(item, params={"alt": "media", "generation": generation}).text == text
        shown = client.get(item, params={"generation": generation}).json()
        assert (shown["size"], shown["timeFinalized"]) == ("3", shown["timeCreated"])
    back = client.post(f"{item}/copyTo/b/old/o/back", params={"sourceGeneration": first})
    assert back.status_code == 200 and client.get("/storage/v1/b/old/o/back?alt=media").text == "one"
    assert ObjectStore(store.files.buckets.parent).get("old", name, generation=int(first)).md5
    assert client.delete(item, params={"generation": first}).status_code == 204
    assert client.get(item, params={"generation": first}).status_code == 404
    assert not store.files.kept("old", int(first)).exists()


def test_a_generation_that_is_deleted_by_its_number_does_not_stay(client: httpx.Client) -> None:
    """The live object deleted by its generation is gone for good; the condition of a request is that of the live object."""
    first = put(client, "a", "one")
    assert client.delete(ITEM, params={"ifGenerationMatch": "1"}).status_code == 412
    assert client.delete(ITEM, params={"generation": first}).status_code == 204
    assert listed(client, versions="true") == []


def test_without_versioning_nothing_stays(client: httpx.Client) -> None:
    """What was kept stays when versioning is turned off, and what is deleted then does not."""
    first = put(client, "a", "one")
    put(client, "a", "two")
    client.patch("/storage/v1/b/old", json={"versioning": {"enabled": False}})
    client.delete(ITEM)
    assert listed(client, versions="true") == [("a", first, True)]


def test_a_bucket_of_noncurrent_generations_is_not_empty(client: httpx.Client, store: ObjectStore) -> None:
    """It can be deleted only after they are, and a bucket of its name made later has none of them."""
    first = put(client, "a", "one")
    client.delete(ITEM)
    assert client.delete("/storage/v1/b/old").status_code == 409
    client.delete(ITEM, params={"generation": first})
    assert client.delete("/storage/v1/b/old").status_code == 204
    put_back = {"name": "old", "versioning": {"enabled": True}}
    client.post("/storage/v1/b?project=p", json=put_back)
    put(client, "a", "two")
    client.delete(ITEM)
    store.clear()
    assert not list(store.files.noncurrent.rglob("*"))


def test_folders_and_pages_of_versions(client: httpx.Client) -> None:
    """A folder of noncurrent generations alone is a prefix, and pages follow the names."""
    put(client, "dir/a", "one")
    client.delete("/storage/v1/b/old/o/dir%2Fa")
    put(client, "b", "one")
    answer = client.get("/storage/v1/b/old/o", params={"versions": "true", "delimiter": "/"}).json()
    assert (answer["prefixes"], [item["name"] for item in answer["items"]]) == (["dir/"], ["b"])
    assert "prefixes" not in client.get("/storage/v1/b/old/o?delimiter=/").json()
    page = client.get("/storage/v1/b/old/o", params={"versions": "true", "maxResults": "1"}).json()
    following = {"versions": "true", "pageToken": page["nextPageToken"]}
    assert [page["items"][0]["name"], listed(client, **following)[0][0]] == ["b", "dir/a"]


def test_a_noncurrent_generation_has_its_own_metadata(client: httpx.Client) -> None:
    """A change of one generation's metadata leaves the live object's."""
    first = put(client, "a", "one")
    put(client, "a", "two")
    client.patch(ITEM, params={"generation": first}, json={"metadata": {"k": "v"}})
    assert client.get(ITEM, params={"generation": first}).json()["metadata"] == {"k": "v"}
    assert "metadata" not in client.get(ITEM).json()


def members(client: httpx.Client, bucket: str) -> dict[str, list[str]]:
    found = client.get(f"/storage/v1/b/{bucket}/iam").json()["bindings"]
    return {one["role"].rpartition("/")[2]: one["members"] for one in found}


def test_a_policy_and_an_access_control_list_say_the_same(client: httpx.Client) -> None:
    """A legacy role of a policy is an entry of the list, and an entry that is made or removed is a member of the role."""
    where = "/storage/v1/b/old"
    policy = client.get(f"{where}/iam").json()
    policy["bindings"].append({"role": "roles/storage.objectViewer", "members": ["allUsers"]})
    policy["bindings"][1]["members"].append("serviceAccount:sa@p.iam.gserviceaccount.com")
    answer = client.put(f"{where}/iam", json={**policy, "version": 3})
    assert answer.headers["etag"] == answer.json()["etag"] and answer.json()["version"] == 1
    entries = client.get(f"{where}/acl").json()["items"]
    assert [(one["entity"].partition("-1")[0], one["role"]) for one in entries] == [
        ("project-editors", "OWNER"), ("project-owners", "OWNER"), ("project-viewers", "READER"), ("user-sa@p.iam.gserviceaccount.com", "READER"),
    ]  # fmt: skip
    client.post(f"{where}/acl", json={"entity": "user-a@b.c", "role": "WRITER"})
    assert members(client, "old")["storage.legacyBucketWriter"] == ["user:a@b.c"]
    client.delete(f"{where}/acl/user-a@b.c")
    found = members(client, "old")
    assert "storage.legacyBucketWriter" not in found and found["storage.objectViewer"] == ["allUsers"]
    assert found["storage.legacyBucketReader"] == ["projectViewer:p", "serviceAccount:sa@p.iam.gserviceaccount.com"]


def test_a_name_that_another_project_has_is_not_available(client: httpx.Client) -> None:
    """The refusal tells one's own bucket from another project's, where both are named by their ids."""
    texts = [
        client.post(f"/storage/v1/b?project={project}", json={"name": "old"}).json()["error"]["message"]
        for project in ("p", "123456789012", "q")
    ]
    assert texts[0] == texts[1] and texts[0].endswith("you already own it.")
    assert texts[2].startswith("The requested bucket name is not available. ")


def test_custom_metadata_are_headers_of_the_xml_api(client: httpx.Client) -> None:
    """The XML API sends them, in Latin-1 or quoted, and the JSON API does not."""
    put(client, "a", "one")
    client.patch(ITEM, json={"metadata": {"Token": "x", "name": "ß→"}})
    headers = client.get("/old/a").headers
    assert (headers["x-goog-meta-token"], headers["x-goog-meta-name"]) == ("x", "%C3%9F%E2%86%92")
    assert "x-goog-meta-token" not in client.get(ITEM, params={"alt": "media"}).headers


def test_a_rewrite_with_a_resource_keeps_no_content_type(client: httpx.Client) -> None:
    """The resource of a rewrite replaces all of the metadata."""
    put(client, "a", "one")
    client.patch(ITEM, json={"contentType": "text/csv", "metadata": {"a": "b"}})
    made = client.post(f"{ITEM}/rewriteTo/b/old/o/c", json={"storageClass": "COLDLINE"}).json()["resource"]
    assert (made["storageClass"], made.get("contentType"), made.get("metadata")) == ("COLDLINE", None, None)
    kept = client.post(f"{ITEM}/rewriteTo/b/old/o/c").json()["resource"]
    assert (kept["contentType"], kept["metadata"]) == ("text/csv", {"a": "b"})
