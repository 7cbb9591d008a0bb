"""Networks, and the file systems mounted over them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vertexrig.checks.model import NFS_DOC, REST, SDK, Context, Problem, Rule, join
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, job_part
from vertexrig.text import quoted

_BY_ID = r"projects/([^/]+)/global/networks/[^/]+"
_ATTACHMENT = r"(?:projects/[^/]+/regions/([^/]+)/networkAttachments/)?[a-z](?:[a-z0-9-]*[a-z0-9])?"
_NUMERIC = r"[0-9.:]*[0-9]"


def network(document: Document, context: Context) -> Iterator[Problem]:
    name = document.job.get("network")
    if not name or re.fullmatch(context.catalog.limits.text("network.pattern"), name):
        return
    path = f"{document.job_path}network"
    by_id = re.fullmatch(_BY_ID, name)
    if by_id:
        text = f"the network is named with the project id {by_id[1]!r}; it needs the project's number"
        yield Problem(path, text, f"find it with: gcloud projects describe {by_id[1]} --format='value(projectNumber)'")
    else:
        yield Problem(path, f"{name!r} is not a network: projects/PROJECT_NUMBER/global/networks/NAME")


def network_twice(document: Document, context: Context) -> Iterator[Problem]:
    if document.job.get("network") and job_part(document, "pscInterfaceConfig"):
        text = "network (VPC peering) and pscInterfaceConfig (Private Service Connect) are alternatives"
        yield Problem(f"{document.job_path}pscInterfaceConfig", text, "keep one of the two")


def ip_ranges(document: Document, context: Context) -> Iterator[Problem]:
    if document.job.get("reservedIpRanges") and not document.job.get("network"):
        text = "reservedIpRanges are ranges of the peered network, and no network is given"
        yield Problem(f"{document.job_path}reservedIpRanges", text, "write network, or remove reservedIpRanges")


def psc_attachment(document: Document, context: Context) -> Iterator[Problem]:
    if "pscInterfaceConfig" not in document.job:
        return
    name = job_part(document, "pscInterfaceConfig").get("networkAttachment")
    path = f"{document.job_path}pscInterfaceConfig.networkAttachment"
    found = re.fullmatch(_ATTACHMENT, name or "")
    if not name:
        yield Problem(path, "pscInterfaceConfig names no network attachment", "write networkAttachment")
    elif found is None:
        form = "projects/PROJECT/regions/REGION/networkAttachments/NAME"
        yield Problem(path, f"{name!r} is not a network attachment: write its name alone, or {form}")
    elif found[1] and context.region and found[1] != context.region:
        text = f"the network attachment is in {found[1]}, the job in {context.region}: both must be in one region"
        yield Problem(path, text, "name a network attachment in the job's region")


def dns_peering(document: Document, context: Context) -> Iterator[Problem]:
    configs = job_part(document, "pscInterfaceConfig").get("dnsPeeringConfigs", [])
    for number, config in enumerate(configs):
        path = f"{document.job_path}pscInterfaceConfig.dnsPeeringConfigs[{number}]"
        missing = [key for key in ("domain", "targetProject", "targetNetwork") if not config.get(key)]
        if missing:
            yield Problem(path, f"a DNS peering needs {', '.join(missing)}", f"write {missing[0]}")
        elif not config["domain"].endswith("."):
            domain = config["domain"]
            yield Problem(f"{path}.domain", f"the domain {domain!r} must end with a dot", edits=write(f"{domain}."))


def mount_network(document: Document, context: Context) -> Iterator[Problem]:
    job = document.job
    if job.get("network") or job_part(document, "pscInterfaceConfig") or job.get("persistentResourceId"):
        return
    for pool in document.pools:
        for key in ("nfsMounts", "lustreMounts"):
            if pool.data.get(key):
                text = f"{key} are reached over your own network, and neither network nor pscInterfaceConfig is given"
                yield Problem(f"{pool.path}.{key}", text, "write network or pscInterfaceConfig")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _mount_problems(mount: Mapping[str, Any], path: str, root: str, needed: tuple[str, ...]) -> Iterator[Problem]:
    """Yield problems that the mounts of both file systems can have."""
    missing = [key for key in needed if not mount.get(key)]
    if missing:
        yield Problem(path, f"a mount needs {', '.join(missing)}", f"write {missing[0]}")
    point = str(mount.get("mountPoint", ""))
    if "/" in point:
        name = point.rstrip("/").rpartition("/")[2]
        text = f"mountPoint is a directory name, mounted as {root}NAME; {point!r} is a path"
        yield Problem(f"{path}.mountPoint", text, "", Severity.WARNING, edits=write(name))
    address = str(mount.get(needed[0], ""))
    if address and not _is_address(address):
        # digits and dots are meant as an address and are a wrong one; a host name may yet be resolved
        severity = None if re.fullmatch(_NUMERIC, address) else Severity.WARNING
        text = f"{quoted(address)} is not an IP address"
        yield Problem(f"{path}.{needed[0]}", text, "write the server's IP address", severity)


def nfs_mount(document: Document, context: Context) -> Iterator[Problem]:
    root = context.catalog.limits.text("nfs.mount_root")
    for pool in document.pools:
        points: set[str] = set()
        for number, mount in enumerate(pool.data.get("nfsMounts", [])):
            path = f"{pool.path}.nfsMounts[{number}]"
            yield from _mount_problems(mount, path, root, ("server", "path", "mountPoint"))
            source, point = str(mount.get("path", "")), str(mount.get("mountPoint", ""))
            if source and not source.startswith("/"):
                yield Problem(f"{path}.path", f"the path {source!r} must start with a slash", edits=write(f"/{source}"))
            if point and point in points:
                text = f"two mounts use {root}{point}; each needs its own mountPoint"
                yield Problem(f"{path}.mountPoint", text, "change one mountPoint", Severity.WARNING)
            points.add(point)


def lustre_mount(document: Document, context: Context) -> Iterator[Problem]:
    root = context.catalog.limits.text("lustre.mount_root")
    for pool in document.pools:
        for number, mount in enumerate(pool.data.get("lustreMounts", [])):
            needed = ("instanceIp", "volumeHandle", "filesystem", "mountPoint")
            yield from _mount_problems(mount, f"{pool.path}.lustreMounts[{number}]", root, needed)


RULES = (
    Rule("network", Severity.ERROR, "network is named with the project's number.", REST, network),
    Rule("network-twice", Severity.WARNING, "A job has a VPC network or a PSC interface, not both.",
         REST, network_twice),
    Rule("reserved-ip-ranges", Severity.WARNING, "reservedIpRanges come with a network.", REST, ip_ranges),
    Rule("psc-attachment", Severity.ERROR, "The PSC interface names a network attachment of the job's region.",
         SDK, psc_attachment),
    Rule("dns-peering", Severity.ERROR, "A DNS peering is complete, and its domain ends with a dot.", SDK, dns_peering, "safe"),
    Rule("mount-network", Severity.WARNING, "A job that mounts a file system is on a network.",
         join(NFS_DOC, REST), mount_network),
    Rule("nfs-mount", Severity.ERROR, "An NFS mount has a server, a path that starts with a slash, and a mount point.",
         REST, nfs_mount, "safe"),
    Rule("lustre-mount", Severity.ERROR, "A Lustre mount is complete.", REST, lustre_mount, "safe"),
)  # fmt: skip
