"""Which hosts the local Vertex answers for, which connections it passes on, and which it refuses."""

from __future__ import annotations

import configparser
import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

DOMAIN = "googleapis.com"
METADATA = frozenset({"metadata.google.internal", "metadata", "169.254.169.254"})
"""Names of the metadata server, which speaks plain HTTP."""

REGISTRIES = frozenset(
    {
        *("pypi.org", "*.pypi.org", "files.pythonhosted.org", "pypi.python.org", "download.pytorch.org"),
        *("registry.npmjs.org", "registry.yarnpkg.com", "conda.anaconda.org", "repo.anaconda.com", "index.crates.io"),
        *("static.crates.io", "proxy.golang.org", "sum.golang.org", "repo.maven.apache.org", "repo1.maven.org"),
        *("deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com"),
    }
)
"""Package registries, which pip and other installers need."""

_INDEXES = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    *("UV_EXTRA_INDEX_URL", "UV_INDEX", "NPM_CONFIG_REGISTRY", "npm_config_registry"),
)
# Labels of RFC 1123, and underscores, which some names have in practice.
_HOST = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?")


class Handling(Enum):
    """How a connection is handled."""

    SERVED = "served"
    PASSED = "passed"
    REFUSED = "refused"


def is_host(text: str) -> bool:
    """Whether a text is a host's name or address."""
    if len(text) <= 253 and _HOST.fullmatch(text):
        return True
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return True


def is_google(host: str) -> bool:
    """Whether a host belongs to Google's APIs; requests to these never leave this machine."""
    # DNS ignores a dot at the end.
    name = host.rstrip(".")
    return name == DOMAIN or name.endswith(f".{DOMAIN}") or name in METADATA


def is_storage(host: str) -> bool:
    """Whether a host belongs to Cloud Storage, which Google also serves without TLS."""
    return f".{host.rstrip('.')}".endswith(f".storage.{DOMAIN}")


class Hosts:
    """The rule by which a host is answered, passed on or refused.

    Args:
        allowed: Patterns of hosts that pass, besides package registries: `HOST`, or `HOST:PORT` for an unusual port.
    """

    def __init__(self, allowed: Iterable[str]) -> None:
        self.allowed = frozenset(pattern.lower() for pattern in allowed)

    def handling(self, host: str, port: int, usual: int) -> Handling:
        """Return how connections to a host (in lower case) are handled; patterns without a port allow the usual one."""
        if is_google(host):
            return Handling.SERVED
        names = [f"{host}:{port}", *([host] if port == usual else [])]
        passed = any(fnmatchcase(name, one) for one in REGISTRIES | self.allowed for name in names)
        return Handling.PASSED if passed else Handling.REFUSED

    def refusal(self, host: str, port: int, usual: int) -> str:
        """Return the message of a refusal: why the host is refused, and how to allow it."""
        if port != usual and self.handling(host, usual, usual) is Handling.PASSED:
            return f"{host} is allowed on port {usual} and not on {port}: add {host}:{port} to allow_hosts under local: in vertexrig.yaml"
        return (
            f"{host} is not a host of Google's APIs and is not allowed: add it to allow_hosts under local: in "
            f"vertexrig.yaml and start the local Vertex again"
        )


def registries(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts of the package indexes in a user's environment and pip's configuration."""
    texts = [environment.get(name, "") for name in _INDEXES]
    for path in _pip_files(environment):
        # Raw: a password in an index URL may have a percent sign.
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeError):
            continue
        texts += [
            parser.get(section, key)
            for section in parser.sections()
            for key in ("index-url", "extra-index-url", "find-links")
            if parser.has_option(section, key)
        ]
    for word in " ".join(texts).split():
        try:
            # uv names an index as NAME=URL.
            url = urlsplit(word.partition("=")[2] if re.match(r"[\w-]+=", word) else word)
            host, port = url.hostname, url.port
        except ValueError:
            continue
        if host:
            yield f"{host}:{port}" if port else host


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    """Return the paths of pip's configuration files (https://pip.pypa.io/en/stable/topics/configuration/)."""
    home = Path(environment.get("HOME", "/nonexistent"))
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    found = [Path("/etc/pip.conf"), home / ".pip/pip.conf", config / "pip/pip.conf"]
    if environment.get("VIRTUAL_ENV"):
        found.append(Path(environment["VIRTUAL_ENV"]) / "pip.conf")
    if environment.get("PIP_CONFIG_FILE"):
        found.append(Path(environment["PIP_CONFIG_FILE"]))
    return found
