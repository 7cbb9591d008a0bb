"""Every verb of the Makefile, typed in a clean copy of the checkout, and what it leaves.

A copy holds what git would commit and nothing else. Its .venv has the files of the environment that runs the tests and
stamps of its own, so that nothing is installed; the tests of the set-up itself make environments anew.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests
import yaml

from localvertex.runner import engine
from tests.support import engines
from tests.support.functions import free_port
from tests.support.page_runs import copy_checkout
from tests.support.small_trainer import with_small_trainer
from tests.support.tools import REPOSITORY, installed, need
from tools import venv

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
JOBS = re.search(r"^JOBS := (.+)", MAKEFILE, re.MULTILINE)[1].split()  # type: ignore[index]
LEGACY = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "RUN", "SET", "TESTS", "PORT", "CI", "AGAIN")


@dataclass(frozen=True)
class Case:
    """One thing typed: `make` with these words.

    Args:
        words: What follows `make`.
        leaves: Files that must be there afterwards, as patterns below the copy.
        says: A pattern of its output, over lines.
        code: Its exit code.
        needs: A program without which it cannot be typed.
        look: A last look at the copy.
        whole: Whether it takes seconds of processor or waits for a registry: `make test` leaves it out.
    """

    words: str
    leaves: tuple[str, ...] = ()
    says: str = ""
    code: int = 0
    needs: str = "make"
    look: Callable[[Path], None] = field(default=lambda copy: None)
    whole: bool = False


def _yaml_of(name: str) -> Callable[[Path], None]:
    def look(copy: Path) -> None:
        assert yaml.safe_load((copy / f"build/jobs/{name}.yaml").read_text()), name

    return look


def _pages_unchanged(copy: Path) -> None:
    for page in ("project-file.md", "checks.md", "local-coverage.md", "fidelity.md"):
        assert (copy / "docs" / page).read_text() == (REPOSITORY / "docs" / page).read_text(), page


def _locked(copy: Path) -> None:
    text = (copy / "constraints.txt").read_text()
    assert text.startswith("# Every dependency") and re.search(r"^tensorflow==", text, re.MULTILINE)
    (copy / ".venv/.ready").touch()  # the set-up is for these versions, too: the next verb installs nothing


def rendered(name: str) -> Case:
    """A job's verb with a key and an argument overridden: one rule serves every job."""
    submit = rf"^gcloud ai custom-jobs create .*--config=build/jobs/{name}.yaml"
    return Case(f"{name}-job SET='timeout=60s args.epochs=2'", (f"build/jobs/{name}.yaml",), submit, look=_told(name))


def _told(name: str) -> Callable[[Path], None]:
    def look(copy: Path) -> None:
        job = yaml.safe_load((copy / f"build/jobs/{name}.yaml").read_text())
        assert job["scheduling"]["timeout"] == "60s"
        pool = job["workerPoolSpecs"][0]
        assert "--epochs=2" in (pool.get("pythonPackageSpec") or pool["containerSpec"])["args"]

    return look


def _epochs(copy: Path) -> None:
    for summary in copy.glob(".vertexrig/gs/*/runs/mine/**/summary.json"):
        assert json.loads(summary.read_text())["epochs"] == 2


def searched(name: str) -> Case:
    """A sweep's verb: one rule serves both sweeps."""
    submit = rf"^gcloud ai hp-tuning-jobs create .*--config=build/jobs/{name}.yaml"
    return Case(name, (f"build/jobs/{name}.yaml",), submit, look=_yaml_of(name))


ONE_TEST = "TESTS='tests/vertexrig/cli/test_errors.py -x' WORKERS=1"
OLD = "tests/trainer/test_trainer_package.py --collect-only -q"
BUILT = "tests/vertexrig/package/test_image_built.py --collect-only -q"
#: verb -> what is typed. Those not here are typed by a test of their own, in APART; the last two in test_site.py and test_release.py.
CASES: dict[str, list[Case]] = {
    "help": [Case("help", says=r"(?m)^  NAME-job .*"), Case("", says=r"(?s)^  demo .*^  test ")],
    **{f"{name}-job": [rendered(name)] for name in JOBS},
    "%-job": [  # a job that the Makefile has never heard of, a sweep by the same verb, and words that are wrong
        rendered("mine"),
        Case(
            "mine-job RUN=local SET=args.epochs=2",
            ("build/jobs/mine.yaml", ".vertexrig/gs/*/runs/mine/**/summary.json"),
            r"state +SUCCEEDED",
            look=_epochs,
        ),
        Case("sweep-job", ("build/jobs/sweep.yaml",), r"^gcloud ai hp-tuning-jobs create"),
        Case("nothing-job", says="nothing.*cpu", code=2),
        Case("cpu-job RUN=locally", says="RUN=locally is unknown; the choices are RUN=local.* RUN=cloud", code=2),
    ],
    "sweep": [
        searched("sweep"),
        Case(
            "sweep RUN=local SET=max_trial_count=2",
            (".vertexrig/gs/*/runs/sweep/**/summary.json",),
            r"(?s)(\d+ +SUCCEEDED.*){2}",
        ),
    ],
    "grid": [searched("grid")],
    "function": [
        Case("function", ("build/function/main.py", "build/function/requirements.txt"), r"^\S*build/function$")
    ],
    **{
        verb: [Case(verb, says=f"(?s){says}", whole=True)]
        for verb, says in {
            "demo-trigger": r"schedule apply.*'duplicate': True.*vertexrig best sweep.*registered vertexrig-\S+@1 at register",
            "demo-day-two": r"case 1: wrong-image.*case 7: paused.*vertexrig schedule resume paused.*over-budget",
            "demo-candidates": r"candidate 2 .*: quota: .*JOB_STATE_CANCELLED.*JOB_STATE_FAILED.*40 epochs, none twice: \d+ by candidate 3",
            "demo-approval": r"waits for approval.*approved by .*register digits --rollback.*'1': \['champion', 'default'\], '2': \[\]",
        }.items()
    },
    "demo-containers": [
        Case(
            "demo-containers VERTEXRIG_ENGINE=none",
            says=r"needs gcloud and an engine that runs containers, docker, podman or nerdctl \((engine is none|gcloud is not installed)\)\.$",
            code=2,
        )
    ],
    # the tests, lint and types of the whole are typed by .ci/run in a clean clone: here, what they would run
    "test": [
        Case(f"test {ONE_TEST}", says=r"\d+ passed"),
        Case("test --dry-run", says=r'pytest .*-m "not whole" *$'),
        Case(
            "test --dry-run TESTS='tests/repository/test_pages.py -k tutorial'",
            says=r"pytest -n \d+ --dist worksteal +(--reruns \d )?tests/repository/test_pages.py -k tutorial$",
        ),
    ],
    "test-all": [
        Case(
            "test-all --dry-run WORKERS=3 RERUNS=1",
            says=r"pytest -n 3 --dist worksteal --reruns 1 --durations=50 --durations-min=5 *$",
        ),
    ],
    "coverage": [
        Case("coverage --dry-run", says=r"not whole.*--cov=vertexrig --cov=localvertex"),
        Case(
            f"coverage {ONE_TEST} COVER=vertexrig/render", says=r"vertexrig/render/\S+ +\d[\s\S]*TOTAL +\d+", whole=True
        ),
    ],
    # it takes many minutes by itself: what it would run, and that an attack is longer with it
    "attack": [
        Case(
            "attack --dry-run",
            says=r"ATTACK=long .*pytest.* tests/attacks tests/vertexrig/submit/test_protocol\.py tests/vertexrig/submit/test_budget\.py",
        ),
        Case(
            "attack WORKERS=0 TESTS='tests/attacks/test_trigger.py --collect-only -q'",
            says=r"killed_under_load\S*\[29\]",
        ),
    ],
    # its installations take minutes: what it would run
    "test-clients": [
        Case(
            "test-clients --dry-run",
            says=r"tests\.clients\.install build/clients\n.*TEST_CLIENTS=\S+/build/clients .*pytest.* tests/clients",
        )
    ],
    "check": [Case("check --dry-run", says=r"(?s)ruff check.*mypy.*pytest")],
    "lint": [Case("lint --dry-run", says=r"(?s)ruff check.*ruff format --check")],
    "types": [Case("types --dry-run", says="mypy")],
    "bench": [
        Case("bench BENCH=tiny", says=r"(?m)^what +ours\n-+ +-+\nrow +1"),
        Case("bench BENCH=nothing", says="no benchmark 'nothing'. Choices: .*render", code=2),
    ],
    "fidelity": [Case("fidelity ROWS=enabled", says=r"(?m)^all +1 +1 +0 +0 +100.0 %$")],
    # TensorFlow 2.17 on Python 3.10 is set up by .ci/run; this Python stands in for it, and its tests are only named
    "test-old": [Case(f"test-old TESTS='{OLD}'", says=r"tests collected|tests/trainer/test_trainer_package.py")],
    "test-image": [Case(f"test-image TESTS='{BUILT}'", says="test_image_built")],  # buildah takes minutes: named only
    "reference": [Case("reference", ("docs/checks.md",), look=_pages_unchanged)],
    "lock": [Case("lock", ("constraints.txt",), needs="uv", look=_locked, whole=True)],
    # a whole set-up takes 1.9 GB: .ci/run makes it; the small one is made anew below
    "setup": [Case("setup", says=r"\A\s*\Z|Nothing to be done")],
    "wheel": [Case("wheel", ("dist/vertexrig-*.whl",), r"^dist/vertexrig-.*\.whl$")],
}
APART = {"clean", "demo", "serve-function", "docs", "release"}


def environment(copy: Path, **more: str) -> dict[str, str]:
    """What a user's shell has, with the copy's own sources first."""
    env = {name: value for name, value in os.environ.items() if name not in LEGACY}
    known = str(REPOSITORY / ".mypy_cache")  # of the same sources: a minute less
    return {**env, "PYTHONPATH": str(copy), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "MYPY_CACHE_DIR": known, **more}


def make(
    copy: Path, words: str, env: dict[str, str] | None = None, *, timeout: int = 900
) -> subprocess.CompletedProcess[str]:
    """Type it; stdout and stderr together, as on a screen."""
    return subprocess.run(
        ["sh", "-c", f"make --no-print-directory {words}"], cwd=copy, env=env or environment(copy), timeout=timeout,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def copied(folder: Path) -> Path:
    """What git would commit of the checkout, in a folder of its own."""
    need("make")
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no git checkout")
    copy_checkout(folder)
    return folder


def part(folder: Path, *names: str) -> Path:
    """A folder with these files of the checkout."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    return folder


def with_environment(copy: Path, stamp: str = ".ready") -> Path:
    """Give the copy the environment of the tests under a stamp of its own, newer than the copy."""
    venv = copy / ".venv"
    venv.mkdir()
    for entry in Path(sys.prefix).iterdir():
        if entry.name in ("bin", "lib", "lib64", "include", "pyvenv.cfg"):
            (venv / entry.name).symlink_to(entry)
    (venv / stamp).touch()
    return copy


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which jobs end at once."""
    return with_small_trainer(with_environment(copied(tmp_path_factory.mktemp("quick"))))


def held(case: Case, done: subprocess.CompletedProcess[str], copy: Path) -> None:
    """The case's expectations."""
    assert done.returncode == case.code, done.stdout[-4000:]
    assert re.search(case.says, done.stdout, re.MULTILINE), done.stdout[-4000:]
    missing = [pattern for pattern in case.leaves if not list(copy.glob(pattern))]
    assert not missing, f"{missing} are not there:\n{done.stdout[-4000:]}"
    case.look(copy)


def verbs() -> list[str]:
    """The verbs of the Makefile: its phony targets and its pattern rules."""
    phony = re.search(r"^\.PHONY: (.+)", MAKEFILE, re.MULTILINE)[1].split()  # type: ignore[index]
    patterns = re.findall(r"^(%[\w-]+):", MAKEFILE, re.MULTILINE)
    ruled = [word for line in re.findall(r"^([a-z][a-z -]*):(?!=)", MAKEFILE, re.MULTILINE) for word in line.split()]
    return sorted({*phony, *patterns, *ruled, *(f"{name}-job" for name in JOBS)} - {"FORCE"})


def test_every_verb_is_typed() -> None:
    """A verb of the Makefile without a case here fails, and so does a case without a verb."""
    assert sorted({*CASES, *APART}) == verbs()


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("tpu-jb", "make has no verb tpu-jb. Did you mean make tpu-job?"),
        ("xyzzy", "make has no verb xyzzy. make alone prints the verbs."),
    ],
)
def test_a_word_that_is_no_verb_names_the_nearest(word: str, answer: str) -> None:
    """In place of make's own message; nothing is set up for it."""
    done = subprocess.run(["make", word], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.splitlines()[0] == answer


ROWS = [
    pytest.param(case, id=case.words or "make", marks=[pytest.mark.whole] if case.whole else [])
    for every in CASES.values()
    for case in every
]


@pytest.mark.parametrize("case", ROWS)
def test_a_verb_does_what_it_says(quick: Path, case: Case) -> None:
    """The verb ends as it should, says what it should, and leaves the files it is for."""
    need(case.needs)
    for pattern in case.leaves:
        if pattern.startswith(("build/", ".vertexrig/", "dist/")):
            for file in quick.glob(pattern):
                file.unlink()
    held(case, make(quick, case.words), quick)


def test_clean_leaves_the_environment(tmp_path: Path) -> None:
    """`make clean` removes what verbs leave, not .venv."""
    part(tmp_path, "Makefile")
    for name in (".venv/bin", "build/jobs", "dist", ".vertexrig/gs", "man"):
        (tmp_path / name).mkdir(parents=True)
    assert make(tmp_path, "clean").returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"Makefile", ".venv"} and (tmp_path / ".venv/bin").exists()


@pytest.fixture(scope="module")
def cloud(quick: Path) -> Iterator[dict[str, str]]:
    """The environment of a copy that submits to a local Vertex, which the tests share."""
    home = {"HOME": str(quick), "PROJECT": "my-project", "BUCKET": "gs://my-project-vertexrig"}
    rig = [str(quick / ".venv/bin/vertexrig"), "local"]
    (quick / ".vertexrig/gs/my-project-vertexrig").mkdir(parents=True, exist_ok=True)
    env = environment(quick, **home)
    subprocess.run([*rig, "up", "--detach", "--port", "0"], cwd=quick, env=env, check=True, capture_output=True)
    try:
        lines = subprocess.run([*rig, "env"], cwd=quick, env=env, check=True, capture_output=True, text=True).stdout
        yield {**env, **dict(re.findall(r"export (\w+)=(\S+)", lines))}
    finally:
        subprocess.run([*rig, "down"], cwd=quick, env=env, capture_output=True)


@pytest.mark.whole
@pytest.mark.parametrize("verb", ["cpu-job", "sweep SET=max_trial_count=2"])
def test_run_cloud_submits(quick: Path, cloud: dict[str, str], verb: str) -> None:
    """RUN=cloud starts the job where the environment points: here a local Vertex, which then has it."""
    done = make(quick, f"{verb} RUN=cloud", cloud)
    assert done.returncode == 0, done.stdout[-3000:]
    kind = "customJobs" if verb == "cpu-job" else "hyperparameterTuningJobs"
    assert re.search(rf"projects/\d+/locations/us-central1/{kind}/\d+", done.stdout), done.stdout[-3000:]


@pytest.mark.whole
def test_the_demo_trains_and_ends_with_what_to_type(tmp_path: Path) -> None:
    """`make demo`, its trials shortened: the job reaches 0.97, no warning is said twice, an SDK program runs, its three lines work."""
    installed("tensorflow")
    copy = with_environment(copied(tmp_path), ".local")
    done = make(copy, "demo EPOCHS=1 TRIALS=2", environment(copy, PATH="/usr/local/bin:/usr/bin:/bin"))
    assert done.returncode == 0, done.stdout[-4000:]
    assert float(re.search(r"^accuracy +([\d.]+)", done.stdout, re.MULTILINE)[1]) >= 0.97  # type: ignore[index]
    assert len(re.findall(r"^ +\d+ +SUCCEEDED", done.stdout, re.MULTILINE)) == 2
    warnings = re.findall(r"warning\[.*", done.stdout)
    assert len(warnings) == len(set(warnings)) <= 1
    assert "All log messages before" not in done.stdout
    assert "wrote build/report.html" in done.stdout and (copy / "build/report.html").stat().st_size > 100_000
    assert re.search(r"^created: custom job \d+  digits  SUCCEEDED$", done.stdout, re.MULTILINE)
    assert (copy / ".vertexrig/gs/my-project-vertexrig/digits/model/model.joblib").exists()
    assert "vertexrig" not in (copy / "examples/unchanged/launch.py").read_text().replace("my-project-vertexrig", "")
    shown, _, last = done.stdout.partition("to type next\n")[2].partition("\n\n")
    lines = [line.partition("#")[0].strip() for line in shown.splitlines()]
    assert len(lines) == 3 and last.endswith("build/report.html\n")
    with_small_trainer(copy)
    for line in lines:
        shorter = line.replace("--trials 12", "--trials 2")
        typed = subprocess.run(
            ["sh", "-c", shorter], cwd=copy, env=environment(copy), capture_output=True, text=True, timeout=300
        )
        assert typed.returncode == 0, f"{line}\n{typed.stdout[-2000:]}{typed.stderr[-2000:]}"


@pytest.mark.whole
def test_the_demo_of_containers_runs_by_the_engine_of_this_machine(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make demo-containers` builds three images and trains in each, its study has four trials, and it leaves no image of its own."""
    need("gcloud")
    monkeypatch.delenv(engine.VARIABLE)
    if engine.find() is None:
        need("podman")
    done = make(quick, "demo-containers", environment(quick))
    assert done.returncode == 0, done.stdout[-4000:]
    by_docker, _, later = done.stdout.partition("REMOTE BUILD OUTPUT")
    assert "worker 1 with 2 workers" in by_docker and re.search(r"weight .*loss ", by_docker), by_docker
    assert "cloudai-autogenerated" in later, later
    assert len(re.findall(r"^trial \d: rate", done.stdout, re.MULTILINE)) == 4
    ended = re.findall(r"^created: \w+ job \d+  (\w+)  (\w+)$", done.stdout, re.MULTILINE)
    assert ended == [(name, "SUCCEEDED") for name in ("cluster", "study", "built", "packaged")]
    if "a folder of its own" in done.stdout:
        engines.use(engines.storage(), monkeypatch)
    found = engine.find()
    assert found is not None and "vertexrig-demo" not in found.call("images").stdout


@pytest.fixture
def served(quick: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """`make serve-function` on a free port, with the local Vertex that it starts on its own."""
    port = free_port()
    process = subprocess.Popen(
        ["make", "--no-print-directory", "serve-function", f"PORT={port}"], cwd=quick, env=environment(quick),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    yield port, process
    if process.poll() is None:
        os.killpg(process.pid, 2)
    process.communicate(timeout=60)
    subprocess.run([quick / ".venv/bin/vertexrig", "local", "down"], cwd=quick, env=environment(quick))


@pytest.mark.whole
def test_serve_function_answers(served: tuple[int, subprocess.Popen[str]]) -> None:
    """`make serve-function` needs nothing before it: the function answers a dry run with the job it would make."""
    port, process = served
    assert process.stdout is not None
    assert any(line.startswith("serving ") for line in process.stdout)
    answer = requests.post(f"http://127.0.0.1:{port}/", json={"run": "cpu", "dry_run": True}, timeout=60)
    assert answer.ok and "cpu" in answer.text, answer.text


def test_a_larger_set_up_stands_for_a_smaller(tmp_path: Path) -> None:
    """A verb that needs the smallest set-up installs nothing where any other is there."""
    part(tmp_path, "Makefile", "setup.py", "constraints.txt", "tools/venv.py", "tools/tensorflow_cpu/setup.py")
    (tmp_path / ".venv").mkdir()
    assert "tools/venv.py base" in make(tmp_path, "--dry-run tpu-job").stdout
    for stamp in (".base", ".cloud", ".local", ".ready"):
        (tmp_path / ".venv" / stamp).touch()
        done = make(tmp_path, "--dry-run tpu-job")
        assert "vertexrig render tpu" in done.stdout and "tools/venv.py" not in done.stdout, done.stdout
        (tmp_path / ".venv" / stamp).unlink()


@pytest.mark.whole
def test_a_fresh_copy_sets_itself_up(tmp_path: Path) -> None:
    """With an empty HOME the first verb installs what it needs, the second nothing; set up anew, by pip, it loses nothing."""
    path, copy, home = "/usr/local/bin:/usr/bin:/bin", copied(tmp_path / "copy"), tmp_path / "home"
    home.mkdir()
    (home / "uv").symlink_to(need("uv"))
    env = environment(copy, HOME=str(home), PATH=f"{home}:{path}")
    del env["PYTHONPATH"]
    verb = f"tpu-job PYTHON={getattr(sys, '_base_executable', sys.executable)}"
    fresh = make(copy, verb, env)
    assert fresh.returncode == 0, fresh.stdout
    assert ".venv is ready, by uv, " in fresh.stdout and "gcloud ai custom-jobs create" in fresh.stdout
    site = next((copy / ".venv").glob("lib/python*/site-packages"))
    assert (copy / ".venv/.base").exists() and not (site / "tensorflow").exists()
    assert "setting up" not in make(copy, verb, env).stdout
    of_a_larger_one = site / "more-1.0.dist-info"
    of_a_larger_one.mkdir()
    (of_a_larger_one / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 1.0\n")
    (of_a_larger_one / "RECORD").write_text("more-1.0.dist-info/METADATA,,\nmore-1.0.dist-info/RECORD,,\n")
    shutil.rmtree(next(site.glob("click-*.dist-info")))
    (copy / ".venv/.base").unlink()
    again = make(copy, verb, {**env, "PATH": path})
    assert again.returncode == 0 and ".venv is ready, by pip, " in again.stdout, again.stdout
    assert of_a_larger_one.exists() and list(site.glob("click-*.dist-info"))


@pytest.mark.whole
def test_pip_installs_a_uv_that_installs_from_where_pip_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The uv of pip runs. A package that only a folder of pip's own settings has is installed by it, and a company's index asked."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPOSITORY / "constraints.txt", tmp_path)
    venv.make(None, tmp_path / "log")
    program = venv.uv_by_pip(tmp_path / "log")
    assert program
    for name in [one for one in os.environ if one.startswith("PIP_") and ("INDEX" in one or "FIND_LINKS" in one)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert venv.sources_of_pip() == {}
    (tmp_path / "wheels").mkdir()
    wheel = tmp_path / "wheels/of_a_company-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(
            "of_a_company-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: of-a-company\nVersion: 1.0\n"
        )
        file.writestr("of_a_company-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("of_a_company-1.0.dist-info/RECORD", "")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nfind-links = {wheel.parent}\nindex-url = https://packages.example/old\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://packages.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example/simple https://b.example/simple")
    sources = venv.sources_of_pip()
    assert sources["UV_INDEX_URL"] == "https://packages.example/simple"
    assert sources["UV_EXTRA_INDEX_URL"] == "https://a.example/simple https://b.example/simple"
    command = [*venv.installer(program), "--offline", "of-a-company"]
    assert venv.attempt(command, tmp_path / "log", env=sources) == 0, (tmp_path / "log").read_text()
