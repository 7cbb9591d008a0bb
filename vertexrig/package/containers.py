"""The program of a container, read from its Dockerfile and its build context as a trainer's source."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from vertexrig.package import dockerfile
from vertexrig.package.dockerfile import DockerImage
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.bucket_paths import GCSFS
from vertexrig.trainer_source.reader import read_tree
from vertexrig.trainer_source.source_tree import ROOTS, Tree
from vertexrig.trainer_source.started_program import SourceProgram
from vertexrig.trainer_source.trainer_model import SourcePlace, SourceProblem, TrainerSource

# Images with a CMD and no ENTRYPOINT, by their Dockerfiles: docker-library/python 3.11/slim-bullseye, alpinelinux/docker-alpine
# 3.23, tianon/docker-brew-ubuntu-core jammy (read 2026-11-21). Debian's was not found.
_PLAIN_BASES = ("python", "ubuntu", "alpine")
_PACKAGE_FILES = (".txt", ".in", ".toml", ".cfg", ".lock", ".yml", ".yaml")
_LONGEST = 1 << 20  # bytes of a file that names packages; a longer one is data


@dataclass(frozen=True)
class ImageProgram:
    """A container's program as found.

    Args:
        source: What was read; None if it could not be found.
        reason: Why there is none, in one sentence.
        folder: The folder that is the image's working directory.
        command: The words that start the program there.
        recognised: False if what starts is not known: no Dockerfile, a script, or a program that is not Python's, which may start
            a trainer or not.
        file: The program's own file, None if it is not known.
    """

    source: TrainerSource | None
    reason: str = ""
    folder: Path | None = None
    command: tuple[str, ...] = ()
    recognised: bool = True
    file: Path | None = None


class ImageTree(Tree):
    """The build context seen through what a Dockerfile copies: modules are looked up where the image has them."""

    def __init__(self, context: Path, image: DockerImage, script_folder: str | None) -> None:
        super().__init__(folder=context, roots=ROOTS)
        self.context, self.image = context, image
        paths = image.environment.get("PYTHONPATH", "").split(":")
        installed = [place for base in image.installed for place in (base, f"{base}/src")]
        places = [script_folder, image.workdir, *filter(None, paths), *installed]
        self._places = list(dict.fromkeys(posixpath.join(image.workdir, one) for one in places if one))

    def places(self, module: str, *endings: str) -> Iterator[str]:
        """Yield where a module may be in the context, by its places in the image, then by those in the context."""
        known = [*super().places(module, *endings)]
        stems = [posixpath.join(place, *module.split(".")) for place in self._places] if known else []
        found = (self.inside(f"{stem}{ending}") for stem in stems for ending in endings)
        yield from filter(None, found)
        yield from known

    def inside(self, path: str) -> str | None:
        """Return the path in the context of what the image has at `path`; None if nothing was copied there."""
        path = posixpath.normpath(path)
        # a RUN mv or cp after the COPY: the file lies in the context under the name it had before
        path = self.image.moved.get(path, path)
        # a later COPY overwrites an earlier one
        for copy in reversed(self.image.copies):
            target = copy.target.rstrip("/") or "/"
            below = path == target or path.startswith(f"{target.rstrip('/')}/")
            for source in copy.sources if below else ():
                found = self._match(source, target, copy.target.endswith("/"), path)
                if found is not None:
                    return found
        return None

    def _match(self, source: str, target: str, into: bool, path: str) -> str | None:
        rest = path[len(target) :].lstrip("/")
        try:
            files = sorted(self.context.glob(source)) if any(c in source for c in "*?[") else [self.context / source]
        except (ValueError, NotImplementedError):
            return None
        for file in files:
            relative = posixpath.normpath(file.relative_to(self.context).as_posix())
            if file.is_dir():
                # links and `..` may lead out of the context, where a build could not copy from
                found = posixpath.normpath(posixpath.join(relative, rest))
                if not found.startswith("..") and (self.context / found).exists():
                    return found
            elif file.is_file() and (rest == file.name if into or rest else path == target):
                return relative
        return None


class _Asked(NamedTuple):
    """The arguments of `read_container` besides the folder."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    known: dict[tuple[Path, str], TrainerSource]


def read_container(
    folder: Path,
    command: Sequence[str],
    args: Sequence[str],
    known: dict[tuple[Path, str], TrainerSource] | None = None,
) -> ImageProgram:
    """Read the program that a container runs.

    Args:
        folder: Its build context, the Dockerfile itself, or a folder with the Dockerfile one or two levels below it or beside it.
        command: The spec's `command`, which replaces ENTRYPOINT and CMD.
        args: The spec's `args`, which replace CMD.
        known: Programs that were read, by Dockerfile or folder and by module or file: several jobs may run one.
    """
    asked = _Asked(tuple(command), tuple(args), {} if known is None else known)
    file = folder if folder.is_file() else dockerfile.find(folder)
    if file is not None:
        return _of_dockerfile(file, folder, asked)
    named = _without_dockerfile(folder, asked)
    if named.source is not None and not _is_missing(named.source):
        return named
    found = _of_nearby_dockerfile(folder, asked)
    return found if found is not None and (found.source is not None or named.source is None) else named


def _is_missing(source: TrainerSource) -> bool:
    """Whether the program's own module or file was not found."""
    return any(problem.code == "module" for problem in source.problems)


def _of_nearby_dockerfile(folder: Path, asked: _Asked) -> ImageProgram | None:
    """Return the program of the folder that a Dockerfile below or beside it starts; None if there is no Dockerfile.

    If the Dockerfiles start none or several, the result has no source, and says why.
    """
    files = dockerfile.below(folder)
    found = _of_one_dockerfile(files, folder, asked)
    if found is not None and found.source is not None:
        return found
    other = None if files else _of_one_dockerfile(dockerfile.beside(folder), folder, asked)
    return other if other is not None and other.source is not None else found


def _of_one_dockerfile(files: Sequence[Path], folder: Path, asked: _Asked) -> ImageProgram | None:
    """Return the program of the folder that these Dockerfiles start; without source if not exactly one, None if there are no Dockerfiles."""
    found = [_of_dockerfile(file, folder, asked, folder) for file in files]
    for index, file in enumerate(files):
        if not _is_found(found[index]):  # `COPY . .` may also mean the Dockerfile's own folder
            own = _of_dockerfile(file, file.parent, asked._replace(known={}), folder)
            found[index] = own if _is_found(own) else found[index]
    fitting = [one for one in found if _is_found(one)]
    # Dockerfile.cpu and Dockerfile.gpu: one program on two base images
    sources = [one.source for one in fitting if one.source is not None]
    alike = [replace(source, base_image="", entrypoint=None, lacks_gcsfs=False) for source in sources]
    if len(fitting) == 1:
        return fitting[0]
    if fitting and all(one == alike[0] for one in alike):
        return replace(fitting[0], source=alike[0])
    shown = ", ".join(os.path.relpath(file, folder) for file in files[:3]) + (", …" if len(files) > 3 else "")
    if fitting:
        return ImageProgram(None, f"{shown} start different programs of {folder}", recognised=False)
    if len(found) == 1 and found[0].reason:
        return replace(found[0], recognised=False)
    return ImageProgram(None, f"{shown} start no program of {folder}", recognised=False) if files else None


def _is_found(program: ImageProgram) -> bool:
    return program.source is not None and program.file is not None and not _is_missing(program.source)


def _of_dockerfile(file: Path, folder: Path, asked: _Asked, within: Path | None = None) -> ImageProgram:
    """Return the program of the image that a Dockerfile makes; one whose file is not in the folder `within` is not read."""
    command, args = asked.command, asked.args
    try:
        image = dockerfile.parse(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return ImageProgram(None, f"{file} cannot be read: {error.strerror}")
    context = _context(file.parent, folder if folder.is_dir() else file.parent, image)
    head = command or image.entrypoint
    # By Vertex AI's page on container settings, a command without args drops the image's CMD as well.
    words = [*head, *(args or (() if command else image.cmd))]
    shell = image.shell and not command
    tree = ImageTree(context, image, None)
    found = (
        started_program.of_shell_line(" ".join(head))
        if shell
        else started_program.find(words) or _script(words, tree, image.workdir)
    )
    name = file.relative_to(context).as_posix() if context in file.parents else file.name
    alone = not head and bool(args) and args[0].startswith("-")  # args replace the CMD, and name no program
    if alone and image.cmd:
        found = started_program.find(image.cmd)
    if found is None:
        shown = " ".join(words) or "no ENTRYPOINT and no CMD"
        return ImageProgram(None, f"{name} starts no Python program that can be recognised: {shown}", recognised=False)
    entry = None if within is None else _entry_file(found, image, context)
    if within is not None and entry and not (context / entry).resolve().is_relative_to(within.resolve()):
        return ImageProgram(None)
    source = _read(found, image, context, asked.known, file)
    leading = head[found.end :] if found.end and not alone and found.end <= len(head) else ()
    place = SourcePlace(name, image.entrypoint_line, "ENTRYPOINT")
    source = replace(
        source,
        base_image=image.base,
        lacks_gcsfs=_lacks_gcsfs(source, image, file, context),
        leading=leading,
        launcher=head if not shell and not command and found.end > len(head) else (),
        drops_args=place if shell and found.drops else None,
        entrypoint=replace(place, text=" ".join(head))
        if not shell and not command and started_program.find(head) is not None
        else None,
        args_replace=SourcePlace(name, image.cmd_line, image.base)
        if not head and image.cmd and _plain(image.base)
        else None,
    )
    if (not command or not found.end) and _is_missing(source):
        # Nobody builds an image around a module that is not there, and a shell line may download it first.
        return ImageProgram(None, f"{found.name}, which {name} starts, is not among the files of {context}")
    root = tree.inside(image.workdir) or "."
    root = root if (context / root).is_dir() else "."
    start = _portable(found, tree, image, context / root)
    own = next((path for path in (*source.files, *(problem.file for problem in source.problems)) if path), "")
    return ImageProgram(source, "", context / root, start, file=context / own if own else None)


def _lacks_gcsfs(source: TrainerSource, image: DockerImage, file: Path, context: Path) -> bool:
    """Whether an image of Docker Hub's Python installs no gcsfs, as far as its Dockerfile and the files of its packages say."""
    needed = any(use.by_gcsfs for use in source.path_uses) and not source.names_gcsfs
    if not needed or not _plain(image.base) or "python" not in image.base:
        return False
    texts = [path for path in (*context.glob("*"), *context.glob("*/*")) if path.suffix in _PACKAGE_FILES]
    try:
        files = [path for path in (file, *texts) if path.is_file() and path.stat().st_size <= _LONGEST]
        return not any(GCSFS.search(path.read_bytes()) for path in files)
    except OSError:
        return False


def _plain(base: str) -> bool:
    return base.partition(":")[0].rpartition("/")[2] in _PLAIN_BASES and base.count("/") <= 1


def _without_dockerfile(folder: Path, asked: _Asked) -> ImageProgram:
    """Return a folder whose program the spec names by itself."""
    found = started_program.find([*asked.command, *asked.args])
    if found is None:
        reason = f"there is no Dockerfile in {folder}, and the spec's command names no Python program"
        return ImageProgram(None, reason, recognised=False)
    if folder.is_file():
        return ImageProgram(None, f"{folder} is neither a Dockerfile nor a folder")
    image = DockerImage(copies=[dockerfile.Copy((".",), "/")])
    read = _read(found, image, folder, asked.known, folder)
    if _is_missing(read) and (above := _from_above(found, folder)):
        folder, found = above
        read = _read(found, image, folder, asked.known, folder)
    if not found.end and _is_missing(read):
        return ImageProgram(
            None, f"{found.name}, which a shell line of the spec starts, is not among the files of {folder}"
        )
    source = replace(read, leading=asked.command[found.end :] if found.end else ())
    script = next(iter(read.files), PurePosixPath(found.name).name)
    words = ("python", "-m", found.name) if found.is_module else ("python", script)
    return ImageProgram(source, "", folder, words)


def _from_above(found: SourceProgram, folder: Path) -> tuple[Path, SourceProgram] | None:
    """Return the folder above and the program as it is named there, if the program's path begins with the folder's own name.

    With --trainer src, src/train.py and /app/src/train.py are train.py of that folder.
    """
    own = folder.resolve()
    names = found.name.split(".") if found.is_module else list(PurePosixPath(found.name).parts)
    # an absolute path may lead through folders of the image: /app/src/train.py
    for start in range(1 if found.is_module else len(names) - 1):
        for count in range(len(names) - start - 1, 0, -1):
            rest = names[start + count :]
            end = (
                [f"{rest[-1]}.py", f"{rest[-1]}/__init__.py", f"{rest[-1]}/__main__.py"]
                if found.is_module
                else rest[-1:]
            )
            there = any(own.joinpath(*rest[:-1], one).is_file() for one in end)
            if there and list(own.parts[-count:]) == names[start : start + count]:
                name = found.name if found.is_module else "/".join(names[start:])
                return own.parents[count - 1], replace(found, name=name)
    return None


def _context(parent: Path, folder: Path, image: DockerImage) -> Path:
    """Return the folder of the build: the one whose files the COPY lines name, of the Dockerfile's own and those above it."""
    sources = [source for copy in image.copies for source in copy.sources if source.strip("./")]
    sources += [
        posixpath.relpath(source, image.workdir) for source in image.moved.values() if source.startswith(image.workdir)
    ]
    # A Dockerfile may lie in docker/ or deploy/cpu/ of the context. The first of equals wins: the folder that was
    # named.
    candidates = list(dict.fromkeys((folder, parent, *list(parent.parents)[:3])))

    def there(candidate: Path) -> int:
        try:
            return sum(any(candidate.glob(source)) for source in sources)
        except (ValueError, NotImplementedError):
            return 0

    return max(candidates, key=there) if sources else folder


def _script(words: Sequence[str], tree: ImageTree, workdir: str) -> SourceProgram | None:
    """Return the program that a shell script of the context starts."""
    if not words or not words[-1 if words[0].endswith("sh") and len(words) == 2 else 0].endswith(".sh"):
        return None
    path = words[1] if len(words) > 1 and words[1].endswith(".sh") else words[0]
    inside = tree.inside(posixpath.join(workdir, path))
    data = tree.read(inside) if inside else None
    found = started_program.of_shell_line(data.decode("utf-8", "replace")) if data else None
    # a script that does not pass "$@" on starts the program with arguments of its own, which are not read
    return found if found is not None and not found.drops else None


def _read(
    found: SourceProgram, image: DockerImage, context: Path, known: dict[tuple[Path, str], TrainerSource], place: Path
) -> TrainerSource:
    key = place, f"-m {found.name}" if found.is_module else found.name
    if key not in known:
        known[key] = _read_anew(found, image, context)
    return known[key]


def _read_anew(found: SourceProgram, image: DockerImage, context: Path) -> TrainerSource:
    if found.is_module:
        return read_tree(ImageTree(context, image, None), None, found.name, [])
    path = posixpath.normpath(posixpath.join(image.workdir, found.name))
    file = _entry_file(found, image, context)
    if file is None:
        name = PurePosixPath(found.name).stem
        problem = SourceProblem(
            f"there is no module {name!r} in the trainer: {path} of the image is not in {context.name}/", code="module"
        )
        return TrainerSource(module=name, problems=(problem,))
    return read_tree(ImageTree(context, image, posixpath.dirname(path)), file, None, [])


def _entry_file(found: SourceProgram, image: DockerImage, context: Path) -> str | None:
    """Return the file that a program of an image starts with, relative to the folder of the build; None if it is not there."""
    tree = ImageTree(context, image, None)
    if found.is_module:
        return tree.find(f"{found.name}.__main__") or tree.find(found.name)
    file = tree.inside(posixpath.normpath(posixpath.join(image.workdir, found.name)))
    if file is not None and (context / file).is_file():
        return file
    name = PurePosixPath(found.name)
    others = (name.as_posix().lstrip("./"), name.name, f"src/{name.name}")
    return next((one for one in others if (context / one).is_file()), None)


def _portable(found: SourceProgram, tree: ImageTree, image: DockerImage, root: Path) -> tuple[str, ...]:
    """Return the words that start the program in the folder that is the image's working directory."""
    if found.is_module:
        return ("python", "-m", found.name)
    inside = tree.inside(posixpath.join(image.workdir, found.name))
    if inside is None:
        return ("python", found.name)
    try:
        return ("python", (tree.context / inside).relative_to(root).as_posix())
    except ValueError:
        return ("python", inside)
