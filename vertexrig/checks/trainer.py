"""The trainer's source against the job and its study: flags, types, metrics.

Where the source is not clear, nothing is found: a false alarm costs more here than a missed mistake.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps

from vertexrig.checks._arguments import (
    Passed,
    given_to_absl,
    is_choice,
    is_number,
    leading,
    nearest_option,
    parses,
    passed,
    trainer_pools,
)
from vertexrig.checks.model import DISTRIBUTED, PACKAGE_DOC, REST, TUNING_DOC, Context, Problem, Rule, join
from vertexrig.checks.storage import OUTPUT, OUTPUT_KEYS
from vertexrig.errors import did_you_mean, meant, nearest
from vertexrig.finding import REMOVE, Edit, Severity, write
from vertexrig.package.image_modules import own_module
from vertexrig.spec.document import Document, Pool
from vertexrig.spec.parameters import Parameter
from vertexrig.spec.placeholders import trial_values
from vertexrig.trainer_source.trainer_model import DEFAULT_METRIC, Flag, TrainerSource
from vertexrig.yamltext import scalar

_ARGPARSE = join("Python's argparse, run 2026-11-20", TUNING_DOC)
_FLOATS = "kuds/mesozoic-labs pulls 127 and 197, python-aiplatform issue 866 (read 2026-11-20)"
_HYPERTUNE = "cloudml-hypertune 0.1.0.dev6, hypertune.py, read 2026-11-20"

_FALSE = {"false", "0", "no", "n", "off", ""}
_NAME = re.compile(r"-{1,2}[A-Za-z][\w.-]*")
_HELP = frozenset({"--help", "-h"})
_TRIAL_VALUE = re.compile(r"\{\{?\s*\$?(?:trial|hyperparameter|param)\w*\b[^}]*\}", re.IGNORECASE)
"""`{{trial.parameters.lr}}`, `${trialParameters.lr}`: what other services replace by a trial's value."""
_MANY = 10_000  # values of an INTEGER parameter that are compared

TrainerRule = Callable[[Document, TrainerSource, list[Pool]], Iterable[Problem]]
"""A rule on the trainer: it gets the document, the trainer, and the pools that run it, at least one."""


def of_trainer(check: TrainerRule) -> Callable[[Document, Context], Iterator[Problem]]:
    """Return a rule on the trainer; where none was read, or no pool runs it, nothing is found."""

    @wraps(check)
    def rule(document: Document, context: Context) -> Iterator[Problem]:
        pools = trainer_pools(document, context.trainer) if context.trainer is not None else []
        if context.trainer is not None and pools:
            yield from check(document, context.trainer, pools)

    return rule


def _once(check: TrainerRule) -> TrainerRule:
    """Return the rule with each message once: pools of one job mostly share their args."""

    @wraps(check)
    def each_once(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
        seen: set[str] = set()
        for problem in check(document, trainer, pools):
            if problem.message not in seen:
                seen.add(problem.message)
                yield problem

    return each_once


def _all_passed(trainer: TrainerSource, pools: list[Pool]) -> Iterator[Passed]:
    for pool in pools:
        yield from passed(pool, trainer)


def _tuned(document: Document, trainer: TrainerSource) -> Iterator[tuple[Parameter, Flag]]:
    """Yield the study's parameters with the flag of the trainer that takes each one."""
    for parameter in document.parameters:
        flag = trainer.flag(f"--{parameter.id}") if parameter.id else None
        if flag is not None:
            yield parameter, flag


def unreadable(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    newer = _newer_python(trainer) if trainer is not None else ""
    for problem in trainer.problems if trainer is not None else ():
        if problem.code not in {"module", "unnamed"}:
            location = f"{problem.where}: " if problem.where else ""
            message, fix = f"the trainer: {location}{problem.message}", "correct the trainer"
            severity = None if problem.code == "syntax" else Severity.WARNING
            if problem.code == "syntax" and newer:
                severity = Severity.WARNING  # what is an error here may be right there
                here = ".".join(map(str, sys.version_info[:2]))
                message += f". This Python is {here}, and the image has Python {newer}, which knows more syntax"
                fix = f"run vertexrig with Python {newer}, or correct the trainer"
            yield Problem(_program(document), message, fix, severity)


def _newer_python(trainer: TrainerSource) -> str:
    """Return the Python of the trainer's own image, as its base image is named, if it is newer than this one; otherwise ""."""
    named = re.search(r"\bpython:?-?3\.(\d+)", trainer.base_image)
    return f"3.{named[1]}" if named is not None and (3, int(named[1])) > sys.version_info[:2] else ""


def module_found(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    if trainer is None:
        return
    for problem in trainer.problems:
        if problem.code == "module":
            path, best = _program(document), problem.nearest
            field = ".pythonModule" if path.endswith("pythonPackageSpec") else ""
            fix = "" if best else "name the module to run, such as trainer.task"
            yield Problem(path + field, problem.message, fix, edits=write(best))
    for item in trainer.imports:
        if item.kind == "missing" and not item.caught:
            message = f"{item.where} imports {item.module}, which is not in the trainer"
            yield Problem(_program(document), message, "add the module to the package, or correct the import")
    yield from _beside(document, context, trainer)
    for defect in trainer.defects:
        if defect.kind == "relative":
            message = f"{defect.where}: `{defect.text}` fails: {defect.nearest} is run outside of any package"
            fix = "write the import without the dot, or run it from its package's folder as PACKAGE.MODULE"
            yield Problem(_program(document), message, fix)


def _beside(document: Document, context: Context, trainer: TrainerSource) -> Iterator[Problem]:
    """Yield imports of a trainer package that name a module of their own package as if it were at the top."""
    packaged = [pool for pool in trainer_pools(document, trainer) if pool.container is None]
    if not packaged or any(fit.refusals for _, fit in context.fits()):
        return  # an image may have the folder on its path; a refusal says it already
    for item in trainer.imports:
        if not item.caught and (own := own_module(item)):
            message = f"{item.where} imports {item.module}, and the trainer has only {own}"
            # a requirement may bring a module of that name
            yield Problem(packaged[0].program_path, message, item.correction, Severity.WARNING)


def _program(document: Document) -> str:
    pool = next((pool for pool in document.pools if not pool.empty), None)
    return pool.program_path if pool is not None else f"{document.job_path}workerPoolSpecs"


@of_trainer
@_once
def argument_known(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if not trainer.flags_complete:
        return
    # Only argparse without positionals and sub-commands is known to refuse a word that belongs to no flag.
    strict = trainer.parsers == {"argparse"} and not trainer.tolerates_unknown
    strict = strict and not trainer.commands and not any(flag.positional for flag in trainer.flags)
    excused = {name for text in given_to_absl(_all_passed(trainer, pools), "undefok") for name in text.split(",")}
    for item in _all_passed(trainer, pools):
        plain = item.name.lstrip("-")
        if (item.name in _HELP and trainer.parsers) or plain in excused or plain.removeprefix("no") in excused:
            continue  # every parser has --help; `--undefok` makes absl ignore the rest
        if item.name and item.flag is None:
            unknown = _unknown(trainer, item.path, item.name, "the argument", f"={item.value}" if item.joined else "")
            # the name is written out: a placeholder in the value changes nothing
            yield replace(unknown, sure=_NAME.fullmatch(item.name) is not None)
        elif not item.name and strict:
            message = f"the argument {item.value!r} belongs to no flag, and the trainer takes no positional arguments"
            yield Problem(item.path, message, "give it to a flag: --flag=value")


@of_trainer
def parameter_known(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter in document.parameters if trainer.flags_complete else ():
        if parameter.id and trainer.flag(f"--{parameter.id}") is None:
            yield _unknown(trainer, f"{parameter.path}.parameterId", f"--{parameter.id}", "the tuned parameter")


def _unknown(trainer: TrainerSource, path: str, name: str, what: str, joined_value: str = "") -> Problem:
    """Return the problem with a flag or parameter that the trainer does not declare; `joined_value` is the `=VALUE` in the flag's argument."""
    best = nearest_option(name, sorted({one for flag in trainer.flags for one in flag.names if one.startswith("--")}))
    shown = best.removeprefix("--") if best and path.endswith("parameterId") else best
    fix = f"write {shown}, or declare {name} in the trainer" if best else f"declare {name} in the trainer, or remove it"
    key_fix = f"write {best.removeprefix('--')}, or declare {name} in the trainer" if best else ""
    firsts = sorted({long for flag in trainer.flags if (long := _long(flag)).startswith("--")})
    shown_options = ", ".join(firsts[:12]) + (f", … ({len(firsts)} in all)" if len(firsts) > 12 else "")
    hint = f"Did you mean {best!r}?" if best else f"It has {shown_options or 'none'}."
    if not trainer.parsers:
        return Problem(
            path, f"the trainer reads no arguments: {what} {name} has no effect", fix, Severity.WARNING, key_fix
        )
    edits = write(f"{shown}{joined_value}" if best and meant(name, [best]) else None)
    if trainer.tolerates_unknown:
        message = f"the trainer has no flag {name} and ignores what it does not know: {what} has no effect"
        return Problem(path, f"{message}. {hint}", fix, Severity.WARNING, key_fix, edits)
    return Problem(path, f"the trainer has no flag {name} and would stop. {hint}", fix, key_fix=key_fix, edits=edits)


@of_trainer
@_once
def required_passed(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    tuned = list(_tuned(document, trainer))
    always = {id(flag) for parameter, flag in tuned if parameter.parent is None}
    sometimes = {id(flag) for _, flag in tuned}
    for pool in pools:
        items = [*leading(trainer), *passed(pool, trainer)]
        given = always | {id(item.flag) for item in items if item.flag is not None}
        has_values = any(not item.name for item in items)
        for flag in trainer.flags if not given_to_absl(items, "flagfile") else ():  # the file may give them
            if not flag.required or id(flag) in given or (has_values and flag.positional):
                continue
            name, path = flag.names[0] if flag.positional else _long(flag), f"{pool.program_path}.args"
            if id(flag) in sometimes:
                message = f"the trainer requires {name} ({flag.where}), and only a conditional parameter passes it"
                yield Problem(path, message, f"give {name} a default in the trainer", Severity.WARNING)
            else:
                message = f"the trainer requires {name} ({flag.where}), and nothing passes it"
                fix = f"add a value for {name}" if flag.positional else f"add {name}=... to args"
                key_fix = "" if flag.positional else f"add {name.lstrip('-')}: VALUE to args"
                yield Problem(path, message, fix, key_fix=key_fix)


def _long(flag: Flag) -> str:
    return next((name for name in flag.names if name.startswith("--")), flag.names[0])


@of_trainer
def metric_reported(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if not trainer.metrics_complete:
        return
    for index, metric in enumerate((document.study or {}).get("metrics", ())):
        name = str(metric.get("metricId", ""))
        path = f"studySpec.metrics[{index}].metricId"
        reports = [report for report in trainer.metrics if report.tag == name]
        if reports and all(report.unused for report in reports):
            one = reports[0]
            message = f"the trainer reports {name!r} only in {one.unused} ({one.where}), which nothing uses"
            yield Problem(path, message, f"use {one.unused}: pass it to fit() as a callback, or call it")
        if not name or reports:
            continue
        edits: tuple[Edit, ...] = ()
        if not trainer.metrics:
            message = f"the trainer reports no metric at all, so no trial would have {name!r}"
            fix = f'call HyperTune().report_hyperparameter_tuning_metric(hyperparameter_metric_tag="{name}", ...)'
        elif trainer.metric_ids == {DEFAULT_METRIC}:
            message = f"the trainer reports without a tag, which makes the metric {DEFAULT_METRIC!r}, not {name!r}"
            fix = f'pass hyperparameter_metric_tag="{name}"'
        else:
            message = f"the trainer never reports {name!r}. {did_you_mean(name, trainer.metric_ids)}"
            near = nearest(name, trainer.metric_ids)
            best, edits = near or next(iter(sorted(trainer.metric_ids))), write(meant(name, trainer.metric_ids))
            fix = f"write {best}, or report {name} in the trainer"
        yield Problem(path, message, fix, edits=edits)


@of_trainer
def float_text(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter, flag in _tuned(document, trainer):
        if parameter.kind != "DISCRETE" or flag.takes_float_text is not False or not parameter.values:
            continue
        # with one fraction among them parameter-parse reports it for certain
        if all(float(value).is_integer() for value in parameter.values):
            text = str(float(parameter.values[0]))
            message = f"{parameter.name} may arrive as {text!r}, which {_typed(flag)} ({flag.where}) refuses"
            fix = "parse it with type=lambda text: int(float(text)), or use an integerValueSpec or categoricalValueSpec"
            yield Problem(parameter.spec_path, message, fix)


@of_trainer
def parameter_parses(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter, flag in _tuned(document, trainer):
        if flag.takes_value is False or flag.bool_trap:
            continue  # found by flag-takes-no-value and boolean-flag
        if parameter.kind == "DOUBLE" and flag.takes_float_text is False:
            message = f"{parameter.name} is DOUBLE, and {_typed(flag)} ({flag.where}) refuses a number such as '0.5'"
            yield Problem(parameter.spec_path, message, "declare it type=float, or use an integerValueSpec")
            continue
        wrong = [value for value in parameter.values if not parses(str(value), flag)]
        if parameter.kind == "DISCRETE":  # whole numbers are float_text's
            wrong = [value for value in wrong if not float(value).is_integer()]
        if wrong:
            message = f"{parameter.name} can be {wrong[0]!r}, which {_typed(flag)} ({flag.where}) refuses"
            yield Problem(f"{parameter.spec_path}.values", message, "correct the value, or the flag's type")


def _typed(flag: Flag) -> str:
    return f"{_long(flag)} type={flag.type}"


@of_trainer
def parameter_choices(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter, flag in _tuned(document, trainer):
        if flag.choices is None:
            continue
        shown, path = ", ".join(flag.choices[:12]), parameter.spec_path
        if parameter.kind == "DOUBLE":
            message = f"{parameter.name} is DOUBLE, and the trainer takes only {shown} ({flag.where})"
            yield Problem(path, message, "list the choices in a discreteValueSpec")
            continue
        wrong = next((value for value in _listed(parameter) if not is_choice(str(value), flag)), None)
        if wrong is not None:
            message = f"{parameter.name} can be {wrong!r}, and the trainer takes only {shown} ({flag.where})"
            best = nearest(str(wrong), flag.choices)
            yield Problem(path, message, f"write {best}" if best else "use the trainer's choices")


def _listed(parameter: Parameter) -> Iterable[object]:
    low, high = parameter.bounds if parameter.kind == "INTEGER" else (None, None)
    if low is None or high is None:
        return parameter.values
    return range(low, min(high, low + _MANY) + 1)


@of_trainer
def boolean_flag(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter, flag in _tuned(document, trainer):
        if flag.bool_trap:
            message = (
                f"{_long(flag)} type=bool ({flag.where}) reads every value as True, so {parameter.name} has no effect"
            )
            fix = 'parse it with type=lambda text: text.lower() in ("1", "true", "yes")'
            yield Problem(parameter.path, message, fix)
    yield from _false_arguments(document, trainer, pools)


@_once
def _false_arguments(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for item in _all_passed(trainer, pools):
        if item.flag and item.flag.bool_trap and item.value and item.value.casefold() in _FALSE:
            message = f"{item.name} type=bool ({item.flag.where}) reads {item.value!r} as True"
            fix, key_fix = (
                f"leave it out, write {words}, or parse the string in the trainer"
                for words in (f'"{item.name}="', f'{item.name.lstrip("-")}: ""')
            )
            yield Problem(item.path, message, fix, key_fix=key_fix)


@of_trainer
def flag_without_value(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for parameter, flag in _tuned(document, trainer):
        if flag.takes_value is False:
            message = f"{_long(flag)} is {flag.action} ({flag.where}) and refuses the value a study passes"
            yield Problem(parameter.path, message, 'declare it with a value: choices=["false", "true"]')
    yield from _given_anyway(document, trainer, pools)


@_once
def _given_anyway(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for item in _all_passed(trainer, pools):
        if item.flag and item.joined and item.flag.takes_value is False:
            message = f"{item.name} is {item.flag.action} ({item.flag.where}) and takes no value"
            off = (item.value or "").casefold() in _FALSE
            key = item.name.lstrip("-")
            fix = f"remove {item.name}" if off else f"write {item.name} alone"
            key_fix = f"remove {key}" if off else f"write {key}: null"
            yield Problem(item.path, message, fix, key_fix=key_fix, edits=REMOVE if off else write(item.name))


@of_trainer
@_once
def argument_parses(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    for item in _all_passed(trainer, pools):
        flag = item.flag
        if flag is None or flag.takes_value is False:
            continue
        where = f"({flag.where})" if flag.file else "(absl's own)"
        if item.value is None:
            # these take a flag without any value
            if flag.takes_value and flag.nargs not in {"?", "*", "dynamic"}:
                key_fix = f"write {item.name.lstrip('-')}: VALUE"
                yield Problem(
                    item.path, f"{item.name} {where} needs a value", f"write {item.name}=...", key_fix=key_fix
                )
        elif any(char in "\"'" for char in item.value):
            continue  # quotes are literal, which the rule arg-quotes finds
        elif flag.choices is not None and not is_choice(item.value, flag) and flag.type != "dynamic":
            message = (
                f"{item.name} is {item.value!r}, and the trainer takes only {', '.join(flag.choices[:12])} {where}"
            )
            best = nearest(item.value, flag.choices)
            fix, key_fix = (
                (f"write {item.name}={best}", f"write {item.name.lstrip('-')}: {scalar(best)}") if best else ("", "")
            )
            edits = write(f"{item.name}={best}" if best and item.joined and meant(item.value, [best]) else None)
            yield Problem(item.path, message, fix or "use one of those", key_fix=key_fix, edits=edits)
        elif not parses(item.value, flag):
            message = f"{item.name} is {item.value!r}, which type={flag.type} {where} refuses"
            edits = write(f"{item.name}={_whole(item.value)}" if item.joined and _whole(item.value) else None)
            yield Problem(item.path, message, f"write {_whole(item.value) or 'a number'}", edits=edits)


def _whole(text: str) -> str:
    """Return a number such as 3.0 as a whole one; "" for any other text."""
    return str(int(float(text))) if is_number(text) and float(text).is_integer() else ""


def passed_twice(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    ids = {parameter.id: parameter for parameter in document.parameters if parameter.id}
    if not ids:
        return
    seen = set()
    for pool in document.pools:
        for item in passed(pool, trainer):
            name = item.name.removeprefix("--")
            # the parameter may be named by another spelling of the same flag
            names = {name} | {option.removeprefix("--") for option in (item.flag.names if item.flag else ())}
            both = next((other for other in names if other in ids), None) if item.name.startswith("-") else None
            if both is not None and both not in seen:
                seen.add(both)
                message, severity = f"{item.name} is in args and is tuned as {ids[both].path}", None
                if _TRIAL_VALUE.search(item.value or ""):
                    message += f": Vertex AI replaces nothing in {item.value!r}, and passes --{both}=VALUE to each trial itself"
                    severity = Severity.ERROR
                else:
                    message += "; which one wins is not documented"
                yield Problem(item.path, message, f"remove {item.name} from args", severity, sure=True)
            elif both is None:
                for mark, tuned in trial_values(item.value or "", ids).items():
                    message = f"Vertex AI replaces nothing in {mark!r}, and passes --{tuned}=VALUE to each trial itself"
                    fix = f"remove it, and let the trainer take --{tuned}"
                    yield Problem(item.path, message, fix, Severity.ERROR, sure=True)


@of_trainer
def model_dir_used(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    if trainer.problems or not trainer.environment_complete or trainer.starts_programs:
        return
    if trainer.saves_elsewhere or any(_is_output(item) for item in _all_passed(trainer, pools)):
        return  # it saves elsewhere
    if "AIP_MODEL_DIR" not in trainer.environment:
        message = "the trainer never reads AIP_MODEL_DIR: a model saved to a local folder is lost when the job ends"
        path = f"{document.job_path}baseOutputDirectory"
        yield Problem(path, message, 'save to os.environ.get("AIP_MODEL_DIR", "model")')


_OUTPUT_FLAG = (
    r"(job|model|out(put)?|save|export|checkpoint|ckpt|log|result|artifact|work)s?[-_]?(dir|path|uri|folder|to|bucket)?"
)


def _is_output(item: Passed) -> bool:
    """Whether an argument names a path in Cloud Storage to write to: `--job-dir=gs://…`."""
    in_storage = (item.value or "").startswith(("gs://", "/gcs/"))
    return in_storage and re.match(_OUTPUT_FLAG, item.name.strip("-").casefold()) is not None


# What `--checkpoint_path` or `--model_path` names may as well be read.
_OUTPUT = re.compile(
    r"((base|job|model|train(ing)?)[-_])?(out(put)?|save|export|destination)s?([-_]model)?[-_]?(dir|folder|to|path|uri|bucket)?"
    r"|(job|checkpoint|ckpt|log|result|artifact|work|model|tensorboard)s?[-_]?(dir|folder|to)"
    r"|(job|log|result|artifact)s?[-_]?(path|uri|bucket)"
)


def trials_share_output(document: Document, context: Context) -> Iterator[Problem]:
    trainer = context.trainer
    if document.study is None or document.data.get("maxTrialCount") == 1:
        return
    if trainer is not None and "CLOUD_ML_TRIAL_ID" in trainer.environment:
        return  # it may make a folder of its own for each
    tuned = {parameter.id for parameter in document.parameters}
    for pool in document.pools:
        for item in passed(pool, trainer):
            name, value = item.name.strip("-").casefold(), item.value or ""
            # a placeholder for the bucket is filled in once for all trials
            in_storage = re.match(r"(?:gs://|/gcs/)[^/]*", value)
            fixed = in_storage is not None and "$" not in value[in_storage.end() :]
            if fixed and _OUTPUT.fullmatch(name) and name not in tuned:
                message = f"{item.name} is {value} in each trial: all trials write to the same path, and only the last result remains"
                fix = f"leave {item.name} out and save to AIP_MODEL_DIR, which differs for each trial"
                yield Problem(item.path, message, fix, sure=True)


@of_trainer
def model_dir_set(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    location = trainer.environment.get("AIP_MODEL_DIR")
    if location is not None and not document.job.get("baseOutputDirectory", {}).get("outputUriPrefix"):
        message = f"the trainer reads AIP_MODEL_DIR ({location.where}), which is set only with a baseOutputDirectory"
        path = f"{document.job_path}baseOutputDirectory"
        yield Problem(path, message, f"write {OUTPUT}", key_fix=f"write {OUTPUT_KEYS}")


@of_trainer
def early_stopping_reports(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    study = document.study or {}
    found = next((name for name in study if name.endswith("StoppingSpec")), None)
    if found is None or not trainer.metrics_complete:
        return
    for metric in study.get("metrics", ()):
        reports = [report for report in trainer.metrics if report.tag == metric.get("metricId")]
        if reports and all(report.repeated is False for report in reports):
            message = (
                f"{found} compares measurements made during a trial, and the trainer reports {reports[0].tag!r} once "
            )
            message += f"({reports[0].where})"
            yield Problem(f"studySpec.{found}", message, "report it after each epoch, in a Keras callback")


@of_trainer
def tf_config_needed(document: Document, trainer: TrainerSource, pools: list[Pool]) -> Iterator[Problem]:
    location = trainer.environment_needed.get("TF_CONFIG")
    if location is None or sum(pool.replica_count for pool in document.pools) != 1:
        return
    if any(item.get("name") == "TF_CONFIG" for item in pools[0].env):
        return
    message = f'{location.where} needs os.environ["TF_CONFIG"], which Vertex AI does not set for one replica'
    yield Problem(pools[0].program_path, message, 'use os.environ.get("TF_CONFIG")')


_E, _W = Severity.ERROR, Severity.WARNING

RULES: tuple[Rule, ...] = (
    Rule("trainer-unreadable", _E, "Every file of the trainer parses.", "Python's own parser, run 2026-11-20", unreadable),
    Rule("trainer-module", _E, "The module that is run and the trainer's own modules it imports are there.",
         PACKAGE_DOC, module_found, "safe"),
    Rule("argument-unknown", _E, "Every argument is one the trainer takes.", _ARGPARSE, argument_known, "safe"),
    Rule("parameter-unknown", _E, "Every tuned parameter is a flag of the trainer.", _ARGPARSE, parameter_known, "safe"),
    Rule("argument-required", _E, "Every argument the trainer requires is passed.", _ARGPARSE, required_passed),
    Rule("metric-unreported", _E, "Every metric of the study is one the trainer reports.", _HYPERTUNE, metric_reported, "safe"),
    Rule("discrete-float-text", _W, 'A DISCRETE parameter\'s flag takes a string such as "128.0".', _FLOATS, float_text),
    Rule("parameter-parse", _E, "A parameter's values are ones its flag's type can read.", _ARGPARSE, parameter_parses),
    Rule("parameter-choices", _E, "A parameter's values are among its flag's choices.", _ARGPARSE, parameter_choices),
    Rule("boolean-flag", _E, "No false value is passed to a type=bool flag, which reads it as true.",
         "Python's argparse, run 2026-11-20: bool('False') is True", boolean_flag),
    Rule("flag-takes-no-value", _E, "A flag that takes no value (store_true) is given none.", _ARGPARSE, flag_without_value, "safe"),
    Rule("argument-parse", _E, "A flag in args has a value that it can read.", _ARGPARSE, argument_parses, "safe"),
    Rule("argument-and-parameter", _W, "No tuned parameter is also in args.", TUNING_DOC, passed_twice),
    Rule("model-dir-unread", _W, "The trainer saves where AIP_MODEL_DIR says.", REST, model_dir_used),
    Rule("trials-share-output", _W, "Each trial of a study writes to a path of its own.",
         join(TUNING_DOC, REST), trials_share_output),
    Rule("model-dir-unset", _W, "A trainer that reads AIP_MODEL_DIR has a baseOutputDirectory.", REST, model_dir_set),
    Rule("early-stopping-reports", _W, "A study that stops trials early has a trainer that reports during each trial.",
         "hypertune issue 5; REST reference v1 of StudySpec and its types (copy of 2026-08-22)", early_stopping_reports),
    Rule("tf-config-needed", _E, "A trainer on one replica does without TF_CONFIG.", DISTRIBUTED, tf_config_needed),
)  # fmt: skip
