"""Makes vertexrig/spec/aiplatform_v1.binpb: the descriptors of Vertex AI's messages and services, from the installed library.

`python tools/descriptors.py` writes the files and prints what is in them.

`aiplatform_v1.json` has the messages and enums of that file in the form that `vertexrig.spec.descriptors` reads.

Beside them are two files that the local Vertex's gRPC needs: `services.binpb`, the same for Cloud Scheduler, Cloud Logging and
Resource Manager, and `methods.tsv`, the REST route of each method (a row for each binding of its google.api.http).

The library builds its messages with proto-plus, so their descriptors have neither comments nor field behaviours, and no
service: services are put together from the calls that the library's gRPC clients would make. What is not needed to encode
and decode is left out: file, service and method options, extensions, and imports that nothing of a file refers to.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FILE = REPOSITORY / "vertexrig/spec/aiplatform_v1.binpb"
TABLES = REPOSITORY / "vertexrig/spec/aiplatform_v1.json"
OTHERS = REPOSITORY / "vertexrig/spec/services.binpb"
METHODS = REPOSITORY / "vertexrig/spec/methods.tsv"
PACKAGE = "google.cloud.aiplatform.v1"

CLIENTS = "google.cloud.aiplatform_v1.services"

MESSAGES = (
    f"{PACKAGE}.CustomJob",
    f"{PACKAGE}.HyperparameterTuningJob",
    f"{PACKAGE}.TrainingPipeline",
    "google.longrunning.Operation",
    "google.protobuf.Empty",
)
"""Messages whose files go in, with all that they refer to."""
SERVICES = {
    "JobService": "job_service",
    "PipelineService": "pipeline_service",
    "VizierService": "vizier_service",
    "PersistentResourceService": "persistent_resource_service",
    "ModelService": "model_service",
    "DatasetService": "dataset_service",
    "TensorboardService": "tensorboard_service",
    "MetadataService": "metadata_service",
}
"""Services that go in with the messages of all their methods, and the library's module of each."""
OTHER_SERVICES = {
    "google.cloud.scheduler.v1.CloudScheduler": "google.cloud.scheduler_v1.services.cloud_scheduler",
    "google.logging.v2.LoggingServiceV2": "google.cloud.logging_v2.services.logging_service_v2",
    "google.cloud.resourcemanager.v3.Projects": "google.cloud.resourcemanager_v3.services.projects",
}
"""Services of other APIs by full name, and the package of their client."""
ALONE = {"google.cloud.resourcemanager.v3.Projects": ("GetProject",)}
"""The methods that go in of a service of which not all do."""
ERROR_DETAILS = "google.rpc.BadRequest"
"""A message of google/rpc/error_details.proto, which goes in with the other APIs: what an error's details are."""
PAYLOADS = ("google.cloud.audit.AuditLog", "google.appengine.logging.v1.RequestLog", "google.iam.v1.logging.AuditData")
"""Messages that a log entry's protoPayload may be, which go in with the other APIs; google-cloud-logging brings them."""
LOGGING_ROUTES = (
    ("DeleteLog", "DELETE", "/v2/{log_name=projects/*/logs/*}", ""),
    ("WriteLogEntries", "POST", "/v2/entries:write", "*"),
    ("ListLogEntries", "POST", "/v2/entries:list", "*"),
    ("ListMonitoredResourceDescriptors", "GET", "/v2/monitoredResourceDescriptors", ""),
    ("ListLogs", "GET", "/v2/{parent=*/*}/logs", ""),
)
"""Routes of Cloud Logging, whose client has no REST transport (google/logging/v2/logging.proto, read 2026-11-21)."""
OPERATION_ROUTES = (
    ("ListOperations", "GET", "/v1/{name=**}/operations", ""),
    ("GetOperation", "GET", "/v1/{name=**}", ""),
    ("DeleteOperation", "DELETE", "/v1/{name=**}", ""),
    ("CancelOperation", "POST", "/v1/{name=**}:cancel", "*"),
    ("WaitOperation", "POST", "/v1/{name=**}:wait", "*"),
)
"""Routes of google.longrunning.Operations: the library has one for each collection, all of this form."""
STREAMS = {
    "unary_unary": (False, False),
    "unary_stream": (False, True),
    "stream_unary": (True, False),
    "stream_stream": (True, True),
}
"""A gRPC channel's ways to call: whether the client streams, whether the server does."""


class Recorder:
    """A gRPC channel that opens nothing and keeps what it is asked for: path, client and server streaming, message classes."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool, bool, Any, Any]] = []

    def __getattr__(self, way: str) -> Callable[..., None]:
        client, server = STREAMS[way]

        def call(path: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any) -> None:
            request, answer = (getattr(one, "__self__", None) for one in (request_serializer, response_deserializer))
            self.calls.append((path, client, server, request, answer))

        return call


def calls(service: str, package: str) -> list[tuple[str, bool, bool, Any, Any]]:
    """Return the calls of a service's gRPC client, by asking it for each of its methods.

    Args:
        service: Full name.
        package: The client's package.
    """
    transport = importlib.import_module(f"{package}.transports.grpc")
    kind = getattr(transport, f"{service.rpartition('.')[2]}GrpcTransport")
    client = kind.__new__(kind)  # its __init__ would open a channel
    recorder = Recorder()
    client._stubs, client._logged_channel, client._grpc_channel = {}, recorder, recorder
    for name, attribute in vars(kind).items():
        if isinstance(attribute, property) and name not in ("kind", "grpc_channel", "operations_client"):
            getattr(client, name)
    return [call for call in recorder.calls if call[0].startswith(f"/{service}/")]


def descriptor_of(kind: Any) -> Any:
    """Return the protobuf descriptor of a proto-plus or protobuf message class."""
    return (kind.pb() if hasattr(kind, "pb") else kind).DESCRIPTOR


def with_imports(files: Iterable[Any]) -> Iterator[Any]:
    """Return copies of file descriptors as protos, cut down to what is needed, each behind those it imports."""
    from google.protobuf import descriptor_pb2

    seen: set[str] = set()

    def visit(file: Any) -> Iterator[Any]:
        if file.name in seen:
            return
        seen.add(file.name)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        trim(proto, file.pool)
        for name in proto.dependency:
            yield from visit(file.pool.FindFileByName(name))
        yield proto

    for file in files:
        yield from visit(file)


def trim(proto: Any, pool: Any) -> None:
    """Remove from a file what its messages and services do not need."""
    proto.ClearField("options")
    proto.ClearField("extension")
    proto.ClearField("public_dependency")
    proto.ClearField("source_code_info")
    for service in proto.service:
        service.ClearField("options")
        for method in service.method:
            method.ClearField("options")
    names = set(referred(proto.message_type))
    names |= {name for service in proto.service for one in service.method for name in (one.input_type, one.output_type)}
    owners = {pool.FindFileContainingSymbol(name.lstrip(".")).name for name in names} - {proto.name}
    del proto.dependency[:]
    proto.dependency.extend(sorted(owners))  # proto-plus lists them in the order of a set


def referred(messages: Iterable[Any]) -> Iterator[str]:
    for message in messages:
        yield from (field.type_name for field in message.field if field.type_name)
        yield from referred(message.nested_type)


def service_file(service: str, name: str, recorded: list[tuple[str, bool, bool, Any, Any]]) -> Any:
    """Return a file of that name with one service and the imports that its methods need."""
    from google.protobuf import descriptor_pb2

    package, _, own = service.rpartition(".")
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    made = proto.service.add(name=own)
    imports: set[str] = set()
    for path, client, server, request, answer in recorded:
        method = made.method.add(name=path.rpartition("/")[2])
        if request is None:  # protobuf's own classes serialise with a plain function, which names no class
            raise SystemExit(f"{path}: the client does not say which message it sends")
        method.input_type, method.output_type = (f".{descriptor_of(kind).full_name}" for kind in (request, answer))
        if client:
            method.client_streaming = True
        if server:
            method.server_streaming = True
        imports |= {descriptor_of(kind).file.name for kind in (request, answer)}
    proto.dependency.extend(sorted(imports))
    return proto


def build() -> Any:
    """Return the FileDescriptorSet of `MESSAGES` and `SERVICES`."""
    from google.cloud import aiplatform_v1  # noqa: F401 - puts its messages into protobuf's default pool
    from google.longrunning import operations_pb2  # noqa: F401
    from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2  # noqa: F401

    pool = descriptor_pool.Default()
    recorded = {service: calls(f"{PACKAGE}.{service}", f"{CLIENTS}.{name}") for service, name in SERVICES.items()}
    files = {name: pool.FindMessageTypeByName(name).file for name in MESSAGES}
    for call in (call for every in recorded.values() for call in every):
        for kind in call[3:]:
            files[descriptor_of(kind).full_name] = descriptor_of(kind).file
    made = descriptor_pb2.FileDescriptorSet(file=with_imports(files.values()))
    for service, every in recorded.items():
        name = f"google/cloud/aiplatform_v1/services/{SERVICES[service]}.proto"
        made.file.append(service_file(f"{PACKAGE}.{service}", name, every))
    return made


def tables(made: Any) -> str:
    """Return the messages and enums of a FileDescriptorSet as JSON, one on each line (see `vertexrig.spec.descriptors.TABLES`)."""
    messages: dict[str, Any] = {}
    enums: dict[str, Any] = {}

    def add(prefix: str, own: Iterable[Any], values: Iterable[Any]) -> None:
        enums.update((f"{prefix}.{one.name}", {value.name: value.number for value in one.value}) for one in values)
        for one in own:
            unions = [union.name for union in one.oneof_decl]
            fields = [row_of(field, unions) for field in one.field]
            messages[f"{prefix}.{one.name}"] = [one.options.map_entry, fields]
            add(f"{prefix}.{one.name}", one.nested_type, one.enum_type)

    for file in made.file:
        add(file.package, file.message_type, file.enum_type)
    sections = (
        f"{json.dumps(title)}: {{\n"
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
        + "\n}"
        for title, found in (("messages", messages), ("enums", enums))
    )
    return "{\n" + ",\n".join(sections) + "\n}\n"


def row_of(field: Any, unions: Sequence[str]) -> list[Any]:
    """Return a field as the values of `vertexrig.spec.descriptors.Field`, without those at the end that are defaults."""
    # protobuf makes a union of one for `optional`, which nobody writes
    in_union = field.HasField("oneof_index") and not field.proto3_optional
    repeated = field.label == field.LABEL_REPEATED
    union = unions[field.oneof_index] if in_union else ""
    row = [field.name, field.type, repeated, union, field.type_name.removeprefix(".")]
    while not row[-1]:
        row.pop()
    return row


def build_others() -> Any:
    """Return the FileDescriptorSet of `OTHER_SERVICES`, `ERROR_DETAILS` and `PAYLOADS`, without the files that `build` has already."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.rpc import error_details_pb2  # noqa: F401

    there = {file.name for file in build().file}
    recorded = {service: calls(service, package) for service, package in OTHER_SERVICES.items()}
    for service, methods in ALONE.items():
        recorded[service] = [call for call in recorded[service] if call[0].rpartition("/")[2] in methods]
    kinds = [kind for every in recorded.values() for call in every for kind in call[3:] if kind is not None]
    files = {descriptor_of(kind).file.name: descriptor_of(kind).file for kind in kinds}
    more = [descriptor_pool.Default().FindMessageTypeByName(name).file for name in (ERROR_DETAILS, *PAYLOADS)]
    made = descriptor_pb2.FileDescriptorSet()
    made.file.extend(file for file in with_imports([*files.values(), *more]) if file.name not in there)
    for service, every in recorded.items():
        known = [call for call in every if call[3] is not None]  # IAM's and operations' methods are other services'
        made.file.append(service_file(service, service.replace(".", "/") + ".proto", known))
    return made


Route = tuple[str, str, str, str, str]
"""Service, method, HTTP method, path template, and the field that is the body: "*" for all, "" for none."""


def routes() -> list[Route]:
    """Return the REST routes of every method of Vertex AI, Scheduler, Logging, Resource Manager and operations."""
    from google.cloud.aiplatform_v1 import services

    rows: list[Route] = []
    for module in sorted(one.name for one in pkgutil.iter_modules(services.__path__)):
        rows += rest_routes(PACKAGE, f"{CLIENTS}.{module}")
    for service, package in OTHER_SERVICES.items():
        if service != "google.logging.v2.LoggingServiceV2":
            every = rest_routes(service.rpartition(".")[0], package)
            rows += [row for row in every if row[1] in ALONE.get(service, (row[1],))]
    rows += [("google.logging.v2.LoggingServiceV2", *row) for row in LOGGING_ROUTES]
    rows += [("google.longrunning.Operations", *row) for row in OPERATION_ROUTES]
    return rows


def rest_routes(package: str, client: str) -> list[Route]:
    """Return the routes of a service, as its REST transport has them; those of mixins (locations, IAM, operations) left out."""
    base = importlib.import_module(f"{client}.transports.rest_base")
    (kind,) = (one for name, one in vars(base).items() if name.startswith("_Base") and name.endswith("RestTransport"))
    service = kind.__name__.removeprefix("_Base").removesuffix("RestTransport")
    own = {call[0].rpartition("/")[2] for call in calls(f"{package}.{service}", client)}
    return [
        (f"{package}.{service}", method, binding["method"].upper(), binding["uri"], binding.get("body", ""))
        for method in sorted(own)
        if hasattr(getattr(kind, f"_Base{method}", None), "_get_http_options")
        for binding in getattr(kind, f"_Base{method}")._get_http_options()
    ]


def table(rows: Iterable[Route]) -> str:
    """Return the routes as the file has them."""
    return "".join("\t".join(row) + "\n" for row in rows)


def main() -> None:
    made = build()
    FILE.write_bytes(made.SerializeToString(deterministic=True))
    TABLES.write_text(tables(made), encoding="utf-8")
    OTHERS.write_bytes(build_others().SerializeToString(deterministic=True))
    METHODS.write_text(table(routes()), encoding="utf-8")
    methods = sum(len(service.method) for file in made.file for service in file.service)
    print(f"{FILE}: {FILE.stat().st_size:,} bytes, {len(made.file)} files, {methods} methods", file=sys.stderr)


if __name__ == "__main__":
    main()
