"""Starts a training job as any program of the Vertex AI SDK does: no endpoint, no transport, no credentials."""

from pathlib import Path

from google.cloud import aiplatform

aiplatform.init(project="my-project", location="us-central1", staging_bucket="gs://my-project-vertexrig")
job = aiplatform.CustomJob.from_local_script(
    display_name="digits",
    script_path=str(Path(__file__).with_name("train.py")),
    container_uri="us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest",
    args=["--trees=50"],
    base_output_dir="gs://my-project-vertexrig/digits",
)
job.run()
