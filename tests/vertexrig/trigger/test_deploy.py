"""Deployment: the staged folder, and the gcloud commands as far as the real gcloud checks them without a cloud."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support import clouds, tools
from tests.support.permissions import noted, unknown, used
from tests.support.web import answering
from vertexrig import __version__
from vertexrig.cloud.storage import Storage
from vertexrig.errors import ConfigError, UsageError
from vertexrig.project import config
from vertexrig.spec.labels import label_value
from vertexrig.spec.states import CANCELLED, CANCELLING
from vertexrig.trigger import changes, deploy, stage
from vertexrig.trigger.app import Call, Trigger

DATA: dict[str, Any] = {**clouds.PROJECT, "service_account": "train@my-project.iam.gserviceaccount.com"}
EVERYTHING: dict[str, Any] = {
    "build_service_account": "build@my-project.iam.gserviceaccount.com",
    "deployers": ["user:ana@example.com"],
    "docker_repository": "projects/my-project/locations/us-central1/repositories/functions",
    "labels": {"cost": "ml"},
    "kms_key_name": "projects/my-project/locations/us-central1/keyRings/r/cryptoKeys/k",
    "vpc_connector": "own",
    "egress_settings": "all",
    "ingress_settings": "internal-only",
    "events": {
        "requests": {"topic": "runs"},
        "files": {"bucket": "gs://data", "run": "cpu", "objects": r"gs://data/new/.*\.csv", "arg": "note"},
    },
}
"""Every key about the deployment that `gcloud functions deploy` has."""
WITH_RUN: dict[str, Any] = {
    **{key: value for key, value in EVERYTHING.items() if key not in ("kms_key_name", "vpc_connector")},
    **{"network": "own", "subnet": "small", "min_instances": 1},
}
"""Every key about the deployment that `gcloud run deploy` has."""
BOTH = pytest.mark.parametrize("keys", [EVERYTHING, WITH_RUN], ids=["functions", "run"])


def test_the_staged_folder(tmp_path: Path) -> None:
    """It holds main.py, pinned requirements, the tool without its command line and local Vertex, templates, and the
    project file; staging again replaces it.
    """
    loaded = clouds.loaded(tmp_path)
    staged = stage.stage(loaded, tmp_path / "out")
    names = {file.relative_to(staged.folder).as_posix() for file in staged.folder.rglob("*") if file.is_file()}
    code = {"vertexrig/trigger/app.py", "templates/cpu.yaml.j2"}
    assert {"main.py", "requirements.txt", "vertexrig.yaml", *code} <= names
    assert not [name for name in names if name.startswith(("vertexrig/cli", "localvertex")) or name.endswith(".pyc")]
    assert staged.files == len(names) and staged.size < 2_250_000
    text = (staged.folder / "requirements.txt").read_text()
    lines = [line.removesuffix(" \\") for line in text.splitlines() if line and line[0] not in "# "]
    assert all("==" in line for line in lines) and len(lines) == staged.requirements
    assert all("--hash=sha256:" in part for part in text.split("==")[1:])
    locked = (tools.REPOSITORY / "constraints.txt").read_text().lower().replace("_", "-")
    assert not [line for line in lines if line.lower().replace("_", "-") not in locked]
    (staged.folder / "old").write_text("")
    assert not (stage.stage(loaded, tmp_path / "out").folder / "old").exists()


@pytest.mark.parametrize(
    ("folder", "said"),
    [("functions", "holds something"), ("main.py", "is a file"), ("", "holds something"), ("staged", "holds the project file")],
)  # fmt: skip
def test_nothing_of_the_user_s_own_is_replaced(tmp_path: Path, folder: str, said: str) -> None:
    """A folder with a function of the user's own, a file, the project's folder: refused, and all is left as it was."""
    loaded = clouds.loaded(tmp_path)
    if folder == "staged":
        loaded = config.load(stage.stage(loaded, tmp_path / "staged").folder / "vertexrig.yaml")
    (tmp_path / "functions").mkdir()
    for name in ("functions/main.py", "main.py"):
        (tmp_path / name).write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=said):
        stage.stage(loaded, tmp_path / folder)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_prebuilt_image_names_its_framework(tmp_path: Path) -> None:
    """The function has no trainer to read, so `prebuilt` without a framework is refused before it is staged."""
    trainer = {**DATA.get("trainer", {}), "image": "prebuilt"}
    with pytest.raises(ConfigError, match=r"build: \{framework: tf\}"):
        stage.stage(clouds.loaded(tmp_path, {**DATA, "trainer": trainer}), tmp_path / "out")
    named = {**trainer, "build": {"framework": "tf"}}
    assert stage.stage(clouds.loaded(tmp_path, {**DATA, "trainer": named}), tmp_path / "out").files


def test_least_roles(tmp_path: Path) -> None:
    """The function's identity gets three roles, each as narrow as there is, that of its builds three, its caller one, and nobody else may
    call.
    """
    steps = deploy.commands(clouds.loaded(tmp_path, DATA), tmp_path / "out")
    text = "\n".join(step.line for step in steps)
    roles = [word for step in steps for word in step.words if word.startswith("--role=")]
    assert roles == [
        "--role=projects/my-project/roles/vertexrig_trigger_jobs",
        "--role=projects/my-project/roles/vertexrig_trigger_objects",
        "--role=roles/iam.serviceAccountUser",
        *(f"--role={role}" for role in deploy.BUILD_ROLES),
        "--role=roles/run.invoker",
    ]
    assert "--no-allow-unauthenticated" in text and "allUsers" not in text
    assert "gs://my-bucket " in text and "service-accounts add-iam-policy-binding train@my-project" in text


RIGHTS: dict[str, Any] = {
    **DATA,
    "jobs": {
        **DATA["jobs"],
        "elsewhere": {
            "machine_type": "n1-standard-4",
            "candidates": [
                {"region": "europe-west4", "bucket": "gs://my-bucket-eu/runs"},
                {"service_account": "spot@my-project.iam.gserviceaccount.com"},
            ],
        },
    },
    "schedules": {"nightly": {"run": "cpu", "cron": "0 3 * * *", "only_if_changed": "gs://data/**"}},
    "trigger": {
        **DATA["trigger"],
        "notify": [{"topic": "projects/other/topics/runs"}, {"webhook": "projects/other/secrets/hook/versions/latest"}],
    },
}
"""A project whose trigger needs a right on something of each kind."""


def test_candidates_have_their_rights(tmp_path: Path) -> None:
    """The trigger may read a candidate's own bucket, and start jobs as its own account, which may pull the trainer's images."""
    data = {**RIGHTS, "trainer": {"image": "build"}}
    lines = [step.line for step in deploy.commands(clouds.loaded(tmp_path, data), tmp_path / "out")]
    (bucket,) = [line for line in lines if "gs://my-bucket-eu " in line]
    assert bucket.endswith("--role=roles/storage.objectViewer") and "serviceAccount:vertexrig-trigger@" in bucket
    named = [line for line in lines if "spot@my-project" in line]
    held = [line.partition("--role=")[2].split()[0] for line in named]
    assert held == [deploy.ACT_AS, "roles/artifactregistry.reader"]


def test_the_registry_is_opened_only_to_register(tmp_path: Path) -> None:
    """The role has the permissions on models where a schedule registers, and only there; `tests/vertexrig/trigger/test_steps.py` proves each."""
    schedule = {"run": "sweep", "cron": "0 3 * * *", "then": ["promote"]}
    for then, has in ((["promote"], False), (["promote", "register"], True)):
        data = {**DATA, "schedules": {"nightly": {**schedule, "then": then}}}
        text = "\n".join(step.line for step in deploy.commands(clouds.loaded(tmp_path, data), tmp_path / "out"))
        assert all((name in text) is has for name in deploy.MODEL_CALLS) and "aiplatform.customJobs.create" in text


@pytest.mark.whole
def test_every_permission_is_used_and_no_call_is_without_one(tmp_path: Path) -> None:
    """Each permission of the printed roles is proved by a call that the trigger makes, and each call it makes has one: a
    job and a sweep made, found again, looked at, refused, over budget, and a second job cancelled.
    """
    with clouds.cloud(tmp_path / "cloud") as here:
        data = {**clouds.PROJECT, "trigger": {**clouds.PROJECT["trigger"], "budget": {"trials_per_day": 11}}}
        storage, vertex = Storage(clouds.BUCKET, url=here.url), clouds.vertex(here)
        calls = noted(storage.rest, vertex.rest)
        trigger = Trigger(clouds.loaded(tmp_path, data), vertex=vertex, storage=storage, log=lambda _: None)

        def post(**body: Any) -> Any:
            return trigger.handle(Call("POST", "/", {}, lambda most: json.dumps(body).encode()))

        for run in ("cpu", "sweep"):
            first, again = (post(run=run, request_id=run) for _ in range(2))
            assert (first.status, again.status) == (201, 200), first.body
            assert trigger.handle(Call("GET", first.headers["Location"])).status == 200
            other = clouds.vertex(here)
            made = other.get(str(first.body["name"]))
            assert made is not None
            kept = {key: made.data[key] for key in ("displayName", "labels", "jobSpec", "studySpec", "trialJobSpec",
                    "maxTrialCount", "parallelTrialCount") if key in made.data}  # fmt: skip
            second = other.create(made.collection, kept)
            assert post(run=run, request_id=run).body["name"] == made.name
            now = other.get(second.name)
            assert now is not None and now.state in (CANCELLING, CANCELLED)
        assert post(run="cpu", request_id="over").status == 422
    table = {**deploy.JOB_CALLS, **deploy.OBJECT_CALLS}
    assert used(table, calls) == set(table) and not unknown(table, calls)


def test_values_for_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that the project file names are passed on, whatever they hold; those of a local Vertex never are."""
    for name, value in {"TEAM": "a,b=c@d e", "VERTEXRIG_AIPLATFORM": "http://127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    variables = ("TEAM", "VERTEXRIG_AIPLATFORM", "UNSET_ONE")
    steps = deploy.commands(clouds.loaded(tmp_path, DATA), tmp_path, variables)
    (words,) = [step.words for step in steps if step.deploys]
    assert [word for word in words if "env-vars" in word] == ["--set-env-vars=^|^TEAM=a,b=c@d e"]


def test_no_printed_command_shows_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that looks like a secret is named in the line that is shown, and a shell fills it in."""
    monkeypatch.setenv("API_TOKEN", "it's-a 'secret'-value")
    monkeypatch.setenv("TEAM", "a")
    steps = deploy.commands(clouds.loaded(tmp_path, DATA), tmp_path, ("TEAM", "API_TOKEN"))
    (step,) = [step for step in steps if step.deploys]
    assert "a 'secret'" in " ".join(step.words) and "value" not in step.line.partition("--set-env-vars")[2]
    shown = subprocess.run(
        ["sh", "-c", f"printf '%s\\n' {step.line}"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.splitlines() == list(step.words)


def test_no_character_is_left_to_part_the_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value with every character that could part the values is refused with their names."""
    monkeypatch.setenv("TEAM", "@|~#%;+")
    with pytest.raises(UsageError, match="the values of TEAM use every possible one"):
        deploy.commands(clouds.loaded(tmp_path, DATA), tmp_path, ("TEAM",))


@pytest.mark.parametrize("runtime", ["python311", "python3", "nodejs20", "python312; rm", "python3²"])
def test_an_old_runtime_is_refused(tmp_path: Path, runtime: str) -> None:
    """A runtime older than python312 is refused with the line of the key."""
    data = {**DATA, "trigger": {"runtime": runtime}}
    with pytest.raises(ConfigError, match="python312 or newer"):
        deploy.commands(clouds.loaded(tmp_path, data), tmp_path)


def test_every_key_of_the_deployment(tmp_path: Path) -> None:
    """Builder, repository, labels, key, network and ingress reach the commands; each source of events has a function with its roles."""
    project = {**DATA, "labels": {"team": "a"}, "trigger": {**DATA["trigger"], **EVERYTHING}}
    steps = deploy.commands(clouds.loaded(tmp_path, project), tmp_path / "out")
    main, requests, files = [step.words for step in steps if step.deploys]
    wanted = {"functions",
        "--build-service-account=projects/my-project/serviceAccounts/build@my-project.iam.gserviceaccount.com",
        f"--docker-repository={EVERYTHING['docker_repository']}", f"--kms-key={EVERYTHING['kms_key_name']}",
        f"--update-labels=team=a,cost=ml,{deploy.DIGEST_LABEL}={clouds.loaded(tmp_path, project).digest},{deploy.VERSION_LABEL}={label_value(__version__)}", "--vpc-connector=projects/my-project/locations/us-central1/connectors/own", "--egress-settings=all", "--ingress-settings=internal-only",
    }  # fmt: skip
    assert all(wanted <= set(words) for words in (main, requests, files))
    assert {"--trigger-topic=runs", "--retry", "--entry-point=on_event"} <= set(requests)
    assert {
        "--trigger-event-filters=type=google.cloud.storage.object.v1.finalized,bucket=data", "--retry",
        r"--set-env-vars=^@^VERTEXRIG_EVENT_RUN=cpu@VERTEXRIG_EVENT_OBJECTS=gs://data/new/.*\.csv@VERTEXRIG_EVENT_ARG=note",
    } <= set(files)  # fmt: skip
    text = "\n".join(step.line for step in steps)
    assert "eventarc.googleapis.com" in text and "roles/eventarc.eventReceiver" in text
    assert "roles/pubsub.publisher" in text and "storage service-agent" in text
    acting = [step.words[4] for step in steps if "--member=user:ana@example.com" in step.words]
    assert acting == list(deploy.identities(clouds.loaded(tmp_path, project).project))


def test_every_key_with_gcloud_run(tmp_path: Path) -> None:
    """`gcloud run deploy --function` gets the same keys under its own names; Eventarc sends the events to the function, by trigger and by
    account, as the Cloud Functions API does.
    """
    loaded = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **WITH_RUN}})
    steps = deploy.commands(loaded, tmp_path / "out")
    main, requests, files = [step.words for step in steps if step.deploys]
    wanted = {
        "run", "--base-image=python312", "--network=own", "--subnet=small", "--vpc-egress=all-traffic", "--ingress=internal",
        "--min-instances=1", "--no-allow-unauthenticated", "--quiet",
    }  # fmt: skip
    for words in (main, requests, files):
        assert wanted <= set(words) and not {"--gen2", "--trigger-http"} & set(words)
        assert f"--image=us-central1-docker.pkg.dev/my-project/functions/{words[3]}" in words
    assert "--function=trigger" in main and "--function=on_event" in requests
    topic, bucket = [step.words for step in steps if step.words[1:4] == ("eventarc", "triggers", "create")]
    assert {
        "vertexrig-requests", "--destination-run-service=vertexrig-requests", "--transport-topic=projects/my-project/topics/runs",
        "--event-filters=type=google.cloud.pubsub.topic.v1.messagePublished",
        "--service-account=vertexrig-invoker@my-project.iam.gserviceaccount.com",
    } <= set(topic)  # fmt: skip
    assert "--event-filters=type=google.cloud.storage.object.v1.finalized,bucket=data" in bucket
    text = "\n".join(step.line for step in steps)
    assert "cloudfunctions.googleapis.com" not in text and "gcloud functions" not in text


def test_who_uses_the_key(tmp_path: Path) -> None:
    """Each service that stores something of a function gets the role on its key, and nobody without a key."""
    key = EVERYTHING["kms_key_name"]
    for keys, count in ((EVERYTHING, 5), (WITH_RUN, 0)):
        loaded = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **keys}})
        bound = [step.line for step in deploy.commands(loaded, tmp_path) if "gcloud kms" in step.line]
        assert len(bound) == count and all(f"binding {key} " in line and deploy.USES_KEY in line for line in bound)
    said = {"projects": "123\n", "storage": "service-123@gs-project-accounts.iam.gserviceaccount.com\n"}
    grants = deploy.grants(clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **EVERYTHING}}).project)
    agents = {deploy.known(one.member, lambda words: said[words[0]]) for one in grants if one.kind == deploy.KEY}
    names = "gs-project-accounts gcf-admin-robot gcp-sa-artifactregistry serverless-robot-prod gcp-sa-eventarc".split()
    assert agents == {f"serviceAccount:service-123@{name}.iam.gserviceaccount.com" for name in names}


@pytest.mark.parametrize(
    ("trigger", "said"),
    [
        ({"events": {"a": {}}}, "name either a topic"),
        ({"events": {"a": {"topic": "t", "bucket": "gs://data"}}}, "name either a topic"),
        ({"events": {"a": {"bucket": "gs://data", "run": "cpo"}}}, "Did you mean 'cpu'"),
        ({"events": {"a": {"bucket": "gs://data", "run": "cpu", "arg": "shut"}}}, "allow_args"),
        ({"events": {"a": {"bucket": "gs://data", "run": "cpu", "objects": "("}}}, "does not compile"),
        ({"kms_key_name": "k"}, "docker_repository"),
        ({**EVERYTHING, "deploy_with": "run"}, "does not encrypt the build"),
        ({"network": "net", "vpc_connector": "c"}, "either a connector or a network"),
        ({"subnet": "net", "deploy_with": "functions"}, "has no flag for it"),
        ({"docker_repository": "functions"}, "projects/P/locations/R/repositories/NAME"),
        ({"deployers": ["ana@example.com"]}, "a member such as"),
    ],
)
def test_a_deployment_that_cannot_be(tmp_path: Path, trigger: dict[str, Any], said: str) -> None:
    """A source of events or a key that cannot work is refused before anything is staged."""
    with pytest.raises(ConfigError, match=said):
        stage.stage(clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **trigger}}), tmp_path / "out")


@BOTH
def test_what_is_made_is_taken_away(tmp_path: Path, keys: dict[str, Any]) -> None:
    """`function remove` undoes each identity, role, binding, function and schedule, the last made first; what the file names stays."""
    project = {
        **DATA,
        "trigger": {**DATA["trigger"], **keys},
        "schedules": {"nightly": {"run": "sweep", "cron": "0 3 * * *", "then": ["promote"]}},
    }
    clouds.loaded(tmp_path, project)
    printed = tools.typed("function", "remove", "--format=json", cwd=tmp_path)
    assert printed.exit_code == 0, printed.stderr
    removed = [row["command"] for row in printed.document["steps"]]
    made = [step.line for step in deploy.commands(clouds.loaded(tmp_path, project), tmp_path / "out")]
    bound = [line for line in made if "add-iam-policy-binding" in line and "run services" not in line]
    assert len(bound) > 9 and all(line.replace("add-iam", "remove-iam") in removed for line in bound)
    assert [shlex.split(line)[4] for line in removed[:2]] == ["vertexrig-nightly", "vertexrig-tick"]
    kind = "functions delete" if keys is EVERYTHING else "run services delete"
    gone = [line.partition(" delete ")[2].split()[0] for line in removed if kind in line]
    assert gone == ["vertexrig-files", "vertexrig-requests", "vertexrig"]
    sent = [line for line in removed if "eventarc triggers delete" in line and "--location=us-central1" in line]
    assert len(sent) == (2 if keys is WITH_RUN else 0)
    text = "\n".join(removed)
    assert "service-accounts delete vertexrig-trigger@" in text and "delete build@" not in text
    assert text.count("iam roles delete") == 2 and "services disable" not in text


def test_the_url_is_written_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`function deploy --run` writes the URL that gcloud told into the project file, whose other lines stay, and deploys the function with
    that file; another one there stays.
    """
    loaded = clouds.loaded(tmp_path, DATA)
    text = loaded.file.read_text().replace("trigger:", "# who may call\ntrigger:")
    loaded.file.write_text(text)
    fake = tmp_path / "bin/gcloud"
    fake.parent.mkdir()
    fake.write_text(
        '#!/bin/sh\ncase "$*" in *describe\\ vertexrig\\ *) echo https://vertexrig-1.run.app;; run\\ deploy*) echo "$*" >> deployed;; esac\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    for times in (2, 3):
        done = tools.typed("function", "deploy", "--run", "--format=json", cwd=tmp_path)
        assert done.exit_code == 0, done.stderr
        deployed = (tmp_path / "deployed").read_text().splitlines()
        assert len(deployed) == times and f"{deploy.DIGEST_LABEL}={config.load(loaded.file).digest}" in deployed[-1]
        staged = config.load(tmp_path / "build/function/vertexrig.yaml")
        assert staged.project.trigger.uri == "https://vertexrig-1.run.app"
        steps = done.document["steps"]
        assert sum("run deploy" in row["command"] for row in steps) == (2 if times == 2 else 1)
        assert config.load(loaded.file).project.trigger.uri == "https://vertexrig-1.run.app"
        assert [line for line in loaded.file.read_text().splitlines() if "uri:" not in line] == text.splitlines()
    fake.write_text(fake.read_text().replace("vertexrig-1", "vertexrig-2"))
    done = tools.typed("function", "deploy", "--run", cwd=tmp_path)
    assert "has another trigger.uri" in done.stderr and "vertexrig-2" not in loaded.file.read_text()


@BOTH
def test_only_code(tmp_path: Path, keys: dict[str, Any]) -> None:
    """`function deploy --only code` has the commands that deploy functions, without the flag for which gcloud changes a policy, and runs
    nothing where the function's URL is not known.
    """
    loaded = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **keys}})
    printed = tools.typed("function", "deploy", "--only=code", "--format=json", cwd=tmp_path)
    assert printed.exit_code == 0, printed.stderr
    lines = [shlex.split(row["command"]) for row in printed.document["steps"]]
    whole = [step for step in deploy.commands(loaded, Path(config.STAGED_FOLDER)) if step.deploys]
    left = ("--no-allow-unauthenticated", "--quiet")
    assert lines == [[word for word in step.words if word not in left] + ["--quiet"] for step in whole]
    assert [words[3] for words in lines] == ["vertexrig", "vertexrig-requests", "vertexrig-files"]
    refused = tools.typed("function", "deploy", "--only=code", "--run", cwd=tmp_path)
    assert refused.exit_code == 2 and "no trigger.uri" in refused.stderr


@pytest.mark.whole
def test_gcloud_takes_every_command(tmp_path: Path, gcloud: str) -> None:
    """The real gcloud parses each command that is printed or read with, by either way to deploy: none ends with a usage error (exit code 2)."""
    lines: list[str] = []
    reads: list[list[str]] = []
    for keys in (EVERYTHING, WITH_RUN):
        loaded = clouds.loaded(tmp_path, {**DATA, "trigger": {**DATA["trigger"], **keys}})
        for words in (("deploy",), ("deploy", "--only=code"), ("remove",)):
            printed = tools.typed("function", *words, cwd=tmp_path)
            assert printed.exit_code == 0, printed.stderr
            lines += [line for line in printed.stdout.splitlines() if not line.startswith("#")]
        assert list(changes.changes(deploy.commands(loaded, tmp_path), lambda words: reads.append(words)))  # type: ignore[func-returns-value]
    place = ("vertexrig", "--region=us-central1", "--project=my-project", "--format=json")
    reads += [[*words, *place] for words in ([*deploy.SERVICE, "describe"], ["functions", "describe", "--gen2"])]
    lines += [shlex.join(["gcloud", *words]) for words in reads]
    lines += [part for line in lines for part in line.split(" || ")[:-1]]
    # one of those that differ in nothing but values
    lines = list({re.sub(r"=\S+|\S+@\S+|vertexrig\S*", "", line): line for line in lines}.values())
    assert len(lines) > 15

    inside = r"\$\((gcloud .+?)\)(?=[@\"])"
    for script in [shlex.split(line)[2] for line in lines if line.startswith("sh -c ")]:
        lines += [*re.findall(inside, script), re.sub(inside, "x", script)]
    lines = list(dict.fromkeys(line.split(" || ")[-1] for line in lines if not line.startswith("sh ")))
    services = "ARTIFACTREGISTRY CLOUDBUILD CLOUDFUNCTIONS CLOUDKMS CLOUDRESOURCEMANAGER EVENTARC IAM RUN SERVICEUSAGE STORAGE".split()
    env = {**os.environ, "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CONFIG": str(tmp_path / "c"), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}  # fmt: skip
    with answering(lambda *_: (403, b"")) as url:
        env |= {f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}": f"{url}/" for name in services}
        env |= {"http_proxy": url, "no_proxy": ""}  # gcloud puts the region before the host of Cloud Run
        done = [tools.gcloud_run(*shlex.split(line)[1:], env=env, cwd=tmp_path) for line in lines]
    said = [one.stderr for one in done if one.returncode != 1 or "unrecognized arguments" in one.stderr]
    assert not said, said
