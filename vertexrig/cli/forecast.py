"""The options and the text of an estimate of time and money, which `explain` and `submit` share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from vertexrig.cli.tables import table
from vertexrig.errors import UsageError

if TYPE_CHECKING:
    from vertexrig.catalog import Catalog
    from vertexrig.cloud.vertex import RemoteJob
    from vertexrig.explain.estimate import Estimate
    from vertexrig.explain.simulate import Forecast
    from vertexrig.spec.document import Document

F = TypeVar("F", bound=Callable[..., Any])
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(s|min|m|h|d)?")


class Length(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A length of time: 90s, 5m, 1.5h; a number alone is seconds."""

    name = "length"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        match = _LENGTH.fullmatch(str(value).strip())
        if match is None or float(match[1]) == 0:
            self.fail(f"{value!r} is not a length of time such as 90s, 5m or 1.5h.", param, ctx)
        return float(match[1]) * _UNITS[match[2] or ""]


@dataclass(frozen=True)
class ForecastOptions:
    """The estimate that the options ask for.

    Args:
        lengths: `--trial-time`, seconds.
        learn_from: `--learn-from`.
        preempted: `--preempted-every`, seconds; None without it.
    """

    lengths: tuple[float, ...] = ()
    learn_from: str | None = None
    preempted: float | None = None

    def __bool__(self) -> bool:
        return bool(self.lengths) or self.learn_from is not None


def forecast_options(command: F) -> F:
    """`--trial-time`, `--learn-from` and `--preempted-every`; the command gets them as `asked`."""
    time = click.option(
        "--trial-time",
        type=Length(),
        multiple=True,
        metavar="LENGTH",
        help="Estimate time and money with trials (or a job) that train this long: 90s, 5m, 1.5h. Repeat it for several "
        "lengths that are equally likely.",
    )
    learn = click.option(
        "--learn-from",
        metavar="NAME|FILE",
        help="Estimate time and money from finished jobs: a job's name or number, or a file with what gcloud ai ... "
        "describe or list prints.",
    )
    preempted = click.option(
        "--preempted-every",
        type=Length(),
        metavar="LENGTH",
        help="For that estimate and strategy SPOT: mean time until a running trial is preempted; it starts over then.",
    )

    @wraps(command)
    def asking(
        *args: Any, trial_time: tuple[float, ...], learn_from: str | None, preempted_every: float | None, **more: Any
    ) -> Any:
        asked = ForecastOptions(trial_time, learn_from, preempted_every)
        if preempted_every is not None and not asked:
            raise click.UsageError("--preempted-every goes with --trial-time or --learn-from")
        return command(*args, asked=asked, **more)

    return cast(F, time(learn(preempted(asking))))


def forecast(
    price: Estimate, spec: Document, catalog: Catalog, asked: ForecastOptions, file: Path | None
) -> Forecast | None:
    """The estimate that the options ask for; None if they ask for none.

    Args:
        price: Prices of the run.
        spec: The run.
        catalog: Recorded durations.
        asked: The options.
        file: The project file, where `--learn-from` names a job.
    """
    if not asked:
        return None
    from vertexrig.explain import simulate

    own = None
    if asked.learn_from is not None:
        from vertexrig.studies import learning

        own = learning.learned(_jobs(asked.learn_from, file), asked.learn_from, sweep=price.trials is not None)
    drawn = simulate.durations(spec, catalog, asked.lengths, own, preempted_s=asked.preempted)
    return simulate.forecast(price, drawn)


def text(found: Forecast) -> str:
    """An estimate as lines."""
    what = "the job" if found.trials is None else "1 trial" if found.trials == 1 else f"{found.trials:,} trials"
    headings = ["at a time", "time p50", "time p90", "US dollars p50", "US dollars p90"]
    least = "" if found.complete else "at least "
    rows = [
        [
            row.parallel, _span(row.wall_p50), _span(row.wall_p90),
            *("no price" if usd is None else f"{least}{usd:,.2f}" for usd in (row.usd_p50, row.usd_p90)),
        ]
        for row in found.rows
    ]  # fmt: skip
    if found.trials is None:
        headings, rows = headings[1:], [row[1:] for row in rows]
    drawn = "\n".join(f"  {line}" for line in table(headings, rows).splitlines())
    notes = "\n".join(f"  - {note}" for note in found.notes)
    return f"Time and money of {what}: an estimate\n{drawn}\n{notes}"


def _jobs(learn_from: str, file: Path | None) -> list[RemoteJob]:
    from vertexrig import files
    from vertexrig.studies import learning

    if Path(learn_from).is_file() or learn_from == "-":
        return learning.parse(files.read_text(learn_from), learn_from)
    if "/" in learn_from and not learn_from.startswith("projects/"):
        raise UsageError(f"--learn-from: there is no file {learn_from}")
    from vertexrig.cli import remote  # it needs an extra, which files and --trial-time do without

    return [remote.find(file, learn_from, local=False).job]


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
