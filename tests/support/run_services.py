"""Services of Cloud Run, in the form in which gcloud sends and prints them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

RUN, SCALE = "run.googleapis.com/", "autoscaling.knative.dev/"
BASE = "us-central1-docker.pkg.dev/serverless-runtimes/google-22/runtimes/"


def service(words: Sequence[str], url: str = "", ready: str = "True") -> dict[str, Any]:
    """The service after `gcloud run deploy` with these words; `tests/vertexrig/trigger/test_changes.py` compares it with gcloud."""
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    values = flags.get("set-env-vars", "^,^")
    pairs = [one.split("=", 1) for one in values[3:].split(values[1]) if one]
    notes = {
        f"{RUN}ingress": flags.get("ingress"),
        f"{RUN}build-function-target": flags.get("function"),
        f"{RUN}build-base-image": f"{BASE}{flags.get('base-image')}",
        f"{RUN}build-service-account": flags.get("build-service-account"),
        f"{RUN}build-image-uri": flags.get("image"),
    }
    interface = {key: flags[flag] for key, flag in (("network", "network"), ("subnetwork", "subnet")) if flag in flags}
    own = {
        f"{SCALE}minScale": flags.get("min-instances"),
        f"{SCALE}maxScale": flags.get("max-instances"),
        f"{RUN}network-interfaces": json.dumps([interface]) if interface else None,
        f"{RUN}vpc-access-connector": flags.get("vpc-connector"),
        f"{RUN}vpc-access-egress": flags.get("vpc-egress"),
    }
    limits = {key: flags[key] for key in ("cpu", "memory") if key in flags}
    pod = {
        "containerConcurrency": int(flags.get("concurrency", 1)),
        "containers": [
            {"env": [{"name": key, "value": value} for key, value in pairs], "resources": {"limits": limits}}
        ],
        "serviceAccountName": flags.get("service-account"),
        "timeoutSeconds": int(flags.get("timeout", "0").removesuffix("s")),
    }
    labels = dict(one.split("=") for one in flags.get("update-labels", "").split(",") if one)
    kept = [{key: value for key, value in rows.items() if value is not None} for rows in (notes, own)]
    return {
        "metadata": {"name": words[3] if len(words) > 3 else "", "labels": labels, "annotations": kept[0]},
        "spec": {"template": {"metadata": {"annotations": kept[1]}, "spec": pod}},
        "status": {"url": url, "conditions": [{"type": "Ready", "status": ready}]},
    }
