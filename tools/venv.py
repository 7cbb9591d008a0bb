"""Makes .venv, or brings it up to date: `python3 tools/venv.py TIER`. Each tier holds all that the ones before it hold.

    base   what renders and checks
    cloud  and what talks to Vertex AI, Cloud Storage and Cloud Scheduler
    local  and what trains on this machine: the local Vertex, TensorFlow and the Vertex AI SDK, for programs that use it
    all    and what the tests, the linters and the benchmarks need

What builds the site, or a release, is no tier: `docs` and `release` make build/venv-docs and build/venv-release: the
base, and what tools/docs.txt or tools/release.txt names.

uv installs where there is one, pip otherwise; both at the versions of constraints.txt. Nothing is ever uninstalled, so a
small tier leaves what a larger one has put there. `install.log` there has the installer's output.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    "local": (".local", "[submit,trigger,local,report,trainer,sdk]"),
    "all": (".ready", "[dev]"),
}
TRAINS = ("local", "all")
#: What is compiled, or run so that its modules are. The tests start hundreds of processes, so all of it is compiled for
#: them, which takes a minute of CPU, but for the packages' own tests; the trainer's processes do it by themselves.
USED = {"all": ["-m", "compileall", "-q", "-j", "0", "-x", "/tests/", ".venv/lib"]}
SECONDS_BETWEEN_LINES = 10.0  # of progress, where the screen is a file


def requirements(tier: str, *, cpu_only: bool) -> list[str]:
    """Return what a tier installs, as words for pip and uv."""
    words = ["-e", f".{TIERS[tier][1]}"]
    return [*words, CPU_TENSORFLOW] if tier in TRAINS and cpu_only else words


def cpu_only(system: str, machine: str, *, gpu: bool) -> bool:
    """Tell whether tensorflow-cpu is the TensorFlow for this machine: it exists for x86-64, and saves 284 MiB on Linux only."""
    return system == "Linux" and machine == "x86_64" and not gpu


def installer(uv: str | None, python: Path = PYTHON) -> list[str]:
    """Return the command before the requirements. Nothing is compiled here: most modules of large packages are rarely used."""
    if uv:
        return [uv, "pip", "install", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]


def has_large_tensorflow() -> bool:
    """Tell whether the whole tensorflow is here already. Its files have the names of tensorflow-cpu's: it stays."""
    ask = "from importlib.metadata import version; print(version('tensorflow'))"
    done = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True)
    return done.returncode == 0 and not done.stdout.strip().endswith("+cpu")


def find_uv() -> str | None:
    """Return a uv that runs (one on the path may be a shim for a Python that has none)."""
    found = shutil.which("uv")
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode != 0:
        return None
    return found


def make(uv: str | None, log: Path, venv: Path = VENV) -> None:
    """Make an environment with pip in it: rehearsals install packages with it."""
    python = venv / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import pip"], capture_output=True).returncode == 0:
        return
    if uv:
        run([uv, "venv", "--seed", "--allow-existing", "--python", sys.executable, str(venv)], log)
    else:
        run([sys.executable, "-m", "venv", str(venv)], log)


def make_apart(name: str) -> None:
    """Make the environment of a verb that shares none."""
    if name == "docs" and sys.version_info < (3, 11):
        sys.exit(
            f"zensical, which builds the site, needs Python 3.11 or newer; this is {platform.python_version()}. Name another one: make docs PYTHON=python3.12"
        )
    venv, uv = Path("build") / f"venv-{name}", find_uv()
    venv.mkdir(parents=True, exist_ok=True)
    log = venv / "install.log"
    log.write_text("", encoding="utf-8")
    make(uv, log, venv)
    run([*installer(uv, venv / "bin" / "python"), "-c", "constraints.txt", "-e", ".", "-r", f"tools/{name}.txt"], log)
    (venv / ".ready").touch()


def run(command: Sequence[str], log: Path) -> None:
    """Run a command, its output in the log and its newest line on the screen; end with the log's end if it fails."""
    begun = time.monotonic()
    show = screen(sys.stderr.isatty())
    with log.open("a", encoding="utf-8") as out, log.open(encoding="utf-8", errors="replace") as written:
        written.seek(0, os.SEEK_END)
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        newest = ""
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
    if code != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        sys.exit("\n".join([*lines[-20:], f"{' '.join(command[:4])} … ended with {code}; all of it is in {log}"]))


def screen(terminal: bool) -> Callable[[float | None, str], None]:
    """Show seconds and a line: one line that changes on a terminal, a line now and then elsewhere. None: it is over."""
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


def compile_used(tier: str) -> None:
    """Compile our own modules and run what is used first, so that it starts fast afterwards.

    PYTHONDONTWRITEBYTECODE is for source folders; an environment without compiled modules is slow for good.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    commands = [["-m", "compileall", "-q", "vertexrig", "templates"], ["-m", "vertexrig", "check"]]
    commands += [USED[tier]] if tier in USED else []
    for words in commands:
        subprocess.run([PYTHON, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> None:
    """Make the tier that is named."""
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
        print(f"setting up .venv with {'uv' if uv else 'pip'}{what and f': {what}'}, once", file=sys.stderr, flush=True)
        make(uv, log)
        light = cpu_only(platform.system(), platform.machine(), gpu=Path("/dev/nvidia0").exists())
        light = light and not has_large_tensorflow()
        run([*installer(uv), "-c", "constraints.txt", *requirements(tier, cpu_only=light)], log)
        compile_used(tier)
        (VENV / TIERS[tier][0]).touch()
    print(f"  .venv is ready, {time.monotonic() - begun:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
