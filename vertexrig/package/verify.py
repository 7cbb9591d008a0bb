"""Whether a built package works where it will run: installed by pip, read, and its module imported in isolation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.source import Import, TrainerSource, read
from vertexrig.package.sources import Requirement, normalise, why_absent

INSTALL_TIMEOUT_S = 180
IMPORT_TIMEOUT_S = 60

SUPPLIED: Mapping[str, str] = {
    **dict.fromkeys(("tensorflow", "hypertune", "sympy", "pandas", "xgboost", "pythonjsonlogger", "webob", "paste", "mock"),
                    "package list of tf-cpu.2-17.py310, pre-built containers page, mirror of 2026-08-22"),
    **dict.fromkeys(("google", "googleapiclient"),
                    "google.cloud.storage: custom training code requirements page, mirror of 2026-08-22; google.protobuf: tensorflow"),
    **dict.fromkeys(("absl", "astunparse", "flatbuffers", "gast", "grpc", "h5py", "keras", "ml_dtypes", "numpy", "opt_einsum",
                     "packaging", "pkg_resources", "requests", "setuptools", "six", "tensorboard", "termcolor",
                     "typing_extensions", "wrapt"), "required by the tensorflow wheel (its metadata, 2.21.0)"),
    **dict.fromkeys(("dateutil", "pytz", "scipy"), "required by the image's pandas and xgboost"),
}  # fmt: skip
"""Top-level modules that a prebuilt TensorFlow image brings, and how that is known."""
SUPPLIED_ELSEWHERE = frozenset({"torch", "torchvision", "sklearn", "jax", "flax", "optax", "joblib", "ray", "lightgbm"})
"""Brought by some other image: allowed when the image's TensorFlow version is not given."""
IMPORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "cloudml-hypertune": ("hypertune",),
    "scikit-learn": ("sklearn",),
    "scikit-image": ("skimage",),
    "pillow": ("PIL",),
    "pyyaml": ("yaml",),
    "opencv-python": ("cv2",),
    "opencv-python-headless": ("cv2",),
    "absl-py": ("absl",),
    "protobuf": ("google",),
    "python-dateutil": ("dateutil",),
    "beautifulsoup4": ("bs4",),
    "grpcio": ("grpc",),
    "tf-models-official": ("official",),
    "tf-nightly": ("tensorflow",),
    "attrs": ("attr", "attrs"),
    "gitpython": ("git",),
    "msgpack-python": ("msgpack",),
    "python-json-logger": ("pythonjsonlogger",),
    "segmentation-models": ("segmentation_models",),
    "faiss-cpu": ("faiss",),
    "faiss-gpu": ("faiss",),
    "hydra-core": ("hydra",),
    "antlr4-python3-runtime": ("antlr4",),
    "umap-learn": ("umap",),
    "imbalanced-learn": ("imblearn",),
    "typed-argument-parser": ("tap",),
    "keras-tuner": ("keras_tuner", "kerastuner"),
    "pytorch-lightning": ("pytorch_lightning", "lightning"),
}
"""Distributions whose modules are named otherwise than themselves."""
# Only in newer or older Pythons than the prebuilt images' 3.10: name -> the version it came with, or left in.
_SINCE_3_11 = {"tomllib": "3.11"}
_UNTIL_3_11 = frozenset({"asynchat", "asyncore", "distutils", "imp", "smtpd"})
_UNTIL_3_12 = frozenset(
    {
        "aifc",
        "audioop",
        "cgi",
        "cgitb",
        "chunk",
        "crypt",
        "imghdr",
        "mailcap",
        "nntplib",
        "pipes",
        "sndhdr",
        "telnetlib",
        "uu",
    }
)
# Errors that real code raises whatever a stand-in returned; the others may be the stand-in's doing.
_CERTAIN = frozenset({"SyntaxError", "ImportError", "NameError", "OSError", "SystemExit"})


@dataclass(frozen=True)
class Verified:
    """What verification found: third-party modules imported that the image brings, that requirements bring; warnings."""

    supplied: tuple[str, ...]
    declared: tuple[str, ...]
    warnings: tuple[str, ...]


def clean_environment(home: Path) -> dict[str, str]:
    """An environment without the caller's Python settings, for child processes that must not see them."""
    keep = ("PATH", "SYSTEMROOT", "TMPDIR", "TEMP", "TMP", "LANG", "LC_ALL", "PYENV_VERSION")
    return {name: os.environ[name] for name in keep if name in os.environ} | {
        "HOME": str(home),
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": "315532800",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INPUT": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def run(
    command: Sequence[str], *, cwd: Path, home: Path, timeout: float, what: str
) -> subprocess.CompletedProcess[str]:
    """Runs a child process to its end; PackageError if it cannot start or takes longer than `timeout` seconds."""
    try:
        return subprocess.run(
            command, cwd=cwd, env=clean_environment(home), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise PackageError(f"{what} took longer than {timeout:.0f} s and was ended") from error
    except OSError as error:
        raise PackageError(f"{what} cannot start {command[0]!r}: {error.strerror}") from error


def reason(output: str) -> str:
    """The error line of a child's output, with the last traceback line before it that is in setup.py or the package."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [
        index for index, line in enumerate(lines) if re.match(r"([\w.]+(Error|Exception|Exit|Version)\b|error:)", line)
    ]
    # pip closes with lines of its own; the first error is the package's.
    chosen = next((i for i in errors if not lines[i].startswith("error: subprocess")), None)
    if chosen is None:
        return lines[-1] if lines else "no message"
    place = ""
    for line in lines[:chosen]:
        match = re.match(r'File "(?P<file>[^"]+)", line (?P<line>\d+)', line)
        if match and "site-packages" not in match["file"] and "<" not in match["file"]:
            place = f"{Path(match['file']).name}:{match['line']}: "
    return place + lines[chosen]


def install(archive: Path, target: Path, work: Path, python: str) -> None:
    """Installs an sdist as a container without egress does: pip, no index, no dependencies.

    Raises:
        PackageError: pip or setuptools is missing, or setup.py fails outside its own folder.
    """
    command = [python, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command += ["--no-compile", "--no-warn-script-location", "--target", str(target), str(archive)]
    done = run(command, cwd=work, home=work, timeout=INSTALL_TIMEOUT_S, what="installing the package")
    if done.returncode == 0:
        return
    output = done.stderr + "\n" + done.stdout
    if "No module named pip" in output:
        raise PackageError(f"pip is missing in {python}: run {python} -m ensurepip, or build with verify=False")
    hint = ""
    missing = re.search(r"No such file or directory: '([^']+)'", output)
    if missing:
        name = Path(missing[1]).name
        hint = f". setup.py reads {name}, which is not in the package: add 'include {name}' to MANIFEST.in"
    raise PackageError(f"the package cannot be installed: {reason(output)}{hint}")


def verify(
    target: Path,
    folder: Path,
    module: str,
    requirements: Sequence[Requirement],
    tf_version: str | None,
    python: str,
    work: Path,
) -> Verified:
    """Reads the installed trainer and imports its module in an interpreter that sees nothing but it.

    Args:
        target: Where the package is installed.
        folder: The trainer's sources, for hints.
        module: The module the job runs; it is imported, not run.
        requirements: What the package declares.
        tf_version: TensorFlow of the image, None if not known.
        python: The interpreter to import with.
        work: An empty folder for the child's files.

    Raises:
        PackageError: The module cannot be imported, with the trainer's own line.
    """
    source = read(target, module)
    for problem in source.problems:
        place = f"{problem.file}:{problem.line}: " if problem.line else f"{problem.file}: " if problem.file else ""
        raise PackageError(f"{place}{problem.message}{_hint(folder, module)}")
    _packages_have_init(target, folder, source)
    supplied, declared = _third_party(source, folder, requirements, tf_version)
    if source.work_at_import:
        work_place = source.work_at_import[0]
        warning = (
            f"{work_place.file}:{work_place.line}: {work_place.text} runs when the module is imported, so the module was "
            'read and not imported. Put that under if __name__ == "__main__":'
        )
        return Verified(supplied, declared, (warning,))
    warnings = _probe(target, folder, source, (*supplied, *declared), tf_version, python, work)
    return Verified(supplied, declared, warnings)


def _hint(folder: Path, module: str) -> str:
    why = why_absent(folder, module)
    return f". {why}" if why else ""


def _packages_have_init(target: Path, folder: Path, source: TrainerSource) -> None:
    """Every package of the modules read has an `__init__.py`: the documented form of a source distribution."""
    for file in source.files:
        parts = file.split("/")[:-1]
        for index in range(len(parts)):
            package = "/".join(parts[: index + 1])
            if not (target / package / "__init__.py").is_file():
                raise PackageError(
                    f"{package}/ has no __init__.py. Add an empty one: {file} is imported as part of that package"
                )


def _third_party(
    source: TrainerSource, folder: Path, requirements: Sequence[Requirement], tf_version: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Top-level modules the image brings and those the requirements bring; PackageError for one named nowhere."""
    known = _declared_modules(requirements)
    supplied: set[str] = set()
    declared: set[str] = set()
    for item in source.imports:
        top = item.module.split(".")[0]
        place = f"{item.file}:{item.line}"
        if item.kind == "missing" and not item.caught:
            raise PackageError(
                f"{place}: imports {item.module}, which is neither a module nor a name in the package{_hint(folder, item.module)}"
            )
        if item.kind == "stdlib" and tf_version is not None and not item.caught and top in _SINCE_3_11:
            raise PackageError(
                f"{place}: {top} came with Python {_SINCE_3_11[top]}; the newest prebuilt image has Python 3.10"
            )
        if item.kind != "other":
            continue
        if top.lower() in known:
            declared.add(top)
        elif _is_supplied(top, tf_version):
            supplied.add(top)
        elif not item.caught:
            raise PackageError(_named_nowhere(item, top, folder))
    return tuple(sorted(supplied)), tuple(sorted(declared))


def _declared_modules(requirements: Sequence[Requirement]) -> frozenset[str]:
    names: set[str] = set()
    for requirement in requirements:
        plain = normalise(requirement.name).replace("-", "_")
        names |= {plain, plain.split("_")[0] if plain.startswith("google_") else plain, plain.removeprefix("python_")}
        names |= {name.lower() for name in IMPORT_NAMES.get(normalise(requirement.name), ())}
    return frozenset(names)


def _is_supplied(top: str, tf_version: str | None) -> bool:
    older = top in _UNTIL_3_11 or top in _UNTIL_3_12
    return top in SUPPLIED or older or (tf_version is None and top in SUPPLIED_ELSEWHERE)


def _named_nowhere(item: Import, top: str, folder: Path) -> str:
    place = f"{item.file}:{item.line}"
    hint = _hint(folder, top)
    if hint:
        return f"{place}: imports {item.module}{hint}"
    names = [distribution for distribution, modules in IMPORT_NAMES.items() if top in modules]
    name = names[0] if names else top.replace("_", "-")
    return f"{place}: imports {top}, which neither the image nor the requirements bring. Add {name} to requirements.txt"


def _probe(
    target: Path,
    folder: Path,
    source: TrainerSource,
    stand_ins: Sequence[str],
    tf_version: str | None,
    python: str,
    work: Path,
) -> tuple[str, ...]:
    result = work / "import.json"
    order = {
        "target": str(target),
        "module": source.module,
        "stand_ins": sorted(stand_ins),
        "version": f"{tf_version or '2.17'}.0",
        "result": str(result),
    }
    probe = Path(__file__).with_name("import_probe.py")
    done = run(
        [python, "-I", "-S", "-B", str(probe), json.dumps(order)],
        cwd=work, home=work, timeout=IMPORT_TIMEOUT_S, what=f"importing {source.module}",
    )  # fmt: skip
    if not result.is_file():
        raise PackageError(
            f"importing {source.module} ended the interpreter (exit code {done.returncode}): {reason(done.stderr)}"
        )
    answer = json.loads(result.read_text(encoding="utf-8"))
    if answer["ok"]:
        return ()
    file, line, text = answer["place"]
    place = f"{file}:{line}: " if file else ""
    shown = f"{place}{answer['type']}: {answer['message']}" + (f" in: {text.strip()}" if text else "")
    certain = _CERTAIN & set(answer["kinds"]) and not (answer["starred"] and "NameError" in answer["kinds"])
    if certain or not answer["used"]:
        hint = _hint(folder, answer["name"]) if answer["type"] == "ModuleNotFoundError" and answer["name"] else ""
        raise PackageError(f"{source.module} cannot be imported: {shown}{hint}")
    warning = (
        f"{source.module} was imported with stand-ins for {', '.join(answer['used'])}, and ended with {shown}. "
        "That may be the stand-ins' doing: a rehearsal will tell"
    )
    return (warning,)


def default_python() -> str:
    """The interpreter packages are built and verified with."""
    return sys.executable
