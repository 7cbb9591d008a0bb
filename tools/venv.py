"""Create or update .venv: `python3 tools/venv.py TIER`. Each tier includes the tiers before it.

    base   packages to render and check
    cloud  packages to talk to Vertex AI, Cloud Storage and Cloud Scheduler
    local  packages to train on this machine: the local Vertex, TensorFlow and the Vertex AI SDK, for programs that use it
    all    packages for the tests, the linters and the benchmarks

`docs` and `release` are not tiers: they create build/venv-docs and build/venv-release, with the base and the packages of
tools/docs.txt or tools/release.txt.

uv installs the packages if it is there, pip otherwise, at the versions of constraints.txt. For the large tiers pip first installs a uv
into .venv; if that uv fails, pip goes on. Nothing is ever uninstalled, so a small tier leaves the packages of a larger one.
.venv/install.log has the output of the installer.
"""

from __future__ import annotations

import ast
import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
APART = ("docs", "release")
CPU_TENSORFLOW = "./tools/tensorflow_cpu"

#: tier -> its stamp in .venv, and the extras of setup.py that it installs
TIERS = {
    "base": (".base", ""),
    "cloud": (".cloud", "[submit,trigger]"),
    "local": (".local", "[all]"),
    "all": (".ready", "[dev]"),
}
TRAINS = ("local", "all")
#: tier -> commands that compile modules, the longest first; they run side by side. Those of `local` import what `make demo` imports,
#: which two cores do in less time than its verbs, one after the other. The tests start hundreds of processes, so all modules but
#: the packages' own tests are compiled for them, which takes a minute of CPU time.
COMPILE = {
    "base": (),
    "cloud": (),
    "local": (
        ["-c", "import google.cloud.aiplatform, google.cloud.storage, sklearn.ensemble, optuna, vl_convert"],
        ["-c", "import tensorflow, tf_keras"],
    ),
    "all": (["-m", "compileall", "-q", "-j", "0", "-x", "/tests/", ".venv/lib"],),
}
#: pip's setting -> uv's variable, and what separates several values
UV_SOURCES = {
    "index-url": ("UV_INDEX_URL", " "),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", ""),
}
SECONDS_BETWEEN_LINES = 10.0  # of progress, where the screen is a file


def requirements(tier: str, *, cpu_only: bool) -> list[str]:
    """Return the requirements of a tier, as words for pip and uv."""
    words = ["-e", f".{TIERS[tier][1]}"]
    return [*words, CPU_TENSORFLOW] if tier in TRAINS and cpu_only else words


def cpu_only(system: str, machine: str, *, gpu: bool) -> bool:
    """Whether to install tensorflow-cpu, which exists for x86-64 and saves 284 MiB on Linux only."""
    return system == "Linux" and machine == "x86_64" and not gpu


def installer(uv: str | None, python: Path = PYTHON) -> list[str]:
    """Return the install command without its requirements. It compiles nothing: most modules of large packages are rarely used."""
    if uv:
        return [uv, "pip", "install", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]


def uv_by_pip(log: Path) -> str | None:
    """Return the path of a uv that pip installs into .venv, since uv takes a quarter of pip's time for TensorFlow (15 s, 2026-11-28)."""
    command = [*installer(None), "-c", "constraints.txt", "--only-binary", "uv", "uv"]
    return str(VENV / "bin" / "uv") if attempt(command, log) == 0 else None


def sources_of_pip() -> dict[str, str]:
    """Return the variables by which uv installs from the indexes and folders that pip is configured to install from.

    They are for the uv that pip installs: one that the user has installed has settings of its own.
    """
    listed = subprocess.run([PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    found = {}
    # a variable of the environment, `:env:.index-url`, comes before what a file says
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        key, _, value = line.partition("=")
        variable, separator = UV_SOURCES.get(key.rpartition(".")[2], ("", ""))
        if variable:
            found[variable] = separator.join(ast.literal_eval(value).split())
    return {**found, "UV_INDEX_STRATEGY": "unsafe-best-match"} if found else {}  # as pip: the best of all indexes


def has_large_tensorflow() -> bool:
    """Whether the whole tensorflow is installed already, which then stays: tensorflow-cpu has files of the same names."""
    ask = "from importlib.metadata import version; print(version('tensorflow'))"
    done = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True)
    return done.returncode == 0 and not done.stdout.strip().endswith("+cpu")


def find_uv() -> str | None:
    """Return the path of a uv that runs; one on the PATH may be a shim for a Python without uv."""
    found = shutil.which("uv")
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode != 0:
        return None
    return found


def make(uv: str | None, log: Path, venv: Path = VENV) -> None:
    """Create an environment with pip, which rehearsals use."""
    python = venv / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0:
        return
    if uv:
        run([uv, "venv", "--seed", "--allow-existing", "--python", sys.executable, str(venv)], log)
    else:
        run([sys.executable, "-m", "venv", str(venv)], log)


def make_apart(name: str) -> None:
    """Create the separate environment of `docs` or `release`."""
    if name == "docs" and sys.version_info < (3, 11):
        sys.exit(
            f"zensical, which builds the site, needs Python 3.11 or newer; this is {platform.python_version()}. Name another Python: make docs PYTHON=python3.12"
        )
    venv, uv = Path("build") / f"venv-{name}", find_uv()
    venv.mkdir(parents=True, exist_ok=True)
    log = venv / "install.log"
    log.write_text("", encoding="utf-8")
    make(uv, log, venv)
    run([*installer(uv, venv / "bin" / "python"), "-c", "constraints.txt", "-e", ".", "-r", f"tools/{name}.txt"], log)
    (venv / ".ready").touch()


def run(command: Sequence[str], log: Path) -> None:
    """Run a command as `attempt` does. If it fails, exit with the log's last lines."""
    if code := attempt(command, log):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        sys.exit(
            "\n".join(
                [*lines[-20:], f"{' '.join(command[:4])} … ended with exit code {code}; {log} has its whole output"]
            )
        )


def attempt(command: Sequence[str], log: Path, newest: str = "", env: Mapping[str, str] | None = None) -> int:
    """Return the exit code of a command that is run with its output in the log and its newest line on the screen.

    Args:
        newest: What the screen shows until there is a line.
        env: More variables for the command; those of this process come before them.
    """
    begun = time.monotonic()
    show = screen(sys.stderr.isatty())
    with log.open("a", encoding="utf-8") as out, log.open(encoding="utf-8", errors="replace") as written:
        written.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**(env or {}), **os.environ})
        while True:
            try:
                code = process.wait(0.2)
            except subprocess.TimeoutExpired:
                code = None
            newest = next((line.strip() for line in reversed(written.readlines()) if line.strip()), newest)
            if code is not None:
                break
            show(time.monotonic() - begun, newest)
        show(None, "")
    return code


def screen(terminal: bool) -> Callable[[float | None, str], None]:
    """Return a function that shows seconds and a line: on a terminal one line that changes, elsewhere a new line every 10 s.

    Seconds of None clear the line.
    """
    last = 0.0

    def on_terminal(seconds: float | None, text: str) -> None:
        line = "" if seconds is None else f"  {seconds:3.0f} s  {text}"[: shutil.get_terminal_size().columns - 1]
        sys.stderr.write(f"\r\033[K{line}")
        sys.stderr.flush()

    def on_file(seconds: float | None, text: str) -> None:
        nonlocal last
        if seconds is not None and seconds - last >= SECONDS_BETWEEN_LINES:
            last = seconds
            sys.stderr.write(f"  {seconds:3.0f} s  {text}"[:120] + "\n")
            sys.stderr.flush()

    return on_terminal if terminal else on_file


def compile_used(tier: str, log: Path) -> None:
    """Compile our own modules, and those that the first commands import, so that later commands start fast.

    PYTHONDONTWRITEBYTECODE is ignored: it is meant for source folders, and without compiled modules every command would be slow.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    attempt([str(PYTHON), "-m", "compileall", "-q", "vertexrig", "templates"], log, "compiling modules")
    longest, *others = [*COMPILE[tier], ["-m", "vertexrig", "check"]]
    beside = [
        subprocess.Popen([PYTHON, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for words in others
    ]
    attempt([str(PYTHON), *longest], log, "compiling modules")
    for process in beside:
        process.wait()


def main() -> None:
    """Create the tier or environment that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in (*TIERS, *APART):
        sys.exit(f"usage: python3 tools/venv.py {'|'.join((*TIERS, *APART))}")
    tier = sys.argv[1]
    os.chdir(REPOSITORY)
    if tier in APART:
        return make_apart(tier)
    begun = time.monotonic()
    VENV.mkdir(exist_ok=True)
    with (VENV / ".setup-lock").open("w") as lock:  # .lock is uv's own
        fcntl.flock(lock, fcntl.LOCK_EX)  # `make -j` may ask for two tiers at a time
        log = VENV / "install.log"
        log.write_text("", encoding="utf-8")
        uv = find_uv()
        what = {"base": "", "cloud": "Google's clients", "local": "TensorFlow", "all": "TensorFlow and all tools"}[tier]
        print(f"setting up .venv{what and f': {what}'}, once", file=sys.stderr, flush=True)
        make(uv, log)
        light = cpu_only(platform.system(), platform.machine(), gpu=Path("/dev/nvidia0").exists())
        light = light and not has_large_tensorflow()
        words = ["-c", "constraints.txt", *requirements(tier, cpu_only=light)]
        by_pip = uv_by_pip(log) if tier in TRAINS and not uv else None
        # with the system's certificates, which include those of a company's proxy
        done = (
            by_pip is not None
            and attempt([*installer(by_pip), "--system-certs", *words], log, env=sources_of_pip()) == 0
        )
        if not done:
            run([*installer(uv), *words], log)
        compile_used(tier, log)
        (VENV / TIERS[tier][0]).touch()
    print(f"  .venv is ready, by {'uv' if done or uv else 'pip'}, {time.monotonic() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
