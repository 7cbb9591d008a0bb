"""Mistakes in the trainer's source that fail every run: undefined names, undeclared flags, a module that starts nothing."""

from __future__ import annotations

from collections.abc import Iterator

from vertexrig.checks._arguments import trainer_pools
from vertexrig.checks.model import DISTRIBUTED, PACKAGE_DOC, REST, Context, Problem, Rule, join
from vertexrig.errors import nearest
from vertexrig.finding import Severity
from vertexrig.spec.document import Document, Pool
from vertexrig.trainer_source import started_program
from vertexrig.trainer_source.trainer_model import Defect

_PYTHON = "Python 3.11, run 2026-11-22"
_ARGPARSE = "Python's argparse, run 2026-11-22"
_OUTPUTS = ("AIP_MODEL_DIR", "AIP_CHECKPOINT_DIR", "AIP_TENSORBOARD_LOG_DIR")
_DATASETS = ("AIP_DATA_FORMAT", "AIP_TRAINING_DATA_URI", "AIP_VALIDATION_DATA_URI", "AIP_TEST_DATA_URI")
"""Set in the job of a training pipeline with a managed dataset."""
_SET = frozenset(
    "CLUSTER_SPEC TF_CONFIG CLOUD_ML_JOB_ID CLOUD_ML_PROJECT_ID CLOUD_ML_REGION CLOUD_ML_TRIAL_ID"
    " CLOUD_ML_HP_METRIC_FILE RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR MASTER_PORT PATH"
    " HOME HOSTNAME LANG PWD USER PYTHONPATH LD_LIBRARY_PATH CUDA_VISIBLE_DEVICES".split()
)
"""Set by the service, by a launcher of processes, or in any container."""


def _running(document: Document, context: Context, kind: str) -> Iterator[tuple[Pool, Defect]]:
    """Yield the trainer's defects of a kind, each with the first pool that runs it."""
    pools = trainer_pools(document, context.trainer) if context.trainer is not None else []
    if pools and context.trainer is not None:
        for defect in context.trainer.defects:
            if defect.kind == kind:
                yield pools[0], defect


def _severity(defect: Defect) -> Severity | None:
    return None if defect.certain else Severity.WARNING


def name_defined(document: Document, context: Context) -> Iterator[Problem]:
    for pool, defect in _running(document, context, "name"):
        message = f"{defect.where}: the name {defect.text!r} is used but never defined or imported"
        hint = f". Did you mean {defect.nearest!r}?" if defect.nearest else ""
        yield Problem(
            pool.program_path, message + hint, f"define or import {defect.text}, or correct it", _severity(defect)
        )


def flag_declared(document: Document, context: Context) -> Iterator[Problem]:
    for pool, defect in _running(document, context, "attribute"):
        attribute = defect.text.rpartition(".")[2]
        message = f"{defect.where}: {defect.text} is read, but no flag of the trainer defines {attribute!r}"
        hint = f". Did you mean {defect.nearest!r}?" if defect.nearest else ""
        declare = f"declare --{attribute} in the trainer"
        fix = f"write {defect.text.rpartition('.')[0]}.{defect.nearest}, or {declare}" if defect.nearest else declare
        yield Problem(pool.program_path, message + hint, fix, _severity(defect))


def module_runs(document: Document, context: Context) -> Iterator[Problem]:
    for pool, defect in _running(document, context, "idle"):
        if pool.command and started_program.find(pool.words) is None:
            continue  # a console script, which calls a function of the module
        message = (
            f"{defect.file} only defines functions and classes: nothing calls them when it is run, and the job succeeds at once "
            "without training"
        )
        call = (
            f'add: if __name__ == "__main__": {defect.nearest}()' if defect.nearest else "call the training at its end"
        )
        yield Problem(pool.program_path, message, f"{call}; or name the module that trains")


def command_line_read(document: Document, context: Context) -> Iterator[Problem]:
    for pool, defect in _running(document, context, "fixed"):
        if pool.args or document.parameters:
            what = "arguments and tuned parameters have" if document.parameters else "arguments have"
            message = f"{defect.where}: {defect.text} does not read the command line: the job's {what} no effect"
            yield Problem(pool.program_path, message, "call parse_args() without a list")


def notebook_only(document: Document, context: Context) -> Iterator[Problem]:
    for pool, defect in _running(document, context, "notebook"):
        message = f"{defect.where}: get_ipython() exists only in a notebook, and the trainer would stop there"
        fix = "delete the line; what `pip install` names in it belongs into requirements.txt"
        yield Problem(pool.program_path, message, fix, _severity(defect))


def variable_set(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    pools = trainer_pools(document, trainer) if trainer is not None else []
    if trainer is None or not pools:
        return
    given = {str(item.get("name")) for item in pools[0].env}
    for name, location in sorted(trainer.environment_needed.items()):
        if name in given or name in _SET or name in _OUTPUTS:
            continue
        if name in _DATASETS:
            message = f'{location.where} needs os.environ["{name}"], which only a training pipeline with a managed dataset sets'
            yield Problem(pools[0].program_path, message, "pass the data's URI in args", Severity.WARNING)
            continue
        message = f'{location.where} needs os.environ["{name}"], which neither Vertex AI nor the job sets'
        best = nearest(name, _OUTPUTS) if name.startswith("AIP_") else None
        hint, fix = (f". Did you mean {best!r}?", f"write {best}") if best else (": it has to be in the image", "")
        # a misspelt AIP_ name is certain to be unset; any other may be in the image
        severity = None if best else Severity.WARNING
        fix = fix or f'add it to env, or use os.environ.get("{name}")'
        yield Problem(pools[0].program_path, message + hint, fix, severity)


_E, _W = Severity.ERROR, Severity.WARNING

RULES: tuple[Rule, ...] = (
    Rule("name-undefined", _E, "Every name that the trainer uses is defined.", _PYTHON, name_defined),
    Rule("flag-undeclared", _E, "Every attribute read from the parsed flags is a flag's.", _ARGPARSE, flag_declared),
    Rule("module-idle", _E, "The module that is run does more than define things.", join(_PYTHON, PACKAGE_DOC), module_runs),
    Rule("arguments-unread", _E, "A trainer that is given arguments parses those of its command line.",
         _ARGPARSE, command_line_read),
    Rule("notebook-line", _E, "The trainer calls no function that exists only in a notebook.", _PYTHON, notebook_only),
    Rule("environment-unset", _E, "Every environment variable that the trainer requires is set.",
         join(REST, DISTRIBUTED), variable_set),
)  # fmt: skip
