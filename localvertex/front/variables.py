"""The variables by which unchanged programs reach the front: one table, and what of the user's is hidden."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import certifi

from localvertex.front.hosts import DOMAIN, METADATA
from localvertex.state import HOST, NAMES, RunningServer, make_private
from vertexrig.files import write_bytes

FOLDER, TOKEN = "front", "token"
CERTIFICATE, TRUST_STORE, CREDENTIALS, GCLOUD = "ca.pem", "trust.p12", "credentials.json", "gcloud"
TRUST_PASSWORD = "vertexrig"
"""Password of the Java trust store, which holds no secret; the format requires one."""
USER = "vertexrig"
PROGRAMS = ("docker",)
"""Programs that a command of `local run` finds before those of the user's PATH; see `programs`."""
OWN_PROXIES = "VERTEXRIG_PROXIES"
"""Variable with the user's own proxy variables, as JSON, for what uses this machine's network: container engines."""
_PROXIES = (
    "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy", "grpc_proxy",
)  # fmt: skip
ACCESS_TOKEN = "local-vertex-access-token"
"""Access token of the token endpoint; no other service accepts it."""
_STARTUP = Path(__file__).parents[1] / "runner/startup"
_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Variable:
    """A variable, whose value has fields of `values` in braces, and who gets it: replicas, a command of `local run`, or both."""

    name: str
    value: str
    replica: bool = True
    command: bool = True


_JAVA = (
    "-Djavax.net.ssl.trustStore={trust_store} -Djavax.net.ssl.trustStoreType=PKCS12 "
    f"-Djavax.net.ssl.trustStorePassword={TRUST_PASSWORD} -Dhttps.proxyHost={{host}} -Dhttps.proxyPort={{port}}"
)
TABLE = (  # each with the programs that read it
    Variable("HTTPS_PROXY", "{proxy}"),  # requests, urllib, httpx, Node, Go, pip
    Variable("https_proxy", "{proxy}"),  # curl, TensorFlow, and gRPC in all languages but Java
    Variable("HTTP_PROXY", "{proxy}"),  # as HTTPS_PROXY, for plain HTTP: the metadata server
    Variable("http_proxy", "{proxy}"),  # as https_proxy, for plain HTTP
    Variable("grpc_proxy", "{proxy}"),  # gRPC, before https_proxy
    Variable("NO_PROXY", "{no_proxy}"),  # all of them
    Variable("no_proxy", "{no_proxy}"),  # all of them
    Variable("NODE_USE_ENV_PROXY", "1"),  # fetch of Node 22.21 and later, which ignores HTTPS_PROXY without it
    Variable(NAMES, "{host}:{tls_port}"),  # what leads names here: Python's sitecustomize and Node's script
    Variable(
        "NODE_OPTIONS", '--require "{node}"'
    ),  # Node: its https module and its fetch, which ask no proxy by themselves
    Variable("PYTHONPATH", "{startup}", replica=False),  # Python: libraries that ask no proxy; replicas get it anyway
    Variable("WGETRC", "{wget}"),  # GNU wget, which takes authorities from no variable
    Variable("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "{bundle}"),  # gRPC in Python, Node, C++
    Variable("REQUESTS_CA_BUNDLE", "{bundle}"),  # requests, pip
    Variable("SSL_CERT_FILE", "{bundle}"),  # OpenSSL: urllib, httpx, aiohttp; Go
    Variable("CURL_CA_BUNDLE", "{bundle}", replica=False),  # curl, TensorFlow
    # TensorFlow reads the file for each call to gs://: 140 authorities take 12 ms of a core, ours alone next to nothing.
    Variable("CURL_CA_BUNDLE", "{certificate}", command=False),  # TensorFlow, which calls none but Google's hosts
    Variable("CURL_HOME", "{curl}", command=False),  # curl, whose .curlrc there names the whole bundle
    Variable("HTTPLIB2_CA_CERTS", "{bundle}"),  # httplib2
    Variable("NODE_EXTRA_CA_CERTS", "{certificate}"),  # Node
    Variable("JAVA_TOOL_OPTIONS", _JAVA),  # Java
    Variable("CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "{bundle}"),  # gcloud
    Variable("CLOUDSDK_PROXY_TYPE", "http"),  # gcloud
    Variable("CLOUDSDK_PROXY_ADDRESS", "{host}"),  # gcloud
    Variable("CLOUDSDK_PROXY_PORT", "{port}"),  # gcloud
    Variable("CLOUDSDK_PROXY_USERNAME", USER),  # gcloud
    Variable("CLOUDSDK_PROXY_PASSWORD", "{token}"),  # gcloud
    Variable("CLOUDSDK_CONFIG", "{gcloud}", replica=False),  # gcloud, and google-auth when it looks for a login
    Variable("CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "{credentials}"),  # gcloud
    Variable("CLOUDSDK_CORE_ACCOUNT", "{account}"),  # gcloud
    Variable("CLOUDSDK_CORE_PROJECT", "{project}"),  # gcloud
    Variable("CLOUDSDK_AI_REGION", "{region}", replica=False),  # gcloud
    Variable("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true"),  # gcloud
    Variable("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true"),  # gcloud
    Variable("BOTO_CONFIG", "{boto}"),  # gsutil
    Variable("GOOGLE_APPLICATION_CREDENTIALS", "{credentials}"),  # google-auth in every language
    Variable("GOOGLE_CLOUD_PROJECT", "{project}", replica=False),  # google-auth in every language
    Variable("GOOGLE_AUTH_TOKEN_FOR_TESTING", ACCESS_TOKEN),  # TensorFlow's GCS file system
    # TensorFlow's, too: it clears so much memory for each request, 64 MiB without
    Variable("GCS_READAHEAD_BUFFER_SIZE_BYTES", str(16 << 20)),
    # blocks of the cache below, 64 MiB without
    Variable("GCS_READ_CACHE_BLOCK_SIZE_MB", "16", command=False),
    # what it keeps of files read by gs://, so that later epochs are as fast as from a disk; 0 without
    Variable("GCS_READ_CACHE_MAX_SIZE_MB", "256", command=False),
    Variable("GCE_METADATA_HOST", "{server}"),  # google-auth when it looks for a metadata server
    Variable("VERTEXRIG_LOCAL", "{url}", replica=False),  # vertexrig
    Variable("VERTEXRIG_AIPLATFORM", "{url}/vertex", replica=False),  # programs that were changed for the local Vertex
)
"""What `local run` and `local env --transparent` set."""

_OPTIONS = ("JAVA_TOOL_OPTIONS", "NODE_OPTIONS")
"""Variables of several options, in which the user's stay."""
LOGINS = (
    "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_API_KEY",
    "GOOGLE_CLOUD_KEYFILE_JSON", "GCLOUD_KEYFILE_JSON", "GOOGLE_GHA_CREDS_PATH", "GOOGLE_API_CERTIFICATE_CONFIG",
    "GOOGLE_IMPERSONATE_SERVICE_ACCOUNT", "CLOUDSDK_AUTH_ACCESS_TOKEN", "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE",
    "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE", "CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT", "CLOUDSDK_CORE_ACCOUNT",
    "CLOUDSDK_CONFIG",
)  # fmt: skip
"""Variables that hold or name credentials: hidden from the command, which is mentioned."""
_DROPPED = (
    "GOOGLE_CLOUD_QUOTA_PROJECT", "GOOGLE_API_USE_CLIENT_CERTIFICATE", "CLOUDSDK_ACTIVE_CONFIG_NAME",
    "CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "STORAGE_EMULATOR_HOST", "NO_GCE_CHECK", "no_grpc_proxy", "GRPC_PROXY_EXP",
    "ALL_PROXY", "all_proxy",
)  # fmt: skip
_DROPPED_PREFIXES = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_", "GOOGLE_EXTERNAL_ACCOUNT_")


@dataclass(frozen=True)
class Environment:
    """How the environment of a program that uses the front differs from the user's.

    Args:
        set: Variables and their values.
        unset: Variables of the user's that it must not see.
        hidden: Names of credentials that were there and are hidden now.
    """

    set: Mapping[str, str]
    unset: tuple[str, ...]
    hidden: tuple[str, ...]

    def over(self, user: Mapping[str, str]) -> dict[str, str]:
        """Return the user's environment with the difference."""
        return {**{name: value for name, value in user.items() if name not in self.unset}, **self.set}


def transparent(here: RunningServer, user: Mapping[str, str], *, project: str, region: str) -> Environment:
    """Return the difference between a user's environment and that of a command run by `local run`."""
    made = values(here, user, project=project, region=region)
    ours = {row.name: row.value.format(**made) for row in TABLE if row.command}
    ours |= {name: _together(user[name], ours[name]) for name in _OPTIONS if user.get(name)}
    search = [str(programs(here.root)), *user.get("PATH", os.defpath).split(os.pathsep)]
    ours["PATH"] = os.pathsep.join(dict.fromkeys(search))
    paths = [made["startup"], *user.get("PYTHONPATH", "").split(os.pathsep)]
    ours["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    own = with_own_proxies(user)
    ours[OWN_PROXIES] = json.dumps({name: own[name] for name in _PROXIES if own.get(name)})
    unset = [name for name in user if name in (*_DROPPED, *LOGINS) or name.startswith(_DROPPED_PREFIXES)]
    return Environment(ours, tuple(sorted(set(unset) - set(ours))), tuple(_hidden(user, made)))


def with_own_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command with the user's own proxies in place of the front; any other environment unchanged.

    The network of a container, or of a line RUN, need not have this machine's loopback, where the front listens.
    """
    if not any(f"//{USER}:" in environ.get(name, "") for name in _PROXIES):
        return dict(environ)
    own = dict[str, str]()
    with suppress(ValueError, AttributeError):
        own = {str(name): str(value) for name, value in json.loads(environ.get(OWN_PROXIES, "{}")).items()}
    return {**{name: value for name, value in environ.items() if name not in (*_PROXIES, OWN_PROXIES)}, **own}


def of_replica(here: RunningServer, user: Mapping[str, str], *, project: str) -> dict[str, str]:
    """Return the part of the table for replicas, which find their bucket and their account as in the cloud."""
    made = values(here, user, project=project, region="")
    return {row.name: row.value.format(**made) for row in TABLE if row.replica}


def values(here: RunningServer, user: Mapping[str, str], *, project: str, region: str) -> dict[str, str]:
    """Return the values of the fields in the table's braces, for one server."""
    folder = here.root / FOLDER
    token = (folder / TOKEN).read_text(encoding="ascii")
    account = json.loads((folder / CREDENTIALS).read_text(encoding="utf-8"))["client_email"]
    return {
        "proxy": f"http://{USER}:{token}@{HOST}:{here.front_port}",
        "host": HOST,
        "port": str(here.front_port),
        "tls_port": str(here.tls_port),
        "startup": str(_STARTUP),
        "wget": str(wget(folder, user)),
        "token": token,
        "no_proxy": no_proxy(user),
        "bundle": str(bundle(folder, user)),
        "certificate": str(folder / CERTIFICATE),
        "trust_store": str(folder / TRUST_STORE),
        "credentials": str(folder / CREDENTIALS),
        "gcloud": str(folder / GCLOUD),
        "boto": str(boto(folder, user, project)),
        "curl": str(curl(folder, user)),
        # NODE_OPTIONS takes a backslash in quotes as an escape.
        "node": str(Path(__file__).with_name("node.cjs")).replace("\\", "\\\\"),
        "project": project,
        "account": account,
        "region": region,
        "url": here.url,
        "server": f"{HOST}:{here.port}",
    }


def programs(root: Path) -> Path:
    """Return the folder with the `PROGRAMS` that come first on PATH; written where they are missing."""
    folder = make_private(root / FOLDER / "bin")
    words = [sys.executable, "-I", "-m", "localvertex.cli.docker", str(root.absolute()), str(folder.absolute())]
    for name in PROGRAMS:
        _write_once(folder / name, f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n'.encode(), 0o755)
    return folder.absolute()


def no_proxy(user: Mapping[str, str]) -> str:
    """Hosts that are asked directly: this machine and what the user excepts, but never one of Google's."""
    given = (user.get("no_proxy") or user.get("NO_PROXY") or "").split(",")
    local = ["localhost", HOST, "::1"]
    kept = [name.strip() for name in given if name.strip() and not _covers_google(name.strip().lower())]
    return ",".join(dict.fromkeys([*local, *kept]))


def _covers_google(pattern: str) -> bool:
    bare = pattern.lstrip("*").lstrip(".").partition(":")[0]
    # An entry such as `com` or `.googleapis.com`, by which clients would go around the proxy.
    return not bare or bare in METADATA or f".{DOMAIN}".endswith(f".{bare}") or bare.endswith(f".{DOMAIN}")


def bundle(folder: Path, user: Mapping[str, str]) -> Path:
    """Return a file with the authorities that the user's programs trust, and ours; written where it is missing."""
    named = next((Path(user[name]) for name in _BUNDLES if user.get(name) and Path(user[name]).is_file()), None)
    if named is None or named.parent == folder:  # ours, in a command that runs inside another one
        named = Path(certifi.where())
    return _kept(folder, "bundle", ".pem", named.read_bytes().rstrip() + b"\n" + (folder / CERTIFICATE).read_bytes())


def boto(folder: Path, user: Mapping[str, str], project: str) -> Path:
    """Gsutil's configuration: the account, and the bundle, which gsutil takes from no variable; written where it is missing."""
    lines = (
        "[Credentials]",
        f"gs_service_key_file = {folder / CREDENTIALS}",
        "[Boto]",
        f"ca_certificates_file = {bundle(folder, user)}",
        "[GSUtil]",
        f"default_project_id = {project}",
        "software_update_check_period = 0",
        "",
    )
    return _kept(folder, "boto", ".cfg", "\n".join(lines).encode())


def curl(folder: Path, user: Mapping[str, str]) -> Path:
    """Return a folder with curl's configuration, which names the bundle; written where it is missing."""
    trusted = bundle(folder, user)
    home = folder / trusted.stem.replace("bundle", "curl")
    home.mkdir(exist_ok=True)
    _write_once(home / ".curlrc", f'cacert = "{trusted}"\n'.encode())
    return home


def wget(folder: Path, user: Mapping[str, str]) -> Path:
    """Return wget's configuration: the user's, and the bundle; written where it is missing."""
    named = Path(user.get("WGETRC") or Path(user.get("HOME") or Path.home()) / ".wgetrc")
    if named.parent == folder:  # ours, in a command that runs inside another one
        return named
    theirs = named.read_bytes() if named.is_file() else b""
    return _kept(folder, "wget", ".rc", theirs + f"\nca_certificate = {bundle(folder, user)}\n".encode())


def _kept(folder: Path, name: str, suffix: str, content: bytes) -> Path:
    """Return a file of the front's folder that is named by its content."""
    path = folder / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    _write_once(path, content)
    return path


def _write_once(path: Path, content: bytes, mode: int = 0o644) -> None:
    # A file that a full disk cut off would stay broken for ever.
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content, mode)


def _hidden(user: Mapping[str, str], made: Mapping[str, str]) -> list[str]:
    """Return the credentials of the user's that are there."""
    found = [name for name in LOGINS if user.get(name) and user[name] not in made.values()]
    own = Path(user.get("HOME") or Path.home()) / ".config/gcloud"
    if "CLOUDSDK_CONFIG" not in user and own.is_dir():
        found.append("gcloud's configuration in ~/.config/gcloud")
    return found


def _together(theirs: str, ours: str) -> str:
    return theirs if ours in theirs else f"{theirs} {ours}"
