"""Files of a trainer: gs:// paths that it reads or writes as local ones, what Keras 3 refuses, workers that overwrite each other."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks import strategy
from vertexrig.checks._arguments import Passed, passed, trainer_pools
from vertexrig.checks.model import DISTRIBUTED, PRACTICE, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document
from vertexrig.trainer_source.trainer_model import PathOrigin, PathUse, Save, TrainerSource

_KERAS = "Keras 3.15.1, saving_api.py and model_checkpoint.py, read 2026-11-21"
_RUN = "Python 3.11, NumPy 2.4.6, PyTorch 2.13.0 and pandas 3.1.1 on a gs:// path, run 2026-11-22"
_BUCKET = "gs://"
_MOST_PLACES = 3
"""Further places that a finding names."""


def keras_3_saving(document: Document, context: Context) -> Iterator[Problem]:
    found = strategy.keras_of(document, context)
    if found is None or context.trainer is None:
        return
    pool, image, certain = found
    for save in context.trainer.saves:
        reason = _refused(save)
        if reason:
            message = f"{save.where}: {reason} under Keras 3 ({image})"
            fix = "save to a file that ends in .keras, use model.export(folder) for a SavedModel, or use tf_keras"
            yield Problem(pool.program_path, message, fix, None if certain else Severity.WARNING)


def _refused(save: Save) -> str:
    """Return why Keras 3 raises an error for a save, "" if it may not."""
    if save.ending is None:
        return ""
    if save.kind == "ModelCheckpoint":
        wanted = (".weights.h5",) if save.weights_only else (".keras", ".h5")
        if save.ending.endswith(wanted):
            return ""
        return f"ModelCheckpoint refuses a path that does not end in {' or '.join(wanted)}"
    if save.ending.endswith((".keras", ".h5", ".hdf5")):
        return ""
    name = "save_model()" if save.kind == "save_model" else "model.save()"
    return f"{name} refuses save_format" if save.save_format else f"{name} refuses a folder"


def workers_save_together(document: Document, context: Context) -> Iterator[Problem]:
    cluster = strategy.joined_workers(document, context)
    if cluster is None or not cluster.trainer.saves or cluster.trainer.tells_chief:
        return
    save = cluster.trainer.saves[0]
    message = (
        f"{cluster.replicas} replicas run {save.kind} ({save.where}), and the trainer does not distinguish "
        "the chief: all of them write to the same path"
    )
    fix = "let each worker other than the chief save to its own folder (the task's type and index are in TF_CONFIG)"
    yield Problem(cluster.pools[0].program_path, message, fix)


def gs_path_opened(document: Document, context: Context) -> Iterator[Problem]:
    where: dict[tuple[str, str], list[PathUse]] = {}
    for use, path, given in _in_buckets(document, context):
        if use.writes and not use.by_gcsfs:
            where.setdefault((path, given), []).append(use)
    fix = 'replace "gs://" at its beginning with "/gcs/", or write with tf.io.gfile, google-cloud-storage or fsspec'
    for (path, given), uses in where.items():
        others = list(dict.fromkeys(use.where for use in uses))[1:]
        more = f" and {len(others) - _MOST_PLACES} more" if len(others) > _MOST_PLACES else ""
        also = f" (as in {', '.join(others[:_MOST_PLACES])}{more})" if others else ""
        message = (
            f"{uses[0].where}: {uses[0].function}() takes a local path, and is given {given}: it fails, or what it "
            f"writes is lost with the machine{also}"
        )
        yield Problem(path, message, fix)


def gs_path_read(document: Document, context: Context) -> Iterator[Problem]:
    seen: set[tuple[str, int]] = set()
    for use, path, given in _in_buckets(document, context):
        if (use.by_gcsfs or not use.writes) and (use.file, use.line) not in seen:
            seen.add((use.file, use.line))
            yield _problem(use, path, given)


def _in_buckets(document: Document, context: Context) -> Iterator[tuple[PathUse, str, str]]:
    """Yield each call that is given a gs:// path and cannot use it, with the path of its finding and the gs:// path in words."""
    trainer = context.trainer
    if trainer is None:
        return
    pools = [] if trainer.problems else trainer_pools(document, trainer)  # those whose arguments are known
    first = next(iter(pools or document.pools), None)
    if first is None:
        return
    arguments = [item for pool in pools for item in passed(pool, trainer) if item.flag is not None]
    other_image = first.container is not None and first.image not in context.built and not trainer.lacks_gcsfs
    for use in trainer.path_uses:
        if use.by_gcsfs and (trainer.names_gcsfs or other_image):  # the packages of another image are not known
            continue
        # A flag that is not given leaves the choice to what stands behind it: `args.out or os.environ["AIP_MODEL_DIR"]`.
        origins = [origin for origin in use.origins if not _is_absent(origin, trainer, arguments)]
        given = [_given(origin, trainer, arguments, bool(document.output_folder)) for origin in origins]
        # if no pool's arguments are known, neither is what a flag gives; a text or a variable gives the same in every pool
        if given and all(given) and (pools or not any(origin.flag for origin in use.origins)):
            path, text = given[0] or ("", "")  # never None: all() has seen to it
            yield use, path or first.program_path, text


def _is_absent(origin: PathOrigin, trainer: TrainerSource, arguments: list[Passed]) -> bool:
    """Whether a flag gives nothing: the job does not name it, and its default is plainly nothing."""
    empty = any(flag.dest == origin.flag and flag.empty for flag in trainer.flags)
    return empty and not any(item.flag is not None and item.flag.dest == origin.flag for item in arguments)


def _given(
    origin: PathOrigin, trainer: TrainerSource, arguments: list[Passed], has_output: bool
) -> tuple[str, str] | None:
    """Return the argument that gives a gs:// path ("" if none does), and the path in words; None if the value is not in a bucket."""
    if origin.variable:
        return ("", f"the gs:// path in {origin.variable}") if has_output else None
    if not origin.flag:
        return ("", origin.text) if origin.text.startswith(_BUCKET) else None
    for item in arguments:
        if item.flag is not None and item.flag.dest == origin.flag:
            # an argument replaces the default, so a default in a bucket does not count
            return (item.path, f"{item.name}={item.value}") if (item.value or "").startswith(_BUCKET) else None
    flag = next((flag for flag in trainer.flags if flag.dest == origin.flag), None)
    if flag is None:
        return None
    default = PathOrigin(text=flag.default if isinstance(flag.default, str) else "", variable=flag.default_variable)
    found = _given(default, trainer, arguments, has_output)
    return ("", f"{found[1]}, the default of {flag.names[0]}") if found is not None else None


def _problem(use: PathUse, path: str, given: str) -> Problem:
    where = f"{use.where}: {use.function}()"
    mounted = "/gcs/BUCKET/…, where the buckets are mounted"
    if use.by_gcsfs:
        verb = "write" if use.writes else "read"
        message = f"{where} {verb}s {given} by gcsfs, which the trainer does not require"
        return Problem(path, message, f"add gcsfs to the trainer's requirements, or {verb} {mounted}")
    message = f"{where} opens a local file, and is given {given}"
    return Problem(path, message, f"read {mounted}, or open it with tf.io.gfile, google-cloud-storage or fsspec")


def requirements_fit(document: Document, context: Context) -> Iterator[Problem]:
    """Yield what a build refuses and leaves out of the trainer's requirements."""
    fix = "remove the line, or write image: build to run the version that it names"
    problems: dict[str, Problem] = {}  # by message: the same for two images is said once
    for path, fit in context.fits():
        found = [Problem(path, f"the package would be refused: {one}") for one in fit.refusals]
        found += [Problem(path, one, fix, Severity.WARNING) for one in fit.left_out]
        for one in found:
            problems.setdefault(one.message, one)
    yield from problems.values()


RULES: tuple[Rule, ...] = (
    Rule("requirements", Severity.ERROR, "The trainer's requirements do not conflict with the image, and list what the trainer imports.",
         "what `vertexrig package` refuses, run 2026-11-26", requirements_fit),
    Rule("keras-3-saving", Severity.ERROR, "A model is saved in a way that the image's Keras takes.", _KERAS, keras_3_saving),
    Rule("workers-save-together", Severity.WARNING, "Of several workers that train together, one saves the model.",
         join(DISTRIBUTED, PRACTICE), workers_save_together),
    Rule("gs-path-opened", Severity.WARNING, "A gs:// path is not written to as a local path.",
         PRACTICE, gs_path_opened),
    Rule("gs-path-read", Severity.WARNING, "A gs:// path is read, and pandas writes to it, with a library that supports gs://.", _RUN, gs_path_read),
)  # fmt: skip
