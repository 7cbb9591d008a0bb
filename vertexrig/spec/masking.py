"""Secrets in plain text: what looks like one, and text with every one of them cut to its first characters.

The patterns are texts, compiled by their first use: nearly every text is free of `_HINTS` and needs none of them.
"""

from __future__ import annotations

import re

from vertexrig import variables

_KNOWN = (
    r"AIza[0-9A-Za-z_-]{30,}"  # Google API key
    r"|hf_[A-Za-z0-9]{16,}"
    r"|KGAT_[0-9a-f]{16,}"
    r"|sk-[A-Za-z0-9_-]{16,}"
    r"|wandb_v[0-9]_[A-Za-z0-9_]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|AKIA[0-9A-Z]{16}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
    r"|ya29\.[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+"  # a signed web token
)
_IN_ADDRESS = r"(?<![\w])(?P<before>[a-z][a-z0-9+.-]{1,20}://[^\s:/@\"']{1,80}:)(?P<password>[^\s:/@$<{\"'…]{3,})(?=@)"
"""User and password in an address: postgresql://user:password@host/database."""
_PEM = r"(?s:-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"']*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z))"
_WORD = r"(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)"
_NAME = rf"(?i:(?:.*_)?{_WORD})"
# KAGGLE_KEY and its like: a name that says less, so the value has to look like a key
_HEX_NAME = r"(?i:(?!.*(?:CACHE|PUBLIC))(?:--?)?(?:[A-Za-z0-9]+[-_])*KEY)"
_HEX = r"[0-9a-f]{32}(?:[0-9a-f]{8})?"
_FLAG_NAME = rf"(?i:--?(?:[A-Za-z0-9]+[-_])*{_WORD.replace('_?', '[-_]?')})"
# `_KNOWN`, `_PEM`, `_NAME` and `_FLAG_NAME` above, and `_NAMED_VALUES` below, match only texts that in lower case have one of these.
_HINTS = (
    "kgat_", "token", "secret", "passw",
    *(f"{kind}{joint}key" for kind in ("api", "access", "private") for joint in ("", "_", "-", " ")),
    "aiza", "hf_", "sk-", "wandb_v", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "akia", "xox", "ya29.", "eyj",
)  # fmt: skip

# Values under such a name that are not the secret itself.
_REFERENCE = (
    r"(?is:projects/[^/]+/secrets/.*|(?:sm|gcp-sm|secretmanager|berglas|vault)://.*|(?:gs://|/|\./|~/).*|\$\(.*|`.*`|<.*>|\[.*\]"
    r"|[-+0-9.eE]+|true|false|none|null|yes|no|on|off|dryrun|disabled|offline)"
)
SHORTEST = 8
"""Characters of a token or key; a text that long does not occur elsewhere by chance."""

# a value under a secret's name in a text of any format: `NAME: value`, `--name=value`, `{name: NAME, value: value}`
_QUOTED = r"\"(?:\\.|[^\"\\])*\"|'(?:''|[^'])*'"
_VALUE = rf"(?P<value>{_QUOTED}|[^\s,{{}}\"'#][^\s,}}\"']*)"
_REST = rf"(?P<value>{_QUOTED}|[^\s\"'#][^\s\"']*)"  # after a = a comma is part of the value
_KEY = rf"(?<![A-Za-z0-9])(?P<key>(?:[A-Za-z0-9]{{1,40}}[-_]){{0,8}}{_WORD.replace('_?', '[-_]?')})[\"']?"


def _forms(key: str, value: str, rest: str) -> tuple[str, ...]:
    return (
        rf"{key}\s*:\s*{value}",
        rf"{key}\s*=\s*{rest}",
        rf"name[\"']?\s*:\s*[\"']?{key}\s*,?\s*(?:#[^\n]*\n\s*)*[\"']?value[\"']?\s*:\s*{value}",
        rf"value[\"']?\s*:\s*{value}\s*,?\s*[\"']?name[\"']?\s*:\s*[\"']?{key}",
        rf"(?<![\w-])--?{key}[\"']?\s*,?\s*(?:-\s+)?{value}",
    )


_NAMED_VALUES = _forms(_KEY, _VALUE, _REST)
_HEX_KEY = r"(?<![A-Za-z0-9])(?P<key>(?:[A-Za-z0-9]{1,40}[-_]){0,8}KEY)[\"']?"
_HEX_VALUE = rf"[\"']?(?P<value>{_HEX})(?![A-Za-z0-9])[\"']?"
_NAMED_HEX = _forms(_HEX_KEY, _HEX_VALUE, _HEX_VALUE)


def secret_in(value: str, name: str = "") -> str:
    """Return the part of a value that looks like a secret, "" if none does.

    Args:
        value: The value of a variable, or an argument.
        name: The variable's name, or the argument's flag.
    """
    if not (_may_hold_one(value) or _may_hold_one(name) or _may_hold_hex(f"{name}={value}")):
        return _password_in(value)
    found = re.search(_KNOWN, value) or re.search(_PEM, value)
    if found is not None:
        return found[0]
    if re.fullmatch(_HEX_NAME, name) and re.fullmatch(_HEX, value):
        return value
    named = re.fullmatch(_NAME, name) or re.fullmatch(_FLAG_NAME, name)
    if not named or re.fullmatch(_REFERENCE, value.strip()) or not value.strip():
        return _password_in(value)
    # tokens and keys are long, so a short value under their name is something else; a password may be short
    is_password = "pass" in name.casefold()
    return value if is_password or len(value.strip()) >= SHORTEST else ""


def secrets_in(text: str) -> list[str]:
    """Return the secrets that a text of several words, such as a shell's script, names: `export API_KEY=…`."""
    named = _named(text, _NAMED_VALUES) if _may_hold_one(text) else set()
    return sorted(named | (_named(text, _NAMED_HEX) if _may_hold_hex(text) else set()))


def _password_in(text: str) -> str:
    """Return the password of the first address in a text that has one, "" if there is none."""
    found = re.search(_IN_ADDRESS, text) if "://" in text and "@" in text else None
    return found["password"] if found else ""


def hint(secret: str) -> str:
    """Return what may be shown of a secret: its variable's name, else its first third, at most four characters."""
    named = variables.shown(secret)
    if named != secret:
        return named if re.fullmatch(r"\$\{\w+\}", named) else "…"
    return f"{secret[: min(4, len(secret) // 3)]}…"


def masked(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """Return a text of any format with every secret in it cut to what `hint` shows: those found in it, and those known to be in it."""
    named = secrets_in(text)
    if _password_in(text):  # replaced only in its address: a short password may occur elsewhere by chance
        text = re.sub(_IN_ADDRESS, lambda match: match["before"] + hint(match["password"]), text)
    # the longest first: one that is part of another would leave the rest of it in the text
    for secret in sorted({*secrets, *named}, key=len, reverse=True):
        text = text.replace(secret, hint(secret))
    if not _may_hold_one(text):
        return text
    # with as many lines as before, so that line numbers in findings stay right
    text = re.sub(_PEM, lambda match: hint(match[0]) + "\n" * match[0].count("\n"), text)
    return re.sub(_KNOWN, lambda match: hint(match[0]), text)


def _may_hold_one(text: str) -> bool:
    """Whether a pattern that needs one of `_HINTS` could match."""
    # casefold matches what `(?i:…)` matches
    folded = text.casefold()
    return any(hint in folded for hint in _HINTS)


def _may_hold_hex(text: str) -> bool:
    """Whether a name that ends in KEY and 32 hexadecimal digits may be in a text."""
    return "key" in text.casefold() and re.search(_HEX, text) is not None


def _named(text: str, patterns: tuple[str, ...]) -> set[str]:
    """Return the values under a secret's name in a text."""
    found = set()
    for pattern in patterns:
        for match in re.finditer(pattern, text, re.IGNORECASE):
            value = match["value"]
            inner = value[1:-1] if value[0] in "\"'" else value.rstrip(",]}")
            # with … it is cut already
            if "…" not in inner and secret_in(inner, match["key"].replace("-", "_")):
                found.add(inner)
    return found
