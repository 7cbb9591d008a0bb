"""Package indexes that requirements name in addition to PyPI."""

from __future__ import annotations

import re
from collections.abc import Iterator

# pip accepts `-iURL`, `-i URL`, `--index-url=URL` and `--index-url URL`
_INDEX = re.compile(r"\s*(?:(--index-url|--extra-index-url|--find-links)[= ]|(-i|-f)\s*)\s*(\S+)")
_LONG = {"-i": "--index-url", "-f": "--find-links"}


def indexes_of(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the indexes that a requirements file names, PyPI included: line, option in its long form, and URL."""
    for number, line in enumerate(text.splitlines(), 1):
        match = _INDEX.match(line)
        if match is not None:
            yield number, match[1] or _LONG[match[2]], match[3]


def named_secretly(url: str) -> bool:
    """Whether a URL holds a user or a password."""
    return re.match(r"\w+://[^/@]*@", url) is not None


def is_pypi(url: str) -> bool:
    """Whether an index is the one that pip asks anyway."""
    return re.match(r"https?://pypi\.org/", url) is not None


def beyond_the_package(place: str, url: str) -> str:
    """Return the warning about an index that requirements need and a package cannot name."""
    # a password in the URL stays out of the message
    shown = re.sub(r"(://)[^/@]*@", r"\1…@", url)
    return (
        f"{place}: the package cannot name the index {shown}, so pip in a prebuilt container does not use it. Use `image: build`, "
        "which reads --extra-index-url from requirements.txt, or list the package files under trainer.package_uris. For a "
        "rehearsal, set PIP_EXTRA_INDEX_URL"
    )
