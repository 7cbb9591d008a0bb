"""No secret is printed in whole, in whatever form it stands and in whatever format findings are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vertexrig.checks.job_bases import IMAGE
from vertexrig import spec
from vertexrig.catalog import load
from vertexrig.checks import Context, all_rules, check, formats
from vertexrig.spec.masking import hint, masked, secret_in

SECRET = "hf" + "_" + "Zx9" * 12
PLAIN = "correct-horse-battery"
HEX = "0f1e2d3c" * 4
JOB = f"""
workerPoolSpecs:
- machineSpec: {{machineType: n1-standard-8}}
  replicaCount: 1
  containerSpec:
    imageUri: {IMAGE}
"""

FORMS = [
    f"    env: [{{name: HF_TOKEN, value: {SECRET}}}]",
    f"    env:\n    - name: HF_TOKEN\n      value: {SECRET}",
    f"    env:\n    - value: '{PLAIN}'\n      name: HF_TOKEN",
    f'    env:\n    - name: "DB_PASSWORD"  # of the database\n      value: "{PLAIN}"',
    f"    env: [{{name: API_KEY, value: {PLAIN}}}, {{name: B-AD, value: x}}]",
    f"    args: ['--api_key={PLAIN},{PLAIN}']",
    f"    args: [--hub-token, {PLAIN}, ' --x={PLAIN}']",
    f"    args: ['--data=gs://x y/{SECRET}']",
    f"    env: [{{name: KAGGLE_KEY, value: {HEX}}}]",
    f"    env:\n    - name: KAGGLE_KEY\n      value: '{HEX}'",
    f"    args: [--kaggle-key, {HEX}, ' --kaggle-key={HEX}']",
    f'    command: ["bash", "-c", "export HF_TOKEN={PLAIN} && train"]\n    args: "export API_KEY={PLAIN}"',
]


@pytest.mark.parametrize("form", FORMS)
def test_no_format_shows_a_secret(form: str) -> None:
    """Text with its snippets, JSON and SARIF hold four characters of a secret at most."""
    text = JOB + form + "\n"
    findings = check(spec.parse(text, file="job.yaml"), Context(load()))
    assert [one.line for one in findings if one.line and one.line >= 7], "nothing points at the secret's line"
    shown = [
        formats.text(findings, {"job.yaml": text}),
        json.dumps(formats.rows(findings)),
        formats.sarif(findings, all_rules(), version="1"),
    ]
    for one in shown:
        assert (
            SECRET not in one
            and PLAIN not in one
            and HEX[:5] not in one
            and SECRET[:5] not in one
            and PLAIN[:5] not in one
        )


def test_the_finding_names_the_variable_and_secret_manager() -> None:
    """The finding says which variable it is, shows its beginning, and what to use instead."""
    findings = check(spec.parse(JOB + FORMS[0] + "\n", file="job.yaml"), Context(load()))
    (found,) = formats.rows([one for one in findings if one.id == "plain-secret"])
    assert found["severity"] == "warning" and found["path"].endswith("env[0].value")
    assert found["message"].startswith("HF_TOKEN holds a secret in plain text (hf_Z…)")
    assert "Secret Manager" in found["fix"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKEN", "512"),
        ("EOS_TOKEN", "</s>"),
        ("HF_TOKEN", ""),
        ("HF_TOKEN", "projects/p/secrets/s/versions/1"),
        ("HF_TOKEN", "sm://p/s"),
        ("GCP_API_KEY", "/secrets/key.json"),
        ("USE_AUTH_TOKEN", "true"),
        ("TOKENIZER", "bert-base-uncased"),
        ("SECRET_NAME", "my-wandb-key"),
        ("API_KEY", "`gcloud secrets versions access latest --secret=a`"),
        ("CACHE_KEY", HEX),
        ("MONKEY", HEX),
        ("DATA_MD5", HEX),
    ],
)
def test_what_is_no_secret_stays_readable(name: str, value: str) -> None:
    """Numbers, switches, paths, marks and references under a secret's name are shown as they are."""
    assert secret_in(value, name) == ""
    assert masked(f"{name}: {value}") == f"{name}: {value}"


@given(st.text(alphabet="abcXYZ019-", min_size=8, max_size=30).filter(lambda text: text[0] not in "-0123456789+."))
def test_any_value_under_a_secrets_name_is_cut(value: str) -> None:
    """Whatever the value, as YAML, JSON, an environment line or an argument, it does not come through whole."""
    for line in (f"API_KEY: {value}", f'{{"API_KEY": "{value}"}}', f"export API_KEY={value}", f"--api-key={value}"):
        if secret_in(value, "API_KEY"):
            assert value not in masked(line)
    assert len(hint(value)) <= 5


NAMES = ["token", "secret", "password", "passwd"] + [
    f"{kind}{joint}key" for kind in ("api", "access", "private") for joint in ("", "_", "-")
]


@given(
    st.sampled_from(NAMES), st.sampled_from(["", "my_", "db-"]), st.sampled_from([str.lower, str.upper, str.title]),
    st.sampled_from(["{}: {}", "--{}={}", "{} = {}", "name: {}, value: {}"]),
)  # fmt: skip
def test_every_name_of_a_secret_is_seen_alone_in_a_text(name: str, before: str, case: Any, form: str) -> None:
    """A text that has nothing else to do with secrets is masked, however the name is written."""
    assert PLAIN[:5] not in masked(form.format(case(before + name), PLAIN))


@pytest.mark.parametrize("word", [
    "AIza" + "x" * 35, "hf_" + "x" * 34, "sk-" + "x" * 40, "wandb_v1_" + "x" * 20, *(f"gh{kind}_" + "x" * 36 for kind in "pousr"),
    "github_pat_" + "x" * 30, "glpat-" + "x" * 20, "AKIA" + "X" * 16, "xoxb-" + "1" * 20, "ya29." + "x" * 40,
    f"eyJ{'x' * 20}.eyJ{'x' * 20}.{'x' * 20}", "-----BEGIN PRIVATE KEY-----\\nMII\\n-----END PRIVATE KEY-----",
])  # fmt: skip
def test_every_kind_of_key_is_seen_alone_in_a_text(word: str) -> None:
    """What looks like a key of a service is masked under any name, or none."""
    assert secret_in(word) == word
    assert masked(f"seen {word} here") == f"seen {hint(word)} here"
