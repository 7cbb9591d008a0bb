"""The fence: a job that was started by a request ends at once where the request's claim records another job.

Whoever starts a job at most once per request may write a claim, and give the job's processes two variables:
VERTEXRIG_CLAIM, the claim's URI, and VERTEXRIG_CLAIM_TOKEN, `ID.TOKEN`. The claim is JSON; its `winners` has the token of the
job that was recorded for each id. A claim that is missing, cannot be read or records nothing yet stops nobody.
Imports TensorFlow only where the claim's bucket is not mounted at /gcs.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from trainer.errors import SurplusJobError

LOG = logging.getLogger("trainer")
CLAIM, TOKEN = "VERTEXRIG_CLAIM", "VERTEXRIG_CLAIM_TOKEN"
MOUNTED = "/gcs"  # where Vertex AI mounts every bucket that the job may read
LARGEST = 1 << 20  # bytes of a claim


def content(uri: str) -> bytes:
    """Return the claim as it is now: from the mounted bucket, a local path, or through TensorFlow's file system."""
    # gs://bucket/x is /gcs/bucket/x: one slash of the two stays
    path = re.sub(r"^gs:/", MOUNTED, uri)
    if path == uri or os.path.isfile(path):
        with open(path, "rb") as file:
            return file.read(LARGEST)
    from trainer.framework import tf

    with tf.io.gfile.GFile(uri, "rb") as file:
        return bytes(file.read(LARGEST))


def check(environ: Mapping[str, str] = os.environ, read: Callable[[str], bytes] = content) -> None:
    """Look at the claim once, before anything is imported, read or trained.

    Args:
        environ: The process's environment.
        read: Gives the claim's bytes.

    Raises:
        SurplusJobError: it records another job.
    """
    uri, (id, _, token) = environ.get(CLAIM, "").strip(), environ.get(TOKEN, "").strip().partition(".")
    if not uri or not id or not token:
        return
    try:
        claim = json.loads(read(uri))
        winner = claim["winners"].get(id, "")
    except Exception as error:  # whatever is wrong with a claim, the job may be the recorded one
        LOG.info("the claim %s cannot be read (%s): training goes on", uri, type(error).__name__)
        return
    if winner not in ("", token):
        raise SurplusJobError(f"the claim {uri} records {_recorded(claim, id)} for the request that made this job: "
                              "this one trains nothing")  # fmt: skip


def _recorded(claim: Mapping[str, Any], id: str) -> str:
    """Return the recorded job's resource name."""
    name = claim["job"].get("name") if claim.get("id") == id else claim.get("before", {}).get(id)
    return str(name or "another job")
