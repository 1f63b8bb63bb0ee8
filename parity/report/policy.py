"""A simulated policy as a table on a terminal: what is on disk after every save, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.text import Text

from parity.policy import Moment, Rules
from parity.report.terminal import open_console, open_table

__all__ = ["describe", "print_moments"]

LEGEND = "* best   > latest   after each step the rules by which it stays"


def describe(rules: Rules) -> str:
    """Return rules in words.

    Example:
        >>> describe(Rules(mode="min", keep_latest=2, keep_every=500))
        'smaller is better; keeps the 2 latest, the best, multiples of 500'
    """
    parts = [_count(rules.keep_latest, "latest")]
    if rules.keep_best:
        parts.append(_count(rules.keep_best, "best"))
    if rules.keep_every:
        parts.append(f"multiples of {rules.keep_every}")
    if rules.keep_seconds:
        parts.append(f"one every {rules.keep_seconds:g} s")
    return f"{'larger' if rules.mode == 'max' else 'smaller'} is better; keeps {', '.join(parts)}"


def print_moments(moments: Sequence[Moment], rules: Rules, file: IO[str]) -> None:
    """Print one row for every save, then a summary; NO_COLOR is honoured."""
    console = open_console(file)
    console.print(describe(rules))
    console.print(LEGEND + "\n", style="dim")
    table = open_table()
    table.add_column("save", justify="right")
    table.add_column("metric", justify="right")
    table.add_column("on disk", overflow="fold")
    table.add_column("removed", overflow="fold")
    for moment in moments:
        metric = moment.saved.metric
        removed = ", ".join(str(step) for step in moment.removed)
        table.add_row(str(moment.saved.step), "-" if metric is None else f"{metric:.6g}", _there(moment), removed)
    console.print(table)
    most = max(len(moment.there) for moment in moments)
    best = moments[-1].best
    console.print(
        f"\n{len(moments)} saves, at most {most} on disk; "
        f"latest is {moments[-1].latest}, best is {'none' if best is None else best}"
    )


def _there(moment: Moment) -> Text:
    out = Text()
    for number, (step, why) in enumerate(moment.there.items()):
        out.append("   " if number else "")
        style = "green" if step == moment.best else "bold" if step == moment.latest else ""
        marks = ("*" if step == moment.best else "") + (">" if step == moment.latest else "")
        out.append(f"{step}{marks}", style=style)
        out.append(f" {','.join(why)}", style="dim")
    return out


def _count(number: int, what: str) -> str:
    return f"the {what}" if number == 1 else f"the {number} {what}"
