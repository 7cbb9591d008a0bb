"""The shipped descriptors: Google's own, read the same by our tables, by every protobuf, and beside Google's library."""

from __future__ import annotations

import importlib.metadata
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tools import REPOSITORY, brief, pip_install
from vertexrig.spec import descriptors, messages, strict

TOOL = runpy.run_path(str(REPOSITORY / "tools/descriptors.py"))
IMPLEMENTATIONS = ("upb", "python")
VERSIONS = ("4.25.8", "5.29.5", "6.33.0")
"""The last of each major version of protobuf that TensorFlow and Google's libraries ask for today, besides the installed one."""
JOB = {
    "workerPoolSpecs": [{"machineSpec": {"acceleratorType": "TPU_V3"}, "replicaCount": "2", "diskSpec": {}}],
    "scheduling": {"timeout": "3600s", "strategy": "SPOT"},
}
# what a program does with the messages in any process: JSON in and out, through bytes; and the services
PROGRAM = """
import json, sys
first, last = json.loads(sys.argv[1])
sys.path[:] = [*first, *sys.path, *last]
from vertexrig.spec import messages
made = messages.to_message("CustomJobSpec", json.loads(sys.argv[2]))
again = messages.message_class("CustomJobSpec").FromString(made.SerializeToString())
study = messages.to_message("TrainingPipeline", {"labels": {"a": "b"}, "trainingTaskInputs": {"x": [1.5, None, "y"]}})
service = messages.pool().FindServiceByName("google.cloud.aiplatform.v1.JobService")
from google.protobuf.internal import api_implementation
import google.protobuf
print(json.dumps([
    google.protobuf.__version__, api_implementation.Type(), messages.from_message(again), messages.from_message(study),
    service.methods_by_name["CreateCustomJob"].input_type.full_name,
]))
"""


YAML = str(Path(yaml.__file__).parents[1])
"""The folder of the test's own libraries: behind the others, so that it gives PyYAML and not protobuf."""


def read(version: str, implementation: str, folders: list[str]) -> None:
    """Run the program with protobuf of these folders and nothing else."""
    env = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation, "PYTHONWARNINGS": "ignore"}
    words = [sys.executable, "-S", "-c", PROGRAM, json.dumps([[*folders, str(REPOSITORY)], [YAML]]), json.dumps(JOB)]
    done = subprocess.run(words, env=env, cwd="/", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        version, implementation, JOB,
        {"labels": {"a": "b"}, "trainingTaskInputs": {"x": [1.5, None, "y"]}},
        "google.cloud.aiplatform.v1.CreateCustomJobRequest",
    ]  # fmt: skip


def test_the_file_is_the_installed_librarys() -> None:
    """The shipped files hold exactly the installed google-cloud-aiplatform's descriptors, and the checks' source names it."""
    made = TOOL["build"]()
    assert descriptors.FILE.read_bytes() == made.SerializeToString(deterministic=True), (
        "the library changed: run python tools/descriptors.py, read the difference"
    )
    assert descriptors.TABLES.read_text(encoding="utf-8") == TOOL["tables"](made)
    assert f"google-cloud-aiplatform {importlib.metadata.version('google-cloud-aiplatform')} " in strict.SCHEMA_SOURCE


def test_the_other_files_are_the_installed_libraries() -> None:
    """So do the descriptors of the other APIs, and the table of routes."""
    from localvertex import bindings

    assert descriptors.OTHERS.read_bytes() == TOOL["build_others"]().SerializeToString(deterministic=True)
    assert bindings.TABLE.read_text(encoding="utf-8") == TOOL["table"](TOOL["routes"]())


def everything() -> Iterator[Any]:
    """Every message descriptor of the pool, nested ones too."""
    from google.protobuf import descriptor_pb2

    def inside(prefix: str, protos: Any) -> Iterator[str]:
        for proto in protos:
            yield f"{prefix}.{proto.name}"
            yield from inside(f"{prefix}.{proto.name}", proto.nested_type)

    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.FILE.read_bytes()).file:
        for name in inside(file.package, file.message_type):
            yield messages.pool().FindMessageTypeByName(name)


def test_our_tables_say_what_protobuf_says() -> None:
    """For every message, nested or not, our reader finds protobuf's names, types, unions, maps and enum values."""
    found = list(everything())
    assert len(found) > 500
    for descriptor in found:
        ours = descriptors.message(descriptor.full_name)
        assert (ours.name, ours.map_entry) == (descriptor.name, descriptor.GetOptions().map_entry)
        assert len(ours.fields) == len(descriptor.fields)
        for field, theirs in zip(ours.fields, descriptor.fields, strict=True):
            union = theirs.containing_oneof
            optional = union is not None and union.name == f"_{theirs.name}"
            assert (field.name, field.json_name, field.type) == (theirs.name, theirs.json_name, theirs.type)
            assert field.oneof == ("" if union is None or optional else union.name)
            assert field.repeated == (theirs.is_repeated if hasattr(theirs, "is_repeated") else theirs.label == 3)
            assert (field.message and field.message.full_name) == (
                theirs.message_type and theirs.message_type.full_name
            )
            if theirs.enum_type is not None:
                values = {value.name: value.number for value in theirs.enum_type.values}
                assert field.enum is not None and field.enum.name == theirs.enum_type.name
                assert field.enum.numbers == values and field.enum.names == {n: name for name, n in values.items()}
            else:
                assert field.enum is None


def test_what_is_not_there_is_a_key_error() -> None:
    """A name that the file does not have is refused, at the top, inside a message, and in the pool."""
    for name in ("Nothing", "CustomJobSpec.Nothing", "google.cloud.aiplatform.v2.CustomJobSpec", "google."):
        with pytest.raises(KeyError):
            descriptors.message(name)
        with pytest.raises(KeyError):
            messages.message_class(name)
    with pytest.raises(KeyError):
        descriptors.enum("Nothing")
    assert descriptors.enum("JobState").numbers["JOB_STATE_SUCCEEDED"] == 4


def test_beside_googles_library() -> None:
    """Our classes and the library's live in one process under the same names, and read each other's bytes."""
    from google.cloud.aiplatform_v1.types import CustomJobSpec

    ours, theirs = messages.to_message("CustomJobSpec", JOB), CustomJobSpec.from_json(json.dumps(JOB))
    assert type(ours) is not CustomJobSpec.pb()
    assert type(ours).DESCRIPTOR.full_name == CustomJobSpec.pb().DESCRIPTOR.full_name
    assert CustomJobSpec.deserialize(ours.SerializeToString()) == theirs
    assert type(ours).FromString(CustomJobSpec.serialize(theirs)) == ours


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_with_the_installed_protobuf(implementation: str) -> None:
    """The installed protobuf reads the file, in C and in plain Python, with nothing else installed."""
    import google.protobuf

    folder = str(Path(google.protobuf.__file__).parents[2])
    read(google.protobuf.__version__, implementation, [folder])


@pytest.mark.whole
@pytest.mark.parametrize("version", brief(VERSIONS, 1))
def test_with_other_protobufs(version: str, tmp_path: Path) -> None:
    """So do the last releases of protobuf's other major versions."""
    words = [*pip_install(), "--no-deps", "--target", str(tmp_path), f"protobuf=={version}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"no package registry can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    for implementation in IMPLEMENTATIONS:
        read(version, implementation, [str(tmp_path)])
