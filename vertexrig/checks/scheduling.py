"""Scheduling: time limits, strategies, retries."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks.model import FLEX_DOC, PRACTICE, RESERVATION_DOC, REST, SPOT_DOC, Context, Problem, Rule, join
from vertexrig.checks.storage import OUTPUT_KEYS
from vertexrig.finding import Severity, write
from vertexrig.spec.document import Document, Pool, has_gpu, job_part, machine_path, scheduling_strategy, tpu_name
from vertexrig.times import duration_seconds


def _path(document: Document, key: str) -> str:
    return f"{document.job_path}scheduling.{key}"


def timeout_unset(document: Document, context: Context) -> Iterator[Problem]:
    path = _path(document, "timeout")
    pools = document.running
    if document.kind != "CustomJobSpec" or not pools:
        return  # trial-timeout covers studies
    if "timeout" in job_part(document, "scheduling") or document.refused_at(path):
        return
    hours = context.catalog.limits.integer("scheduling.default_timeout_s") // 3600
    # a negative count is another rule's finding, and must not shorten the sum
    machines = sum(max(0, pool.replica_count) for pool in pools)
    gpus = sum(max(0, pool.replica_count * pool.accelerator_count) for pool in pools if has_gpu(pool, context.catalog))
    text = f"no timeout: a job that hangs runs {hours // 24} days, here {machines * hours:,} machine-hours"
    if gpus:
        text += f" and {gpus * hours:,} GPU-hours"
    yield Problem(path, text, "write scheduling.timeout, such as 7200s")


def timeout_positive(document: Document, context: Context) -> Iterator[Problem]:
    for key in ("timeout", "maxWaitDuration"):
        length = duration_seconds(job_part(document, "scheduling").get(key))
        if length is None:
            continue
        if length < 0:
            yield Problem(_path(document, key), f"{key} is negative: {length:g}s", "write a positive number of seconds")
        elif length == 0 and key == "timeout":
            text = "a timeout of 0s sets no limit: the default of 7 days applies"
            yield Problem(_path(document, key), text, "write a positive number of seconds", Severity.WARNING)


def flex_timeout(document: Document, context: Context) -> Iterator[Problem]:
    most = context.catalog.limits.integer("scheduling.flex_start_max_timeout_s")
    length = duration_seconds(job_part(document, "scheduling").get("timeout"))
    if scheduling_strategy(document) == "FLEX_START" and length is not None and length > most:
        text = f"with FLEX_START a job runs at most {most // 86400} days; the timeout is {length / 86400:.3g} days"
        yield Problem(_path(document, "timeout"), text, f"write {most}s or less", edits=write(f"{most}s"))


def _flex_pools(document: Document) -> tuple[Pool, ...]:
    """Return the running pools of a job with FLEX_START; none for another job."""
    return document.running if scheduling_strategy(document) == "FLEX_START" else ()


def flex_accelerator(document: Document, context: Context) -> Iterator[Problem]:
    catalog = context.catalog
    allowed = [name for name, row in catalog.accelerators.items() if row.flex_start]
    for pool in _flex_pools(document):
        row = catalog.accelerators.get(pool.accelerator_type)
        if tpu_name(pool, catalog) or (row is not None and row.flex_start):
            continue
        fixed = catalog.machines.get(pool.machine_type)
        if row is None and fixed is not None and set(fixed.accelerators) & set(allowed):
            continue  # accelerator-missing reports it
        has = pool.accelerator_type or "no accelerator"
        text = f"FLEX_START is for {', '.join(allowed)}; pool {pool.index} has {has}"
        yield Problem(machine_path(pool, "acceleratorType"), text, "use STANDARD or SPOT, or another accelerator")


def flex_machines(document: Document, context: Context) -> Iterator[Problem]:
    pools = _flex_pools(document)
    for pool in pools[1:]:
        if pool.machine != pools[0].machine:
            text = f"with FLEX_START all pools have the same machines, and pool {pool.index} has others"
            yield Problem(f"{pool.path}.machineSpec", text, "write the same machineSpec, or use STANDARD")


def flex_reservation(document: Document, context: Context) -> Iterator[Problem]:
    for pool in _flex_pools(document):
        if pool.reserved:
            text = "FLEX_START cannot be combined with reservations"
            yield Problem(machine_path(pool, "reservationAffinity"), text, "remove one of the two")


def max_wait(document: Document, context: Context) -> Iterator[Problem]:
    length = duration_seconds(job_part(document, "scheduling").get("maxWaitDuration"))
    if length is None or length < 0:
        return
    path = _path(document, "maxWaitDuration")
    if scheduling_strategy(document) != "FLEX_START":
        text = f"maxWaitDuration counts only with FLEX_START; the strategy is {scheduling_strategy(document)}"
        yield Problem(path, text, "write strategy: FLEX_START, or remove maxWaitDuration")
    elif length == 0:
        yield Problem(
            path, "a maxWaitDuration of 0s sets no limit: the job waits until there is capacity", "", Severity.INFO
        )


def strategy_deprecated(document: Document, context: Context) -> Iterator[Problem]:
    written = str(job_part(document, "scheduling").get("strategy", ""))
    instead = context.catalog.limits.table("scheduling.deprecated_strategies").get(written)
    if instead:
        yield Problem(_path(document, "strategy"), f"{written} is the old name of {instead}", edits=write(instead))


def retries(document: Document, context: Context) -> Iterator[Problem]:
    scheduling = job_part(document, "scheduling")
    if scheduling.get("disableRetries") and scheduling.get("restartJobOnWorkerRestart"):
        text = "disableRetries turns restartJobOnWorkerRestart off"
        yield Problem(_path(document, "restartJobOnWorkerRestart"), text, "keep one of the two")


def spot_restarts(document: Document, context: Context) -> Iterator[Problem]:
    if scheduling_strategy(document) == "SPOT" and document.running:
        if job_part(document, "scheduling").get("disableRetries"):
            text = (
                "with disableRetries, a preempted Spot job may end instead of beginning again (Google's documentation does not say): "
                "what it has not stored in Cloud Storage is lost"
            )
            yield Problem(_path(document, "strategy"), text, "", Severity.INFO)
            return
        text = "a preempted Spot job begins again, up to six times: it must resume from its own checkpoints"
        if not job_part(document, "baseOutputDirectory").get("outputUriPrefix"):
            fix, key_fix = (
                f"write {words}, so that AIP_CHECKPOINT_DIR is set" for words in ("baseOutputDirectory", OUTPUT_KEYS)
            )
            yield Problem(_path(document, "strategy"), text, fix, Severity.WARNING, key_fix)
        else:
            yield Problem(_path(document, "strategy"), text)


RULES = (
    Rule("timeout-unset", Severity.WARNING, "A job sets its timeout.", REST, timeout_unset),
    Rule("duration-negative", Severity.ERROR, "Durations are positive.", REST, timeout_positive),
    Rule("flex-start-timeout", Severity.ERROR, "With FLEX_START the timeout is 7 days or less.",
         FLEX_DOC, flex_timeout, "unsafe"),
    Rule("flex-start-accelerator", Severity.ERROR, "With FLEX_START every pool has GPUs it is offered for.",
         FLEX_DOC, flex_accelerator),
    Rule("flex-start-machines", Severity.ERROR, "With FLEX_START all pools have the same machines.",
         FLEX_DOC, flex_machines),
    Rule("flex-start-reservation", Severity.WARNING, "With FLEX_START no reservation is used.",
         join(FLEX_DOC, RESERVATION_DOC), flex_reservation),
    Rule("max-wait", Severity.WARNING, "maxWaitDuration is set with FLEX_START only.", REST, max_wait),
    Rule("strategy-deprecated", Severity.WARNING, "The strategy has its present name.", REST, strategy_deprecated, "safe"),
    Rule("retries", Severity.WARNING, "disableRetries and restartJobOnWorkerRestart are not both set.", REST, retries),
    Rule("spot-restarts", Severity.INFO, "A Spot job can restart.", join(SPOT_DOC, PRACTICE), spot_restarts),
)  # fmt: skip
