"""The page of the score, `docs/fidelity.md`, made from the manifest in `fidelity/` and the result kept in it.

`python -m tools.fidelity_page > docs/fidelity.md` writes it; a test holds the committed page against it. The result is
measured by `make fidelity ACCEPT=1`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tools.fidelity import manifest, mutation
from tools.fidelity.judge import short
from tools.fidelity.manifest import Manifest, ManifestRow
from tools.fidelity.score import AreaScore, kept, summed, wanted

_HEAD = """\
# How like the service it is

<!-- Made by `python -m tools.fidelity_page`; change the rows in fidelity/, not this page. -->

Of what the real Vertex AI was **seen** to do in training, the local Vertex does **{recorded}** the same; of what Google
**documents** about it, **{documented}** ({measured}). Of {first_rows} facts that nobody had looked at before, it did
**{first_share}** the same [the first time](#facts-that-we-had-not-seen), unmended.

| facts about | known from | rows | same | differ | score |
| --- | --- | --- | --- | --- | --- |
{evidence}

- *recorded*: an answer, a log or an error of the service was seen, and its source can be opened: a repository and path, an issue, a page.
- *documented*: a page, a message definition or the code of a client of Google's says so.
- *unlinked*: seen in a public file whose repository is not known, or said by no public text. Such a row is tried, and counts for neither of the two scores.

There are {unknown_count} facts that [nobody outside Google can know](#what-nobody-outside-google-can-know), such as waiting times and the order of states:
there the local Vertex had to choose.

A score says how many of the {rows} rows in `fidelity/` are the same, and nothing about what has no row. {partial} rows look at a part of a
text only (`includes`, or `inOrder` with a part of a line); the others at the whole value. The sources are {kinds},
recorded or read from {oldest} to {last}. `make fidelity` tries every row on the local Vertex, which runs real jobs and studies for it, and the real
gcloud and Python SDK, and says which rows have moved since the accepted result.{missing}

| area | rows | same | differ | score |
| --- | --- | --- | --- | --- |
{areas}

## Facts that we had not seen

A score of facts that the local Vertex was made for says little about the others. So {first_rows} recorded facts of {first_sources} further sources, and of {known_sources} that rows cited already, were
written down before anybody looked at what the local Vertex does about them, and tried once ({first_measured}). **{first_share}**
were the same: {first_kinds}. What differed was mended afterwards, or is below; the scores above count these rows, too.

| area | facts | same | differ | first-time score |
| --- | --- | --- | --- | --- |
{first_areas}

## What the rows notice

`make fidelity MUTATE=1` breaks the local Vertex on purpose, in {breakages} ways one after the other: a field dropped or added, an order, a
time, a code, a label, a skipped state, a variable, a line of the log. Rows noticed **{noticed} %** of them, and none noticed a change
that breaks nothing. Not noticed: {missed}. CI tries all of them in a job of its own, four minutes on two cores (2026-11-23), and fails under {least} %.

## What nobody outside Google can know

These {unknown_count} facts have no public source, or sources that disagree; the local Vertex had to choose. Each command records one with a
project of your own; with `--dry-run` ours says first what it would create, and what that costs at most.

| fact | what would record it |
| --- | --- |
{unknown}

[What a rehearsal shares with Vertex AI](rehearse.md#what-it-shares-with-vertex-ai) says the same in words.

## Try it yourself

`python -m tools.fidelity` starts a local Vertex and tries every row, in under a minute on 2 cores (2026-11-21). A choice of rows:

```sh
python -m tools.fidelity --area scheduler
python -m tools.fidelity --row 'deadline-*' --format json
python -m tools.fidelity --dry-run                # what the rows would create in the cloud, and what that costs at most
```

With a project of your own the same rows can be tried on the real service. This creates jobs and costs money: at most the
estimate of `--dry-run`, and nothing is created if that is over `--budget` (5 USD by default). What a row expects to be refused and is
accepted all the same is cancelled at once.

<!-- not run: it needs a project on Google Cloud, and costs money -->
```sh
python -m tools.fidelity --against cloud --project PROJECT --bucket gs://BUCKET --recording seen.jsonl
```

A row that differs there is an error of ours: please send the row's id, and the lines of `seen.jsonl` that begin with its
script's name. Each line holds one request and its answer. Project, bucket, ids, addresses, tokens and e-mail addresses are
replaced before the file is written; look at it before you send it.

## Recordings of your own

`vertexrig local up --record FILE` adds every call of a program, and its answer, to a file of the same form; `--replay` sends such a
recording again and shows each place where the answer is another one.

```sh
vertexrig local up --detach --record seen.jsonl
python -m tools.fidelity --replay seen.jsonl
vertexrig local down
```

## A row

One line of JSON in `fidelity/rows/`: what holds, where that is known from (`sources.jsonl`), and how it is tried. `run` names
a script of `fidelity/scripts.yaml`, whose answers many rows look at; `ask` is a request for this row alone. `probe` is a
[JMESPath](https://jmespath.org) expression over the answers, `expect` a [JSON Schema](https://json-schema.org) that what it
finds must fit (`false`: there must be nothing). A `pattern` is of a whole text, from `^` to `$`; `includes` is of a part.
`inOrder` and `noneMatches` are further keywords, for lists of text. What a row is known from follows from the kind of its sources;
a source with `"linked": false` is one that a reader cannot open.

```json
{example}
```

## What differs

What was decided about each row is in `fidelity/decisions.jsonl`; a row that differs and has no decision makes
`make fidelity` fail. In brackets is the row's source, by its id in `fidelity/sources.jsonl`.
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
    first_areas, first_kinds = (summed(held.first[key]) for key in ("areas", "kinds"))
    head = _HEAD.format(
        first_rows=first_areas[-1].rows,
        first_sources=held.first["sources"],
        known_sources=held.first["known"],
        first_measured=held.first["measured"],
        first_share=_share(first_areas[-1]),
        first_kinds=", ".join(f"of {_plural(one.area, one.rows)} {_share(one)}" for one in first_kinds[:-1]),
        first_areas=_areas(first_areas),
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
