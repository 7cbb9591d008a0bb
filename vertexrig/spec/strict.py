"""The strict reading: plain data is compared with the descriptors of Google's messages in one pass, and unknown keys are refused.

`Reader.message` returns canonical data and collects what it refuses or warns about; `vertexrig.spec.reading` calls it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

from vertexrig import yamltext
from vertexrig.catalog import load
from vertexrig.errors import did_you_mean, meant
from vertexrig.finding import MOST, REMOVE, Act, Edit, Finding, Severity, fix_text, left_out, write
from vertexrig.spec import placeholders
from vertexrig.spec.descriptors import Enum, Field, Message
from vertexrig.text import kind_of, quoted
from vertexrig.times import duration_seconds, meant_seconds

_GCLOUD = "gcloud 528.0.0, run offline 2026-11-20"
_PROJECT = "vertexrig's own keys, as `vertexrig keys` lists them, 2026-11-22"
_OURS = "a file is text in UTF-8, as gcloud 528.0.0 reads it, 2026-11-20"
_COMMENTS = "vertexrig's own comments, 2026-11-22"
_CLOCKS = "https://cloud.google.com/scheduler/docs/configuring/cron-job-schedules, Daylight Saving Time, 2026-11-25"
_GCLOUD_RUN = "gcloud 528.0.0, run against a local endpoint 2026-11-21"
SCHEMA_SOURCE = "google-cloud-aiplatform 2.7.0 messages, 2026-11-20"
_LENGTHS = "Vertex AI's pages on distributed training, ContainerSpec and PythonPackageSpec, 2026-08-22; other lists: our own bound"
_PROTOBUF = "protobuf 7.36.2 json_format.ParseDict, its default max_recursion_depth, 2026-11-21"
MOST_DEPTH = 100
"""How deep protobuf's JSON reader follows messages inside messages."""
LIST_LIMITS = {"worker_pool_specs": "pools.max", "env": "env.max", "package_uris": "package_uris.max"}
"""Repeated fields whose length the service limits, and the limit of each in the shipped catalog: an overlay does not change these."""
MOST_ITEMS = 10_000
"""The longest list where the service documents no limit: a bound of our own."""


@dataclass(frozen=True)
class ReadingRule:
    """A rule on the reading of a file: id, severity, one sentence, source, the kind of its edits.

    Most are of the strict reading; the others are found where files, comments and schedules are read.
    """

    id: str
    severity: Severity
    summary: str
    source: str
    edits: Literal["", "safe", "unsafe"] = ""


READING_RULES = (
    ReadingRule("yaml-syntax", Severity.ERROR, "The file is one YAML mapping.", _GCLOUD),
    ReadingRule("file-unreadable", Severity.ERROR, "The file can be read.", _OURS),
    ReadingRule("project-file", Severity.ERROR, "Every entry of a project file is right.", _PROJECT, "safe"),
    ReadingRule("schedule-clock", Severity.WARNING, "Each scheduled time occurs exactly once, even on days when clocks change.",
                _CLOCKS),
    ReadingRule("not-vertex", Severity.ERROR, "The file is a job spec of Vertex AI.", SCHEMA_SOURCE),
    ReadingRule("placeholder", Severity.ERROR, "Every placeholder is replaced by a value.", _GCLOUD),
    ReadingRule("yaml-duplicate-key", Severity.ERROR, "No key is written twice in one mapping.", _GCLOUD),
    ReadingRule("yaml-two-readings", Severity.WARNING, "Every scalar means the same to all YAML readers.", _GCLOUD, "safe"),
    ReadingRule("ignore-comment", Severity.WARNING, "A comment that ignores findings names the rules, gives a reason, and matches a finding.",
                _COMMENTS),
    ReadingRule("unknown-field", Severity.ERROR, "Every key is a field of the API.", SCHEMA_SOURCE, "safe"),
    ReadingRule("unknown-enum-value", Severity.ERROR, "Every enum value is one the API has.", SCHEMA_SOURCE, "safe"),
    ReadingRule("wrong-type", Severity.ERROR, "Every value has its field's type.", SCHEMA_SOURCE, "safe"),
    ReadingRule("nested-too-deep", Severity.ERROR, f"Messages are nested at most {MOST_DEPTH} deep.", _PROTOBUF),
    ReadingRule("list-length", Severity.ERROR, "No list is longer than Vertex AI or vertexrig accepts.", _LENGTHS),
    ReadingRule("one-of", Severity.ERROR, "At most one of the alternatives of a union is set.", SCHEMA_SOURCE),
    ReadingRule("quoted-number", Severity.WARNING, "A number is written without quotes.", _GCLOUD_RUN, "safe"),
    ReadingRule("snake-case-key", Severity.WARNING, "Keys are written in camelCase.", _GCLOUD_RUN, "safe"),
    ReadingRule("not-a-list", Severity.WARNING, "A repeated field is written as a list.", _GCLOUD, "safe"),
    ReadingRule("custom-job-wrapper", Severity.ERROR, "A CustomJobSpec is not wrapped in a CustomJob.", _GCLOUD),
    ReadingRule("legacy-ai-platform", Severity.ERROR, "The file is not for the retired AI Platform Training.", _GCLOUD),
)  # fmt: skip
_SEVERITY = {rule.id: rule.severity for rule in READING_RULES}
_SOURCE = {rule.id: rule.source for rule in READING_RULES}

_TIMESTAMP = r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[-+][0-9]{2}:[0-9]{2})"
_NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_WRAPPERS = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
# google.protobuf.descriptor.FieldDescriptor.TYPE_*: the numbers are protobuf's wire contract
_DOUBLE, _FLOAT, BOOL, _STRING = 1, 2, 8, 9
NUMBERS = (_DOUBLE, _FLOAT)
INTEGERS = {3: 64, 4: 64, 5: 32, 6: 64, 7: 32, 13: 32, 15: 32, 16: 64, 17: 32, 18: 64}
_UNSIGNED = {4, 6, 7, 13}
_WRAPPED = {"Double": _DOUBLE, "Float": _FLOAT, "Int64": 3, "UInt64": 4, "Int32": 5, "UInt32": 13, "Bool": BOOL}

# what only the service writes: never what a misspelt key was meant to be
OUTPUT_ONLY = frozenset(
    "name state createTime startTime endTime updateTime error trials webAccessUris satisfiesPzs satisfiesPzi".split()
)
FLAGS = {
    "displayName": "--display-name",
    "display_name": "--display-name",
    "labels": "--labels",
    "region": "--region",
    "project": "--project",
    "projectId": "--project",
    "project_id": "--project",
    "encryptionSpec": "--kms-key",
    "encryption_spec": "--kms-key",
}
"""Fields around a CustomJobSpec, and the flag of gcloud for each."""
# short names, and those of other tools of Google Cloud, for a value of an enum here
_ALIASES = {
    "NVIDIA_A100_40GB": "NVIDIA_TESLA_A100",
    "LINEAR": "UNIT_LINEAR_SCALE",
    "LOG": "UNIT_LOG_SCALE",
    "REVERSE_LOG": "UNIT_REVERSE_LOG_SCALE",
    "MAX": "MAXIMIZE",
    "MIN": "MINIMIZE",
    "GRID": "GRID_SEARCH",
    "RANDOM": "RANDOM_SEARCH",
    "PREEMPTIBLE": "SPOT",
}


def finding(
    rule: str,
    path: str,
    message: str,
    fix: str = "",
    *,
    file: str = "",
    line: int | None = None,
    severity: Severity | None = None,
    value_type: type | None = None,
    edits: tuple[Edit, ...] = (),
) -> Finding:
    return Finding(
        rule,
        severity or _SEVERITY[rule],
        path,
        message,
        fix or fix_text(edits, path),
        _SOURCE[rule],
        file,
        line,
        value_type=value_type,
        edits=tuple(replace(edit, path=edit.path or path) for edit in edits),
    )


@lru_cache(4096)
def stem(name: str) -> str:
    """Return a key without what people add to it or leave out: `parameterSpec`, `parameter` and `parameters` are one."""
    plain = re.sub(r"[\W_]+", "", name).casefold()
    return re.sub(r"(?:specs?|s)$", "", plain) or plain


@cache
def _writable(schema: Message) -> tuple[str, ...]:
    """Return the JSON names that a user may write, for suggestions."""
    return tuple(name for name in schema.json_names if name not in OUTPUT_ONLY)


@cache
def _places(schema: Message, depth: int = 4) -> dict[str, tuple[str, ...]]:
    """Return where each key of a message and of those inside it belongs: paths by the key's stem."""
    found: dict[str, list[str]] = {}
    for name in _writable(schema):
        found.setdefault(stem(name), []).append(name)
        inner = schema.by_name[name].message
        # a message may hold itself (ConditionalParameterSpec in ParameterSpec): the depth ends that
        if depth and inner is not None and not inner.map_entry and inner is not schema:
            mark = "[]" if schema.by_name[name].repeated else ""
            for key, paths in _places(inner, depth - 1).items():
                found.setdefault(key, []).extend(f"{name}{mark}.{path}" for path in paths)
    return {key: tuple(paths) for key, paths in found.items()}


def belongs(key: str, schema: Message, root: Message) -> tuple[tuple[str, ...], bool]:
    """Return where a key that a message does not have belongs, and whether that is counted from the top of the file.

    Its own fields of the same stem come first, then those of the messages inside it, then its own that resemble the key, then those of
    the whole file; empty if nothing fits, and several paths where it fits equally well.
    """
    names = _writable(schema)
    own = tuple(name for name in names if stem(name) == stem(key))
    if own:
        return own[:1], False
    inside = _nearest_places(key, schema)
    if inside:
        return inside, False
    ends = [name for name in names if name.endswith(key[:1].upper() + key[1:])]  # id, of metricId
    best = meant(key, names) or (ends[0] if len(ends) == 1 else None)
    return ((best,), False) if best else (_nearest_places(key, root), True)


def _nearest_places(key: str, schema: Message) -> tuple[str, ...]:
    paths = _places(schema).get(stem(key), ())
    return tuple(path for path in paths if path.count(".") == min(one.count(".") for one in paths))


_NEEDS = {
    "containerSpec": ("imageUri",),
    "pythonPackageSpec": ("executorImageUri", "packageUris", "pythonModule"),
    "doubleValueSpec": ("minValue", "maxValue"),
    "integerValueSpec": ("minValue", "maxValue"),
    "categoricalValueSpec": ("values",),
    "discreteValueSpec": ("values",),
}
"""What an alternative of a union cannot do without."""


def _unfit(alternatives: Mapping[str, Any]) -> tuple[str, str]:
    """Return the one alternative that lacks what it needs, and what that is; "" if not exactly one does."""
    lacking = {
        name: [
            need for need in _NEEDS.get(name, ()) if isinstance(value, Mapping) and value.get(need) in (None, "", [])
        ]
        for name, value in alternatives.items()
    }
    found = [(name, " and no ".join(needs)) for name, needs in lacking.items() if needs]
    return found[0] if len(found) == 1 else ("", "")


_DROP = object()


class _Alternative(NamedTuple):
    """A field of a union that is set: its name, and its `raw` and `path` as in `Reader`."""

    name: str
    raw: yamltext.FileKey
    path: str


_MOST_LISTED = 20


def _listed(names: list[str]) -> str:
    """Return names with commas between them, cut where there are many."""
    return ", ".join(names[:_MOST_LISTED]) + (f", … ({len(names)} in all)" if len(names) > _MOST_LISTED else "")


class Reader:
    """One pass over data and its message descriptor: canonical values, findings, lines.

    In every method `raw` is the location of a value by its keys in the file, `path` the same in the API's names.
    """

    def __init__(self, reading: yamltext.Reading, file: str, root: Message, *, for_gcloud: bool) -> None:
        self.reading, self.file, self.root, self.for_gcloud = reading, file, root, for_gcloud
        self.findings: list[Finding] = []
        self.placeholders: dict[str, list[str]] = {}
        self.lines: dict[str, int] = {}
        self.paths: dict[yamltext.FileKey, str] = {}  # `path` by `raw`
        self.mistyped: set[yamltext.FileKey] = set()  # `raw` of values of a wrong type
        self.depth = 0
        self.snakes: list[tuple[str, str, str]] = []  # keys in snake_case: as written, as the API has them, their paths
        self.first_snake = 0  # the index of their finding
        self.counts: Counter[str] = Counter()  # findings by rule
        # for each rule, the one finding kept of those beyond `MOST`: an error, or the first if none is an error
        self.rest: dict[str, Finding] = {}

    def report(self, rule: str, raw: yamltext.FileKey, path: str, message: str, fix: str = "", **more: Any) -> None:
        rest = self.rest.get(rule)
        if rest is not None and rest.severity is Severity.ERROR:  # further ones are only counted
            self.counts[rule] += 1
            return
        self.add(finding(rule, path, message, fix, file=self.file, line=self.reading.lines.get(raw), **more))

    def add(self, found: Finding) -> None:
        self.counts[found.id] += 1
        if self.counts[found.id] <= MOST:
            self.findings.append(found)
        # one of the findings beyond the most is kept, an error rather than a warning: the exit code depends on it
        elif found.id not in self.rest or found.severity is Severity.ERROR:
            self.rest[found.id] = found

    def unfilled(self, value: Any, path: str, *, enum: bool = False) -> str:
        """Return the text of a value that is a placeholder, and store it; "" for any other value."""
        if not self.for_gcloud:
            return ""
        is_text = isinstance(value, str)
        found = placeholders.marks(value, path, enum=enum) if is_text else [placeholders.instead(value)]
        if not any(found):
            return ""
        self.placeholders[path] = found
        return str(value) if is_text else found[0]

    def finish(self) -> None:
        """Add what is found of the file as a whole, and what the YAML reader noted."""
        self.spelling()
        for note in self.reading.notes:
            path = self.paths.get(note.path, ".".join(str(part) for part in note.path))
            value = f", or write {yamltext.scalar(note.value)}" if note.value is not None else ""
            fix = note.fix or f"quote it if it is text{value}"
            # The edit writes what gcloud reads. It is unsafe for a number such as 012, which means another number to its author. A value
            # of a wrong type has no edit here: text may belong there.
            edits = () if note.path in self.mistyped else write(note.value, safe=note.kind != "octal")
            rule = "yaml-duplicate-key" if note.kind == "duplicate-key" else "yaml-two-readings"
            noted = finding(rule, path, note.message, fix, file=self.file, line=note.line, edits=edits)
            self.add(noted)
        for rule, first in self.rest.items():
            self.findings.append(left_out([first], self.counts[rule] - MOST))

    def message(self, data: Any, schema: Message, raw: yamltext.FileKey, path: str) -> dict[str, Any]:
        if self.depth == MOST_DEPTH:
            text = f"{schema.name} is more than {MOST_DEPTH} messages deep, which no reader of the service follows"
            self.report("nested-too-deep", raw, path, text, "use fewer levels of conditional parameters")
            return {}
        self.depth += 1
        try:
            return self.fields(data, schema, raw, path)
        finally:
            self.depth -= 1

    def fields(self, data: Any, schema: Message, raw: yamltext.FileKey, path: str) -> dict[str, Any]:
        line = self.reading.lines.get(raw)
        if line is not None:
            self.lines[path] = line
        result: dict[str, Any] = {}
        unions: dict[str, _Alternative] = {}
        for key, value in data.items():
            key = str(key)
            field_ = schema.by_name.get(key)
            here = f"{path}.{key}" if path else key
            if field_ is None:
                self.unknown(key, value, schema, (*raw, key), here)
                continue
            here = f"{path}.{field_.json_name}" if path else field_.json_name
            if key != field_.json_name:
                self.snake_case(key, field_.json_name, (*raw, key), here)
            # null is "not set" in proto's JSON, for every field
            if value is None:
                continue
            canonical = self.field(value, field_, (*raw, key), here)
            if canonical is _DROP:
                continue
            if field_.oneof in unions:
                first, second = unions[field_.oneof], _Alternative(field_.json_name, (*raw, key), here)
                unfit, why = _unfit({first.name: result[first.name], second.name: canonical})
                fix = f"remove {unfit}, which has no {why}" if unfit else f"remove {first.name} or {second.name}"
                text = f"{first.name} and {second.name} are alternatives: only one can be set"
                refused = first if unfit == first.name else second
                self.report("one-of", refused.raw, refused.path, text, fix)
                if refused is second:
                    continue
                del result[first.name]
            if field_.oneof:
                unions[field_.oneof] = _Alternative(field_.json_name, (*raw, key), here)
            result[field_.json_name] = canonical
        return result

    def unknown(self, key: str, value: Any, schema: Message, raw: yamltext.FileKey, path: str) -> None:
        if self.counts["unknown-field"] >= MOST:  # it is not shown, so nothing is looked up
            return self.report("unknown-field", raw, path, "")
        targets, from_top = belongs(key, schema, self.root)
        edits: tuple[Edit, ...] = ()
        text, fix = f"{schema.name} has no field {quoted(key)}.", ""
        self.paths[raw] = path
        flag = FLAGS.get(key) if schema.name == "CustomJobSpec" else None
        if flag:
            text, fix = (
                f"{text} It belongs around the job spec: gcloud takes it as {flag}.",
                f"remove it, and add {flag}",
            )
        elif not targets or len(targets) > 3:
            text += f" {did_you_mean(key, _writable(schema), most=20)}"
        elif "." not in targets[0] and not from_top:
            text, edits = f"{text} Did you mean {targets[0]!r}?", (Edit(key=targets[0]),)
        else:
            name = targets[0].rpartition(".")[2]
            around = [one.rpartition(".")[0] for one in targets]
            where = f"under {' or '.join(around)}" if around[0] else "at the top of the file"
            text += f" {name!r} belongs {where}" + (", from the top of the file." if from_top and around[0] else ".")
            fix = f"move {name} {where.replace('at the', 'to the')}" if len(targets) == 1 else ""
            if fix and "[" not in targets[0] and not isinstance(value, (dict, list)):
                above = "" if from_top else path.rpartition(".")[0]
                edits = (Edit(value, f"{above}.{targets[0]}" if above else targets[0], safe=name == key), *REMOVE)
        self.report("unknown-field", raw, path, text, fix, edits=edits)

    def snake_case(self, key: str, name: str, raw: yamltext.FileKey, path: str) -> None:
        if not self.snakes:
            tuning = self.root.name == "HyperparameterTuningJob"
            self.first_snake = len(self.findings)
            # A file is for gcloud, which was seen to hand on those of a custom job and fails on those of a tuning job. A REST body
            # may have them.
            severity = Severity.ERROR if tuning and self.for_gcloud else None
            self.report("snake-case-key", raw, path, "", severity=severity)  # `spelling` writes the message at the end
        self.snakes.append((key, name, path))

    def spelling(self) -> None:
        """Report all keys in snake_case in one finding: a file from the SDK has only such keys."""
        if not self.snakes:
            return
        tuning = self.root.name == "HyperparameterTuningJob"
        names = {key: name for key, name, _ in self.snakes}
        it = "it" if len(names) == 1 else "them"
        gcloud = (
            f"refuses a tuning job with {it}" if tuning else f"sends a custom job with {it}, and refuses a tuning job"
        )
        text = f"{_listed([repr(key) for key in names])} {'is' if len(names) == 1 else 'are'} the SDK's spelling; gcloud {gcloud}"
        paths = tuple(dict.fromkeys(path for _, _, path in self.snakes))[1:MOST]
        first = self.findings[self.first_snake]
        fix = f"write {_listed(list(names.values()))}"
        edits = tuple(Edit(path=path, key=name) for _, name, path in self.snakes)
        self.findings[self.first_snake] = replace(first, message=text, fix=fix, more_paths=paths, edits=edits)

    def field(self, value: Any, field_: Field, raw: yamltext.FileKey, path: str) -> Any:
        line = self.reading.lines.get(raw)
        if line is not None:
            self.lines[path] = line
        self.paths[raw] = path
        if field_.message is not None and field_.message.map_entry:
            return self.map(value, field_.message.by_name["value"], raw, path)
        if not field_.repeated:
            return self.single(value, field_, raw, path)
        if not isinstance(value, list):
            # In a list of texts, such as `args`, a value with text around its placeholder stays one text. In a list of messages, any text
            # with a placeholder is dropped.
            whole = not isinstance(value, str) or value.strip() in placeholders.marks(value, path)
            if (field_.message is not None or whole) and self.unfilled(value, path):
                return _DROP
            self.report(
                "not-a-list",
                raw,
                path,
                f"{kind_of(value)} is written where a list belongs: gcloud makes a list of it, the SDK and REST refuse it",
                edits=(Edit(Act.MAKE_LIST),),
            )
            items = [self.single(value, field_, raw, f"{path}[0]")]
        else:
            value = self.bounded(value, field_, raw, path)
            items = [self.single(item, field_, (*raw, i), f"{path}[{i}]") for i, item in enumerate(value)]
        if field_.message is not None:  # a refused pool keeps its position, which is its role
            return [{} if item is _DROP else item for item in items]
        return [item for item in items if item is not _DROP]

    def bounded(self, value: list[Any], field_: Field, raw: yamltext.FileKey, path: str) -> list[Any]:
        """Return a list without the items beyond its limit: every rule looks at each item."""
        limit = LIST_LIMITS.get(field_.name)
        most = load().limits.integer(limit) if limit else MOST_ITEMS
        if len(value) <= most:
            return value
        who = "the service takes" if limit else "vertexrig reads"
        text = f"{field_.json_name} has {len(value):,} items; {who} at most {most:,}"
        self.report("list-length", raw, path, text, f"keep {most:,} of them")
        return value[:most]

    def map(self, value: Any, field_: Field, raw: yamltext.FileKey, path: str) -> Any:
        if not isinstance(value, dict):
            return self.wrong(value, "a mapping", raw, path)
        found = {str(k): self.single(v, field_, (*raw, k), f"{path}.{k}") for k, v in value.items()}
        return {k: v for k, v in found.items() if v is not _DROP}

    def single(self, value: Any, field_: Field, raw: yamltext.FileKey, path: str) -> Any:
        line = self.reading.lines.get(raw)
        if line is not None:
            self.lines[path] = line
        self.paths[raw] = path
        if field_.message is not None:
            name = field_.message.full_name
            if name.startswith("google.protobuf."):
                return self.well_known(value, name.removeprefix("google.protobuf."), raw, path)
            if not isinstance(value, dict):
                return self.wrong(value, f"a mapping ({field_.message.name})", raw, path)
            return self.message(value, field_.message, raw, path)
        if field_.enum is not None:
            return self.enum(value, field_.enum, raw, path)
        if field_.type in INTEGERS:
            return self.integer(value, field_.type, raw, path)
        if field_.type in NUMBERS:
            return self.number(value, raw, path)
        if field_.type == BOOL:
            spelt = {"true": True, "false": False}.get(str(value).lower())
            return value if isinstance(value, bool) else self.wrong(value, "true or false", raw, path, write(spelt))
        return self.text(value, raw, path)

    def wrong(self, value: Any, wanted: str, raw: yamltext.FileKey, path: str, edits: tuple[Edit, ...] = ()) -> Any:
        if not self.unfilled(value, path):
            self.mistyped.add(raw)
            text = f"{quoted(value)} is {kind_of(value)}; {wanted} belongs here"
            self.report("wrong-type", raw, path, text, value_type=type(value), edits=edits)
        return _DROP

    def text(self, value: Any, raw: yamltext.FileKey, path: str) -> Any:
        if isinstance(value, str):
            # half of a surrogate pair, which JSON can write as \ud800 and UTF-8 cannot
            if any("\ud800" <= char <= "\udfff" for char in value):
                return self.wrong(value, "valid Unicode text", raw, path)
            self.unfilled(value, path)
            return value
        written = self.unfilled(value, path)
        if written:
            return written
        bare = value is not None and not isinstance(value, (dict, list))
        return self.wrong(value, "text", raw, path, (Edit(Act.QUOTE),) if bare else ())

    def enum(self, value: Any, schema: Enum, raw: yamltext.FileKey, path: str) -> Any:
        if isinstance(value, str) and value in schema.numbers:
            return value
        # protobuf's JSON takes an enum's number as well as its name
        if isinstance(value, int) and not isinstance(value, bool) and value in schema.names:
            return schema.names[value]
        if self.unfilled(value, path, enum=True):
            return _DROP
        names = [name for name in schema.numbers if not name.endswith("_UNSPECIFIED")]
        if self.counts["unknown-enum-value"] >= MOST:
            self.report("unknown-enum-value", raw, path, "")
            return _DROP
        plain = str(value).replace("-", "_").upper()
        best = _ALIASES[plain] if _ALIASES.get(plain) in names else meant(str(value), names)
        best = load().limits.table("scheduling.deprecated_strategies").get(str(best), best)
        text = f"{quoted(value)} is not a value of {schema.name}."
        if schema.name == "AcceleratorType":
            why, fix = self.not_here(best or plain, raw)
            if why:
                self.report("unknown-enum-value", raw, path, f"{text} {why}", fix)
                return _DROP
            names = [
                name for name in names if name not in load().accelerators or not load().accelerators[name].obsolete
            ]
        guess = f"Did you mean {best!r}?" if best else did_you_mean(str(value), names, most=30)
        self.report("unknown-enum-value", raw, path, f"{text} {guess}", edits=write(best))
        return _DROP

    def not_here(self, accelerator: str, raw: yamltext.FileKey) -> tuple[str, str]:
        """Return why the machineSpec around `raw` cannot have an accelerator, and what to write instead; "" if it can."""
        row = load().accelerators.get(accelerator)
        if row is None:
            return "", ""
        if not row.api_enum:
            return f"For {accelerator}: {row.note.removeprefix('not an API value: ')}.", ""
        if row.obsolete:
            return f"The nearest is {accelerator}: {row.retired}.", "choose another accelerator"
        around = self.reading.data
        for key in raw[:-1]:
            around = around[key]
        name = next((around[key] for key in ("machineType", "machine_type") if key in around), "")
        machine = load().machines.get(str(name))
        if machine is None or accelerator in machine.accelerators:
            return "", ""
        if not row.series:
            return f"Did you mean {accelerator!r}? No machine type is documented to take it.", ""
        text = (
            f"Did you mean {accelerator!r}? It is not supported on {machine.name}: it needs a machine of {row.series}."
        )
        return text, f"write {accelerator}, and a machine of {row.series}"

    def integer(self, value: Any, kind: int, raw: yamltext.FileKey, path: str) -> Any:
        number: int | None = None
        if isinstance(value, int) and not isinstance(value, bool):
            number = value
        elif isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,20}", value):
            number = int(value)  # int64 travels as text in JSON
        if number is None:
            whole = int(value) if isinstance(value, float) and value.is_integer() else None
            return self.wrong(value, "a whole number", raw, path, write(whole))
        bits = INTEGERS[kind]
        low, high = (0, 2**bits - 1) if kind in _UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if not low <= number <= high:
            return self.wrong(value, f"a whole number from {low} to {high}", raw, path)
        return number

    def number(self, value: Any, raw: yamltext.FileKey, path: str) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                return self.wrong(value, "a number", raw, path)
            if math.isfinite(number):
                return value
            return self.wrong(value, "a finite number", raw, path)
        if isinstance(value, str) and re.fullmatch(_NUMBER, value) and math.isfinite(float(value)):
            text = f"{quoted(value)} is text; gcloud and REST make a number of it, other readers keep the text"
            number = float(value)
            bare = int(value) if re.fullmatch("[-+]?[0-9]+", value) else number
            self.report("quoted-number", raw, path, text, "write it without quotes", edits=write(bare))
            return number
        return self.wrong(value, "a number", raw, path)

    def well_known(self, value: Any, name: str, raw: yamltext.FileKey, path: str) -> Any:
        if name == "Duration":
            seconds = duration_seconds(value)
            # the range of google.protobuf.Duration: 10,000 years
            if seconds is not None and abs(seconds) <= 315_576_000_000:
                return value
            meant = meant_seconds(str(value)) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
            wanted = "a duration: seconds and an s, such as 3600s,"
            return self.wrong(value, wanted, raw, path, write(None if meant is None else f"{meant}s"))
        if name == "Timestamp":
            if isinstance(value, str) and re.fullmatch(_TIMESTAMP, value):
                return value
            return self.wrong(value, "a time such as 2026-01-31T12:00:00Z", raw, path)
        for wrapper in _WRAPPERS:
            if name == f"{wrapper}Value":
                inner = Field("value", _WRAPPED.get(wrapper, _STRING))
                return self.single(value, inner, raw, path)
        return value  # Struct, Value, ListValue, Any: any JSON
