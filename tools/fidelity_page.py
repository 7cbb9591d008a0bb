"""The page of the score, `docs/fidelity.md`, made from the manifest in `fidelity/` and the result kept in it.

`python -m tools.fidelity_page > docs/fidelity.md` writes it; a test holds the committed page against it. The result is
measured by `make fidelity ACCEPT=1`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tools.fidelity import manifest, mutation
from tools.fidelity.judge import short
from tools.fidelity.manifest import Manifest, ManifestRow
from tools.fidelity.score import AreaScore, kept, summed, wanted

_HEAD = """\
# How closely the local Vertex follows the service

<!-- Made by `python -m tools.fidelity_page`; change the rows in fidelity/, not this page. -->

This page compares the local Vertex with known facts about the real Vertex AI. Each fact is a row in `fidelity/`, with its source and a test.
On {measured}:

- Of the facts about training that somebody **recorded** on the service, **{recorded}** hold here, too.
- Of the facts about training that Google **documents**, **{documented}** hold here.
- Of new facts, tested once before the local Vertex was adapted to them, **{first_share}** held in the latest round ([first-time score](#new-facts)).

| facts about | known from | rows | same | differ | score |
| --- | --- | --- | --- | --- | --- |
{evidence}

- *recorded*: somebody saw an answer, a log or an error of the service, and you can open the source: a file of a repository, an issue or a page.
- *documented*: a page, a message definition or the code of one of Google's clients says so.
- *unlinked*: the fact is from a public file whose repository is not known, or no public text states it. Such a row is tested but does not count
  in the two scores.

The score covers only the {rows} facts that have a row. {partial} rows compare a part of a text (`includes`, or `inOrder` with a part of a line);
the others compare the whole value. The sources are {kinds}, recorded or read from {oldest} to {last}. {unknown_count} more facts, such as waiting times
and the order of states, [cannot be known outside Google](#what-nobody-outside-google-can-know).

`make fidelity` tests every row with real jobs and studies on the local Vertex, through REST, gcloud and the Python SDK. It names the rows whose
result has changed since the accepted one.{missing}

| area | rows | same | differ | score |
| --- | --- | --- | --- | --- |
{areas}

## New facts

The local Vertex was written to match the facts that it is tested with, so their score says little about other facts. To measure those,
recorded facts are written down before anybody knows what the local Vertex does about them, and are tested once, in rounds. The differences are then
corrected or become rows that differ.

| round | facts | the same | first-time score | the same later | facts from |
| --- | --- | --- | --- | --- | --- |
{first_rounds}

## Surfaces read whole

Of these parts of the APIs we have read all that the named sources say: parameters, defaults, forms and errors. What the local Vertex can show is a row;
the last column lists what it does not serve, and why.

| surface | read | from | rows | not served |
| --- | --- | --- | --- | --- |
{surfaces}

## What the rows notice

`make fidelity MUTATE=1` breaks the local Vertex on purpose, one change at a time, {breakages} times: it drops or adds a field, or changes an order, a
time, a code, a label, a state, a variable or a line of the log. The rows noticed **{noticed} %** of these changes, and no row failed for a change
without effect. Not noticed: {missed}. CI tests all changes in a job of its own, and fails under {least} %.

## What nobody outside Google can know

These {unknown_count} facts have no public source, or sources that disagree, so the local Vertex uses a value that we chose. Each command records one fact with
a project of your own. Commands of `tools.fidelity` take `--dry-run`, which shows what they would create and what that costs at most.

| fact | command that records it |
| --- | --- |
{unknown}

[What a rehearsal shares with Vertex AI](rehearse.md#what-it-shares-with-vertex-ai) explains the same in words.

## Run the comparison

`python -m tools.fidelity` starts a local Vertex and tests every row, in a minute on 2 cores (2026-11-28). To choose rows:

```sh
python -m tools.fidelity --area scheduler
python -m tools.fidelity --row 'deadline-*' --format json
python -m tools.fidelity --dry-run                # what the rows would create in the cloud, and what that costs at most
```

You can also test the rows on the real service, in a project of your own. This creates jobs and costs money: at most the estimate of `--dry-run`.
If the estimate is over `--budget` (5 USD by default), nothing is created. If the service accepts a request that a row expects it to refuse, the job
is cancelled at once.

<!-- not run: it needs a project on Google Cloud, and costs money -->
```sh
python -m tools.fidelity --against cloud --project PROJECT --bucket gs://BUCKET --recording seen.jsonl
```

If a row differs there, our row is wrong: please send us the row's id, and the lines of `seen.jsonl` that begin with its script's name. Each line is
one request with its answer. Project, bucket, ids, addresses, tokens and e-mail addresses are replaced before the file is written; look at it
before you send it.

## Recordings of your own

`vertexrig local up --record FILE` writes each call of a program, with its answer, to a file of the same form. `--replay` sends the recorded
calls again and shows where an answer differs.

```sh
vertexrig local up --detach --record seen.jsonl
python -m tools.fidelity --replay seen.jsonl
vertexrig local down
```

## Format of a row

A row is one line of JSON in `fidelity/rows/`:

- `holds` is the fact, and `source` names where it is known from: ids in `fidelity/sources.jsonl`. The kind of the sources decides whether the fact is
  recorded or documented. A source with `"linked": false` is one that you cannot open.
- `run` names a script in `fidelity/scripts.yaml`, whose answers many rows read. `ask` is a request for this row only.
- `probe` is a [JMESPath](https://jmespath.org) expression that selects a value in the answers.
- `expect` is a [JSON Schema](https://json-schema.org) for that value; `false` means that there must be none. A `pattern` matches a whole text, from `^` to `$`.
  We add three keywords: `includes` matches a part of a text, `inOrder` and `noneMatches` apply to lists of texts.

```json
{example}
```

## What differs

Each row that differs has a decision in `fidelity/decisions.jsonl`; without one, `make fidelity` fails. In brackets is the id of the
row's source in `fidelity/sources.jsonl`.
"""


def page(held: Manifest | None = None) -> str:
    """Return the whole page as Markdown."""
    held = held or manifest.load()
    result = kept(held)
    *areas, all_ = summed(result["areas"])
    kinds = Counter(source.kind for source in held.sources.values())
    missing = len(result["not_tried"])
    example = next(row for row in held.rows if row.id == "disk-defaults")
    evidence = {one.area: one for one in summed(result["evidence"])[:-1]}
    measured = [one for one in held.first if one["facts"]]
    head = _HEAD.format(
        first_share=_percent(measured[-1]) if measured else "nothing",
        first_rounds="\n".join(map(_round, held.first)),
        surfaces="\n".join(_surface(held, one) for one in held.surfaces),
        recorded=_share(evidence.get(f"{manifest.TRAINING}, {manifest.RECORDED}")),
        documented=_share(evidence.get(f"{manifest.TRAINING}, {manifest.DOCUMENTED}")),
        evidence="\n".join(
            "| "
            + " | ".join(
                [*one.area.rsplit(", ", 1), str(one.rows), str(one.same), str(one.differs), f"{one.percent} %"]
            )
            + " |"
            for one in evidence.values()
        ),
        breakages=held.mutation.get("tried", 0),
        noticed=_noticed(held),
        least=f"{mutation.LEAST:g}",
        missed="; ".join(held.mutation.get("missed", ())) or "none",
        unknown_count=len(held.unknown),
        unknown="\n".join(f"| {one['fact']} | `{one['command']}` |" for one in held.unknown),
        partial=sum(row.partial for row in held.rows),
        rows=len(held.rows),
        kinds=", ".join(f"{count} {_plural(kind, count)}" for kind, count in kinds.most_common()),
        oldest=min(source.date for source in held.sources.values()),
        last=held.date,
        measured=result["measured"],
        missing=f" {missing} could not be tried." if missing else "",
        areas=_areas([*areas, all_]),
        example=_line(held, example),
    )
    return head + "\n".join(_differences(held, result))


def _areas(found: Iterable[AreaScore]) -> str:
    """Return the lines of a table by area."""
    return "\n".join(f"| {one.area} | {one.rows} | {one.same} | {one.differs} | {one.percent} % |" for one in found)


def _percent(one: Mapping[str, Any]) -> str:
    return f"{100 * one['same'] / one['facts']:.1f} % ({one['same']} of {one['facts']})"


def _round(one: Mapping[str, Any]) -> str:
    """Return the line of a round of new facts."""
    if not one["facts"]:
        return f"| not measured yet | | | | | {one['from']} |"
    later = f"{one['later']['same']} ({one['later']['date']})" if one["later"] else ""
    return f"| {one['date']} | {one['facts']} | {one['same']} | {_percent(one).partition(' (')[0]} | {later} | {one['from']} |"


def _surface(held: Manifest, one: Mapping[str, Any]) -> str:
    rows = sum(any(fnmatchcase(row.id, pattern) for pattern in one["rows"]) for row in held.rows)
    return f"| {one['surface']} | {one['read']} | {one['from']} | {rows} | {_cell('; '.join(one['not_served']))} |"


def _noticed(held: Manifest) -> float:
    tried = held.mutation.get("tried", 0)
    return round(100 * (tried - len(held.mutation["missed"])) / tried, 1) if tried else 0.0


def _share(score: AreaScore | None) -> str:
    return f"{score.percent} % ({score.same} of {score.same + score.differs})" if score else "nothing"


def _plural(kind: str, count: int) -> str:
    return {"client": "sources of clients" if count > 1 else "source of a client"}.get(
        kind, f"{kind}s" if count > 1 else kind
    )


def _line(held: Manifest, row: ManifestRow) -> str:
    """Return a row as it is written."""
    files = sorted((held.folder / "rows").glob("*.jsonl"))
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return next(line for line in lines if f'"id": "{row.id}"' in line)


def _differences(held: Manifest, result: dict[str, Any]) -> list[str]:
    rows = {row.id: row for row in held.rows}
    by: dict[str, list[dict[str, Any]]] = {}
    for one in result["differs"]:
        by.setdefault(held.decided(one["id"]) or "Not decided yet.", []).append(one)
    lines: list[str] = []
    for decided, found in by.items():
        lines += ["", f"**{decided}**", "", "| row | on the service | expected | here |", "| --- | --- | --- | --- |"]
        for one in found:
            row = rows[one["id"]]
            cells = (
                f"`{row.id}`",
                f"{row.holds} ({row.sources[0].id})",
                short(wanted(row.expect), 120),
                short(one["seen"], 120),
            )
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return [*lines, ""] if lines else ["", "Nothing.", ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(page())
