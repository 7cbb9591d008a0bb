"""The options and the text of the estimate of time and money that `explain` and `submit` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vertexrig import files, times
from vertexrig.catalog import Catalog
from vertexrig.cli import remote
from vertexrig.cli.options import WhereOptions, group, option
from vertexrig.cli.tables import table
from vertexrig.errors import UsageError
from vertexrig.explain import simulate
from vertexrig.explain.simulate import SimulatedRun
from vertexrig.spec.estimate import Estimate

if TYPE_CHECKING:
    from vertexrig.cloud.vertex import RemoteJob
    from vertexrig.spec.document import Document


class Length(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A length of time such as 90s, 5m or 1h30m; a number alone is seconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = times.meant_seconds(str(value))
        if not seconds:
            self.fail(f"{value!r} is not a length of time such as 90s, 5m or 1h30m.", param, ctx)
        return float(seconds)


@dataclass(frozen=True)
class EstimateOptions:
    """What the estimate of time and money is made from; false if none is asked for."""

    trial_time: tuple[float, ...] = option(
        "--trial-time",
        type=Length(),
        multiple=True,
        metavar="LENGTH",
        help="Estimate time and money if each trial (or the job) trains this long: 90s, 5m, 1h30m. Repeat the option for "
        "several lengths that are equally likely.",
    )
    learn_from: str | None = option(
        "--learn-from",
        metavar="NAME | FILE",
        help="Estimate time and money from finished jobs: a job's name or number, or a file with the output of gcloud ai ... "
        "describe or list.",
    )
    preempted_every: float | None = option(
        "--preempted-every",
        type=Length(),
        metavar="LENGTH",
        help="Mean time until a trial on Spot machines is preempted and starts again. Use it with --trial-time or --learn-from.",
    )

    def __post_init__(self) -> None:
        if self.preempted_every is not None and not self:
            raise click.UsageError("--preempted-every needs --trial-time or --learn-from")

    def __bool__(self) -> bool:
        return bool(self.trial_time) or self.learn_from is not None


estimate_options = group("asked", EstimateOptions)


def estimate(
    price: Estimate, spec: Document, catalog: Catalog, asked: EstimateOptions, file: Path | None
) -> SimulatedRun:
    """Return the estimate that the options ask for.

    Args:
        price: Prices of the run.
        spec: The run.
        catalog: Recorded durations.
        asked: The options.
        file: The project file, where `--learn-from` names a job.
    """
    own = None
    if asked.learn_from is not None:
        from vertexrig.studies import learning  # 22 ms

        own = learning.learned(_jobs(asked.learn_from, file), asked.learn_from, sweep=price.trials is not None)
    drawn = simulate.durations(spec, catalog, asked.trial_time, own, preempted_s=asked.preempted_every)
    return simulate.simulate(price, drawn)


def text(found: SimulatedRun) -> str:
    """Return an estimate as lines."""
    what = "the job" if found.trials is None else "1 trial" if found.trials == 1 else f"{found.trials:,} trials"
    headings = ["at a time", "time p50", "time p90", "US dollars p50", "US dollars p90"]
    least = "" if found.complete else "at least "
    rows = [
        [
            row.parallel,
            # an estimate of minutes has no seconds
            *(times.length(s if s < 120 else 60 * round(s / 60)) for s in (row.wall_p50, row.wall_p90)),
            *("no price" if usd is None else f"{least}{usd:,.2f}" for usd in (row.usd_p50, row.usd_p90)),
        ]
        for row in found.rows
    ]
    if found.trials is None:
        headings, rows = headings[1:], [row[1:] for row in rows]
    drawn = "\n".join(f"  {line}" for line in table(headings, rows).splitlines())
    notes = "\n".join(f"  - {note}" for note in found.notes)
    return f"Time and money of {what}: an estimate\n{drawn}\n{notes}"


def _jobs(learn_from: str, file: Path | None) -> list[RemoteJob]:
    from vertexrig.studies import learning

    if Path(learn_from).is_file() or learn_from == "-":
        return learning.parse(files.read_text(learn_from), learn_from)
    if "/" in learn_from and not learn_from.startswith("projects/"):
        raise UsageError(f"--learn-from: there is no file {learn_from}")
    return [remote.find(WhereOptions(file, local=False), learn_from).job]
