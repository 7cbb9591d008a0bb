"""A job or sweep of the project to YAML text."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vertexrig import spec, yamltext
from vertexrig.catalog import Catalog
from vertexrig.errors import did_you_mean
from vertexrig.project import model, run_ids
from vertexrig.project.config import TEMPLATE_SUFFIX, Loaded
from vertexrig.render import resolve
from vertexrig.render.artifacts import Artifacts, Uploaded
from vertexrig.render.sandbox import RefusedByTemplateError, Templates
from vertexrig.spec.api_names import camel

if TYPE_CHECKING:
    from vertexrig.render.bounded import BoundedTemplates

_SHARED = ("parts", "study")  # templates that other templates include; not topologies


@dataclass(frozen=True)
class Rendered:
    """A job or sweep as gcloud takes it.

    Args:
        view: What the template was given.
        text: The YAML.
    """

    view: resolve.View
    text: str

    @cached_property
    def document(self) -> spec.Document:
        """The YAML as the strict reading takes it; its findings have lines of the YAML."""
        # this text has no placeholders left to fill in, so `${X}` in it is a value
        return spec.parse(self.text, kind=self.view.kind, for_gcloud=False)


class Renderer:
    """Renders the jobs and sweeps of one project. The first render makes a Jinja environment, which the others share.

    Args:
        loaded: The project.
        catalog: The catalog with the project's overlay.
        uploaded: Gives the URIs of the trainer's packages and images; None to derive them from the trainer's folder.
    """

    def __init__(self, loaded: Loaded, catalog: Catalog, uploaded: Uploaded | None = None) -> None:
        self.loaded, self.catalog, self._uploaded = loaded, catalog, uploaded
        self.artifacts = Artifacts(loaded, uploaded)
        users = loaded.path(loaded.project.templates, "templates") if loaded.project.templates else None
        if users is not None and not users.is_dir():
            raise loaded.error_at(f"there is no folder {users}", "templates")
        self.folders = [str(folder) for folder in (users, built_in_templates()) if folder is not None]
        self.templates: Templates | BoundedTemplates
        if users is None:
            self.templates = Templates(self.folders)
        else:
            # the user's templates are rendered with limits, which need a process of their own
            from vertexrig.render.bounded import BoundedTemplates

            self.templates = BoundedTemplates(self.folders)

    def overridden(self, loaded: Loaded) -> Renderer:
        """Return a renderer of the same project after overrides, with the templates that are compiled already."""
        other = copy.copy(self)
        other.loaded, other.artifacts = loaded, Artifacts(loaded, self._uploaded)
        return other

    def topologies(self) -> list[str]:
        """Return names that `topology` may have: the templates at hand."""
        found = {file.name for folder in self.folders for file in Path(folder).glob(f"*{TEMPLATE_SUFFIX}")}
        return sorted(name for name in (file.removesuffix(TEMPLATE_SUFFIX) for file in found) if name not in _SHARED)

    def compile(self) -> None:
        """Compile the templates of all topologies, and those that they share, which the first render would do otherwise."""
        self.templates.compile([f"{name}{TEMPLATE_SUFFIX}" for name in (*self.topologies(), *_SHARED)])

    def render(self, name: str) -> Rendered:
        """Return the YAML of a job or sweep.

        Raises:
            UsageError: There is no such job or sweep.
            ConfigError: The project file asks for what cannot be.
            PackageError: The trainer cannot be read as a package.
            TemplateError: The template is wrong.
        """
        view = self.view(name)
        self._check_topology(view.topology, view.entry_path)
        if view.sweep is not None:
            # the template of a sweep includes the one of its job
            self._check_topology(view.job.topology, ("jobs", view.sweep.job))
        rendered = self._rendered(view)
        # after rendering: if the template itself refuses the job, its message is more precise
        self._check_roles(view)
        return rendered

    def view(self, name: str) -> resolve.View:
        """Return a job or sweep with everything filled in.

        Raises:
            UsageError: There is no such job or sweep.
            ConfigError: The project file asks for what cannot be.
        """
        return resolve.resolve(self.loaded, name, self.catalog, self.artifacts)

    def in_run(self, view: resolve.View, run_id: str) -> Rendered:
        """Return the YAML of a job or sweep with the output folder of one run."""
        folder = run_ids.output_folder(self.loaded.project.bucket, view.name, run_id)
        return self._rendered(replace(view, job=replace(view.job, base_output_directory=folder), run_id=run_id))

    def _rendered(self, view: resolve.View) -> Rendered:
        project = self.loaded.project
        # what templates may name
        names = {
            "name": view.name,
            "project": project.project,
            "region": project.region,
            "bucket": project.bucket,
            "job": view.job,
            "sweep": view.sweep,
            "study": view.study,
            **view.pools,
        }
        try:
            text = self.templates.render(f"{view.topology}{TEMPLATE_SUFFIX}", names)
        except RefusedByTemplateError as refusal:
            raise self.loaded.error_at(str(refusal), *view.entry_path) from None
        kind = "job" if view.sweep is None else "sweep"
        heading = f"# vertexrig: {kind} {view.name}, topology {view.topology}"
        text = "\n".join((heading, *_without_nulls(text.splitlines()))) + "\n"
        if view.job.spec or (view.sweep and view.sweep.spec):
            text = _merged(text, view)
        return Rendered(view, text)

    def _check_topology(self, topology: str, path: tuple[str, str]) -> None:
        is_name = topology not in _SHARED and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", topology)
        if not is_name or not any(Path(folder, topology + TEMPLATE_SUFFIX).is_file() for folder in self.folders):
            names = self.topologies()
            raise self.loaded.error_at(
                f"there is no template {topology!r}. {did_you_mean(topology, names)}", *path, "topology"
            )

    def _check_roles(self, view: resolve.View) -> None:
        """Refuse a role that the project file gives and the template never looks at."""
        template = f"{view.job.topology}{TEMPLATE_SUFFIX}"
        for role, pool in view.pools.items():
            # the chief is no key of the project file
            if role != "chief" and pool is not None and role not in self.templates.names_used(template):
                message = f"topology {view.job.topology} has no {role.replace('_', ' ')}: leave {role} out, or use another topology"
                raise self.loaded.error_at(message, *view.job_path, role)

    def tf_version(self, name: str | None = None) -> str | None:
        """Return the TensorFlow of the image that a job's chief runs in, such as "2.17"; None if the image does not tell.

        None, too, for a job that installs packages of other URIs (`package_uris`) and not the trainer's.

        Args:
            name: A job or sweep; None asks for the project's own trainer.image.
        """
        if name is not None:
            # the version is known before the package has a URI, which takes a bucket
            return next(iter(resolve.resolve(self.loaded, name, self.catalog, _NoUris(self.loaded)).own_packages), None)
        image, framework = self.loaded.project.trainer.image, self.artifacts.framework
        newest = image == model.PREBUILT
        found = self.catalog.newest_image(framework, "cpu") if newest else self.catalog.find_short(image, "cpu")
        return found.version if found is not None and found.framework == "tf" else None


class _NoUris(Artifacts):
    """The trainer's packages, without their URIs."""

    def package(self, tf_version: str | None) -> str:
        return ""


def built_in_templates() -> Path:
    """Return the folder of the built-in templates, in an installed tool and in a plain checkout."""
    found = find_spec("vertexrig.templates")
    if found is None or found.origin is None:
        return Path(__file__).resolve().parents[2] / "templates"
    return Path(found.origin).parent


def _without_nulls(lines: Sequence[str]) -> list[str]:
    """Return the lines without those whose value is null, blank lines, and headings that have nothing left under them.

    Comments stay. If the first line of a list item goes, the dash moves to the item's next line:

        - machineSpec:                  becomes        - replicaCount: 1
            machineType: null                            diskSpec:
          replicaCount: 1                                  bootDiskSizeGb: 200
          diskSpec:
            bootDiskType: null
            bootDiskSizeGb: 200

    The lines are read from the last to the first, because whether a heading stays depends on the lines below it.
    """
    kept: list[str] = []  # from the last line to the first
    comments: list[str] = []
    below, below_is_item = -1, False  # indentation of the nearest kept line below, -1 at the end
    for line in reversed(lines):
        content = line.lstrip(" ")
        is_null = content.endswith(": null")
        # many lines end here: a null that begins no list item is removed, and so is a blank line
        if (is_null and content[0] not in "-#") or not content.strip():
            continue
        if content.startswith("#"):
            # held back until the next line that stays, so that kept[-1], which may get a dash, is no comment; every comment is kept
            comments.append(line)
            continue
        indent = len(line) - len(content)
        item = content.startswith("- ")
        key_indent = indent + 2 if item else indent  # of `machineSpec` in `- machineSpec:`
        # the line below belongs to this key if it is indented deeper, or is a list item at the key's own indentation
        has_content = below > key_indent or (below == key_indent and below_is_item)
        if is_null or (content.endswith(":") and not has_content):
            # the line below is the item's next key: it gets the dash
            if item and below == key_indent and not below_is_item:
                kept[-1] = f"{line[:indent]}- {kept[-1][key_indent:]}"
                below, below_is_item = indent, True
            continue
        kept += [*comments, line]
        comments.clear()
        below, below_is_item = indent, item
    return [*kept, *comments][::-1]


def spec_overlays(view: resolve.View) -> list[tuple[Mapping[str, Any], yamltext.FileKey, yamltext.FileKey]]:
    """Return the `spec:` mappings of the project file, with their places in the rendered job and in the project file."""
    if view.sweep is None:
        return [(view.job.spec, (), ("jobs", view.name, "spec"))]
    trial = (view.job.spec, ("trialJobSpec",), ("jobs", view.sweep.job, "spec"))
    return [trial, (view.sweep.spec, (), ("sweeps", view.name, "spec"))]


def _merged(text: str, view: resolve.View) -> str:
    """Return the YAML with the `spec:` mappings of the project file merged in, in the same form."""
    data = yamltext.read(text).data
    for spec_, path, _ in spec_overlays(view):
        data = merge(data, {path[0]: spec_} if path else spec_)
    # the first line is a comment, which reading the YAML loses
    heading, _, _ = text.partition("\n")
    return f"{heading}\n" + "\n".join(yamltext.block(data)) + "\n"


def merge(base: Any, over: Any) -> Any:
    """Return `base` with `over` laid on it: mappings key by key, lists of mappings item by item, all else replaced.

    Keys of `over` that are fields may be camelCase or snake_case; null removes a key.
    """
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        result = dict(base)
        for key, value in over.items():
            name = camel(str(key))
            if value is None:
                result.pop(name, None)
            elif name == "labels" and isinstance(value, Mapping):  # whose keys are names, not fields
                labels = {**(result.get(name) or {}), **value}
                result[name] = {label: text for label, text in labels.items() if text is not None}
            else:
                result[name] = merge(result.get(name), value)
        return result
    if isinstance(base, list) and isinstance(over, list) and all(isinstance(item, Mapping) for item in [*base, *over]):
        longest = max(len(base), len(over))
        return [merge(base[i] if i < len(base) else {}, over[i]) if i < len(over) else base[i] for i in range(longest)]
    if isinstance(over, Mapping):
        return merge({}, over)
    return [merge(None, item) for item in over] if isinstance(over, list) else over
