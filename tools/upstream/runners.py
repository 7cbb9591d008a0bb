"""How the tests of each suite are run, and how their reports are read."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.upstream.stage import STAND_INS, Stage
from tools.upstream.table import FAILED, HERE, NOT_RUN, PASSED, SKIPPED, Result, Row

MOST_SECONDS = 1500
"""Of one file."""
_MOST_REASON = 300
_COMMAND_FAILED = "Command failed: "
"""How Node's child_process begins its message."""
_JUNIT_OK = re.compile(r"^OK \((\d+) tests?\)", re.MULTILINE)
_JUNIT_FAILED = re.compile(r"^1\) (.*\n.*)", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Where a suite is.

    Args:
        stage: The local Vertex.
        checkout: The checkout that the user named.
        program: Python (or node, or java) that has what the suite imports.
    """

    stage: Stage
    checkout: Path
    program: str


@dataclass(frozen=True)
class Command:
    """A command that runs one file, and its report.

    Args:
        words: The command.
        report: The report that it writes.
        env: Variables beside the suite's.
        before: A command to run first.
    """

    words: list[str]
    report: Path
    env: Mapping[str, str]
    before: list[str] | None = None


@dataclass(frozen=True)
class Ran:
    """How a command ended.

    Args:
        code: Its exit code, None where it ran too long.
        output: What it printed.
        report: The report that it wrote.
        seconds: How long it took.
    """

    code: int | None
    output: str
    report: Path
    seconds: float


def run_file(place: Place, rows: Sequence[Row]) -> list[Result]:
    """Run one file as a whole, whose tests the rows are: tests of a class share state.

    Args:
        place: Where.
        rows: Of one suite and one file.
    """
    first = rows[0]
    make, read, missing = RUNNERS[first.suite.runner]
    folder = place.checkout / first.folder
    absent = missing(place, folder, first)
    if absent:
        return [Result(row, NOT_RUN, absent) for row in rows]
    command = make(place, rows)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **first.suite.env, **command.env}
    if command.before:
        _run(place.stage.local_run(command.before), folder, environment, _log(place, first, "-before"))
    log = _log(place, first)
    started = time.monotonic()
    code = _run(place.stage.local_run(command.words), folder, environment, log)
    output = log.read_text(encoding="utf-8", errors="replace")
    return read(rows, Ran(code, output, command.report, time.monotonic() - started))


def _log(place: Place, row: Row, more: str = "") -> Path:
    return place.stage.work / "logs" / f"{Path(row.file).name}{more}.log"


def _run(words: list[str], folder: Path, environment: Mapping[str, str], log: Path) -> int | None:
    """Return a command's exit code, None where it ran too long and was stopped."""
    with log.open("w") as out:
        process = subprocess.Popen(
            words, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise


def _no_file(place: Place, folder: Path, row: Row) -> str:
    return "" if (folder / row.file).is_file() else f"the checkout has no {row.folder}/{row.file}"


# pytest, and Airflow's, which are collected by pytest


def _pytest(place: Place, rows: Sequence[Row]) -> Command:
    row = rows[0]
    report = place.stage.work / "reports" / f"{Path(row.file).name}.xml"
    plugins = ["-p", "source_tree"] if "source-tree" in row.needs else []
    words = [place.program, "-m", "pytest", "-p", "no:cacheprovider", *plugins, f"--junit-xml={report}", row.file]
    return Command(words, report, {"PYTHONPATH": str(STAND_INS)})


def _airflow(place: Place, rows: Sequence[Row]) -> Command:
    row = rows[0]
    work = place.stage.work
    settings = work / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")  # the repository's own are for its test bed
    command = _pytest(place, rows)
    env = {
        "PYTHONPATH": str(place.checkout / "devel-common/src"),
        "AIRFLOW_HOME": str(work / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(place.checkout / row.folder / Path(row.file).parent),
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://",
    }
    words = [*command.words, "--noconftest", f"--config-file={settings}", f"--rootdir={place.checkout}"]
    return Command(words, command.report, env, before=[place.program, "-m", "airflow", "db", "migrate"])


def _read_pytest(rows: Sequence[Row], ran: Ran) -> list[Result]:
    cases = list(ET.parse(ran.report).getroot().iter("testcase")) if ran.report.is_file() else []
    found = {case.get("name", ""): case for case in cases}
    results = []
    for row in rows:
        case = found.get(row.test) if row.test else (cases[0] if cases else None)
        results.append(Result(row, FAILED, _last(ran), ran.seconds) if case is None else _of_case(row, case, cases))
    return results


def _of_case(row: Row, case: ET.Element, cases: Sequence[ET.Element]) -> Result:
    """Return the result of a test; an error of its teardown is a case of its own of the same name."""
    own = [
        one for one in cases if one.get("name") == case.get("name") and one.get("classname") == case.get("classname")
    ]
    seconds = sum(float(one.get("time", "0")) for one in own)
    for kind, result in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
        for one in own:
            found = one.find(kind)
            if found is not None:
                return Result(row, result, _line(found.get("message", "")), seconds)
    return Result(row, PASSED, "", seconds)


# groups of tests, of which only the count is shown


def _group(place: Place, rows: Sequence[Row]) -> Command:
    """Run a file whose tests reach Cloud Storage by its real name."""
    command = _pytest(place, rows)
    return Command([*command.words, "--timeout=120"], command.report, {})


def _emulator(place: Place, rows: Sequence[Row]) -> Command:
    """Run a file whose tests take an emulator's address."""
    command = _group(place, rows)
    return Command(["env", f"STORAGE_EMULATOR_HOST={place.stage.url}", *command.words], command.report, {})


def _retry(place: Place, rows: Sequence[Row]) -> Command:
    """Run a file whose tests ask for faults."""
    command = _group(place, rows)
    front = [sys.executable, str(HERE / "retry_front.py"), place.stage.url.partition("//")[2], "--"]
    return Command([*front, *command.words], command.report, {})


def _signatures(place: Place, rows: Sequence[Row]) -> Command:
    """Request the signed URLs of a file, by a test of ours."""
    row = rows[0]
    report = place.stage.work / "reports" / f"{Path(row.file).name}.xml"
    test = ["-p", "no:cacheprovider", f"--rootdir={HERE}", "--noconftest", f"--junit-xml={report}"]
    file = str(place.checkout / row.folder / row.file)
    return Command(
        [sys.executable, "-m", "pytest", *test, str(HERE / "signatures.py")], report, {"V4_SIGNATURES": file}
    )


def _read_groups(rows: Sequence[Row], ran: Ran) -> list[Result]:
    """Return the result of each group: it passes where as many tests passed as the row says."""
    cases = list(ET.parse(ran.report).getroot().iter("testcase")) if ran.report.is_file() else []
    results = []
    for row in rows:
        bad, skipped = set(), set()
        own = [one for one in cases if one.get("name", "").startswith(row.test)]
        for one in own:
            name = (one.get("classname"), one.get("name"))
            if one.find("failure") is not None or one.find("error") is not None:
                bad.add(name)
            elif one.find("skipped") is not None:
                skipped.add(name)
        ran_tests = {(one.get("classname"), one.get("name")) for one in own} - skipped
        passed = len(ran_tests - bad)
        counts = _counts(passed, len(ran_tests), len(skipped))
        result = PASSED if own and passed >= row.least else FAILED
        results.append(Result(row, result, counts if own else _last(ran), ran.seconds))
    return results


def _counts(passed: int, ran: int, skipped: int) -> str:
    return f"{passed} of {ran} passed" + (f", {skipped} skipped" if skipped else "")


# Go


def _go(place: Place, rows: Sequence[Row]) -> Command:
    """Run the tests of a package in a GOPATH, whose key file is that of the made-up account."""
    path = place.checkout.parent.parent.parent  # GOPATH/src/cloud.google.com/go
    env = {"GO111MODULE": "off", "GOPATH": str(path)}
    run = 'GCLOUD_TESTS_GOLANG_KEY=$GOOGLE_APPLICATION_CREDENTIALS exec "$0" test -v -timeout 20m -run "$1"'
    return Command(["sh", "-c", run, place.program, rows[0].test], place.stage.work / "reports/go", env)


def _no_go(place: Place, folder: Path, row: Row) -> str:
    return _no_file(place, folder, row) if shutil.which(place.program) else f"there is no {place.program}"


def read_go(rows: Sequence[Row], ran: Ran) -> list[Result]:
    found = re.findall(r"^--- (PASS|FAIL|SKIP): ", ran.output, re.MULTILINE)
    passed, failed, skipped = (found.count(one) for one in ("PASS", "FAIL", "SKIP"))
    reason = _counts(passed, passed + failed, skipped) if found else _last(ran)
    return [Result(row, PASSED if found and passed >= row.least else FAILED, reason, ran.seconds) for row in rows]


# mocha


def _mocha(place: Place, rows: Sequence[Row]) -> Command:
    row = rows[0]
    report = place.stage.work / "reports" / f"{Path(row.file).name}.json"
    words = [place.program, "node_modules/.bin/mocha", "--timeout=600000", "--reporter=json"]
    return Command([*words, f"--reporter-option=output={report}", row.file], report, {})


def _no_mocha(place: Place, folder: Path, row: Row) -> str:
    if not (folder / "node_modules/.bin/mocha").exists():
        return f"there is no mocha: run `npm install` in {row.folder}"
    return _no_file(place, folder, row)


def read_mocha(rows: Sequence[Row], ran: Ran) -> list[Result]:
    if not ran.report.is_file():
        return [Result(row, FAILED, _last(ran), ran.seconds) for row in rows]
    report = json.loads(ran.report.read_text(encoding="utf-8"))
    if report["failures"]:
        result, reason = FAILED, _line(report["failures"][0]["err"].get("message", ""))
    elif not report["passes"]:
        result, reason = SKIPPED, "its authors skip it"
    else:
        result, reason = PASSED, ""
    return [Result(row, result, reason, ran.seconds) for row in rows]


# JUnit


def _junit(place: Place, rows: Sequence[Row]) -> Command:
    row = rows[0]
    target = place.checkout / row.folder / "target"
    known = (target / "classpath.txt").read_text(encoding="utf-8").strip()
    path = os.pathsep.join([str(target / "test-classes"), str(target / "classes"), known])
    words = [place.program, "-cp", path, "org.junit.runner.JUnitCore", row.file]
    return Command(words, place.stage.work / "reports" / row.file, {})


def _no_classes(place: Place, folder: Path, row: Row) -> str:
    if shutil.which(place.program) is None:
        return f"there is no {place.program}"
    compiled = folder / "target/test-classes" / f"{row.file.replace('.', '/')}.class"
    missing = next((one for one in (compiled, folder / "target/classpath.txt") if not one.is_file()), None)
    return "" if missing is None else f"{missing.relative_to(place.checkout)} is missing: the tests are not compiled"


def read_junit(rows: Sequence[Row], ran: Ran) -> list[Result]:
    fine, broken = _JUNIT_OK.search(ran.output), _JUNIT_FAILED.search(ran.output)
    if ran.code == 0 and fine:
        result, reason = (PASSED, "") if int(fine[1]) else (SKIPPED, "its authors skip it")
    else:
        result, reason = FAILED, _line(broken[1].replace("\n", ": ")) if broken else _last(ran)
    return [Result(row, result, reason, ran.seconds) for row in rows]


def _line(message: str) -> str:
    """Return the first line of a message, and the next where the first only names a command that failed."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    shown = lines[: 2 if lines and lines[0].startswith(_COMMAND_FAILED) else 1]
    return (": ".join(shown) or "no message")[:_MOST_REASON]


def _last(ran: Ran) -> str:
    if ran.code is None:
        return f"stopped after {MOST_SECONDS} s"
    lines = [line.strip() for line in ran.output.splitlines() if line.strip()]
    return f"exit code {ran.code}: {lines[-1] if lines else 'no output'}"[:_MOST_REASON]


Runner = tuple[
    Callable[[Place, Sequence[Row]], Command],
    Callable[[Sequence[Row], Ran], list[Result]],
    Callable[[Place, Path, Row], str],
]
RUNNERS: Mapping[str, Runner] = {
    "pytest": (_pytest, _read_pytest, _no_file),
    "group": (_group, _read_groups, _no_file),
    "emulator": (_emulator, _read_groups, _no_file),
    "retry": (_retry, _read_groups, _no_file),
    "signatures": (_signatures, _read_groups, _no_file),
    "airflow": (_airflow, _read_pytest, _no_file),
    "go": (_go, read_go, _no_go),
    "mocha": (_mocha, read_mocha, _no_mocha),
    "junit": (_junit, read_junit, _no_classes),
}
"""By name: the command for a file, the reader of its report, and why it cannot be run ("" if it can)."""
PROGRAMS: Mapping[str, str] = {"go": "go", "mocha": "node", "junit": "java"}
"""What runs a suite's tests unless the user names another; Python suites need one that has what they import."""
