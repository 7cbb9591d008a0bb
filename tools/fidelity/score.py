"""The score: rows that are the same among those that were tried, by area and in all; and what differs, side by side."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from localvertex.recording import Blanks
from tools.fidelity.judge import DIFFERS, NOT_TRIED, SAME, Verdict, short
from tools.fidelity.manifest import AREAS, EVIDENCE, PARTS, Manifest


@dataclass(frozen=True)
class AreaScore:
    """Rows of one area, of one kind of evidence, or of all.

    Args:
        area: Its name, such as "log" or "training, recorded"; "all" for the sum.
        same: Rows that are as on the service.
        differs: Rows that are not.
        not_tried: Rows that could not be tried.
    """

    area: str
    same: int
    differs: int
    not_tried: int

    @property
    def rows(self) -> int:
        """All of them, tried or not."""
        return self.same + self.differs + self.not_tried

    @property
    def percent(self) -> float | None:
        """Of the rows that were tried, None if none was."""
        tried = self.same + self.differs
        return round(100 * self.same / tried, 1) if tried else None


def scores(verdicts: Iterable[Verdict]) -> list[AreaScore]:
    """Return the score of every area that has rows, and of all."""
    counted = Counter((verdict.row.area, verdict.result) for verdict in verdicts)
    return summed({area: {result: counted[area, result] for result in (SAME, DIFFERS, NOT_TRIED)} for area in AREAS})


def by_evidence(verdicts: Iterable[Verdict]) -> list[AreaScore]:
    """Return the scores that are published: of each part, by what its rows are known from."""
    counted = Counter(((one.row.part, one.row.evidence), one.result) for one in verdicts)
    return summed(
        {
            f"{part}, {kind}": {result: counted[(part, kind), result] for result in (SAME, DIFFERS, NOT_TRIED)}
            for part in PARTS
            for kind in EVIDENCE
        }
    )[:-1]


def summed(by_area: Mapping[str, Mapping[str, int]]) -> list[AreaScore]:
    """Scores from counts by area and result, and their sum as the last."""
    made = [AreaScore(area, *(by_area[area].get(r, 0) for r in (SAME, DIFFERS, NOT_TRIED))) for area in by_area]
    made = [one for one in made if one.rows]
    return [
        *made,
        AreaScore("all", *(sum(getattr(one, key) for one in made) for key in ("same", "differs", "not_tried"))),
    ]


def document(manifest: Manifest, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the result as JSON."""
    return {
        "rows": [
            {
                "id": one.row.id, "area": one.row.area, "evidence": one.row.evidence, "tried": one.row.tried, "holds": one.row.holds, "result": one.result,
                "expected": one.row.expect, "seen": one.seen if one.result == DIFFERS else None, "why": one.why,
                "sources": [source.id for source in one.row.sources], "decided": manifest.decided(one.row.id),
            }
            for one in verdicts
        ],
        "evidence": [_counts(one) for one in by_evidence(verdicts)],
        "areas": [_counts(one) for one in scores(verdicts)],
    }  # fmt: skip


def _counts(one: AreaScore) -> dict[str, Any]:
    return {**asdict(one), "rows": one.rows, "percent": one.percent}


def moved(manifest: Manifest, verdicts: Iterable[Verdict]) -> list[str]:
    """Return a line for each row that came out another way than in the result that was accepted last."""
    before = kept(manifest)
    known = set(before.get("rows", ()))
    differed, missing = {one["id"] for one in before.get("differs", ())}, set(before.get("not_tried", ()))
    lines = []
    for one in verdicts:
        was = DIFFERS if one.row.id in differed else NOT_TRIED if one.row.id in missing else SAME
        if one.row.id not in known:
            lines.append(f"{one.row.id}: new, {one.result}")
        elif was != one.result:
            lines.append(f"{one.row.id}: {was} before, {one.result} now")
    return lines


def side_by_side(verdict: Verdict) -> str:
    """Return a differing row: what holds, what was expected, what was seen."""
    return "\n".join(
        [
            f"{verdict.row.id} ({verdict.row.area}, {verdict.row.tried}): {verdict.row.holds}",
            f"  expected  {short(wanted(verdict.row.expect))}",
            f"  seen      {short('nothing' if verdict.seen is None else verdict.seen)}",
            f"  why       {short(verdict.why)}",
        ]
    )


def wanted(expect: Any) -> str:
    """Return an expectation in few words, where one keyword of JSON Schema says it all."""
    if expect is False:
        return "nothing"
    if isinstance(expect, dict) and len(expect) == 1:
        ((key, value),) = expect.items()
        words = {
            "const": "",
            "pattern": "text like ",
            "enum": "one of ",
            "includes": "text with a part like ",
            "inOrder": "in this order: ",
            "type": "a value of type ",
        }
        if key in words:
            return words[key] + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return json.dumps(expect, ensure_ascii=False)


def accepted(manifest: Manifest, verdicts: Sequence[Verdict], today: str) -> dict[str, Any]:
    """Return what is kept of a result for the page: counts by area, and the rows that differ, blanked.

    Args:
        manifest: What the rows belong to.
        verdicts: Of all rows.
        today: The date, which is kept only where something has changed.
    """
    counted, evidence = (
        {one.area: {SAME: one.same, DIFFERS: one.differs, NOT_TRIED: one.not_tried} for one in made}
        for made in (scores(verdicts)[:-1], by_evidence(verdicts))
    )
    differing = [
        {"id": one.row.id, "seen": _still(one.seen), "why": _still(one.why)}
        for one in verdicts
        if one.result == DIFFERS
    ]
    missing = [one.row.id for one in verdicts if one.result == NOT_TRIED]
    found = {
        "measured": today, "evidence": evidence, "areas": counted, "differs": differing, "not_tried": missing,
        "rows": [one.row.id for one in verdicts],
    }  # fmt: skip
    before = kept(manifest)
    # The date alone would change the file, and with it a page, at every run.
    if {**before, "measured": ""} == {**found, "measured": ""}:
        return before
    return found


def kept(manifest: Manifest) -> dict[str, Any]:
    """Return the result that was accepted last, {} if none was."""
    file = manifest.folder / "score.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _still(value: Any) -> str:
    """Return what was seen, without what changes from run to run: ids, times, addresses, folders."""
    # Longer than the page shows: what is replaced below may be long.
    text = short("nothing" if value is None else Blanks()(value), 400)
    text = re.sub(
        r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?",
        lambda match: f"<time{' with ' + str(len(match[1]) - 1) + ' digits' if match[1] else ''}>",
        text,
    )
    text = re.sub(r"fidelity-[0-9a-f]{12}", "<scratch>", re.sub(r"\d+\.\d{6,}", "<number>", text))
    return short(text)
