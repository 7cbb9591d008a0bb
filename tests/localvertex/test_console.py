"""The console in a real browser: what it shows, that it follows what happens, and that no text of a job acts in it."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc
import httpx
import pytest

from localvertex import server
from localvertex.front.variables import transparent
from localvertex.jobs.settings import Settings
from localvertex.runner import RunOptions
from tests.support.browser import chromium_page, go, shown
from tests.support.jobkit import Api, job, pool, with_trainer
from tests.support.tools import brief
from tests.support.web import http
from vertexrig import times
from vertexrig.cloud.storage import Storage
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.runs.deliveries import Delivery, write_row
from vertexrig.runs.run import Run
from vertexrig.runs.store import RunStore
from vertexrig.spec.labels import CLAIM_LABEL
from vertexrig.studies.html import insight
from vertexrig.submit.claims import Key

IMG = "<img src=x onerror=\"document.title='hacked'\">"
TRIAL = """
values = dict(arg[2:].split("=", 1) for arg in args if arg.startswith("--"))
path = os.environ["CLOUD_ML_HP_METRIC_FILE"]
os.makedirs(os.path.dirname(path), exist_ok=True)
report = {"timestamp": 0, "trial": "0", "accuracy": str(1 - float(values["rate"])), "global_step": "1"}
open(path, "a").write(json.dumps(report) + "\\n")
print("trained with", values["rate"])
"""
FOLLOWED = """
import time
print("begun", flush=True)
while not os.path.exists(args[0]):
    time.sleep(0.02)
print("went on", flush=True)
while not os.path.exists(args[1]):
    time.sleep(0.02)
"""
SPACE = [
    {"parameterId": "rate", "doubleValueSpec": {"minValue": 0.001, "maxValue": 0.5}, "scaleType": "UNIT_LOG_SCALE"},
    {"parameterId": "units", "integerValueSpec": {"minValue": "16", "maxValue": "64"}},
    {"parameterId": "way", "categoricalValueSpec": {"values": ["adam", IMG]}},
]
SECTIONS = ("jobs", "runs", "buckets", "schedules", "models", "calls")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.RunningServer]:
    """The server that the tests of this module share; the first one finds it empty."""
    root = tmp_path_factory.mktemp("console")
    with server.running(Settings(root, slots=8, options=RunOptions(grace=0.5)), grpc=True) as running:
        yield running


@pytest.fixture
def api(here: server.RunningServer) -> Api:
    return Api(here.url)


def test_an_empty_server_says_what_to_do(browser: Any, here: server.RunningServer) -> None:
    """Every section of a new server has a sentence or a command instead of a table, with the server's own folder."""
    with shown(browser, here) as page:
        assert "No jobs yet" in page.inner_text("#list") and f"--root {here.root}" in page.inner_text("#list")
        for section, words in {"buckets": "gcloud storage buckets create", "schedules": "vertexrig schedule apply",
                               "models": "vertexrig register", "calls": "No client has called yet"}.items():  # fmt: skip
            page.click(f"nav a[href='#/{section}']")
            page.get_by_text(words).wait_for()


@pytest.fixture(scope="module")
def trainer(here: server.RunningServer) -> None:
    with_trainer(here.root)


@pytest.fixture(scope="module")
def study(here: server.RunningServer, trainer: None) -> dict[str, Any]:
    """A tuning job of four trials, run to its end, with a choice whose name is markup."""
    body = {
        "displayName": f"sweep {IMG}", "labels": {CLAIM_LABEL: "a-run"}, "maxTrialCount": 4, "parallelTrialCount": 2, "trialJobSpec": job(pool(TRIAL)),
        "studySpec": {"metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}], "parameters": SPACE},
    }  # fmt: skip
    api = Api(here.url)
    made = api.call("POST", "hyperparameterTuningJobs", json=body)
    assert made.status_code == 200, made.text
    return api.wait(made.json()["name"])


def test_a_job_and_its_log_are_followed(
    browser: Any, here: server.RunningServer, api: Api, trainer: None, tmp_path: Path
) -> None:
    """State, replicas and log lines appear as they come, in a page that is not loaded again."""
    first, second = tmp_path / "first", tmp_path / "second"
    made = api.create(job(pool(FOLLOWED, str(first), str(second)), pool("pass")), name="followed")
    with shown(browser, here) as page:
        page.evaluate("window.kept = true")
        page.click("#list >> text=followed")
        page.get_by_text("begun", exact=True).wait_for()
        page.locator("#detail .head .state", has_text="running").wait_for()
        assert page.locator("[data-part^=replicas] tbody tr").all_inner_texts()[1].split("\t")[:2] == [
            "workerpool1-0",
            "worker",
        ]
        assert page.get_by_text("went on", exact=True).count() == 0
        first.touch()
        page.get_by_text("went on", exact=True).wait_for()
        page.select_option("#task", "workerpool1-0")
        page.get_by_text("went on", exact=True).wait_for(state="hidden")
        page.select_option("#task", "")
        second.touch()
        page.locator("#detail .head .state", has_text="succeeded").wait_for()
        page.locator("#list .state", has_text="succeeded").wait_for()
        page.get_by_text("Job completed successfully.").wait_for()
        page.get_by_text("Commands").click()
        assert f"vertexrig logs {made['name'].rpartition('/')[2]}" in page.inner_text(".commands pre")
        assert page.evaluate("window.kept") is True


@pytest.mark.whole
def test_a_study_has_a_table_and_charts(browser: Any, here: server.RunningServer, study: dict[str, Any]) -> None:
    """Each trial is a point of the history and of each slice, and a line through all parameters; its log is a click away."""
    with shown(browser, here, f"#/jobs/{study['name']}") as page:
        marks = "#chart-{} .role-mark path"
        for chart, least in (("history-0", 5), ("parallel", 5), ("slice-0", 4), ("slice-1", 4), ("slice-2", 4)):
            page.locator(f"#chart-{chart}").scroll_into_view_if_needed()
            page.locator(marks.format(chart)).nth(least - 1).wait_for(state="attached")
        values = [trial["finalMeasurement"]["metrics"][0]["value"] for trial in study["trials"]]
        assert page.inner_text(".tile b") == f"{max(values):.6g}"
        assert page.locator("[data-part^=trials] tbody tr").count() == 4
        assert page.locator("#list .row").count() <= 3, "the jobs of trials are not in the list"
        page.get_by_label("log of trial 1").click()
        page.locator(".line .text", has_text=re.compile("^trained with")).first.wait_for()


def test_charts_of_a_study_of_vizier(browser: Any, here: server.RunningServer, api: Api) -> None:
    """A study that a client drives itself has the same page, and one without a trial says so."""
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": SPACE[:2]}
    made = api.call("POST", "studies", json={"displayName": f"by-hand-{time.time_ns()}", "studySpec": spec}).json()
    with shown(browser, here, f"#/jobs/{made['name']}") as page:
        page.get_by_text("Charts appear when the first trial has started").wait_for()
        values = {"parameters": [{"parameterId": "rate", "value": 0.1}, {"parameterId": "units", "value": 20}]}
        final = {"state": "SUCCEEDED", "finalMeasurement": {"metrics": [{"metricId": "loss", "value": 0.25}]}}
        assert api.call("POST", f"/vertex/v1/{made['name']}/trials", json={**values, **final}).status_code == 200
        page.locator("#chart-history-0 .role-mark path").last.wait_for()
        assert page.inner_text(".tile b") == "0.25"


def test_console_and_report_draw_the_same(here: server.RunningServer, study: dict[str, Any]) -> None:
    """Each chart of the console has the specification, the title and the data that the report has for the same study."""
    drawn = http.get(f"{here.url}/console/v1/{study['name']}/charts").json()
    reported = json.loads(json.dumps(insight(RemoteJob(study)).charts.for_page()))
    own, others = (
        {chart["id"]: chart for one in found["sections"] for chart in one["charts"]} for found in (drawn, reported)
    )
    assert {"history-0", "parallel", "slice-0", "slice-1", "slice-2", "running", "spans"} <= own.keys()
    assert {key: others[key] for key in own} == own and {
        key.partition("-")[0] for key in others.keys() - own.keys()
    } <= {"pair", "importance"}
    assert {name: reported["data"][name] for name in drawn["data"]} == drawn["data"]


def test_a_sweep_runs_at_least_as_long_as_its_trials(here: server.RunningServer, api: Api) -> None:
    """The times of a tuning job are whole seconds; what the console shows begins and ends with its trials."""
    name = "projects/123/locations/us-central1/hyperparameterTuningJobs/91"
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": SPACE[:1]}
    trial = {
        "id": "1",
        "state": "SUCCEEDED",
        "startTime": "2026-11-25T10:00:00.900Z",
        "endTime": "2026-11-25T10:00:03.950Z",
    }
    times = {
        "createTime": "2026-11-25T10:00:00.8Z",
        "startTime": "2026-11-25T10:00:01Z",
        "endTime": "2026-11-25T10:00:03Z",
    }
    given = {
        "name": name,
        "displayName": "given",
        "state": "JOB_STATE_SUCCEEDED",
        "studySpec": spec,
        "trials": [trial],
        **times,
    }
    server.call(here, "POST", "/v1/resources", given)
    wanted = {"startTime": trial["startTime"], "endTime": trial["endTime"]}
    assert http.get(f"{here.url}/console/v1/{name}/study").json()["ran"] == wanted
    (row,) = (one for one in http.get(f"{here.url}/console/v1/jobs").json()["jobs"] if one["name"] == name)
    assert {key: row[key] for key in wanted} == wanted


def job_client(channel: grpc.Channel) -> Any:
    """Google's client of jobs, which takes a second to import."""
    from google.cloud import aiplatform_v1
    from google.cloud.aiplatform_v1.services.job_service.transports.grpc import JobServiceGrpcTransport

    return aiplatform_v1.JobServiceClient(transport=JobServiceGrpcTransport(channel=channel))


def test_who_called_and_what_is_not_served(browser: Any, here: server.RunningServer, api: Api) -> None:
    """REST and gRPC calls have method, client and status; methods that are not served are counted, by both ways."""
    # the server counts what an earlier try of this test asked, too
    program = f"notebook-{secrets.token_hex(4)}"
    agent = {"user-agent": f"{program}/1.0 {IMG}"}
    missing = f"{here.url}/vertex/v1/projects/p/locations/us-central1/featurestores/f/entityTypes"
    assert http.get(missing, headers=agent).status_code == http.get(missing, headers=agent).status_code == 405
    channel = grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}")
    client = job_client(channel)
    parent = "projects/p/locations/us-central1"
    list(client.list_custom_jobs(parent=parent))
    call = channel.unary_unary("/google.cloud.aiplatform.v1.Nowhere/Missing")
    with pytest.raises(grpc.RpcError):
        call(b"", timeout=30)
    channel.close()
    with shown(browser, here, "#/calls") as page:
        unserved = page.locator("[data-part=unserved] tbody tr")
        rest = unserved.filter(has_text=program)
        rest.wait_for()
        name = "google.cloud.aiplatform.v1.FeaturestoreService.ListEntityTypes"
        assert rest.inner_text().split("\t") == [name, f"{program} 1.0", "REST", "2"]
        unserved.filter(has_text="google.cloud.aiplatform.v1.Nowhere.Missing").filter(has_text="gRPC").wait_for()
        assert re.search(r"\d not served", page.inner_text("nav"))
        page.fill("#wanted", "grpc")
        row = (
            page.locator("[data-part=calls] tbody tr", has_text="JobService.ListCustomJobs")
            .first.inner_text()
            .split("\t")
        )
        assert row[1] == "google.cloud.aiplatform.v1.JobService.ListCustomJobs" and row[4] == "OK" and row[6] == "gRPC"
        assert row[3].startswith("Python · ")
        http.get(f"{here.url}/storage/v1/b/absent/o/x", headers={"user-agent": "curl/8"})
        page.fill("#wanted", "gs://absent")
        found = page.locator("[data-part=calls] tbody tr", has_text="gs://absent").first
        found.wait_for()
        assert found.inner_text().split("\t")[1:5] == [
            "storage.objects.get",
            "gs://absent/x",
            "curl 8",
            "404 NOT_FOUND",
        ]


def test_calls_through_the_proxy_are_marked(here: server.RunningServer) -> None:
    """A gRPC call to Google's own name, through the proxy of `local run`, is among the calls as such; so is a REST call."""
    given = transparent(here, {}, project="my-project", region="us-central1").set
    roots = Path(given["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"])
    host = "europe-west4-aiplatform.googleapis.com"
    parent = "projects/p/locations/europe-west4"
    with grpc.secure_channel(
        f"{host}:443", grpc.ssl_channel_credentials(roots.read_bytes()), [("grpc.http_proxy", given["HTTPS_PROXY"])]
    ) as channel:
        client = job_client(channel)
        assert list(client.list_custom_jobs(parent=parent, timeout=30)) == []
    trusted = ssl.create_default_context(cafile=str(roots))
    with httpx.Client(proxy=given["HTTPS_PROXY"], verify=trusted, trust_env=False) as rest:
        assert rest.get(f"https://{host}/v1/{parent}/customJobs").status_code == 200
    calls = http.get(f"{here.url}/console/v1/calls").json()["calls"]
    listed = [
        one["transport"] for one in calls if one["method"].endswith(".ListCustomJobs") and "proxy" in one["transport"]
    ]
    assert listed == ["gRPC, proxy", "REST, proxy"]


def test_a_tail_is_among_the_calls(here: server.RunningServer) -> None:
    """A call that streams is among the calls from its beginning on, with its own name; so is one that is refused."""
    with grpc.insecure_channel(f"127.0.0.1:{here.grpc_port}") as channel:
        tail = channel.stream_stream("/google.logging.v2.LoggingServiceV2/TailLogEntries")
        wrong = b"\x0a\x0aprojects/p\x12\x01("  # resource_names and filter
        with pytest.raises(grpc.RpcError):
            next(tail(iter([wrong]), timeout=30, metadata=[("user-agent", "tailing/1.0")]))
        open_ = tail(iter([wrong[:-3]]), timeout=60)
        until = time.monotonic() + 30
        listed: list[tuple[str, str, str]] = []
        while len(listed) < 2 and time.monotonic() < until:
            calls = http.get(f"{here.url}/console/v1/calls").json()["calls"]
            listed = [(one["method"], one["word"], one["transport"]) for one in calls if "Tail" in one["method"]]
        open_.cancel()
    name = "google.logging.v2.LoggingServiceV2.TailLogEntries"
    assert listed == [(name, "INVALID_ARGUMENT", "gRPC"), (name, "OK", "gRPC")]


def test_hostile_names_are_text(browser: Any, here: server.RunningServer, api: Api, study: dict[str, Any]) -> None:
    """Markup in names, labels, parameters, log lines, objects, schedules and errors is shown as it is, and does nothing."""
    made = api.create(job(pool(f"print({IMG!r}); raise SystemExit({IMG!r})")), name=f"job {IMG}")
    api.wait(made["name"])
    assert http.post(f"{here.url}/storage/v1/b?project=p", json={"name": "hostile"}).status_code == 200
    evil = "<script>fetch('/local/v1/stop', {method: 'POST'})</script>"
    upload = f"{here.url}/upload/storage/v1/b/hostile/o?uploadType=media&name="
    assert http.post(f"{upload}{IMG}", content=b"x").status_code == 200
    assert http.post(f"{upload}evil.html", content=evil, headers={"content-type": "text/html"}).status_code == 200
    schedule = {"name": "projects/p/locations/us-central1/jobs/nightly", "schedule": "0 3 * * *", "description": IMG,
                "httpTarget": {"uri": "http://127.0.0.1:8080/"}}  # fmt: skip
    assert api.call("POST", "/scheduler/v1/projects/p/locations/us-central1/jobs", json=schedule).status_code == 200
    places = ["jobs", f"jobs/{made['name']}", f"jobs/{study['name']}", "buckets/hostile", "schedules", "calls"]
    http.get(f"{here.url}/storage/v1/b/hostile/o/{quote(IMG)}")
    with shown(browser, here) as page:
        for place in places:
            go(page, here, place)
            page.locator("main", has_text="onerror").wait_for()
            assert page.evaluate("document.querySelectorAll('img, script:not([src]), iframe, object').length") == 0
        assert page.title() != "hacked"
    saved = http.get(f"{here.url}/storage/v1/b/hostile/o/evil.html", params={"alt": "media"})
    assert saved.headers["content-disposition"] == "attachment"
    with chromium_page(browser) as page:  # at its XML address a page in a bucket is shown, and its script does not run
        answer = page.goto(f"{here.url}/hostile/evil.html")
        assert answer.status == 200 and answer.headers["content-security-policy"].startswith("sandbox;")
    assert http.get(f"{here.url}/local/v1/status").status_code == 200


@pytest.fixture(scope="module")
def decided(here: server.RunningServer) -> None:
    """What a trigger leaves in a bucket: a refused delivery, a run that failed, one at a step, and a row of the day's budget."""
    httpx.post(f"{here.url}/storage/v1/b", params={"project": "p"}, json={"name": "decided"})
    storage = Storage("gs://decided/vertexrig/trigger", url=here.url)
    refused = Delivery(schedule="nightly", run="sweep", reason="over-budget", text="<b>$9</b> is more than $8")
    made = Delivery(schedule="weekly", run="cpu", decision="created")
    refused.write(storage)
    write_row(storage, made.path, {**made.data, "end": {"outcome": "FAILED", "reason": "no image", "usd": 1.5}})
    storage.write(refused.path.replace(".json", "0.json"), b"", metadata={"row": "no JSON"})
    claim = f"{'0' * 32}-{'1' * 12}"
    RunStore(storage).add(Run(claim, Key("request", "1"), {"run": "sweep", "then": ""}, schedule="nightly", phase="step",
                              time="2026-11-26T03:00:00Z", steps=("promote", "register"), step=1, reason="unavailable", text="503"), lambda: None)  # fmt: skip
    day = times.rfc3339(times.now())[:10]
    storage.write(f"days/{day}/{claim}.1250.40", b"granted")
    storage.write(f"days/{day}/{claim[:-1]}2.99.1", b"")  # asks still


def test_runs_have_their_phase_and_their_end(browser: Any, here: server.RunningServer, decided: None) -> None:
    """Open runs are shown with step and reason, deliveries with their end, the day with its sums, as text; an object that is no row changes nothing."""
    with shown(browser, here) as page:
        go(page, here, "runs")
        page.locator("table", has_text="decision").wait_for()
        texts, opened = (
            page.locator("table", has_text="decision").inner_text(),
            page.locator("table", has_text="waits for").inner_text(),
        )
        tiles = page.locator("main .tiles").inner_text()
    assert "over-budget: <b>$9</b> is more than $8" in texts and "refused" in texts and "FAILED" in texts
    assert texts.count("nightly") == 1 and "no image" in texts and "$1.50" in texts
    assert "step register" in opened and "unavailable: 503" in opened
    assert "$12.50" in tiles and "40" in tiles


@pytest.fixture(scope="module")
def project(
    here: server.RunningServer, decided: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[server.RunningServer]:
    """`vertexrig console` of a project whose services are the local Vertex."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "vertexrig.yaml").write_text(
        "project: my-project\nregion: us-central1\nbucket: gs://decided\n"
        "trainer: {package_uris: [gs://decided/t.tar.gz]}\n"
        "trigger: {function: trigger, budget: {usd_per_day: 20, trials_per_day: 64}}\n"
    )
    command = [sys.executable, "-m", "vertexrig", "console"]
    environment = {**os.environ, **server.env(here)}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "http://" in line)
        yield replace(here, port=int(re.search(r":(\d+)/", said)[1]))  # type: ignore[index]
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130


def _job_of_a_trial(api: Api) -> str:
    """The name of a job that ran a trial of `study`."""
    jobs = api.call("GET", "customJobs").json()["customJobs"]
    return next(one["name"] for one in jobs if re.match("sweep .*-trial-", one["displayName"]))


def test_a_project_has_the_same_console(
    browser: Any, here: server.RunningServer, project: server.RunningServer, api: Api, study: dict[str, Any]
) -> None:
    """`vertexrig console` shows the jobs, studies, logs, runs, budget, schedules and models of the project file's services."""
    parent = "projects/my-project/locations/us-central1"
    target = {"name": f"{parent}/jobs/at-three", "schedule": "0 3 * * *", "httpTarget": {"uri": "https://f.run.app"}}
    assert httpx.post(f"{here.url}/scheduler/v1/{parent}/jobs", json=target).status_code == 200
    model = {"model": {"displayName": "champion", "artifactUri": "gs://decided/m"}}
    assert api.call("POST", "models:upload", json=model).status_code == 200
    rows = {row["name"]: row for row in http.get(f"{project.url}/console/v1/jobs").json()["jobs"]}
    assert rows[study["name"]]["trials"] == {"ended": 4, "asked": 4}
    assert not [one for one in rows.values() if "-trial-" in one["displayName"]], (
        "the jobs of trials are not in the list"
    )
    with shown(browser, project) as page:
        assert page.title() == "my-project" and "read only" in page.inner_text("#server")
        assert page.locator("nav a").all_inner_texts() == ["Jobs", "Runs", "Buckets", "Schedules", "Models"]
        page.locator("#list .row").first.wait_for()
        go(page, project, f"jobs/{study['name']}")
        page.locator("#chart-history-0 .role-mark path").nth(4).wait_for(state="attached")
        assert page.locator("[data-part^=trials] tbody tr").count() == 4
        assert page.get_by_label("log of trial 1").count() == 0, "an ended trial names no job"
        go(page, project, f"jobs/{_job_of_a_trial(api)}")
        page.locator(".line .text", has_text=re.compile("^trained with")).first.wait_for()
        page.get_by_text("Commands").click()
        assert "local" not in page.inner_text(".commands pre")
        go(page, project, "runs")
        page.get_by_text("step register").wait_for()
        assert "of $20 today" in page.inner_text(".tiles") and "of 64 today" in page.inner_text(".tiles")
        for section, words in {"buckets": "gs://decided", "schedules": "at-three", "models": "champion"}.items():
            page.click(f"nav a[href='#/{section}']")
            page.locator("main", has_text=words).wait_for()


def test_the_console_of_a_project_only_reads(project: server.RunningServer, study: dict[str, Any]) -> None:
    """No call that changes something passes, no other bucket is read, and other pages get no answer."""
    parent, name = "projects/my-project/locations/us-central1", study["name"]
    for method, path in (("POST", f"/vertex/v1/{parent}/customJobs"), ("POST", f"/vertex/v1/{name}:cancel"), ("DELETE", f"/vertex/v1/{name}"),
                         ("POST", f"/scheduler/v1/{parent}/jobs/at-three:run"), ("DELETE", "/storage/v1/b/decided/o/a"), ("POST", "/upload/storage/v1/b/decided/o"),
                         ("GET", "/storage/v1/b/packages/o"), ("GET", "/storage/v1/b/decided/o/a?alt=media"), ("POST", "/logging/v2/entries:write"),
                         ("GET", "/scheduler/v1/projects/other/locations/us-central1/jobs"), ("GET", "/vertex/v1/projects/my-project/locations/evil.example%23/customJobs")):  # fmt: skip
        assert http.request(method, f"{project.url}{path}", json={} if method == "POST" else None).status_code in (
            404,
            405,
        ), path
    assert http.get(f"{project.url}/vertex/v1/{name}").status_code == 200
    assert http.get(f"{project.url}/console/v1/pulse", headers={"origin": "https://evil.example"}).status_code == 403
    assert http.get(f"{project.url}/vertex/v1/{parent}/customJobs/404").json()["error"]["code"] == 404


@pytest.mark.parametrize(("width", "scheme"), brief([(390, "light"), (1400, "dark"), (768, "light")], 2))
def test_every_section_fits_and_follows_the_scheme(
    browser: Any, here: server.RunningServer, api: Api, study: dict[str, Any], width: int, scheme: str
) -> None:
    """Nothing scrolls sideways at 390, 768 and 1,400 pixels, dates are on one line, sections apart, commands beside their button, and text
    is light on dark, or dark on light, as the reader asks.
    """
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with shown(browser, here, **options) as page:
        for place in (*SECTIONS, "buckets/packages", f"jobs/{study['name']}", f"jobs/{_job_of_a_trial(api)}"):
            go(page, here, place)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, place
            dates = page.locator("main [data-by]:visible").evaluate_all(
                "all => all.map((one) => one.getClientRects().length)"
            )
            assert set(dates) <= {1}, place
        go(page, here, f"jobs/{study['name']}")
        page.locator("#chart-history-0 svg").wait_for()
        assert page.locator("#chart-history-0 svg").bounding_box()["width"] <= min(
            width, page.locator("#detail").bounding_box()["width"]
        )
        page.get_by_text("Commands", exact=True).click()
        assert apart(*(page.locator(f".commands {tag}").first.bounding_box() for tag in ("pre", "button")))
        page.goto(f"{here.url}/#/jobs")
        page.get_by_text("Overview").wait_for()
        assert apart(*(page.locator(one).first.bounding_box() for one in ("#list .rows", "#detail h2")))
        ground, text = page.evaluate(
            "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        )
        assert (brightness(ground) < brightness(text)) == (scheme == "dark")


def brightness(color: str) -> int:
    return sum(map(int, re.findall(r"\d+", color)[:3]))


def test_the_keyboard_reaches_everything(browser: Any, here: server.RunningServer, study: dict[str, Any]) -> None:
    """Tab goes skip link, sections, jobs; arrows go along a list, Enter opens, Escape leads back; the focus is visible."""
    with shown(browser, here) as page:
        focused = "document.activeElement.id || document.activeElement.textContent"
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "skip"
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "Jobs"
        page.keyboard.press("ArrowRight")
        assert page.evaluate(focused) == "Runs"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"
        page.keyboard.press("Home")
        page.keyboard.press("Enter")
        page.locator("nav a").last.focus()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "row"
        page.keyboard.press("End")
        page.keyboard.press("ArrowUp")
        chosen = page.evaluate("document.activeElement.dataset.k")
        page.keyboard.press("Enter")
        page.locator("#detail h2").wait_for()
        page.locator(f'.row[data-k="{chosen}"][aria-current]').wait_for()
        assert page.evaluate("document.activeElement.dataset.k") == chosen
        page.keyboard.press("Escape")
        page.get_by_text("Last jobs").wait_for()
        assert page.evaluate("document.activeElement.dataset.k") == chosen


def test_the_start_page_is_an_overview(browser: Any, here: server.RunningServer, study: dict[str, Any]) -> None:
    """Without a job chosen there are the last jobs, what runs and the disk; a long name is on one line, whole on hover, and times have dates."""
    name = "a-name-" * 18
    body = {"displayName": name, "jobSpec": job(pool(TRIAL))}
    assert Api(here.url).call("POST", "customJobs", json=body).status_code == 200
    kept = sum(file.stat().st_size for file in Path(here.root).rglob("*") if file.is_file() and not file.is_symlink())
    with shown(browser, here) as page:
        page.get_by_text("Last jobs").wait_for()
        tiles = dict(text.split("\n")[:2] for text in page.locator("#detail .tile").all_inner_texts())
        assert tiles.keys() == {"running", "slots in use", "jobs", "on this disk"} and int(tiles["jobs"]) >= 2
        shown_bytes = float(
            page.locator("#detail .tile [data-by], #detail .tile b span").first.get_attribute("data-by")
        )
        assert 0.8 * kept < shown_bytes < 1.2 * kept
        row = page.locator("#list .row", has_text=name[:20]).first
        line = row.locator("b")
        assert line.get_attribute("title") == name and line.bounding_box()["height"] < 30
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row.inner_text())
        assert name in page.locator("#detail table").inner_text()
        row.click()
        heading = page.locator("#detail h2", has_text="a-name")
        assert heading.get_attribute("title") == name and heading.bounding_box()["height"] < 40


def apart(one: dict[str, float], other: dict[str, float]) -> bool:
    """Whether two boxes of a page have no point in common."""
    return any(
        first[start] + first[length] <= second[start] + 0.5
        for start, length in (("x", "width"), ("y", "height"))
        for first, second in ((one, other), (other, one))
    )


def test_tables_sort_by_click_and_by_keyboard(browser: Any, here: server.RunningServer, study: dict[str, Any]) -> None:
    """A column's head sorts upwards, downwards, and not at all; numbers and lengths of time as such; the head says which."""
    with shown(browser, here, f"#/jobs/{study['name']}") as page:
        part = page.locator("[data-part^=trials]")
        part.locator("tbody tr").nth(3).wait_for()

        def column(name: str) -> list[str]:
            at = part.locator("th").all_inner_texts().index(name)
            return [row.split("\t")[at] for row in part.locator("tbody tr").all_inner_texts()]

        def sorts() -> list[str | None]:
            return [one.get_attribute("aria-sort") for one in part.locator("th").all()]

        first = column("trial")
        part.get_by_role("button", name="accuracy").click()
        assert part.locator("th[aria-sort=ascending]").inner_text().startswith("accuracy")
        values = [float(text) for text in column("accuracy")]
        assert values == sorted(values)
        part.get_by_role("button", name="accuracy").click()
        assert [float(text) for text in column("accuracy")] == values[::-1]
        assert sorts().count("descending") == 1 and sorts().count(None) == len(sorts()) - 1
        part.get_by_role("button", name="units").focus()
        page.keyboard.press("Enter")
        units = [int(text) for text in column("units")]
        assert units == sorted(units)
        page.keyboard.press("Enter")
        page.keyboard.press("Space")
        assert column("trial") == first and set(sorts()) == {None}
        part.get_by_role("button", name="time").click()
        lasted = part.locator("td [data-by]").evaluate_all("all => all.map((one) => Number(one.dataset.by))")
        assert len(lasted) == 4 and lasted == sorted(lasted)


PRESSED = """async ([module, sign]) => {
  const { fill, h } = await import(module);
  globalThis.box ??= document.body.appendChild(h("dialog"));
  if (!box.open) box.showModal();
  fill(box, [
    { key: "before", sign, make: () => h("p", {}, "one line") },
    { key: "pressed", sign, make: () => h("button", { id: "pressed", onclick: () => { globalThis.clicks = (globalThis.clicks ?? 0) + 1; } }, "press") },
    sign > 1 && { key: "new", sign, make: () => h("p") },
  ]);
  return [...box.children].map((child) => child.dataset.part);
}"""


def test_a_press_during_an_update_is_a_click(browser: Any, here: server.RunningServer) -> None:
    """A button that would be made again, or moved, while it is pressed gets its click; the page is updated after it."""
    with shown(browser, here) as page:
        module = page.evaluate("new URL('dom.js', document.querySelector('script[type=module][src]').src).href")
        page.evaluate(PRESSED, [module, 1])
        box = page.locator("#pressed").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        assert page.evaluate(PRESSED, [module, 2]) == ["before", "pressed"]
        page.mouse.up()
        page.locator("[data-part=new]").wait_for(state="attached")
        assert page.evaluate("globalThis.clicks") == 1
        assert page.evaluate(PRESSED, [module, 1]) == ["before", "pressed"]


def test_a_shortened_list_says_so(browser: Any, here: server.RunningServer, api: Api) -> None:
    """Of more than 100 studies the newest 100 are in the list, and a sentence names both numbers."""
    spec = {"metrics": [{"metricId": "loss", "goal": "MINIMIZE"}], "parameters": SPACE[:1]}
    for number in range(101):
        made = api.call("POST", "studies", json={"displayName": f"many-{number}", "studySpec": spec})
        assert made.status_code == 200
    studies = api.call("GET", "studies?pageSize=1000").json()["studies"]
    with shown(browser, here) as page:
        page.get_by_text(f"The newest 100 of {len(studies)} studies are shown.").wait_for()
        assert page.locator("#list .row", has_text="many-").count() == 100
        assert page.locator("#list .row").first.inner_text().startswith("many-100")


def test_a_hidden_page_asks_for_nothing(browser: Any, here: server.RunningServer) -> None:
    """A tab in the background sends no request; back in front it looks at once."""
    page = browser.new_page()
    page.clock.install()
    asked: list[str] = []
    page.goto(here.url)
    page.locator("nav a").first.wait_for()
    page.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, value: true})")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.on("request", lambda one: asked.append(one.url))
    page.clock.run_for(60_000)
    assert [url for url in asked if url.endswith("/pulse")] == []  # each look begins with one; another may be under way
    page.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, value: false})")
    with page.expect_request("**/console/v1/pulse"):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.close()


def test_the_console_has_the_servers_guards(here: server.RunningServer) -> None:
    """Page and answers go to no page of another site; the page has a strict policy; it changes nothing."""
    for path in ("/", "/console/console.js", "/console/v1/calls", "/console/v1/pulse"):
        assert http.get(here.url + path).status_code == 200
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
            assert http.get(here.url + path, headers=headers).status_code == 403
        assert http.post(here.url + path, json={}).status_code in (404, 405)
    policy = http.get(here.url).headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    page = http.get(here.url).text
    assert re.findall(r"<script(?![^>]*src=)|<style|\son\w+=|https?://", page) == []
    assert http.get(f"{here.url}/console/..%2fapp.py").status_code == 404
    assert http.get(f"{here.url}/console/v1/projects/1/locations/us-central1/studies/1/charts").status_code == 404
