"""Other people's files: templates, project files, overlays and checked files that are made to do harm."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import ClassVar

import pytest

from tests.attacks.bounded import MIB, PEAK_MIB
from tests.support.tools import LONG, REPOSITORY, module_run, typed
from vertexrig import spec, yamltext
from vertexrig.catalog import load
from vertexrig.checks import Context, check
from vertexrig.cli import run as vertexrig
from vertexrig.errors import TemplateError
from vertexrig.project import config
from vertexrig.render.bounded import BoundedTemplates
from vertexrig.render.renderer import Renderer

PROJECT = """\
project: p
bucket: gs://my-bucket
templates: templates
trainer: {package_uris: [gs://my-bucket/t.tar.gz]}
jobs:
  evil: {topology: evil, machine_type: n1-standard-4, timeout: 60s}
"""


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`vertexrig WORDS` in a process of bounded memory and processor time; its peak of memory is in the file `peak`."""
    return module_run("tests.attacks.bounded", *words, cwd=cwd, env={"PYTHONPATH": str(REPOSITORY)})


# ---- templates


def renderer(folder: Path, template: str, names: Iterable[str] = ()) -> Renderer:
    """The renderer of a project whose job `evil` has this template; more jobs have templates of their names."""
    (folder / "templates").mkdir(exist_ok=True)
    (folder / "templates" / "evil.yaml.j2").write_text(template, encoding="utf-8")
    jobs = "".join(f"  {name}: {{topology: {name}, machine_type: n1-standard-4, timeout: 60s}}\n" for name in names)
    return Renderer(config.loads(PROJECT + jobs, file=folder / "vertexrig.yaml", environ={}), load())


GLOBALS = "__init__.__globals__['__builtins__']['__import__']('os').system('touch caught')"
ESCAPES = {
    "cycler": f"{{{{ cycler.{GLOBALS} }}}}",
    "joiner": f"{{{{ joiner.{GLOBALS} }}}}",
    "namespace": f"{{{{ namespace.{GLOBALS} }}}}",
    "lipsum": "{{ lipsum.__globals__['os'].system('touch caught') }}",
    "function": "{{ refuse.__globals__['json'].codecs.builtins.open('caught', 'w') }}",
    "class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "macro": "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
    "attr": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "map": "{{ [job]|map(attribute='__init__.__globals__')|list }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(job) }}",
    "environment": "{{ self._TemplateReference__context.environment.loader }}",
    "change": "{% set _ = job.env.update({'A': 'b'}) %}",
}


def test_a_template_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What leads from a template to Python is an error that names the template and the line; nothing is run or changed."""
    monkeypatch.chdir(tmp_path)
    made = renderer(tmp_path, "", ESCAPES)
    for name, template in ESCAPES.items():
        (tmp_path / "templates" / f"{name}.yaml.j2").write_text(f"\nworkerPoolSpecs: {template}\n", encoding="utf-8")
        with pytest.raises(TemplateError, match=rf"^{name}\.yaml\.j2:2: "):
            made.render(name)
        assert not (tmp_path / "caught").exists(), name
        assert not made.loaded.project.jobs[name].env, name


BOMBS = {
    # time: loops and calls
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "recursive loop": "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
    "macro": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "caller": "{% macro f() %}{% for i in range(99) %}{{ caller() }}{% endfor %}{% endmacro %}"
    + "{% call f() %}" * 9 + "x" + "{% endcall %}" * 9,
    "sums": "{% for i in range(99999) %}{% set x = range(99999)|sum %}{% endfor %}",
    "sorting": "{% for i in range(99999) %}{% set x = range(99999)|sort(reverse=true) %}{% endfor %}",
    "groups": "{% for i in range(99999) %}{% set x = [job] * 9999 %}{% set y = x|groupby('topology') %}{% endfor %}",
    "membership": "{% set x = range(99999)|list %}{% for i in x %}{% if -1 in x %}{% endif %}{% endfor %}",
    "itself": "{% include 'itself.yaml.j2' %}{% include 'itself.yaml.j2' %}",
    "words": "{% for i in range(99999) %}{% set x = ('a ' * 99999)|wordcount %}{% endfor %}",
    "source": "{{ job.topology }}" * 100_000,
    # time: one operation that Python does not interrupt
    "power": "{{ 10 ** (10**9) }}",
    "modulo": "{{ 3 ** (10**7) % (7 ** (10**6)) }}",
    "quotient": "{{ 3 ** (10**7) // (7 ** (10**6)) }}",
    "product": "{% set x = 7 ** (10**6) %}{% for i in range(99999) %}{% set y = x * x %}{% endfor %}",
    "comparison": "{% set x = [[0] * 9999] * 9999 %}{% set y = [[0] * 9999] * 9999 %}{% for i in range(99) %}{% if x == y %}{% endif %}{% endfor %}",
    "integers": "{% set x = 3 ** (10**6) %}{% set y = 3 ** (10**6) %}{% for i in range(9999999) %}{% if x < y or x != y or y > x %}{% endif %}{% endfor %}",
    "search": "{% set x = 'a' * 10**7 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
    "contained": "{% set x = [[0] * 9999] * 99999 %}{% if ([0] * 9998 + [1]) in x %}{% endif %}{% for i in range(99) %}{% if 5 ** 99 in x %}{% endif %}{% endfor %}",
    "count": "{% set x = 'a' * 10**7 %}{% for i in range(99999) %}{% set y = x.count('aab') %}{% endfor %}",
    "split": "{% for i in range(99999) %}{% set y = ('a ' * 99999).split() %}{% endfor %}",
    "written out": "{{ (7 ** (10**8))|string }}",
    # memory
    "range": "{% for i in range(10**12) %}a{% endfor %}",
    "text": "{{ 'x' * 10**10 }}",
    "list": "{{ [1] * 10**10 }}",
    "doubling": "{% macro f(x, n) %}{% if n %}{{ f(x ~ x, n - 1) }}{% endif %}{% endmacro %}{{ f('x', 60) }}",
    "adding": "{% macro f(x, n) %}{% if n %}{{ f(x + x, n - 1) }}{% endif %}{% endmacro %}{{ f([1], 60) }}",
    "nesting": "{% macro f(x, n) %}{% if n %}{{ f([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ f(1, 60) }}",
    "center": "{{ 'x'|center(10**10) }}",
    "indent": "{{ ('x\n' * 99999)|indent(99999) }}",
    "tojson": "{{ ([['x' * 9999] * 9999] * 9999)|tojson }}",
    "method": "{{ 'x'.ljust(10**10) }}",
    "replace": "{{ ('x' * 99999).replace('x', 'x' * 99999) }}",
    "percent": "{{ '%2000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (2 * 10**9, 1) }}",
    "format": "{{ '%2000000000d'|format(1) }}",
    "str.format": "{{ '{:10000000000}'.format(1) }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "lists": "{% macro f(n) %}{% set x = range(99999)|list %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "join": "{{ range(99999)|map('center', 99999)|join }}",
    "batch": "{{ [1]|batch(10**10, 0)|list }}",
    "round": "{% set x = 3 ** 10**6 %}{% for i in range(9999) %}{% set y = x|round(-99999) %}{% endfor %}",
    "output": "{% for i in range(99999) %}" + "x" * 99999 + "{% endfor %}",
    "blocks": "{% for i in range(99999) %}{% set x %}" + "x" * 99999 + "{% endset %}{{ x }}{% endfor %}",
}  # fmt: skip
FEW = ("macro", "quotient", "comparison", "text", "doubling", "itself")
OTHERS = tuple(name for name in BOMBS if name not in FEW)[:: 1 if LONG else 3]


@pytest.mark.parametrize("names", [FEW, pytest.param(OTHERS, marks=pytest.mark.whole)], ids=["few", "others"])
def test_a_template_is_bounded_in_time_and_memory(tmp_path: Path, names: tuple[str, ...]) -> None:
    """A template that does not end, or makes a value without measure, is stopped, with an error that names it; the next
    template is rendered.
    """
    # A new process has no ended children, so that their peak is the peak of what this test starts. A fork would have the
    # memory of the tests before it.
    process = multiprocessing.get_context("spawn").Process(target=_bombs, args=(tmp_path, names))
    process.start()
    process.join()
    assert process.exitcode == 0


def _bombs(folder: Path, names: Sequence[str]) -> None:
    made = renderer(folder, "")
    for name in names:
        (folder / "templates" / f"{name}.yaml.j2").write_text(BOMBS[name], encoding="utf-8")
    templates = BoundedTemplates(made.folders, seconds=0.3)
    for name in names:
        begun, before = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with pytest.raises(TemplateError, match=rf"^{name}\.yaml\.j2(:\d+)?: "):
            templates.render(f"{name}.yaml.j2", {"job": made.loaded.project.jobs["evil"]})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert time.process_time() - begun < 1, name
        assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3, name
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 < 2 * PEAK_MIB
    assert templates.render("evil.yaml.j2", {}) == ""


def test_the_limit_of_a_template_is_explained(tmp_path: Path) -> None:
    """The message has the template, the limit and what to look for."""
    made = renderer(tmp_path, "{{ 'x' * 10**10 }}")
    message = r"^evil\.yaml\.j2: .*2 s of processor time and 200 MiB of memory\. Look for a loop"
    with pytest.raises(TemplateError, match=message):
        made.render("evil")


def test_a_template_may_work_as_templates_do(tmp_path: Path) -> None:
    """Loops, macros, filters and text of ordinary size are within the budget."""
    made = renderer(
        tmp_path,
        "{% macro row(i) %}{{ 'row %03d' % i }}{% endmacro %}\n"
        "serviceAccount: {{ ['a', 'b']|join('-') ~ 'c'.upper() }}\n"
        "workerPoolSpecs:\n- containerSpec:\n    imageUri: {{ 'a/b'|replace('/', '-') }}\n    args:\n"
        "{% for i in range(5000) %}\n    - {{ row(i) }}\n{% endfor %}\n",
    )
    data = yamltext.read(made.render("evil").text).data
    assert data["serviceAccount"] == "a-bC"
    assert data["workerPoolSpecs"][0]["containerSpec"]["args"][-1] == "row 4999"


# ---- a project file in a folder above


def test_a_project_file_above_is_used_only_if_it_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone else's project file above, or one in someone else's folder, is named and not read; beside it, or named, it is."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.delenv("SUDO_UID", raising=False)
    above, below = tmp_path / "above", tmp_path / "above" / "below"
    below.mkdir(parents=True)
    file = above / "vertexrig.yaml"
    file.write_text("project: theirs\n", encoding="utf-8")
    monkeypatch.chdir(below)
    assert config.load().project.project == "theirs"
    for foreign, ours in ((file, above), (above, file)):
        os.chown(foreign, 12345, 12345)
        os.chown(ours, 0, 0)
        with pytest.raises(config.ForeignProjectError, match=f"{file} .* another user.*--file {file}"):
            config.load()
        assert config.load(file).project.project == "theirs"
        (below / "job.yaml").write_text("workerPoolSpecs: []\n", encoding="utf-8")
        assert vertexrig(["check", "job.yaml"]) == 1
        assert f"{file} is in a folder above" in capsys.readouterr().err
    monkeypatch.setenv("SUDO_UID", "12345")
    assert config.load().project.project == "theirs"
    monkeypatch.chdir(above)
    monkeypatch.delenv("SUDO_UID")
    assert config.load().project.project == "theirs"


# ---- bombs


def merges(levels: int, width: int) -> str:
    """Mappings that each merge in the one before several times."""
    rows = ["a0: &a0 {k: 1}"]
    rows += [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * width)}], k{i}: 1}}" for i in range(1, levels)]
    return "\n".join(rows) + "\n"


def aliases(levels: int, width: int) -> str:
    """Lists that each hold the one before several times."""
    rows = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels))]
    return "\n".join(rows) + "\n"


FILES = {
    "merges": (lambda: merges(20, 9), None),
    "aliases": (lambda: aliases(20, 9), "expands to more than"),
    "brackets": (lambda: "[" * 30_000, "nested more than 100 deep"),
    "braces": (lambda: "{a: " * 30_000, "nested more than 100 deep"),
    "dashes": (lambda: "- " * 30_000, "nested more than 100 deep"),
    "many values": (lambda: f"a: [{'1,' * 500_000}]", "more than 200,000 values"),
    "base 60": (lambda: "a: " + "1:" * 500_000 + "1", "more than 400 characters"),
    "unknown fields": (lambda: "workerPoolSpecs: []\n" + "".join(f"field{i}: x\n" for i in range(65_000)), None),
    "unknown fields of pools": (lambda: "workerPoolSpecs:\n" + "".join(f"- field{i}: x\n" for i in range(30_000)), None),
    "empty pools": (lambda: "workerPoolSpecs:\n" + "- {}\n" * 90_000, None),
    "parameters": (lambda: "studySpec:\n  parameters:\n" + "  - parameterId: a\n    discreteValueSpec: {}\n" * 30_000, None),
    "50 MB": (lambda: "# " + "x" * (50 * MIB), "larger than 2 MiB"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("use", "name"),
    [
        *(("check", name) for name in FILES),
        *(("project", name) for name in ("merges", "unknown fields", "50 MB")),  # read by the same reader
        *(("overlay", name) for name in ("merges", "unknown fields")),
    ],
)
def test_a_file_is_bounded_in_work_and_memory(tmp_path: Path, use: str, name: str) -> None:
    """A file made to exhaust the machine is refused with a message, or read, within seconds of processor time and 200 MiB."""
    make, says = FILES[name]
    (tmp_path / "bomb.yaml").write_text(make(), encoding="utf-8")
    if use != "check":
        (tmp_path / "vertexrig.yaml").write_text("project: p\ncatalog: bomb.yaml\njobs: {j: {}}\n", encoding="utf-8")
    words = {
        "check": ["check", "bomb.yaml"],
        "project": ["render", "j", "--file", "bomb.yaml"],
        "overlay": ["check", "j"],
    }[use]
    done = run(*words, cwd=tmp_path)
    assert done.returncode in (1, 2), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert says is None or says in done.stdout + done.stderr
    assert len(done.stdout + done.stderr) < 200_000
    assert int((tmp_path / "peak").read_text()) < PEAK_MIB


FIELDS: dict[str, tuple[Callable[[int], str], tuple[str, ...]]] = {
    "job": (lambda n: "workerPoolSpecs: []\n" + _fields(n), ("check", "many.yaml")),
    "project": (lambda n: "project: p\njobs: {j: {}}\n" + _fields(n), ("check", "--file", "many.yaml")),
    "job of a project": (lambda n: "project: p\njobs:\n  j:\n" + _fields(n, "    "), ("check", "--file", "many.yaml")),
    "jobs": (lambda n: "project: p\njobs:\n" + _fields(n, "  j"), ("check", "--file", "many.yaml")),
}


def _fields(number: int, before: str = "") -> str:
    return "".join(f"{before}field{i}: x\n" for i in range(number))


def _cost(folder: Path, kind: str, number: int) -> float:
    """Seconds of processor time that a check of so many takes."""
    make, words = FIELDS[kind]
    (folder / "many.yaml").write_text(make(number), encoding="utf-8")
    began = time.process_time()
    assert typed(*words, cwd=folder).exit_code in (1, 2)
    return time.process_time() - began


@pytest.mark.parametrize("kind", [kind for kind in FIELDS if kind != "job"])  # whose calls are counted below
@pytest.mark.whole
def test_unknown_fields_cost_no_more_each_the_more_there_are(tmp_path: Path, kind: str) -> None:
    """Eight times as many unknown fields take at most twelve times the processor time."""
    few, many = [_cost(tmp_path, kind, number) for number in (500, 2_000, 16_000)][1:]
    assert many < 12 * few


def test_a_check_of_unknown_fields_calls_few_functions_for_each(tmp_path: Path) -> None:
    """A check of a job of 40,000 unknown fields calls at most 60 functions for each: 52 on 2026-11-30, with its imports."""
    (tmp_path / "many.yaml").write_text(FIELDS["job"][0](40_000), encoding="utf-8")
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert typed("check", "many.yaml", cwd=tmp_path).exit_code == 1
    finally:
        sys.setprofile(None)
    assert calls < 60 * 40_000


def test_findings_beyond_200_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of many findings of one rule 200 are shown, and one more has the number of the others; the exit code is theirs."""
    text = "workerPoolSpecs: []\n" + "".join(f"field{i}: x\n" for i in range(1_300))
    found = [one for one in check(spec.parse(text), Context(load())) if one.id == "unknown-field"]
    assert len(found) == 201
    assert found[-1].message == "1,100 more findings are left out"
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    assert vertexrig(["check", str(tmp_path / "job.yaml"), "--format", "json"]) == 1
    rows = json.loads(capsys.readouterr().out)["findings"]
    assert sum(row["id"] == "unknown-field" for row in rows) == 201


# ---- names that become part of a host


class Sink(BaseHTTPRequestHandler):
    """Counts what reaches it."""

    seen: ClassVar[list[str]] = []

    def handle(self) -> None:
        self.seen.append(self.client_address[0])


@pytest.mark.parametrize("words", [["jobs"], ["watch", "123"], ["doctor"]], ids=lambda words: words[0])
@pytest.mark.parametrize("key", ["region", "project"])
def test_a_region_never_names_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str, words: list[str]
) -> None:
    """A region or project that holds a host of its own is refused before anything is sent anywhere."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        Sink.seen.clear()
        values = {"project": "p", "region": "us-central1", key: f"127.0.0.1:{server.server_port}/x?"}
        text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items())
        (tmp_path / "vertexrig.yaml").write_text(text + "bucket: gs://my-bucket\njobs: {j: {}}\n", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
            monkeypatch.setenv(
                name, f"http://127.0.0.1:{server.server_port}"
            )  # so that a call to any other host is seen
        assert vertexrig(words) == 2
        assert f"vertexrig.yaml:{1 if key == 'project' else 2}: {key}: " in capsys.readouterr().err
        assert Sink.seen == []
    finally:
        server.shutdown()
        server.server_close()


def test_the_command_as_a_module_imports_nothing_of_the_folder(tmp_path: Path) -> None:
    """`python -m vertexrig` in a project that has a click.py imports the installed one."""
    (tmp_path / "click.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run(
        [sys.executable, "-m", "vertexrig", "--version"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout.startswith("vertexrig "), done.stderr
