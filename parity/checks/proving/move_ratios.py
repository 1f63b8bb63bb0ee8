"""Rates and decays of one update of a trainer and its port, by the leaves of the port."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parity.checks.proving.move_forms import LeafMove, MoveForm
from parity.checks.proving.walk import TwoWalks

__all__ = ["SAME", "Rates", "by_leaf", "ratios_of"]

SAME = 1e-6
"""Relative distance of two numbers that are one."""

Rates = Mapping[int, Mapping[str, float]]
"""Update to leaf of the port to a number."""


def by_leaf(
    walk: TwoWalks, form: MoveForm, at: int, of: Callable[[LeafMove], float], second: bool
) -> dict[str, float]:
    """Return a number of each leaf of the second model, of those where all sources agree."""
    held = {leaf: of(one) for leaf, one in form.moves.get(at, {}).items()}
    if second:
        return held
    found = {}
    for path, names in walk.pairing.names().items():
        values = [held.get(name) for name in names.split(" + ")]
        if values and None not in values and len(set(values)) == 1:
            found[path] = values[0]
    return found  # type: ignore[return-value]


def ratios_of(walk: TwoWalks, one: MoveForm, two: MoveForm) -> Rates:
    """Return update to leaf of the second to the port's rate over the trainer's."""
    found = {}
    for at in sorted(one.moves.keys() & two.moves.keys()):
        here, there = (by_leaf(walk, form, at, lambda leaf: leaf.rate, form is two) for form in (one, two))
        found[at] = {leaf: there[leaf] / rate for leaf, rate in here.items() if rate and leaf in there}
    return found
