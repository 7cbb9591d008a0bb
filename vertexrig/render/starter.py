"""Writes a first project file for a trainer, with its image, its flags and a sweep over them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata, resources

from vertexrig.catalog import Catalog
from vertexrig.package.discover import FoundTrainer
from vertexrig.package.recipes import DISTRIBUTIONS
from vertexrig.package.sources import IMAGE_PYTHON
from vertexrig.project.model import IMAGE_VARIABLE, PREBUILT
from vertexrig.spec.objective import likeliest, likely_goal
from vertexrig.trainer_source.strategy_names import MULTI, STRATEGY_FLAGS, strategy_named
from vertexrig.trainer_source.trainer_model import Flag, TrainerSource
from vertexrig.yamltext import scalar

DEFAULT_FRAMEWORK = "tf"
MOST_PARAMETERS = 3
LEAST_TRIALS = 20
JOB, SWEEP = "cpu", "sweep"
_IMAGE_LINE = "  image: tf-2.17"

# a default for where to read or write is of the author's machine, and Vertex AI gives the folders in AIP_ variables
_FROM_OUTSIDE = re.compile(
    r"(job|model|output|log|checkpoint|save|export|data|train|test)[-_]?(dir|path|file|uri|folder)s?$"
)
# What a sweep may vary, by the flag's name and type; the first rows are varied first.
_SEARCHED: tuple[tuple[str, str, str], ...] = (
    (r"(.*[-_])?(lr|eta|learning[-_]?rate|step[-_]size)", "float", "log"),
    (r"(.*[-_])?(weight[-_]?decay|l1|l2|alpha|reg.*|c)", "float", "log"),
    (r"(.*[-_])?(subsample|colsample.*|(bagging|feature)[-_]fraction)", "float", "share"),
    (r"(.*[-_])?(momentum|dropout.*)", "float", "fraction"),
    (
        r"(.*[-_])?(units?|hidden.*|filters?|neurons?|width|layers?|depth|max[-_]depth|n[-_]estimators|batch[-_]?size)",
        "int",
        "around",
    ),
)
_RATE = re.compile(r"eta|learning[-_]?rate", re.IGNORECASE)
"""Parameters that XGBoost limits to 1."""


# Bounds of meaning, each with its source; a parameter that no source bounds has a range around its default only.
# XGBoost: doc/parameter.rst of dmlc/xgboost@00150318: eta and its alias learning_rate [0, 1], subsample and colsample_by* (0, 1],
# "subsample >= 0.5 for good results". LightGBM: docs/Parameters.rst of microsoft/LightGBM@0050954c: bagging_fraction and
# feature_fraction (0, 1]. R/autoxgbparset.R of ja-thomas/autoxgboost searches both kinds of share over [0.5, 1]. Keras 3 takes
# momentum and the rate of Dropout from 0 to 1. All read 2026-11-22.
_REASONS = {
    "log": "# from 0.1 times to 10 times the default {}, on a log scale",
    "capped": "# from 0.1 times to 10 times the default {}, on a log scale, and at most 1, the limit of XGBoost",
    "share": "# a share of rows or columns: above 0 and at most 1; below 0.5 is rarely good",
    "fraction": "# a fraction below 1",
    "around": "# from 0.5 times to 2 times the default {}",
}
"""The comment above a parameter: why it has its range."""


@dataclass(frozen=True)
class Starter:
    """A project file.

    Args:
        text: The YAML.
        sweep: Whether it holds a sweep.
        missing: Flags that the trainer requires and only the user knows.
        notes: What was left out, and why.
    """

    text: str
    sweep: bool
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Args:
    """Arguments of the jobs: those of `before` come before the sub-command `words`."""

    words: list[str] = field(default_factory=list)
    before: set[str] = field(default_factory=set)
    given: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


MODELINE = "# yaml-language-server: $schema=https://raw.githubusercontent.com/vertexrig/vertexrig/main/docs/schema/project.json"
"""With it an editor completes the keys of a project file and underlines what is wrong."""


def empty(catalog: Catalog) -> Starter:
    """Return the project file for a folder without a trainer."""
    text = resources.files("vertexrig.render").joinpath("starter.yaml").read_text(encoding="utf-8")
    text = text.replace(_IMAGE_LINE, "\n".join(_image(DEFAULT_FRAMEWORK, catalog)))
    return Starter(f"{MODELINE}\n{text}", sweep=True)


def starter(found: FoundTrainer, catalog: Catalog) -> Starter:
    """Return the project file for a trainer.

    Args:
        found: The trainer.
        catalog: For prebuilt images, and for how many trials a sweep needs.
    """
    source, notes = found.source, []
    metric = likeliest(source.metric_ids)
    command = _command(source)
    flags = [flag for flag in source.flags if not flag.commands or _is_of(flag, command)]
    # a trial's arguments come last, which is where the sub-command's own belong
    tunable = _parameters([flag for flag in flags if not command or flag.commands], found.framework) if metric else {}
    parameters = dict(list(tunable.items())[:MOST_PARAMETERS])
    args = _args(flags, parameters)
    args.words = command.split()
    args.before = {_key(flag) or "" for flag in flags if command and not flag.commands}
    if metric is None:
        notes.append("no metric reported through hypertune was found, so there is no sweep")
    elif not parameters:
        notes.append(f"the trainer reports {metric}, but there is no sweep: {_unsearched(source, flags)}")
    others = [name for name in sorted(source.metric_ids) if name != metric]
    if parameters and others:
        notes.append(f"the sweep searches by {metric}; the trainer also reports {', '.join(others)}")
    if len(tunable) > len(parameters):
        notes.append(
            f"not in the sweep, though it could search over them: {', '.join(list(tunable)[MOST_PARAMETERS:])}"
        )
    notes += [f"{problem.file}:{problem.line}: {problem.message}" for problem in source.flags_unread]
    notes += [f"{problem.file or found.path}: {problem.message}" for problem in source.problems]
    if args.left:
        notes.append(f"left to the trainer's own defaults: {', '.join(args.left)}")
    sweep = metric is not None and bool(parameters)
    trials = max(LEAST_TRIALS, catalog.limits.integer("study.trials_per_parameter") * len(parameters))
    gpu = found.framework in ("tf", "pytorch", "jax", None)
    ranked = source.torch.needs_ranks
    lines = [
        MODELINE,
        *_head(found, catalog),
        *(_ranked_jobs(args) if ranked else [*_jobs(args, gpu), *_cluster(found, args)]),
    ]
    lines += _sweep(metric or "", parameters, trials) if sweep else []
    return Starter("\n".join(lines) + "\n", sweep, tuple(args.missing), tuple(notes))


def _unsearched(source: TrainerSource, flags: Iterable[Flag]) -> str:
    """Return why a trainer's flags give no parameters to search over."""
    if source.flags_unread:
        return "its flags are not read. Write the parameters under sweeps yourself"
    bare = [_key(flag) for flag in flags if flag.type in ("int", "float") and flag.default is None]
    if any(bare):
        names = ", ".join(filter(None, bare[:MOST_PARAMETERS]))
        return f"{names} {'has' if len(bare) == 1 else 'have'} no default to make a range of. Write the ranges under sweeps yourself"
    return "it has no numeric flag or choice to search over"


def _command(source: TrainerSource) -> str:
    """Return the sub-command that trains, by its name; "" if none is needed."""
    commands = source.commands if source.command_required else ()
    named = (one for one in commands if one.split()[-1] in ("train", "fit", "run"))
    return next(named, commands[0] if commands else "")


def _is_of(flag: Flag, command: str) -> bool:
    return any(f"{command} ".startswith(f"{one} ") for one in flag.commands or ())


def _head(found: FoundTrainer, catalog: Catalog) -> list[str]:
    what = {"script": "a single script", "package": "the folder of a package", "project": "a folder with its own setup"}
    return [
        "# Jobs for Vertex AI; `vertexrig render NAME` makes the YAML that gcloud takes.",
        "project: ${PROJECT:-my-project}",
        "region: us-central1",
        "bucket: ${BUCKET:-gs://my-project-vertexrig} # regional, in the same region",
        "",
        "trainer:",
        f"  path: {scalar(found.path)} # {what[found.kind]}",
        f"  module: {scalar(found.module)}",
        *_image(found.framework, catalog, found.least_python),
    ]


def _jobs(args: _Args, gpu: bool) -> list[str]:
    lines = ["", "jobs:", *_job(JOB, "cpu", "n1-standard-4", args)]
    if gpu:
        extra = ["    accelerator_type: NVIDIA_TESLA_T4", "    accelerator_count: 1"]
        lines += ["", *_job("gpu", "gpu", "n1-standard-8", args, extra)]
    return lines


def _ranked_jobs(args: _Args) -> list[str]:
    """Return the jobs of a trainer that trains only under torchrun, because it always joins other processes."""
    why = "    image: build # the trainer joins a process group: torchrun gives each process its rank, which no prebuilt image starts"
    gpus = ["    accelerator_type: NVIDIA_TESLA_T4", "    accelerator_count: 2"]
    cpu, gpu = (
        _job(name, "torchrun", machine, args, extra)
        for name, machine, extra in ((JOB, "n1-standard-4", [why]), ("gpu", "n1-standard-8", [*gpus, why]))
    )
    return ["", "jobs:", *cpu, "", *gpu]


def _cluster(found: FoundTrainer, args: _Args) -> list[str]:
    """Return a job on more than one accelerator for a trainer that can use them: it joins processes, or has a strategy for them."""
    source = found.source
    imported = {item.module.split(".")[0] for item in source.imports}
    gpus = ["    accelerator_type: NVIDIA_TESLA_T4", "    accelerator_count: 2"]
    if source.torch.backends or imported & {"lightning", "pytorch_lightning", "accelerate"}:
        why = "    image: build # torchrun starts one process for each GPU, which a prebuilt image cannot be told"
        return ["", *_job("torchrun", "torchrun", "n1-standard-8", args, [*gpus, why])]
    if "MultiWorkerMirroredStrategy" in source.strategies:
        one = [gpus[0], "    accelerator_count: 1", "    worker: {replica_count: 1} # beside the chief"]
        return ["", *_job("multi-worker", "multi-worker", "n1-standard-8", _joining(source, args), one)]
    if "MirroredStrategy" in source.strategies:
        return ["", *_job("multi-gpu", "gpu", "n1-standard-8", args, gpus)]
    return []


def _joining(source: TrainerSource, args: _Args) -> _Args:
    """Return the arguments of a job of several workers: with the choice of the trainer's strategy flag that joins them."""
    for name in STRATEGY_FLAGS:
        flag = source.flag(f"--{name}")
        choices = flag.choices or () if flag is not None and f"--{name}" in flag.names else ()
        joins = next((one for one in choices if strategy_named(one) == MULTI), None)
        if joins is not None:
            return replace(args, given={**args.given, name: scalar(joins)})
    return args


def _job(name: str, topology: str, machine: str, args: _Args, extra: Iterable[str] = ()) -> list[str]:
    lines = [f"  {name}:", f"    topology: {topology}", f"    machine_type: {machine}", *extra, "    timeout: 3600s"]
    if args.given or args.missing or args.words:
        lines.append("    args:")
    if args.words:
        own = {key: scalar(f"--{key}={value}") for key, value in args.given.items()}
        words = [text for key, text in own.items() if key in args.before] + args.words
        words += [text for key, text in own.items() if key not in args.before]
        return [
            *lines,
            *(f"      - {text}" for text in words),
            *(f"      # --{key}=: the trainer requires it" for key in args.missing),
        ]
    lines += [f"      {scalar(key) if ':' in key else key}: {value}" for key, value in args.given.items()]
    return lines + [f"      # {key}: the trainer requires it" for key in args.missing]


def _sweep(metric: str, parameters: Mapping[str, list[str]], trials: int) -> list[str]:
    lines = ["", "sweeps:", f"  {SWEEP}:", f"    job: {JOB}", f"    max_trial_count: {trials}"]
    lines += [
        "    parallel_trial_count: 2",
        "    max_failed_trial_count: 3 # without it, one failure may end the sweep",
    ]
    lines += ["    study:", f"      metrics: {{{scalar(metric)}: {likely_goal(metric)}}}", "      parameters:"]
    for name, spec in parameters.items():
        lines += [f"        {name}:", *(f"          {line}" for line in spec)]
    return lines


def _image(framework: str | None, catalog: Catalog, python: str = "") -> list[str]:
    """Return the lines that name the image: a prebuilt one, or by IMAGE=build one made here, with the versions of this machine.

    A trainer without a framework of its own gets TensorFlow's, which has most packages, as its prebuilt image only.
    """
    named, image = (f"framework: {framework}{_installed(framework)}, ", PREBUILT) if framework else ("", "")
    if framework and catalog.newest_image(framework, "cpu") is None:
        version = python or f"{sys.version_info.major}.{sys.version_info.minor}"
        return [
            f"  image: build # there is no prebuilt image for {framework}",
            f'  build: {{{named}python: "{version}"}}',
        ]
    if not image and (newest := catalog.newest_image(DEFAULT_FRAMEWORK, "cpu")) is not None:
        image = newest.short_name
    if python:
        why = f"the trainer needs Python {python}, and the newest prebuilt image has 3.{IMAGE_PYTHON}"
        return [f"  image: build # {why}", f'  build: {{{named}python: "{python}"}}']
    return [
        f"  image: ${{{IMAGE_VARIABLE}:-{image}}} # the newest prebuilt image; with {IMAGE_VARIABLE}=build, the image that `vertexrig image NAME` builds",
        f'  build: {{{named}python: "{sys.version_info.major}.{sys.version_info.minor}"}}',
    ]


def _installed(framework: str) -> str:
    """-MAJOR.MINOR of the framework on this machine; nothing if it is not installed, so that the lock file decides."""
    try:
        parts = metadata.version(DISTRIBUTIONS[framework]).split(".")
    except (metadata.PackageNotFoundError, KeyError):
        return ""
    return f"-{parts[0]}.{parts[1]}" if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else ""


def _key(flag: Flag) -> str | None:
    """Return the key of a flag in `args`: its first long name; None if it has no long name."""
    return next((name[2:] for name in flag.names if name.startswith("--")), None)


def _args(flags: Iterable[Flag], searched: Mapping[str, list[str]]) -> _Args:
    args = _Args()
    for flag in flags:
        key = _key(flag)
        if key in searched:
            continue
        default = flag.default
        if flag.required:
            if flag.choices and key is not None:
                # any allowed value lets the first render succeed; a made-up one could not
                args.given[key] = scalar(flag.choices[0])
            else:
                args.missing.append(key or flag.names[0])
        elif key is None or not flag.takes_value or flag.nargs is not None or flag.bool_trap or default is None:
            args.left.append(key or flag.names[0])
        elif isinstance(default, bool) or default == "" or flag.from_variable or _FROM_OUTSIDE.search(key):
            # a value of ours would hide the variable's, such as AIP_MODEL_DIR
            args.left.append(key)
        else:
            args.given[key] = scalar(default)
    return args


def _parameters(flags: Iterable[Flag], framework: str | None) -> dict[str, list[str]]:
    """Return what a sweep may search over, the likeliest first: by name as it would be `--NAME`, each with its spec's lines."""
    flags = [flag for flag in flags if _key(flag) and flag.takes_value and flag.nargs is None]
    found: dict[str, list[str]] = {}
    for pattern, kind, scale in _SEARCHED:
        for flag in flags:
            key = _key(flag) or ""
            if flag.type == kind and flag.choices is None and re.fullmatch(pattern, key, re.IGNORECASE):
                reason = "capped" if scale == "log" and framework == "xgboost" and _RATE.fullmatch(key) else scale
                spec = _range(flag.default, reason)
                if spec:
                    found.setdefault(key, [_REASONS[reason].format(flag.default), *spec])
    for flag in flags:
        if flag.choices and len(flag.choices) > 1 and flag.type == "str":
            values = ", ".join(scalar(choice) for choice in flag.choices)
            found.setdefault(
                _key(flag) or "", ["# the flag's choices", f"categorical_value_spec: {{values: [{values}]}}"]
            )
    return found


def _range(default: object, scale: str) -> list[str]:
    """Return the lines of a parameter's spec around its default; empty if the default suggests no range."""
    if scale == "share":
        return ["double_value_spec: {min_value: 0.5, max_value: 1}", "scale_type: UNIT_LINEAR_SCALE"]
    if scale == "fraction":
        return ["double_value_spec: {min_value: 0, max_value: 0.9}", "scale_type: UNIT_LINEAR_SCALE"]
    if isinstance(default, bool) or not isinstance(default, (int, float)) or default <= 0:
        return []
    if scale in ("log", "capped"):
        most = min(default * 10, 1.0) if scale == "capped" else default * 10
        low, high = scalar(float(f"{default / 10:.3g}")), scalar(float(f"{most:.3g}"))
        return [f"double_value_spec: {{min_value: {low}, max_value: {high}}}", "scale_type: UNIT_LOG_SCALE"]
    low, high = str(max(1, int(default) // 2)), str(max(2, int(default) * 2))
    return [f"integer_value_spec: {{min_value: {low}, max_value: {high}}}", "scale_type: UNIT_LINEAR_SCALE"]
