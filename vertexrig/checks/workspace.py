"""A project at work: rendering, reading and checking brought together for the commands, the trigger and rehearsals."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Mapping
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vertexrig import checks, spec
from vertexrig.catalog import Catalog, Image, load
from vertexrig.catalog.value import dataclass
from vertexrig.checks import built, identity, naming
from vertexrig.checks._keys import in_keys
from vertexrig.checks.model import BuiltImage
from vertexrig.errors import did_you_mean
from vertexrig.finding import Finding, Severity
from vertexrig.package import folders
from vertexrig.package.cache import read_cached
from vertexrig.package.source.model import TrainerSource
from vertexrig.project.config import Loaded
from vertexrig.project.model import BUILD, Sweep
from vertexrig.project.origins import origin
from vertexrig.project.resolve import Uploaded
from vertexrig.render.renderer import Rendered, Renderer
from vertexrig.spec.masking import masked
from vertexrig.text import command_line

if TYPE_CHECKING:
    from vertexrig.package.containers import ImageProgram

_PROJECT_KEYS = {"region-unknown": ("region",)}
"""Keys of the project file that a finding is about, where the spec has no value."""
GCLOUD_REFUSES = "pool-empty-gcloud"
"""The rule on what the API takes and gcloud does not."""


@dataclass(frozen=True)
class Prepared:
    """A job or sweep rendered, read back strictly, and checked.

    Args:
        rendered: The YAML and the gcloud command.
        document: The YAML as the strict reading takes it.
        findings: What the checks found, with lines of the project file.
        workspace: The project it comes from.
    """

    rendered: Rendered
    document: spec.Document
    findings: list[Finding]
    workspace: Workspace = field(repr=False)

    @property
    def ok(self) -> bool:
        """True if nothing of severity error was found."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def in_run(self, run: str) -> Prepared:
        """The same with the output folder of one run; itself if all runs share the folder that the project file names."""
        if not self.rendered.view.own_runs:
            return self
        again = self.workspace.prepare(self.rendered.view.name, check=False, run=run)
        return replace(self, rendered=again.rendered, document=again.document)


class Workspace:
    """A project with its catalog, templates and trainer, each read when it is first needed.

    Args:
        loaded: The project.
        templates: A folder of templates that overrides the project's own.
        region: In place of the project's, for the checks.
        trainer: A trainer's folder to hold every document against, in place of the project's.
        program: How a person types this program, for commands that a message proposes.
        uploaded: Gives the URIs of the trainer's packages and images, in place of the folder at hand.
    """

    def __init__(
        self,
        loaded: Loaded,
        *,
        templates: Path | None = None,
        region: str | None = None,
        trainer: Path | None = None,
        program: str = "vertexrig",
        uploaded: Uploaded | None = None,
    ) -> None:
        self.loaded, self._templates, self._region, self._trainer = loaded, templates, region, trainer
        self._program, self._uploaded = program, uploaded
        self._trainers: dict[str, TrainerSource | None] = {}

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog with the project's overlay."""
        overlay = self.loaded.project.catalog
        if not overlay:
            return load()
        from vertexrig.catalog.overlay import catalog_with  # few projects have one

        return catalog_with(self.loaded.path(overlay))

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.loaded, self.catalog, templates=self._templates, uploaded=self._uploaded)

    def overridden(self, loaded: Loaded) -> Workspace:
        """The same project after overrides, with the catalog and the compiled templates that are here already."""
        # `_trainers` is shared: overrides change no source
        other = copy.copy(self)
        other.loaded, other.catalog, other.renderer = loaded, self.catalog, self.renderer.overridden(loaded)
        return other

    def trainer(self, module: str) -> TrainerSource | None:
        """The project's trainer as read, with `module` as its entry; None if its folder is not there."""
        if module not in self._trainers:
            folder = self._trainer or self.loaded.path(self.loaded.project.trainer.path)
            if folder.is_dir() and not folders.is_bare(folder):
                self._trainers[module] = read_cached(folder, module, self.loaded.path("build/cache"))
            elif folder.exists():
                from vertexrig.package.source.reader import read  # not needed for what was kept

                # a script's neighbours are not all its own, so there is no folder to keep it by; an archive is read as it is
                self._trainers[module] = read(
                    folders.module_root(folder) if folders.is_bare(folder) else folder, module
                )
            else:
                self._trainers[module] = None
        return self._trainers[module]

    def context(self, document: spec.Document) -> checks.Context:
        """What the checks may know: the project's region, and the trainer if the document runs it.

        A trainer that was named is held against every document, whatever the project says; of the project's own, only a
        document that runs it. A document names it by a module, by an image that the project makes, by one whose
        Dockerfile is here (`container`), or by `custom_image`.
        """
        project, named = self.loaded.project, self._trainer is not None
        context = checks.Context(
            self.catalog, region=self._region or project.region, built=_built_images(self.loaded, document)
        )
        modules = {pool.module for pool in document.pools if pool.module}
        pool = next((pool for pool in document.pools if pool.container is not None and pool.image), None)
        if named and len(modules) > 1:
            return replace(context, trainer_unused=f"its pools run several modules: {', '.join(sorted(modules))}")
        ours = {project.trainer.module, *(job.module for job in project.jobs.values() if job.module)}
        if len(modules) == 1 and (named or modules <= ours):
            return replace(context, trainer=self.trainer(modules.pop()))
        if modules:
            return context
        if pool is not None and pool.image in context.built:
            return replace(context, trainer=self.trainer(built.module(pool, project.trainer.module)))
        found = self.container(pool) if pool is not None else None
        if named:
            unused = "no pool has a pythonModule or an image" if found is None else found.reason
            return replace(context, trainer=found.source if found is not None else None, trainer_unused=unused)
        if found is not None and found.source is not None:
            return replace(context, trainer=found.source)
        if pool is not None and pool.image == project.trainer.custom_image:
            return replace(context, trainer=self.trainer(project.trainer.module))
        return context

    def container(self, pool: spec.Pool) -> ImageProgram | None:
        """The program of a pool's image: of the trainer that was named, of local.images, or of the project's own image."""
        from vertexrig.package.containers import read_container

        project, spec_ = self.loaded.project, pool.container or {}
        command, args = list(spec_.get("command", ())), list(spec_.get("args", ()))
        folder = self._trainer
        if folder is None:
            local = next((one for key, one in project.local.images.items() if fnmatchcase(pool.image, key)), None)
            if local is not None:
                folder, command = self.loaded.path(local.path), command or list(local.command)
            elif pool.image == project.trainer.custom_image:
                folder = self.loaded.path(project.trainer.path)
                command = command or list(project.trainer.command)
        if folder is None or not folder.exists():
            return None
        return read_container(folder, command, args)

    def proposed_image(self, document: spec.Document) -> str:
        """The lines of a project file that let a container of the document run on this machine without its image, as its
        Dockerfile has it; empty if there are such lines, or nothing to make them of."""
        pool = next((pool for pool in document.pools if pool.container is not None and pool.image), None)
        mapped = self.loaded.project.local.images
        if pool is None or any(fnmatchcase(pool.image, pattern) for pattern in mapped):
            return ""
        found = self.container(pool)
        if found is None or found.source is None or found.source.problems or found.folder is None or not found.command:
            return ""
        # without a project file the lines are for one that will be made in this folder
        home = (self.loaded.folder if self.loaded.file.name else Path()).resolve()
        path = os.path.relpath(found.folder.resolve(), home)
        words = ", ".join(json.dumps(word) for word in found.command)
        name = json.dumps(pool.image)
        return f"local:\n  images:\n    {name}:\n      path: {json.dumps(path)}\n      command: [{words}]\n"

    def prepare(self, name: str, *, check: bool = True, run: str = "") -> Prepared:
        """A job or sweep of the project, rendered and, unless `check` is false, checked.

        Args:
            name: A job or sweep.
            check: Check it.
            run: Render it with the output folder of this run.
        """
        rendered = self.renderer.render(name, run)
        # template=False: what was rendered has no placeholders, so `${X}` in it is meant
        document = spec.parse(rendered.text, file=str(self.loaded.file), kind=rendered.kind, template=False)
        if not check:
            return Prepared(rendered, document, [], self)
        ignored = self.silences(name)
        found = checks.check(document, self.context(document), ignored)
        region = self._region or self.loaded.project.region
        outside = {  # what the API takes beside the spec, so that the document does not have it
            "display-name": naming.check_display_name(rendered.view.display_name, self.catalog),
            "labels": naming.check_labels(rendered.view.labels, self.catalog),
            "kms-key": identity.check_kms_key(rendered.view.kms_key_name, region) if rendered.view.kms_key_name else [],
        }
        for rule, problems in outside.items():
            if rule not in ignored:
                found += [replace(one, file=str(self.loaded.file)) for one in checks.findings(rule, problems)]
        submit = self.verb("submit", name)
        found = [_through_the_api(finding, submit) if finding.id == GCLOUD_REFUSES else finding for finding in found]
        return Prepared(rendered, document, self._placed(found, rendered), self)

    def verb(self, *words: object) -> str:
        """A command line about this project, with the options that it came from: `--file`, `--set`, `--templates`.

        Args:
            words: The verb, its arguments, and further options.
        """
        templates = ("--templates", self._templates) if self._templates is not None else ()
        return command_line(*words, *self.loaded.words, *templates, program=self._program)

    def _placed(self, found: list[Finding], rendered: Rendered) -> list[Finding]:
        """Findings with the line of the project file, or the override, that their values come from."""
        view = rendered.view
        # another rendering, so only where there is something to place
        origins = self.renderer.origins(view.name, view.run) if found else {}
        mapped = isinstance(self.loaded.runnable(view.name).args, Mapping)
        placed = []
        for finding in found:
            path = _PROJECT_KEYS.get(finding.id) or origin(origins, finding.path)
            source = self.loaded.source(path) or self.loaded.source(("sweeps" if view.sweep else "jobs", view.name))
            given = masked(source) if isinstance(source, str) else ""
            by_key = mapped and bool(path) and isinstance(path[-1], str)
            in_args = finding.path.rpartition(".")[2].startswith("args")  # which may be a list of words, too
            fix = (finding.key_fix if by_key or not in_args else "") or in_keys(finding.fix)
            placed.append(replace(finding, fix=fix, line=source if isinstance(source, int) else None, given=given))
        return placed

    def check_text(self, text: str, *, file: str, kind: spec.Kind | None = None) -> tuple[spec.Document, list[Finding]]:
        """A YAML file from anywhere, checked with what this project knows."""
        document = spec.parse(text, file=file, kind=kind)
        return document, checks.check(document, self.context(document), self.silences())

    def silences(self, name: str | None = None) -> Mapping[str, str]:
        """Findings to leave out, by id, with the reason: the project's, and those of a job or sweep."""
        project = self.loaded.project
        groups: list[tuple[tuple[str, ...], Mapping[str, str]]] = [(("silence",), project.silence)]
        found = self.loaded.runnable(name) if name else None
        if isinstance(found, Sweep):
            groups.append((("jobs", found.job, "silence"), project.jobs[found.job].silence))
        if found is not None:
            group = "sweeps" if isinstance(found, Sweep) else "jobs"
            groups.append(((group, str(name), "silence"), found.silence))
        known = checks.rule_ids()
        for path, silence in groups:
            for rule in silence:
                if rule not in known:
                    raise self.loaded.error(f"there is no rule {rule!r}. {did_you_mean(rule, known)}", *path, rule)
        return {rule: reason for _, silence in groups for rule, reason in silence.items()}


def _built_images(loaded: Loaded, document: spec.Document) -> Mapping[str, BuiltImage]:
    """The images of the project's own trainer that a document names, by URI."""
    trainer, jobs = loaded.project.trainer, loaded.project.jobs.values()
    machines = [machine for job in jobs for machine in (job, job.worker, job.ps, job.evaluator) if machine is not None]
    if BUILD not in {trainer.image, *(machine.image for machine in machines)}:
        return {}
    # imported here: a project with prebuilt images only does without
    from vertexrig.package.image import describe_image, patterns
    from vertexrig.package.sources import requires_python

    found = {}
    for pool in document.pools:
        for kind, pattern in patterns(loaded).items() if pool.container is not None else ():
            if not fnmatchcase(pool.image, pattern) or pool.image in found:
                continue
            image = describe_image(loaded, kind)
            row = Image(
                image.name.partition(":")[0], image.framework, image.version, image.python, kind, None,
                pool.image.partition("/")[2], "", "", True, "", "",
            )  # fmt: skip
            lock, folder = f"{trainer.build.lock}/{image.lock.name}", loaded.path(trainer.path)
            here = folder.exists()  # the trigger has neither the trainer nor the lock file
            found[pool.image] = BuiltImage(row, lock, image.locked or not here, requires_python(folder) if here else "")
    return found


def _through_the_api(finding: Finding, submit: str) -> Finding:
    """What only gcloud refuses is a warning for a job of the project: `vertexrig submit` goes another way."""
    return replace(finding, severity=Severity.WARNING, fix=f"send it through the API: {submit}")
