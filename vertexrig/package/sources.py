"""What of a trainer goes into its package, whatever its layout: the files, their requirements as shipped, name and hash.

A trainer is a single script, the folder of a package, or a project's folder: `_layout_of`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vertexrig.errors import PackageError
from vertexrig.files import MIB, is_inside
from vertexrig.package import layouts
from vertexrig.package.folders import (
    file_size,
    files_of,
    is_package,
    is_script,
    module_root,
    parts_of,
    read_bytes,
    why_outside,
)
from vertexrig.package.image_modules import distribution_of, is_supplied, normalise, own_module
from vertexrig.package.indexes import beyond_the_package, indexes_of, is_pypi
from vertexrig.package.layouts import Layout
from vertexrig.package.pyproject import Declared
from vertexrig.package.requirements import (
    REQUIREMENT_FILE,
    REQUIREMENTS,
    Notes,
    Requirement,
    adjusted,
    has_version,
    left_out,
    lines_of,
    rewrite,
    version_of_image,
)
from vertexrig.package.setup_script import read_setup, unsafe_setting
from vertexrig.project.model import PACKAGE_MIB
from vertexrig.text import quoted
from vertexrig.trainer_source.source_tree import ROOTS, Tree
from vertexrig.trainer_source.trainer_model import Import

_FORMAT = b"vertexrig-package-3\n"
"""Part of every hash. Its number goes up whenever staging begins to make another package of the same sources."""
DIGEST_LENGTH = 12
IMAGE_PYTHON = 10
"""Minor version of Python 3 in the newest prebuilt TensorFlow image, tf-cpu.2-17.py310."""


@dataclass(frozen=True)
class Sources:
    """The files of a package as they will be staged.

    Args:
        folder: The trainer's folder; of a script or a bare package, the one that holds it.
        files: Paths relative to it with `/`, sorted; each with its file.
        new_bytes: New bytes for those that staging changes or adds.
        name: The distribution's name as the metadata says it plainly, else `trainer`.
        version: Its version likewise, else `0`.
        requirements: The requirements that it declares, with the pins as its files have them.
        refusals: Why the package must not be built.
        warnings: What is worth saying.
        left_out: Those of the warnings that say that a requirement with a version is left out because the image brings its own.
        unsafe: Why building would run code of the trainer, for a message; "" if it would not.
        by_backend: Whether the build backend of pyproject.toml builds it: `files` are then what it builds from.
        image_tf: Major and minor version of the image's TensorFlow; None if it is not known.
    """

    folder: Path
    files: tuple[tuple[str, Path], ...]
    new_bytes: Mapping[str, bytes]
    name: str
    version: str
    requirements: tuple[Requirement, ...]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    unsafe: str = ""
    by_backend: bool = False
    image_tf: tuple[int, int] | None = None

    def digest(self, most_mib: int) -> str:
        """Return a hash of every staged path and its bytes, the same for the same sources anywhere at any time.

        Args:
            most_mib: How many MiB the trainer's own files may have together; what `gather` adds or rewrites does not count.

        Raises:
            PackageError: They have more, or one cannot be read.
        """
        self._must_be_small(most_mib)
        total = hashlib.sha256(_FORMAT)
        if self.by_backend:  # its requirements are adjusted to the image after the build
            total.update(repr(self.image_tf).encode())
        for relative, path in self.files:
            name = relative.encode("utf-8", "surrogateescape")
            data = self.new_bytes.get(relative)
            size = file_size(path, relative) if data is None else len(data)
            # the lengths, so that bytes moved from a name to a content, or to the next file, give another hash
            total.update(b"%d %d\n" % (len(name), size))
            total.update(name)
            for content in parts_of(path, relative, size) if data is None else [data]:
                total.update(content)
        return total.hexdigest()[:DIGEST_LENGTH]

    def _must_be_small(self, most_mib: int) -> None:
        sizes = {relative: file_size(path, relative) for relative, path in self.files if relative not in self.new_bytes}
        if sum(sizes.values()) > most_mib * MIB:
            largest = max(sizes, key=lambda one: sizes[one])
            raise PackageError(
                f"the files of the trainer have {sum(sizes.values()) / MIB:,.0f} MiB, and a package has at most {most_mib} MiB; "
                f"the largest is {quoted(largest)} with {sizes[largest] / MIB:,.0f} MiB. Put data into the bucket, or raise "
                "trainer.package_mib"
            )


@dataclass(frozen=True)
class PackageId:
    """What a package is called, known without building it.

    Args:
        name: The distribution's name; `trainer` if setup.py computes it.
        version: Its version with the hash as local part: `0.1.0+1f0c8de2a4b7`. The public part is `0` if setup.py computes it.
        digest: The hash alone: 12 hexadecimal digits.
        file_name: The file's name: `trainer-0.1.0+1f0c8de2a4b7.tar.gz`.
    """

    name: str
    version: str
    digest: str
    file_name: str


def identify(folder: Path | str, *, tf_version: str | None = None, most_mib: int = PACKAGE_MIB) -> PackageId:
    """Return the identity of the package that `build` would make, without building it.

    It depends on the paths and bytes of the sources, and on the image's TensorFlow where requirements or a build backend follow it. It
    does not depend on where the folder is, on times, caches, build products, tests, or hidden files.

    Args:
        folder: The trainer's script or folder.
        tf_version: TensorFlow of the image, `2.17` or `2.17.1`; None for an image without TensorFlow, or with
            an unknown one.
        most_mib: How many MiB the sources may have: `trainer.package_mib` of the project file.

    Raises:
        PackageError: No such folder, nothing to package, a file that cannot be read.
    """
    return identity_of(gather(Path(folder), tf_version), most_mib)


def identity_of(sources: Sources, most_mib: int) -> PackageId:
    """Return the identity of a package with these sources; PackageError if they have more than `most_mib` MiB."""
    name = normalise(sources.name).replace("-", "_")
    # Setup scripts may use any version; a file's name only needs to be safe in a URI and for pip.
    public = re.sub(r"[^A-Za-z0-9.+]+", ".", sources.version).strip(".") or "0"
    digest = sources.digest(most_mib)
    version = f"{public}{'.' if '+' in public else '+'}{digest}"
    return PackageId(sources.name, version, digest, f"{re.sub(r'[^a-z0-9_]', '_', name)}-{version}.tar.gz")


# Layouts


def _layout_of(path: Path) -> tuple[dict[str, Path], Layout, list[str]]:
    """Return a trainer's files, what describes them, and the links that are left out because they lead elsewhere."""
    describe: tuple[Callable[[Path, Mapping[str, Path]], Layout | None], ...] = (layouts.whole,)
    if is_script(path):
        files = _files_of_script(path)
    elif is_package(path):
        files = files_of(path, f"{path.resolve().name}/")
    else:
        files, describe = files_of(path), (layouts.described, layouts.scripted, layouts.modules)
    top = path if path.is_dir() else module_root(path)
    outside = sorted(name for name, file in files.items() if not is_inside(file, top))
    files = {name: file for name, file in files.items() if name not in outside}
    for one in describe:
        layout = one(path, files)
        if layout is not None:
            return files, layout, outside
    raise PackageError(
        f"the trainer's folder {str(path)!r} has no setup.py, no pyproject.toml and no Python package or module to package. "
        + _what_to_put(files)
    )


def _what_to_put(files: Iterable[str]) -> str:
    """Return what makes a trainer's folder a package: the missing `__init__.py` of a folder with modules, or a module."""
    below = (PurePosixPath(name.removeprefix("src/")).parts for name in files if name.endswith(".py"))
    folders = dict.fromkeys(parts[0] for parts in below if len(parts) > 1)
    if not folders:
        return "Put the module that the job runs there: trainer/task.py with an empty trainer/__init__.py"
    shown = ", ".join(f"{folder}/" for folder in list(folders)[:3])
    return f"Add an empty __init__.py to the folder of the module that the job runs ({shown})"


def _files_of_script(path: Path) -> dict[str, Path]:
    """Return a script and those of its neighbours that it imports, by their path in the package."""
    from vertexrig.trainer_source.follow import follow  # it reads sources, which a trainer with a setup.py does without

    root = module_root(path)
    source = follow(root, path.stem)
    source.must_be_read()
    return {_below_its_root(file, root): root / file for file in source.files}


def gather(folder: Path, tf_version: str | None) -> Sources:
    """Return a trainer's sources as they will be staged, with the requirements adjusted to the image.

    A requirement of tf-keras is pinned to the image's TensorFlow; a URL with `#egg=` gets the form that setup() takes; a layout gets
    the setup.py or setup.cfg that it lacks. If no metadata lists requirements, those in requirements.txt that the image lacks count.

    Args:
        folder: The trainer's script or folder, in any layout.
        tf_version: TensorFlow of the image (`2.17` or `2.17.1`); None if it is not known, as for a custom image.

    Raises:
        PackageError: There is no such folder, nothing in it to package, or a file cannot be read.
    """
    image_tf = version_of_image(tf_version)
    by_path, layout, outside = _layout_of(folder)
    root = module_root(folder)
    notes = Notes(warnings=list(layout.warnings))
    notes.warnings += [f"{name} is a link that points outside the checkout: it is left out" for name in outside]
    if image_tf is not None:  # a prebuilt TensorFlow image
        _check_python(layout.requires_python, notes)
    _note_indexes((folder, root), notes)
    declared: Iterable[Declared] | None = layout.dependencies
    if declared is None:
        declared = _required(folder, root, by_path, tf_version, notes)
    new_bytes = staged_files(layout, declared, image_tf, notes)
    if layout.backend_metadata:
        by_path["pyproject.toml"] = folder / "pyproject.toml"
    files = tuple(sorted({**by_path, **{name: root / name for name in new_bytes}}.items()))
    for relative, path in files:
        is_list = REQUIREMENT_FILE.fullmatch(relative) is not None
        # with `Layout.alone`, a requirements.txt is only data
        may_change = relative in {"setup.py", "setup.cfg"} or (is_list and not layout.alone)
        if may_change and relative not in new_bytes:
            data = read_bytes(path, relative)
            changed = rewrite(relative, data, image_tf, notes)
            if changed != data:
                new_bytes[relative] = changed
    name, version, unsafe = _name_version_unsafe(dict(files), new_bytes)
    if metadata := layout.backend_metadata:
        name, version, unsafe = metadata.name, metadata.version, metadata.backend_reason
    return Sources(
        root,
        files,
        new_bytes,
        name or "trainer",
        version or "0",
        requirements=tuple(notes.requirements),
        refusals=tuple(notes.refusals),
        warnings=tuple(notes.warnings),
        left_out=tuple(notes.left_out),
        unsafe=unsafe,
        by_backend=layout.backend_metadata is not None,
        image_tf=image_tf,
    )


def _name_version_unsafe(
    files: Mapping[str, Path], new_bytes: Mapping[str, bytes]
) -> tuple[str | None, str | None, str]:
    """Return name and version as setup.py or setup.cfg write them out, and why building would run code of the trainer, else ""."""
    texts = {
        name: new_bytes[name] if name in new_bytes else read_bytes(files[name], name)
        for name in ("setup.py", "setup.cfg")
        if name in files
    }
    # most trainers have no setup.cfg
    config = layouts.read_config(texts["setup.cfg"].decode("utf-8", "replace")) if "setup.cfg" in texts else None
    given, why = read_setup(texts["setup.py"]) if "setup.py" in texts else ({}, "")
    unsafe = (unsafe_setting(config) if config else "") or (why and f"setup.py: {why}")

    def value(key: str) -> str | None:
        if isinstance(given.get(key), str) and given[key]:
            return str(given[key])
        text = config.get("metadata", key, fallback="") if config else ""
        return text if text and not text.startswith(("attr:", "file:")) else None  # those are left to the build

    return value("name"), value("version"), unsafe


def requires_python(folder: Path) -> str:
    """Return the Python that a trainer's pyproject.toml asks for, such as `>=3.11`; "" if it asks for none. PackageError as of `gather`."""
    return _layout_of(folder)[1].requires_python


def least_python(wanted: str) -> str:
    """Return the Python that a trainer needs where the newest prebuilt image has an older one, such as `3.12`; "" otherwise."""
    # upper bounds are left to pip: the image's 3.10 is old, so only a lower one can exclude it in practice
    least = re.search(r"(?:>=|~=|==|>)\s*3\.(\d+)", wanted)
    return f"3.{least[1]}" if least is not None and int(least[1]) > IMAGE_PYTHON else ""


def _check_python(wanted: str, notes: Notes) -> None:
    if least_python(wanted):
        notes.refusals.append(
            f"pyproject.toml: it needs Python {wanted}, and the newest prebuilt image has 3.{IMAGE_PYTHON}, whose pip would "
            f'refuse the package. Write requires-python = ">=3.{IMAGE_PYTHON}", or use a custom image'
        )


def _note_indexes(places: Iterable[Path], notes: Notes) -> None:
    """Warn of the indexes that a requirements.txt names: a package cannot name them."""
    for file in dict.fromkeys(place / REQUIREMENTS for place in places):
        text = read_bytes(file, REQUIREMENTS).decode("utf-8-sig", "replace") if _is_own(file) else ""
        notes.warnings += [
            beyond_the_package(f"{REQUIREMENTS}:{line}", url) for line, _, url in indexes_of(text) if not is_pypi(url)
        ]


def staged_files(
    layout: Layout, declared: Iterable[Declared], image_tf: tuple[int, int] | None, notes: Notes
) -> dict[str, bytes]:
    """Return the files that staging adds or replaces (`Layout.generated`); setup.cfg gets the requirements, adjusted to the image."""
    texts = dict(layout.generated)
    lines = [adjusted(one.text, one.file, one.line, image_tf, notes) for one in declared]
    if lines:
        texts["setup.cfg"] = layouts.with_requirements(texts["setup.cfg"], lines)
    return {name: text.encode("utf-8", "surrogateescape") for name, text in texts.items()}


# Trainers without a description: a script's neighbours and its requirements


def _below_its_root(file: str, root: Path) -> str:
    """Return a file's path as it is imported: `src/model.py` is `model.py`, unless src is a package itself."""
    for prefix in ROOTS:
        if prefix and file.startswith(prefix) and not (root / prefix / "__init__.py").exists():
            return file.removeprefix(prefix)
    return file


def _is_own(file: Path) -> bool:
    return file.is_file() and is_inside(file, file.parent)


def _required(
    path: Path, root: Path, files: Mapping[str, Path], tf_version: str | None, notes: Notes
) -> Iterable[Declared]:
    """Return a requirements.txt without what the image brings; where there is none, what is imported and the image lacks."""
    image_tf = version_of_image(tf_version)
    places = [folder / REQUIREMENTS for folder in (path, root) if _is_own(folder / REQUIREMENTS)]
    if not places:
        return _imported(root, files, tf_version)
    kept = []
    for line, text in lines_of(read_bytes(places[0], REQUIREMENTS).decode("utf-8-sig", "replace")):
        if left_out(text, image_tf):
            notes.warnings.append(f"{REQUIREMENTS}:{line}: {text} is left out: the image brings its own")
            if has_version(text):
                notes.left_out.append(notes.warnings[-1])
        else:
            kept.append(Declared(text, line, REQUIREMENTS))
    return kept


def _imported(root: Path, files: Mapping[str, Path], tf_version: str | None) -> list[Declared]:
    """Return the distributions of the imported modules that neither the image nor the trainer brings."""
    from vertexrig.trainer_source.follow import follow  # as in `_files_of_script`

    found: dict[str, Declared] = {}
    imports: list[Import] = []
    seen: set[str] = set()
    tree = Tree(folder=root)
    for file, path in files.items():
        # every module counts, also those that the entry does not import: which one a job runs is not known here
        # a script's root is absolute, while the files are as the trainer's path was given
        if file.endswith(".py") and os.path.relpath(path, root) not in seen:
            source = follow(tree, ".".join(PurePosixPath(file).with_suffix("").parts).removesuffix(".__init__"))
            seen.update(source.files)
            imports += source.imports
    for item in imports:
        top = item.module.split(".")[0]
        if item.kind != "other" or item.caught or is_supplied(top, tf_version):
            continue
        # verification says that the trainer's own file is not found; a distribution of that name from PyPI would hide it
        if own_module(item):
            continue
        another = f"If it is another distribution, name it in {REQUIREMENTS}"
        # a folder of that name is there, so a file of it that is missing is more likely than a distribution from PyPI
        if any((root / top).glob("*.py")):
            raise PackageError(f"{item.where}: imports {item.module}, which is not in the folder {top}/. {another}")
        # a distribution of that name from PyPI would be a stranger's
        if why := why_outside(root, item.module):
            raise PackageError(f"{item.where}: imports {item.module}. {why}. {another}")
        # `import src.model`, where modules are in src/ and no job's module may import them so
        if any((root / top).rglob("*.py")):
            continue
        distribution = distribution_of(top)
        found.setdefault(distribution, Declared(distribution, item.line, item.file))
    return [found[name] for name in sorted(found)]
