"""Tries rows: each script they look at once, several side by side, then every row held against what came."""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from localvertex.recording import Blanks
from tools.fidelity.judge import DIFFERS, NOT_TRIED, Verdict, judge
from tools.fidelity.manifest import Manifest, ManifestRow
from tools.fidelity.scripts import Player, ScriptRecord, StepError
from tools.fidelity.target import Caller, Target
from vertexrig.errors import ServiceError

SIDE_BY_SIDE = 6


@dataclass(frozen=True)
class Tried:
    """How rows came out.

    Args:
        verdicts: In the order of the rows.
        exchanges: Every request with its answer, blanked: lines of a recording.
    """

    verdicts: tuple[Verdict, ...]
    exchanges: tuple[dict[str, Any], ...]


def conform(
    manifest: Manifest,
    rows: Sequence[ManifestRow],
    target: Target,
    on_script: Callable[[str, ScriptRecord], None] = lambda name, record: None,
) -> Tried:
    """Try rows on a target.

    Args:
        manifest: What they belong to.
        rows: The rows.
        target: Where.
        on_script: Called when a script has ended, in any thread.

    Raises:
        ServiceError: The target does not answer, or refuses the trainer's package.
    """
    upload(manifest, target)
    with tempfile.TemporaryDirectory(prefix="fidelity-") as folder:
        player = Player(manifest, target, Path(folder))
        names = list(dict.fromkeys(row.run for row in rows if row.run))

        def play(name: str) -> ScriptRecord:
            record = player.play(manifest.scripts[name])
            on_script(name, record)
            return record

        def ask(row: ManifestRow) -> ScriptRecord:
            try:
                return ScriptRecord(player.ask(row))
            except (StepError, ServiceError) as error:
                return ScriptRecord(broken=str(error))

        asking = [row for row in rows if not row.run]
        # those that wait for a client's start first, since each takes longest
        names.sort(key=lambda name: not any({"gcloud", "sdk"} & set(s) for s in manifest.scripts[name].steps.values()))
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            records = dict(zip(names, pool.map(play, names), strict=True))
            answers = dict(zip((row.id for row in asking), pool.map(ask, asking), strict=True))
    verdicts = tuple(_verdict(manifest, row, records.get(row.run) or answers[row.id]) for row in rows)
    return Tried(verdicts, tuple(exchanges(records, answers, target.names())))


def _verdict(manifest: Manifest, row: ManifestRow, record: ScriptRecord) -> Verdict:
    """Return a row's verdict; a step that was not made gives no verdict by what is missing from it."""
    # Steps that the probe names; those before them do not matter to the row.
    wanted = (
        {step for step in manifest.scripts[row.run].steps if re.search(rf"\b{step}\b", row.probe)} if row.run else set()
    )
    if wanted <= set(record.steps) and (row.run or not record.broken):
        return judge(row, record.steps)
    if record.missing:
        return Verdict(row, NOT_TRIED, None, record.missing)
    return Verdict(row, DIFFERS, None, record.broken or "the script did not come that far")


def exchanges(
    records: Mapping[str, ScriptRecord], answers: Mapping[str, ScriptRecord], names: Mapping[str, str]
) -> Iterable[dict[str, Any]]:
    """Return requests and their answers as lines of a recording: `{"run", "step", "request", "answer"}`, blanked."""
    blanked = Blanks(names)
    asked = [(name, "ask", record.steps) for name, record in answers.items() if record.steps]
    steps = [(name, step, one) for name, record in records.items() for step, one in record.steps.items()]
    for name, step, one in [*steps, *asked]:
        if isinstance(one, dict) and "request" in one:
            answer = {key: value for key, value in one.items() if key not in ("request", "headers")}
            yield blanked({"run": name, "step": step, "request": one["request"], "answer": answer})


def upload(manifest: Manifest, target: Target) -> None:
    """Put the trainer's package into the bucket.

    Raises:
        ServiceError: The bucket is not there, or may not be written.
    """
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for file in sorted((manifest.folder / "trainer").rglob("*.py")):
            # Made by hand, a TarInfo has no time and no owner of this machine.
            info = tarfile.TarInfo(f"fidelity_trainer-1.0/{file.relative_to(manifest.folder / 'trainer')}")
            data = file.read_bytes()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    name = target.package.partition(f"gs://{target.bucket}/")[2]
    path = f"/upload/storage/v1/b/{target.bucket}/o?uploadType=media&name={quote(name, safe='')}"
    answer = Caller(target)("storage", "POST", path, data=held.getvalue(), headers={"Content-Type": "application/gzip"})
    if answer["status"] != 200:
        text = answer["body"].get("error", {}).get("message", "") if isinstance(answer["body"], dict) else ""
        raise ServiceError(
            f"the package of the rows cannot be put into gs://{target.bucket}: {text or answer['status']}; "
            "name a bucket that you may write to with --bucket",
            status=answer["status"],
        )


def recording(exchanged: Iterable[Mapping[str, Any]]) -> str:
    """Exchanges as JSON Lines; bytes as Python writes them."""
    return "".join(json.dumps(one, ensure_ascii=False, default=repr) + "\n" for one in exchanged)
