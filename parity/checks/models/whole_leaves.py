"""Maps in which leaves that behaviour left stand for others as a whole: all of them, where they are few.

Leaves that are cut into many equal pieces agree with anything. A rule moves whole leaves, and of few leaves all ways
can be tried: where none holds, it was the pieces that agreed, and not the models.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations, product

from parity.checks.models.assembly import groups_of, rule_of
from parity.checks.models.draws import drawn
from parity.checks.models.likeness import Alike, gap
from parity.checks.models.pieces import ExtentsKey, LeafPart
from parity.checks.models.proof import carried, placed
from parity.checks.models.proposal import Matched
from parity.checks.models.subjects import Subjects
from parity.mapping import LeafRule

__all__ = ["leaf_maps", "outputs_agree"]

MOST_MAPS = 48
"""Maps that are tried: each costs one evaluation of both models."""

NEAR = 1e-9
"""Relative distance of outputs within which a map is worth a proof."""


def leaf_maps(subjects: Subjects, matched: Matched) -> Iterator[list[LeafRule]] | None:
    """Return all complete maps that pair leaves as a whole and keep what is sure; None where they are too many.

    Args:
        subjects: The models.
        matched: What behaviour tells; each piece has a counterpart that is sure or likely.
    """
    classes: dict[ExtentsKey, tuple[dict[str, list[LeafPart]], dict[str, list[LeafPart]]]]
    classes = defaultdict(lambda: ({}, {}))
    axes: dict[ExtentsKey, tuple[int, ...]] = {}
    for one, _ in matched.unsure:
        here, there = classes[one.first.key]
        here.setdefault(one.first.leaf, []).append(one.first)
        there.setdefault(one.second.leaf, []).append(one.second)
        axes[one.first.key] = one.axes
    ways = [_ways(*both) for both in classes.values()]
    if math.prod(map(len, ways)) > MOST_MAPS:
        return None
    return _maps(subjects, matched, list(axes.values()), ways)


def outputs_agree(subjects: Subjects, rules: list[LeafRule]) -> bool:
    """Return whether the outputs of two models are near under some rules, at one draw of their leaves."""
    first = subjects.first
    placements, problems = placed(subjects, rules)
    if problems:
        return False
    values = {
        leaf: drawn(value.shape, "statistic" if leaf in first.statistics else "parameter", (53, at))
        for at, (leaf, value) in enumerate(first.leaves.items())
    }
    one, two = subjects.evaluate(values, carried(first, placements, values), grads=False)
    return all(gap(x, y) <= NEAR for x, y in zip(one.outputs, two.outputs, strict=True))


PartPairs = list[tuple[LeafPart, LeafPart]]


def _ways(here: dict[str, list[LeafPart]], there: dict[str, list[LeafPart]]) -> list[PartPairs]:
    """Return the orders in which the leaves of the model that has more of them are those of the other."""
    swapped = len(here) < len(there)
    many, few = (there, here) if swapped else (here, there)
    fixed = [piece for leaf in few for piece in sorted(few[leaf], key=lambda one: one.number)]
    found = []
    for order in permutations(many) if math.factorial(len(many)) <= MOST_MAPS else [tuple(many)] * (MOST_MAPS + 1):
        pieces = [piece for leaf in order for piece in sorted(many[leaf], key=lambda one: one.number)]
        pairs = list(zip(pieces, fixed, strict=True))
        found.append([(b, a) for a, b in pairs] if swapped else pairs)
    return found


def _maps(
    subjects: Subjects, matched: Matched, axes: list[tuple[int, ...]], ways: list[list[PartPairs]]
) -> Iterator[list[LeafRule]]:
    for some in product(*ways):
        pairs = [
            Alike(a, b, order, 1.0, 0.0, "order") for each, order in zip(some, axes, strict=True) for a, b in each
        ]
        rules = [rule_of(group, subjects.first, subjects.second) for group in groups_of([*matched.sure, *pairs])]
        whole = [rule for rule in rules if rule is not None]
        if len(whole) == len(rules):
            yield whole
