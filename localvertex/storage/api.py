"""Buckets and objects of the Cloud Storage JSON API, without their bytes (see `media`)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localvertex.http import (
    ApiError,
    Endpoint,
    Json,
    endpoint,
    in_thread,
    invalid,
    missing_parameter,
    not_found,
    query_bool,
    query_int,
    read_json,
)
from localvertex.storage import media
from localvertex.storage.conditions import Conditions, whole_number
from localvertex.storage.names import base, conditions, generation, glob, object_of
from localvertex.storage.resources import (
    BUCKET_FIELDS,
    EVENTS,
    LAST_NOTIFICATION,
    NOTIFICATION_FIELDS,
    NOTIFICATIONS,
    OBJECT_FIELDS,
    PROJECT,
    PROJECT_NUMBER,
    PROJECT_PRIVATE,
    Rules,
    acl,
    bucket_resource,
    check_policy,
    checked_acl,
    etag,
    is_uniform,
    merged,
    no_acl,
    object_resource,
    predefined,
    self_base,
    whole,
    writable,
)
from localvertex.storage.store import NoBucketError, ObjectStore, Query
from localvertex.storage.stored import Bucket, Object

Values = Mapping[str, str]
MOST_SOURCES = 32
"""Of a compose request."""
MOST_ITEMS = 1000
"""Of a page (https://cloud.google.com/storage/docs/json_api/v1/objects/list, maxResults)."""


def _after(request: Request) -> str:
    """Return the name after which a listing continues."""
    return position_of(request.query_params.get("pageToken", ""))


def _limit(request: Request) -> int:
    """Return how many items a page has: the service's own limit, unless the client asks for fewer."""
    return min(query_int(request, "maxResults", default=MOST_ITEMS, high=2**31) or MOST_ITEMS, MOST_ITEMS)


def _without_condition(binding: Json) -> Json:
    """Return a binding as it is shown to a client that does not know conditions: its role has another name."""
    if "condition" not in binding:
        return binding
    tag = hashlib.sha1(json.dumps(binding["condition"], sort_keys=True).encode(), usedforsecurity=False).hexdigest()
    return {"role": f"{binding['role']}_withcond_{tag[:20]}", "members": binding["members"]}


def _check_project(request: Request) -> None:
    """Raise a 400 for a request that names no project."""
    if not request.query_params.get("project"):
        raise missing_parameter("project")


def _next(name: str) -> Json:
    return {"nextPageToken": token_of(name)} if name else {}


def token_of(name: str) -> str:
    """Return a page token as the service writes it: base64 of a message whose first field is the last name."""
    return base64.b64encode(StringValue(value=name).SerializeToString()).decode()


def position_of(token: str) -> str:
    """Return the name after which a page begins, "" for the first one; 400 for an invalid token."""
    try:
        name = str(StringValue.FromString(base64.b64decode(token, validate=True)).value)
    except (ValueError, DecodeError):
        name = "\0"
    if token and token_of(name) != token:
        raise invalid("Invalid argument.")
    return name


async def _change(request: Request, fields: Rules, bucket: Json | None = None) -> Callable[[Json], Json]:
    """Return what a PATCH does to the fields that are there, or a PUT, which replaces them all; `bucket` is the fields of an object's."""
    sent = writable(await read_json(request), fields)
    sent |= predefined(request.query_params, sent)

    def changed(meta: Json) -> Json:
        if (sent.get("acl") or sent.get("defaultObjectAcl")) and is_uniform(bucket or meta):
            raise no_acl("update", "a bucket" if bucket is None else "an object")
        kept = {key: meta[key] for key in _FIXED if key in meta}
        return merged(meta, sent) if request.method == "PATCH" else merged({}, sent) | kept

    return changed


_FIXED = ("location", "customPlacementConfig", "hierarchicalNamespace", NOTIFICATIONS, LAST_NOTIFICATION, PROJECT)
"""Fields of a bucket that an update leaves as they are."""


def _is_full(request: Request, usual: str = "") -> bool:
    """Whether an answer has ACLs and the owner: where they are asked for, and after a change unless `usual` is given."""
    usual = usual or ("noAcl" if request.method == "GET" else "full")
    return request.query_params.get("projection", usual) == "full"


def _bucket(request: Request, bucket: Bucket, usual: str = "") -> Json:
    """Return a bucket, with its ACLs where they are asked for; see `_is_full` for `usual`."""
    lists: Json = {}
    if _is_full(request, usual) and not is_uniform(bucket.meta):
        tag = etag(bucket.metageneration)
        lists["acl"] = acl(bucket.meta, "acl", {"bucket": bucket.name}, base(request), tag=tag)
        lists["defaultObjectAcl"] = acl(bucket.meta, "defaultObjectAcl", {}, tag=tag)
        lists["owner"] = {"entity": PROJECT_PRIVATE[0]["entity"]}
    return bucket_resource(bucket, base(request), lists)


def _place(o: Object) -> Json:
    return {"bucket": o.bucket, "object": o.name, "generation": str(o.generation)}


def _acl_place(owner: Bucket | Object, field: str) -> Json:
    """Return where an access control list is, as its entries say; those for new objects say nothing."""
    if field == "defaultObjectAcl":
        return {}
    return {"bucket": owner.name} if isinstance(owner, Bucket) else _place(owner)


def _tag(owner: Bucket | Object) -> str:
    return etag(owner.metageneration) if isinstance(owner, Bucket) else etag(owner.generation, owner.metageneration)


class StorageApi:
    """The handlers of the metadata endpoints, over one store."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    # -- buckets

    async def list_buckets(self, request: Request, values: Values) -> Response:
        _check_project(request)
        prefix = request.query_params.get("prefix", "")
        found, token = await in_thread(self.store.buckets, prefix, _after(request), _limit(request))
        items = [_bucket(request, bucket) for bucket in found]
        return JSONResponse({"kind": "storage#buckets", **({"items": items} if items else {}), **_next(token)})

    async def insert_bucket(self, request: Request, values: Values) -> Response:
        _check_project(request)
        body = await read_json(request)
        name = body.get("name")
        if not isinstance(name, str) or not name:
            raise ApiError(400, "Required field 'name' is missing.", reason="required")
        meta = whole(writable(body, BUCKET_FIELDS)) | {PROJECT: request.query_params["project"]}
        lists = predefined(request.query_params, meta)
        meta |= lists
        if lists and is_uniform(meta):
            raise no_acl("update", "a bucket")
        bucket = await in_thread(self.store.create_bucket, name, meta)
        # With a list of its own, a new bucket is shown in full (gcsfs's recording of 2020-03-10, and the reference).
        usual = "full" if "acl" in meta or "defaultObjectAcl" in meta else "noAcl"
        return JSONResponse(_bucket(request, bucket, usual))

    async def get_bucket(self, request: Request, values: Values) -> Response:
        bucket = await in_thread(self.store.bucket, values["bucket"], conditions(request))
        return JSONResponse(_bucket(request, bucket))

    async def change_bucket(self, request: Request, values: Values) -> Response:
        """buckets.patch and buckets.update."""
        change = await _change(request, BUCKET_FIELDS)
        bucket = await in_thread(self.store.change_bucket, values["bucket"], change, conditions(request))
        return JSONResponse(_bucket(request, bucket))

    async def lock_retention(self, request: Request, values: Values) -> Response:
        """buckets.lockRetentionPolicy."""
        if whole_number(request.query_params, "ifMetagenerationMatch") is None:
            raise missing_parameter("ifMetagenerationMatch")
        policy = (await in_thread(self.store.bucket, values["bucket"])).meta.get("retentionPolicy", {"isLocked": True})
        if policy.get("isLocked"):  # before the condition: a lock that is repeated is refused so
            raise invalid("Bucket does not have an unlocked Retention Policy to lock.")

        def locked(meta: Json) -> Json:
            return {**meta, "retentionPolicy": {**meta["retentionPolicy"], "isLocked": True}}

        bucket = await in_thread(self.store.change_bucket, values["bucket"], locked, conditions(request))
        return JSONResponse(_bucket(request, bucket))

    async def delete_bucket(self, request: Request, values: Values) -> Response:
        await in_thread(self.store.delete_bucket, values["bucket"], conditions(request))
        return Response(status_code=204)

    async def empty_list(self, request: Request, values: Values) -> Response:
        """Return an empty list: the local Vertex has no folders, managedFolders and anywhereCaches."""
        await in_thread(self.store.bucket, values["bucket"])
        return JSONResponse({"kind": f"storage#{values['kind']}"})

    # -- notifications: kept and shown, and nothing is sent

    async def insert_notification(self, request: Request, values: Values) -> Response:
        sent = whole(writable(await read_json(request), NOTIFICATION_FIELDS))
        # The service puts its own address before a topic's name (k8s-config-connector's recording of 2024-04).
        topic = re.sub(r"\A(?=projects/)", "//pubsub.googleapis.com/", str(sent.get("topic")))
        if not re.fullmatch(r"//pubsub\.googleapis\.com/projects/[^/]+/topics/[^/]+", topic):
            raise invalid(
                "Invalid Google Cloud Pub/Sub topic. It should look like '//pubsub.googleapis.com/projects/*/topics/*.'"
            )
        if sent.get("payload_format") not in ("JSON_API_V1", "NONE"):
            raise invalid("You must specify a payload format. Valid values are 'JSON_API_V1' and 'NONE'.")
        # In the service's order; an event that it does not know is left out.
        asked = sent.pop("event_types", [])
        events = [one for one in EVENTS if one in asked]
        sent |= {"topic": topic, **({"event_types": events} if events else {})}
        made = await in_thread(self.store.add_notification, values["bucket"], sent)
        return JSONResponse(self._notification(request, values["bucket"], made))

    def _notification(self, request: Request, bucket: str, own: Json) -> Json:
        link = f"{self_base(base(request))}/storage/v1/b/{bucket}/notificationConfigs/{own['id']}"
        shown = {key: own[key] for key in ("id", "topic", "custom_attributes", "etag", "event_types") if own.get(key)}
        shown |= {key: own[key] for key in ("object_name_prefix", "payload_format") if own.get(key)}
        return {"kind": "storage#notification", "selfLink": link, **shown}

    async def list_notifications(self, request: Request, values: Values) -> Response:
        found = (await in_thread(self.store.bucket, values["bucket"])).meta.get(NOTIFICATIONS, [])
        items = [self._notification(request, values["bucket"], one) for one in found]
        return JSONResponse({"kind": "storage#notifications", **({"items": items} if items else {})})

    async def get_notification(self, request: Request, values: Values) -> Response:
        found = await in_thread(self.store.notification, values["bucket"], values["notification"])
        return JSONResponse(self._notification(request, values["bucket"], found))

    async def delete_notification(self, request: Request, values: Values) -> Response:
        await in_thread(self.store.delete_notification, values["bucket"], values["notification"])
        return Response(status_code=204)

    # -- access control lists

    async def list_acl(self, request: Request, values: Values) -> Response:
        """List bucketAccessControls, defaultObjectAccessControls or objectAccessControls."""
        owner, field = await self._of_acl(request, values), values.get("list", "acl")
        items = acl(owner.meta, field, _acl_place(owner, field), base(request), tag=_tag(owner))
        kind = items[0]["kind"] if items else "storage#objectAccessControl"
        return JSONResponse({"kind": f"{kind}s", **({"items": items} if items else {})})

    async def _of_acl(self, request: Request, values: Values) -> Bucket | Object:
        """Return what has the access control list of a request; 400 where the bucket rules out lists."""
        bucket: Bucket = await in_thread(self.store.bucket, values["bucket"])
        if is_uniform(bucket.meta):
            verb = "get" if request.method == "GET" else "update"
            raise no_acl(verb, "an object" if "object" in values else "a bucket")
        return await in_thread(self.store.get, *object_of(values)) if "object" in values else bucket

    async def acl_entry(self, request: Request, values: Values) -> Response:
        """Get, insert, replace or delete an entry of an access control list."""
        owner = await self._of_acl(request, values)
        sent = await read_json(request) if request.method in ("POST", "PUT", "PATCH") else {}
        field, entity = values.get("list", "acl"), values.get("entity") or str(sent.get("entity") or "")
        present = next((one for one in owner.meta.get(field, PROJECT_PRIVATE) if one["entity"] == entity), None)
        if request.method in ("GET", "DELETE") and present is None:
            raise not_found("The specified key does not exist.")
        made = present
        if request.method in ("POST", "PUT", "PATCH"):
            role = sent.get("role") or (request.method == "PATCH" and (present or {}).get("role"))
            rule = {"entity": entity, "role": role}
            made = checked_acl([rule], of_bucket=isinstance(owner, Bucket) and field == "acl")[0]
            entity = made["entity"]
        is_owner = entity == PROJECT_PRIVATE[0]["entity"] and field == "acl" and request.method != "GET"
        if is_owner and (request.method == "DELETE" or (made or {})["role"] != "OWNER"):
            raise ApiError(403, "The owner of the resource is required to have OWNER access.")

        def change(meta: Json) -> Json:
            kept = [one for one in meta.get(field, PROJECT_PRIVATE) if one["entity"] != entity]
            return {**meta, field: kept if request.method == "DELETE" else [*kept, made]}

        if request.method != "GET" and isinstance(owner, Object):
            owner = await in_thread(self.store.change, owner.bucket, owner.name, change, conditions(request))
        elif request.method != "GET":
            owner = await in_thread(self.store.change_bucket, owner.name, change, conditions(request))
        if request.method == "DELETE":
            return Response(status_code=204)
        where = _acl_place(owner, field)
        return JSONResponse(acl({field: [made]}, field, where, base(request), tag=_tag(owner))[0])

    async def get_layout(self, request: Request, values: Values) -> Response:
        """buckets.getStorageLayout."""
        resource = bucket_resource(await in_thread(self.store.bucket, values["bucket"]), base(request))
        kept = {key: resource[key] for key in ("location", "locationType")}
        flat = {"hierarchicalNamespace": {"enabled": False}}
        return JSONResponse({"kind": "storage#storageLayout", "bucket": values["bucket"], **kept, **flat})

    async def get_policy(self, request: Request, values: Values) -> Response:
        found = await in_thread(self.store.policy, values["bucket"])
        if query_int(request, "optionsRequestedPolicyVersion", default=1) < 3:
            found |= {"version": 1, "bindings": [_without_condition(one) for one in found["bindings"]]}
        return JSONResponse({"kind": "storage#policy", **found})

    async def set_policy(self, request: Request, values: Values) -> Response:
        """buckets.setIamPolicy: kept, and no access depends on it."""
        sent = await read_json(request)
        check_policy(sent)
        kept = await in_thread(self.store.set_policy, values["bucket"], sent)
        return JSONResponse({"kind": "storage#policy", **kept})

    async def test_permissions(self, request: Request, values: Values) -> Response:
        """buckets.testIamPermissions: every permission is held."""
        await in_thread(self.store.bucket, values["bucket"])
        asked = request.query_params.getlist("permissions")
        return JSONResponse({"kind": "storage#testIamPermissionsResponse", "permissions": asked})

    async def service_account(self, request: Request, values: Values) -> Response:
        """projects.serviceAccount.get."""
        address = f"service-{PROJECT_NUMBER}@gs-project-accounts.iam.gserviceaccount.com"
        return JSONResponse({"kind": "storage#serviceAccount", "email_address": address})

    # -- objects

    async def _answer(self, request: Request, found: Object) -> Response:
        found = await in_thread(self.store.digested, found)
        return JSONResponse(await self._shown(request, found))

    async def _shown(self, request: Request, found: Object) -> Json:
        """Return an object, with its owner and its ACL where they are asked for; a copy has its owner alone (gcsfs's recording of a move)."""
        shown = object_resource(found, base(request))
        if _is_full(request):
            shown["owner"] = {"entity": PROJECT_PRIVATE[0]["entity"]}
            made = request.method == "POST" and "projection" not in request.query_params
            if not made and not is_uniform((await in_thread(self.store.bucket, found.bucket)).meta):
                shown["acl"] = acl(found.meta, "acl", _place(found), base(request), tag=shown["etag"])
        return shown

    async def list_objects(self, request: Request, values: Values) -> Response:
        asked = request.query_params
        query = Query(
            prefix=asked.get("prefix", ""),
            delimiter=asked.get("delimiter", ""),
            after=_after(request),
            limit=_limit(request),
            start=asked.get("startOffset", ""),
            end=asked.get("endOffset", ""),
            trailing=query_bool(request, "includeTrailingDelimiter"),
            versions=query_bool(request, "versions"),
            matching=glob(asked["matchGlob"]) if asked.get("matchGlob") else None,
        )
        # Nothing is deleted softly here.
        if query_bool(request, "softDeleted"):
            await in_thread(self.store.bucket, values["bucket"])
            return JSONResponse({"kind": "storage#objects"})
        page = await in_thread(self.store.list, values["bucket"], query)
        items = []
        for found in page.items:
            try:
                # Digests are part of a listing, and clients compare files by them: a file that a trainer wrote is
                # hashed when it is first listed.
                items.append(await self._shown(request, await in_thread(self.store.digested, found)))
            except ApiError:
                continue  # its file went away since the listing
        body: Json = {"kind": "storage#objects", **_next(page.token)}
        if page.prefixes:
            body["prefixes"] = page.prefixes
        if items:
            body["items"] = items
        return JSONResponse(body)

    async def get_object(self, request: Request, values: Values) -> Response:
        """objects.get, with or without alt=media."""
        if request.query_params.get("alt") == "media":
            return await media.download(self.store, request, values)
        found = await in_thread(self.store.get, *object_of(values), conditions(request), generation(request))
        media.check_etag(request, found)
        return await self._answer(request, found)

    async def change_object(self, request: Request, values: Values) -> Response:
        """objects.patch and objects.update."""
        where, wanted = object_of(values), generation(request)
        bucket = await in_thread(self.store.bucket, where.bucket)
        change = await _change(request, OBJECT_FIELDS, bucket.meta)
        changed = await in_thread(self.store.change, *where, change, conditions(request), wanted)
        return await self._answer(request, changed)

    async def restore_object(self, request: Request, values: Values) -> Response:
        """objects.restore: nothing is deleted softly here."""
        where, wanted = object_of(values), generation(request)
        if wanted is None or wanted <= 0:
            raise invalid("Invalid argument.")
        await in_thread(self.store.bucket, where.bucket)
        raise not_found(f"No such object: {where.bucket}/{where.name}")

    async def delete_object(self, request: Request, values: Values) -> Response:
        await in_thread(self.store.delete, *object_of(values), conditions(request), generation(request))
        return Response(status_code=204)

    async def _copied(self, request: Request, values: Values) -> Object:
        """Copy an object as copyTo and rewriteTo do."""
        source_name = object_of(values)
        target = object_of(values, bucket="to_bucket", name="to_object")
        body = await read_json(request)
        meta = whole(writable(body, OBJECT_FIELDS)) if body else None
        source = await in_thread(
            self.store.get,
            *source_name,
            conditions(request, source=True),
            whole_number(request.query_params, "sourceGeneration"),
        )
        return await in_thread(self.store.copy, source, *target, meta, conditions(request))

    async def copy_object(self, request: Request, values: Values) -> Response:
        return await self._answer(request, await self._copied(request, values))

    async def rewrite_object(self, request: Request, values: Values) -> Response:
        """objects.rewrite, always done in one call."""
        made = await self._copied(request, values)
        size = str(made.stamp.size)
        # Clients call again until `done`, for objects that the service copies in pieces.
        done = {"totalBytesRewritten": size, "objectSize": size, "done": True}
        return JSONResponse({"kind": "storage#rewriteResponse", **done, "resource": await self._shown(request, made)})

    async def move_object(self, request: Request, values: Values) -> Response:
        where = object_of(values)
        to = object_of(values, name="to_object")
        source = await in_thread(self.store.get, *where, conditions(request, source=True))
        return await self._answer(request, await in_thread(self.store.move, source, to.name, conditions(request)))

    async def compose_object(self, request: Request, values: Values) -> Response:
        where = object_of(values)
        body = await read_json(request)
        listed = body.get("sourceObjects")
        destination = body.get("destination", {})
        if not isinstance(listed, list) or not isinstance(destination, dict):
            raise invalid("Expected 'sourceObjects' to be a list and 'destination' an object.")
        if len(listed) > MOST_SOURCES:
            raise invalid(
                f"The number of source components provided ({len(listed)}) exceeds the maximum ({MOST_SOURCES})"
            )
        sources = [await self._source(where.bucket, item) for item in listed]
        meta = whole(writable(destination, OBJECT_FIELDS))
        made = await in_thread(self.store.compose, *where, sources, meta, conditions(request))
        # Without the owner of a copy's answer (gcsfs's recording of a merge).
        return JSONResponse(object_resource(made, base(request)))

    async def _source(self, bucket: str, item: object) -> Object:
        """Return one of a compose request's sources."""
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            raise invalid("Each of 'sourceObjects' needs a 'name'.")
        required = item.get("objectPreconditions") or {}
        if not isinstance(required, dict):
            raise invalid("Expected 'objectPreconditions' to be an object.")
        where = object_of({"bucket": bucket, "object": item["name"]})
        wanted = whole_number(item, "generation")
        try:
            return await in_thread(self.store.get, *where, Conditions.of(required), wanted)
        except NoBucketError:
            raise
        except ApiError as error:  # in these words on 2024-01-29 (kestra's plugin-gcp issue 319)
            if error.code == 404:
                raise not_found(f"Object {where.name} (generation: {wanted or 0}) not found.") from None
            raise

    def table(self) -> list[Endpoint]:
        """Return the routes below `/storage`."""
        bucket, item = "/v1/b/{bucket}", "/v1/b/{bucket}/o/{object}"
        to = "/b/{to_bucket}/o/{to_object}"
        empty = "/v1/b/{bucket}/(?P<kind>folders|managedFolders|anywhereCaches)"
        return [
            endpoint("GET", "/v1/b", self.list_buckets),
            endpoint("GET", "/v1/b/", self.list_buckets),  # as gcsfs 0.7.1 asks
            endpoint("POST", "/v1/b", self.insert_bucket),
            endpoint("POST", "/v1/b/", self.insert_bucket),
            endpoint("GET", bucket, self.get_bucket),
            endpoint("PATCH", bucket, self.change_bucket),
            endpoint("PUT", bucket, self.change_bucket),
            endpoint("DELETE", bucket, self.delete_bucket),
            endpoint("GET", empty, self.empty_list),
            endpoint("GET", bucket + "/(?P<list>acl|defaultObjectAcl)", self.list_acl),
            endpoint("GET", item + "/acl", self.list_acl),
            *(
                endpoint(method, f"{place}{'' if method == 'POST' else '/{entity}'}", self.acl_entry)
                for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
                for place in (bucket + "/(?P<list>acl|defaultObjectAcl)", item + "/acl")
            ),
            endpoint("POST", bucket + "/lockRetentionPolicy", self.lock_retention),
            endpoint("GET", bucket + "/storageLayout", self.get_layout),
            endpoint("GET", bucket + "/iam/testPermissions", self.test_permissions),
            endpoint("GET", bucket + "/iam", self.get_policy),
            endpoint("PUT", bucket + "/iam", self.set_policy),
            endpoint("GET", bucket + "/o/?", self.list_objects),  # with a slash as gcsfs asks
            endpoint("POST", item + "/restore", self.restore_object),
            endpoint("POST", bucket + "/notificationConfigs", self.insert_notification),
            endpoint("GET", bucket + "/notificationConfigs", self.list_notifications),
            endpoint("GET", bucket + "/notificationConfigs/{notification}", self.get_notification),
            endpoint("DELETE", bucket + "/notificationConfigs/{notification}", self.delete_notification),
            endpoint("POST", item + "/copyTo" + to, self.copy_object),
            endpoint("POST", item + "/rewriteTo" + to, self.rewrite_object),
            endpoint("POST", item + "/moveTo/o/{to_object}", self.move_object),
            endpoint("POST", item + "/compose", self.compose_object),
            endpoint("GET", item, self.get_object),
            endpoint("PATCH", item, self.change_object),
            endpoint("PUT", item, self.change_object),
            endpoint("DELETE", item, self.delete_object),
            endpoint("GET", "/v1/projects/{project}/serviceAccount", self.service_account),
        ]
