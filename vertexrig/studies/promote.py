"""A full training job from a trial of a study: an entry of the project file."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vertexrig import yamltext
from vertexrig.bring.edit import Entry, literal
from vertexrig.errors import UsageError, did_you_mean
from vertexrig.project.arguments import with_flags
from vertexrig.project.config import Loaded
from vertexrig.results.trials import TrialResult
from vertexrig.spec.parameters import everywhere, top
from vertexrig.studies.decisions import tidy
from vertexrig.studies.outcome import FOLLOWS, PROMOTED_FROM, TRIAL, Outcome, roles_with_args
from vertexrig.trainer_source.trainer_model import Flag

_ACCELERATED = ("accelerator_type", "accelerator_count", "gpu_partition_size", "tpu_topology")
# names that trainers give such a flag: --warm-start-from, --init_checkpoint, --pretrained-model, --load_model
_WARM_START = re.compile(
    r"(warm_?start|init(ial)?_?(model|weights|checkpoint)|pretrained|load_?model|start)(_?(model|weights))?(_?(from|dir|path|uri))?"
)


def promoted(
    outcome: Outcome,
    trial: TrialResult,
    written: Mapping[str, Any],
    after: str,
    name: str,
    *,
    args: Mapping[str, Any] | None = None,
    topology: str | None = None,
    machine_type: str | None = None,
    changes: Iterable[str] = (),
) -> Entry:
    """Return the job of a sweep with the parameters of one of its trials as arguments.

    Args:
        written: The project file's plain values, variables as they are written.
        args: Further arguments, such as epochs.
        changes: `KEY=VALUE` for keys of the new job, with dots between keys.
    """
    sweep: Mapping[str, Any] = written["sweeps"][after] or {}
    data: dict[str, Any] = copy.deepcopy(dict(written["jobs"][sweep["job"]] or {}))
    for key in ("display_name", "silence"):  # they were chosen for the job of the trials
        data.pop(key, None)
    if data.get("base_output_directory"):
        data["base_output_directory"] = f"{str(data['base_output_directory']).rstrip('/')}/{name}"
    if sweep.get("kms_key_name"):
        data["kms_key_name"] = sweep["kms_key_name"]
    values = {key: literal(tidy(value)) for key, value in trial.parameters.items()} | dict(args or {})
    data["args"] = _args(data.get("args") or {}, sweep.get("args"), values)
    if isinstance(data["args"], Mapping):
        # what the study decides, the trials have from it alone: nothing where a conditional parameter is not active
        searched = {one.id for one in everywhere(top(outcome.study.spec["parameters"]))} - values.keys()
        data["args"] = {key: value for key, value in data["args"].items() if key not in searched}
    for role in roles_with_args(data):  # the study gives its parameters to every pool
        data[role]["args"] = _args(data[role]["args"], None, values)
    if topology is not None:
        data["topology"] = topology
        if topology == "cpu":
            # the sweep's accelerators do not belong to a job on CPUs
            data = {key: value for key, value in data.items() if key not in _ACCELERATED}
    if machine_type is not None:
        data["machine_type"] = machine_type
    for change in changes:
        _set(data, change)
    labels = {key: value for key, value in (sweep.get("labels") or {}).items() if key != FOLLOWS}
    data["labels"] = {**(data.get("labels") or {}), **labels, PROMOTED_FROM: after, TRIAL: _label(trial.id)}
    rank = "the best" if trial.id == outcome.best.id else "one"
    about = (
        f"trial {trial.id} of {after}, {rank} of {len(outcome.counted)} trials with a result: {outcome.reached(trial)}"
    )
    return Entry("jobs", name, data, {(): [about]})


def warm_start_flag(found: Sequence[Flag], given: str | None, program: str) -> str:
    """Return the trainer's flag for a model to start from.

    Args:
        found: The trainer's flags.
        given: The one that the user named.
        program: What to call the trainer in messages.
    """
    names = [name[2:] for flag in found for name in flag.names if name.startswith("--")]
    if given is not None:
        if names and given not in names:
            raise UsageError(f"{program} has no flag --{given}. {did_you_mean(given, names)}")
        return given
    match = next((name for name in names if _WARM_START.fullmatch(name.replace("-", "_").lower())), None)
    if match is None:
        raise UsageError(f"{program} has no flag that names a model to start from; name it: --warm-start-flag NAME")
    return match


def free_name(loaded: Loaded, after: str) -> str:
    """Return a name for the promoted job: `NAME-best`, or `NAME-best-2` and so on where it is taken."""
    taken = {*loaded.project.entries}
    stem = f"{after[:50]}-best"
    return next(name for n in range(1, len(taken) + 2) if (name := stem if n == 1 else f"{stem}-{n}") not in taken)


def _args(job: Any, sweep: Any, values: Mapping[str, Any]) -> Any:
    own = sweep if isinstance(sweep, list) else job
    if isinstance(own, Mapping):
        return {**own, **(sweep if isinstance(sweep, Mapping) else {}), **values}
    return with_flags(own, values)


def _set(data: dict[str, Any], change: str) -> None:
    """Make one change KEY=VALUE; the value is read as YAML."""
    key, equals, text = change.partition("=")
    *parents, last = key.strip().split(".")
    if not equals or not all([*parents, last]):
        raise UsageError(f"--set {change}: write KEY=VALUE for a key of the new job, such as worker.replica_count=2")
    try:
        value = yamltext.read(text).data
    except yamltext.YamlError as error:
        raise UsageError(f"--set {change}: the value is not YAML: {error}") from None
    # a list of arguments has no keys: the flag is replaced in it
    if parents == ["args"] and isinstance(data.get("args"), list):
        data["args"] = _args(data["args"], None, {last: value})
        return
    here: Any = data
    for part in parents:
        here = here.setdefault(part, {}) if isinstance(here, dict) else None
        if not isinstance(here, dict):
            raise UsageError(f"--set {change}: {part} is not a mapping, so it has no key {last!r}")
    here[last] = value


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower())[:63]
