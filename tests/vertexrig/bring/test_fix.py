"""`check --fix`: safe fixes mend what has one right answer and nothing else, and what they do not touch stays as it was."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.packages import trainer_with
from tests.support.tools import typed
from tests.vertexrig.checks.cases import EDITS, Case
from tests.vertexrig.checks.job_bases import BASES, TODAY, edited
from tests.vertexrig.checks.test_rules import ALL, IDS
from vertexrig import spec, yamltext
from vertexrig.bring import fix
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.finding import Act, Edit, Finding, Severity


def looking(context: Context) -> Callable[[str], list[Finding]]:
    def look(text: str) -> list[Finding]:
        document = spec.parse(text, file="job.yaml")
        return fix.located(check(document, context), document.locations)

    return look


FIXED = [pytest.param(case, id=id_) for (case, _), id_ in zip(ALL, IDS, strict=True) if EDITS[case.rule]]


@pytest.mark.parametrize("case", FIXED)
def test_fixes_end_their_findings_and_make_no_others(case: Case) -> None:
    """After the fixes no finding of a rule with one is left of those that can be mended, safe ones make no new error, and a second time nothing changes."""
    trainer = trainer_with(case.trainer) if case.trainer else None
    look = looking(Context(load(), region=case.region, today=case.today, trainer=trainer))
    text = edited(case.base, case.bad)
    unsafe = EDITS[case.rule] == "unsafe"
    done = fix.fixed(text, look, unsafe=unsafe)
    assert not [one for one in done.left if one.fixable in ({"safe", "unsafe"} if unsafe else {"safe"})]
    errors = [
        {(one.id, path) for one in found if one.severity is Severity.ERROR for path in one.paths}
        for found in (look(text), done.left)
    ]
    assert unsafe or errors[1] <= errors[0]
    assert fix.fixed(done.text, look, unsafe=unsafe).text == done.text
    if not done.done:
        assert done.text == text


TYPOS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "snake": lambda key: re.sub("([A-Z])", r"_\1", key).lower(),
    "short": lambda key: key[:-1],
    "swapped": lambda key: key[:2] + key[3] + key[2] + key[4:],
    "dashes": lambda value: value.lower().replace("_", "-"),
}


def _mistakes(text: str) -> Iterator[tuple[str, str]]:
    """Yield kinds of mistakes with one right answer, and a valid text after each: keys, enums, units, quotes, lists."""
    for match in re.finditer(r"^( *(?:- )?)([a-z]\w{5,}):", text, re.MULTILINE):
        for kind in ("lower", "snake", "short", "swapped"):
            key = TYPOS[kind](match[2])
            if key != match[2]:
                yield f"key {kind}", text[: match.start(2)] + key + text[match.end(2) :]
    for match in re.finditer(r": ([A-Z][A-Z0-9_]{3,})$", text, re.MULTILINE):
        for kind in ("lower", "dashes", "short", "swapped"):
            value = TYPOS[kind](match[1])
            if value != match[1]:
                yield f"enum {kind}", text[: match.start(1)] + value + text[match.end(1) :]
    for match in re.finditer(r": (\d+)s$", text, re.MULTILINE):
        for value in (match[1], f"'{match[1]}'", f"{int(match[1]) // 60}m"):
            yield "unit", text[: match.start(1)] + value + text[match.end() :]
    for match in re.finditer(r"(?:minValue|maxValue): ([\d.]+)$", text, re.MULTILINE):
        yield "quoted number", f'{text[: match.start(1)]}"{match[1]}"{text[match.end(1) :]}'
    for match in re.finditer(r"(?:replicaCount|acceleratorCount): (\d+)$", text, re.MULTILINE):
        yield "a whole number", f"{text[: match.start(1)]}{match[1]}.0{text[match.end(1) :]}"
    for match in re.finditer(r"^( *)args:\n *- (\S+)$", text, re.MULTILINE):
        yield "no list", f"{text[: match.start()]}{match[1]}args: {match[2]}{text[match.end() :]}"
    for match in re.finditer(r"(?:imageUri|ImageUri): (\S+)$", text, re.MULTILINE):
        yield "https", f"{text[: match.start(1)]}https://{match[1]}{text[match.end(1) :]}"
    for match in re.finditer(r"machineType: (\S+)$", text, re.MULTILINE):
        yield "machine", text[: match.start(1)] + match[1].upper() + text[match.end(1) :]
        yield "machine", text[: match.start(1)] + match[1].replace("-", "_") + text[match.end(1) :]
    yield "misplaced", text.replace("scheduling:\n  timeout:", "timeout:")


@pytest.mark.whole
def test_safe_fixes_mend_what_has_one_right_answer_and_nothing_wrongly() -> None:
    """Of hundreds of mistakes made in valid files 60 % or more are mended, and what is written is what was there before, or is left as it was."""
    mended, tried, wrong = Counter[str](), Counter[str](), []
    for base in ("python-gpu", "tpu-v5e", "sweep-gpu"):
        data = json.dumps(BASES[base], sort_keys=True)
        good = "# the job\n" + yaml.safe_dump(BASES[base], sort_keys=False)
        look = looking(Context(load(), region="us-central1", today=TODAY))
        assert fix.fixed(good, look).text == good
        for kind, text in _mistakes(good):
            if text == good or json.dumps(yaml.safe_load(text), sort_keys=True) == data:
                continue
            tried[kind] += 1
            made = fix.fixed(text, look).text
            now = json.dumps(yamltext.read(made).data, sort_keys=True)
            mended[kind] += now == data
            if now != data and made != text:
                wrong.append((kind, base, made))
    assert not wrong
    assert tried.total() > 200 and mended.total() / tried.total() >= 0.6, {k: f"{mended[k]}/{tried[k]}" for k in tried}


LAID_OUT = """\
# jobs of the lab   \r
workerPoolSpecs: # one pool\r
- machineSpec: {machine_type: 'n1-standard-8', "acceleratorType": nvidia-tesla-t4,   accelerator_count: 1}\r
  replica_count:   1  # one\r
  containerSpec:\r
    imageUri:   https://us-docker.pkg.dev/p/r/i:1    # ours\r
    env:\r
    - {name: VERSION, value: 1.10}\r
    args: --epochs=3\r
\r
scheduling: {timeout: 3600}   # an hour"""


def test_comments_and_layout_stay_byte_for_byte() -> None:
    """Only the wrong words change: spaces, quotes, comments, line ends, a byte order mark and the missing end of the last line stay."""
    look = looking(Context(load(), region="us-central1", today=TODAY))
    made = fix.fixed("\ufeff" + LAID_OUT, look).text
    wanted = LAID_OUT
    for old, new in {
        "machine_type": "machineType", "accelerator_count": "acceleratorCount", "replica_count": "replicaCount", "nvidia-tesla-t4": "NVIDIA_TESLA_T4",
        "https://": "", "1.10": '"1.10"', "--epochs=3": '["--epochs=3"]', "3600": "3600s",
    }.items():  # fmt: skip
        wanted = wanted.replace(old, new)
    assert made == "\ufeff" + wanted


POOLS = """\
workerPoolSpecs:
- machineSpec: {machineType: n1-standard-8}
  replicaCount: 1
  containerSpec: {imageUri: us-docker.pkg.dev/p/r/i:1}
"""
MISPLACED = [
    ("timeout: 3600s  # agreed with ops\n", False),
    ("timeout: '3600s'\n# the end\n", True),
    ("scheduling: {restartJobOnWorkerRestart: true, # as before\n  network: projects/1/global/networks/n}\n", False),
    ("scheduling: {network: projects/1/global/networks/n, # as before\n  restartJobOnWorkerRestart: true}\n", False),
    ("scheduling: {restartJobOnWorkerRestart: true,\n  network: projects/1/global/networks/n}  # as before\n", True),
]


@pytest.mark.parametrize(("lines", "moves"), MISPLACED)
def test_a_key_that_moves_leaves_no_comment_behind(lines: str, moves: bool) -> None:
    """A key in the wrong place is moved, unless the comment beside it would be lost: then a person has to."""
    look = looking(Context(load(), region="us-central1", today=TODAY))
    made = fix.fixed(POOLS + lines, look, unsafe=True).text
    assert [line.partition("#")[2] for line in made.splitlines() if "#" in line] == [
        line.partition("#")[2] for line in lines.splitlines() if "#" in line
    ]
    assert (made != POOLS + lines) is moves


PROJECT = """\
project: my-project
region: us-central1  # near the data
bucket: gs://my-bucket
trainer: {package_uris: [gs://my-bucket/t-1.0.tar.gz], image: us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest}
jobs:
  good:
    topology: cpu
    machine_typ: n1-standard-8   # a typo
    timeout: 3600
    strategy: spot
  kept: {topology: cpu, machine_type: "${MACHINE:-N1-STANDARD-8}", timeout: 60s}
"""


def test_a_project_file_is_mended_by_its_own_keys(tmp_path: Path) -> None:
    """Mistakes of the file and of the jobs it makes are mended where their values come from; what a variable gives stays."""
    file = tmp_path / "vertexrig.yaml"
    file.write_text(PROJECT)
    shown = typed("check", "--diff", cwd=tmp_path)
    assert shown.exit_code == 1 and "+    machine_type: n1-standard-8   # a typo" in shown.stdout
    assert file.read_text() == PROJECT
    typed("check", "--fix", cwd=tmp_path)
    wanted = PROJECT.replace("machine_typ:", "machine_type:").replace("3600\n", "3600s\n").replace("spot", "SPOT")
    assert file.read_text() == wanted
    again = typed("check", "--diff", cwd=tmp_path)
    assert (again.exit_code, again.stdout) == (0, "")


def test_a_diff_as_json_is_one_document(tmp_path: Path) -> None:
    """`check --diff --format json` prints one document with the findings that no fix removes, the diff and why it ends with 1."""
    file = tmp_path / "vertexrig.yaml"
    file.write_text(PROJECT)
    shown = typed("check", "--diff", cwd=tmp_path)
    done = typed("check", "--diff", "--format", "json", cwd=tmp_path)
    data = json.loads(done.stdout)
    assert (done.exit_code, data["diff"]) == (1, shown.stdout.removesuffix("\n"))
    assert data["error"]["message"] == shown.stderr.strip() and "would be fixed in 1 file" in shown.stderr
    typed("check", "--fix", cwd=tmp_path)
    again = json.loads(typed("check", "--diff", "--format", "json", cwd=tmp_path).stdout)
    assert again == {"findings": data["findings"], "diff": ""}


@pytest.mark.parametrize("form", ["sarif", "github", "gitlab", "junit"])
def test_a_diff_is_in_no_report_of_other_tools(tmp_path: Path, form: str) -> None:
    """`check --diff` refuses a format that has no place for a diff, and names those that have one."""
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    done = typed("check", "--diff", "--format", form, cwd=tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"--format {form} cannot hold a diff: use --diff with --format text or json" in done.stderr


@pytest.mark.parametrize("pair", ["b:  # why\n  2", "b:\n  # why\n  2", "b: |  # why\n  2", "b: # why\n  c: 2"])
def test_what_has_a_comment_is_not_removed(pair: str) -> None:
    """A comment between key and value would go with it; a "#" in the value is none."""
    removal = Edit(Act.REMOVE, "b", location=("b",))
    for text in (f"a: 1\n{pair}\n", f"a: 1\n{pair}\nc: 3\n", f"{pair}\n"):
        assert fix.edited(text, removal) is None
    for value in ("'#'", "x#y", "|\n  # text"):
        assert fix.edited(f"a: 1\nb: {value}\n", removal) == "a: 1\n"


def test_unsafe_fixes_are_asked_for(tmp_path: Path) -> None:
    """A fix that may not be meant is made with --unsafe-fixes alone, and what is left is reported."""
    file = tmp_path / "job.yaml"
    data: dict[str, Any] = yaml.safe_load(edited("gpu", {"workerPoolSpecs[0].machineSpec.acceleratorCount": 3}))
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    assert typed("check", "job.yaml", "--fix", cwd=tmp_path).exit_code == 1
    assert "acceleratorCount: 3" in file.read_text()
    done = typed("check", "job.yaml", "--unsafe-fixes", cwd=tmp_path)
    assert done.exit_code == 0 and "1 findings are fixed in 1 file" in done.stderr, done
    assert re.search("acceleratorCount: [24]$", file.read_text(), re.MULTILINE)


TYPED = """\
jobSpec:
  workerPoolSpecs:
  - machineSpec: {machineType: n1-standard-8}
    replicaCount: 1
    containerSpec:
      imageUri: us-docker.pkg.dev/p/r/i:1
      args: [--lr, 1e-4]
      env: [{name: AXIS, value: y}]
  scheduling: {timeout: 60s}
displayName: a
labels: {n: five, team: ml}
"""


def test_what_gcloud_reads_as_a_number_or_boolean_gets_quotes_where_text_belongs() -> None:
    """`1e-4` and `y` are quoted as they are written, and a mapping with the key `n` stays a mapping."""
    look = looking(Context(load(), region="us-central1", today=TODAY))
    done = fix.fixed(TYPED, look)
    assert done.text == TYPED.replace("1e-4", '"1e-4"').replace("value: y", 'value: "y"')
    assert "wrong-type" not in {one.id for one in done.left}
