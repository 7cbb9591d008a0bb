"""Names that others chose, shown by every verb: nothing of them acts on a terminal, and no chart breaks by them."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from localvertex import server
from localvertex.jobs.settings import Settings
from tests.support import made_studies
from vertexrig import cli
from vertexrig.cloud.vertex import RemoteJob
from vertexrig.results import drawing
from vertexrig.studies import html

NAME = "x\x1b]0;title\x07\x1b[2J\x1b[8m\u202egpj.\x9b31m\r\x08\x7fy"
ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What moves a cursor, rings, names a window, or turns text around; not the colours that this program writes itself."""
COLOR = re.compile("\x1b\\[[0-79;]*m")
JOB = "projects/local-project/locations/us-central1/customJobs/1234567890"
PROJECT: dict[str, Any] = {
    "project": "local-project", "region": "us-central1", "bucket": "gs://my-bucket",
    "trainer": {"path": f"trainer{NAME}"},
    "jobs": {
        "cpu": {"machine_type": "n1-standard-4", "timeout": "600s", "display_name": NAME, "args": {"a": NAME},
                "container": {"image_uri": f"gcr.io/p/{NAME}"}, "spec": {NAME: NAME}},
        "plain": {"machine_type": NAME, "labels": {"a": NAME}},
    },
    "sweeps": {"tune": {"job": "cpu", "max_trial_count": 2, "parallel_trial_count": 1, "study": {
        "metrics": {NAME: "MAXIMIZE"}, "parameters": {NAME: {"double_value_spec": {"min_value": 0.1, "max_value": 0.9}}}}}},
    "schedules": {"nightly": {"run": "tune", "cron": "0 3 * * *", "time_zone": "UTC", "description": NAME}},
}  # fmt: skip


def verbs(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every verb."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from verbs(below, (*path, name))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project of such names, beside a local Vertex with jobs that have them, too."""
    root = tmp_path_factory.mktemp("project")
    (root / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    (root / f"{NAME}.yaml").write_text(json.dumps({**PROJECT, NAME: NAME}))
    (root / "job.yaml").write_text(
        json.dumps({"workerPoolSpecs": [{NAME: NAME, "machineSpec": {"machineType": NAME}}]})
    )
    made = json.loads(json.dumps(made_studies.tuning_job(12)).replace('"learning_rate"', json.dumps(f"p{NAME}")))
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": "1", "containerSpec": {"imageUri": NAME}}
    job = {"name": JOB, "displayName": NAME, "state": "JOB_STATE_FAILED", "jobSpec": {"workerPoolSpecs": [pool]},
           "error": {"code": 3, "message": NAME}}  # fmt: skip
    with server.running(Settings(root / "vertex")) as here, pytest.MonkeyPatch.context() as patch:
        study_name = JOB.replace("customJobs", "hyperparameterTuningJobs")
        for one in (job, {**made, "name": study_name, "displayName": NAME}):
            server.call(here, "POST", "/v1/resources", one)
        binary = root / "bin/gcloud"
        binary.parent.mkdir()
        binary.write_text("#!/bin/sh\nprintf '%s\\n' \"$SAID\"\n")
        binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
        more = {"FORCE_COLOR": "1", "SAID": NAME, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
        for name, value in {**server.env(here), **more}.items():
            patch.setenv(name, value)
        patch.chdir(root)
        yield root


TREE = sorted(verbs(cli.vertexrig))
# what would go on: these serve, or run a command that prints for itself
ENDLESS = {("console",), ("local", "up"), ("local", "run"), ("function", "serve"), ("local", "down")}
CUSTOM, STUDY = JOB, JOB.replace("customJobs", "hyperparameterTuningJobs")


@pytest.mark.parametrize("verb", TREE, ids=" ".join)
@pytest.mark.whole
def test_no_verb_shows_a_name_that_acts_on_a_terminal(
    verb: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With hostile names as words, in the project, in its file's name, in another file and from the service: all is shown, nothing acts."""
    lines = [["--file", f"{NAME}.yaml"], [NAME], ["--" + NAME], ["--file", NAME, NAME]]
    if verb not in ENDLESS:
        words = ("", "cpu", "plain", "tune", "job.yaml", CUSTOM, STUDY, f"{NAME} {NAME}", f"cpu {NAME}", "nightly")
        lines += [one.split(" ") if one else [] for one in words]
        lines += [[one, "--format", "json"] for one in ("cpu", "tune", "job.yaml", STUDY)]
        lines += [[one, "--dry-run"] for one in (CUSTOM, STUDY, "cpu")]
    (folder / "vertexrig.yaml").write_text(yaml.safe_dump(PROJECT))
    shown = 0
    for line in lines:
        if verb == ("rehearse",) and line and line[0] in ("cpu", "tune", "job.yaml"):
            continue
        cli.run([*verb, *line])
        for text in capfd.readouterr():
            assert ACTS.search(COLOR.sub("", text)) is None, (line, text)
            shown += "title" in text
    assert shown


def test_a_log_acts_on_no_terminal(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What gcloud streams of a job's log is shown as text, line by line."""
    assert cli.run(["logs", CUSTOM]) == 0
    out, _ = capfd.readouterr()
    assert "]0;title" in out and ACTS.search(out) is None


AWKWARD = ('a"b', "a\\", 'a\\"b', "a\nb", "a'b", "a\u2028b", 'a\\": alert(1), "b', NAME)


@pytest.mark.whole
def test_no_name_breaks_a_chart() -> None:
    """Each chart of a study whose parameters, metric and choices have such names is drawn."""
    names = [f"{other} {name}" for name, other in zip(AWKWARD[:4], AWKWARD[4:], strict=True)]
    vl_convert = pytest.importorskip("vl_convert", reason="the extra report is not installed")
    text = json.dumps(made_studies.tuning_job(12))
    for old, name in zip(("learning_rate", "batch_size", "accuracy", "adam"), names, strict=True):
        text = text.replace(json.dumps(old), json.dumps(f"{old} {name}"))
        assert json.dumps(name)[1:-1] in text
    charts = html.insight(RemoteJob(json.loads(text))).charts
    assert len(charts.all()) >= 5
    for chart in charts.all():
        spec = {**chart.spec, "width": 800, "datasets": {data: charts.data[data] for data in chart.data}}
        assert vl_convert.vegalite_to_svg(spec, vl_version=drawing.VEGA_LITE)
