"""A simulated policy as a table on a terminal: what is on disk after every save, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.text import Text

from parity.policy import Moment, Rules
from parity.report.layout import Column, print_rows, print_wrapped
from parity.report.terminal import open_console

__all__ = ["describe", "print_moments"]

COLUMNS = (
    Column(name="save", right=True),
    Column(name="metric", right=True),
    Column(name="on disk", wraps=True),
    Column(name="removed", rank=1, wraps=True),
)

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
    kept = f"keeps {', '.join(parts)}"
    return f"{'larger' if rules.mode == 'max' else 'smaller'} is better; {kept}" if rules.mode else kept


def print_moments(moments: Sequence[Moment], rules: Rules, file: IO[str]) -> None:
    """Print one row for every save, then a summary; NO_COLOR is honoured.

    Args:
        moments: The saves, at least one, as `simulate` returns them.
        rules: The rules of the policy.
        file: Where it is printed.
    """
    console = open_console(file)
    print_wrapped(console, describe(rules))
    print_wrapped(console, Text(LEGEND, style="dim"))
    console.print()
    rows = []
    for moment in moments:
        metric = moment.saved.metric
        removed = ", ".join(str(step) for step in moment.removed)
        shown = "-" if metric is None else f"{metric:.6g}"
        rows.append((str(moment.saved.step), shown, _there(moment), removed))
    print_rows(console, COLUMNS, rows)
    most = max(len(moment.there) for moment in moments)
    best = moments[-1].best
    console.print()
    print_wrapped(
        console,
        f"{len(moments)} saves, at most {most} on disk; "
        f"latest is {moments[-1].latest}, best is {'none' if best is None else best}",
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
