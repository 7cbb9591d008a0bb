"""YAML is read the way gcloud reads it, and nothing in a text can crash the reader."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tools import examples, need
from vertexrig import yamltext

SCALARS = [
    "1e-4", "1.5e3", "-1e+3", "1e5", "e5", "y", "Y", "n", "N", "yes", "on", "off", "TRUE", "nULL", "~", "null",
    "12:30:45", "1:60", "014", "0o14", "08", "0x1f", "0b11", "1_000", ".5", "5.", "0.1_0", "+1", "_1", "'1'", '"y"',
    "!!str y", "!!str 1e5", "1.0e-4", "12e03", "1E5", "0e0", ".5e3", "1.e+3", "- 1", "text", "a b", "1 2",
]  # fmt: skip


def _gcloud_reads(texts: list[str]) -> list[object]:
    """What the YAML library inside the installed gcloud makes of each text."""
    root = next(
        (
            folder
            for folder in [*Path(need("gcloud")).resolve().parents, Path("/usr/lib/google-cloud-sdk")]
            if (folder / "lib/third_party/ruamel").is_dir()
        ),
        None,
    )
    if root is None:
        pytest.skip("the installed gcloud does not show its Python files")
    program = """
        import json, sys, warnings
        warnings.simplefilter("ignore")
        sys.path[:0] = [sys.argv[1] + "/lib/third_party", sys.argv[1] + "/lib"]
        from ruamel import yaml

        def plain(value):
            for kind in (bool, int, float, str):
                if isinstance(value, kind):
                    return kind(value)
            return None if value is None else str(value)

        out = []
        for text in json.load(sys.stdin):
            try:
                value = plain(yaml.round_trip_load(text, version="1.1")["a"])
            except Exception:
                value = "<error>"
            out.append([type(value).__name__, value])
        json.dump(out, sys.stdout)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(root)],
        input=json.dumps(texts), capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def test_scalars_read_as_gcloud_reads_them() -> None:
    """Numbers, booleans and texts come out with the type and value that gcloud's own YAML library gives them."""
    ours = []
    texts = [f"a: {scalar}\n" for scalar in SCALARS]
    for text in texts:
        try:
            value = yamltext.read(text).data["a"]
        except yamltext.YamlError:
            value = "<error>"
        ours.append([type(value).__name__, value])
    theirs = _gcloud_reads(texts)
    assert dict(zip(SCALARS, ours, strict=True)) == dict(zip(SCALARS, theirs, strict=True))


@pytest.mark.parametrize(("scalar", "value"), [("1e-4", 0.0001), ("y", True), ("N", False), ("2E5", 200000.0)])
def test_two_readings_are_noted(scalar: str, value: object) -> None:
    """Where gcloud and PyYAML differ the value is gcloud's and the place is noted."""
    reading = yamltext.read(f"a:\n- {scalar}\n")
    assert reading.data == {"a": [value]}
    assert [(note.kind, note.path, note.line) for note in reading.notes] == [("two-readings", ("a", 0), 2)]


@pytest.mark.parametrize("scalar", ["'1e-4'", '"y"', "!!str n", "1.0e-4", "true", "text"])
def test_plain_readings_are_not_noted(scalar: str) -> None:
    """A quoted or tagged scalar, and one that all readers agree on, gives no note."""
    assert yamltext.read(f"a: {scalar}\n").notes == []


def test_first_of_two_keys_counts() -> None:
    """With a duplicate key the first value counts, as in gcloud, and the second is noted with its line."""
    reading = yamltext.read("a: 1\nb: 2\na: 3\n")
    assert reading.data == {"a": 1, "b": 2}
    assert [(note.kind, note.line) for note in reading.notes] == [("duplicate-key", 3)]


def test_merge_keys_give_way_to_own_keys() -> None:
    """`<<` brings in another mapping's keys; the mapping's own keys win, also where an alias reads it twice."""
    text = "x: &x {a: 1, b: 2}\ny: &y {<<: *x, b: 3}\nz: *y\n"
    data = yamltext.read(text).data
    assert data["y"] == data["z"] == {"a": 1, "b": 3}


def test_lines_of_values() -> None:
    """Each value's line is known by its path of keys and indexes."""
    lines = yamltext.read("a:\n  b:\n  - 1\n  - c: 2\n").lines
    assert (
        lines[("a",)] == 1 and lines[("a", "b")] == 2 and lines[("a", "b", 0)] == 3 and lines[("a", "b", 1, "c")] == 4
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", "not valid YAML"),
        ("a: 1\n--- \nb: 2\n", "another document"),
        ("a: &x [*x]", "contains it"),
        ("? [1]\n: 2", "list or mapping"),
        ("a: !!python/object:os.system x", "not valid YAML"),
        ("a: 2024-13-45", "not a value of its kind"),
        ("\x01", "not valid YAML"),
        ("a: " + "[" * 150 + "]" * 150, "nested"),
        ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join('*' + chr(97 + i) for _ in range(9))}]\n" for i in range(8)
        ), "expands to more than"),
    ],
)  # fmt: skip
def test_bad_texts_are_one_clear_error(text: str, words: str) -> None:
    """Text that is no single plain YAML document raises YamlError with the reason, nothing else."""
    with pytest.raises(yamltext.YamlError, match="(?s)" + words) as caught:
        yamltext.read(text)
    assert caught.value.line is None or caught.value.line >= 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: {b: 1\nc: 2\n", 1, "the { here is never closed"),
        ("a: {b: 1}}\n", 1, "the } closes nothing"),
        ("a: [1, 2}\n", 1, "the } does not close the ["),
        ("a: {topology: cpu machine_type: n1}\n", 1, "a comma is missing"),
        ("a: 'b\n", 1, "the ' here is never closed"),
        ("a: @b\n", 1, "@ has a meaning of its own"),
        ("a: *.csv\n", 1, "* has a meaning of its own"),
        ('a: "\\d"\n', 1, "\\ has a meaning of its own"),
        ("a: 'it's'\n", 1, "there is text after the closing quote"),
        ("a: b\nnote: see: there\n", 2, "a value holds a colon"),
        ("a:b\nc: d\n", 1, "neither `key: value` nor `- item`"),
        ("a: b\n  c: d\n", 2, "indented below line 1, which has a value"),
        ("a:\n    b: c\n  d: e\n", 3, "indented by 2, and the lines above by 0, 4"),
        ("a: b\n- c\n", 2, "keys and items of a list are mixed"),
        ("a:\n - b\n c: d\n", 3, "keys and items of a list are mixed"),
        ("a:\n\tb: c\n", 2, "a tab is where"),
    ],
)
def test_what_is_no_yaml_has_its_likely_cause(text: str, line: int, words: str) -> None:
    """A mistake that people make is told in words, at its line, with what to do."""
    with pytest.raises(yamltext.YamlError) as caught:
        yamltext.read(text)
    assert words in caught.value.message and caught.value.line == line and caught.value.fix


@settings(max_examples=examples(60, 3000), deadline=None)
@given(
    st.one_of(st.text(max_size=200), st.text(alphabet="ab:-[]{}&*!|>'\"%@` \n\t#?,<=0123456789.eE~\\", max_size=120))
)
def test_any_text_gives_a_reading_or_a_yaml_error(text: str) -> None:
    """Whatever the text, the reader returns a reading or raises YamlError."""
    try:
        yamltext.read(text)
    except yamltext.YamlError:
        pass


@given(
    st.recursive(
        st.sampled_from(["n", "Y", "on", "1e-4", "1e5", "-2E3", "012", "", "null", "a: b", 0, 1e-05, 2.5, False, None]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "y", "lr", "1e3"]), inner, max_size=3)
        ),
        max_leaves=6,
    ).map(lambda value: {"args": value})
)
def test_what_is_dumped_is_read_alike_by_all(data: dict[str, object]) -> None:
    """Keys and texts that YAML 1.1 takes for booleans or numbers are quoted: gcloud's reading gives the data back, and no other reading differs."""
    reading = yamltext.read(yamltext.dump(data))
    assert reading.data == data and reading.notes == []
