"""`vertexrig checks`: the list of rules."""

from __future__ import annotations

import click

from vertexrig.checks import all_rules
from vertexrig.cli import options
from vertexrig.cli.output import result
from vertexrig.cli.tables import table


@click.command("checks")
@options.format_option("text", "json")
def command(format_: str) -> None:
    """List every rule: id, severity, what holds, and where the rule comes from."""
    rules = [(rule.id, rule.severity.value, rule.summary, rule.source) for rule in all_rules()]
    keys = ("id", "severity", "summary", "source")
    data = {"rules": [dict(zip(keys, rule, strict=True)) for rule in rules]}
    result(format_, data, lambda: table(("id", "severity", "what holds"), [rule[:3] for rule in rules]))
