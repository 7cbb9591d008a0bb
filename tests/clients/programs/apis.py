"""google-cloud-scheduler and google-cloud-logging at their default transport, which is gRPC, as a program would use them."""

import threading

from google.api_core import exceptions
from google.cloud import logging, scheduler_v1
from google.cloud.logging_v2.services.logging_service_v2 import LoggingServiceV2Client
from google.cloud.logging_v2.types import TailLogEntriesRequest

PARENT = "projects/my-project/locations/us-central1"
scheduler = scheduler_v1.CloudSchedulerClient()
nightly = {"name": f"{PARENT}/jobs/nightly", "schedule": "0 3 * * *", "http_target": {"uri": "http://127.0.0.1:9/"}}
made = scheduler.create_job(parent=PARENT, job=nightly)
print(scheduler.transport.kind, made.state.name, made.http_target.http_method.name)
print(scheduler.pause_job(name=made.name).state.name, scheduler.resume_job(name=made.name).state.name)
changed = scheduler.update_job(job={"name": made.name, "schedule": "0 4 * * *"}, update_mask={"paths": ["schedule"]})
print(changed.schedule, [one.name for one in scheduler.list_jobs(parent=PARENT)] == [made.name])
scheduler.delete_job(name=made.name)
try:
    scheduler.get_job(name=made.name, timeout=60)
except exceptions.NotFound as error:
    print(error.code.value)

client = logging.Client()
logger = client.logger("app", resource=logging.Resource("ml_job", {"job_id": "77"}))
logger.log_text("over gRPC", severity="WARNING")
logger.log_struct({"step": 3})
found = list(client.list_entries(filter_='resource.labels.job_id="77"'))
about = "logging.googleapis.com/diagnostic"  # what the library logs of itself
print([(one.payload, one.severity) for one in found if about not in one.payload])
tail = TailLogEntriesRequest(resource_names=["projects/my-project"], filter='textPayload:"tail"')
stopped = threading.Event()


def write() -> None:
    while not stopped.wait(0.1):  # a tail begins with what is written after it, and does not say when it began
        logger.log_text("other")
        logger.log_text("for the tail")


writer = threading.Thread(target=write)
writer.start()
answers = LoggingServiceV2Client().tail_log_entries(requests=iter([tail]), timeout=60)  # returns with the first entries
print({one.text_payload for one in next(iter(answers)).entries})
stopped.set()
writer.join()
answers.cancel()
wrong = TailLogEntriesRequest(resource_names=["projects/my-project"], filter="(")
try:
    print(list(LoggingServiceV2Client().tail_log_entries(requests=iter([wrong]), timeout=60)))
except exceptions.InvalidArgument as error:
    print("Unparseable filter" in error.message)
