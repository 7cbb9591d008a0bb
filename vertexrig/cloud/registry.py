"""The only module that talks to Artifact Registry: is a repository, or an image with its tag, there?

Methods: projects.locations.repositories.get and …packages.tags.get of the Artifact Registry REST API v1.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote

from vertexrig.cloud.rest import Rest
from vertexrig.errors import UsageError

ENDPOINT_VARIABLE = "VERTEXRIG_ARTIFACTREGISTRY"
"""Environment variable with the base URL of another server."""
_URI = re.compile(
    r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<project>.+)/(?P<repository>[^/]+)/(?P<image>[^/:@]+):(?P<tag>[^/:@]+)"
)


class ArtifactRegistry:
    """Artifact Registry's images."""

    def __init__(self) -> None:
        url = os.environ.get(ENDPOINT_VARIABLE) or "https://artifactregistry.googleapis.com"
        self.rest = Rest(url if "://" in url else f"http://{url}", "Artifact Registry")

    def has_repository(self, repository: str) -> bool:
        """Whether HOST/PROJECT/REPOSITORY is there."""
        # The parser wants a whole name; image and tag are left out of what is asked.
        return self.rest.find(_parent(f"{repository}/image:tag")[0]) is not None

    def has(self, uri: str) -> bool:
        """Whether an image, HOST/PROJECT/REPOSITORY/IMAGE:TAG, is there."""
        parent, image, tag = _parent(uri)
        return self.rest.find(f"{parent}/packages/{image}/tags/{tag}") is not None


def _parent(uri: str) -> tuple[str, str, str]:
    found = _URI.fullmatch(uri)
    if found is None:
        raise UsageError(
            f"{uri} is not the name of an image in Artifact Registry: HOST-docker.pkg.dev/PROJECT/REPOSITORY/IMAGE:TAG"
        )
    # the name of an image writes a slash for the colon of a domain-scoped project, such as example.com:my-project
    project = quote(found["project"].replace("/", ":"), safe="")
    path = f"/v1/projects/{project}/locations/{found['location']}/repositories/{quote(found['repository'])}"
    return path, quote(found["image"]), quote(found["tag"])
