"""Makes vertexrig/spec/aiplatform_v1.binpb: the descriptors of Vertex AI's messages and services, from the installed library.

    python tools/descriptors.py            writes the file and prints what is in it
    python tools/descriptors.py --without-services

The library builds its messages with proto-plus, so their descriptors have neither comments nor field behaviours, and no
service: services are put together from the calls that the library's gRPC clients would make. What is not needed to encode
and decode is left out: file, service and method options, extensions, and imports that nothing of a file refers to.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
FILE = REPOSITORY / "vertexrig/spec/aiplatform_v1.binpb"
PACKAGE = "google.cloud.aiplatform.v1"

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
    "TensorboardService": "tensorboard_service",
    "MetadataService": "metadata_service",
}
"""Services that go in with the messages of all their methods, and the library's module of each."""
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


def calls(service: str, module: str) -> list[tuple[str, bool, bool, Any, Any]]:
    """The calls of a service's gRPC client, by asking it for each of its methods."""
    transport = importlib.import_module(f"google.cloud.aiplatform_v1.services.{module}.transports.grpc")
    kind = getattr(transport, f"{service}GrpcTransport")
    client = kind.__new__(kind)  # its __init__ would open a channel
    recorder = Recorder()
    client._stubs, client._logged_channel, client._grpc_channel = {}, recorder, recorder
    for name, attribute in vars(kind).items():
        if isinstance(attribute, property) and name not in ("kind", "grpc_channel", "operations_client"):
            getattr(client, name)
    return [call for call in recorder.calls if call[0].startswith(f"/{PACKAGE}.{service}/")]


def descriptor_of(kind: Any) -> Any:
    """The protobuf descriptor of a proto-plus or protobuf message class."""
    return (kind.pb() if hasattr(kind, "pb") else kind).DESCRIPTOR


def with_imports(files: Iterable[Any]) -> Iterator[Any]:
    """Copies of file descriptors as protos, cut down to what is needed, each behind those it imports."""
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


def service_file(service: str, recorded: list[tuple[str, bool, bool, Any, Any]]) -> Any:
    """A file with one service and the imports that its methods need."""
    from google.protobuf import descriptor_pb2

    name = f"google/cloud/aiplatform_v1/services/{SERVICES[service]}.proto"
    proto = descriptor_pb2.FileDescriptorProto(name=name, package=PACKAGE, syntax="proto3")
    made = proto.service.add(name=service)
    imports: set[str] = set()
    for path, client, server, request, answer in recorded:
        method = made.method.add(name=path.rpartition("/")[2])
        if (
            request is None
        ):  # protobuf's own classes serialise with a plain function; no method of these services takes one
            raise SystemExit(f"{path}: the client does not say which message it sends")
        method.input_type, method.output_type = (f".{descriptor_of(kind).full_name}" for kind in (request, answer))
        if client:
            method.client_streaming = True
        if server:
            method.server_streaming = True
        imports |= {descriptor_of(kind).file.name for kind in (request, answer)}
    proto.dependency.extend(sorted(imports))
    return proto


def build(services: Iterable[str] = tuple(SERVICES)) -> Any:
    """The FileDescriptorSet of `MESSAGES` and of these services."""
    from google.cloud import aiplatform_v1  # noqa: F401 - puts its messages into protobuf's default pool
    from google.longrunning import operations_pb2  # noqa: F401
    from google.protobuf import descriptor_pb2, descriptor_pool, empty_pb2  # noqa: F401

    pool = descriptor_pool.Default()
    recorded = {service: calls(service, SERVICES[service]) for service in services}
    files = {name: pool.FindMessageTypeByName(name).file for name in MESSAGES}
    for call in (call for every in recorded.values() for call in every):
        for kind in call[3:]:
            files[descriptor_of(kind).full_name] = descriptor_of(kind).file
    made = descriptor_pb2.FileDescriptorSet(file=with_imports(files.values()))
    made.file.extend(service_file(service, every) for service, every in recorded.items())
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-services", action="store_true", help="only the messages of jobs, to compare sizes")
    parser.add_argument("--output", type=Path, default=FILE)
    given = parser.parse_args()
    made = build(() if given.without_services else tuple(SERVICES))
    given.output.write_bytes(made.SerializeToString(deterministic=True))
    methods = sum(len(service.method) for file in made.file for service in file.service)
    print(
        f"{given.output}: {given.output.stat().st_size:,} bytes, {len(made.file)} files, {methods} methods",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
