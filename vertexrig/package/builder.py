"""A trainer's folder as the source distribution that Vertex AI's prebuilt containers install.

The file's name carries a hash of the sources, so that a queued trial never gets another upload's code. The container runs
`pip3 install --user` on it at start-up; without access to PyPI that works only for an archive with a setup.py and no
pyproject.toml (measured with pip 21.3 to 25.2), so that is what is built, and nothing else is put in.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from vertexrig.errors import PackageError
from vertexrig.files import MIB, place_of
from vertexrig.package import notebook
from vertexrig.package import verify as verification
from vertexrig.package.folders import why_absent
from vertexrig.package.layouts import read_config
from vertexrig.package.sources import PackageId, Sources, gather, identity_of
from vertexrig.package.trust import is_trusted, trust
from vertexrig.project.model import PACKAGE_MIB

__all__ = ["Built", "build"]

_EPOCH = 315532800  # 1980-01-01, the oldest time a zip can hold


@dataclass(frozen=True)
class Built:
    """A package on disk.

    Args:
        path: The sdist.
        id: Its identity.
        wheel: The wheel, if one was asked for.
        fresh: Whether this call built it; False: it was there already.
        verified: Modules known to be importable.
        supplied: Third-party modules the trainer imports that the image brings.
        declared: Those its requirements bring.
        warnings: What is worth telling the user.
    """

    path: Path
    id: PackageId
    wheel: Path | None = None
    fresh: bool = True
    verified: tuple[str, ...] = ()
    supplied: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class SetupRunsError(PackageError):
    """The build would run code of the trainer, and the user has not allowed it."""


_FOUND = ("verified", "supplied", "declared", "warnings")
"""What of a `Built` its record keeps for the next build of the same sources."""


def build(
    folder: Path | str,
    out_dir: Path | str,
    *,
    tf_version: str | None = None,
    module: str = "trainer.task",
    verify: bool = True,
    wheel: bool = False,
    trusted: bool = False,
    most_mib: int = PACKAGE_MIB,
) -> Built:
    """Build a trainer's sdist, check it, and put it into `out_dir` whole or not at all.

    A second build of the same sources finds the file and does nothing, unless it has to verify another module or make a missing
    wheel. A record with the file's name and `.json` at its end keeps what was found.

    Args:
        folder: The trainer's folder, in any layout. It is copied first and never written to.
        out_dir: Where the file goes; made if needed.
        tf_version: TensorFlow of the image: the tf-keras requirement is pinned to its minor version. None: it is not changed.
        module: What the job runs (`python -m MODULE`); it must be in the package.
        verify: Build a wheel of the sdist as pip does, and follow the imports of `module` in it, without running any.
        wheel: Build a wheel too: pip 26 builds every sdist in isolation, so in a container without egress only a wheel installs.
        trusted: Let the build run the trainer's setup.py or build backend, now and until its setup files change.
        most_mib: How many MiB the sources may have: `trainer.package_mib` of the project file.

    Raises:
        SetupRunsError: The build would run the trainer's setup.py or build backend, and the user has not allowed that.
        PackageError: The folder, its requirements or its setup.py are wrong, or the module's imports are not there.
    """
    folder, out_dir = Path(folder), Path(out_dir)
    # Checked first: the name becomes paths and words of a command below.
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module):
        raise PackageError(f"module {module!r} is not a dotted Python name such as 'trainer.task'")
    sources = gather(folder, tf_version)
    identity = identity_of(sources, most_mib)
    _outside(folder, out_dir, sources)
    _must_fit(sources)
    notebook.refuse_cells(sources.files, sources.new_bytes)
    known = _known(out_dir, identity)
    if known is not None and (module in known.verified or not verify) and (known.wheel is not None or not wheel):
        return known
    if sources.unsafe and not is_trusted(sources.folder):
        if not trusted:
            raise SetupRunsError(
                f"building the package runs code of {str(sources.folder)!r} on this machine, with your permissions ({sources.unsafe}). "
                "A setup.py that only gives values to setup() is built without asking. If you trust this one, type: "
                "vertexrig package --trust. Your trust lasts until setup.py, setup.cfg or pyproject.toml changes"
            )
        trust(sources.folder)
    with tempfile.TemporaryDirectory(prefix="vertexrig-package-") as temporary:
        work = Path(temporary)
        built = _make(sources, identity, work, module, tf_version, verify=verify, wheel=wheel)
        if known is not None:
            built = replace(
                built, verified=tuple(sorted({*known.verified, *built.verified})), wheel=built.wheel or known.wheel
            )
        return _publish(built, out_dir)


def _outside(folder: Path, out_dir: Path, sources: Sources) -> None:
    """Refuse an `out_dir` whose files would become sources of the next build."""
    try:
        inside = out_dir.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        return
    # `gather` leaves these out at the top (_SKIPPED_AT_TOP and hidden names), so files there change no hash
    first = inside.split("/")[0]
    if (first not in {"build", "dist"} and not first.startswith(".")) or inside == ".":
        raise PackageError(
            f"the output folder {str(out_dir)!r} is inside the trainer's folder {str(sources.folder)!r}: choose another"
        )


def _make(
    sources: Sources,
    identity: PackageId,
    work: Path,
    module: str,
    tf_version: str | None,
    *,
    verify: bool,
    wheel: bool,
) -> Built:
    from vertexrig.package import backend  # 60 ms, which a call that finds the package built already saves

    staged = work / "src"
    if sources.by_backend:
        _copy(sources, work / "project")
        sources = backend.from_wheel(sources, work / "project", work)
        _must_fit(sources)
    _stage(sources, identity, staged)
    trusted = bool(sources.unsafe)  # `build` has refused an unsafe trainer that the user does not trust
    raw = backend.setuptools(staged, "sdist", work / "sdist", trusted=trusted)
    archive = work / identity.file_name
    names = _repack(raw, archive)
    _belongs(names, module, sources.folder)
    built = Built(archive, identity, warnings=sources.warnings)
    if wheel or verify:
        # The sdist goes in, so that the wheel holds what the sdist holds.
        made = backend.setuptools(_unpack(archive, work / "unpacked"), "wheel", work / "wheels", trusted=trusted)
        built = replace(built, wheel=made if wheel else None)
    if verify:
        target = work / "target"
        backend.unpack(made, target)
        found = verification.verify(target, sources.folder, module, sources.requirements, tf_version)
        built = replace(
            built,
            verified=(module,),
            supplied=found.supplied,
            declared=found.declared,
            warnings=(*built.warnings, *found.warnings),
        )
    return built


def _must_fit(sources: Sources) -> None:
    if sources.refusals:
        raise PackageError("the trainer's requirements conflict with the image: " + "; ".join(sources.refusals))


def _copy(sources: Sources, staged: Path) -> None:
    """Write the files of a package to an empty folder."""
    staged.mkdir()
    for relative, path in sources.files:
        copy = staged / relative
        copy.parent.mkdir(parents=True, exist_ok=True)
        if relative in sources.new_bytes:
            copy.write_bytes(sources.new_bytes[relative])
        else:
            try:
                shutil.copyfile(path, copy)
            except OSError as error:
                raise PackageError(f"{relative} of the trainer cannot be copied: {error.strerror}") from error


def _stage(sources: Sources, identity: PackageId, staged: Path) -> None:
    """Write the files of a package to a folder, with the hash in the version."""
    _copy(sources, staged)
    # setuptools' own way to add to a version; sdist writes it into the archive's setup.cfg, so it holds wherever that is built.
    settings = staged / "setup.cfg"
    try:
        config = read_config(settings.read_text(encoding="utf-8") if settings.exists() else "")
    except UnicodeDecodeError as error:
        raise PackageError(f"setup.cfg cannot be read: {error}") from error
    tag = config.get("egg_info", "tag_build", fallback="")
    for section in config.sections():
        # Settings of commands and tools: they may name code to run, and places outside, and no package needs them.
        if not sources.unsafe and section != "metadata" and not section.startswith("options"):
            config.remove_section(section)
    if not config.has_section("egg_info"):
        config.add_section("egg_info")
    # A version has one "+" at most (PEP 440): behind an existing local part the hash is added with a dot.
    local = "." if "+" in sources.version + tag else "+"
    config["egg_info"]["tag_build"] = f"{tag}{local}{identity.digest}"
    # a date would give every day's build another name
    config["egg_info"]["tag_date"] = "0"
    with settings.open("w", encoding="utf-8") as stream:
        config.write(stream)


def _repack(raw: Path, archive: Path) -> list[str]:
    """Write the sdist anew with sorted entries and no times or owners, so that the same sources give the same bytes."""
    with (
        tarfile.open(raw) as old,
        archive.open("wb") as stream,
        gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=_EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        members = sorted((member for member in old if member.isfile()), key=lambda member: member.name)
        for member in members:
            entry = tarfile.TarInfo(member.name)
            # The umask and the user that built must not show in the bytes; whether a script is executable must.
            entry.size, entry.mtime, entry.mode = member.size, _EPOCH, 0o755 if member.mode & 0o100 else 0o644
            new.addfile(entry, old.extractfile(member))
    return [member.name for member in members]


def _unpack(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as packed:
        if sys.version_info >= (3, 12):
            packed.extractall(into, filter="data")
        else:
            packed.extractall(into)  # our own archive of files with relative names, made a moment ago
    return next(into.iterdir())


def _belongs(names: list[str], module: str, folder: Path) -> None:
    """Refuse an archive without the module, or with what would break or bloat an installation."""
    inside = [PurePosixPath(*PurePosixPath(name).parts[1:]) for name in names]
    for path in inside:
        parts = path.parts
        wrong = (
            (path.name == "pyproject.toml" and len(parts) == 1)
            or any(part in {"__pycache__", "tests"} or part.startswith(".") for part in parts)
            or path.suffix in {".pyc", ".pyo"}
        )
        if wrong:
            raise PackageError(
                f"setup.py put {path} into the package, which must not be there: exclude it in MANIFEST.in"
            )
    stem = module.replace(".", "/")
    wanted = (f"{stem}.py", f"{stem}/__main__.py", f"{stem}/__init__.py")
    if any(path.as_posix() == file or path.as_posix().endswith("/" + file) for path in inside for file in wanted):
        return
    why = why_absent(folder, module) or "There is no such file in the folder: is the module's name right?"
    raise PackageError(f"the package does not hold the module {module!r}. {why}")


def _known(out_dir: Path, identity: PackageId) -> Built | None:
    """Return the record of an earlier build of the same sources, if its files are still what they were."""
    path = out_dir / identity.file_name
    try:
        record = json.loads((out_dir / f"{identity.file_name}.json").read_text(encoding="utf-8"))
        # changed or replaced since, or it came with the folder: it is built again, and the file written anew
        if record["place"] != place_of(out_dir) or record["sha256"] != _sha256(path):
            return None
        wheel = out_dir / record["wheel"] if record["wheel"] else None
        if wheel is not None and record["wheel_sha256"] != _sha256(wheel):
            wheel = None
        return Built(path, identity, wheel, False, **{name: tuple(record[name]) for name in _FOUND})
    # no record, or one that is damaged or of another version: building again is always right
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(MIB):
            total.update(part)
    return total.hexdigest()


def _publish(built: Built, out_dir: Path) -> Built:
    """Move the finished files into `out_dir`, each by one rename, the record last."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        path = _move_whole(built.path, out_dir)
        wheel = _move_whole(built.wheel, out_dir) if built.wheel is not None else None
        record = {
            "place": place_of(out_dir),
            "sha256": _sha256(path),
            "wheel": wheel.name if wheel else "",
            "wheel_sha256": _sha256(wheel) if wheel else "",
            **{name: getattr(built, name) for name in _FOUND},
        }
        note = built.path.with_name(f"{path.name}.json")
        note.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        _move_whole(note, out_dir)
    except OSError as error:
        raise PackageError(f"the package cannot be written to {str(out_dir)!r}: {error.strerror}") from error
    return replace(built, path=path, wheel=wheel)


def _move_whole(file: Path, out_dir: Path) -> Path:
    """Put a file into a folder by one rename, so that nobody reads half of it, and return its path there."""
    final = out_dir / file.name
    if file == final:
        return final
    # In the same folder, so that the rename is atomic: two builds at once leave one whole file.
    handle, name = tempfile.mkstemp(dir=out_dir, prefix=".")
    os.close(handle)
    try:
        shutil.copyfile(file, name)
        # mkstemp makes files that only their owner can read
        os.chmod(name, 0o644)
        os.replace(name, final)
    except OSError:
        os.unlink(name)
        raise
    return final
