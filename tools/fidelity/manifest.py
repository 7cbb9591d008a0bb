"""The manifest: rows that say what holds of the service, their sources, the scripts they look at, and our decisions.

Rows, sources and decisions are JSON Lines, one a line, so that a change is one line of a diff; scripts are YAML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jmespath
import jsonschema
import yaml

from vertexrig.errors import UsageError, did_you_mean

AREAS = (
    "request", "answer", "state", "time form", "log", "error", "environment", "study", "storage", "scheduler", "logging",
)  # fmt: skip
WAYS = ("REST", "gRPC", "gcloud", "SDK", "replica")
"""How a row is tried: by a request, by a client of Google's, or by a look around in a replica."""
KINDS = ("recording", "page", "message definition", "error report", "client")
"""What a source is; a client is the code of gcloud or of the SDK, which shows what the service answers."""

TRAINING, AROUND = "training", "storage, scheduler, logging"
PARTS = (TRAINING, AROUND)
"""What a score is of: jobs and studies, or the services around them."""
RECORDED, DOCUMENTED, UNLINKED = "recorded", "documented", "unlinked"
EVIDENCE = (RECORDED, DOCUMENTED, UNLINKED)
"""What a row is known from: an answer that was seen, a text that says so, or a source that nobody else can open."""

_SEEN = frozenset({"recording", "error report"})
_AROUND_AREAS = frozenset({"storage", "scheduler", "logging"})
_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?")
# what a reader opens: a path in a repository, an issue, a page
_PLACE = re.compile(r"[\w.-]+/[\w.-]+,? \S|[\w-]+(\.[\w-]+)+/\S")
_KEYS = {"id", "area", "holds", "source", "tried", "run", "ask", "probe", "expect"}


class ManifestError(UsageError):
    """The manifest breaks its own rules (exit code 2)."""


@dataclass(frozen=True)
class FactSource:
    """Where facts are known from, outside this repository.

    Args:
        id: Short name.
        kind: One of `KINDS`.
        where: Repository and path, address of a page, or name of a library with its version.
        date: Of the recording; if that is not known, and of a page, when it was read.
        linked: A reader can open it; false for a file whose repository is not known, and for what no text says.
    """

    id: str
    kind: str
    where: str
    date: str
    linked: bool = True

    @property
    def places(self) -> tuple[str, ...]:
        """Files, issues and pages, without the cells of a notebook or what they show."""
        return tuple(re.split(r", cells? |: ", one)[0] for one in self.where.split("; "))


@dataclass(frozen=True)
class ManifestRow:
    """One fact about the service.

    Args:
        id: Unique, in words joined by dashes.
        area: One of `AREAS`.
        holds: The fact, as one sentence.
        sources: Where it is known from.
        tried: One of `WAYS`.
        run: The script whose record it looks at, "" for a row with a request of its own.
        ask: That request: `like` names a script's step, `set` and `drop` change it; or `api`, `method`, `path`, `body`.
        probe: A JMESPath expression over the script's record by step, or over the answer.
        expect: A JSON Schema that what the probe finds must fit; false if there must be nothing.
    """

    id: str
    area: str
    holds: str
    sources: tuple[FactSource, ...]
    tried: str
    run: str
    ask: Mapping[str, Any] | None
    probe: str
    expect: Any

    @property
    def part(self) -> str:
        """One of `PARTS`."""
        return AROUND if self.area in _AROUND_AREAS else TRAINING

    @property
    def evidence(self) -> str:
        """One of `EVIDENCE`: by the strongest of its sources that a reader can open."""
        kinds = {source.kind for source in self.sources if source.linked}
        return RECORDED if kinds & _SEEN else DOCUMENTED if kinds else UNLINKED

    @property
    def partial(self) -> bool:
        """Whether it looks at a part of a text only."""
        return any(True for _ in _partial(self.expect))


@dataclass(frozen=True)
class Ruling:
    """What we do about differences.

    Args:
        rows: Patterns of row ids.
        decided: One sentence.
    """

    rows: tuple[str, ...]
    decided: str

    def covers(self, row: str) -> bool:
        """Whether it is about a row."""
        return any(fnmatchcase(row, pattern) for pattern in self.rows)


@dataclass(frozen=True)
class Script:
    """Requests in their order, whose answers rows look at.

    Args:
        name: Its name.
        what: One sentence.
        steps: Step by id; see `tools.fidelity.scripts`.
        only_local: It needs a fault that only the local Vertex makes on demand, or costs what nobody can say.
    """

    name: str
    what: str
    steps: Mapping[str, Mapping[str, Any]]
    only_local: bool = False


@dataclass(frozen=True)
class Manifest:
    """All of `fidelity/`.

    Args:
        folder: Where it was read from.
        rows: In the order of the files.
        scripts: By name.
        sources: By id.
        decisions: The first that covers a row counts.
        unknown: What nobody outside Google can know: each a `fact`, and the `command` that would record it.
    """

    folder: Path
    rows: tuple[ManifestRow, ...]
    scripts: Mapping[str, Script]
    sources: Mapping[str, FactSource] = field(default_factory=dict)
    decisions: tuple[Ruling, ...] = ()
    unknown: tuple[Mapping[str, Any], ...] = ()

    @property
    def mutation(self) -> dict[str, Any]:
        """What the rows noticed of deliberate breakages: how many were `tried`, and which were `missed`."""
        return _kept(self.folder / "mutation.json")

    @property
    def first(self) -> list[dict[str, Any]]:
        """How facts came out that were collected before anybody looked here, by round; the last may not be measured yet."""
        return list(_kept(self.folder / "first.json").get("rounds", ()))

    @property
    def surfaces(self) -> list[dict[str, Any]]:
        """What was read whole: each a `surface`, when, from what, patterns of its rows, and what is not served and why."""
        return [one for _, one in _lines(self.folder / "surfaces.jsonl")]

    @property
    def date(self) -> str:
        """The latest date of a source."""
        return max((source.date for source in self.sources.values()), default="")

    def decided(self, row: str) -> str:
        """Return what was decided about a row, "" if nothing was."""
        return next((one.decided for one in self.decisions if one.covers(row)), "")

    def chosen(self, areas: Sequence[str], ids: Sequence[str]) -> tuple[ManifestRow, ...]:
        """Return the rows of some areas and of some ids (patterns too); all without either.

        Raises:
            UsageError: A name fits no row.
        """
        for area in areas:
            if area not in AREAS:
                raise UsageError(f"there is no area {area!r}. {did_you_mean(area, AREAS)}")
        for wanted in ids:
            if not any(fnmatchcase(row.id, wanted) for row in self.rows):
                raise UsageError(f"there is no row {wanted!r}. {did_you_mean(wanted, [row.id for row in self.rows])}")
        return tuple(
            row
            for row in self.rows
            if (not areas or row.area in areas) and (not ids or any(fnmatchcase(row.id, wanted) for wanted in ids))
        )


def shipped() -> Path:
    """Return the manifest of this checkout."""
    return Path(__file__).resolve().parents[2] / "fidelity"


def load(folder: Path | None = None) -> Manifest:
    """Read a manifest.

    Raises:
        ManifestError: It breaks a rule; the message names file and line of each.
    """
    folder = folder or shipped()
    problems: list[str] = []
    sources = {source.id: source for source in _sources(folder, problems)}
    scripts = _scripts(folder)
    rows = tuple(_rows(folder, sources, scripts, problems))
    decisions = tuple(Ruling(tuple(one["rows"]), one["decided"]) for _, one in _lines(folder / "decisions.jsonl"))
    problems += [
        f"decisions.jsonl: {pattern!r} fits no row"
        for one in decisions
        for pattern in one.rows
        if not any(fnmatchcase(row.id, pattern) for row in rows)
    ]
    problems += [
        f"{place}: {pattern!r} fits no row"
        for place, one in _lines(folder / "surfaces.jsonl")
        for pattern in one["rows"]
        if not any(fnmatchcase(row.id, pattern) for row in rows)
    ]
    if problems:
        raise ManifestError(f"the manifest in {folder} breaks its rules:\n" + "\n".join(problems))
    unknown = tuple(one for _, one in _lines(folder / "unknown.jsonl"))
    return Manifest(folder, rows, scripts, sources, decisions, unknown)


def _kept(file: Path) -> dict[str, Any]:
    """Return a file of JSON, {} where there is none."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file, each with its place."""
    if not file.is_file():
        return
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            place = f"{file.name}:{number}"
            try:
                found = json.loads(line)
            except ValueError as error:
                raise ManifestError(f"{place} is not JSON: {error}") from None
            if not isinstance(found, dict):
                raise ManifestError(f"{place} is not an object")
            yield place, found


def _sources(folder: Path, problems: list[str]) -> Iterator[FactSource]:
    seen: set[str] = set()
    places: set[str] = set()
    for place, one in _lines(folder / "sources.jsonl"):
        id, kind, where, date = (str(one.get(key, "")) for key in ("id", "kind", "where", "date"))
        made = FactSource(id, kind, where, date, linked=one.get("linked") is not False)
        if made.id in seen or not made.id:
            problems.append(f"{place}: the id {made.id!r} is empty or there already")
        if made.kind not in KINDS:
            problems.append(f"{place}: kind {made.kind!r} is none of {', '.join(KINDS)}")
        if not made.where or not _DATE.fullmatch(made.date):
            problems.append(f"{place}: a source needs where and a date such as 2026-11-21")
        if made.linked and made.kind in _SEEN and not all(map(_PLACE.match, made.places)):
            problems.append(f'{place}: where {where!r} is no path, issue or page; write one, or "linked": false')
        if made.linked and (twice := places.intersection(made.places)):
            problems.append(f"{place}: {', '.join(sorted(twice))} is another source already")
        places.update(made.places if made.linked else ())
        seen.add(made.id)
        yield made


def _scripts(folder: Path) -> dict[str, Script]:
    file = folder / "scripts.yaml"
    data = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {
        name: Script(name, one.get("what", ""), one.get("steps", {}), bool(one.get("only_local")))
        for name, one in (data or {}).items()
        if not name.startswith("_")  # what others refer to
    }


def _rows(
    folder: Path, sources: Mapping[str, FactSource], scripts: Mapping[str, Script], problems: list[str]
) -> Iterator[ManifestRow]:
    seen: set[str] = set()
    for file in sorted((folder / "rows").glob("*.jsonl")):
        for place, one in _lines(file):
            wrong = list(_wrong(one, sources, scripts))
            if one.get("id") in seen:
                wrong.append(f"the id {one['id']!r} is there already")
            seen.add(str(one.get("id")))
            problems += [f"{place}: {text}" for text in wrong]
            if not wrong:
                named = tuple(sources[id] for id in str(one["source"]).split())
                yield ManifestRow(
                    one["id"], one["area"], one["holds"], named, one["tried"], one.get("run", ""), one.get("ask"),
                    one["probe"], one["expect"],
                )  # fmt: skip


def _wrong(one: Mapping[str, Any], sources: Mapping[str, FactSource], scripts: Mapping[str, Script]) -> Iterator[str]:
    """Yield what is wrong with a row."""
    if unknown := set(one) - _KEYS:
        yield f"unknown keys {', '.join(sorted(unknown))}"
    if not _ID.fullmatch(str(one.get("id", ""))):
        yield f"id {one.get('id')!r} is not words of small letters and digits joined by dashes"
    if one.get("area") not in AREAS:
        yield f"area {one.get('area')!r} is none of {', '.join(AREAS)}"
    if one.get("tried") not in WAYS:
        yield f"tried {one.get('tried')!r} is none of {', '.join(WAYS)}"
    if not one.get("holds"):
        yield "it does not say what holds"
    named = str(one.get("source", "")).split()
    if not named:
        yield "it has no source"
    for source in named:
        if source not in sources:
            yield f"sources.jsonl has no {source!r}"
    if bool(one.get("run")) == bool(one.get("ask")):
        yield "it needs either run or ask"
    if one.get("run") and one["run"] not in scripts:
        yield f"scripts.yaml has no {one['run']!r}"
    if not one.get("probe") or "expect" not in one:
        yield "it needs probe and expect"
    else:
        yield from _misread(str(one["probe"]), one["expect"])


def _misread(probe: str, expect: Any) -> Iterator[str]:
    """Yield what is wrong with the two languages of a row."""
    try:
        jmespath.compile(probe)
    except jmespath.exceptions.JMESPathError as error:
        yield f"probe {probe!r} is not JMESPath: {str(error).splitlines()[0]}"
    try:
        jsonschema.Draft202012Validator.check_schema(expect)
    except jsonschema.exceptions.SchemaError as error:
        yield f"expect is not a JSON Schema: {error.message}"
    if expect is True or expect == {}:
        yield "expect fits everything, so that the row cannot fail"
    for pattern in _keywords(expect, "pattern"):
        if not _whole(str(pattern)):
            yield f"pattern {pattern!r} is not of a whole text: begin it with ^ and end it with $, or write includes"


def _keywords(expect: Any, keyword: str) -> Iterator[Any]:
    """Yield the values of a keyword, however deep in a schema."""
    if isinstance(expect, Mapping):
        for key, value in expect.items():
            if key == keyword:
                yield value
            # What a const says is a value and no schema.
            elif key not in ("const", "enum"):
                yield from _keywords(value, keyword)
    elif isinstance(expect, list):
        for item in expect:
            yield from _keywords(item, keyword)


def _partial(expect: Any) -> Iterator[str]:
    """Yield the patterns of an expectation that a part of a text fits."""
    yield from map(str, _keywords(expect, "includes"))
    for patterns in _keywords(expect, "inOrder"):
        yield from (pattern for pattern in patterns if not _whole(pattern))


def _whole(pattern: str) -> bool:
    return pattern.startswith("^") and pattern.endswith("$")
