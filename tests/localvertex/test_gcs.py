"""What a trainer's own code reads and writes below /gcs is in the buckets, as on Vertex AI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from localvertex.runner import RunOptions, children, supervisor
from tests.support.jobkit import container, job, pool, run_job
from vertexrig.project.local import LocalImage

WRITES = """
folder = os.environ["AIP_MODEL_DIR"].replace("gs:" + "//", "/gc" + "s/")
os.makedirs(folder, exist_ok=True)
open(folder + "/model", "w").write("kept " + str(os.getuid()))
assert sorted(os.listdir("/gc" + "s")) == ["out", "packages"], os.listdir("/")
os.makedirs(os.environ["HOME"], exist_ok=True)
"""


OUT = {"baseOutputDirectory": {"outputUriPrefix": "gs://out/run"}}


@pytest.mark.whole
@pytest.mark.skipif(not children.can_show_buckets(), reason="this system has no mount namespaces for programs")
def test_a_folder_below_gcs_is_in_its_bucket(root: Path) -> None:
    """A trainer that puts /gcs in place of gs:// leaves its model in the bucket, and nothing on the machine."""
    there = Path("/gcs").exists()
    done = run_job(job(pool(WRITES), **OUT), root=root, options=RunOptions(keep_gs=True, grace=0.5))
    assert done.state == "JOB_STATE_SUCCEEDED", done.error
    assert (root / "gs/out/run/model/model").read_text() == f"kept {os.getuid()}"
    assert Path("/gcs").exists() is there


@pytest.mark.skipif(not children.can_show_buckets(), reason="this system has no mount namespaces for programs")
def test_a_job_runs_before_there_is_a_bucket(tmp_path: Path) -> None:
    """A job that reads and writes no bucket sees an empty /gcs."""
    code = "import os; assert os.listdir('/gcs') == [], os.listdir('/gcs')"
    options = RunOptions(images={"here/image": LocalImage(str(tmp_path), ())}, grace=0.5)
    done = run_job(job(container("here/image", "python3", "-c", code)), root=tmp_path / "state", options=options)
    assert done.state == "JOB_STATE_SUCCEEDED", done.error


def test_a_system_without_namespaces_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /gcs cannot be shown the job runs, and a line says what that means."""
    monkeypatch.setattr("localvertex.runner.replica_program.can_show_buckets", lambda: False)
    done = run_job(job(pool("print('ran')")), root=root, options=RunOptions(grace=0.5))
    assert done.state == "JOB_STATE_SUCCEEDED"
    assert any("Files that the trainer's code writes below /gcs reach no bucket" in one for one in done.differences)


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="takes root's rights away from a program")
def test_a_user_without_rights_sees_gcs_too(tmp_path: Path) -> None:
    """Another user than root has /gcs by a user namespace, in which its files stay its own, and a folder and a /tmp of its own."""
    tmp_path.chmod(0o777)
    for folder in tmp_path.parents:
        if folder.owner() == "root" and folder != Path("/") and not folder.stat().st_mode & 1:
            pytest.skip(f"{folder} is closed to others")
    program = tmp_path / "supervisor.py"
    program.write_bytes(Path(supervisor.__file__).read_bytes())
    (tmp_path / "gs/bucket").mkdir(parents=True)
    (tmp_path / "gs/bucket").chmod(0o777)
    code = (
        "import os, supervisor\n"
        f"supervisor.isolate({asdict(children.Isolation(str(tmp_path / 'gs')))!r}, '/', '')\n"
        "open('/gcs/bucket/made', 'w').write(str(os.getuid()))"
    )
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", code]
    subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "HOME": "/"}, check=True)
    assert (tmp_path / "gs/bucket/made").read_text() == "65534" and (tmp_path / "gs/bucket/made").stat().st_uid == 65534
    isolation = children.Isolation(
        str(tmp_path / "gs"), changes=str(tmp_path / "changes"), tmp=Path("/tmp") not in tmp_path.parents
    )
    options = {"cwd": str(tmp_path), "isolation": asdict(isolation)}
    asked = [*words[:4], sys.executable, str(program), "try", json.dumps(options)]
    subprocess.run(asked, cwd="/", env={"HOME": "/"}, check=True)
    assert (tmp_path / "changes").is_dir()
