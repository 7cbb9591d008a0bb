"""An editor knows the files: schemas that two validators read alike, and the YAML language server that most editors run."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs
import pytest
import yaml

from tests.support.tools import REPOSITORY, need, typed
from tests.vertexrig.checks.job_bases import BASES, VALID, changed
from vertexrig.render.starter import MODELINE

KINDS = ("project", "custom-job", "hp-tuning-job")
SCHEMAS = {kind: json.loads(typed("keys", "--schema", kind).stdout) for kind in KINDS}
VALIDATORS = {
    kind: (jsonschema.Draft202012Validator(schema), jsonschema_rs.validator_for(schema))
    for kind, schema in SCHEMAS.items()
}


def kind_of(data: dict[str, Any]) -> str:
    return "hp-tuning-job" if "studySpec" in data else "custom-job"


def valid(kind: str, data: Any) -> bool:
    """Whether two validators take it; they must agree."""
    one, other = (validator.is_valid(data) for validator in VALIDATORS[kind])
    assert one == other
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schemas_are_current(kind: str) -> None:
    """docs/schema has what `keys --schema` prints, and `init` names it; `make reference` brings it up to date."""
    assert json.loads((REPOSITORY / f"docs/schema/{kind}.json").read_text()) == SCHEMAS[kind]
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])
    assert MODELINE.endswith("/docs/schema/project.json")


@pytest.mark.parametrize("name", [*VALID, "job", "study"])
def test_valid_jobs_fit(name: str) -> None:
    """Every valid job and tuning job of the tests fits the schema of its kind."""
    assert valid(kind_of(BASES[name]), json.loads(json.dumps(BASES[name])))


POOL = "workerPoolSpecs[0]"
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("cpu", {f"{POOL}.replicaCont": 1}),
    ("cpu", {f"{POOL}.replicaCount": "one"}),
    ("cpu", {f"{POOL}.machineSpec.acceleratorType": "NVIDIA_T4"}),
    ("cpu", {"scheduling.timeout": 3600}),
    ("cpu", {"scheduling.timeout": "1h"}),
    ("cpu", {f"{POOL}.containerSpec.args": "--epochs=3"}),
    ("cpu", {f"{POOL}.containerSpec.args[0]": 3}),
    ("cpu", {"labels": {"a": "b"}}),
    ("sweep", {"studySpec.metrics[0].goal": "MAX"}),
    ("sweep", {"trialJobSpec": []}),
    ("sweep", {"createTime": "2026-01-01T00:00:00Z"}),
]


@pytest.mark.parametrize(("base", "edits"), WRONG, ids=[next(iter(edits)) for _, edits in WRONG])
def test_wrong_jobs_do_not(base: str, edits: dict[str, Any]) -> None:
    """A wrong key, type, enum value or duration, and a field that only the service writes, does not fit."""
    assert not valid(kind_of(BASES[base]), json.loads(json.dumps(changed(BASES[base], edits))))


class Server:
    """The YAML language server over stdio, as an editor speaks to it."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.numbers = itertools.count(1)
        self.told: list[dict[str, Any]] = []
        self.folder = folder
        settings = {"yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}}
        self.ask("initialize", {"processId": os.getpid(), "rootUri": folder.as_uri(), "capabilities": {}})
        self.send("initialized", {})
        self.send("workspace/didChangeConfiguration", {"settings": settings})

    def send(self, method: str, params: Any, number: int | None = None) -> None:
        data = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": number} if number else {})
        self._write(data)

    def _write(self, data: dict[str, Any]) -> None:
        body = json.dumps(data).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        length = 0
        while line := self.process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        found: dict[str, Any] = json.loads(self.process.stdout.read(length))
        if "method" in found and "id" in found:  # it asks for settings, or registers something
            items = found.get("params", {}).get("items", ()) if found["method"] == "workspace/configuration" else ()
            self._write({"jsonrpc": "2.0", "id": found["id"], "result": [None for _ in items] if items else None})
        elif "method" in found:
            self.told.append(found)
        return found

    def ask(self, method: str, params: Any) -> Any:
        number = next(self.numbers)
        self.send(method, params, number)
        while True:
            found = self._read()
            if found.get("id") == number and "method" not in found:
                return found.get("result")

    def open(self, name: str, text: str) -> list[dict[str, Any]]:
        """Open a file; return what is underlined in it."""
        uri = (self.folder / name).as_uri()
        (self.folder / name).write_text(text)
        self.told.clear()
        self.send(
            "textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}
        )
        while True:
            for one in self.told:
                if one["method"] == "textDocument/publishDiagnostics" and one["params"]["uri"] == uri:
                    return list(one["params"]["diagnostics"])
            self._read()

    def at(self, method: str, name: str, line: int, character: int) -> Any:
        place = {
            "textDocument": {"uri": (self.folder / name).as_uri()},
            "position": {"line": line, "character": character},
        }
        return self.ask(method, place)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    npm, node = need("npm"), need("node")
    folder = tmp_path_factory.mktemp("editor")
    command = [npm, "install", "--silent", "--prefix", str(folder), "yaml-language-server@1"]
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    program = folder / "node_modules/yaml-language-server/bin/yaml-language-server"
    if not program.exists():
        pytest.skip(f"npm cannot install yaml-language-server: {made.stderr[:200]}")
    running = Server([node, str(program), "--stdio"], folder)
    yield running
    running.process.kill()
    running.process.wait()


def modeline(server: Server, kind: str) -> str:
    path = server.folder / f"{kind}.json"
    path.write_text(json.dumps(SCHEMAS[kind]))
    return f"{MODELINE.partition('=')[0]}={path.as_uri()}\n"


PROJECT = """\
project: my-project
jobs:
  cpu:
    topology: cpu
    machine_type: n1-
    timeot: 3600s
    accelerator_count: two
"""


@pytest.mark.whole
def test_an_editor_completes_explains_and_underlines_a_project_file(server: Server) -> None:
    """With the line that `init` writes: a wrong key and value are underlined, machine types and keys completed, a key explained."""
    text = modeline(server, "project") + PROJECT
    underlined = {one["range"]["start"]["line"]: one["message"] for one in server.open("vertexrig.yaml", text)}
    assert set(underlined) == {6, 7} and "timeot" in underlined[6], underlined
    machines = [one["label"] for one in server.at("textDocument/completion", "vertexrig.yaml", 5, 21)["items"]]
    assert {"n1-standard-8", "a3-highgpu-8g"} <= set(machines)
    keys = [one["label"] for one in server.at("textDocument/completion", "vertexrig.yaml", 6, 4)["items"]]
    assert {"timeout", "worker", "strategy"} <= set(keys) and "topology" not in keys
    hover = server.at("textDocument/hover", "vertexrig.yaml", 5, 8)
    assert "Machine type, such as n1-standard-8" in json.dumps(hover)
    assert server.open("other.yaml", modeline(server, "project") + (REPOSITORY / "vertexrig.yaml").read_text()) == []


@pytest.mark.whole
def test_an_editor_knows_the_file_for_gcloud(server: Server) -> None:
    """A misspelt field and a wrong accelerator are underlined, the accelerators completed, a good file is left alone."""
    good = modeline(server, "custom-job") + yaml.safe_dump(BASES["gpu"], sort_keys=False)
    assert server.open("good.yaml", good) == []
    bad = good.replace("replicaCount", "replicaCont").replace("NVIDIA_TESLA_T4", "NVIDIA_T4")
    lines = good.splitlines()
    places = [next(n for n, line in enumerate(lines) if word in line) for word in ("acceleratorType", "replicaCount")]
    assert [one["range"]["start"]["line"] for one in server.open("bad.yaml", bad)] == places
    place = lines[places[0]].index("NVIDIA")
    found = server.at("textDocument/completion", "good.yaml", places[0], place)["items"]
    assert {"NVIDIA_L4", "NVIDIA_TESLA_T4"} <= {one["label"] for one in found}
