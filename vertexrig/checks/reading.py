"""What a trainer reads: paths in buckets and functions that only know files of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks._arguments import passed, trainer_pools
from vertexrig.checks.model import Context, Problem, Rule
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.trainer_source.trainer_model import PathRead, TrainerSource

_RUN = "Python 3.11, NumPy 2.4.6, PyTorch 2.13.0 and pandas 3.1.1 on a gs:// path, run 2026-11-22"
_BUCKET = "gs://"


def gs_path_read(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    pools = trainer_pools(document, trainer) if trainer is not None and not trainer.problems else []
    if trainer is None or not pools:
        return
    foreign = pools[0].container is not None and pools[0].image not in context.built
    seen: set[tuple[str, int]] = set()
    for read in trainer.reads:
        if read.by_gcsfs and (trainer.names_gcsfs or foreign):  # what an image of somebody else brings is not known
            continue
        found = _given(read, trainer, pools)
        if found is not None and (read.file, read.line) not in seen:
            seen.add((read.file, read.line))
            yield _problem(read, *found)


def _given(read: PathRead, trainer: TrainerSource, pools: list[Pool]) -> tuple[str, str] | None:
    """Return where the path comes from: the path of the finding, and words for it; None if it is not in a bucket."""
    if not read.flag:
        literal = read.source.startswith(_BUCKET)
        return pools[0].program_path, read.source if literal else f"a gs:// path ({read.source})"
    for pool in pools:
        for item in passed(pool, trainer):
            if item.flag is not None and item.flag.dest == read.flag:
                # what is given takes the place of the default, so a default in a bucket does not count then
                return (item.path, f"{item.name}={item.value}") if (item.value or "").startswith(_BUCKET) else None
    default = next((flag.default for flag in trainer.flags if flag.dest == read.flag), None)
    if isinstance(default, str) and default.startswith(_BUCKET):
        return pools[0].program_path, f"{default}, the default of --{read.flag}"
    return None


def _problem(read: PathRead, path: str, given: str) -> Problem:
    where = f"{read.file}:{read.line}: {read.function}()"
    mounted = "/gcs/BUCKET/…, where the buckets are mounted"
    if read.by_gcsfs:
        message = f"{where} reads {given} by gcsfs, which the trainer does not require"
        return Problem(path, message, f"add gcsfs to the trainer's requirements, or read {mounted}")
    message = f"{where} looks for a file of the machine, and is given {given}"
    return Problem(path, message, f"read {mounted}, or open it with tf.io.gfile, google-cloud-storage or fsspec")


RULES: tuple[Rule, ...] = (
    Rule("gs-path-read", Severity.WARNING, "A gs:// path is read by something that can.", _RUN, gs_path_read),
)
