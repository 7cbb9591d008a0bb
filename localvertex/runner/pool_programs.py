"""What to start for a worker pool: a container of its image, a module or a command in an environment, or a mapped folder."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from localvertex.runner import containers, image_stand_ins, keras2, packages, pythons
from localvertex.runner.engine import wanted as wanted_engine
from localvertex.runner.environment import object_file
from localvertex.runner.image_stand_ins import ImageStandIn
from localvertex.runner.options import RunOptions, TrainerSources, first_match
from localvertex.runner.replica_program import ReplicaProgram
from vertexrig.catalog import load
from vertexrig.errors import JobFailedError, PackageError, UsageError
from vertexrig.package import builder
from vertexrig.package.image_modules import SUPPLIED, declared_modules
from vertexrig.package.recipes import DISTRIBUTIONS
from vertexrig.project.local import AUTO, LocalImage
from vertexrig.spec.document import Pool
from vertexrig.text import command_line

_SHELLS = ("sh", "bash")
_PYTHON = re.compile(r"(?:docker\.io/)?(?:library/)?python(?:[:@].+)?")
"""Docker Hub's image of Python, which has nothing else."""
_PREBUILT = re.compile(r"docker\.pkg\.dev/vertex-ai/training/")
"""Where Google has its prebuilt images of training."""
_PYTHON_FOR_PANDAS_3 = (3, 11)
"""The Python that pandas 3 needs (its metadata, 3.0.0): an image with an older one has no pandas of that kind."""
_REDUCTION = Path(__file__).with_name("reduction_stand_in.py")


def _version_difference(interpreter: packages.Interpreter, image: str, sources: TrainerSources | None = None) -> str:
    """Return how the stand-in of an image differs from the image, "" if both have the same versions."""
    prebuilt = load().image(image)
    if sources is not None:
        name, framework, version, python = image.rpartition("/")[2], sources.framework, sources.version, sources.python
    elif prebuilt is not None:
        name, framework, version, python = prebuilt.name, prebuilt.framework, prebuilt.version, prebuilt.python
    else:
        return f"the stand-in for image {image} is Python {interpreter.version} of this machine"
    parts = []
    if python and interpreter.version.split(".")[:2] != python.split(".")[:2]:
        parts.append(f"Python {interpreter.version} instead of {python}")
    distribution = DISTRIBUTIONS.get(framework, framework)
    here = interpreter.installed.get(distribution)
    if here is None and framework:
        parts.append(f"no {distribution}")
    elif here is not None and version and here.split(".")[:2] != version.split(".")[:2]:
        parts.append(f"{distribution} {here} instead of {version}")
    return f"the stand-in for image {name} has {' and '.join(parts)}" if parts else ""


def program_of(
    pool: Pool,
    options: RunOptions,
    root: Path,
    *,
    installer: packages.Installer,
    log: Callable[[str], None],
    on_container: Callable[[containers.Container], None],
) -> ReplicaProgram:
    """Install what a worker pool runs, or find its image, and return how the pool's replicas are started.

    A program that does nothing replaces the Reduction Server, unless `local.images` names a folder for it. For other images, the first of
    these that fits is used:

    1. the image itself, in a container, unless the project file names a folder or an interpreter in its place;
    2. the stand-in of an image that gcloud built on this machine (not if `local.images` names a folder for the image);
    3. the pool's Python package, in an environment;
    4. the trainer of an image that `vertexrig image` builds (not if `local.images` names a folder);
    5. the folder that `local.images` names;
    6. the job's command, if the image is a prebuilt one or Docker Hub's of Python.

    Args:
        pool: The worker pool.
        options: The job's.
        root: The local Vertex's folder.
        installer: Makes environments; it also runs the engine that pulls an image.
        log: Called with what is made beside the packages.
        on_container: Called with the container of an image that runs as itself, before packages are installed in it.

    Raises:
        PackageError: A package is not there or does not install.
        JobFailedError: Nothing on this machine can run the image.
    """
    # The user has named the folder for this machine, so it comes before an image that is built or that an engine has.
    local = first_match(options.images, pool.image)
    if load().is_reduction_server(pool.image) and local is None:
        note = (
            "a program that does nothing replaces the Reduction Server, which only makes all-reduce between GPUs faster"
        )
        return ReplicaProgram((sys.executable, "-I", "-S", str(_REDUCTION)), (), notes=(note,))
    stand_in = image_stand_ins.find(root, pool.image) if local is None else None
    choice = containers.Choice()
    if local is None and (named := _python_named(pool.image, options)):
        choice = containers.Choice(
            why=f"local: interpreters: in the project file names {named}, which does not know what the image starts"
        )
    elif local is None:
        base = stand_in.base if stand_in is not None else ""
        choice = containers.chosen(pool.image, options, root, installer.execute, log, base)
    if choice.container is not None:
        on_container(choice.container)
        return _of_container(pool, choice.container, root, installer)
    program = _in_place_of_the_image(pool, options, root, installer, log, local, stand_in, choice)
    # Say why the image does not run: a user with an engine expects it to.
    return replace(program, notes=(choice.why, *program.notes)) if choice.engine else program


def _of_container(
    pool: Pool, container: containers.Container, root: Path, installer: packages.Installer
) -> ReplicaProgram:
    """Return the program of a pool whose image runs as itself."""
    if pool.python_package is None:
        return ReplicaProgram(tuple(pool.command), tuple(pool.args), container=container)
    files = [_package(uri, root) for uri in pool.package_uris]
    container = container.with_packages(files, installer)
    assert container.installed is not None
    log = packages.installation_log(container.installed)
    return ReplicaProgram(("python3", "-m", pool.module), tuple(pool.args), container=container, installation=log)


def _in_place_of_the_image(
    pool: Pool,
    options: RunOptions,
    root: Path,
    installer: packages.Installer,
    log: Callable[[str], None],
    local: LocalImage | None,
    stand_in: ImageStandIn | None,
    choice: containers.Choice,
) -> ReplicaProgram:
    """Return the program of a pool whose image does not run here, for the reason in `choice`; see `program_of`.

    `stand_in` is what gcloud built of the image on this machine (`image_stand_ins`), None for all other images.
    """
    interpreter = python_for(stand_in.base if stand_in else pool.image, options, log, installer.give_up)
    if stand_in is not None:
        python = installer.layer_of_pip(interpreter, stand_in.base, stand_in.pip)
        return _of_stand_in(pool, stand_in, interpreter, python)
    if pool.python_package is not None:
        return _of_package(pool, interpreter, root, installer)
    sources = first_match(options.built, pool.image)
    if sources is not None and local is None:
        return _of_built_image(pool, sources, interpreter, installer)
    command = tuple(pool.command)
    if local is None and not (command and (load().image(pool.image) or _PYTHON.fullmatch(pool.image))):
        raise nowhere(pool.image, choice, options, root)
    head = command or (local.command if local is not None else ())
    # A job's command may run pip, which must not install into the user's environment; a mapped trainer is started as ever.
    installs = local is None or bool(command) or (bool(head) and Path(head[0]).name in _SHELLS)
    if installs:
        python = installer.layer_of_commands(interpreter, pool.image)
        # Unlike `packages.with_layer`, which leaves `python` that of the base.
        interpreter = replace(interpreter, python=str(python))
    if local is not None:
        return replace(_mapped(local, head, tuple(pool.args), interpreter, pool.image), installs=installs)
    settings, keras = keras2.of_image(interpreter, pool.image)
    return ReplicaProgram(
        head,
        tuple(pool.args),
        folders=(Path(interpreter.python).parent,),
        settings=settings,
        version_difference=_version_difference(interpreter, pool.image),
        notes=(keras,),
        framework=keras2.framework(pool.image),
        installs=installs,
    )


def _started_by(python: Path, head: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command whose `python` is the interpreter of an environment."""
    return (str(python), *head[1:]) if head[:1] in (("python",), ("python3",)) else head


def _of_stand_in(pool: Pool, stand_in: ImageStandIn, interpreter: packages.Interpreter, python: Path) -> ReplicaProgram:
    """Return the program of an image that gcloud built without an engine."""
    settings, keras = keras2.of_image(interpreter, stand_in.base)
    return ReplicaProgram(
        _started_by(python, tuple(pool.command) or stand_in.entrypoint),
        tuple(pool.args),
        folders=(python.parent, Path(interpreter.python).parent),
        cwd=Path(stand_in.folder),
        settings={**stand_in.env, **settings},
        version_difference=_version_difference(interpreter, stand_in.base),
        notes=(keras,),
        framework=keras2.framework(stand_in.base),
        broken=_broken_text(python, stand_in.base),
    )


def _of_package(
    pool: Pool, interpreter: packages.Interpreter, root: Path, installer: packages.Installer
) -> ReplicaProgram:
    """Install the packages of a pool, and return the program that runs its module."""
    files = [_package(uri, root) for uri in pool.package_uris]
    python = installer.layer(interpreter, pool.image, files, _supplied(pool.image))
    interpreter = packages.with_layer(interpreter, python)
    settings, keras = keras2.of_image(interpreter, pool.image)
    return ReplicaProgram(
        (str(python), "-m", pool.module),
        tuple(pool.args),
        folders=(python.parent,),
        settings=settings,
        version_difference=_version_difference(interpreter, pool.image),
        notes=(packages.layer_note(python, "replaced"), packages.layer_note(python, "added"), keras),
        framework=keras2.framework(pool.image),
        sources=tuple(files),
        broken=_broken_text(python, pool.image),
        installation=packages.installation_log(python.parent.parent),
    )


def _supplied(image: str) -> packages.Supplied:
    """Return the modules of a prebuilt image without TensorFlow, Keras and PyTorch, which are too large to install beside this machine's
    own, and the constraints for pip that follow from the image's Python. For any other image, return nothing.
    """
    prebuilt = load().image(image)
    if prebuilt is None:
        return packages.Supplied()
    listed = declared_modules(re.match(r"[\w.-]+", line)[0] for line in prebuilt.packages)  # type: ignore[index]
    modules = {*listed, *(SUPPLIED if prebuilt.framework == "tf" else ())}
    # without those three, and without modules for which no distribution can be named, such as `google`
    modules -= {"tensorflow", "keras", "torch", "google", "googleapiclient", "pkg_resources", "setuptools"}
    old = tuple(map(int, prebuilt.python.split("."))) < _PYTHON_FOR_PANDAS_3
    return packages.Supplied(frozenset(modules), ("pandas<3",) if old else ())


def _broken_text(python: Path, image: str) -> str:
    """Return what the packages did to the framework of this machine, and what to do about it, "" if nothing."""
    broken, prebuilt = packages.layer_note(python, "broken"), load().image(image)
    if not broken or prebuilt is None:
        return ""
    name = pythons.name_for(prebuilt, load())
    line = command_line("local", "python", "--image", name, "--wire", program="vertexrig")
    return f"{broken}. The image {prebuilt.name} has other versions. To make an environment with these: {line}"


def _of_built_image(
    pool: Pool, sources: TrainerSources, interpreter: packages.Interpreter, installer: packages.Installer
) -> ReplicaProgram:
    """Build and install the trainer that a pool's image is made of, and return the program that starts as the image does."""
    file = builder.build(sources.path, sources.packages, module=sources.module, verify=False).path
    # Without its tag: the environment is named by the bytes of the package, and a new tag around the same package
    # needs no other one.
    python = installer.layer(interpreter, pool.image.partition(":")[0], [file], packages.Supplied())
    interpreter = packages.with_layer(interpreter, python)
    settings, keras = keras2.of_version(interpreter, sources.version if sources.framework == "tf" else "")
    return ReplicaProgram(
        _started_by(python, tuple(pool.command) or ("python", "-m", sources.module)),
        tuple(pool.args),
        # torchrun and its like are beside the interpreter that has their package
        folders=(python.parent, Path(interpreter.python).parent),
        settings=settings,
        version_difference=_version_difference(interpreter, pool.image, sources),
        notes=(packages.layer_note(python, "replaced"), keras),
        framework=sources.framework,
        sources=(file,),
    )


def python_for(
    image: str, options: RunOptions, log: Callable[[str], None], give_up: Callable[[], bool]
) -> packages.Interpreter:
    """Return the Python that stands in for an image: the one that the project file names, otherwise this one.

    In place of a prebuilt image, an environment with the image's versions is made if the project file says `interpreters: auto`, or if it
    names no Python and this one lacks the image's TensorFlow. If none can be made, and the project file does not say `auto`, this Python is
    used; its packages may then break the TensorFlow that pip installs for the trainer: JAX, for one, needs a newer ml_dtypes.

    Raises:
        UsageError, PackageError: With `interpreters: auto`, no environment can be made; a Python cannot be run; or `give_up` ended it.
    """
    named, prebuilt = _python_named(image, options), load().image(image)
    auto = named == AUTO
    interpreter = packages.inspect_python(named if named and not auto else sys.executable)
    if prebuilt is None:
        return interpreter
    lacks_tensorflow = not named and prebuilt.framework == "tf" and "tensorflow" not in interpreter.installed
    if not (auto or lacks_tensorflow):
        return interpreter
    name = pythons.name_for(prebuilt, load())
    try:
        made = pythons.make_python(pythons.wanted(name, load(), None), log, give_up)
    except (UsageError, PackageError) as error:
        if give_up() or auto:
            raise
        log(
            f"No environment of {name} could be made ({error}): this Python is used, and pip installs what the package requires"
        )
        return interpreter
    log(f"{'Made' if made.fresh else 'Found'} the environment of {name}, kept for other jobs: {made.python}")
    return packages.inspect_python(str(made.python))


def _python_named(image: str, options: RunOptions) -> str | None:
    """Return the Python that `local.interpreters` names for an image, or `auto`, which is for prebuilt images alone."""
    named = first_match(options.interpreters, image)
    return None if named == AUTO and load().image(image) is None else named


def has_known_versions(image: str, options: RunOptions, root: Path) -> bool:
    """Whether it is known which framework an image has: a prebuilt one, or one that is made of one here."""
    if load().image(image) is not None:
        return True
    if first_match(options.images, image) is not None:  # a folder of the user's
        return False
    stand_in = image_stand_ins.find(root, image)
    known = stand_in is not None and load().image(stand_in.base) is not None
    return known or first_match(options.built, image) is not None


def nowhere(image: str, choice: containers.Choice, options: RunOptions, root: Path) -> JobFailedError:
    """Return the error of an image that nothing on this machine can run: why, and what to type."""
    engine, why = choice.engine, choice.why
    if engine:
        why = f"{engine} answers and does not have it"
    if engine and options.pull == "missing":
        why = f"{engine} answers, does not have it, and could not pull it"
    words = [
        f"image {image!r} cannot be run here: {why}, and local: images: in the project file names no folder for it."
    ]
    folder = _folder_of_dockerfile(root) if load().image(image) is None else None
    if load().image(image) is None and _PREBUILT.search(image):
        words.append("The list of prebuilt images does not have this name.")
    elif folder is not None:
        submit = ("local", "run", "--", "gcloud", "builds", "submit", "--tag", image, folder)
        build = f"`{command_line('build', '-t', image, folder, program=engine)}` or " if engine else ""
        words.append(
            f"To build it from {folder / 'Dockerfile'}: {build}`{command_line(*submit, program='vertexrig')}`."
        )
    elif engine and options.pull != "missing":
        words.append(f"To get it: `{engine} pull {image}`, or write `pull: missing` under local: in the project file.")
    elif not engine and wanted_engine(options.engine) != "none" and not _python_named(image, options):
        words.append("To run it as it is, start Docker or podman.")
    words.append(
        f'To run its sources in its place: `local: {{images: {{"{image}": {{path: FOLDER, command: [python, FILE]}}}}}}` in the '
        "project file."
    )
    return JobFailedError(" ".join(words))


def _folder_of_dockerfile(root: Path) -> Path | None:
    """Return the folder with a Dockerfile: the one in which the server was started, or that of the project; None if there is none."""
    with suppress(OSError):  # the current folder may have been removed
        return next((one for one in (Path.cwd(), root.parent) if (one / "Dockerfile").is_file()), None)
    return None


def _package(uri: str, root: Path) -> Path:
    path = object_file(uri, root)
    if not path.is_file():
        hint = (
            f'; the local Vertex looks for it at {path}. To copy it there, in a shell with eval "$(vertexrig local env)": '
            f"gcloud storage cp FILE {uri}"
            if uri.startswith("gs://")
            else ""
        )
        # gsutil's own words, which the executor runs.
        raise PackageError(f"CommandException: No URLs matched: {uri}{hint}")
    name = uri.rpartition("/")[2]
    if path.name == name:
        return path
    # pip reads what a package is from its file's name
    named = root / "storage/named" / path.name / name
    named.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(path, named))


def _mapped(
    local: LocalImage, head: Sequence[str], args: Sequence[str], interpreter: packages.Interpreter, image: str
) -> ReplicaProgram:
    folder = Path(local.path)
    if not folder.is_dir():
        raise JobFailedError(f"image {image!r} is mapped to {folder}, which is not a folder")
    if not head:
        raise JobFailedError(
            f"image {image!r} is mapped to {folder} without an entry point, and the spec has no command: write command "
            "under local: images:"
        )
    note = f"folder {folder.name} and Python {interpreter.version} of this machine replace image {image}"
    settings, keras = keras2.of_folder(interpreter, image, folder)
    return ReplicaProgram(
        tuple(head),
        tuple(args),
        folders=(Path(interpreter.python).parent,),
        cwd=folder,
        settings=settings,
        notes=(note, keras),
        framework=local.framework or keras2.framework(image, folder),
    )
