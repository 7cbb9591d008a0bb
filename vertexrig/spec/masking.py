"""Secrets in plain text: what looks like one, and text with every one of them cut to its first characters."""

from __future__ import annotations

import re

_KNOWN = re.compile(
    r"AIza[0-9A-Za-z_-]{30,}"  # Google API key
    r"|hf_[A-Za-z0-9]{16,}"
    r"|sk-[A-Za-z0-9_-]{16,}"
    r"|wandb_v[0-9]_[A-Za-z0-9_]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|ya29\.[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"  # a signed web token
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"']*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_WORD = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
_NAME = re.compile(rf"(?:.*_)?{_WORD}", re.IGNORECASE)
_FLAG_NAME = re.compile(rf"--?(?:[A-Za-z0-9]+[-_])*{_WORD.replace('_?', '[-_]?')}", re.IGNORECASE)

# Values under such a name that are not the secret itself.
_REFERENCE = re.compile(
    r"projects/[^/]+/secrets/.*|(?:sm|gcp-sm|secretmanager|berglas|vault)://.*|(?:gs://|/|\./|~/).*|\$\(.*|<.*>|\[.*\]"
    r"|[-+0-9.eE]+|true|false|none|null|yes|no|on|off|dryrun|disabled|offline",
    re.IGNORECASE | re.DOTALL,
)
_SHORTEST = 8

# a value under a secret's name in a text of any format: `NAME: value`, `--name=value`, `{name: NAME, value: value}`
_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'"
_VALUE = rf"(?P<value>{_QUOTED}|[^\s,{{}}\"'#][^\s,}}\"']*)"
_REST = rf"(?P<value>{_QUOTED}|[^\s\"'#][^\s\"']*)"  # after a = a comma is part of the value
_KEY = rf"(?<![A-Za-z0-9])(?P<key>(?:[A-Za-z0-9]{{1,40}}[-_]){{0,8}}{_WORD.replace('_?', '[-_]?')})[\"']?"
_PLACES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_KEY}\s*:\s*{_VALUE}",
        rf"{_KEY}\s*=\s*{_REST}",
        rf"name[\"']?\s*:\s*[\"']?{_KEY}\s*,?\s*(?:#[^\n]*\n\s*)*[\"']?value[\"']?\s*:\s*{_VALUE}",
        rf"value[\"']?\s*:\s*{_VALUE}\s*,?\s*[\"']?name[\"']?\s*:\s*[\"']?{_KEY}",
        rf"(?<![\w-])--?{_KEY}[\"']?\s*,?\s*(?:-\s+)?{_VALUE}",
    )
)


def secret_in(value: str, name: str = "") -> str:
    """The part of a value that looks like a secret, "" if none does.

    Args:
        value: The value of a variable, or an argument.
        name: The variable's name, or the argument's flag.
    """
    found = _KNOWN.search(value) or _PEM.search(value)
    if found is not None:
        return found[0]
    named = _NAME.fullmatch(name) or _FLAG_NAME.fullmatch(name)
    if not named or _REFERENCE.fullmatch(value.strip()) or not value.strip():
        return ""
    is_password = "pass" in name.casefold()
    return value if is_password or len(value.strip()) >= _SHORTEST else ""


def hint(secret: str) -> str:
    """As much of a secret as may be shown: four characters at most, and never more than a third of it."""
    return f"{secret[: min(4, len(secret) // 3)]}…"


def masked(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """A text of any format with every secret in it cut to what `hint` shows.

    Args:
        text: YAML, JSON, a message or a line.
        secrets: Secrets that are known to be in it.
    """
    for secret in sorted({*secrets, *_named(text)}, key=len, reverse=True):
        text = text.replace(secret, hint(secret))
    text = _PEM.sub(lambda match: hint(match[0]) + "\n" * match[0].count("\n"), text)
    return _KNOWN.sub(lambda match: hint(match[0]), text)


def _named(text: str) -> set[str]:
    """The values under a secret's name in a text."""
    found = set()
    for place in _PLACES:
        for match in place.finditer(text):
            value = match["value"]
            inner = value[1:-1] if value[0] in "\"'" else value.rstrip(",]}")
            if "…" not in inner and secret_in(inner, match["key"].replace("-", "_")):
                found.add(inner)
    return found
