"""Google's generated clients, as a program would use them: `gapic.py LIBRARY`. It prints one line for each thing seen."""

import importlib
import sys
from functools import partial

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions

library = importlib.import_module(f"google.cloud.{sys.argv[1]}")
PARENT = "projects/my-project/locations/us-central1"
options = ClientOptions(api_endpoint="us-central1-aiplatform.googleapis.com")
pool = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "python_package_spec": {
        "executor_image_uri": sys.argv[2],
        "package_uris": ["gs://packages/trainer.tar.gz"],
        "python_module": "trainer.task",
        "args": ["import time; time.sleep(600)"],
    },
}


# UNIMPLEMENTED over gRPC; over REST 405, which no client tries again
NOT_SERVED = (exceptions.MethodNotImplemented, exceptions.MethodNotAllowed)


def refused(call, kind):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{call} was not refused with {kind}")


def details(error):
    """Kinds of the details: messages over gRPC, their JSON over REST."""
    return sorted(
        one["@type"].rpartition(".")[2] if isinstance(one, dict) else type(one).__name__ for one in error.details
    )


def tried(transport):
    jobs = library.JobServiceClient(transport=transport, client_options=options)
    sent = {"display_name": f"by-{transport}", "job_spec": {"worker_pool_specs": [pool]}}
    made = jobs.create_custom_job(parent=PARENT, custom_job=sent, timeout=60, metadata=[("x-mine", "1")])
    listed = jobs.list_custom_jobs(request={"parent": PARENT, "filter": f'display_name="by-{transport}"'})
    assert [one.name for one in listed] == [made.name]
    jobs.cancel_custom_job(name=made.name)
    while made.state != library.JobState.JOB_STATE_CANCELLED:
        made = jobs.get_custom_job(name=made.name)
    operation = jobs.delete_custom_job(name=made.name)
    operation.result(timeout=60)
    print(transport, "deleted", operation.done(), type(operation.metadata).__name__)

    error = refused(lambda: jobs.get_custom_job(name=made.name), exceptions.NotFound)
    print(transport, "missing", error.code.value, error.grpc_status_code.name if error.grpc_status_code else "")
    wrong = {
        "display_name": "x",
        "job_spec": {"worker_pool_specs": [{**pool, "machine_spec": {"accelerator_type": 77}}]},
    }
    error = refused(lambda: jobs.create_custom_job(parent=PARENT, custom_job=wrong), exceptions.BadRequest)
    print(transport, "invalid", details(error))

    for kind, method in (("Dataset", "list_datasets"), ("Endpoint", "list_endpoints")):
        client = getattr(library, f"{kind}ServiceClient")(transport=transport, client_options=options)
        listing = getattr(client, method)
        print(transport, method, list(listing(parent=PARENT)))
        refused(partial(listing, parent="projects/UP/locations/us-central1"), exceptions.Forbidden)

    models = library.ModelServiceClient(transport=transport, client_options=options)
    upload = models.upload_model(parent=PARENT, model={"display_name": transport, "artifact_uri": "gs://b/m"})
    model = upload.result(timeout=60).model
    print(transport, "uploaded", models.get_model(name=model).display_name, type(upload.metadata).__name__)
    models.delete_model(name=model).result(timeout=60)

    name = f"{PARENT}/endpoints/1"
    predictions = library.PredictionServiceClient(transport=transport, client_options=options)
    error = refused(lambda: predictions.predict(endpoint=name, instances=[]), NOT_SERVED)
    print(transport, "unary", "PredictionService/Predict" in error.message)
    body = {"endpoint": name}
    error = refused(lambda: list(predictions.server_streaming_predict(request=body, timeout=60)), NOT_SERVED)
    print(transport, "server streams", "PredictionService/ServerStreamingPredict" in error.message)
    if transport == "grpc":
        error = refused(
            lambda: list(predictions.stream_direct_predict(requests=iter([body]), timeout=60)),
            NOT_SERVED,
        )
        print(transport, "both stream", "PredictionService/StreamDirectPredict" in error.message)


for transport in ("grpc", "rest"):
    tried(transport)
