"""Objects as files on disk: generations, preconditions, odd names, and files that change behind the store's back."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localvertex.http import ApiError, Json
from localvertex.storage import ObjectStore
from localvertex.storage.conditions import Conditions
from localvertex.storage.names import check_object, is_bucket
from localvertex.storage.store import ANY, Query
from localvertex.storage.stored import Object


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "root")
    store.create_bucket("bkt")
    return store


def names(store: ObjectStore, **query: object) -> list[str]:
    return [item.name for item in store.list("bkt", Query(**query)).items]  # type: ignore[arg-type]


def put(store: ObjectStore, name: str, data: bytes, meta: Json | None = None, conditions: Conditions = ANY) -> Object:
    source = store.files.temp()
    source.write_bytes(data)
    return store.put("bkt", name, source, meta, conditions)


def read(store: ObjectStore, name: str) -> bytes:
    import os

    _, descriptor = store.open(store.get("bkt", name))
    with os.fdopen(descriptor, "rb") as data:
        return data.read()


def test_an_object_is_a_plain_file(store: ObjectStore) -> None:
    """An object's bytes stand in a file at its own path under the bucket's folder."""
    put(store, "a/b/c.txt", b"hi")
    assert (store.files.bucket("bkt") / "a/b/c.txt").read_bytes() == b"hi"


def test_a_file_written_by_a_trainer_is_an_object(store: ObjectStore) -> None:
    """A file that appears is listed and described; one that changes gets a new generation; one that goes is gone."""
    path = store.files.bucket("bkt") / "model/summary.json"
    path.parent.mkdir()
    path.write_text("{}")
    first = store.digested(store.get("bkt", "model/summary.json"))
    assert first.meta["contentType"] == "application/json" and first.md5 == "mZFLkyvTelC5g8XnyQrpOw=="
    assert names(store) == ["model/summary.json"]
    path.write_text('{"accuracy": 1}')
    second = store.get("bkt", "model/summary.json")
    assert second.generation > first.generation and second.crc32c is None
    path.unlink()
    assert names(store) == [] and store.find("bkt", "model/summary.json") is None


def test_an_overwrite_on_disk_breaks_a_generation_condition(store: ObjectStore) -> None:
    """A write that relies on the generation it read fails once the file changed behind the store's back."""
    made = put(store, "a", b"one")
    (store.files.bucket("bkt") / "a").write_bytes(b"two!")
    with pytest.raises(ApiError) as refused:
        put(store, "a", b"three", conditions=Conditions(generation_match=made.generation))
    assert refused.value.code == 412 and read(store, "a") == b"two!"


def test_read_modify_write_loses_nothing(store: ObjectStore) -> None:
    """Threads that increment a number with ifGenerationMatch and try again on 412 lose no increment."""
    put(store, "n", b"0")

    def increment() -> None:
        for _ in range(5):
            while True:
                old, _ = store.get("bkt", "n"), None
                value = int(read(store, "n"))
                try:
                    put(store, "n", str(value + 1).encode(), conditions=Conditions(old.generation))
                    break
                except ApiError as error:
                    assert error.code == 412

    threads = [threading.Thread(target=increment) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(store, "n") == b"30"


@pytest.mark.parametrize(
    ("conditions", "absent", "present"),
    [
        ({"ifGenerationMatch": "0"}, None, 412),
        ({"ifGenerationMatch": "1"}, 412, 412),
        ({"ifGenerationMatch": "LIVE"}, 412, None),
        ({"ifGenerationNotMatch": "0"}, 304, None),
        ({"ifGenerationNotMatch": "LIVE"}, None, 304),
        ({"ifMetagenerationMatch": "1"}, 412, None),
        ({"ifMetagenerationMatch": "2"}, 412, 412),
        ({"ifMetagenerationNotMatch": "1"}, None, 304),
        ({"ifMetagenerationNotMatch": "2"}, None, None),
    ],
)
def test_preconditions(store: ObjectStore, conditions: dict[str, str], absent: int | None, present: int | None) -> None:
    """Each precondition holds and fails on a write as documented, with and without a live object."""
    live = put(store, "there", b"x")
    values = {key: value.replace("LIVE", str(live.generation)) for key, value in conditions.items()}
    for name, code in (("missing", absent), ("there", present)):
        try:
            put(store, name, b"y", conditions=Conditions.of(values))
            assert code is None, name
        except ApiError as error:
            assert error.code == code, name


ODD = [
    "a//b",
    "dir/",
    "/",
    "//",
    "../x",
    "x/../../y",
    "./z",
    "a/./b",
    "nul\0byte",
    "long/" + "x" * 300,
    "ü",
    " ",
    "a\\b",
]


def test_names_that_cannot_be_paths(store: ObjectStore) -> None:
    """Names that are no paths, or a prefix of another, keep their bytes, and nothing is written outside the folders."""
    every = [*ODD, "p", "p/q", "p/q/r"]
    for name in every:
        put(store, name, name.encode())
    assert sorted(every) == names(store)
    assert all(read(store, name) == name.encode() for name in every)
    root = store.files.buckets.parent
    assert {path.name for path in root.iterdir()} == {"gs", "storage"}
    assert {path.name for path in root.parent.iterdir()} == {"root"}
    for name in every:
        store.delete("bkt", name)
    store.delete_bucket("bkt")
    assert list(store.files.buckets.iterdir()) == []


def test_a_file_frees_the_way_for_a_folder(store: ObjectStore) -> None:
    """When `a` goes, `a/b` written before it can be read still, and the next write of it is a plain file."""
    put(store, "a", b"1")
    put(store, "a/b", b"2")
    store.delete("bkt", "a")
    assert read(store, "a/b") == b"2"
    put(store, "a/b", b"3")
    assert (store.files.bucket("bkt") / "a/b").read_bytes() == b"3" and names(store) == ["a/b"]


def test_symbolic_links_lead_nowhere(store: ObjectStore, tmp_path: Path) -> None:
    """A symbolic link in a bucket is no object, and nothing is read or written through it."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    folder = store.files.bucket("bkt")
    (folder / "link").symlink_to(secret / "key")
    (folder / "dir").symlink_to(secret)
    (store.files.buckets / "other").symlink_to(secret)
    assert names(store) == [] and store.find("bkt", "link") is None and store.find("bkt", "dir/key") is None
    with pytest.raises(ApiError):
        store.bucket("other")
    put(store, "dir/new", b"x")
    put(store, "link", b"y")
    assert sorted(p.name for p in secret.iterdir()) == ["key"] and (secret / "key").read_text() == "secret"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("ab/.", min_size=1, max_size=6), min_size=1, max_size=8, unique=True), st.data())
def test_a_listing_is_what_was_put(
    tmp_path_factory: pytest.TempPathFactory, every: list[str], data: st.DataObject
) -> None:
    """Whatever the names, a listing in pages of any size gives each object once, in order, and the prefixes."""
    store = ObjectStore(tmp_path_factory.mktemp("root"))
    store.create_bucket("bkt")
    every = [name for name in every if name not in (".", "..")]
    for name in every:
        put(store, name, name.encode())
    prefix = data.draw(st.sampled_from(["", "a", "a/", "b/", "/"]))
    delimiter = data.draw(st.sampled_from(["", "/", "b"]))
    limit = data.draw(st.integers(1, 4))
    items, prefixes, token = [], [], ""
    while True:
        page = store.list("bkt", Query(prefix=prefix, delimiter=delimiter, limit=limit, after=token))
        assert len(page.items) + len(page.prefixes) <= limit
        items += [item.name for item in page.items]
        prefixes += page.prefixes
        token = page.token
        if not token:
            break
    chosen = sorted(name for name in every if name.startswith(prefix))
    rest = {name: name[len(prefix) :] for name in chosen}
    grouped = {n: prefix + r.split(delimiter)[0] + delimiter for n, r in rest.items() if delimiter and delimiter in r}
    assert items == [name for name in chosen if name not in grouped]
    assert prefixes == sorted(set(grouped.values()))
    store.close()


@given(st.text(max_size=80))
def test_bucket_names_are_safe_folders(name: str) -> None:
    """A name that passes for a bucket is one harmless path component."""
    if is_bucket(name):
        assert "/" not in name and not name.startswith(".") and ".." not in name and name.isascii()


@given(st.text(max_size=2000))
def test_object_names_are_judged_not_crashed_on(name: str) -> None:
    """Any text is accepted or refused with a 400."""
    try:
        check_object(name)
        assert 0 < len(name.encode("utf-8", "surrogatepass")) <= 1024
    except ApiError as error:
        assert error.code == 400


def test_what_was_stored_outlives_the_store(store: ObjectStore, tmp_path: Path) -> None:
    """A second store on the same folder sees the same object, its generation and its metadata."""
    made = put(store, "a", b"x", {"metadata": {"k": "v"}, "contentType": "text/x"})
    again = ObjectStore(tmp_path / "root")
    assert again.get("bkt", "a") == made


def test_compose_counts_parts(store: ObjectStore) -> None:
    """Composing joins bytes in order, adds up component counts, and leaves no temporary file."""
    a, b = (put(store, name, name.encode()) for name in ("a", "b"))
    first = store.compose("bkt", "ab", [a, b])
    second = store.compose("bkt", "abb", [first, b])
    assert read(store, "abb") == b"abb" and second.components == 3 and second.md5 is None
    assert list(store.files.scratch.iterdir()) == []


def test_pages_join_and_read_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of any length are the whole listing, also around names that a folder's slash sorts between; no record is read twice."""
    store = ObjectStore(tmp_path)
    store.create_bucket("bucket")
    names = ["a", "a b/c", "a!", "a-/x/y", "a.b", "b/c/d", "b/c.d", "b0", "b/c0/e", "é/a", "\U0001f600/a", "z/"]
    for name in names:
        source = store.files.temp()
        source.write_bytes(b"x")
        store.put("bucket", name, source)
    (tmp_path / "gs/bucket/b/written").write_bytes(b"by a job")
    wanted = sorted([*names, "b/written"], key=str.encode)
    read: list[str] = []
    whole = store.records.objects

    def seen(bucket: str, asked: Sequence[str]) -> dict[str, Object]:
        read.extend(asked)
        return whole(bucket, asked)

    monkeypatch.setattr(store.records, "objects", seen)
    for limit in (1, 2, 5, 100):
        found: list[str] = []
        token = ""
        read.clear()
        while True:
            page = store.list("bucket", Query(after=token, limit=limit))
            found += [one.name for one in page.items]
            token = page.token
            if not token:
                break
        assert found == wanted
        assert len(read) == len(set(read))


def test_a_name_of_googles_is_for_the_local_vertex_alone(tmp_path: Path) -> None:
    """A client's bucket cannot have one, and the bucket of a build's logs has one, as in the cloud."""
    store, name = ObjectStore(tmp_path), "1.cloudbuild-logs.googleusercontent.com"
    with pytest.raises(ApiError, match="Invalid bucket name"):
        store.create_bucket(name)
    assert store.create_bucket(name, reserved=True).name == name
