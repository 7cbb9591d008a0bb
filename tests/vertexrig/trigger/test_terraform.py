"""Terraform files of the trigger, read by python-hcl2 and compared with the gcloud commands of `deploy`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import clouds, tools
from tests.vertexrig.trigger.test_deploy import EVERYTHING, RIGHTS, WITH_RUN
from vertexrig.project import config
from vertexrig.project.config import Loaded
from vertexrig.trigger import alerts, deploy, schedules, terraform

URI = "https://vertexrig-1.run.app"
NUMBER = "${data.google_project.trigger.number}"
CHANNEL = "projects/my-project/notificationChannels/1"
ALL: dict[str, Any] = {
    **RIGHTS,
    "service_account": "train@my-project.iam.gserviceaccount.com",
    "trainer": {"image": "build"},
    "schedules": {
        **RIGHTS["schedules"],
        "odd": {"run": "sweep", "cron": "0 4 * * *", "paused": True, "then": ["promote", "register"],
                "retry_config": {"max_retry_duration": "3600s"}, "description": '"$${X}" %{ if } \\ $$$${\n'},
    },
    "trigger": {**RIGHTS["trigger"], **EVERYTHING, "uri": URI, "concurrency": 4, "timeout": "300s", "service_account": "own@my-project.iam.gserviceaccount.com"},
}  # fmt: skip
"""A project whose trigger has every option of the deployment."""
DIRECT = {**ALL, "trigger": {**RIGHTS["trigger"], **WITH_RUN, "uri": URI}}
"""The same with a network and without a key."""


def own(folder: Path, _: object = None) -> Loaded:
    """This repository's own project file, with the URL of a function that is deployed."""
    text = (tools.REPOSITORY / "vertexrig.yaml").read_text().replace("\ntrigger:", f"\ntrigger:\n  uri: {URI}", 1)
    (folder / "vertexrig.yaml").write_text(text)
    return config.load(folder / "vertexrig.yaml")


PROJECTS = pytest.mark.parametrize(
    "make",
    [own, lambda folder: clouds.loaded(folder, ALL), lambda folder: clouds.loaded(folder, DIRECT)],
    ids=["own", "all", "direct"],
)


def exported(loaded: Loaded, folder: Path, *variables: str) -> tuple[list[deploy.DeployStep], dict[str, str]]:
    """The commands of `deploy`, and the text of each file."""
    steps = deploy.commands(terraform.built(loaded), folder / "out", variables)
    return steps, terraform.hcl(loaded, steps, "source-0.zip", [CHANNEL])


def blocks(texts: dict[str, str], kind: str = "resource") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type, name and body of each block, with the values of its strings."""
    for text in texts.values():
        for block in hcl2.loads(text).get(kind, []):
            ((type_, named),) = block.items()
            for name, body in named.items():
                yield value(type_), value(name), value(body)


def value(parsed: Any) -> Any:
    """What python-hcl2 has read: strings without quotes and escapes, a block that is there once as its body."""
    if isinstance(parsed, dict):
        return {value(key): value(one) for key, one in parsed.items() if not key.startswith("__")}
    if isinstance(parsed, list):
        once = len(parsed) == 1 and isinstance(parsed[0], dict)
        return value(parsed[0]) if once else [value(one) for one in parsed]
    if isinstance(parsed, str) and parsed[:1] == '"' and not parsed.startswith('"${path.'):
        assert not re.search("[$%]{", parsed.replace(NUMBER, "")), f"a template: {parsed}"
        return json.loads(parsed, strict=False)
    return parsed


def resolved(texts: dict[str, str]) -> list[tuple[str, str, dict[str, Any]]]:
    """The resources, with the values of what they refer to, as the provider's documentation has them."""
    found = list(blocks(texts))
    known = {(type_, name): body for type_, name, body in found}
    assert len(known) == len(found), "two resources have one name"

    def referred(found: re.Match[str]) -> str:
        if found[1] == "data.google_storage_project_service_account.trigger.member":
            return "serviceAccount:$(gcloud storage service-agent --project=my-project)"
        if found[1] == "data.google_project.trigger.number":
            return "$(gcloud projects describe my-project --format='value(projectNumber)')"
        type_, name, attribute = found[1].split(".")
        body = known[type_, name]
        email = f"{body.get('account_id')}@{body.get('project')}.iam.gserviceaccount.com"
        if type_ == "google_service_account":
            return {"email": email, "member": f"serviceAccount:{email}", "id": f"projects/{body['project']}/serviceAccounts/{email}"}[attribute]  # fmt: skip
        if type_ == "google_project_iam_custom_role":
            return {"id": f"projects/{body['project']}/roles/{body['role_id']}"}[attribute]
        return filled(str(body[attribute]))

    def filled(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: filled(part) for key, part in one.items() if key != "depends_on"}
        if isinstance(one, list):
            return [filled(part) for part in one]
        return re.sub(r"\$\{([a-z0-9_.]*google_[\w.-]+)\}", referred, one) if isinstance(one, str) else one

    return [(type_, name, filled(body)) for type_, name, body in found]


ON = {
    "google_project_iam_member": "projects", "google_storage_bucket_iam_member": "storage buckets",
    "google_service_account_iam_member": "iam service-accounts", "google_pubsub_topic_iam_member": "pubsub topics",
    "google_secret_manager_secret_iam_member": "secrets", "google_kms_crypto_key_iam_member": "kms keys",
    "google_cloud_run_service_iam_member": "run services",
    "google_artifact_registry_repository_iam_member": "artifacts repositories",
}  # fmt: skip
FLAGS = {
    "build_config": {"runtime": "runtime", "entry_point": "entry-point", "service_account": "build-service-account", "docker_repository": "docker-repository"},
    "service_config": {
        "service_account_email": "service-account", "available_memory": "memory", "available_cpu": "cpu", "min_instance_count": "min-instances",
        "max_instance_count": "max-instances", "vpc_connector": "vpc-connector",
        "max_instance_request_concurrency": "concurrency",
    },
    "event_trigger": {"trigger_region": "trigger-location", "service_account_email": "trigger-service-account"},
}  # fmt: skip


def command(type_: str, body: dict[str, Any]) -> list[str]:
    """The words of gcloud that make what a resource makes: KeyError if it has an argument that no flag says."""
    take = dict(body)
    if type_ == "google_project_service":
        apis = re.findall(r'"([^"]+)"', take.pop("for_each"))
        assert (take.pop("service"), take.pop("disable_on_destroy")) == ("${each.value}", False)
        words = ["services", "enable", *apis]
    elif type_ == "google_service_account":
        words = ["iam", "service-accounts", "create", take.pop("account_id")]
        assert take.pop("create_ignore_already_exists") is True
        assert (take.pop("deletion_policy", "") == "ABANDON") is (words[3] in ("own", "build"))
    elif type_ == "google_project_iam_custom_role":
        words = ["iam", "roles", "create", take.pop("role_id"), f"--permissions={','.join(take.pop('permissions'))}"]
    elif type_ == "google_artifact_registry_repository":
        words = ["artifacts", "repositories", "create", take.pop("repository_id")]
        words += [f"--repository-format={take.pop('format').lower()}"]
    elif type_ in ON:
        on = take.pop(next(iter(take)))
        if type_ == "google_service_account_iam_member":
            _, project, _, on = on.split("/")
            take["project"] = project
        if type_ == "google_cloud_run_service_iam_member":
            take["region"] = take.pop("location")
        if type_ == "google_project_iam_member":
            take["condition"] = "None"
        on = f"gs://{on}" if type_ == "google_storage_bucket_iam_member" else on
        words = [*ON[type_].split(), "add-iam-policy-binding", on]
    else:
        assert type_ == "google_cloudfunctions2_function", type_
        words = ["functions", "deploy", take.pop("name"), "--gen2", f"--region={take.pop('location')}"]
        service, build, event = take["service_config"], take["build_config"], take.get("event_trigger")
        stored = build.pop("source")["storage_source"]
        assert stored == {"bucket": service.pop("bucket", stored["bucket"]), "object": "functions/source-0.zip"}
        words += [f"--timeout={service.pop('timeout_seconds')}s", f"--update-labels={','.join('='.join(pair) for pair in take.pop('labels').items())}"]  # fmt: skip
        ingress = service.pop("ingress_settings").removeprefix("ALLOW_").lower().replace("_", "-")
        words += [f"--ingress-settings={ingress}"]
        if egress := service.pop("vpc_connector_egress_settings", ""):
            words += [f"--egress-settings={ {'ALL_TRAFFIC': 'all'}[egress] }".replace(" ", "")]
        if egress := service.pop("direct_vpc_egress", ""):
            words += [f"--egress-settings={ {'VPC_EGRESS_ALL_TRAFFIC': 'all'}[egress] }".replace(" ", "")]
        direct = service.pop("direct_vpc_network_interface", {})
        words += [
            f"--{flag}={direct[key]}" for key, flag in (("network", "network"), ("subnetwork", "subnet")) if direct
        ]
        if key := take.pop("kms_key_name", ""):
            words += [f"--kms-key={key}"]
        if variables := service.pop("environment_variables", {}):
            words += [f"--set-env-vars=^@^{'@'.join('='.join(pair) for pair in variables.items())}"]
        if event:
            assert event.pop("retry_policy") == "RETRY_POLICY_RETRY"
            words += ["--retry"]
            kind, filters = event.pop("event_type"), event.pop("event_filters", {})
            topic = event.pop("pubsub_topic", "").removeprefix("projects/my-project/topics/")
            words += [f"--trigger-topic={topic}" if topic else f"--trigger-event-filters=type={kind},{filters['attribute']}={filters['value']}"]  # fmt: skip
        else:
            words += ["--trigger-http", "--no-allow-unauthenticated"]
        for name, flags in FLAGS.items():
            words += [f"--{flags[key]}={one}" for key, one in take.pop(name, {}).items()]
    return [*words, *(f"--{key.replace('_', '-')}={one}" for key, one in take.items())]


PROVIDER = json.loads(Path(__file__).with_name("provider_arguments.json").read_text())["resources"]
"""Arguments and blocks of each resource type, in which `!` marks what is required. The file says where it comes from."""
LATER = (
    "google_service_account.deletion_policy",
    "google_cloudfunctions2_function.service_config.direct_vpc_egress",
    "google_cloudfunctions2_function.service_config.direct_vpc_network_interface",
)
"""Arguments that the provider has since a later version than the file's; `terraform.PROVIDER` asks for one that has them."""


META = ("count", "depends_on", "for_each", "lifecycle", "provider")
"""Arguments that every resource has."""


def unknown(body: dict[str, Any], known: dict[str, Any], place: str) -> Iterator[str]:
    """What is wrong with the arguments of a block."""
    names = {key.rstrip("!"): inner for key, inner in known.items()}
    others = (f"{place}.{key}" for key in body if key not in {*names, *META})
    yield from (f"{one} is no argument" for one in others if one not in LATER)
    yield from (f"{place}.{key[:-1]} is missing" for key in known if key.endswith("!") and key[:-1] not in body)
    for key, inner in names.items():
        given = body.get(key, [])
        for one in (given if isinstance(given, list) else [given]) if inner else []:
            yield from (
                unknown(one, inner, f"{place}.{key}") if isinstance(one, dict) else [f"{place}.{key} is no block"]
            )


@PROJECTS
def test_the_provider_has_every_argument(tmp_path: Path, make: Any) -> None:
    """Each argument and block is one that the provider's schema has at its place, and none that it requires is missing."""
    _, texts = exported(make(tmp_path), tmp_path)
    for type_, name, body in resolved(texts):
        assert list(unknown(body, PROVIDER[type_], type_)) == [], name


@PROJECTS
def test_the_files_make_what_the_commands_make(tmp_path: Path, make: Any) -> None:
    """Each service, account, role, binding, repository and function of the commands is a resource with the same fields, and there is no
    other: this repository's own trigger, and one with every option.
    """
    steps, texts = exported(make(tmp_path), tmp_path)
    lines = [shlex.split(one.words[2]) if one.words[0] == "sh" else one.words for one in steps]
    wanted = [sorted(word for word in words[1:] if not word.startswith("--source=")) for words in lines[:-1]]
    more = ("google_storage_bucket", "google_cloud_scheduler", "google_monitoring")
    made = [
        sorted(command(type_, body))
        for type_, _, body in resolved(texts)
        if not type_.startswith(more) or type_.endswith("_iam_member")
    ]
    assert sorted(made) == sorted(wanted)
    assert all(name == "trigger" for _, name, _ in blocks(texts, "data")), "a data source is there twice"
    bound = [step.line for step in deploy.commands(make(tmp_path), tmp_path / "out") if "policy-binding" in step.line]
    assert sorted(bound) == sorted(step.line for step in steps if "policy-binding" in step.line)
    assert lines[-1][:3] == ("gcloud", "functions", "describe") and "service_config[0].uri" in texts["main.tf"]


def camel(data: Any) -> Any:
    """Arguments under the names of the REST API."""
    if isinstance(data, dict):
        return {re.sub("_([a-z])", lambda one: one[1].upper(), key): camel(one) for key, one in data.items()}
    return data


@PROJECTS
def test_schedules_and_alerts(tmp_path: Path, make: Any) -> None:
    """Jobs of Cloud Scheduler and alert policies have the fields that `schedule apply` and `function alerts` send."""
    loaded = make(tmp_path)
    _, texts = exported(loaded, tmp_path)
    jobs, policies = dict[str, Any](), dict[str, Any]()
    for type_, name, body in resolved(texts):
        body.pop("project") if "project" in body else None
        if type_ == "google_cloud_scheduler_job":
            one = camel(body)
            assert one.pop("paused") is (name == "vertexrig-odd")
            text = re.fullmatch(r"\$\{base64encode\((.*)\)\}", one["httpTarget"]["body"])
            assert text is not None
            one["httpTarget"]["body"] = base64.b64encode(value(text[1]).encode()).decode()
            one["name"] = f"projects/my-project/locations/{one.pop('region')}/jobs/{one['name']}"
            jobs[name] = one
        elif type_ == "google_monitoring_alert_policy":
            one = camel(body)
            if absent := one["conditions"].get("conditionAbsent"):
                absent["aggregations"] = [absent["aggregations"]]
            policies[name.removeprefix("vertexrig_")] = {**one, "conditions": [one["conditions"]]}
    assert jobs == schedules.wanted(loaded) and len(jobs) > 1
    assert policies == alerts.policies(loaded, [CHANNEL])


PARTS = [
    *("$", "%", "{", "}", "${", "%{", '"', "\\", "\n", "\r\t\0\x7f"),
    *("é", "e\u0301", "😀", "\U000e0001", "\u2028", "if"),
]


@given(st.lists(st.sampled_from(PARTS) | st.characters(exclude_categories=["Cs"])).map("".join))
def test_no_value_is_a_template(text: str) -> None:
    """Whatever a name, an address or a cron line holds, a parser of HCL reads it as that string."""
    ((_, _, body),) = blocks({"": f'resource "a" "b" {{\n  c = {terraform.quoted(text)}\n  d = "e"\n}}\n'})
    assert body == {"c": text, "d": "e"}


def terraform_program(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("no program terraform on this machine")
    env = {**os.environ, "TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1"}
    return subprocess.run([program, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_terraform_reads_the_strings(tmp_path: Path) -> None:
    """Terraform itself reads strings as they are, in its normal form of Unicode."""
    texts = [one + two + three for one in PARTS for two in PARTS for three in ("{", "", "~")]
    outputs = "".join(
        f'output "o{index}" {{\n  value = {terraform.quoted(one)}\n}}\n' for index, one in enumerate(texts)
    )
    (tmp_path / "main.tf").write_text(outputs)
    assert not terraform_program(tmp_path, "apply", "-auto-approve", "-no-color").stderr
    read = json.loads(terraform_program(tmp_path, "output", "-json").stdout)
    assert [read[f"o{index}"]["value"] for index in range(len(texts))] == [
        unicodedata.normalize("NFC", one) for one in texts
    ]


@PROJECTS
def test_terraform_takes_the_files(tmp_path: Path, make: Any) -> None:
    """`terraform fmt` changes nothing, and `terraform validate` accepts the files where the provider can be had."""
    _, texts = exported(make(tmp_path), tmp_path)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    formatted = terraform_program(tmp_path, "fmt", "-check", "-diff", "-no-color")
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr
    got = terraform_program(tmp_path, "init", "-backend=false", "-no-color")
    if got.returncode:
        pytest.skip(f"terraform fmt changes nothing; the provider cannot be had: {got.stderr.strip()[:300]}")
    validated = terraform_program(tmp_path, "validate", "-no-color")
    assert validated.returncode == 0, validated.stdout + validated.stderr


def test_no_file_has_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that looks like a secret is a variable of Terraform, declared once; another one is written."""
    monkeypatch.setenv("API_TOKEN", "it's-a-secret-value")
    monkeypatch.setenv("TEAM", "a|b@c")
    _, texts = exported(clouds.loaded(tmp_path, ALL), tmp_path, "API_TOKEN", "TEAM")
    functions = [body for type_, _, body in blocks(texts) if type_ == "google_cloudfunctions2_function"]
    for body in functions:
        variables = body["service_config"]["environment_variables"]
        assert (variables["API_TOKEN"], variables["TEAM"]) == ("${var.API_TOKEN}", "a|b@c")
    assert len(functions) == 3 and "secret-value" not in "".join(texts.values())
    assert [block.keys() for block in hcl2.loads(texts["main.tf"])["variable"]] == [{'"API_TOKEN"'}]


def test_a_flag_without_an_argument_is_found(tmp_path: Path) -> None:
    """A flag or a command of `deploy` that the files cannot say ends the export: nothing is left out silently."""
    loaded = clouds.loaded(tmp_path)
    for words in (("gcloud", "services", "enable", "a", "--project=p", "--new=1"), ("gcloud", "kms", "keys", "create")):
        with pytest.raises(AssertionError, match="no (argument for new|resource for gcloud kms)"):
            terraform.hcl(loaded, [deploy.DeployStep("new", words)], "a.zip")


def test_the_command(tmp_path: Path) -> None:
    """`function export terraform` writes the files and the staged function as an archive named by its hash; the same project gives the
    same bytes, and an older archive goes.
    """
    clouds.loaded(tmp_path, {**clouds.PROJECT, "schedules": RIGHTS["schedules"]})
    (tmp_path / "tf").mkdir()
    for old in ("source-0123456789ab.zip", "source-mine.zip"):
        (tmp_path / "tf" / old).write_text("")
    for folder in ("tf", "again"):
        done = tools.typed("function", "export", "terraform", folder, "--format=json", cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
    made = [tmp_path / name for name in done.document["files"]]
    assert [one.name for one in made[:4]] == ["main.tf", "iam.tf", "schedules.tf", "alerts.tf"]
    assert all((tmp_path / "tf" / one.name).read_bytes() == one.read_bytes() for one in made)
    assert made[4].name == f"source-{hashlib.sha256(made[4].read_bytes()).hexdigest()[:12]}.zip"
    assert made[4].name in (tmp_path / "tf/main.tf").read_text()
    with zipfile.ZipFile(made[4]) as packed:
        staged = tmp_path / config.STAGED_FOLDER
        assert set(packed.namelist()) == {
            one.relative_to(staged).as_posix() for one in staged.rglob("*") if one.is_file()
        }
        assert {one.date_time for one in packed.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert packed.read("main.py") == (staged / "main.py").read_bytes()
    assert sorted(one.name for one in (tmp_path / "tf").glob("*.zip")) == sorted([made[4].name, "source-mine.zip"])
    assert "google_cloud_scheduler_job" not in made[2].read_text() and "trigger.uri is not set" in done.stderr
