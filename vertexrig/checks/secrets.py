"""Secrets in plain text in a job spec."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from vertexrig.checks.model import REST, SECRETS, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.masking import SHORTEST, hint, masked, secret_in, secrets_in

_FIX = (
    "keep it in Secret Manager, give the job the secret's resource name, and let the program read it as the job's "
    "service account (roles/secretmanager.secretAccessor)"
)


def found(document: Document) -> Iterator[tuple[str, str, str]]:
    """Path, name and text of each secret in the variables, commands and arguments of the pools."""
    for pool in document.pools:
        for at, variable in pool.items("env"):
            path, name = f"{at}.value", str(variable.get("name", ""))
            secret = "" if path in document.placeholders else secret_in(str(variable.get("value", "")), name)
            if secret:
                yield path, name, secret
        for key in ("command", "args"):
            yield from _in_words(document, pool, key)


def without(document: Document) -> Document:
    """Return a job spec in which every secret in the variables, commands and arguments is cut to what `hint` shows: a short one
    at its path, a long one wherever it occurs.
    """
    by_path = {path: secret for path, _, secret in found(document)}
    long = frozenset(secret for secret in by_path.values() if len(secret) >= SHORTEST)
    data = copy.deepcopy(document.data)
    whole = replace(document, data=data)
    for pool in whole.pools:
        for key in ("env", "command", "args"):
            if key in pool.program:
                pool.program[key] = _cut(pool.program[key], f"{pool.program_path}.{key}", by_path, long)  # type: ignore[index]  # of the copy
    return whole if data != document.data else document


def _cut(value: Any, path: str, by_path: Mapping[str, str], long: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {key: _cut(item, f"{path}.{key}", by_path, long) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, f"{path}[{number}]", by_path, long) for number, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    if path in by_path:  # the last one: a flag may be spelled like its value
        before, _, after = value.rpartition(by_path[path])
        value = f"{before}{hint(by_path[path])}{after}"
    return masked(value, long)


def _in_words(document: Document, pool: Pool, key: str) -> Iterator[tuple[str, str, str]]:
    before = ""
    for path, word in pool.items(key):
        flag, equals, value = word.partition("=")
        name, value = (flag, value) if equals and flag.startswith("-") else (before, word)
        secret = "" if path in document.placeholders or value.startswith("-") else secret_in(value, name)
        if not secret and any(map(str.isspace, word)):  # a shell's script
            secret = next(iter(secrets_in(word)), "")
        if secret:
            yield path, name.lstrip("-") or key, secret
        # `--token abc` in two items: the flag is the name of the word behind it
        before = word if word.startswith("-") and not equals else ""


def plain_secret(document: Document, context: Context) -> Iterator[Problem]:
    for path, name, secret in found(document):
        text = f"{name} holds a secret in plain text ({hint(secret)}): it is readable in this file, and in the job by everyone who may view the job"
        yield Problem(path, text, _FIX)


RULES = (
    Rule("plain-secret", Severity.WARNING, "The job contains no secret in plain text.", join(REST, SECRETS), plain_secret),
)  # fmt: skip
