"""Values of environment variables that a project file from elsewhere asks for: no verb shows them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.tools import typed
from vertexrig import variables
from vertexrig.cli import streams, tables

SECRET = "a&b/'quoted'%-Zebra77"
"""No token that a pattern knows, with signs that the formats escape."""
PROJECT = """\
project: my-project
region: us-central1
bucket: gs://my-bucket
trainer: {{package_uris: [gs://my-bucket/t.tar.gz]}}
jobs:
  one:
    topology: cpu
    machine_type: n1-standard-4
    args: {{name: "{secret}", epochs: {epochs}}}
    env: {{PLAIN: "x${{DB}}y"}}
"""


def project(folder: Path, secret: str = "${DB}", epochs: int = 1, **keys: str) -> None:
    text = PROJECT.format(secret=secret, epochs=epochs)
    for key, value in keys.items():
        text = "".join(
            f"{key}: {value}\n" if row.startswith(f"{key}:") else row for row in text.splitlines(keepends=True)
        )
    (folder / "vertexrig.yaml").write_text(text, encoding="utf-8")


def shown(folder: Path, *words: str) -> str:
    done = typed(*words, cwd=folder)
    return str(done.stdout) + str(done.stderr)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB", SECRET)


@pytest.mark.parametrize("key", ["bucket", "region", "project"])
@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("explain", "one"),
        ("render", "one"),
        ("jobs",),
        ("schedule", "plan"),
        ("doctor",),
        ("submit", "one"),
    ],
    ids=" ".join,
)
def test_an_error_about_a_variable_names_it(tmp_path: Path, key: str, words: tuple[str, ...]) -> None:
    """Each verb's error about a value that came from a variable has `${NAME}` and no part of the value."""
    project(tmp_path, **{key: '"${DB}"'})
    said = shown(tmp_path, *words)
    assert "${DB}" in said and "Zebra" not in said


@pytest.mark.parametrize("format_", ["text", "json", "sarif", "github", "gitlab", "junit"])
def test_a_finding_has_the_name(tmp_path: Path, format_: str) -> None:
    """Findings about a variable's value have its name, in each format."""
    project(tmp_path)
    (tmp_path / "vertexrig.yaml").write_text(
        (tmp_path / "vertexrig.yaml").read_text().replace("machine_type: n1-standard-4", 'machine_type: "${DB}"'),
        encoding="utf-8",
    )
    said = shown(tmp_path, "check", "--format", format_)
    assert "{DB}" in said and "Zebra" not in said


@pytest.mark.parametrize("words", [("explain", "one"), ("explain", "one", "--format", "json")], ids=" ".join)
def test_explain_has_the_name(tmp_path: Path, words: tuple[str, ...]) -> None:
    """`explain` shows arguments and variables with `${NAME}`."""
    project(tmp_path)
    said = shown(tmp_path, *words)
    assert "Zebra" not in said


@pytest.mark.parametrize("format_", ["text", "json", "markdown"])
def test_diff_has_the_name(tmp_path: Path, format_: str) -> None:
    """`diff`, also as the comment on a pull request, shows a changed argument with `${NAME}`."""
    project(tmp_path, secret="before")
    for words in (("init", "-q"), ("add", "."), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    project(tmp_path, epochs=2)
    said = shown(tmp_path, "diff", "HEAD", "--format", format_)
    assert "${DB}" in said and "Zebra" not in said


@pytest.mark.parametrize("value", ["${DB}", "${DB}1", "1${DB}"])
@pytest.mark.parametrize("words", [("check",), ("explain", "one"), ("diff", "HEAD")], ids=" ".join)
def test_a_secret_is_not_cut_but_named(tmp_path: Path, value: str, words: tuple[str, ...]) -> None:
    """Under a secret's name, of which findings, tables and diffs show the first characters, a variable's value is not cut but named."""
    project(tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "before"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    file = tmp_path / "vertexrig.yaml"
    file.write_text(file.read_text().replace('name: "${DB}"', f'password: "{value}"'))
    said = shown(tmp_path, *words)
    assert "password" in said and "a&b" not in said and "1a&" not in said
    assert value != "${DB}" or "${DB}" in said


def test_a_patch_has_what_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The patch of `check --diff` applies to a file in which a variable's value is written out."""
    monkeypatch.setenv("DB", "us-central1")
    project(tmp_path, region='"${DB}"')
    job = tmp_path / "job.yaml"
    spec = "workerPoolSpecs:\n- {replicaCount: 1, containerSpec: {imageUri: us-central1-docker.pkg.dev/p/r/i}}\n"
    job.write_text(f"{spec}scheduling: {{timeout: 60}}\n", encoding="utf-8")
    patch = typed("check", "job.yaml", "--diff", cwd=tmp_path).stdout
    subprocess.run(["git", "apply"], input=patch, cwd=tmp_path, check=True, text=True)
    assert job.read_text(encoding="utf-8") == f"{spec}scheduling: {{timeout: 60s}}\n"


def test_the_rendered_file_has_the_value(tmp_path: Path) -> None:
    """The value is in the YAML that `render` writes."""
    project(tmp_path)
    assert typed("render", "one", cwd=tmp_path).exit_code == 0
    assert "Zebra77" in (tmp_path / "build/jobs/one.yaml").read_text(encoding="utf-8")


LONG = "Zebra of 200 words, " + "/".join(f"Zebra{number}" for number in range(40)) + " and a last Zebra word"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("machine_type: n1-standard-4", ("check",)),
        ("machine_type: n1-standard-4", ("check", "--format", "github")),
        ("name: word", ("explain", "one")),
        ("PLAIN: word", ("explain", "one")),
        ("PLAIN: word", ("explain", "one", "--replica", "workerpool0-0")),
    ],
    ids=str,
)
def test_a_value_that_is_cut_or_wrapped_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, words: tuple[str, ...]
) -> None:
    """A value that a message cuts, or that is wrapped to the terminal's width, is shown by its name."""
    monkeypatch.setenv("DB", LONG)
    text = PROJECT.format(secret="word", epochs=1).replace('"word"', "word").replace('"x${DB}y"', "word")
    name = key.partition(":")[0]
    (tmp_path / "vertexrig.yaml").write_text(text.replace(key, f'{name}: "${{DB}}"'), encoding="utf-8")
    said = shown(tmp_path, *words)
    assert "{DB}" in said and "Zebra" not in said


def test_a_cell_that_is_wrapped_has_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value in a table that is folded to the terminal's width is shown by its name."""
    monkeypatch.setattr(streams, "columns", lambda stream: 40)
    with variables.recording(results=True):
        variables.record("DB", LONG)
        assert "Zebra" not in tables.table(["name", "value"], [["a", LONG], ["b", f"x{LONG}"]])


def test_a_short_value_is_replaced_as_a_whole_only() -> None:
    """A short value is no reason to change a word that has it; what was recorded ends with the command."""
    with variables.recording(results=True):
        for name, value in {"A": "a", "ENV": "prod", "KEY": "prod-long-1", "EMPTY": ""}.items():
            variables.record(name, value)
        assert variables.shown_result({"x": ["a", "abc", "prod", "product", "in prod.", "xprod-long-1x"]}) == {
            "x": ["${A}", "abc", "${ENV}", "product", "in prod.", "x${KEY}x"]
        }
    assert variables.shown_result("prod") == variables.shown("prod") == "prod"


@pytest.mark.parametrize("blanks", ["\n", "\n    ", "  "], ids=repr)
def test_a_value_that_is_cut_and_wrapped_has_the_name(blanks: str) -> None:
    """The beginning of a long value is shown by its name where lines are wrapped in it, and so is what follows of the value."""
    value = "Zebra in the first words, Zebra in the middle, Zebra at the end"
    with variables.recording(results=True):
        variables.record("DB", value)
        assert variables.shown(f"x {value[:50].replace(' ', blanks)}… y") == "x ${DB}… y"
        assert variables.shown(f"x {value.replace(' ', blanks)} y") == "x ${DB} y"
