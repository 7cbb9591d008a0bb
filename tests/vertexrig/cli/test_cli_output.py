"""What the command line prints where: terminals, tables, overridden values, suggestions, and the codes of errors."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support.tools import INSTALLED, REPOSITORY
from vertexrig import cli, errors
from vertexrig.cli import next_commands, output, streams, tables

PROJECT = """
project: p
region: us-central1
bucket: gs://my-bucket
trainer: {package_uris: [gs://my-bucket/t-1.0.tar.gz]}
jobs:
  good: {machine_type: n1-standard-4, timeout: 60s, args: {epochs: 1, verbose: true}}
  gpu:
    topology: gpu
    machine_type: n1-standard-4
    accelerator_type: NVIDIA_TESLA_T4
    accelerator_count: 2
    args: [--a, --b=1]
    timeout: 60s
sweeps:
  sweep:
    job: good
    args: {epochs: 2}
    max_trial_count: 30
    study: {metrics: {accuracy: MAXIMIZE}, parameters: {lr: {double_value_spec: {min_value: 0.1, max_value: 1}}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vertexrig.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


Said = tuple[int, str, str]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> Said:
    capsys.readouterr()
    code = cli.run(words)
    return (code, *capsys.readouterr())


def on_terminal(*words: str, cwd: Path, columns: int, **variables: str) -> tuple[int, str]:
    """The command line as a process on a real terminal of so many columns: exit code, and all it shows."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
            os.environ.pop(name, None)
        environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(INSTALLED), **variables}
        os.execve(sys.executable, [sys.executable, "-m", "vertexrig", *words], environment)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_a_terminal_gets_its_width_and_colour(folder: Path) -> None:
    """A table and the quoted lines of findings fit a terminal of 80 columns, in colour."""
    code, shown = on_terminal("catalog", "machines", "n1-standard-4", cwd=folder, columns=80)
    assert code == 0 and max(map(len, plain(shown).splitlines())) <= 80 and "NVIDIA_TESLA_V100" not in shown.split()
    code, shown = on_terminal("check", "gpu", "--set", "jobs.good.labels.x=y", "--info", cwd=folder, columns=80)
    quoted = [line for line in plain(shown).splitlines() if re.match(r" *\d* \|", line)]
    assert quoted and max(map(len, quoted)) <= 80 and "\x1b[" in shown
    _, shown = on_terminal("check", "gpu", cwd=folder, columns=80, NO_COLOR="1")
    assert "\x1b" not in shown


def test_a_pipe_gets_whole_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What goes into a pipe is one line per row, uncut, however long."""
    _, out, _ = call(capsys, "catalog", "machines", "n1-standard-4")
    heading, rule, row = out.splitlines()
    assert "NVIDIA_TESLA_P4 1/2/4, NVIDIA_TESLA_P100 1/2/4, NVIDIA_TESLA_T4 1/2/4, NVIDIA_TESLA_V100 1/2/4/8" in row
    assert set(rule) == {"-", " "} and len(heading) <= len(rule)


HEADINGS = ("trial", "lr", "note")
ROWS = [("1", 0.000123456789, "best"), ("12", 1e-5, "out of memory:\nline two\tof a long, long note | with a bar")]


def test_a_note_of_many_lines_stays_in_its_row() -> None:
    """A line break in a cell does not break the table; numbers stand to the right."""
    assert tables.table(HEADINGS, ROWS) == (
        "trial           lr  note\n"
        "-----  -----------  ---------------------------------------------------------\n"
        "    1  0.000123457  best\n"
        "   12        1e-05  out of memory: line two of a long, long note | with a bar"
    )


def test_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long cells are wrapped within the width, no word of theirs lost; a row that cannot fit becomes a block."""
    monkeypatch.setattr(streams, "columns", lambda stream: 40)
    shown = tables.table(HEADINGS, ROWS)
    assert max(map(len, shown.splitlines())) <= 40 and len(shown.splitlines()) > 4
    notes = " ".join(line[20:].strip() for line in shown.splitlines()[2:])
    assert "out of memory: line two of a long, long note | with a bar" in re.sub(r" +", " ", notes)
    monkeypatch.setattr(streams, "columns", lambda stream: 12)
    assert tables.table(HEADINGS, ROWS[:1]) == "trial  1\nlr     0.000123457\nnote   best"


@pytest.mark.parametrize(
    ("variables", "terminal", "wanted"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": ""}, True, True),  # no-color.org: only when not empty
        ({"NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"CLICOLOR_FORCE": "0"}, False, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_only_where_it_is_wanted(variables: dict[str, str], terminal: bool, wanted: bool) -> None:
    """Colour goes to a terminal or where it is forced; NO_COLOR and a dumb terminal say otherwise."""

    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    assert streams.wants_color(Stream(), variables) is wanted


@pytest.mark.parametrize(
    ("words", "closing"),
    [("check gpu", how) for how in (">&-", "2>&-", "<&-", ">&- 2>&- <&-", "| true", "2>&1 | true")]
    + [("render good -o -", how) for how in (">&-", "| true")],
)
def test_closed_streams_as_a_shell_closes_them(folder: Path, words: str, closing: str) -> None:
    """A stream that the shell has closed costs neither the exit code nor a traceback, and no file takes its place."""
    line = f"{shlex.quote(sys.executable)} -m vertexrig {words} {closing}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"], cwd=folder, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(INSTALLED)},
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.returncode == 0 or "2>&1" in closing


@pytest.mark.parametrize("variables", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C.UTF-8"}])
def test_locales(folder: Path, variables: dict[str, str]) -> None:
    """A finding and a picture with other letters: ASCII where that is asked for, UTF-8 elsewhere, YAML always UTF-8."""
    (folder / "vertexrig.yaml").write_text(PROJECT.replace("timeout: 60s, args", "labels: {team: größe…}, args"))
    env = {**os.environ, "PYTHONPATH": str(INSTALLED), **variables}
    words = [sys.executable, "-m", "vertexrig"]
    for more in (["check", "good", "--info"], ["explain", "gpu"]):
        done = subprocess.run([*words, *more], cwd=folder, capture_output=True, timeout=60, env=env)
        assert b"Traceback" not in done.stderr
        ascii = variables != {"LC_ALL": "C.UTF-8"}
        assert (done.stdout + done.stderr).isascii() == ascii
        assert more[0] == "check" or (b"| workerpool0: chief" in done.stdout) == ascii
    done = subprocess.run([*words, "render", "good", "-o", "-"], cwd=folder, capture_output=True, timeout=60, env=env)
    assert done.stdout.decode().startswith("# vertexrig: job good")


def test_the_value_in_force_is_quoted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding about a value of --set shows that option, not the old line; in JSON it has no line."""
    words = ("check", "gpu", "--set", "accelerator_count=3")
    code, out, _ = call(capsys, *words)
    assert code == 1 and "| --set accelerator_count=3\n" in out and "accelerator_count: 2" not in out
    _, out, _ = call(capsys, *words, "--format=json")
    (error,) = [row for row in json.loads(out)["findings"] if row["severity"] == "error"]
    assert (error["set"], error["line"]) == ("accelerator_count=3", None)
    _, out, _ = call(capsys, "check", "sweep", "--set", "args=[--lr=1]", "--format=json")
    assert all(row["line"] is None or row["line"] != 19 for row in json.loads(out)["findings"])


def test_one_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The summary and JSON agree in how many findings there are, and the count stands once."""
    words = ("check", "--set", "jobs.gpu.accelerator_count=3")
    code, out, err = call(capsys, *words)
    rows = json.loads(call(capsys, *words, "--format=json")[1])["findings"]
    counts = {kind: sum(row["severity"] == kind for row in rows) for kind in ("error", "warning", "info")}
    summary = out.splitlines()[-1]
    assert code == 1 and " error" not in err
    assert {word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) (\w+)", summary)} == {
        kind: count for kind, count in counts.items() if count
    }
    assert out.count("]: ") == counts["error"] + counts["warning"]


def test_suggestions_carry_the_options(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that a message suggests is about the same project: file and overrides come along."""
    (folder / "t").mkdir()
    more = [
        "--file",
        "vertexrig.yaml",
        "--set",
        "accelerator_count=3",
        "--set",
        "labels.team=a b",
        "--set",
        "templates=t",
    ]
    _, _, err = call(capsys, "rehearse", "gpu", *more)
    found = re.search(r"`([^`]* check gpu [^`]*)`", err)
    assert found is not None and found[1] == f"{next_commands.program()} {shlex.join(['check', 'gpu', *more])}"
    (folder / "here").mkdir()
    monkeypatch.setattr(sys, "argv", [str(folder / "here/vertexrig")])  # not the one the shell finds
    (folder / "here/vertexrig").touch()
    _, _, err = call(capsys, "rehearse", "gpu", *more)
    assert f"`here/vertexrig {shlex.join(['check', 'gpu', *more])}`" in err


def test_no_check_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without checks nothing is said about findings."""
    code, _, err = call(capsys, "render", "good", "--no-check")
    assert code == 0 and "findings" not in err and "not checked" in err
    assert json.loads(call(capsys, "render", "good", "--no-check", "--format=json")[1])["checked"] is False


def _args(capsys: pytest.CaptureFixture[str], name: str, *sets: str) -> list[str]:
    code, out, err = call(capsys, "render", name, "-o", "-", *(word for one in sets for word in ("--set", one)))
    assert code in (0, 1), err
    return re.findall(r'^ +- "(--.*)"$', out, re.MULTILINE)


def test_flags_and_removed_keys(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--set args.NAME is a bare flag, args.NAME= an empty text, KEY- removes a key; a key that is not there is named."""
    assert _args(capsys, "good", "args.fast") == ["--epochs=1", "--verbose=true", "--fast"]
    assert _args(capsys, "good", "args.verbose") == ["--epochs=1", "--verbose"]
    assert _args(capsys, "good", "args.verbose=") == ["--epochs=1", "--verbose="]
    assert _args(capsys, "good", "args.verbose-") == ["--epochs=1"]
    assert _args(capsys, "good", "args-") == []
    assert _args(capsys, "gpu", "args.0-") == ["--b=1"]
    assert _args(capsys, "sweep", "args.epochs-") == ["--epochs=1", "--verbose=true"]
    for override, words in {
        "timeut-": "timeut",
        "args.epoch-": "Did you mean 'jobs.good.args.epochs'",
        "timeout": "write KEY=VALUE",
        "-": "write KEY=VALUE",
        "args.-": "write KEY=VALUE",
        "machine_type.x.y-": "there is no jobs.good.machine_type.x.y to remove",
    }.items():
        code, _, err = call(capsys, "render", "good", "--set", override)
        assert code == 2 and words in err, err


def test_an_empty_list_replaces_the_job_s_arguments(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`args: []` on a sweep leaves nothing of the job's; `args: {}` and no args keep them."""
    text = PROJECT.replace("    args: {epochs: 2}\n", "    args: []\n")
    (folder / "vertexrig.yaml").write_text(text)
    assert _args(capsys, "sweep") == []
    (folder / "vertexrig.yaml").write_text(text.replace("args: []", "args: {}"))
    assert _args(capsys, "sweep") == ["--epochs=1", "--verbose=true"]


def _classes(base: type[errors.VertexrigError]) -> set[type[errors.VertexrigError]]:
    return {base}.union(*map(_classes, base.__subclasses__()))


def test_every_code_is_on_the_page() -> None:
    """docs/json.md has each error's code with its exit code, and no other."""
    import vertexrig.cli.problems
    import vertexrig.submit.budget
    import vertexrig.submit.claims

    assert vertexrig.submit.budget and vertexrig.submit.claims
    ours = {(one.code, one.exit_code) for one in _classes(errors.VertexrigError)}
    page = (REPOSITORY / "docs/json.md").read_text(encoding="utf-8")
    rows = {(code, int(number)) for code, number in re.findall(r"^\| `([a-z-]+)` \| (\d+) \|", page, re.MULTILINE)}
    assert rows == ours | {("file", 2), ("interrupted", 130)}


def test_wants_json() -> None:
    """JSON is asked for by the words of the command line, wherever they stand, but not behind `--`."""
    assert output.wants_json(["jobs", "--format", "json"]) and output.wants_json(["--format=json", "x"])
    assert not output.wants_json(["jobs", "--format", "text", "json"])
    assert not output.wants_json(["local", "run", "--", "gcloud", "--format=json"])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_program_that_is_started_has_all_three_streams(folder: Path, number: int) -> None:
    """Where a shell has closed a stream, the programs that a verb starts have it, too: on the null device."""
    code = (
        "import os, subprocess, sys; from vertexrig.cli import streams; streams.prepare(); "
        f"sys.exit(subprocess.run([sys.executable, '-c', 'import os; os.fstat({number})'], "
        "close_fds=True, stderr=None).returncode)"
    )
    done = subprocess.run(["bash", "-c", f'"$0" -c "$1" {number}>&-', sys.executable, code], cwd=folder, timeout=60)
    assert done.returncode == 0
