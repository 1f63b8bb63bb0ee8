"""Suspects: what a check on live trainers names, in lines of text, and the record of a verdict that rests on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from parity.contract import Precision
from parity.results.record import CheckRecord, Criterion, LeafChange, Verdict

__all__ = [
    "Suspect",
    "SuspectingVerdict",
    "clipped",
    "components_of",
    "describe_effect",
    "record_of",
    "suspect_lines",
]

MOST_NOTED, MOST_LEAVES = 8, 64
"""Suspects that a record has as sentences, and as leaves."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """One value that a resume changed."""

    component: str
    """In the field's words: `optimizer.second_moment`, `data.position`."""
    path: str
    """Where the trainer keeps it: `self.optimizer.state[head.weight].exp_avg_sq`."""
    step: int
    """Completed steps at the mark where it was seen."""
    expected: str
    """The value without a stop: a short one as text, of an array type and digest."""
    got: str
    when: str
    """`at the resume`, `3 steps after the resume`, `across the save, train.py:41`, `in best.pt at the end`."""
    scenario: str
    """The scenario in which it was seen."""
    advice: str = ""
    elements: int | None = None
    """Elements of the array; None where values were not fetched, as are the fields below."""
    differing: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None

    @property
    def road(self) -> str:
        """The former name of `scenario`."""
        return self.scenario

    @property
    def amount(self) -> str:
        """Return by how much an array differs, in words; empty where that is not known."""
        if self.elements is None or self.differing is None:
            return ""
        worst = "" if self.max_abs is None else f", by up to {self.max_abs:.3g}"
        return f"{self.differing:,} of {self.elements:,} elements{worst}"


class SuspectingVerdict(Protocol):
    """A verdict that rests on suspects: of one trainer that resumes, or of two that are compared."""

    @property
    def name(self) -> str:
        """Return the name of what was checked."""

    @property
    def verdict(self) -> Verdict:
        """Return the verdict."""

    @property
    def precision(self) -> Precision:
        """Return the trainer's own."""

    @property
    def suspects(self) -> tuple[Suspect, ...]:
        """Return the suspects, the likeliest first."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return findings, as sentences for people."""

    @property
    def compared(self) -> int:
        """Return the steps or marks that were compared."""

    @property
    def seconds(self) -> float:
        """Return how long the check took."""


def record_of(
    found: SuspectingVerdict,
    check: str,
    sides: tuple[str, ...],
    criterion: Criterion,
    *,
    scenarios: bool = False,
    **fields: Any,
) -> CheckRecord:
    """Return the record of a verdict for reports and result files.

    Args:
        found: The verdict.
        check: The check.
        sides: What was checked.
        criterion: By what values were compared.
        scenarios: Whether a leaf says in which scenario it was seen.
        fields: Further fields of the record.
    """
    return CheckRecord(
        name=check,
        spec=found.name,
        precision=found.precision,
        sides=sides,
        verdict=found.verdict,
        criterion=criterion,
        steps_compared=found.compared,
        suspects=components_of(found.suspects),
        advice=_advice_of(found.suspects),
        notes=(*found.notes, *(describe(one) for one in found.suspects[:MOST_NOTED])),
        leaves=tuple(
            LeafChange(
                where=f"{one.when}, step {one.step}" + (f", scenario {one.scenario}" if scenarios else ""),
                leaf=one.path,
                kind="value",
                detail=f"expected {one.expected}, got {one.got}",
                elements=one.elements,
                differing=one.differing,
                max_abs=one.max_abs,
                max_rel=one.max_rel,
            )
            for one in found.suspects[:MOST_LEAVES]
        ),
        seconds=found.seconds,
        **fields,
    )


def describe(one: Suspect) -> str:
    """Return one line about a suspect."""
    return f"{one.component}: {one.path}, step {one.step}, {one.when}: expected {one.expected}, got {one.got}"


def describe_effect(one: Suspect) -> str:
    """Return one line about what a statement changed."""
    return f"{one.path} ({one.component}) changed {one.when}, step {one.step}: {one.expected} to {one.got}"


def components_of(suspects: Sequence[Suspect]) -> tuple[str, ...]:
    """Return the components of some suspects, each once, in their order."""
    return tuple(dict.fromkeys(suspect.component for suspect in suspects))


def _advice_of(suspects: Sequence[Suspect]) -> dict[str, str]:
    """Return the component of the first suspect with its advice: what follows from it would get a wrong one."""
    return {one.component: one.advice for one in suspects[:1] if one.advice}


def suspect_lines(heading: str, suspects: Sequence[Suspect], *, scenarios: bool = False) -> list[str]:
    """Return the first suspect in full, then a line for the first of each other component, at most four.

    Args:
        heading: What became of the components.
        suspects: The likeliest first; without any there are no lines.
        scenarios: Whether the scenario of the first one is shown.
    """
    if not suspects:
        return []
    firsts: dict[str, Suspect] = {}
    for one in suspects:
        firsts.setdefault(one.component, one)
    first, *shown = list(firsts.values())[:5]
    scenario = f", scenario {first.scenario}" if scenarios else ""
    return [
        f"{heading}: {', '.join(list(firsts)[:4])}",
        f"  where     {first.path}, {first.when} (step {first.step}{scenario})",
        f"  expected  {first.expected}",
        f"  got       {first.got}",
        *([f"  differs   {first.amount}"] if first.amount else []),
        f"  advice    {first.advice}",
        *(["then:"] if shown else []),
        *(f"  {describe(one)}" for one in shown),
    ]


def clipped(text: str, most: int = 300) -> str:
    """Return a text of at most so many characters.

    Args:
        text: The text; a longer one is cut and ends in `...`.
        most: Most characters, at least 3.

    Example:
        >>> clipped("a long sentence", 9)
        'a long...'
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."
