"""Deliberate breakages of the local Vertex, as a table: each replaces one function or text of the server while scripts run.

A score that rows give is worth what they notice; `tools.fidelity.mutation` says how many of these some row notices.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from localvertex.http import ApiError
from localvertex.runner.result import JobError
from vertexrig import times

_LOCAL = "localvertex."
_NEW = f"{_LOCAL}jobs.resources:new_body"
_MOVE = f"{_LOCAL}jobs.resources:move"
_FILLED = f"{_LOCAL}jobs.resources:filled"
_GET = f"{_LOCAL}jobs.manager:Jobs.get"
_ENV = "vertexrig.spec.cluster:service_environment"
_ENTRY = f"{_LOCAL}services.log_store:LogStore._body"
_PAYLOAD = f"{_LOCAL}services.log_store:_payload"
_SERVICE = f"{_LOCAL}runner.servicelog:"
_EXIT = f"{_LOCAL}runner.policy:exit_message"
_LISTED = f"{_LOCAL}jobs.validation:found_errors"
_ERROR = f"{_LOCAL}http:ApiError.body"
_QUOTA = f"{_LOCAL}jobs.manager:Jobs.missing_quota"
_TRIAL = "vertexrig.spec.trial:Trial.to_dict"
_SHOWN = f"{_LOCAL}jobs.studies:Studies.get"
_OPERATION = f"{_LOCAL}services.router:operation"
_STORED = f"{_LOCAL}storage.media:object_resource"
_BUCKET = f"{_LOCAL}storage.api:bucket_resource"
_DOWNLOAD = f"{_LOCAL}storage.media:"
_SCHEDULE = f"{_LOCAL}services.scheduler_api:complete"
_QUERY = f"{_LOCAL}services.logging_query:"
_LIST = f"{_LOCAL}jobs.listing:"
_LOCATION = f"{_LOCAL}services.locations:_shown"
_MADE = f"{_LOCAL}services.collection:Collection.add"

ASKED = ""
"""In place of a script: the rows with a request of their own."""


@dataclass(frozen=True)
class Breakage:
    """One change that some row should notice.

    Args:
        name: What is broken.
        where: Module and attribute, `module:Class.method`.
        change: Makes the broken one of the right one.
        scripts: Those that show it.
    """

    name: str
    where: str
    change: Callable[[Any], Any]
    scripts: tuple[str, ...] = ("plain",)


def _after(edit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change what a function returns."""
    return lambda right: lambda *args, **words: edit(right(*args, **words))


def _with(**fields: Any) -> Callable[[Any], Any]:
    return _after(lambda found: {**found, **fields})


def _without(*keys: str) -> Callable[[Any], Any]:
    return _after(lambda found: {key: value for key, value in found.items() if key not in keys})


def _on(key: str, edit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Change one field of what a function returns, where it is there."""
    return _after(lambda found: {**found, key: edit(found[key])} if key in found else found)


def _instead(value: Any) -> Callable[[Any], Any]:
    return lambda right: value


def _state(shown: str, instead: str) -> Callable[[Any], Any]:
    return _on("state", lambda state: instead if state == shown else state)


def _moved(edit: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Any], Any]:
    """Change a body after its state was set; the edit has the body before it, too."""

    def change(right: Any) -> Any:
        def broken(body: dict[str, Any], state: str, error: Any = None) -> Any:
            before = dict(body)
            ended = right(body, state, error)
            edit(body, before)
            return ended

        return broken

    return change


def _fine(key: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def edit(body: dict[str, Any], _: dict[str, Any]) -> None:
        if key in body:
            body[key] = body[key].replace("Z", ".123456Z") if "." not in body[key] else body[key]

    return edit


def _error(**fields: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    def edit(body: dict[str, Any], _: dict[str, Any]) -> None:
        if "error" in body:
            body["error"] = {**body["error"], **fields}

    return edit


def _frozen(body: dict[str, Any], before: dict[str, Any]) -> None:
    body["updateTime"] = before["updateTime"]


def _dropped(key: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda body, _: body.pop(key, None)


def _pools(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Any], Any]:
    return _on("workerPoolSpecs", lambda pools: [edit(dict(pool)) for pool in pools])


def _spec(name: str, edit: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    """Change what a variable holds as JSON."""
    return _on(name, lambda text: json.dumps(edit(json.loads(text)), separators=(",", ":")))


def _label(name: str) -> Callable[[Any], Any]:
    def edit(resource: dict[str, Any]) -> dict[str, Any]:
        return {**resource, "labels": {key: value for key, value in resource["labels"].items() if key != name}}

    return _on("resource", edit)


def _short(text: str) -> str:
    return times.rfc3339(times.parse(text), 3)


def _message(edit: Callable[[str], str]) -> Callable[[Any], Any]:
    """Change an ApiError's message."""

    def change(error: Any) -> Any:
        error.message = edit(error.message)
        return error

    return _after(change)


def _refused(edit: Callable[[str], str]) -> Callable[[Any], Any]:
    """Change the message of the ApiError that a function raises."""

    def change(right: Any) -> Any:
        def broken(*args: Any, **words: Any) -> Any:
            try:
                return right(*args, **words)
            except ApiError as error:
                error.message = edit(error.message)
                raise

        return broken

    return change


def _inside(key: str) -> Callable[[Any], Any]:
    return lambda found: {name: value for name, value in found.items() if name != key}


BREAKAGES = (
    Breakage("a new job has a field more", _NEW, _with(etag="x")),
    Breakage("a new job has no updateTime", _NEW, _without("updateTime")),
    Breakage("createTime has milliseconds", _NEW, _on("createTime", _short)),
    Breakage("a new job runs at once", _NEW, _with(state="JOB_STATE_RUNNING")),
    Breakage("labels are lost", _NEW, _without("labels")),
    Breakage("the display name is changed", _NEW, _on("displayName", str.upper)),
    Breakage("a name has the project's id", _NEW, _on("name", lambda name: name.replace(name.split("/")[1], "my-project"))),
    Breakage("updateTime is frozen", _MOVE, _moved(_frozen)),
    Breakage("startTime has microseconds", _MOVE, _moved(_fine("startTime"))),
    Breakage("endTime has microseconds", _MOVE, _moved(_fine("endTime"))),
    Breakage("there is no startTime", _MOVE, _moved(_dropped("startTime"))),
    Breakage("there is no endTime", _MOVE, _moved(_dropped("endTime"))),
    Breakage("every error.code is 13", _MOVE, _moved(_error(code=13)), ("failing",)),
    Breakage("a failed job has no error", _MOVE, _moved(_dropped("error")), ("failing",)),
    Breakage("an error has a field more", _MOVE, _moved(_error(status="INTERNAL")), ("failing",)),
    Breakage("a cancelled job's code is 13", _MOVE, _moved(_error(code=13)), ("cancelled", "waiting")),
    Breakage("CANCELLING is skipped", _GET, _state("JOB_STATE_CANCELLING", "JOB_STATE_RUNNING"), ("cancelled",)),
    Breakage("PENDING is shown as RUNNING", _NEW, _state("JOB_STATE_PENDING", "JOB_STATE_RUNNING")),
    Breakage("a job that is got has a field more", _GET, _with(kind="customJob")),
    Breakage("SUCCEEDED is shown as PARTIALLY_SUCCEEDED", _GET, _state("JOB_STATE_SUCCEEDED", "JOB_STATE_PARTIALLY_SUCCEEDED")),
    Breakage("the disk is not filled in", _FILLED, _pools(_inside("diskSpec"))),
    Breakage("the disk is pd-standard", _FILLED, _pools(lambda pool: {**pool, "diskSpec": {"bootDiskType": "pd-standard", "bootDiskSizeGb": 100}})),
    Breakage("replicaCount is a number", _FILLED, _pools(lambda pool: {**pool, "replicaCount": 1})),
    Breakage("a pool's fields are in another order", _FILLED, _pools(lambda pool: dict(reversed(pool.items())))),
    Breakage("a timeout is not enforced", f"{_LOCAL}runner.policy:duration_seconds", _instead(lambda text: 600.0), ("timed",)),
    Breakage("CLOUD_ML_JOB_ID is missing", _ENV, _without("CLOUD_ML_JOB_ID")),
    Breakage("CLOUD_ML_PROJECT_ID is missing", _ENV, _without("CLOUD_ML_PROJECT_ID")),
    Breakage("CLOUD_ML_REGION is another one", _ENV, _with(CLOUD_ML_REGION="europe-west4")),
    Breakage("CLOUD_ML_JOB is missing", _ENV, _without("CLOUD_ML_JOB"), ("container",)),
    Breakage("CLUSTER_SPEC is missing", _ENV, _without("CLUSTER_SPEC")),
    Breakage("CLUSTER_SPEC has blanks", _ENV, _on("CLUSTER_SPEC", lambda text: json.dumps(json.loads(text))), ("container",)),
    Breakage("CLUSTER_SPEC.job is an object", _ENV, _spec("CLUSTER_SPEC", lambda spec: {**spec, "job": json.loads(spec["job"])}), ("container",)),
    Breakage("CLUSTER_SPEC has no open_ports", _ENV, _spec("CLUSTER_SPEC", _inside("open_ports")), ("container",)),
    Breakage("CLUSTER_SPEC.environment is local", _ENV, _spec("CLUSTER_SPEC", lambda spec: {**spec, "environment": "local"})),
    Breakage("CLUSTER_SPEC.task has no index", _ENV, _spec("CLUSTER_SPEC", lambda spec: {**spec, "task": {"type": spec["task"]["type"]}}), ("cluster",)),
    Breakage("a single replica has TF_CONFIG", _ENV, _with(TF_CONFIG="{}")),
    Breakage("TF_CONFIG has no job", _ENV, _spec("TF_CONFIG", _inside("job")), ("cluster",)),
    Breakage("TF_CONFIG has no environment", _ENV, _spec("TF_CONFIG", _inside("environment")), ("cluster",)),
    Breakage("RANK is always 0", _ENV, _with(RANK="0"), ("cluster",)),
    Breakage("WORLD_SIZE counts everyone", _ENV, _with(WORLD_SIZE="5"), ("cluster",)),
    Breakage("MASTER_PORT is missing", _ENV, _without("MASTER_PORT"), ("cluster",)),
    Breakage("AIP_MODEL_DIR has no slash", _ENV, _on("AIP_MODEL_DIR", lambda uri: uri.rstrip("/"))),
    Breakage("AIP_CHECKPOINT_DIR is missing", _ENV, _without("AIP_CHECKPOINT_DIR")),
    Breakage("trials have no AIP_TENSORBOARD_LOG_DIR", _ENV, _without("AIP_TENSORBOARD_LOG_DIR"), ("study",)),
    Breakage("trials have no CLOUD_ML_TRIAL_ID", _ENV, _without("CLOUD_ML_TRIAL_ID"), ("study",)),
    Breakage("a variable is not expanded", "vertexrig.spec.cluster:expand", _instead(lambda text, variables: text)),
    Breakage("an entry has no task_name", _ENTRY, _label("task_name")),
    Breakage("an entry has no job_id", _ENTRY, _label("job_id")),
    Breakage("an entry has no project_id", _ENTRY, _label("project_id")),
    Breakage("an entry's resource is global", _ENTRY, _on("resource", lambda one: {**one, "type": "global"})),
    Breakage("an entry's logName has no project", _ENTRY, _on("logName", lambda name: name.rpartition("/")[2])),
    Breakage("an entry has no severity", _ENTRY, _without("severity")),
    Breakage("output is a textPayload", _PAYLOAD, _instead(lambda line, text: {"textPayload": text})),
    Breakage("output has no levelname", _PAYLOAD, _on("jsonPayload", _inside("levelname"))),
    Breakage("output has no attrs.tag", _PAYLOAD, _on("jsonPayload", _inside("attrs"))),
    Breakage("Job is running. has other words", f"{_SERVICE}RUNNING", _instead("The job runs.")),
    Breakage("the service's first lines are in another order", f"{_SERVICE}BEFORE", lambda lines: tuple(reversed(lines))),
    Breakage("Task completed. has other words", f"{_SERVICE}TASK_COMPLETED", _instead("Done.")),
    Breakage("Job completed successfully. has other words", f"{_SERVICE}SUCCEEDED", _instead("Job done.")),
    Breakage("tearing down is not said", f"{_SERVICE}TORN_DOWN", _instead("Gone.")),
    Breakage("the executor says nothing of downloads", f"{_SERVICE}fetching", _instead(lambda *_: [])),
    Breakage("the executor says nothing of an installation", f"{_SERVICE}installing", _instead(lambda uri: [])),
    Breakage("the executor says nothing of a failure", f"{_SERVICE}failed", _instead(lambda *_, **__: []), ("failing",)),
    Breakage("Job failed. has other words", f"{_SERVICE}FAILED", _instead("Failed."), ("failing",)),
    Breakage("an error has no address of the logs", _EXIT, _after(lambda text: text.partition("\nTo find out")[0]), ("failing",)),
    Breakage("an error has one line break before the address", _EXIT, _after(lambda text: text.replace("\n\nTo find", "\nTo find")), ("failing",)),
    Breakage("an error ends with a hint of ours", _EXIT, _after(lambda text: f"{text} Hint: look."), ("failing",)),
    Breakage("an error has no traceback", f"{_LOCAL}runner.policy:quoted_output", _instead(lambda stderr: ""), ("failing",)),
    Breakage("the exit status is always 1", _EXIT, _after(lambda text: text.replace("status of 3", "status of 1")), ("exiting",)),
    Breakage("want of memory has other words", f"{_LOCAL}runner.policy:lacking", _instead(lambda *_: JobError(8, "Out of memory.")), ("memory",)),
    Breakage("a stock-out has other words", f"{_LOCAL}runner.policy:stockout_message", _instead(lambda region: "No machines."), ("stockout",)),
    Breakage("metrics are joined with blanks", _QUOTA, _after(lambda text: text.replace(",", ", ")), ("quotas",)),
    Breakage("every quota is that of CPUs", _QUOTA, _after(lambda text: text and "The following quota metrics exceed quota limits: aiplatform.googleapis.com/custom_model_training_cpus"), ("quotas",)),
    Breakage("a list of errors has no tab at its end", _LISTED, _message(str.rstrip), (ASKED,)),
    Breakage("a list of errors begins with 0", _LISTED, _message(lambda text: text.replace("\t1.", "\t0.")), (ASKED,)),
    Breakage("explanations of ours are in the message", _LISTED, _message(lambda text: f"{text[:-1]} (ours)\t"), (ASKED,)),
    Breakage("what stands alone is listed", f"{_LOCAL}jobs.validation:_ALONE", _instead(frozenset()), (ASKED,)),
    Breakage("a 404 has other words", f"{_LOCAL}jobs.lifecycle:not_found", lambda right: lambda text: right("Not found."), ("waiting",)),
    Breakage("an error has no status", _ERROR, _on("error", _inside("status")), (ASKED,)),
    Breakage("an error has no code", _ERROR, _on("error", _inside("code")), (ASKED,)),
    Breakage("an error has a key more", _ERROR, _on("error", lambda error: {**error, "errors": []}), (ASKED,)),
    Breakage("a trial has a field more", _SHOWN, _on("trials", lambda trials: [{**one, "trialId": one["id"]} for one in trials]), ("study",)),
    Breakage("trials are in another order", _SHOWN, _on("trials", lambda trials: trials[::-1]), ("study",)),
    Breakage("a trial's parameters are in another order", _TRIAL, _on("parameters", lambda found: found[::-1]), ("study",)),
    Breakage("a trial's startTime is in seconds", _SHOWN, _on("trials", lambda trials: [{**one, "startTime": one["startTime"][:19] + "Z"} for one in trials]), ("study",)),
    Breakage("a trial's id is a number", _SHOWN, _on("trials", lambda trials: [{**one, "id": int(one["id"])} for one in trials]), ("study",)),
    Breakage("a trial has no finalMeasurement", _SHOWN, _on("trials", lambda trials: [_inside("finalMeasurement")(one) for one in trials]), ("study",)),
    Breakage("an operation is not done", _OPERATION, _with(done=False), ("waiting",)),
    Breakage("an operation has no response", _OPERATION, _without("response"), ("waiting",)),
    Breakage("an operation has no metadata", _OPERATION, _without("metadata")),
    Breakage("an operation is below the location", _OPERATION, _on("name", lambda name: "/".join([*name.split("/")[:4], *name.split("/")[-2:]])), ("operations",)),
    Breakage("a list shows the oldest first", f"{_LOCAL}jobs.store:ResourceStore.listed", _after(lambda found: reversed(list(found))), ("registry",)),
    Breakage("an object has no crc32c", _STORED, _without("crc32c"), ("storage",)),
    Breakage("an object has no etag", _STORED, _without("etag"), ("storage",)),
    Breakage("an object's times have microseconds", _STORED, _on("timeCreated", lambda text: text.replace("Z", "000Z")), ("storage",)),
    Breakage("a change keeps an object's metageneration", f"{_LOCAL}storage.api:object_resource", _with(metageneration="1"), ("storage",)),
    Breakage("conditions of a request are ignored", f"{_LOCAL}storage.conditions:Conditions.check", _instead(lambda *_, **__: None), ("storage",)),
    Breakage("a failed condition has other words", f"{_LOCAL}storage.conditions:MESSAGE", _instead("Precondition failed."), ("storage",)),
    Breakage("an error of Cloud Storage has a status", f"{_LOCAL}http:ApiError.older_body", _on("error", lambda error: {**error, "status": "NOT_FOUND"}), ("storage",)),
    Breakage("* of a matchGlob crosses folders", f"{_LOCAL}storage.api:glob", lambda right: lambda text: right(text.replace("*", "**")), ("storage_read",)),
    Breakage("fields is ignored", f"{_LOCAL}storage.answers:field_tree", _instead(lambda fields: {}), ("storage",)),
    Breakage("a range is ignored", f"{_DOWNLOAD}byte_range", _instead(lambda header, size: None), ("storage",)),
    Breakage("gzip is not inflated", f"{_DOWNLOAD}is_inflated", _instead(lambda request, found: False), ("storage_read",)),
    Breakage("a download has no X-Goog-Hash", f"{_DOWNLOAD}download_headers", _without("X-Goog-Hash"), ("storage",)),
    Breakage("a bucket's location is in small letters", _BUCKET, _on("location", str.lower), ("buckets",)),
    Breakage("a bucket has no softDeletePolicy", _BUCKET, _without("softDeletePolicy"), ("buckets",)),
    Breakage("uniform access is shown once", _BUCKET, _on("iamConfiguration", _inside("bucketPolicyOnly")), ("buckets",)),
    Breakage("a held object may be deleted", f"{_LOCAL}storage.store:_check_free", _instead(lambda *_, **__: None), ("bucket_forms",)),
    Breakage("a schedule has no attemptDeadline", _SCHEDULE, _without("attemptDeadline"), ("schedule",)),
    Breakage("a schedule has no time zone", _SCHEDULE, _without("timeZone"), ("schedule",)),
    Breakage("retries have another default", _SCHEDULE, _on("retryConfig", lambda retry: {**retry, "maxDoublings": 16}), ("schedule",)),
    Breakage("a schedule's User-Agent is not shown", _SCHEDULE, _on("httpTarget", _inside("headers")), ("schedule",)),
    Breakage("a token has no audience", _SCHEDULE, _on("httpTarget", _inside("oidcToken")), ("targets",)),
    Breakage("a paused schedule has a next time", f"{_LOCAL}services.scheduler_engine:SchedulerEngine.plan", lambda right: lambda self, job: {"scheduleTime": job["userUpdateTime"], **right(self, job)}, ("schedule",)),
    Breakage("a refusal for a schedule's state has other words", f"{_LOCAL}services.scheduler_api:_wrong_state", _message(lambda text: "Wrong state."), ("schedule",)),
    Breakage("a schedule's mask is ignored", f"{_LOCAL}services.scheduler_api:changed", lambda right: lambda old, body, mask: right(old, body, ""), ("schedule",)),
    Breakage("a schedule's wrong time zone has other words", _SCHEDULE, _refused(lambda text: "Bad schedule."), (ASKED,)),
    Breakage("a client's labels are lost", f"{_LOCAL}services.logging_api:_entry", _after(lambda made: ({**made[0], "labels": {}}, made[1])), ("logging",)),
    Breakage("a written entry has no project_id", f"{_LOCAL}services.logging_api:_entry", _after(lambda made: ({**made[0], "resource": {"type": "gae_app"}}, made[1])), ("writes",)),
    Breakage("an insertId is replaced", f"{_LOCAL}services.log_store:LogStore._insert", lambda right: lambda self, body, when, **words: right(self, _inside("insertId")(body), when, **words), ("writes",)),
    Breakage("entries are always in order of time", f"{_LOCAL}services.log_store:LogStore.query", lambda right: lambda self, node, **words: right(self, node, **{**words, "descending": False}), ("logging",)),
    Breakage("a regular expression ignores case", f"{_QUERY}_pattern", lambda right: lambda text: right(f"(?i){text}"), ("language",)),
    Breakage("severities have no rank", f"{_QUERY}_severity", _instead(lambda text: 0), ("logging",)),
    Breakage("a missing field passes !=", f"{_QUERY}_holds", lambda right: lambda node, value: node.operator == "!=" or right(node, value), ("language",)),
    Breakage("a list ignores its filter", f"{_LIST}_restriction", _instead(lambda node: lambda body: True), ("plain",)),
    Breakage("a list ignores pageSize", f"{_LOCAL}services.collection:page_size", _instead(lambda *_, **__: 100), ("registry",)),
    Breakage("a list ignores its order", f"{_LIST}cut", lambda right: lambda items, body, order, size, token: right(items, body, "", size, token), ("registry",)),
    Breakage("a list has no nextPageToken", f"{_LOCAL}services.collection:answer", _without("nextPageToken"), ("registry",)),
    Breakage("a readMask is ignored", f"{_LOCAL}services.router:_read", _instead(lambda body, mask: body), ("plain",)),
    Breakage("a location has no locationId", _LOCATION, _without("locationId"), (ASKED,)),
    Breakage("an operation's metadata has no times", _OPERATION, _on("metadata", _inside("genericMetadata")), ("registry",)),
    Breakage("an operation's response has another type", _OPERATION, _on("response", _inside("@type")), ("waiting",)),
    Breakage("an operation is done at once", _OPERATION, _with(done=True, response={}), ("boards",)),
    Breakage("a resource has no etag", _MADE, _without("etag"), ("boards",)),
    Breakage("a resource has a field more", _MADE, _with(labels={"own": "yes"}), ("boards",)),
    Breakage("a resource that is there has other words", f"{_LOCAL}services.collection:exists", _message(lambda text: "It exists."), ("metadata",)),
    Breakage("a context is deleted by an operation below the location", _OPERATION, _on("name", lambda name: "/".join([*name.split("/")[:4], *name.split("/")[-2:]])), ("metadata",)),
    Breakage("a trial of Vizier has no clientId", f"{_LOCAL}services.vizier:_shown", _without("clientId"), ("vizier",)),
)  # fmt: skip

CONTROL = Breakage("nothing is broken", _GET, _after(lambda found: found))
"""What is tried after the breakages, over all their scripts: a row that notices it would notice anything."""
