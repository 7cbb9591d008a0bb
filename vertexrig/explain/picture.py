"""An explanation drawn for a terminal: tables of rich without colour, and text folded to a width."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len

from vertexrig.catalog import LineItem
from vertexrig.explain.explanation import Explanation, ImageFacts, PoolFacts
from vertexrig.spec.cluster import Replica
from vertexrig.spec.estimate import Estimate
from vertexrig.spec.quota import QuotaNeed
from vertexrig.text import draw
from vertexrig.times import length

if TYPE_CHECKING:
    from rich.table import Table

WIDEST_COLUMN = 36  # of text; two such pools fit side by side in 80 columns
FOLD = 6  # items of a list that are shown before the rest is only counted


def text(explanation: Explanation, *, width: int = 80, today: str = "") -> str:
    """Return the whole picture.

    Args:
        explanation: What to draw.
        width: Columns of the terminal; names and URIs longer than that are not cut.
        today: ISO date that an image's end dates are compared with, "" to leave that out.
    """
    # Below that not even the borders of one pool and its text fit.
    width = max(width, 40)
    sections = [
        _title(explanation, width),
        picture(explanation.pools, explanation.replicas, width),
        *([_study(explanation, width)] if explanation.study else []),
        _program(explanation, width, today),
        _environment(explanation, width),
        _quota(explanation, width),
        _price(explanation.price, width),
    ]
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def replica_text(explanation: Explanation, replica: Replica) -> str:
    """Return the environment of one replica, with its JSON on several lines."""
    pool = next(pool for pool in explanation.pools if pool.index == replica.pool_index)
    of_trial = f" of trial {explanation.trial}" if explanation.trial else ""
    lines = [f"{replica.name}{of_trial}: {pool.label} {replica.index} of {_clean(explanation.name)}"]
    environment = explanation.environment(replica)
    # Their one line of JSON is what a person comes here to read.
    spread = {"TF_CONFIG": explanation.tf_config(replica), "CLUSTER_SPEC": explanation.cluster_spec(replica)}
    lines += ["", *(f"{_clean(name)}={_clean(value)}" for name, value in environment.items() if name not in spread)]
    for name, value in spread.items():
        shown = "not set: the job has one replica" if value is None else json.dumps(value, indent=2, ensure_ascii=True)
        lines += ["", f"{name} {shown}" if value is None else f"{name}={shown}"]
    return "\n".join(lines) + "\n"


# ---- the picture


def picture(pools: Sequence[PoolFacts], replicas: Sequence[Replica], width: int) -> list[str]:
    """Return a column of a table per pool (name, machine, replicas), as many side by side as fit, in rows of equal length."""
    # here and not at the top, as below: 38 ms, which `explain --format json` saves
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # The API takes a list of any length, and a file with a thousand pools should not print a thousand boxes.
    shown = pools[: 2 * FOLD]
    columns = [
        (f"{pool.name}: {pool.label}", "\n".join(_pool_lines(pool)), _replicas(pool, replicas)) for pool in shown
    ]
    widest = max(cell_len(line) for cells in columns for cell in cells for line in cell.splitlines())
    inner = min(widest, WIDEST_COLUMN, width - 4)
    # each column has a border and two blanks around its text, and the table one border more
    fit = max(1, (width - 1) // (inner + 3))
    # rounded up twice: as few rows as fit, and those of equal length
    per_row = -(-len(shown) // -(-len(shown) // fit))
    lines: list[str] = []
    for start in range(0, len(shown), per_row):
        drawn = Table(box=box.SQUARE, show_header=False, show_lines=True)
        row = columns[start : start + per_row]
        for _ in row:
            drawn.add_column(width=inner, overflow="fold")
        for cells in zip(*row, strict=True):
            drawn.add_row(*map(Text, cells))
        lines += _drawn(drawn, width)
    if len(pools) > len(shown):
        lines.append(f"… and {len(pools) - len(shown)} more worker pools")
    return lines


def _drawn(table: Table, width: int, indent: int = 0) -> list[str]:
    return [" " * indent + line for line in draw(table, width=width - indent).splitlines()]


def _pool_lines(pool: PoolFacts) -> list[str]:
    lines = [f"{pool.replica_count:,} × {_box_text(pool.machine_type) or 'no machine type'}"]
    if pool.vcpus is not None and pool.memory_gb is not None:
        lines.append(f"  {pool.vcpus} vCPU, {pool.memory_gb:g} GB")
    if pool.accelerator_type:
        lines.append("  " + _accelerator(pool))
    if pool.tpu_topology:
        lines.append(f"  topology {_box_text(pool.tpu_topology)}" + (f", {pool.vms} VMs" if pool.vms > 1 else ""))
    if pool.gpu_partition_size:
        lines.append(f"  partitions of {_box_text(pool.gpu_partition_size)}")
    lines.append(f"  {pool.boot_disk_size_gb:,} GB {_box_text(pool.boot_disk_type)}")
    image = pool.image.name or _box_text(pool.image.uri.rpartition("/")[2])
    return [*lines, image or "no image"]


def _accelerator(pool: PoolFacts) -> str:
    name = _box_text(pool.accelerator_type)
    if pool.accelerator_unit == "GPUs":
        return f"{pool.accelerator_count} × {name}"
    unit = pool.accelerator_unit.removesuffix("s") if pool.accelerator_count == 1 else pool.accelerator_unit
    return f"{name}, {pool.accelerator_count} {unit}"


def _replicas(pool: PoolFacts, replicas: Sequence[Replica]) -> str:
    """Return `[worker 0 to 8]`."""
    label = "server" if pool.label == "reduction server" else pool.label
    return f"[{label} {_range([one.index for one in replicas if one.pool_index == pool.index])}]"


def _range(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


# ---- the sections


def _title(explanation: Explanation, width: int) -> list[str]:
    kind = "custom job" if explanation.study is None else "tuning job"
    words = [kind]
    if explanation.topology:
        words.append(f"topology {explanation.topology}")
    words.append(f"in {_clean(explanation.region)}" if explanation.region else "region not known")
    lines = _wrapped(f"{_clean(explanation.name)}: {', '.join(words)}", width)
    pools, replicas, price = len(explanation.pools), len(explanation.replicas), explanation.price
    shape = f"{_many(replicas, 'replica')} in {_many(pools, 'worker pool')}"
    written = "" if price.timeout_written else ", the default"
    limit = f"timeout {length(price.timeout_s)}{written}"
    if explanation.study is None:
        return [*lines, *_wrapped(f"{shape}; {explanation.strategy}; {limit}", width)]
    study = explanation.study
    trials = f"{_many(study.trials, 'trial')} at most, {study.parallel} at a time"
    return [*lines, *_wrapped(f"{trials}; each trial: {shape}, {explanation.strategy}, {limit}", width)]


def _study(explanation: Explanation, width: int) -> list[str]:
    study = explanation.study
    assert study is not None
    goals = ", ".join(f"{goal} {_clean(metric)}" for metric, goal in study.metrics.items())
    rows = [("goal", goals), ("algorithm", study.algorithm)]
    parameters = [(f"--{_clean(name)}", _clean(what)) for name, what in study.parameters.items()]
    rows += parameters[: 2 * FOLD]
    if len(parameters) > 2 * FOLD:
        rows.append(("", _rest(len(parameters) - 2 * FOLD, "parameter")))
    return ["Study", *_pairs(rows, width)]


def _program(explanation: Explanation, width: int, today: str) -> list[str]:
    lines = ["Program"]

    def program(pool: PoolFacts) -> tuple[object, ...]:
        return pool.image, pool.packages, pool.command, pool.args, tuple(pool.env.items())

    groups: list[list[PoolFacts]] = []
    for pool in explanation.pools:
        # Mostly all pools run the same: its arguments are shown once, with the names of the pools.
        same = next((group for group in groups if program(group[0]) == program(pool)), None)
        if same is None:
            groups.append([pool])
        else:
            same.append(pool)
    for group in groups[: 2 * FOLD]:
        if len(groups) > 1:
            lines.append("  " + _folded([pool.name for pool in group]))
        lines += _one_program(group[0], width, today, explanation.study is not None)
    if len(groups) > 2 * FOLD:
        lines.append("  " + _rest(len(groups) - 2 * FOLD, "program"))
    return lines


def _one_program(pool: PoolFacts, width: int, today: str, searched: bool) -> list[str]:
    runs = _words(pool.command) if pool.command else "the image's entry point"
    runs += f" {_words(pool.args)}" if pool.args else ""
    rows = [("image", _clean(pool.image.uri) or "none")]
    if pool.label != "reduction server":
        rows += [("", note) for note in _image_notes(pool.image, today)]
    rows += [("package", _clean(uri)) for uri in _some(pool.packages, "package")]
    rows.append(("runs", runs + (" and the trial's parameters" if searched else "")))
    variables = [f"{_clean(name)}={_clean(value)}" for name, value in pool.env.items()]
    rows += [("env" if index == 0 else "", line) for index, line in enumerate(_some(variables, "variable"))]
    return _pairs(rows, width)


def _words(words: Sequence[str]) -> str:
    """Return words quoted for a shell; of many words the last are only counted."""
    shown = " ".join(shlex.quote(_clean(word)) for word in words[: 4 * FOLD])
    return shown if len(words) <= 4 * FOLD else f"{shown} {_rest(len(words) - 4 * FOLD, 'argument')}"


def _image_notes(image: ImageFacts, today: str) -> Iterator[str]:
    if not image.name:
        yield "not a prebuilt image of the catalog"
        return

    def past(day: str) -> str:
        return " (past)" if today and day and day < today else ""

    yield f"end of support {image.end_of_support}{past(image.end_of_support)}"
    yield f"end of availability {image.end_of_availability}{past(image.end_of_availability)}"


def _environment(explanation: Explanation, width: int) -> list[str]:
    where = f"in every replica of trial {explanation.trial}" if explanation.trial else "in every replica"
    lines = [f"Environment {where}"]
    if not any(name.startswith("AIP_") for name in explanation.variables):
        lines += _wrapped(
            "AIP_MODEL_DIR and the other AIP_ directories are not set: there is no baseOutputDirectory", width, "  "
        )
    for name, value in explanation.variables.items():
        lines += _assignment(name, _clean(value), width)
    if not explanation.distributed:
        lines.append("  TF_CONFIG is not set: the job has one replica")
        hosts = explanation.cluster_spec(explanation.replicas[0])["cluster"]
        lines += ["  CLUSTER_SPEC", *_pairs(_hosts(hosts), width, "    ")]
    else:
        config = explanation.tf_config(explanation.replicas[0])
        assert config is not None
        lines += ["  TF_CONFIG", *_pairs([*_hosts(config["cluster"]), *_tasks(explanation)], width, "    ")]
        evaluator = any(one.role == "evaluator" for one in explanation.replicas)
        more = "; only it lists the evaluator" if evaluator else ""
        lines += _wrapped(f"CLUSTER_SPEC has the same under the names of the pools{more}", width, "  ")
        lines += ["  For PyTorch's env://", *_pairs(_ranks(explanation), width, "    ")]
    name = explanation.replicas[-1].name
    return [*lines, *_wrapped(f"In full: --replica {name}. Vertex AI fills in values in <>.", width, "  ")]


def _hosts(cluster: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yield the addresses of each role; of many the first two and the last."""
    for role, hosts in cluster.items():
        shown = hosts if len(hosts) <= FOLD else [*hosts[:2], f"… {len(hosts) - 3:,} more", hosts[-1]]
        yield from ((role if index == 0 else "", host) for index, host in enumerate(shown))


def _tasks(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield the task of each replica, one line for each role: within it only the index differs."""
    # Replicas come pool by pool, so each role is one run of them.
    for role, members in groupby(explanation.replicas, key=lambda one: one.role):
        indices = [one.index for one in members]
        trial = f", trial {explanation.trial}" if explanation.trial else ""
        yield "task" if role == "chief" else "", f"type {role}, index {_range(indices)}{trial}"


def _ranks(explanation: Explanation) -> Iterator[tuple[str, str]]:
    """Yield PyTorch's variables, and one line for the ranks of each role."""
    yield from (explanation.rendezvous() or {}).items()
    ranks = explanation.ranks()
    for number, (role, members) in enumerate(groupby(explanation.replicas, key=lambda one: one.role)):
        found = [ranks[one.name] for one in members if one.name in ranks]
        text = f"{role} {_range(found)}" if found else f"{role}: none of these variables is set, and it is not counted"
        yield "" if number else "RANK", text


def _quota(explanation: Explanation, width: int) -> list[str]:
    from rich.text import Text

    place = f" in {_clean(explanation.region)}, of what a new project has there" if explanation.region else ""
    dated = f" ({explanation.quota_date})" if explanation.quota_date else ""
    lines = _wrapped(f"Quota needed{place}{dated}", width)
    if explanation.job.get("persistentResourceId"):
        return [*lines, "  none: the job runs on a persistent resource"]
    if not explanation.quota:
        return [*lines, "  none that the catalog knows"]
    table = _grid("right", "left", "left")
    for one in explanation.quota:
        what = f"{_default(one, explanation)}; {_clean(one.item)}: {_clean(one.needed_by)}"
        metric = one.metric or "the metric's name has no source"
        table.add_row(f"{one.amount:,}", one.unit, Text(f"{what}\n{metric}"))
    return [*lines, *_drawn(table, width, 2)]


def _grid(*columns: Literal["left", "right"]) -> Table:
    """Return a table without lines."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in columns:
        table.add_column(justify=justify, overflow="fold")
    return table


def _default(need: QuotaNeed, explanation: Explanation) -> str:
    if need.preemptible and need.default is None:
        return "preemptible, default not documented"
    if need.default is None:
        return "default not documented" if explanation.quota_date else "region not known"
    if need.default >= need.amount:
        return f"of {need.default:,}"
    return "of 0, request it first" if need.default == 0 else f"of {need.default:,}, request more first"


def _price(price: Estimate, width: int) -> list[str]:
    from rich.rule import Rule
    from rich.text import Text

    lines = [f"Price: an estimate in US dollars at the on-demand prices of {price.region}"]
    study = price.trials is not None
    rows = [_line(line) for line in price.lines]
    each = " and trial" if study else ""
    rows.append((f"per hour{each}", _usd(price, price.usd_per_hour, 4), ""))
    rows.append(
        (f"{'per trial' if study else 'in all'}, {length(price.timeout_s)}", _usd(price, price.usd_per_job, 2), "")
    )
    if price.trials is not None:
        rows.append(
            (f"{_many(price.trials, 'trial')} in {length(price.wall_s)}", _usd(price, price.usd_at_most, 2), "")
        )
    table = _grid("left", "right", "left")
    for index, row in enumerate(rows):
        if index == len(price.lines) > 0:  # between the items and the sums
            table.add_row(Rule(style=""), Rule(style=""))
        table.add_row(*map(Text, row))
    lines += _drawn(table, width, 2)
    notes = []
    if study:
        notes.append(f"every trial until its timeout, {price.parallel} at a time")
    elif not price.timeout_written:
        notes.append("no timeout is set, so the default applies")
    if price.unpriced:
        names = dict.fromkeys(_clean(name) for name in price.unpriced)
        notes.append(f"price unknown, so not in the sums: {', '.join(names)}")
    if any(line.basis == "derived" for line in price.lines):
        notes.append("derived: the Compute Engine price with the ratio seen where both are known")
    notes += [f"{line.item}: {line.note}" for line in price.lines if line.note and line.usd_per_hour is not None]
    for note in (*notes, *price.notes):
        lines += _hung("  - ", note, width)
    return lines


def _line(line: LineItem) -> tuple[str, str, str]:
    quantity = f"{line.quantity:,g}"
    what = f"{quantity} GB {line.item}" if line.kind == "disk_gb" else f"{quantity} × {line.item}"
    if line.usd_per_hour is None:
        return _clean(what), "?", "price unknown"
    dated = f"{line.basis}, {line.date}"
    return _clean(what), f"{line.usd_per_hour:,.4f}", dated


def _usd(price: Estimate, usd: float, digits: int) -> str:
    if not price.complete and not usd:
        return "?"
    return f"{'' if price.complete else 'at least '}{usd:,.{digits}f}"


# ---- lines of text


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _some(items: Sequence[str], noun: str) -> list[str]:
    """Return the items; of many items the last are only counted."""
    return list(items) if len(items) <= FOLD else [*items[:FOLD], _rest(len(items) - FOLD, noun)]


def _rest(count: int, noun: str) -> str:
    return f"… and {_many(count, 'more ' + noun)} (--format json shows all)"


def _folded(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= FOLD else f"{names[0]}, {names[1]} … {names[-1]}"


def _pairs(rows: Iterable[tuple[str, str]], width: int, indent: str = "  ") -> list[str]:
    """Return names to the left, values to the right, wrapped."""
    rows = list(rows)
    column = min(max((cell_len(name) for name, _ in rows), default=0), 24)
    lines: list[str] = []
    for name, value in rows:
        lines += _hung(f"{indent}{name}{' ' * (column - cell_len(name))}  ", value, width)
    return lines


def _assignment(name: str, value: str, width: int) -> list[str]:
    line = f"  {name}={value}"
    return [line] if cell_len(line) <= width else [f"  {name}=", f"    {value}"]


def _hung(first: str, value: str, width: int) -> list[str]:
    """Return `value` wrapped after `first`; its later lines begin in the same column."""
    return _wrapped(value, width, " " * cell_len(first), first)


def _wrapped(value: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    return textwrap.wrap(
        value,
        width,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [(first or "").rstrip()]


def _clean(value: str) -> str:
    """Return text from a job for a terminal: on one line, control characters written out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in value)


def _box_text(value: str) -> str:
    """Return text from a job for a table, where every character is one column wide."""
    return _clean(value.encode("ascii", "backslashreplace").decode())
