"""Container images: prebuilt ones by name, date and kind, custom ones by their registry, and those built of the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from vertexrig.catalog import Catalog, Image
from vertexrig.checks.model import (
    BUILT,
    GCLOUD,
    IMAGES,
    PACKAGE_DOC,
    POLICY,
    PRACTICE,
    PROJECT_ID,
    REGISTRY,
    REST,
    TPU_DOC,
    TRAIN_COMPUTE,
    WALKTHROUGH,
    BuiltImage,
    Context,
    Problem,
    Rule,
    join,
)
from vertexrig.errors import did_you_mean, meant
from vertexrig.finding import Edit, Severity, write
from vertexrig.spec.document import Document, Pool, has_gpu, tpu_name
from vertexrig.text import quoted

AVAILABILITY = "image-availability"
_LEGACY = re.compile(r"(?:[a-z]+\.)?gcr\.io/cloud-aiplatform/training/")
_GCR = re.compile(r"(us\.|eu\.|asia\.)?gcr\.io/([^/]+)/")
_GOOGLE_HOST = re.compile(r"(?:(?:us|eu|asia)\.)?gcr\.io|[a-z0-9-]+-docker\.pkg\.dev")
_DOCKER_HUB = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io"})
_PROJECT_ID = re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9]")
# What an image of Google's own list is called; one for TPU pods has an entry point that starts its args.
_LIBRARIES = re.compile(r"(?:tf|pytorch|scikit-learn|sklearn|xgboost)-(?:cpu|gpu|tpu|xla)(?:\.|$)")
# Google's own images at gcr.io addresses are hosted on Artifact Registry.
_GOOGLES = frozenset(
    "cloud-aiplatform deeplearning-platform-release distroless google-containers google.com google".split()
)
# HOST:PORT/PATH:TAG@DIGEST, after the grammar of github.com/distribution/reference
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_LONGEST = 1000


def _path(pool: Pool) -> str:
    return f"{pool.program_path}.{'executorImageUri' if pool.python_package is not None else 'imageUri'}"


def _bare(uri: str) -> str:
    """Return a URI without its tag and digest."""
    bare = uri.partition("@")[0]
    # only behind the last slash: a colon before it is a port's
    head, slash, name = bare.rpartition("/")
    return head + slash + name.partition(":")[0]


def _place(uri: str) -> tuple[str, str]:
    """Return an image's host, and its project or ""; the project of a domain has two parts, `example.com/NAME`."""
    host, _, path = uri.partition("/")
    project, _, rest = path.partition("/")
    if "." in project and not _GOOGLE_HOST.fullmatch(project):
        name, _, rest = rest.partition("/")
        project = f"{project}/{name}"
    return host, project if rest else ""


def _may_be_project(project: str) -> bool:
    """Whether a project may have this ID: Google's own, such as google_containers, have other forms."""
    known = project.startswith(("google_", "google-")) or project in _GOOGLES
    return known or "/" in project or project.isdecimal() or _PROJECT_ID.fullmatch(project) is not None


def _in_repository(uri: str, catalog: Catalog) -> bool:
    host, _, path = uri.partition("/")
    repository = catalog.limits.text("images.repository")
    return host in catalog.limits.names("images.hosts") and path.startswith(repository + "/")


def _prebuilt(uri: str, catalog: Catalog) -> Image | None:
    """Return the prebuilt image a URI means, whatever its tag."""
    return catalog.image(f"{_bare(uri)}:{catalog.limits.text('images.tag')}") if _in_repository(uri, catalog) else None


def _images(document: Document, context: Context) -> Iterator[tuple[Pool, Image]]:
    """Yield the running pools on prebuilt images."""
    for pool in document.running:
        image = _prebuilt(pool.image, context.catalog)
        if image is not None:
            yield pool, image


def _known(document: Document, context: Context) -> Iterator[tuple[Pool, Image]]:
    """Yield the running pools on prebuilt images, and on those that the project makes of its trainer."""
    yield from _images(document, context)
    for pool in document.running:
        if pool.image in context.built:
            yield pool, context.built[pool.image].row


def _needs(pool: Pool, catalog: Catalog) -> str:
    """Return what the pool's machines compute on: "tpu", "gpu" or "cpu"."""
    return "tpu" if tpu_name(pool, catalog) else "gpu" if has_gpu(pool, catalog) else "cpu"


def _instead(image: Image, kind: str, catalog: Catalog, pool: Pool) -> tuple[str, tuple[Edit, ...]]:
    """Return the fix that takes the same image for machines of a kind: in words, or as an edit."""
    if not image.end_of_availability:  # one of our own
        return "write image: build, which takes the image for the machine", ()
    other = catalog.find_image(image.framework, image.version, kind, image.python)
    return "", write(other.uri(pool.image.partition("/")[0]) if other is not None else None)


def image_missing(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        has_program = pool.container is not None or pool.python_package is not None
        if has_program and not pool.image and not document.refused_at(_path(pool)):
            key = _path(pool).rpartition(".")[2]
            yield Problem(_path(pool), f"{key} is required", f"write {key}")


def image_form(document: Document, context: Context) -> Iterator[Problem]:
    seen: set[str] = set()
    for pool in document.pools:
        uri = pool.image
        if uri and (len(uri) > _LONGEST or not _REFERENCE.fullmatch(uri)):
            text = f"{quoted(uri)} is not the name of an image: HOST/PROJECT/REPOSITORY/IMAGE:TAG, with PROJECT to IMAGE in lower case"
            bare = uri.partition("://")[2] if uri.startswith(("http://", "https://")) else ""
            yield Problem(_path(pool), text, edits=write(bare))
        elif uri not in seen:
            seen.add(uri)
            yield from _registry(_path(pool), uri)


def _registry(path: str, uri: str) -> Iterator[Problem]:
    """Yield the problem of a URI with a second registry's host in the project's place, or with a project that cannot exist."""
    host, project = _place(uri)
    if _GOOGLE_HOST.fullmatch(project) and (_GOOGLE_HOST.fullmatch(host) or host in _DOCKER_HUB):
        text = f"{uri[:120]} names two registry hosts; {host} reads the second, {project}, as a project or user, and none has that name"
        yield Problem(path, text, edits=write(uri.partition("/")[2]))
    elif _GOOGLE_HOST.fullmatch(host) and project and not _may_be_project(project):
        text = (
            f"no project has the ID {project!r}, as in {uri[:120]}: an ID has 6 to 30 lower-case letters, digits and hyphens, "
            "begins with a letter and does not end with a hyphen"
        )
        yield Problem(
            path, text, f"write the ID of the project that has the image: {host}/PROJECT_ID/…", Severity.WARNING
        )


def image_executor(document: Document, context: Context) -> Iterator[Problem]:
    seen: set[tuple[str, ...]] = set()
    for pool in document.pools:
        uri = pool.image
        if pool.python_package is None and _is_prebuilt(uri, context.catalog):
            program = (uri, *pool.words)
            problem = _trainer_missing(document, pool)
            if problem is not None and program not in seen:  # pools mostly share their program
                seen.add(program)
                yield problem
        if pool.python_package is None or not uri or len(uri) > _LONGEST or not _REFERENCE.fullmatch(uri):
            continue
        doubled = _GOOGLE_HOST.fullmatch(_place(uri)[1])  # the rule image-form finds that
        if not doubled and not _in_repository(uri, context.catalog) and not _LEGACY.match(uri):
            text = f"{uri} is not a prebuilt image, and executorImageUri takes prebuilt images only"
            yield Problem(_path(pool), text, "write the image under containerSpec.imageUri, with a command")


def _is_prebuilt(uri: str, catalog: Catalog) -> bool:
    """Whether an image is of Google's repository for training, also at its old address, and has libraries alone."""
    found = _in_repository(uri, catalog) or _LEGACY.match(uri) is not None
    return found and _LIBRARIES.match(_bare(uri).rpartition("/")[2]) is not None


def _trainer_missing(document: Document, pool: Pool) -> Problem | None:
    """Return the problem of a container on a prebuilt image that starts nothing, or a file that only a trainer would bring."""
    name = _bare(pool.image).rpartition("/")[2]
    keys = [f"{pool.program_path}.{key}" for key in ("command", "args")]
    if any(key in document.placeholders or document.refused_at(key) for key in keys):
        return None  # the program is not known
    package = "write the image as executorImageUri of a pythonPackageSpec, with packageUris and pythonModule"
    if not pool.command and (not pool.args or re.match(r"--\w", pool.args[0])):
        given = (
            f"args ({pool.args[0].partition('=')[0][:60]}{', …' if len(pool.args) > 1 else ''})"
            if pool.args
            else "no command or args"
        )
        text = f"{name} is a prebuilt image, with libraries and no trainer, and containerSpec has {given}: nothing names a program to run"
        return Problem(_path(pool), text, package, Severity.WARNING)
    # here: few jobs need it
    from vertexrig.trainer_source import started_program

    program = started_program.find(pool.words)
    # what a shell starts may be what it fetched before
    if program is not None and program.end and not program.is_module and _beside(program.name):
        text = f"{program.name} is not in {name}, a prebuilt image with libraries and no trainer, and the command fetches nothing"
        fix = f"{package}; or copy the file into an image of your own"
        return Problem(keys[0] if pool.command else keys[1], text, fix, Severity.WARNING)
    return None


def _beside(name: str) -> bool:
    """Whether a script is named relative to the image's own folder; /gcs, seen from the root, is a bucket's."""
    return re.fullmatch(r"(?!gcs/|mnt/)(?:\./)?\w[\w-]*(?:[/.][\w-]+)*", name) is not None


def image_unknown(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    for pool in document.pools:
        uri = pool.image
        if not _in_repository(uri, catalog) or _prebuilt(uri, catalog) is not None:
            continue
        name = _bare(uri).rpartition("/")[2]
        if any(f"/{name}:" in known for known in catalog.limits.names("tpu.pod_base_images")):
            continue
        best, others = _meant(name, catalog)
        edits = write(best.uri(uri.partition("/")[0]) if best else None)
        guess = f"Did you mean {best.name!r}?" if best else did_you_mean(name, others, most=6)
        yield Problem(_path(pool), f"{name!r} is not on the list of prebuilt images. {guess}", edits=edits)


def _meant(name: str, catalog: Catalog) -> tuple[Image | None, list[str]]:
    """Return the prebuilt image that a name without its Python version (`pytorch-gpu.2-4`) means; and those of its framework."""
    # with the dot, or tf-cpu.2-1 would begin tf-cpu.2-17
    begins = name if re.search(r"\.[cp][py]\d*$", name) else f"{name}."
    longer = [image for image in catalog.images if image.name.startswith(begins)]
    if longer:
        return max(longer, key=lambda image: [int(part) for part in image.python.split(".")]), []
    kind = name.partition(".")[0]
    names = [image.name for image in catalog.images]
    alike = [one for one in names if one.partition(".")[0] == kind] or [
        one for one in names if one.partition("-")[0] == name.partition("-")[0]
    ]
    best = meant(name, alike)
    return next((image for image in catalog.images if image.name == best), None), alike or names


def image_tag(document: Document, context: Context) -> Iterator[Problem]:
    wanted = context.catalog.limits.text("images.tag")
    for pool in document.pools:
        uri = pool.image
        if "@" in uri:  # a digest names one image, whatever the tag before it
            continue
        if _in_repository(uri, context.catalog) and uri not in (_bare(uri), f"{_bare(uri)}:{wanted}"):
            tag = uri.removeprefix(f"{_bare(uri)}:")
            text = f"{_bare(uri)[:120]} has the tag {quoted(tag)}; prebuilt images have only the tag {wanted}"
            yield Problem(_path(pool), text, edits=write(f"{_bare(uri)}:{wanted}"))


def image_legacy(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.pools:
        if not _LEGACY.match(pool.image):
            continue
        name = _bare(pool.image).rpartition("/")[2]
        known = next((image for image in context.catalog.images if image.name == name), None)
        text = f"{pool.image} is an old address of the prebuilt images, no longer on their list"
        host = context.catalog.host_for_region(context.region)
        fix = "" if known else f"take one of {host}/vertex-ai/training"
        yield Problem(_path(pool), text, fix, edits=write(known.uri(host) if known else None))


def image_gcr(document: Document, context: Context) -> Iterator[Problem]:
    # chief and workers mostly share their image: one finding is enough
    seen: set[str] = set()
    for pool in document.pools:
        found = _GCR.match(pool.image)
        if found is None or _LEGACY.match(pool.image) or found[2] in _GOOGLES or pool.image in seen:
            continue
        _, project = _place(pool.image)
        if _GOOGLE_HOST.fullmatch(project):
            continue  # it is of another registry, which the rule image-form finds
        seen.add(pool.image)
        text = (
            f"{pool.image[:120]} is a Container Registry address, and that service was shut down on 2025-03-18. The image exists only "
            "if Artifact Registry has the project's gcr.io repository: one that was migrated, or one of a project newer than 2024-05-15"
        )
        area = {"": "us", "us.": "us", "eu.": "europe", "asia.": "asia"}[found[1] or ""]
        image = _bare(pool.image).rpartition("/")[2]
        project = project if project and _may_be_project(project) else "PROJECT"
        fix = f"push it to Artifact Registry: {area}-docker.pkg.dev/{project}/REPOSITORY/{image}:TAG"
        yield Problem(_path(pool), text, fix)


def _each_image(document: Document, context: Context) -> Iterator[tuple[Pool, Image]]:
    """Yield the prebuilt images of the document, each once, with the first pool that has it."""
    seen: set[str] = set()
    for pool, image in _images(document, context):
        if image.name not in seen:
            seen.add(image.name)
            yield pool, image


def image_availability(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _each_image(document, context):
        end = image.end_of_availability
        if end <= context.today.isoformat():
            text = f"image {image.name} passed its end-of-availability date ({end}); Vertex AI may refuse it"
            newer = _newer(image, context)
            build = "build an image of your own with the same packages (in a project file: image: build, then `vertexrig image NAME --push`)"
            edits = write(newer.uri(pool.image.partition("/")[0]) if newer else None)
            # info: no newer image is left to take, and no refused job is on public record
            is_newest = image == context.catalog.newest_image(image.framework, _needs(pool, context.catalog))
            severity = Severity.INFO if is_newest else None
            yield Problem(_path(pool), text, "" if edits else build, severity, edits=edits)


def _newer(image: Image, context: Context) -> Image | None:
    """Return the newest image of the same framework and kind that is still available."""
    same = (one for one in context.catalog.images if (one.framework, one.kind) == (image.framework, image.kind))
    return next((one for one in same if date.fromisoformat(one.end_of_availability) > context.today), None)


def image_support(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _each_image(document, context):
        days = (context.today - date.fromisoformat(image.end_of_support)).days
        left = (date.fromisoformat(image.end_of_availability) - context.today).days
        if days >= 0 and left > 0:
            text = (
                f"{image.name} passed its end of support on {image.end_of_support}, {days} days ago; "
                f"it stays available until {image.end_of_availability}, {left} days from now"
            )
            yield Problem(_path(pool), text)


def image_without_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    """Yield a CPU image on a GPU or TPU machine, or a GPU image on a TPU machine: paid for, never used."""
    for pool, image in _known(document, context):
        needs = _needs(pool, context.catalog)
        if needs == "cpu" or needs in image.kind.split("_or_") or image.kind == "tpu":  # a kind may be cpu_or_gpu
            continue
        what = pool.accelerator_type or pool.machine_type
        text = f"{image.name} has no {needs.upper()} support: {what} would be paid for and not used"
        # PyTorch's CPU images are built with XLA, which also drives TPUs: listed as "CPU only", not proven.
        unsure = needs == "tpu" and image.framework == "pytorch" and image.kind == "cpu"
        fix, edits = _instead(image, needs, context.catalog, pool)
        yield Problem(_path(pool), text, fix, Severity.WARNING if unsure else None, edits=edits)


def image_gpu_unused(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _known(document, context):
        if document.refused_at(f"{pool.path}.machineSpec.acceleratorType"):
            continue  # which accelerator the pool has is not known
        if image.kind == "gpu" and _needs(pool, context.catalog) == "cpu":
            text = f"{image.name} is made for GPUs, and pool {pool.index} has none"
            fix, edits = _instead(image, "cpu", context.catalog, pool)
            yield Problem(_path(pool), text, fix, edits=edits)


def image_tpu_unused(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _known(document, context):
        needs = _needs(pool, context.catalog)
        if image.kind == "tpu" and needs != "tpu":
            text = f"{image.name} is made for TPUs, and pool {pool.index} has none"
            fix, edits = _instead(image, needs, context.catalog, pool)
            yield Problem(_path(pool), text, fix, edits=edits)


def image_tpu_generation(document: Document, context: Context) -> Iterator[Problem]:
    catalog, limits = context.catalog, context.catalog.limits
    covered, without = limits.names("tpu.prebuilt_tensorflow_for"), limits.names("tpu.without_tensorflow")
    for pool, image in _images(document, context):
        name = tpu_name(pool, catalog).removesuffix("_POD")
        if not name or image.kind != "tpu" or name in covered or image.framework not in ("tf", "pytorch"):
            continue
        if image.framework == "tf" and name in without:
            text = f"TensorFlow is documented as not supported on {name}; JAX and PyTorch are"
        else:
            text = f"prebuilt TPU images are documented for {' and '.join(covered)}, not for {name}"
        yield Problem(_path(pool), text, "use a custom image under containerSpec")


def image_hypertune(document: Document, context: Context) -> Iterator[Problem]:
    if document.study is None:
        return
    for pool in document.running[:1]:  # the chief reports
        image = _prebuilt(pool.image, context.catalog)
        if image is not None and not image.hypertune:
            text = f"cloudml-hypertune is not on the list of packages of {image.name}, and trials report with it"
            yield Problem(_path(pool), text, "add cloudml-hypertune to the trainer's requirements")
        elif image is None and pool.container is not None and pool.image and pool.image not in context.built:
            text = "trials report with cloudml-hypertune, which a custom image must install"
            yield Problem(_path(pool), text, "", Severity.INFO)


def image_far(document: Document, context: Context) -> Iterator[Problem]:
    if not context.region:
        return
    near = context.catalog.host_for_region(context.region)
    for pool, _ in _images(document, context):
        host = pool.image.partition("/")[0]
        if host != near:
            text = f"{host} is far from {context.region}: the same image comes faster from {near}"
            yield Problem(_path(pool), text, edits=write(f"{near}/{pool.image.partition('/')[2]}"))


def image_arm(document: Document, context: Context) -> Iterator[Problem]:
    for pool in document.running:
        if pool.machine_type.startswith("a4x-"):
            text = "A4X machines are ARM: the image must be built for linux/arm64, where all others need linux/amd64"
            yield Problem(_path(pool), text)


def _built(document: Document, context: Context) -> Iterator[tuple[Pool, BuiltImage]]:
    """Yield the images that the project makes of its trainer, each with the first pool that runs it."""
    pools = {pool.image: pool for pool in reversed(document.pools) if pool.image in context.built}
    for uri, pool in pools.items():
        yield pool, context.built[uri]


def image_lock(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _built(document, context):
        if not image.locked:
            text = f"{image.row.name} was never built here: it has no lock file {image.lock}"
            yield Problem(f"{pool.program_path}.imageUri", text, "run `vertexrig image NAME`, and commit the lock file")


def image_python(document: Document, context: Context) -> Iterator[Problem]:
    for pool, image in _built(document, context):
        least = re.search(r"(?:>=|~=|==|>)\s*3\.(\d+)", image.needs_python)
        if least is not None and int(least[1]) > int(image.row.python.partition(".")[2]):
            text = f"the trainer needs Python {image.needs_python}, and {image.row.name} has {image.row.python}"
            yield Problem(f"{pool.program_path}.imageUri", text, f'write python: "3.{least[1]}" under trainer.build')


RULES = (
    Rule("image-missing", Severity.ERROR, "Every program names its image.", join(REST, GCLOUD), image_missing),
    Rule("image-form", Severity.ERROR, "An image is named HOST/PATH:TAG, with one host and a project that may exist.",
         join(REST, PROJECT_ID), image_form, "safe"),
    Rule("image-executor", Severity.ERROR,
         "executorImageUri is a prebuilt image; a containerSpec with a prebuilt image names a program that exists in it.",
         join(REST, PACKAGE_DOC), image_executor),
    Rule("image-unknown", Severity.WARNING, "A prebuilt image is on the list.", IMAGES, image_unknown, "safe"),
    Rule("image-tag", Severity.ERROR, "A prebuilt image has the tag latest, a digest, or none.", IMAGES, image_tag, "safe"),
    Rule("image-legacy", Severity.WARNING, "A prebuilt image comes from its present host.", IMAGES, image_legacy, "safe"),
    Rule("image-gcr", Severity.WARNING, "No image comes from Container Registry.", REGISTRY, image_gcr),
    Rule(AVAILABILITY, Severity.WARNING, "No prebuilt image is past its end of availability.",
         join(IMAGES, POLICY), image_availability, "safe"),
    Rule("image-support", Severity.INFO, "No prebuilt image is past its end of support.",
         join(IMAGES, POLICY), image_support),
    Rule("image-accelerator", Severity.ERROR, "An image on a GPU or TPU machine can use it.",
         join(IMAGES, WALKTHROUGH), image_without_accelerator, "unsafe"),
    Rule("image-gpu-unused", Severity.WARNING, "A GPU image is on a machine with GPUs.", IMAGES, image_gpu_unused, "unsafe"),
    Rule("image-tpu-unused", Severity.WARNING, "A TPU image is on a TPU machine.", IMAGES, image_tpu_unused, "unsafe"),
    Rule("image-tpu-generation", Severity.WARNING, "A prebuilt TPU image is on a TPU it was made for.",
         TPU_DOC, image_tpu_generation),
    Rule("image-hypertune", Severity.WARNING, "The image of a study has cloudml-hypertune.", IMAGES, image_hypertune),
    Rule("image-far", Severity.INFO, "A prebuilt image comes from the host nearest to the region.", IMAGES, image_far, "unsafe"),
    Rule("image-arm", Severity.INFO, "The image is built for the machine's processor.",
         join(TRAIN_COMPUTE, PRACTICE), image_arm),
    Rule("image-lock", Severity.INFO, "An image of the project's own trainer has a lock file.", BUILT, image_lock),
    Rule("image-python", Severity.ERROR, "An image of the project's own trainer has the Python that it needs.",
         BUILT, image_python),
)  # fmt: skip
