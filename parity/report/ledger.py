"""The ledger of a conversion, and where rules put each parameter, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import IO

from rich.text import Text

from parity.convert import Action, Ledger
from parity.formats import Array
from parity.mapping import RulePlacement
from parity.report.layout import Column, print_rows, print_wrapped
from parity.report.terminal import open_console
from parity.report.words import clean

__all__ = ["print_ledger", "print_placements"]

MOST_LINES = 40
"""Lines of each kind that are shown unless all are asked for."""

_ACTIONS: tuple[Action, ...] = ("refused", "reset", "left out", "transformed", "copied")

_COLUMNS = (
    Column(name="leaf", rank=0, wraps=True),
    Column(name="goes to", rank=1, wraps=True),
    Column(name="how", rank=2, wraps=True),
)


def print_ledger(target: str, ledger: Ledger, file: IO[str], *, every: bool = False) -> None:
    """Print what was refused, reset and transformed, then the totals.

    Args:
        target: Of the conversion.
        ledger: Every leaf of it.
        file: Where it is printed.
        every: Whether the leaves that were copied are shown too, and all lines.
    """
    console = open_console(file)
    for action in _ACTIONS:
        entries = ledger.of(action)
        if not entries or (action in ("copied", "left out", "transformed") and not every):
            continue
        print_wrapped(console, Text(action, style="bold red" if action == "refused" else "bold"))
        shown = entries if every or action == "refused" else entries[:MOST_LINES]
        print_rows(console, _COLUMNS, [(e.leaf, e.target, e.how) for e in shown])
        if len(shown) < len(entries):
            print_wrapped(console, f"and {len(entries) - len(shown):,} more: --all shows them")
    counts = [f"{len(ledger.of(action)):,} {action}" for action in reversed(_ACTIONS) if ledger.of(action)]
    size = sum(entry.nbytes for entry in ledger.entries if entry.action in ("copied", "transformed"))
    print_wrapped(console, f"{len(ledger.entries):,} leaves: {', '.join(counts)}")
    for note in ledger.notes:
        print_wrapped(console, clean(note))
    done = f"{target}: {size:,} bytes of arrays, sealed"
    print_wrapped(console, clean(f"{target} was not written" if ledger.refused or not ledger.crossed else done))


def print_placements(
    placements: Sequence[RulePlacement],
    model: Mapping[str, Array],
    problems: Sequence[tuple[str, str]],
    file: IO[str],
) -> None:
    """Print where each parameter goes, then what is wrong, then a total.

    Args:
        placements: Where each goes, as `ConversionRules.place` returns them.
        model: Name of a parameter to its array, of which dtype and shape are shown.
        problems: Name of a parameter, and why it does not lead back or has no rule.
        file: Where it is printed.
    """
    console = open_console(file)
    rows = [
        (
            ", ".join(f"{name} {model[name]}" for name in placement.source),
            ", ".join(placement.target),
            f"{placement.rule.how or 'as it is'} ({placement.rule.rule_class})",
        )
        for placement in placements
    ]
    print_rows(console, _COLUMNS, rows)
    for name, problem in problems:
        print_wrapped(console, clean(f"{name}: {problem}"))
    total = sum(len(placement.source) for placement in placements)
    words = f"{len(problems)} do not lead back or have no rule" if problems else "each has one place and leads back"
    print_wrapped(console, f"{total} parameters: {words}")
