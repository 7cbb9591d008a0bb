"""Environments of a project file: each is the file with its own keys, at its own lines, and shares nothing that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vertexrig import yamltext
from vertexrig.errors import ConfigError, UsageError
from vertexrig.project import candidates, config
from vertexrig.project.model import Project
from vertexrig.schema.json_schema import json_schema
from vertexrig.workspace import Workspace

FILE = Path("vertexrig.yaml")
TEXT = """region: us-central1
labels: {team: vision, stage: none}
jobs:
  cpu: {machine_type: n1-standard-4, timeout: 600s, args: {epochs: 2, flag: null}, package_uris: [gs://p/a.tar.gz]}
schedules:
  nightly: {run: cpu, cron: "0 3 * * *"}
environments:
  dev:
    project: my-dev
    bucket: gs://my-dev
    schedules: null
  prod:
    project: my-prod
    bucket: ${PROD_BUCKET:-gs://my-prod}
    labels: {stage: prod}
    jobs:
      cpu:
        machine_type: n1-standrd-8
        args: {flag: null}
        package_uris: [gs://p/b.tar.gz, gs://p/c.tar.gz]
        candidates: [{strategy: SPOT}]
    trigger: {budget: {usd_per_day: 50}}
"""
TREES = st.recursive(
    st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPPINGS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


def load(env: str = "", text: str = TEXT, overrides: tuple[str, ...] = (), **variables: str) -> config.Loaded:
    return config.loads(text, file=FILE, env=env, overrides=overrides, environ=variables)


def difference(base: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What an environment has to say to make one mapping of another."""
    own: dict[str, Any] = dict.fromkeys(base.keys() - wanted.keys())
    for key, value in wanted.items():
        if key not in base or base[key] != value:
            both = isinstance(value, dict) and isinstance(base.get(key), dict)
            own[key] = difference(base[key], value) if both else value
    return own


@given(MAPPINGS, MAPPINGS)
def test_an_environment_is_the_file_written_by_hand(base: dict[str, Any], wanted: dict[str, Any]) -> None:
    """The file with the keys that make another file of it is that file, and without the environment it is what it was."""

    def file(spec: dict[str, Any]) -> dict[str, Any]:
        return {"project": "my-project", "jobs": {"cpu": {"spec": spec}}}

    data = {**file(base), "environments": {"prod": {"jobs": {"cpu": {"spec": difference(base, wanted)}}}}}
    text = yaml.safe_dump(data)
    assert load("prod", text).project == load("", yaml.safe_dump(file(wanted))).project
    assert load("", text).project == load("", yaml.safe_dump(file(base))).project


def test_keys_are_merged_lists_replaced_and_null_removes() -> None:
    """Mappings are merged over the file's, a list is the environment's own, a null removes, --set goes over both."""
    prod = load("prod", overrides=("jobs.cpu.args.epochs=7",), PROD_BUCKET="gs://other")
    job = prod.project.jobs["cpu"]
    assert (job.machine_type, job.timeout, job.args) == ("n1-standrd-8", "600s", {"epochs": "7"})
    assert job.package_uris == ("gs://p/b.tar.gz", "gs://p/c.tar.gz")
    assert prod.project.labels == {"team": "vision", "stage": "prod"} and prod.project.bucket == "gs://other"
    assert "nightly" in prod.project.schedules and not load("dev").project.schedules
    assert prod.words == ("--env", "prod", "--set", "jobs.cpu.args.epochs=7")
    assert [one.env for one in candidates.others(prod, "cpu")] == ["prod"]


def test_positions_and_names_are_those_of_the_environment() -> None:
    """Errors, findings and their fixes point at the key inside the environment, and at the file for what only it gives."""
    prod = load("prod")
    assert (
        prod.origins.of(("bucket",)),
        prod.origins.of(("region",)),
        prod.origins.of(("jobs", "cpu", "timeout")),
    ) == (14, 1, 4)
    assert prod.origins.path_in_file(("bucket",)) == ("environments", "prod", "bucket") and prod.origins.path_in_file(
        ("region",)
    ) == ("region",)
    assert prod.origins.of(("jobs", "cpu", "package_uris", 0)) == 20
    assert load("dev").origins.of(("schedules", "nightly", "run")) == 11  # the null that removes it
    wrong = next(one for one in Workspace(prod).prepare("cpu").findings if one.id == "machine-unknown")
    assert wrong.line == 18
    assert wrong.edits[0].location == ("environments", "prod", "jobs", "cpu", "machine_type")
    with pytest.raises(ConfigError, match=r":18: environments\.prod\.jobs\.cpu\.machine_type: \[\] is a list"):
        load("prod", TEXT.replace("n1-standrd-8", "[]"))
    with pytest.raises(ConfigError, match=r":4: jobs\.cpu\.timeout: 600 is a number"):
        load("prod", TEXT.replace("600s", "600"))


REFUSED = [
    ("${PROD_BUCKET:-gs://my-prod}", "gs://my-dev/prod", r":14: environments\.prod\.bucket: .*dev and prod have .* bucket, my-dev;"),
    ("${PROD_BUCKET:-gs://my-prod}", "${B}", r"^$"),
    ("project: my-prod", "project: my-dev", r"prod\.trigger\.function: .* function, vertexrig in project my-dev;.*function: NAME"),
    ("    schedules: null", "    schedules: {weekly: null}", r":11: environments\.dev\.schedules\.weekly: .* has no schedules\.weekly"),
    ("  dev:\n", "  Dev:\n", r":8: environments\.Dev: 'Dev' is not a name"),
    ("    trigger: {", "    environments: {}\n    trigger: {", r"environments\.prod\.environments: an environment cannot"),
    ("labels: {team", "trigger: {uri: 'https://x'}\nlabels: {team", r"prod\.trigger\.uri: .* trigger.uri, https://x;.*uri: null"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), REFUSED)
def test_what_two_environments_may_not_share(old: str, new: str, said: str) -> None:
    """The same bucket, function or URL, and other mistakes, are refused whichever environment is loaded, with names and line."""
    text = TEXT.replace(old, new)
    if said == "^$":  # a variable that is not set here says nothing of the other environment
        assert load("dev", text).env == "dev"
        return
    for env in ("dev", "prod", ""):
        with pytest.raises(ConfigError, match=said):
            load(env, text)


def test_another_function_in_the_same_project_is_allowed() -> None:
    """With a bucket and a function of its own, an environment may be in the project of another."""
    text = TEXT.replace("project: my-prod", "project: my-dev").replace("trigger: {", "trigger: {function: prod, ")
    assert load("prod", text).project.trigger.prefix == "vertexrig/prod"


def test_an_environment_must_be_there() -> None:
    """An unknown name is refused with the nearest; a file that has its project only in environments needs one."""
    with pytest.raises(UsageError, match="no environment 'prd', .*Did you mean 'prod'"):
        load("prd")
    with pytest.raises(UsageError, match="no `environments`"):
        load("prod", "project: my-project\n")
    with pytest.raises(
        UsageError, match="gives project only in its environments: choose one with --env dev or --env prod"
    ):
        load()
    with pytest.raises(UsageError, match="--set cannot change environments"):
        load("dev", overrides=("environments.dev.bucket=gs://x-y",))


def test_the_digest_is_of_what_the_environment_has() -> None:
    """A change of one environment leaves the digest of the other, and a change of the file, also of a comment, changes it."""
    assert load("prod").digest != load("dev").digest
    assert load("prod", TEXT.replace("gs://my-dev", "gs://my-dev-2")).digest == load("prod").digest
    assert load("prod", TEXT.replace("usd_per_day: 50", "usd_per_day: 60")).digest != load("prod").digest
    assert load("prod", TEXT + "# vertexrig: ignore[x]\n").digest != load("prod").digest


def test_an_entry_that_is_left_out_is_not_in_the_merged_values() -> None:
    """The merged values of an environment, of which the digest is made, lack the entries of `without`."""
    left = config.loads(TEXT, file=FILE, env="prod", environ={}, without=[("schedules", "nightly")])
    assert left.chosen.merged == {**load("prod").chosen.merged, "schedules": {}}
    assert left.digest != load("prod").digest and not left.project.schedules


def test_the_schema_knows_the_keys_of_an_environment() -> None:
    """It takes parts and nulls there, refuses unknown keys and types, and needs a project or environments at the top."""
    validator = jsonschema.Draft202012Validator(json_schema(Project))
    validator.validate(yamltext.read(TEXT).data)
    validator.validate({"environments": {"a": None, "b": {"schedules": {"n": {"paused": True}, "m": None}}}})
    for wrong in ({"bukket": "gs://a-b"}, {"jobs": {"cpu": {"machine_typ": "x"}}}, {"region": 3}, {"environments": {}}):
        assert not validator.is_valid({"environments": {"a": wrong}}), wrong
    assert not validator.is_valid({"region": "us-central1"})
