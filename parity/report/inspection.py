"""What a checkpoint holds, and how two differ, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from rich.console import Console
from rich.text import Text

from parity.convert import Comparison, ComponentTotals, Inspection, LeafComparison, LeafOutcome, ParameterCounts
from parity.report.layout import Column, print_rows, print_wrapped
from parity.report.terminal import open_console
from parity.report.words import clean, short

__all__ = ["print_comparison", "print_inspection"]

MOST_ROWS = 40
"""Rows of a component, and leaves of a comparison, that are shown unless all are asked for."""

_ROWS = (
    Column(name="name", rank=0, wraps=True),
    Column(name="type", rank=1),
    Column(name="leaves", rank=3, right=True),
    Column(name="bytes", rank=2, right=True),
)
_LEAVES = (
    Column(name="leaf", rank=0, wraps=True),
    Column(name="differs in", rank=1),
    Column(name="max abs", rank=2, right=True),
    Column(name="at", rank=4),
    Column(name="max rel", rank=3, right=True),
    Column(name="of", rank=5),
)


def print_inspection(found: Inspection, file: IO[str], *, every: bool = False) -> None:
    """Print a checkpoint: what it is, each component with its rows, and what a resume would miss.

    Args:
        found: What is known of it.
        file: Where it is printed.
        every: Whether each component shows all of its rows.
    """
    console = open_console(file)
    detail = f" ({found.detail})" if found.detail else ""
    print_wrapped(console, clean(f"{found.path}: {found.format}{detail}"))
    total = sum(group.arrays for group in found.groups)
    print_wrapped(console, f"{_arrays(total)}, {found.nbytes:,} bytes")
    print_wrapped(console, clean(f"{found.summary} ({found.fact})"))
    if found.step is not None:
        print_wrapped(console, clean(f"step {found.step} (inferred from the name {found.step_from})"))
    for group in found.groups:
        console.print()
        _print_group(console, group, every)
    console.print()
    for leaf, name in found.opaque[:MOST_ROWS]:
        print_wrapped(console, clean(f"not read: {leaf} is an object of {name}, which only its code could rebuild"))
    if len(found.opaque) > MOST_ROWS:
        print_wrapped(console, f"and {len(found.opaque) - MOST_ROWS} more objects that are not read")
    for name, why in found.missing:
        print_wrapped(console, f"no {name} by any name that is known (unknown whether it lies elsewhere): {why}")
    if not found.missing:
        print_wrapped(console, "a resume finds every component that is looked for")


def _print_group(console: Console, group: ComponentTotals, every: bool) -> None:
    elements = f"{group.elements:,} elements, " if group.elements else ""
    totals = f"{_arrays(group.arrays)}, {elements}{group.nbytes:,} bytes"
    head = f"{group.component}: {totals} ({group.fact}: {group.evidence})"
    print_wrapped(console, Text(clean(head), style="bold"))
    if group.counts is not None and (group.counts.buffers or group.counts.tied):
        print_wrapped(console, clean(f"  {_counted(group.counts)}"), indent=2)
    shown = group.rows if every else group.rows[:MOST_ROWS]
    rows = [
        (
            Text(f"  {clean(row.name)}"),
            row.kind,
            f"{row.count:,}" if row.count > 1 else "",
            f"{row.nbytes:,}" if row.nbytes else "",
        )
        for row in shown
    ]
    print_rows(console, _ROWS, rows)
    if len(shown) < len(group.rows):
        print_wrapped(console, f"and {len(group.rows) - len(shown):,} more rows: --all shows them", indent=2)


def _counted(counts: ParameterCounts) -> str:
    """Return what the arrays of a model are, as a sentence."""
    parts = [f"{_many(counts.parameters, 'parameter')} of {counts.elements:,} elements"]
    if counts.buffers:
        buffers = f"{_many(counts.buffers, 'buffer')} of {counts.buffer_elements:,} elements"
        parts.append(f"{buffers} ({counts.evidence})")
    if counts.tied:
        names = ", ".join(counts.tied[:4]) + (", ..." if len(counts.tied) > 4 else "")
        parts.append(f"counted once, as they are further names of one storage (read): {names}")
    return "; ".join(parts)


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _arrays(count: int) -> str:
    return f"{count:,} {'array' if count == 1 else 'arrays'}"


def print_comparison(found: Comparison, file: IO[str], *, every: bool = False) -> None:
    """Print the leaves that differ or are on one side only, then the totals.

    Args:
        found: Every leaf of two checkpoints.
        file: Where it is printed.
        every: Whether all leaves that differ are shown.
    """
    console = open_console(file)
    differing = found.of("different", "close", "not read", "other type")
    shown = differing if every else differing[:MOST_ROWS]
    print_rows(console, _LEAVES, [_row(leaf) for leaf in shown])
    if len(shown) < len(differing):
        print_wrapped(console, f"and {len(differing) - len(shown):,} more that differ: --all shows them")
    for outcome in _ONE_SIDE:
        _print_names(console, outcome, found.of(outcome), every)
    equal = found.of("equal")
    by_seal = sum(leaf.by_seal for leaf in equal)
    counts = [
        f"{len(equal):,} equal bit for bit" + (f" ({by_seal:,} by their seals, not read)" if by_seal else ""),
        *(f"{len(found.of(outcome)):,} {words}" for outcome, words in _COUNTS if found.of(outcome)),
    ]
    total = len(found.leaves)
    print_wrapped(console, f"{total:,} {'leaf' if total == 1 else 'leaves'}: {', '.join(counts)}")
    if found.renamed:
        print_wrapped(console, f"{found.renamed:,} were matched without the names that wrappers put before them")


_ONE_SIDE: tuple[LeafOutcome, ...] = ("only in A", "only in B")
_COUNTS: tuple[tuple[LeafOutcome, str], ...] = (
    ("close", "within the tolerance"),
    ("different", "different"),
    ("not read", "not read, so that nothing shows them to be equal"),
    ("other type", "of another type"),
    ("only in A", "only in A"),
    ("only in B", "only in B"),
)


def _row(leaf: LeafComparison) -> tuple[str, ...]:
    name = leaf.name if leaf.other in ("", leaf.name) else f"{leaf.name} = {leaf.other}"
    types = leaf.types[0] if leaf.types[0] == leaf.types[1] else f"{leaf.types[0]} and {leaf.types[1]}"
    count = f"{leaf.differing:,} of {leaf.elements:,}" if leaf.max_abs is not None else leaf.outcome
    at = "" if leaf.max_abs_at is None else f"[{', '.join(map(str, leaf.max_abs_at))}]"
    return name, count, short(leaf.max_abs), at, short(leaf.max_rel), types


def _print_names(console: Console, outcome: str, leaves: Sequence[LeafComparison], every: bool) -> None:
    shown = leaves if every else leaves[:MOST_ROWS]
    for leaf in shown:
        print_wrapped(console, clean(f"{outcome}: {leaf.name} ({leaf.types[0] or leaf.types[1]})"))
    if len(shown) < len(leaves):
        print_wrapped(console, f"and {len(leaves) - len(shown):,} more {outcome}: --all shows them")
