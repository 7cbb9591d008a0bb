"""What of a trainer's folder goes into its package: the files, their requirements as shipped, and their hash."""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from configparser import Error as ConfigParserError
from configparser import RawConfigParser
from dataclasses import dataclass, field
from pathlib import Path

from vertexrig.errors import PackageError
from vertexrig.package.layouts import Layout, layout, with_requirements
from vertexrig.package.source import bare
from vertexrig.package.source.files import Tree, parse_module
from vertexrig.package.source.model import SourceProblem
from vertexrig.package.source.names import Code, walk

_FORMAT = b"vertexrig-package-1\n"
"""Part of every hash: raised when staging changes what the same sources become."""
DIGEST_LENGTH = 12
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "tests"})
_SKIPPED_AT_TOP = frozenset({"build", "dist", "test", "venv", "env"})
# Where trainers write when they run in their own folder: ours (outputs), and the defaults of PyTorch Lightning, MLflow,
# Weights & Biases and TensorBoard's examples. A folder with Python in it is source, whatever its name.
_RUN_OUTPUTS_AT_TOP = frozenset({"outputs", "runs", "logs", "checkpoints", "lightning_logs", "mlruns", "wandb"})
# pyproject.toml stays out: any of it makes pip build in isolation, which needs PyPI (measured with pip 21.3 to 26.0).
_SKIPPED_FILES_AT_TOP = frozenset(
    {"vertexrig.yaml", "pyproject.toml", "conftest.py", "tox.ini", "noxfile.py", "MANIFEST"}
)
_SKIPPED_ENDINGS = (".pyc", ".pyo", "~", ".swp", ".egg-info", ".egg-link", ".dist-info")
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_REQUIREMENT = re.compile(
    r"(?P<lead>\s*)(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*?(?P<extras>\[[^\]]*\])?"
    r"\s*?(?P<pin>[<>=!~(][^;#@]*?|@[^;#]*?)?\s*?(?P<marker>;[^#]*?)?(?P<comment>\s+#.*|\s*)"
)
_URL = re.compile(
    r"(?P<lead>\s*)(?:-e\s+|--editable[= ]\s*)?(?P<url>(?:(?:git|hg|svn|bzr)\+[a-z]+|https?|ssh)://[^\s#;]+)(?P<fragment>#\S*)?(?P<rest>\s.*)?"
)
_NAMED_URL = re.compile(
    r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*@\s*(?P<url>[a-z+]+:\S+)(?P<rest>\s.*)?"
)
_REQUIREMENT_FILE = re.compile(r"requirements[^/]*\.txt")
# Arguments of setup() whose lists are no requirements the container installs.
_OTHER_SETUP_LISTS = frozenset(
    {"keywords", "classifiers", "packages", "py_modules", "scripts", "extras_require", "tests_require"}
)
_BROUGHT = r"tensorflow(-cpu|-gpu|-intel|-macos)?|tf-nightly|protobuf"
IMAGE_PYTHON = 10
"""Minor version of Python 3 in the newest prebuilt TensorFlow image, tf-cpu.2-17.py310."""
FIRST_TF_KERAS = (2, 14)
"""tf-keras 2.14.1 is its first release (PyPI, 2026-11-21)."""


@dataclass(frozen=True)
class Requirement:
    """One declared requirement: normalised name, version pin as written, and where it stands.

    `sure` is False for a URL that does not say the name: it is guessed then.
    """

    name: str
    pin: str
    file: str
    line: int
    sure: bool = True


@dataclass(frozen=True)
class Sources:
    """The files of a package as they will be staged.

    Args:
        folder: The trainer's folder.
        files: Paths relative to it with `/`, sorted; each with its file.
        rewritten: New bytes for those that staging changes.
        name: The distribution's name as setup.py or setup.cfg says it plainly, else `trainer`.
        version: Its version likewise, else `0`.
        requirements: What it declares, after rewriting.
        refusals: Why the package must not be built.
        warnings: What is worth saying.
    """

    folder: Path
    files: tuple[tuple[str, Path], ...]
    rewritten: Mapping[str, bytes]
    name: str
    version: str
    requirements: tuple[Requirement, ...]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def digest(self) -> str:
        """A hash of every staged path and its bytes, the same for the same sources anywhere at any time."""
        total = hashlib.sha256(_FORMAT)
        for relative, path in self.files:
            data = self.rewritten.get(relative)
            content = _read(path, relative) if data is None else data
            name = relative.encode("utf-8", "surrogateescape")
            total.update(b"%d %d\n" % (len(name), len(content)))
            total.update(name)
            total.update(content)
        return total.hexdigest()[:DIGEST_LENGTH]


@dataclass
class _Notes:
    requirements: list[Requirement] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def gather(folder: Path, tf_version: str | None) -> Sources:
    """Lists a trainer's sources and rewrites the tf-keras requirement for an image's TensorFlow.

    Args:
        folder: The trainer's folder, in any of the layouts of `vertexrig.package.layouts`.
        tf_version: TensorFlow of the image (`2.17` or `2.17.1`); None if it is not known, as for a custom image.

    Raises:
        PackageError: There is no such folder, nothing in it to package, or a file cannot be read.
    """
    if bare.is_bare(folder):
        from vertexrig.package.around import gather_around

        return gather_around(folder, tf_version)
    minor = _minor(tf_version)
    if not folder.is_dir():
        raise PackageError(f"the trainer's folder {str(folder)!r} is not a folder")
    try:
        files = tuple(sorted(_walk(folder, "", (os.path.realpath(folder),))))
    except OSError as error:
        raise PackageError(f"the trainer's folder cannot be read: {error.strerror}: {error.filename}") from error
    by_path = dict(files)
    laid_out = layout(folder, by_path)
    notes = _Notes(warnings=list(laid_out.metadata.warnings) if laid_out.metadata else [])
    wanted = laid_out.metadata.requires_python if laid_out.metadata else ""
    least = re.search(r"(?:>=|~=|==|>)\s*3\.(\d+)", wanted)
    if minor is not None and least is not None and int(least[1]) > IMAGE_PYTHON:
        notes.refusals.append(
            f"pyproject.toml: it needs Python {wanted}, and the newest prebuilt image has 3.{IMAGE_PYTHON}, whose pip would "
            f'refuse the package. Write requires-python = ">=3.{IMAGE_PYTHON}", or use a custom image'
        )
    rewritten = _generated(laid_out, minor, notes)
    files = tuple(sorted({**by_path, **{name: folder / name for name in rewritten}}.items()))
    for relative, path in files:
        if relative in rewritten or (laid_out.alone and _REQUIREMENT_FILE.fullmatch(relative)):
            continue
        if relative in {"setup.py", "setup.cfg"} or _REQUIREMENT_FILE.fullmatch(relative):
            data = _read(path, relative)
            changed = _rewrite(relative, data, minor, notes)
            if changed != data:
                rewritten[relative] = changed
    name, version = _identity(by_path, rewritten)
    return Sources(
        folder, files, rewritten, name or "trainer", version or "0",
        tuple(notes.requirements), tuple(notes.refusals), tuple(notes.warnings),
    )  # fmt: skip


def _minor(tf_version: str | None) -> tuple[int, int] | None:
    if tf_version is None:
        return None
    match = re.fullmatch(r"(\d+)[.-](\d+)([.-].*)?", tf_version)
    if match is None:
        raise PackageError(f"TensorFlow version {tf_version!r} is not of the form 2.17 or 2.17.1")
    return int(match[1]), int(match[2])


def _read(path: Path, relative: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PackageError(f"{relative} of the trainer cannot be read: {error.strerror}") from error


def _generated(laid_out: Layout, minor: tuple[int, int] | None, notes: _Notes) -> dict[str, bytes]:
    """The files that staging adds for a layout without a setup.py of its own, its requirements held to the image."""
    texts = dict(laid_out.generated)
    if laid_out.dependencies:
        held = [_requirement(one.text, one.file, one.line, minor, notes) for one in laid_out.dependencies]
        texts["setup.cfg"] = with_requirements(texts["setup.cfg"], held)
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


def _walk(folder: Path, prefix: str, above: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _skipped(entry.name, at_top=not prefix, is_folder=entry.is_dir()):
                continue
            if entry.is_file():
                yield prefix + entry.name, Path(entry.path)
            elif entry.is_dir():
                if not prefix and _is_run_output(folder, entry.name):
                    continue
                real = os.path.realpath(entry.path)
                if real in above or os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
                    continue  # a link back up, or a virtual environment
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", (*above, real))


def _is_run_output(folder: Path, name: str) -> bool:
    """Whether a folder at the top is what a run of the trainer left: by its name, no Python in it, not in MANIFEST.in."""
    if name not in _RUN_OUTPUTS_AT_TOP:
        return False
    manifest = folder / "MANIFEST.in"
    if manifest.is_file() and re.search(rb"\b%b\b" % name.encode(), _read(manifest, "MANIFEST.in")):
        return False
    return not any(file.endswith(".py") for _, _, files in os.walk(folder / name) for file in files)


def _skipped(name: str, *, at_top: bool, is_folder: bool) -> bool:
    if name.startswith(".") or name.endswith(_SKIPPED_ENDINGS):
        return True
    if is_folder:
        return name in _SKIPPED_FOLDERS or (at_top and name in _SKIPPED_AT_TOP)
    return at_top and (name in _SKIPPED_FILES_AT_TOP or _TEST_FILE.fullmatch(name) is not None)


# Requirements


def normalise(name: str) -> str:
    """A distribution's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _rewrite(relative: str, data: bytes, minor: tuple[int, int] | None, notes: _Notes) -> bytes:
    if relative == "setup.py":
        return _rewrite_setup(data, minor, notes)
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    inside = relative != "setup.cfg"
    for index, line in enumerate(lines):
        body = line.rstrip("\r\n")
        if relative == "setup.cfg" and re.match(r"\S", body):
            inside = re.match(r"install_requires\s*[=:]", body) is not None
            continue
        if inside and not re.match(r"\s*(#|-(?!e\s|-editable))", body):
            lines[index] = _requirement(body, relative, index + 1, minor, notes) + line[len(body) :]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _rewrite_setup(data: bytes, minor: tuple[int, int] | None, notes: _Notes) -> bytes:
    tree = parse_module(data, "setup.py")
    if isinstance(tree, SourceProblem):
        raise PackageError(f"setup.py:{tree.line or 1}: {tree.message}")
    others: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _OTHER_SETUP_LISTS:
            others |= {id(part) for part in ast.walk(node.value)}
    lines = data.splitlines(keepends=True)
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.List, ast.Tuple)) and id(node) not in others:
            found += [item for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    # From the end backwards, so that columns before a change stay right. Columns count UTF-8 bytes.
    for item in sorted(found, key=lambda item: (item.lineno, item.col_offset), reverse=True):
        text = str(item.value)
        new = _requirement(text, "setup.py", item.lineno, minor, notes)
        if new != text and item.end_lineno == item.lineno and item.end_col_offset is not None:
            line = lines[item.lineno - 1]
            lines[item.lineno - 1] = line[: item.col_offset] + repr(new).encode() + line[item.end_col_offset :]
    return b"".join(lines)


def _requirement(text: str, file: str, line: int, minor: tuple[int, int] | None, notes: _Notes) -> str:
    """Notes one requirement, and returns it with tf-keras held to the image's TensorFlow."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        return _from_url(text, file, line, minor, notes)
    name, pin = normalise(match["name"]), (match["pin"] or "").strip()
    notes.requirements.append(Requirement(name, pin, file, line))
    place = f"{file}:{line}"
    if re.fullmatch(_BROUGHT, name):
        _judge_pin(name, pin, place, minor, notes)
    if name != "tf-keras" or minor is None:
        return text
    if minor < FIRST_TF_KERAS:
        notes.refusals.append(
            f"{place}: tf-keras has no release for TensorFlow {minor[0]}.{minor[1]}. "
            "Leave it out: before 2.16, tf.keras is Keras 2 itself"
        )
        return text
    release = f"{minor[0]}.{minor[1]}"
    if re.fullmatch(rf"(==|~=)\s*{re.escape(release)}\.\d+(\.\*)?|==\s*{re.escape(release)}\.\*", pin):
        return text
    if pin.startswith("=="):
        notes.warnings.append(
            f"{place}: tf-keras{pin} does not go with the image's TensorFlow {release}: built with ~={release}.0"
        )
    extras, marker, comment = match["extras"] or "", match["marker"] or "", match["comment"]
    return f"{match['lead']}{match['name']}{extras}~={release}.0{marker}{comment}"


def _from_url(text: str, file: str, line: int, minor: tuple[int, int] | None, notes: _Notes) -> str:
    """Notes a requirement that comes from a URL. One that only names itself by `#egg=` gets the form that setup() takes."""
    named, bare = _NAMED_URL.fullmatch(text), _URL.fullmatch(text)
    if named is not None:
        name = normalise(named["name"])
        notes.requirements.append(Requirement(name, f"@ {named['url']}", file, line))
        if re.fullmatch(_BROUGHT, name):
            _judge_pin(name, f"@ {named['url']}", f"{file}:{line}", minor, notes)
        return text
    if bare is None:
        return text
    options = dict(part.partition("=")[::2] for part in (bare["fragment"] or "").lstrip("#").split("&"))
    given = re.sub(r"\[.*", "", options.get("egg", ""))
    url = bare["url"]
    notes.requirements.append(Requirement(normalise(given or _guessed(url)), f"@ {url}", file, line, sure=bool(given)))
    if not given:
        return text
    folder = f"#subdirectory={options['subdirectory']}" if options.get("subdirectory") else ""
    return f"{bare['lead']}{options['egg']} @ {url}{folder}{bare['rest'] or ''}"


def _guessed(url: str) -> str:
    """A distribution's likely name by its URL: the repository's name, or the file's up to its version."""
    last = re.sub(r"@[^/]*$", "", url.rstrip("/")).rpartition("/")[2]
    return re.sub(r"\.git$|-\d.*$|\.(zip|whl|tar\.gz)$", "", last) or "unknown"


def _judge_pin(name: str, pin: str, place: str, minor: tuple[int, int] | None, notes: _Notes) -> None:
    what = f"{place}: {name}{pin}"
    advice = f"The image brings its own {name}; remove the line"
    binding = bool(re.search(r"==|~=|<|@|!=", pin))
    if binding and minor is not None:
        notes.refusals.append(f"{what} would replace the image's {name} at start-up or conflict with it. {advice}")
    else:
        notes.warnings.append(
            f"{what}: {advice}" if minor is not None else f"{what}: an image with TensorFlow brings its own"
        )


# Name and version, without running setup.py


def _identity(files: Mapping[str, Path], generated: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    given: dict[str, str | None] = {"name": None, "version": None}
    if "setup.py" in files:
        given = _setup_identity(files)
    text = generated.get("setup.cfg")
    if text is None:
        text = _read(files["setup.cfg"], "setup.cfg") if "setup.cfg" in files else b""
    configured = _configured(text)
    return given["name"] or configured.get("name"), given["version"] or configured.get("version")


def _setup_identity(files: Mapping[str, Path]) -> dict[str, str | None]:
    tree = parse_module(_read(files["setup.py"], "setup.py"), "setup.py")
    if isinstance(tree, SourceProblem):
        raise PackageError(f"setup.py:{tree.line or 1}: {tree.message}")
    setup = walk("setup", "setup.py", tree, is_package=False)
    source = Tree(folder=files["setup.py"].parent)
    modules = [setup]
    for item in setup.imports:
        path = source.find(item.module)
        parsed = parse_module(source.read(path) or b"", path) if path else None
        if path and isinstance(parsed, ast.Module):
            modules.append(walk(item.module, path, parsed, is_package=path.endswith("__init__.py")))
    code = Code(modules)
    given: dict[str, str | None] = {"name": None, "version": None}
    for call in code.callers("setup"):
        for keyword in call.node.keywords:
            if keyword.arg in given:
                texts = code.texts(keyword.value, call.scope, call.module)
                given[keyword.arg] = texts[0] if texts and len(texts) == 1 else None
    return given


def _configured(text: bytes) -> dict[str, str]:
    """Plain values of setup.cfg's [metadata]; `attr:` and `file:` are left to the build."""
    config = RawConfigParser()
    try:
        config.read_string(text.decode("utf-8", "replace"))
    except ConfigParserError as error:
        raise PackageError(f"setup.cfg cannot be read: {str(error).splitlines()[0]}") from error
    values = dict(config["metadata"]) if config.has_section("metadata") else {}
    return {key: value for key, value in values.items() if not value.startswith(("attr:", "file:"))}


def why_absent(folder: Path, module: str) -> str:
    """Why a module that is in the trainer's folder is not in its package; empty if it is not in the folder."""
    parts = module.split(".")
    for root in ("", "src/"):
        stem = root + "/".join(parts)
        if not ((folder / f"{stem}.py").is_file() or any((folder / stem).glob("*.py"))):
            continue
        if _SKIPPED_FOLDERS & set(parts):
            return "It is in the folder, but folders named tests are left out of the package"
        for count in range(1, len(parts) + 1):
            package = root + "/".join(parts[:count])
            if (folder / package).is_dir() and not (folder / package / "__init__.py").is_file():
                return f"{package}/ has no __init__.py, so it is not packaged: add an empty one"
        if len(parts) == 1 and not (folder / stem).is_dir():
            return f"It is in the folder, but not packaged: add py_modules=['{module}'] to setup(), or move it into a package"
        return "It is in the folder, but not packaged: use packages=find_packages() in setup()"
    return ""
