"""Keeps what docker-py pushes to Google's registries, or pulls from them, on this machine, as the `docker` program of `local run` does.

docker-py speaks to the engine's socket, so no program on PATH is asked.
"""

from __future__ import annotations

import json
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_GOOGLE = re.compile(r"([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)/")


def apply() -> None:
    """For `push` and `pull` of docker-py's clients."""
    mixin = sys.modules["docker.api.image"].ImageApiMixin
    for verb in ("push", "pull"):
        setattr(mixin, verb, _kept(getattr(mixin, verb)))


def _kept(inner: Any) -> Any:
    def call(self: Any, repository: str, tag: str | None = None, stream: bool = False, **more: Any) -> Any:
        if not _GOOGLE.match(repository):
            return inner(self, repository, tag=tag, stream=stream, **more)
        name = (
            f"{repository}:{tag}"
            if tag and not tag.startswith("sha256:")
            else f"{repository}@{tag}"
            if tag
            else repository
        )
        # Without a tag all tags are meant.
        if tag or not self.images(repository):
            self.inspect_image(name)  # docker-py's own ImageNotFound where it is not here
        line = {"status": f"{name}: the image stays on this machine"}
        text = f"{json.dumps(line)}\r\n"
        if stream:
            return iter([line if more.get("decode") else text.encode()])
        return text

    return call
