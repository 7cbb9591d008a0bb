"""A project with its catalog, trainer, rendering and checks, behind one class that the verbs, `submit`, `runs` and the trigger use.

The values that a job becomes, in order: `Loaded` (the project file, typed), `View` (the job with everything filled in), `Rendered` (its
YAML), `Document` (that YAML, read strictly), `Prepared` (all of these, with what the checks found).
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vertexrig import checks, spec, variables
from vertexrig.catalog import Catalog, Image, load
from vertexrig.checks.model import IGNORE_MARK, BuiltImage
from vertexrig.errors import did_you_mean
from vertexrig.finding import Finding, Severity
from vertexrig.project.config import Loaded
from vertexrig.project.model import BUILD, Sweep
from vertexrig.render.artifacts import Uploaded
from vertexrig.render.renderer import Renderer
from vertexrig.render.resolve import View
from vertexrig.spec.masking import masked
from vertexrig.text import command_line
from vertexrig.yamltext import FileKey, scalar

if TYPE_CHECKING:
    from vertexrig.package.containers import ImageProgram
    from vertexrig.package.imports import Fit
    from vertexrig.trainer_source.trainer_model import TrainerSource

_PROJECT_KEYS = {"region-unknown": ("region",)}
"""Project-file key of a finding whose value is not in the spec, by rule."""


@dataclass(frozen=True)
class Prepared:
    """A job or sweep rendered, read back strictly, and checked.

    Args:
        view: The job or sweep with everything filled in, as the templates saw it.
        text: The YAML.
        document: The YAML as the strict reading takes it.
        yaml_findings: What the checks found, with lines of the rendered YAML.
        workspace: The project it comes from.
        candidate: Number of the candidate: 1 is the job or sweep without changes, its `candidates` count from 2.
        first: For a candidate from 2 on, the job or sweep without changes.
    """

    view: View
    text: str
    document: spec.Document
    yaml_findings: list[Finding]
    workspace: Workspace = field(repr=False)
    candidate: int = 1
    first: Prepared | None = field(default=None, repr=False)

    @cached_property
    def findings(self) -> list[Finding]:
        """What the checks found, each with the line of the project file or the override that its value comes from.

        A candidate leaves out the findings that the unchanged job has too.
        """
        if self.first is None:
            return self.workspace.in_project_file(self.yaml_findings, self.view, self.document)
        known = {(one.id, one.path, one.message) for one in self.first.yaml_findings}
        own = [one for one in self.yaml_findings if (one.id, one.path, one.message) not in known]
        found = self.workspace.in_project_file(own, self.view, self.document)
        # no edits: they would change the job itself, which may be correct
        return [replace(one, message=f"candidate {self.candidate}: {one.message}", edits=()) for one in found]

    @property
    def title(self) -> str:
        """What a message calls it: its name, and which candidate it is."""
        return self.view.name if self.candidate == 1 else f"candidate {self.candidate} of {self.view.name}"

    @property
    def yaml_file(self) -> Path:
        """Where verbs write the YAML unless a file is named: below build/jobs, by the project's environment and the candidate."""
        name = self.view.name if self.candidate == 1 else f"{self.view.name}.{self.candidate}"
        return self.workspace.loaded.folder / "build/jobs" / self.workspace.loaded.env / f"{name}.yaml"

    @property
    def ok(self) -> bool:
        """Whether nothing of severity error was found; True for a job that was not checked."""
        return not any(finding.severity is Severity.ERROR for finding in self.yaml_findings)

    @property
    def first_error(self) -> str:
        """The message of the first finding of severity error, without a full stop; "" without such a finding."""
        return next((one.message.rstrip(".") for one in self.yaml_findings if one.severity is Severity.ERROR), "")

    def in_run(self, run_id: str) -> Prepared:
        """Return the job rendered with the output folder of one run; unchanged if it takes no run id (`View.takes_run_id`).

        Its findings stay those of the first rendering.
        """
        if not self.view.takes_run_id:
            return self
        rendered = self.workspace.renderer.in_run(self.view, run_id)
        return replace(self, view=rendered.view, text=rendered.text, document=rendered.document)


class _FoundTrainer(NamedTuple):
    """The trainer that a document runs.

    Args:
        trainer: The trainer, None if it is not available.
        unused: Why the trainer of `--trainer` is not used; "" if it is, or if none was named.
        recognised: Whether the started program is recognised.
    """

    trainer: TrainerSource | None
    unused: str = ""
    recognised: bool = True


class Workspace:
    """A project with its catalog, templates and trainer, each read when it is first needed.

    Args:
        loaded: The project.
        region: In place of the project's, for the checks.
        trainer: A trainer's folder to check every document with, in place of the project's.
        program: How the user types this program, for commands that a message proposes.
        uploaded: Gives the URIs of the trainer's packages and images, in place of the trainer's folder. No user reads the
            findings then, so the checks give no advice (`checks.Context.advice`).
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        region: str | None = None,
        trainer: Path | None = None,
        program: str = "vertexrig",
        uploaded: Uploaded | None = None,
    ) -> None:
        self.loaded, self._region, self._named_trainer = loaded, region, trainer
        self._program, self._uploaded = program, uploaded
        self._trainers: dict[str, TrainerSource | None] = {}
        self._image_programs: dict[tuple[Path, str], TrainerSource] = {}  # `known` of `read_container`

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog with the project's overlay."""
        overlay = self.loaded.project.catalog
        if not overlay:
            return load()
        from vertexrig.catalog.overlay import catalog_with  # few projects have one

        return catalog_with(self.loaded.path(overlay, "catalog"))

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.loaded, self.catalog, self._uploaded)

    def overridden(self, loaded: Loaded) -> Workspace:
        """Return the same project after overrides, with the catalog and the compiled templates that are here already."""
        # what was read of sources, `_trainers` and `_image_programs`, is shared: overrides change no source
        other = copy.copy(self)
        other.loaded, other.catalog, other.renderer = loaded, self.catalog, self.renderer.overridden(loaded)
        return other

    def prepare_candidates(
        self, name: str, *, check: bool = True, changed: Callable[[Loaded], Loaded] | None = None
    ) -> list[Prepared]:
        """Return a job or sweep as `prepare` does, which is candidate 1, followed by its other candidates.

        Args:
            name: A job or sweep.
            check: Check it.
            changed: Applies a caller's overrides to a project. It is called for the project, and for the project of each candidate.

        Raises:
            ConfigError: A candidate is wrong, or `wait` or `retry_for` is given without candidates.
        """
        own = self if changed is None else self.overridden(changed(self.loaded))
        first = own.prepare(name, check=check)
        entry = self.loaded.runnable(name)
        if not entry.candidates:
            for key in ("wait", "retry_for"):
                if getattr(entry, key) is not None:
                    group = "sweeps" if name in self.loaded.project.sweeps else "jobs"
                    raise self.loaded.error_at(f"{key} is about candidates: list some, or remove it", group, name, key)
            return [first]
        from vertexrig.project import candidates  # few jobs have them

        others = [changed(one) if changed else one for one in candidates.others(self.loaded, name)]
        rest = [self.overridden(one).prepare(name, check=check) for one in others]
        return [first, *(replace(one, candidate=n, first=first) for n, one in enumerate(rest, 2))]

    def prepare(self, name: str, *, check: bool = True) -> Prepared:
        """Return a job or sweep of the project, rendered and, unless `check` is false, checked."""
        rendered = self.renderer.render(name)
        view, document = rendered.view, rendered.document
        found = checks.check(document, self.context(document, view), self.silenced(name)) if check else []
        if found and IGNORE_MARK in self.loaded.text:
            from vertexrig.checks import comments  # few files have such a comment

            # a comment ignores findings on its own line of the project file, so the findings need the lines of that file
            shown = self.in_project_file(found, view, document)
            by_comment = comments.ignored(shown, self.loaded.text)
            found = [one for one, as_shown in zip(found, shown, strict=True) if as_shown not in by_comment]
        return Prepared(view, rendered.text, document, found, self)

    def _fits(self, view: View | None, document: spec.Document) -> Iterator[tuple[str, Fit]]:
        """Yield (program path, `Fit`) for each package of the trainer that a pool installs: how its requirements fit the pool's image."""
        packages = view.own_packages if view is not None and self._uploaded is None else {}
        for tf_version, uri in packages.items():
            pool = next((pool for pool in document.pools if uri in pool.package_uris), None)
            trainer = self.trainer(pool.module) if pool is not None else None
            if pool is not None and trainer is not None:
                # imported here: the trigger has no trainer folder and does not load these modules
                from vertexrig.package.imports import fit
                from vertexrig.package.sources import gather

                named = self._named_trainer
                sources = gather(named, tf_version) if named else self.renderer.artifacts.sources(tf_version)
                yield pool.program_path, fit(sources, trainer, tf_version)

    def trainer(self, module: str) -> TrainerSource | None:
        """Return the trainer of `--trainer`, otherwise the project's, with `module` as its entry; None if its folder is not there."""
        if module not in self._trainers:
            folder = self._named_trainer or self.loaded.path(self.loaded.project.trainer.path, "trainer", "path")
            self._trainers[module] = None
            if folder.exists():
                # imported here: the trigger has no trainer folder and does not load this module
                from vertexrig.package.cache import read_trainer

                self._trainers[module] = read_trainer(folder, module, self.loaded.output("build/cache"))
        return self._trainers[module]

    def context(self, document: spec.Document, view: View | None = None) -> checks.Context:
        """Return the facts that the checks use in addition to the document.

        Args:
            view: The job or sweep of the project that the document was rendered from; None for a file from elsewhere.
        """
        built = _built_images(self.loaded, document) if BUILD in self.loaded.project.image_names else {}
        found = self._find_trainer(document, built)
        flags: dict[str, Any] = {}
        if view is not None:
            flags = {"displayName": view.display_name, "labels": view.labels}
            if view.kms_key_name:
                flags["encryptionSpec"] = {"kmsKeyName": view.kms_key_name}
        return checks.Context(
            self.catalog,
            region=self._region or self.loaded.project.region,
            trainer=found.trainer,
            trainer_unused=found.unused,
            trainer_recognised=found.recognised,
            built=built,
            advice=self._uploaded is None,
            flags=flags,
            fits=lambda: self._fits(view, document),
            submit=self.command_line("submit", view.name) if view is not None else "",
        )

    def _find_trainer(self, document: spec.Document, built: Mapping[str, BuiltImage]) -> _FoundTrainer:
        """Return the trainer that a document runs.

        A trainer that was named (`--trainer`) is used for every document, or the result says why not. The project's own trainer is used
        only for a document that runs it: by a module, an image that the project builds, or `custom_image`. For an image that `local.images`
        names, the trainer is the one in the folder that is written there.
        """
        project, named = self.loaded.project, self._named_trainer is not None
        modules = {pool.module for pool in document.pools if pool.module}
        if modules:
            if named and len(modules) > 1:
                return _FoundTrainer(None, f"its pools run several modules: {', '.join(sorted(modules))}")
            ours = {project.trainer.module, *(job.module for job in project.jobs.values() if job.module)}
            runs_it = named or (len(modules) == 1 and modules <= ours)
            return _FoundTrainer(self.trainer(modules.pop()) if runs_it else None)
        pool = _container_pool(document)
        if pool is None:
            return _FoundTrainer(None, "no pool has a pythonModule or an image" if named else "")
        if pool.image in built:
            return _FoundTrainer(self.trainer(_module_of(pool) or project.trainer.module))
        found = self.image_program(pool)
        if named:
            if found is None:
                return _FoundTrainer(None, "no pool has a pythonModule or an image")
            return _FoundTrainer(found.source, found.reason, found.recognised)
        if found is not None and found.source is not None:
            return _FoundTrainer(found.source)
        return _FoundTrainer(
            self.trainer(project.trainer.module) if pool.image == project.trainer.custom_image else None
        )

    def image_program(self, pool: spec.Pool) -> ImageProgram | None:
        """Return the program that a pool's image runs: from the named trainer, `local.images`, or the project's own image."""
        project, spec_ = self.loaded.project, pool.container or {}
        command, args = list(spec_.get("command", ())), list(spec_.get("args", ()))
        folder = self._named_trainer
        if folder is None:
            local = next((one for key, one in project.local.images.items() if fnmatchcase(pool.image, key)), None)
            if local is not None:
                folder, command = self.loaded.path(local.path, "local", "images"), command or list(local.command)
            elif pool.image == project.trainer.custom_image:
                folder = self.loaded.path(project.trainer.path, "trainer", "path")
                command = command or list(project.trainer.command)
        if folder is None or not folder.exists():
            return None
        # imported here: the trigger has no trainer folder and does not load this module
        from vertexrig.package.containers import read_container

        return read_container(folder, command, args, self._image_programs)

    def proposed_image(self, document: spec.Document) -> str:
        """Return the lines of a project file that let a container of the document run on this machine without its image, by its
        Dockerfile; empty if the project has such lines, or if no Dockerfile is found.
        """
        pool = _container_pool(document)
        mapped = self.loaded.project.local.images
        if pool is None or any(fnmatchcase(pool.image, pattern) for pattern in mapped):
            return ""
        found = self.image_program(pool)
        if found is None or found.source is None or found.source.problems or found.folder is None or not found.command:
            return ""
        # without a project file the lines are for one that will be made in this folder
        home = (self.loaded.folder if self.loaded.file.name else Path()).resolve()
        path = os.path.relpath(found.folder.resolve(), home)
        name, command = scalar(pool.image), scalar(found.command)
        return f"local:\n  images:\n    {name}:\n      path: {scalar(path)}\n      command: {command}\n"

    def command_line(self, *words: object, for_paste: bool = False, environ: Mapping[str, str] | None = None) -> str:
        """Return a command line for this project, with the variables and options that select it.

        Args:
            words: The verb, its arguments, and further options.
            for_paste: Set all variables, as for `variables.assigned`.
            environ: Environment variables to set, in place of the values that this command had.
        """
        sets = {**variables.assigned(for_paste=for_paste), **(environ or {})}
        return command_line(*words, *self.loaded.words, program=self._program, environ=sets)

    def in_project_file(self, found: list[Finding], view: View, document: spec.Document) -> list[Finding]:
        """Return findings that point at the project file: its line or the override, and fixes written with its keys."""
        # imported here: the trigger shows no lines
        from vertexrig.workspace.source_keys import SourceKeys, in_keys

        finder = SourceKeys(self.loaded, view, document)
        args_have_keys = isinstance(self.loaded.runnable(view.name).args, Mapping)
        shown = []
        for finding in found:
            key, edits = finder.find(finding.path), tuple(map(finder.edit, finding.edits))
            if finding.id in _PROJECT_KEYS:  # its value is not in the spec, where `finder` looks
                key = _PROJECT_KEYS[finding.id]
                edits = tuple(replace(one, location=self.loaded.origins.path_in_file(key)) for one in finding.edits)
            origin = self.loaded.origins.of(key) or self.loaded.origins.of(view.entry_path)
            line, given = (None, masked(origin)) if isinstance(origin, str) else (origin, "")
            # a `key_fix` on an argument names a key of `args`, and a list has no keys
            in_list = _is_list_argument(finding, key, args_have_keys)
            fix = ("" if in_list else finding.key_fix) or in_keys(finding.fix)
            shown.append(replace(finding, file=str(self.loaded.file), line=line, given=given, fix=fix, edits=edits))
        return shown

    def check_text(self, text: str, *, file: str, kind: spec.Kind | None = None) -> tuple[spec.Document, list[Finding]]:
        """Return any YAML file, read and checked with this project's region, catalog and trainer."""
        document = spec.parse(text, file=file, kind=kind)
        found = checks.check(document, self.context(document), self.silenced())
        if IGNORE_MARK in text:
            from vertexrig.checks import comments  # few files have such a comment

            by_comment = comments.ignored(found, text)
            found = [one for one in found if one not in by_comment]
            found += comments.problems(text, file, checks.rule_ids(), by_comment)
        return document, found

    def silenced(self, name: str | None = None) -> frozenset[str]:
        """Return the ids of the rules that the project file silences, for all jobs or for the job or sweep `name`."""
        project = self.loaded.project
        groups: list[tuple[tuple[str, ...], Mapping[str, str]]] = [(("silence",), project.silence)]
        found = self.loaded.runnable(name) if name else None
        if isinstance(found, Sweep):
            groups.append((("jobs", found.job, "silence"), project.jobs[found.job].silence))
        if found is not None:
            group = "sweeps" if isinstance(found, Sweep) else "jobs"
            groups.append(((group, str(name), "silence"), found.silence))
        known = checks.rule_ids() if any(silence for _, silence in groups) else ()
        for path, silence in groups:
            for rule in silence:
                if rule not in known:
                    raise self.loaded.error_at(f"there is no rule {rule!r}. {did_you_mean(rule, known)}", *path, rule)
        return frozenset(rule for _, silence in groups for rule in silence)


def _built_images(loaded: Loaded, document: spec.Document) -> Mapping[str, BuiltImage]:
    """Return the images of the project's own trainer that a document names, by URI."""
    # imported here: a project that has only prebuilt images does not load these modules
    from vertexrig.package.image import describe_image, patterns
    from vertexrig.package.sources import requires_python

    trainer, found = loaded.project.trainer, {}
    for pool in document.pools:
        for kind, pattern in patterns(loaded).items() if pool.container is not None else ():
            if not fnmatchcase(pool.image, pattern) or pool.image in found:
                continue
            image = describe_image(loaded, kind)
            # Any, because framework may be one that the prebuilt images do not have
            fields: dict[str, Any] = {"framework": image.framework, "kind": kind}
            row = Image(
                name=image.name.partition(":")[0],
                version=image.version,
                python=image.python,
                repository_path=pool.image.partition("/")[2],
                end_of_support="",
                end_of_availability="",
                hypertune=True,
                **fields,
            )
            lock, folder = f"{trainer.build.lock}/{image.lock.name}", loaded.path(trainer.path, "trainer", "path")
            here = folder.exists()  # the trigger has neither the trainer nor the lock file
            found[pool.image] = BuiltImage(row, lock, image.locked or not here, requires_python(folder) if here else "")
    return found


def _is_list_argument(finding: Finding, key: FileKey, args_have_keys: bool) -> bool:
    """Whether a finding is about an argument that the project file has as a word of a list, not under a key of its own."""
    is_argument = finding.path.rpartition(".")[2].startswith("args")
    return is_argument and not (args_have_keys and key and isinstance(key[-1], str))


def _container_pool(document: spec.Document) -> spec.Pool | None:
    """Return the first pool that runs an image of its own."""
    return next((pool for pool in document.pools if pool.container is not None and pool.image), None)


def _module_of(pool: spec.Pool) -> str:
    """Return the module that a pool on an image of the project runs; empty if it runs the trainer's module."""
    command = pool.command
    return command[2] if command[:2] == ["python", "-m"] and len(command) > 2 else ""
