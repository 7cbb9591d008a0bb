"""Requirements of a trainer: read from its files, and adjusted to what the image brings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from vertexrig.errors import PackageError
from vertexrig.package.image_modules import normalise
from vertexrig.trainer_source.source_tree import parse_module
from vertexrig.trainer_source.trainer_model import SourceProblem

REQUIREMENTS = "requirements.txt"
REQUIREMENT_FILE = re.compile(r"requirements[^/]*\.txt")
# Not packaging's parser: the parts that are not changed, blanks and comment too, have to come out as they were.
_REQUIREMENT = re.compile(
    r"(?P<lead>\s*)(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*?(?P<extras>\[[^\]]*\])?"
    r"\s*?(?P<pin>[<>=!~(][^;#@]*?|@[^;#]*?)?\s*?(?P<marker>;[^#]*?)?(?P<comment>\s+#.*|\s*)"
)
_URL = r"(?P<lead>\s*)(?:-e\s+|--editable[= ]\s*)?(?P<url>(?:(?:git|hg|svn|bzr)\+[a-z]+|https?|ssh)://[^\s#;]+)(?P<fragment>#\S*)?(?P<rest>\s.*)?"
_NAMED_URL = r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*@\s*(?P<url>[a-z+]+:\S+)(?P<rest>\s.*)?"
# Arguments of setup() whose lists the container does not install.
_OTHER_SETUP_LISTS = frozenset(
    {"keywords", "classifiers", "packages", "py_modules", "scripts", "extras_require", "tests_require"}
)
# A pin of these can make pip replace what the image's framework was built with.
_BROUGHT = r"tensorflow(-cpu|-gpu|-intel|-macos)?|tf-nightly|protobuf"
# The image has its own copy of these. A requirements.txt that was not written for packaging often names them.
_LEFT_OUT = _BROUGHT + "|keras"
_LEFT_OUT_ELSEWHERE = r"torch|torchvision|torchaudio|xgboost|jax|jaxlib|numpy"
_MODULES = {"sklearn": "scikit-learn", "pil": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml"}
"""Modules that are required by their own names, and the distributions that have them. PyPI has nothing of the names that can be
installed (pip, run 2026-11-30)."""
FIRST_TF_KERAS = (2, 14)
"""tf-keras 2.14.1 is its first release (PyPI, 2026-11-21)."""


@dataclass(frozen=True)
class Requirement:
    """One declared requirement: normalised name, version pin as written, and its place.

    `sure` is False for a URL without a name: the name is guessed then.
    """

    name: str
    pin: str
    file: str
    line: int
    sure: bool = True


@dataclass
class Notes:
    """What was found while requirements were read: they themselves, reasons to refuse the package, warnings.

    `left_out` has the warnings about requirements with a version that are left out, as `Sources.left_out`.
    """

    requirements: list[Requirement] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def version_of_image(tf_version: str | None) -> tuple[int, int] | None:
    """Major and minor version of an image's TensorFlow, from `2.17` or `2.17.1`."""
    if tf_version is None:
        return None
    match = re.fullmatch(r"(\d+)[.-](\d+)([.-].*)?", tf_version)
    if match is None:
        raise PackageError(f"TensorFlow version {tf_version!r} is not of the form 2.17 or 2.17.1")
    return int(match[1]), int(match[2])


def rewrite(relative: str, data: bytes, image_tf: tuple[int, int] | None, notes: Notes) -> bytes:
    """Note the requirements of a setup.py, setup.cfg or requirements file; return the file with each as `adjusted` returns it."""
    if relative == "setup.py":
        return _rewrite_setup(data, image_tf, notes)
    # surrogateescape and keepends: bytes that are not UTF-8, and line ends, come out as they went in
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    inside = relative != "setup.cfg"
    for index, line in enumerate(lines):
        body = line.rstrip("\r\n")
        if relative == "setup.cfg" and re.match(r"\S", body):
            inside = re.match(r"install_requires\s*[=:]", body) is not None
            continue
        # options of pip are left as they are, but for -e, which names a requirement
        if inside and not re.match(r"\s*(#|-(?!e\s|-editable))", body):
            lines[index] = adjusted(body, relative, index + 1, image_tf, notes) + line[len(body) :]
    return "".join(lines).encode("utf-8", "surrogateescape")


def setup_tree(data: bytes) -> ast.Module:
    """Return a setup.py as a syntax tree; PackageError if it is none."""
    tree = parse_module(data, "setup.py")
    if isinstance(tree, SourceProblem):
        raise PackageError(f"setup.py:{tree.line or 1}: {tree.message}")
    return tree


def _rewrite_setup(data: bytes, image_tf: tuple[int, int] | None, notes: Notes) -> bytes:
    tree = setup_tree(data)
    others: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _OTHER_SETUP_LISTS:
            others |= {id(part) for part in ast.walk(node.value)}
    lines = data.splitlines(keepends=True)
    found: list[ast.Constant] = []
    for node in ast.walk(tree):
        # Any list of texts, not install_requires alone: requirements are often a variable that setup() is given.
        if isinstance(node, (ast.List, ast.Tuple)) and id(node) not in others:
            found += [item for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    # From the end backwards, so that columns before a change stay right. Columns count UTF-8 bytes.
    for item in sorted(found, key=lambda item: (item.lineno, item.col_offset), reverse=True):
        text = str(item.value)
        new = adjusted(text, "setup.py", item.lineno, image_tf, notes)
        if new != text and item.end_lineno == item.lineno and item.end_col_offset is not None:
            line = lines[item.lineno - 1]
            lines[item.lineno - 1] = line[: item.col_offset] + repr(new).encode() + line[item.end_col_offset :]
    return b"".join(lines)


def adjusted(text: str, file: str, line: int, image_tf: tuple[int, int] | None, notes: Notes) -> str:
    """Note one requirement; return it with tf-keras pinned to the image's TensorFlow, and a URL as `_from_url` returns it."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        return _from_url(text, file, line, image_tf, notes)
    name, pin = normalise(match["name"]), (match["pin"] or "").strip()
    notes.requirements.append(Requirement(name, pin, file, line))
    place = f"{file}:{line}"
    if re.fullmatch(_BROUGHT, name):
        _judge_pin(name, pin, place, image_tf, notes)
    if name in _MODULES:
        notes.refusals.append(f"{place}: PyPI has no {match['name']} that pip can install. Write {_MODULES[name]}")
    if name != "tf-keras" or image_tf is None:
        return text
    if image_tf < FIRST_TF_KERAS:
        notes.refusals.append(
            f"{place}: tf-keras has no release for TensorFlow {image_tf[0]}.{image_tf[1]}. "
            "Leave it out: before 2.16, tf.keras is Keras 2 itself"
        )
        return text
    release = f"{image_tf[0]}.{image_tf[1]}"
    # already pinned to this minor version, maybe to one patch of it
    if re.fullmatch(rf"(==|~=)\s*{re.escape(release)}\.\d+(\.\*)?|==\s*{re.escape(release)}\.\*", pin):
        return text
    if pin.startswith("=="):
        notes.warnings.append(
            f"{place}: tf-keras{pin} conflicts with the image's TensorFlow {release}; the package requires tf-keras~={release}.0 instead"
        )
    extras, marker, comment = match["extras"] or "", match["marker"] or "", match["comment"]
    return f"{match['lead']}{match['name']}{extras}~={release}.0{marker}{comment}"


def _from_url(text: str, file: str, line: int, image_tf: tuple[int, int] | None, notes: Notes) -> str:
    """Note a requirement that comes from a URL. One that only names itself by `#egg=` gets the form that setup() takes."""
    named, bare = re.fullmatch(_NAMED_URL, text), re.fullmatch(_URL, text)
    if named is not None:
        name = normalise(named["name"])
        notes.requirements.append(Requirement(name, f"@ {named['url']}", file, line))
        if re.fullmatch(_BROUGHT, name):
            _judge_pin(name, f"@ {named['url']}", f"{file}:{line}", image_tf, notes)
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
    """Return a distribution's likely name by its URL: the repository's name, or the file's up to its version."""
    last = re.sub(r"@[^/]*$", "", url.rstrip("/")).rpartition("/")[2]
    return re.sub(r"\.git$|-\d.*$|\.(zip|whl|tar\.gz)$", "", last) or "unknown"


def _judge_pin(name: str, pin: str, place: str, image_tf: tuple[int, int] | None, notes: Notes) -> None:
    what = f"{place}: {name}{pin}"
    advice = f"The image brings its own {name}; remove the line"
    # a lower bound alone leaves the image's version in place as long as it is new enough
    binding = bool(re.search(r"==|~=|<|@|!=", pin))
    if binding and image_tf is not None:
        notes.refusals.append(f"{what} would replace the image's {name} at start-up or conflict with it. {advice}")
    else:
        notes.warnings.append(
            f"{what}: {advice}" if image_tf is not None else f"{what}: an image with TensorFlow brings its own"
        )


def left_out(text: str, image_tf: tuple[int, int] | None) -> bool:
    """Whether a requirement is one that the image brings: of TensorFlow if it has that, else of the other frameworks."""
    match = _REQUIREMENT.fullmatch(text)
    brought = _LEFT_OUT_ELSEWHERE if image_tf is None else _LEFT_OUT
    return match is not None and re.fullmatch(brought, normalise(match["name"])) is not None


def has_version(text: str) -> bool:
    """Whether a requirement names versions."""
    match = _REQUIREMENT.fullmatch(text)
    return match is not None and (match["pin"] or "@").strip()[:1] != "@"


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """Yield the requirements of a requirements file with their line numbers; pip's options, which a package cannot have, are left out."""
    for number, line in enumerate(text.splitlines(), 1):
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        # keep only the requirement of `tqdm==4.67 --hash=… \`: setuptools would join the `\` with the next line
        plain = re.sub(r"(?<!\s)(\s+--\S+)*\s*\\?$", "", plain)
        if plain and not re.match(r"-(?!e\s|-editable)", plain):
            yield number, plain
