"""Where a trainer saves: what Keras 3 refuses, and several workers that write to one place."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks import strategy
from vertexrig.checks.model import DISTRIBUTED, PRACTICE, Context, Problem, Rule, join
from vertexrig.finding import Severity
from vertexrig.spec.document import Document
from vertexrig.trainer_source.trainer_model import Save

_KERAS = "Keras 3.15.1, saving_api.py and model_checkpoint.py, read 2026-11-21"


def keras_3_saving(document: Document, context: Context) -> Iterator[Problem]:
    found = strategy.keras_of(document, context)
    if found is None or context.trainer is None:
        return
    pool, image, certain = found
    for save in context.trainer.saves:
        reason = _refused(save)
        if reason:
            message = f"{save.file}:{save.line}: {reason} under Keras 3 ({image})"
            fix = "save to a file that ends in .keras, use model.export(folder) for a SavedModel, or use tf_keras"
            yield Problem(pool.program_path, message, fix, None if certain else Severity.WARNING)


def _refused(save: Save) -> str:
    """Tell why Keras 3 raises an error for a save; empty if it may not."""
    if save.ending is None:
        return ""
    if save.kind == "ModelCheckpoint":
        wanted = (".weights.h5",) if save.weights_only else (".keras", ".h5")
        if save.ending.endswith(wanted):
            return ""
        return f"ModelCheckpoint refuses a path that does not end in {' or '.join(wanted)}"
    if save.ending.endswith((".keras", ".h5", ".hdf5")):
        return ""
    return "model.save() refuses save_format" if save.save_format else "model.save() refuses a folder"


def workers_save_together(document: Document, context: Context) -> Iterator[Problem]:
    cluster = strategy.joined_workers(document, context)
    if cluster is None or not cluster.trainer.saves or cluster.trainer.tells_chief:
        return
    save = cluster.trainer.saves[0]
    message = (
        f"{cluster.replicas} replicas run {save.kind} ({save.file}:{save.line}), and nothing in the trainer tells the "
        "chief from the others: all of them write to one place"
    )
    fix = "let each worker other than the chief save to its own folder (the task's type and index are in TF_CONFIG)"
    yield Problem(cluster.pools[0].program_path, message, fix)


def bucket_opened_as_a_folder(document: Document, context: Context) -> Iterator[Problem]:
    if context.trainer is None or not document.output:
        return
    pool = next(iter(document.pools), None)
    if pool is None:
        return
    for place in context.trainer.local_writes:
        message = (
            f"{place.file}:{place.line}: {place.text} takes a local path, and the variable holds a gs:// path: what is "
            "written there is lost with the machine"
        )
        fix = 'replace "gs://" at its beginning with "/gcs/", or write with tf.io.gfile, google-cloud-storage or fsspec'
        yield Problem(pool.program_path, message, fix)


RULES: tuple[Rule, ...] = (
    Rule("keras-3-saving", Severity.ERROR, "A model is saved in a way that the image's Keras takes.", _KERAS, keras_3_saving),
    Rule("workers-save-together", Severity.WARNING, "Of several workers that train together, one saves the model.",
         join(DISTRIBUTED, PRACTICE), workers_save_together),
    Rule("gs-path-opened", Severity.WARNING, "A gs:// path of an AIP_… variable is not opened as a local path.",
         PRACTICE, bucket_opened_as_a_folder),
)  # fmt: skip
