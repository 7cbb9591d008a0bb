"""The account a job runs as, and the resources it names: TensorBoard, experiment, key, reservation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vertexrig.checks.model import (
    EXPERIMENTS,
    LOCATIONS,
    PRACTICE,
    RESERVATION_DOC,
    REST,
    SDK,
    SERVER,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, machine_path, tpu_name
from vertexrig.text import quoted

_LONGEST = 320  # characters of an e-mail address
_EMAIL = r"[^@\s/{}<>$]+@[^@\s/{}<>$]+\.[^@\s/{}<>$]+"
_TENSORBOARD = r"projects/[^/]+/locations/([^/]+)/tensorboards/[^/]+"
_CONTEXT = r"projects/[^/]+/locations/([^/]+)/metadataStores/[^/]+/contexts/[^/]+"
_KEY = r"projects/[^/]+/locations/([^/]+)/keyRings/[^/]+/cryptoKeys/[^/]+"


def service_account(document: Document, context: Context) -> Iterator[Problem]:
    name = document.job.get("serviceAccount")
    path = f"{document.job_path}serviceAccount"
    if not name:
        return
    if len(name) > _LONGEST or not re.fullmatch(_EMAIL, name):
        text = f"{quoted(name)} is not a service account: NAME@PROJECT.iam.gserviceaccount.com"
        # the resource name of an account, projects/P/serviceAccounts/E-MAIL, has the address at its end
        last = name.rpartition("/")[2][:_LONGEST]
        yield Problem(path, text, edits=write(last if re.fullmatch(_EMAIL, last) else None))
    elif not name.endswith("gserviceaccount.com"):
        text = f"{name} does not look like a service account: those end in gserviceaccount.com"
        yield Problem(path, text, "", Severity.WARNING)


def account_roles(document: Document, context: Context) -> Iterator[Problem]:
    if document.job.get("serviceAccount"):
        text = "a service account of your own needs roles/logging.logWriter, or the job's output is lost silently"
        yield Problem(f"{document.job_path}serviceAccount", text)


def tensorboard(document: Document, context: Context) -> Iterator[Problem]:
    name = document.job.get("tensorboard")
    path = f"{document.job_path}tensorboard"
    if not name:
        return
    found = re.fullmatch(_TENSORBOARD, name)
    if found is None:
        text = f"{name!r} is not a TensorBoard: projects/PROJECT/locations/REGION/tensorboards/ID"
        yield Problem(path, text, sure="://" in name)
    elif context.region and found[1] != context.region:
        text = f"the TensorBoard is in {found[1]}, the job in {context.region}: both must be in one region"
        yield Problem(path, text, "name a TensorBoard in the job's region", Severity.WARNING)


def tensorboard_account(document: Document, context: Context) -> Iterator[Problem]:
    for key in ("tensorboard", "experiment"):
        name = str(document.job.get(key, ""))
        if name and not document.job.get("serviceAccount"):
            text = f"a job with {key} needs a serviceAccount"
            # a placeholder alone may become an empty text
            sure = "://" in name or name.startswith("projects/")
            yield Problem(f"{document.job_path}{key}", text, "write serviceAccount", sure=sure)


def experiment(document: Document, context: Context) -> Iterator[Problem]:
    for key in ("experiment", "experimentRun"):
        name = document.job.get(key)
        if name and not re.fullmatch(_CONTEXT, name):
            text = f"{name!r} is not of the form projects/PROJECT/locations/REGION/metadataStores/STORE/contexts/NAME"
            yield Problem(f"{document.job_path}{key}", text)
    if document.job.get("experiment") and document.job.get("tensorboard"):
        text = "experiment and tensorboard are not set together: the experiment brings its TensorBoard"
        yield Problem(f"{document.job_path}experiment", text, "remove one of the two")


def experiment_where(document: Document, context: Context) -> Iterator[Problem]:
    if not document.job.get("experiment"):
        return
    path, pools = f"{document.job_path}experiment", document.running
    tpus = [tpu_name(pool, context.catalog) for pool in pools if tpu_name(pool, context.catalog)]
    replicas = sum(max(0, pool.replica_count) for pool in pools)
    if tpus:
        text = f"experiment is not available on TPUs, and the job has {tpus[0]}"
        yield Problem(path, text, "remove experiment, and log to it with the SDK")
    elif replicas > 1:
        text = f"experiment is not available in distributed training, and the job has {replicas:,} replicas"
        yield Problem(path, text, "remove experiment, and log to it with the SDK")
    else:
        text = "experiment is not available through gcloud: submit the job through the API or the SDK"
        yield Problem(path, text, "", Severity.INFO)


def kms_key(document: Document, context: Context) -> Iterator[Problem]:
    path = "encryptionSpec.kmsKeyName"
    for encryption in context.outside_spec(document, "encryptionSpec"):
        name = str(encryption.get("kmsKeyName") or "") if isinstance(encryption, dict) else None
        found = re.fullmatch(_KEY, name) if name is not None else None
        if name is not None and found is None:
            form = "projects/PROJECT/locations/REGION/keyRings/RING/cryptoKeys/KEY"
            yield Problem(path, f"{name!r} is not a key: {form}")
        elif found is not None and context.region not in ("", found[1]):
            text = f"the key is in {found[1]}, the job in {context.region}: both must be in one region"
            yield Problem(path, text, "name a key in the job's region")


def persistent_resource(document: Document, context: Context) -> Iterator[Problem]:
    name = document.job.get("persistentResourceId")
    form = context.catalog.limits.text("persistent_resource_id.pattern")
    if not name or re.fullmatch(form, name):
        return
    text = f"{name!r} is not an id: digits, lowercase letters and hyphens; a letter first, no hyphen last"
    last = name.rpartition("/")[2]
    edits = write(last if re.fullmatch(form, last) else None)
    yield Problem(f"{document.job_path}persistentResourceId", text, edits=edits)


def reservation(document: Document, context: Context) -> Iterator[Problem]:
    limits = context.catalog.limits
    key_wanted, form = limits.text("reservation.key"), limits.text("reservation.value_pattern")
    for pool in document.pools:
        affinity = pool.machine.get("reservationAffinity")
        if affinity is None:
            continue
        path = machine_path(pool, "reservationAffinity")
        kind, values = affinity.get("reservationAffinityType", "TYPE_UNSPECIFIED"), affinity.get("values", [])
        if kind == "TYPE_UNSPECIFIED":
            choices = ", ".join(limits.names("reservation.types"))
            text = f"reservationAffinityType is not set; it is one of {choices}"
            yield Problem(f"{path}.reservationAffinityType", text, "write reservationAffinityType")
        elif kind != "SPECIFIC_RESERVATION":
            if values or affinity.get("key"):
                text = f"key and values belong to SPECIFIC_RESERVATION, not to {kind}"
                yield Problem(path, text, "remove them, or write SPECIFIC_RESERVATION", Severity.WARNING)
        elif affinity.get("key") != key_wanted or not values:
            text = f"SPECIFIC_RESERVATION needs key: {key_wanted} and values with the reservation's name"
            yield Problem(path, text, f"write key: {key_wanted} and values: [projects/P/zones/Z/reservations/NAME]")
        for number, value in enumerate(values if kind == "SPECIFIC_RESERVATION" else ()):
            if not re.fullmatch(form, value):
                text = f"{value!r} is not a reservation: projects/PROJECT/zones/ZONE/reservations/NAME"
                yield Problem(f"{path}.values[{number}]", text)


def reservation_region(document: Document, context: Context) -> Iterator[Problem]:
    if not context.region:
        return
    for pool in document.pools:
        for number, value in enumerate(pool.affinity.get("values", [])):
            parts = value.split("/")
            zone = parts[3] if len(parts) == 6 and parts[2] == "zones" else ""
            if zone and zone.rpartition("-")[0] != context.region:
                text = f"the reservation is in zone {zone}, the job in {context.region}: both must be in one region"
                path = f"{machine_path(pool, 'reservationAffinity')}.values[{number}]"
                yield Problem(path, text, "name a reservation in the job's region")


RULES = (
    Rule("service-account", Severity.ERROR, "serviceAccount is the address of a service account.",
         join(REST, SERVER), service_account, "safe"),
    Rule("account-roles", Severity.INFO, "A custom service account has a role that allows it to write logs.",
         PRACTICE, account_roles),
    Rule("tensorboard", Severity.ERROR, "tensorboard is a TensorBoard of the job's region.", REST, tensorboard),
    Rule("tensorboard-account", Severity.ERROR, "A job with a TensorBoard or an experiment has a service account.",
         SDK, tensorboard_account),
    Rule("experiment", Severity.WARNING, "experiment names a context, and tensorboard is not set beside it.",
         join(REST, SDK), experiment),
    Rule("experiment-where", Severity.WARNING, "experiment is set on a job of one replica without TPUs.",
         EXPERIMENTS, experiment_where),
    Rule("kms-key", Severity.ERROR, "The encryption key is a Cloud KMS key of the job's region.", SDK, kms_key),
    Rule("persistent-resource", Severity.ERROR, "persistentResourceId has the form of an id.",
         join(SERVER, REST), persistent_resource, "safe"),
    Rule("reservation", Severity.ERROR, "reservationAffinity is complete.", join(RESERVATION_DOC, SDK), reservation),
    Rule("reservation-region", Severity.WARNING, "The reservation is in the job's region.",
         join(RESERVATION_DOC, LOCATIONS), reservation_region),
)  # fmt: skip
