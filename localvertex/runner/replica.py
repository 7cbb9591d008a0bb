"""The command of a replica: its program with the environment of the service and of this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localvertex.runner import environment, job_files
from localvertex.runner.children import Command, Isolation, hosts_with
from localvertex.runner.forker import MARK
from localvertex.runner.options import RunOptions
from localvertex.runner.packages import QUIET_PIP
from localvertex.runner.replica_program import ReplicaProgram
from localvertex.runner.supervisor import TMP
from vertexrig.spec import cluster
from vertexrig.spec.document import Pool

INSTALLED = "installed"
"""Folder of a replica for what its own pip installs."""
HOSTS = "hosts"
"""File of a job that its replicas see as /etc/hosts."""
_KEY = "GOOGLE_APPLICATION_CREDENTIALS"
_CLUSTER = ("CLUSTER_SPEC", "TF_CONFIG")
_OF_PODS = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of which Kubernetes makes the last part of a pod's name (apimachinery, pkg/util/rand)."""


def user_environment(options: RunOptions, config: Path) -> dict[str, str]:
    """Return what replicas and pip see of the user's environment."""
    config.mkdir(parents=True, exist_ok=True)
    found = environment.machine_environment(os.environ, config, with_credentials=options.credentials)
    return {**found, "PATH": environment.search_path((), os.environ)}


def replica_command(
    one: cluster.Replica,
    pool: Pool,
    replicas: Sequence[cluster.Replica],
    program: ReplicaProgram,
    spec: Mapping[str, Any],
    options: RunOptions,
    root: Path,
    *,
    named: bool,
) -> Command:
    """Make a replica's folders, and return the command that starts it.

    Args:
        one: The replica.
        pool: Its worker pool.
        replicas: All replicas of the job.
        program: What the pool runs.
        spec: The CustomJobSpec.
        options: The job's.
        root: The local Vertex's folder.
        named: Whether the replicas' hosts have the service's names, and are not 127.0.0.1. A program of this machine then finds them in
            the job's file HOSTS.
    """
    job_folder = job_files.job_folder(root, options.job_id)
    folder = job_folder / one.name
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    metrics = str(job_files.metric_file(root, options.job_id, one.name))
    cloud_variables = _service_variables(one, replicas, spec, options) | {"CLOUD_ML_HP_METRIC_FILE": metrics}
    # The job's own come after the service's, to which their `$(NAME)` may refer.
    cloud_variables |= cluster.own_environment(pool.env, cloud_variables)
    buckets: Path | str = "/gcs" if program.container else environment.bucket_folder(root)
    mapped_variables = {
        name: value if name in _CLUSTER else environment.map_paths(value, buckets, keep_gs=options.keep_gs)
        for name, value in cloud_variables.items()
    }
    # Not one of `cloud_variables`: on the service, `$(TRAINER_VIRTUAL_DEVICES)` stays as it is.
    if devices := environment.virtual_devices(pool):
        mapped_variables.setdefault("TRAINER_VIRTUAL_DEVICES", str(devices))
    # `program.argv` gets the unmapped variables: after it has put them in place of `$(NAME)`, it maps the whole argument, and so a
    # value from `mapped_variables` would be mapped twice.
    words = program.argv(cloud_variables, buckets, keep_gs=options.keep_gs)
    mark_value = f"{options.job_id}/{one.name}/"
    mark = f"{MARK}={mark_value}"
    by_executor = pool.python_package is not None
    host = host_name(one, options.job_id) if named else ""
    names = _names(replicas, options.job_id, named=named)
    if program.container is not None:
        entry, args = words[: len(program.head)], words[len(program.head) :]
        argv, env, cleanup, inspect = program.container.command(
            pool, entry, args, mapped_variables, one.name, host, names, folder
        )
        env |= {MARK: mark_value}
        return Command(argv, env, work, cleanup=cleanup, inspect=inspect, mark=mark, by_executor=by_executor)
    own = folder / INSTALLED
    local_variables = {
        **user_environment(options, folder / "config"),
        "PATH": environment.search_path([*([own / "bin"] if program.installs else []), *program.folders], os.environ),
        "PYTHONUNBUFFERED": "1",
        **({"PYTHONUSERBASE": str(own), "PIP_USER": "1", **QUIET_PIP} if program.installs else {}),
        **program.settings,
        **options.extra_env,
    }
    # The job names a key file that does not exist on this machine: keep this machine's key file, or that of the local Vertex.
    if _KEY in local_variables and not Path(mapped_variables.get(_KEY, "")).is_file():
        mapped_variables.pop(_KEY, None)
    gcs = program.gcs(root)
    if named:
        for name in ("NO_PROXY", "no_proxy"):
            if name in local_variables:
                local_variables[name] = ",".join([local_variables[name], *names])
        local_variables["HOSTNAME"] = host
    # The job's own variables win over this machine's, and nothing wins over the mark.
    env = {**local_variables, **mapped_variables, MARK: mark_value}
    env |= startup_path(env)
    return Command(
        words,
        env,
        program.cwd or work,
        memory=options.memory_limit,
        mark=mark,
        by_executor=by_executor,
        isolation=Isolation(
            gcs=gcs,
            hosts=str(job_folder / HOSTS) if named else "",
            host=host,
            changes=str(work) if program.covered else "",
            tmp=bool(gcs) and not is_in_tmp(program, local_variables, root),
        ),
        framework=program.framework,
        sources=program.sources,
    )


def write_hosts(replicas: Sequence[cluster.Replica], job_id: str, job_folder: Path) -> None:
    """Write the job's /etc/hosts, for replicas with the service's names that do not run in containers."""
    (job_folder / HOSTS).write_text(hosts_with(_names(replicas, job_id, named=True)), encoding="utf-8")


def _names(replicas: Sequence[cluster.Replica], job_id: str, *, named: bool) -> list[str]:
    """Return all host names of a job's replicas: those of their addresses, and with `named` those that their machines have."""
    return [*(one.host for one in replicas), *(host_name(one, job_id) for one in replicas if named)]


def is_in_tmp(program: ReplicaProgram, local_variables: Mapping[str, str], root: Path) -> bool:
    """Whether a program needs something of this machine below /tmp, and so cannot have its own /tmp; its arguments do not count."""
    texts = (
        str(root.resolve()),
        str(program.cwd or ""),
        *program.head,
        *map(str, program.folders),
        *local_variables.values(),
    )
    return any(path.startswith(f"{TMP}/") for text in texts for path in text.split(os.pathsep))


def host_name(one: cluster.Replica, job_id: str) -> str:
    """Return the name of a replica's machine: that of its address and, as Kubernetes names pods, five characters more.

    Source: the name of an event file that a job wrote (index id 31844358587, 2025-07).
    """
    digest = hashlib.sha256(f"{job_id}/{one.name}".encode()).digest()[:5]
    return f"{one.host}-{''.join(_OF_PODS[byte % len(_OF_PODS)] for byte in digest)}"


def startup_path(env: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH with our sitecustomize, for a replica that needs it."""
    if not environment.needs_startup_hook(env):
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(environment.STARTUP), env.get("PYTHONPATH", "")]))}


def _service_variables(
    one: cluster.Replica, replicas: Sequence[cluster.Replica], spec: Mapping[str, Any], options: RunOptions
) -> dict[str, str]:
    """Return the variables that the service sets."""
    # A trial has the id of its tuning job (a course's trials write to one folder of that name, index id 3894846042).
    job_id = options.study_id or options.job_id
    identity = cluster.Identity(job_id, options.project_number, options.region, options.trial)
    found = dict(cluster.service_environment(replicas, one, spec, identity))
    # what Kubernetes sets for each service, under the names that a public program recorded (read 2026-11-22)
    for other in replicas:
        host, _, port = other.address.rpartition(":")
        name = f"CMLE_TRAINING_WORKERPOOL{other.pool_index}_{options.job_id}_{other.index}_SERVICE"
        found |= {f"{name}_HOST": host, f"{name}_PORT": port, f"{name}_PORT_TF_PORT": port}
    return found
