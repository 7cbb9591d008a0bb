"""Arguments of docker in a step of a build: which folders of this machine they may name.

On Cloud Build a step sees `/workspace` and the volumes that the build declares. Here both are folders of the build, and an argument
that names another path of this machine is refused.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from vertexrig.errors import UsageError

VARIABLE = "VERTEXRIG_BUILD"
"""Variable with the build of a step, as JSON: `folders` of this machine by their place in the build, and `labels` of its containers."""
_PLAIN = frozenset(
    "commit diff help history images info inspect kill login logout logs network pause port ps pull push rename restart rm rmi search "
    "start stats stop tag top unpause version wait --help --version -v".split()
)
"""Commands without a path of this machine."""
_GROUPS = ("builder", "buildx", "container", "image")
_WITHOUT_VALUE = frozenset(
    "--detach --disable-content-trust --help --init --interactive --no-healthcheck --oom-kill-disable --publish-all --quiet --read-only "
    "--rm --sig-proxy --tty".split()
)
_LETTERS_WITHOUT_VALUE = "diPqt"
_TOO_MUCH = frozenset(
    "--cap-add --device --log-opt --pid --privileged --rootfs --security-opt --ssh --use-api-socket --volumes-from".split()
)
"""Options that give a program more of this machine than folders."""
_WHOLE, _KEY = r"(?P<path>.+)", r"(?:.*[,=])?(?:src|source|dest|device)=(?P<path>[^,]*).*"
# Where a path of this machine is in the value of an option. A value that does not fit has none.
_OPTIONS = {
    **dict.fromkeys(("--volume", "-v"), r"(?P<path>[^:]+):.*"),
    **dict.fromkeys(("--mount", "--secret", "--cache-from", "--cache-to"), _KEY),
    **dict.fromkeys(("--output", "-o"), rf"{_KEY}|(?P<folder>[^,=]+)"),
    **dict.fromkeys(("--file", "-f", "--env-file", "--label-file", "--ignorefile", "--authfile"), _WHOLE),
    **dict.fromkeys(("--cidfile", "--iidfile", "--metadata-file", "--pidfile"), _WHOLE),
    "--build-context": r"[^=]*=(?P<path>(?![a-z-]+://).*)",
}
_OF_ARCHIVE = dict.fromkeys(("--output", "-o", "--input", "-i"), _WHOLE)
_ELSEWHERE = re.compile(r"-$|[a-z+]+://|git@")
"""A source that is not on this machine."""


def confined(words: Sequence[str], environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return docker's arguments: in a step of a build with the build's folders in place of its paths, elsewhere unchanged.

    Raises:
        UsageError: The step names a path outside of the build's folders, or a command that is not done in a build.
    """
    if not environ.get(VARIABLE) or not words:
        return list(words)
    build = json.loads(environ[VARIABLE])
    folders: dict[str, str] = build["folders"]
    joined = "\0".join(words)
    for place, folder in folders.items():  # a shell of this machine has put them there
        joined = re.sub(rf"{re.escape(folder)}(?![\w.-])", place.replace("\\", r"\\"), joined)
    given = re.sub(r"(\0--net(?:work)?[=\0])cloudbuild(?=\0|$)", r"\1host", joined).split("\0")
    at = 1 if given[0] in _GROUPS and len(given) > 1 else 0
    verb, head, rest = given[at], given[: at + 1], given[at + 1 :]

    def here(path: str) -> str:
        return _here(path, folders, verb)

    if verb in _PLAIN or (verb == "volume" and not any(word.startswith("-") for word in rest)):
        return given
    if verb in ("run", "create", "exec"):
        labels = [word for label in build["labels"] for word in ("--label", label)] if verb != "exec" else []
        return [*head, *labels, *_mapped(rest, _OPTIONS, here)]
    if verb == "build":
        return [*head, *_mapped(rest, _OPTIONS, here, lambda word: word if _ELSEWHERE.match(word) else here(word))]
    if verb in ("save", "load", "export"):
        return [*head, *_mapped(rest, _OF_ARCHIVE, here, lambda word: word)]
    if verb == "cp":
        in_container = re.compile(r"[^/.][^:/]*:")
        return [*head, *(word if word.startswith("-") or in_container.match(word) else here(word) for word in rest)]
    raise UsageError(
        f"docker {' '.join(head)} is not supported in a build on this machine; docker build, run, cp, tag and push are"
    )


def _here(path: str, folders: Mapping[str, str], verb: str) -> str:
    """Return where a path of a build is on this machine; one that is relative stays."""
    found = path
    for place, folder in folders.items():
        if path == place or path.startswith(f"{place}/"):
            found = f"{folder}{path[len(place) :]}"
            break
    real = Path(found).resolve()  # a link may lead out, too
    if not any(real.is_relative_to(Path(folder).resolve()) for folder in folders.values()):
        raise UsageError(
            f"docker {verb}: {path} is not in {' or '.join(folders)}. A step of Cloud Build has these folders alone: copy what it needs "
            "into the source, or declare a volume"
        )
    return found


def _mapped(
    words: Sequence[str],
    options: Mapping[str, str],
    here: Callable[[str], str],
    other: Callable[[str], str] | None = None,
) -> Iterator[str]:
    """Yield arguments with the paths of their options mapped.

    `other` maps each word that is no option; where there is none, the first such word is an image, and those after it are a program's.
    An option that is not known counts as the strictest: what follows it may be its value, and an option, too.
    """

    def value(name: str, text: str) -> str:
        plain = text.replace('"', "")  # docker reads these values as CSV
        match = re.fullmatch(options[name], plain, re.IGNORECASE) if name in options else None
        group = next((key for key, found in match.groupdict().items() if found), "") if match else ""
        return (
            f"{plain[: match.start(group)]}{here(match[group])}{plain[match.end(group) :]}" if match and group else text
        )

    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            yield other(word) if other else word
            if other is None:
                yield from rest
                return
            continue
        name, equals, text = word.partition("=")
        if not word.startswith("--"):
            # A value may follow its letter at once, and letters without one may come before it: -itv /workspace:/w
            known = f"-{word[1]}" in options
            letters = "-" if known else re.match(f"-[{_LETTERS_WITHOUT_VALUE}]*", word)[0]  # type: ignore[index]
            letter, text = word[len(letters) : len(letters) + 1], word[len(letters) + 1 :].removeprefix("=")
            if letters != "-":
                yield letters
            if not letter:
                continue
            name, equals = f"-{letter}", "=" if text else ""
        if name in _TOO_MUCH:
            raise UsageError(
                f"docker {name} is not supported in a build: it would give a program access beyond the build's folders"
            )
        if equals:
            yield from ([f"{name}={value(name, text)}"] if name.startswith("--") else [name, value(name, text)])
        elif name in _WITHOUT_VALUE or not rest or (rest[0].startswith("-") and rest[0] != "-"):
            yield name
        elif name in options or other is None:
            yield from (name, value(name, rest.pop(0)))
        else:
            yield name
