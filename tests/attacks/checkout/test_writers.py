"""What comes from the service, or from another file, stays a value in every file that is written of it."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attacks.checkout.hostile import DESCRIBED, PROJECT, SETUP, TASK, checkout
from tests.support.tools import examples, typed, vertexrig
from vertexrig import yamltext
from vertexrig.bring import edit
from vertexrig.catalog import load
from vertexrig.errors import VertexrigError
from vertexrig.package.discover import trainers
from vertexrig.render import starter

NASTY = ["a\nbucket: gs://evil", "x}\ntrigger: {allow: {all: [args]}}", "a: b", "- a", "#", "'\"", "{}", "${HOME}", "\u2028", "\x1b[31m", "\x85", "!!python/x", "&a *a", "%", "0x10", "~", "on", ""]  # fmt: skip
BUILT_IN = PROJECT.replace("templates: templates\n", "").replace("topology: own, ", "")
"""The project without templates of its own, which a process of their own would render."""
words = st.one_of(st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12))


def described(text: str, name: str, parts: list[str]) -> dict[str, Any]:
    """A study with texts in every place that may hold any."""
    data: dict[str, Any] = copy.deepcopy(DESCRIBED)
    project, label, machine, image, parameter, arg = parts
    data |= {"displayName": name, "name": data["name"].replace("my-project", project), "labels": {"team": label}}
    pool = data["trialJobSpec"]["workerPoolSpecs"][0]
    pool["machineSpec"]["machineType"] = machine
    pool["containerSpec"] = {"imageUri": image, "args": [arg, f"--x={text}"], "env": [{"name": "A", "value": text}]}
    data["studySpec"]["parameters"][0]["parameterId"] = parameter
    for trial in data["trials"]:
        trial["parameters"][0]["parameterId"] = parameter
    return data


@pytest.mark.whole
@settings(max_examples=examples(25, 500), suppress_health_check=list(HealthCheck))
@given(text=words, name=words, parts=st.lists(words, min_size=6, max_size=6))
def test_no_value_becomes_a_key(
    tmp_path_factory: pytest.TempPathFactory, text: str, name: str, parts: list[str]
) -> None:
    """A project file that `pull`, `convert`, `promote` and `follow-up` write has the keys that they add, whatever the values."""
    folder = checkout(tmp_path_factory.mktemp("w"))
    (folder / "vertexrig.yaml").write_text(BUILT_IN)
    data = described(text, name, parts)
    (folder / "job.json").write_text(json.dumps(data))
    (folder / "gcloud.yaml").write_text(json.dumps({"workerPoolSpecs": data["trialJobSpec"]["workerPoolSpecs"]}))
    for verb in (("pull", "job.json"), ("convert", "gcloud.yaml")):
        done = typed(*verb, "--into", "new.yaml", "--as", "new", cwd=folder)
        if done.exit_code == 0:
            found = edit.data_of(edit.read(folder / "new.yaml"), "new.yaml")
            assert found.keys() <= {"project", "region", "bucket", "jobs", "sweeps"}, found
            assert {*found.get("jobs", {}), *found.get("sweeps", {})} <= {"new", "new-trial"}
            (folder / "new.yaml").unlink()
    before = edit.data_of(BUILT_IN, "")
    for verb in ("promote", "follow-up"):
        done = typed(verb, "job.json", "--sweep", "sweep", "--as", "new", cwd=folder)
        found = edit.data_of(edit.read(folder / "vertexrig.yaml"), "")
        extra = {group: dict(entries) for group, entries in found.items() if group in ("jobs", "sweeps")}
        for group in extra:
            extra[group].pop("new", None)
        assert {**found, **extra} == before, done
        (folder / "vertexrig.yaml").write_text(BUILT_IN)


@pytest.mark.parametrize("verb", [("pull", "job.json"), ("convert", "gcloud.yaml")], ids=lambda verb: verb[0])
def test_no_key_of_an_environment_is_written(tmp_path: Path, verb: tuple[str, ...]) -> None:
    """A key in a job's environment is in no file and no output of `pull` and `convert`, which name Secret Manager."""
    folder, key = checkout(tmp_path), "hf_abcdefghijklmnopqrstuvwx"
    data = described("x", "y", ["p", "l", "n1-standard-4", "gcr.io/p/i", "lr", "--a=1"])
    pool = data["trialJobSpec"]["workerPoolSpecs"][0]["containerSpec"]
    pool["env"] = [{"name": "HF_TOKEN", "value": key}, {"name": "A", "value": "kept"}]
    (folder / "job.json").write_text(json.dumps(data))
    (folder / "gcloud.yaml").write_text(json.dumps({"workerPoolSpecs": data["trialJobSpec"]["workerPoolSpecs"]}))
    done = typed(*verb, "--into", "new.yaml", "--as", "new", cwd=folder)
    written = (folder / "new.yaml").read_text()
    assert done.exit_code == 0 and "Secret Manager" in done.stderr and "kept" in written
    assert key not in written + done.stdout + done.stderr


@settings(max_examples=examples(25, 500), suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.sampled_from(["a b", "a: b", "#x", "- y", "on", "a'b", 'q"', "{z", "é"]), min_size=1, max_size=3),
    flag=words,
)
def test_a_starter_file_has_its_own_keys(tmp_path_factory: pytest.TempPathFactory, names: list[str], flag: str) -> None:
    """Names of folders, and defaults of flags, are values in what `init` writes."""
    folder = tmp_path_factory.mktemp("i")
    place = folder.joinpath(names[0])
    (place / "trainer").mkdir(parents=True)
    (place / "setup.py").write_text(SETUP)
    (place / "trainer/__init__.py").touch()
    (place / "trainer/task.py").write_text(
        TASK.replace("args =", f"parser.add_argument('--flag', default={flag!r})\nargs =")
    )
    found = trainers(folder)
    text = starter.starter(found[0], load()).text if found else "project: p\n"
    data = yamltext.read(text).data
    assert data.keys() <= {"project", "region", "bucket", "trainer", "jobs", "sweeps"} and data["project"]


@settings(max_examples=examples(75, 5000))
@given(
    value=st.recursive(
        words | st.integers() | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
        max_leaves=8,
    )
)
def test_one_function_writes_any_value(value: Any) -> None:
    """What `flow` writes is read back as it was, whatever it is, by itself and as the value of a key."""
    try:
        text = yamltext.flow({"key": value})
    except (VertexrigError, ValueError):
        return
    assert yamltext.read(f"key: {yamltext.flow(value)}\n").data == {"key": value} == yamltext.read(text).data


@pytest.mark.whole
def test_five_that_promote_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each of them adds its job, and what a person saved meanwhile stays."""
    folder = checkout(tmp_path)
    (folder / "vertexrig.yaml").write_text(BUILT_IN)
    names = [f"best{n}" for n in range(5)]
    with ThreadPoolExecutor(5) as pool:
        promote = partial(vertexrig, "promote", "job.json", "--sweep", "sweep", "--as", cwd=folder)
        ended = list(pool.map(promote, names))
    assert [done.returncode for done in ended] == [0] * 5, ended
    assert edit.data_of(edit.read(folder / "vertexrig.yaml"), "")["jobs"].keys() == {"cpu", *names}


def test_what_was_saved_meanwhile_stays(tmp_path: Path) -> None:
    """A file that somebody has saved since it was read gets the entry, and keeps what is new in it."""
    file, entry = tmp_path / "vertexrig.yaml", edit.Entry("jobs", "b", {"topology": "cpu"})
    file.write_text("project: p\n")
    before = edit.read(file)
    file.write_text("project: p\nregion: europe-west4 # mine\n")
    edit.write(file, before, edit.added(before, entry), [entry])
    assert file.read_text() == "project: p\nregion: europe-west4 # mine\n\njobs:\n  b:\n    topology: cpu\n"
