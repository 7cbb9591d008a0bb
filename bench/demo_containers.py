"""Train in containers on this machine with unchanged commands: images of `docker build`, of `gcloud builds submit` and of gcloud's
autopackaging; a chief with two workers, and a study of the Vertex AI SDK.

`python bench/demo_containers.py` works in a temporary folder, with an image of this machine's own Python, and removes the images that
it has built.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from _demos import REPOSITORY

from localvertex.runner import engine
from tools import own_podman

PROJECT = "vertexrig-demo"
IMAGES = f"us-docker.pkg.dev/{PROJECT}/images"
POOL = "--worker-pool-spec=machine-type=n1-standard-4"
CREATE = "gcloud ai custom-jobs create --region=us-central1 --display-name"
FILES = {
    "vertexrig.yaml": f"project: {PROJECT}\nbucket: gs://{PROJECT}\n",
    "trainer/train.py": '''\
"""Fit y = 3x by gradient descent: each replica has a share of the data, and sends its gradients to the chief."""

import json, os, platform, socket, sys, time

rate = float(sys.argv[1].partition("=")[2]) if sys.argv[1:] else 0.1
config = json.loads(os.environ.get("TF_CONFIG") or '{"cluster": {"chief": ["localhost:0"]}, "task": {"type": "chief", "index": 0}}')
kind, index, workers = config["task"]["type"], config["task"]["index"], len(config["cluster"].get("worker", ()))
host, _, port = config["cluster"]["chief"][0].partition(":")
print(f"{kind} {index} with {workers} workers, {sys.executable} {platform.python_version()}, chief at {host}", flush=True)


def connected():
    for _ in range(600):
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.1)
    sys.exit("the chief did not answer")


if kind == "chief":
    server = socket.create_server(("0.0.0.0", int(port))) if workers else None
    peers = [server.accept()[0].makefile("rw") for _ in range(workers)]
else:
    peers = [connected().makefile("rw")]
weight = 0.0
for _ in range(50):
    shares = [2 * (weight - 3) * x * x for x in (0.5 + index, 1.0)]
    mine = sum(shares) / len(shares)
    if kind == "chief":
        weight -= rate * sum([mine, *(float(peer.readline()) for peer in peers)]) / (1 + len(peers))
    else:
        peers[0].write(f"{mine}\\n")
        peers[0].flush()
    for peer in peers if kind == "chief" else ():
        peer.write(f"{weight}\\n")
        peer.flush()
    weight = weight if kind == "chief" else float(peers[0].readline())
loss = (weight - 3) ** 2
if kind == "chief":
    print(f"weight {weight:.4f}, loss {loss:.2e}", flush=True)
if trial := os.environ.get("CLOUD_ML_TRIAL_ID"):  # as cloudml-hypertune does
    report = {"timestamp": time.time(), "trial": trial, "loss": str(loss), "global_step": "50", "checkpoint_path": ""}
    with open(os.environ["CLOUD_ML_HP_METRIC_FILE"], "w") as file:
        file.write(json.dumps(report) + "\\n")
''',
    "trainer/Dockerfile": f'FROM {own_podman.BASE}\nCOPY train.py /app/train.py\nENTRYPOINT ["python", "/app/train.py"]\n',
    "study.py": f'''\
from google.cloud import aiplatform
from google.cloud.aiplatform import hyperparameter_tuning as hpt

aiplatform.init(project="{PROJECT}", location="us-central1", staging_bucket="gs://{PROJECT}")
container = {{"image_uri": "{IMAGES}/trainer:1"}}
pool = {{"machine_spec": {{"machine_type": "n1-standard-4"}}, "replica_count": 1, "container_spec": container}}
job = aiplatform.HyperparameterTuningJob(
    display_name="study",
    custom_job=aiplatform.CustomJob(display_name="study", worker_pool_specs=[pool]),
    metric_spec={{"loss": "minimize"}},
    parameter_spec={{"rate": hpt.DoubleParameterSpec(min=0.001, max=0.2, scale="log")}},
    max_trial_count=4,
    parallel_trial_count=2,
)
job.run()
for trial in job.trials:
    print(f"trial {{trial.id}}: rate {{trial.parameters[0].value:.4f}}, loss {{trial.final_measurement.metrics[0].value:.2e}}")
''',
    "docker.sh": f"""\
docker build --tag {IMAGES}/trainer:1 trainer
docker push {IMAGES}/trainer:1
{CREATE}=cluster {POOL},replica-count=1,container-image-uri={IMAGES}/trainer:1 {POOL},replica-count=2,container-image-uri={IMAGES}/trainer:1
{shlex.quote(sys.executable)} study.py
""",
    "cloud-build.sh": f"""\
gcloud builds submit --tag {IMAGES}/built:1 trainer
{CREATE}=built {POOL},replica-count=1,container-image-uri={IMAGES}/built:1
""",
    "autopackaging.sh": f"""\
{CREATE}=packaged {POOL},replica-count=1,executor-image-uri={own_podman.BASE},local-package-path=trainer,script=train.py
""",
}
LOGS = "jobs/**/logs/workerpool*.log"
SAYS = {
    "docker.sh": ["chief 0 with 2 workers", "worker 0 with 2 workers", "worker 1 with 2 workers", "trial 4: rate", "cluster  SUCCEEDED", "study  SUCCEEDED"],
    "cloud-build.sh": ["starting build", "chief 0 with 0 workers, /usr/local/bin/python", "built  SUCCEEDED"],
    "autopackaging.sh": ["chief 0 with 0 workers, /usr/local/bin/python", "packaged  SUCCEEDED"],
}  # fmt: skip


def main() -> None:
    """Run the demo."""
    found = chosen()
    env = {**os.environ, engine.VARIABLE: found.name, "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "PYTHONPATH": str(REPOSITORY)}  # fmt: skip
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vertexrig-demo-") as name:
        folder = Path(name)
        root = folder / ".vertexrig"
        (folder / "trainer").mkdir()
        for file, text in FILES.items():
            (folder / file).write_text(text)
        try:
            for script, wanted in SAYS.items():
                before = set(root.glob(LOGS))
                said = run(folder, env, script)
                for log in sorted(set(root.glob(LOGS)) - before):
                    print(f"{log.relative_to(root)}:\n{log.read_text()}", end="", flush=True)
                    said += log.read_text()
                missing = [text for text in wanted if text not in said]
                assert not missing, f"{script} did not say {missing}"
        finally:
            images = found.call("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
            gone = [image for image in images if f"/{PROJECT}/" in image]
            found.call("rmi", "--force", *gone)
        left = found.call("ps", "--all", "--quiet", "--filter", f"label={engine.ROOT_LABEL}={root}").stdout.split()
        assert not left, f"containers are left: {left}"
    print(f"\nthree images, 3 jobs and a study in containers of {found.name} {found.version}; no container is left ({time.monotonic() - began:.0f} s)")  # fmt: skip


def chosen() -> engine.Engine:
    """Return an engine that runs the base image; exit with a sentence on what the demo needs otherwise."""
    if shutil.which("gcloud") is None:
        needs("gcloud is not installed")
    found, why = engine.look()
    if found is not None:
        print(
            f"base image {own_podman.BASE}: made of this machine's Python with {found.name}, kept for later runs",
            flush=True,
        )
        why = own_podman.base_image(found.program, os.environ)
        if why and found.name == "podman" and shutil.which("runc"):
            print("podman runs no container as it is set up; this demo uses runc and a folder of its own", flush=True)
            found.call("rmi", own_podman.BASE)
            os.environ.update(own_podman.variables(own_podman.storage()))
            why = ""
    if found is None or why:
        needs(why.splitlines()[-1].rstrip("."))
    return found


def needs(why: str) -> NoReturn:
    """Exit with what the demo needs."""
    print(f"make demo-containers needs gcloud and an engine that runs containers, docker, podman or nerdctl ({why}).", file=sys.stderr)  # fmt: skip
    sys.exit(2)


def run(folder: Path, env: dict[str, str], script: str) -> str:
    """Run a script's commands under `local run`, printed as they would be typed; what they say."""
    print(f"\n$ cat {script}\n{FILES[script]}$ vertexrig local run -- sh {script}", flush=True)
    words = [sys.executable, "-m", "vertexrig", "local", "run", "--", "sh", "-e", script]
    process = subprocess.Popen(words, cwd=folder, env=env, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    lines = []
    for line in process.stdout or ():
        print(line, end="", flush=True)
        lines.append(line)
    if process.wait():
        sys.exit(f"{script} ended with {process.returncode}")
    return "".join(lines)


if __name__ == "__main__":
    main()
