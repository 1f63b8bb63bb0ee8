"""Likely maps of two models that part, from the order in which their modules are called.

Where two models compute something else, what their leaves do tells little of which is which: all behind the fault
does something else too. Modules are called in one order in both, though their leaves are listed in another. Nothing
of this is sure: of several likely maps the one counts under which most calls agree before the first that parts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from parity.checks.models.assembly import groups_of, rule_of
from parity.checks.models.draws import drawn
from parity.checks.models.likeness import Alike
from parity.checks.models.pieces import ExtentsKey, LeafPart, turns
from parity.checks.models.proposal import Matched
from parity.checks.models.quiet import by_words, kind_of, likely_turn
from parity.checks.models.subjects import Subjects
from parity.checks.models.used import LeafUse, uses_of
from parity.contract import ModelProbe, ModuleCall
from parity.mapping import Join, LeafRule

__all__ = ["crossed_joins", "disorder", "likely_maps", "pairs_by_use"]

CallPlace = Callable[[LeafPart], tuple[int, ...]]

Pairer = Callable[[Sequence[LeafPart], Sequence[LeafPart]], Sequence[tuple[LeafPart, LeafPart]]]
"""Takes pieces of both models in the order in which they are used to pairs of them."""


def likely_maps(subjects: Subjects, matched: Matched) -> list[list[LeafRule]]:
    """Return maps that pair leaves by the order of calls: all of them, and those alone that behaviour left.

    Args:
        subjects: The models.
        matched: What behaviour tells.

    Returns:
        Complete maps alone; none where a model has a leaf more than the other. Of functions, which show no calls,
        leaves are taken as they are listed.
    """
    values = _values(subjects)
    made = subjects.evaluate(values[0], values[1], grads=False, calls=True)
    places = [_placed(model, one.calls) for model, one in zip((subjects.first, subjects.second), made, strict=True)]
    maps = []
    for known in ([], list(matched.sure)):
        rules = _rules(subjects, matched, _paired(matched, known, places))
        if rules and rules not in maps:
            maps.append(rules)
    return maps


def pairs_by_use(subjects: Subjects, matched: Matched) -> list[list[Alike]]:
    """Return pairs of leaves in the order in which computing takes them, the likeliest first.

    First those whose names share words are paired, as a port may take what does not depend on one another in another
    order; then all by that order, and then those alone that behaviour left.

    Args:
        subjects: The models.
        matched: What behaviour tells.
    """
    sides = zip(subjects.both, _values(subjects), strict=True)
    here, there = (uses_of(model, values, inputs) for (model, inputs), values in sides)
    if here is None or there is None:
        return []
    places = [_used(here), _used(there)]
    by_layers = [_used_by_layers(model, uses, pieces) for model, uses, pieces in (
        (subjects.first, here, matched.first), (subjects.second, there, matched.second))]  # fmt: skip
    ways: tuple[tuple[list[Alike], Pairer | None], ...] = (([], by_words), ([], None), (list(matched.sure), None))
    # where no leaf is a stack of layers the two orders are one
    found = [_paired(matched, known, order, pairing, (here, there)) for order in (by_layers, places)
             for known, pairing in ways]  # fmt: skip
    # where no matrix but square ones is there, nothing says which way these lie
    every = [each for one in found if one is not None for each in (one, _turned_over(one))]
    return [one for at, one in enumerate(every) if one not in every[:at]]


def crossed_joins(subjects: Subjects, rules: Sequence[LeafRule]) -> list[str]:
    """Return notes of leaves that are joined in another order than the first model both lists and uses its own.

    Both models are equal so, and begin alike; who converts a checkpoint in the order of names exchanges the parts.

    Args:
        subjects: Two models that are equal under the rules.
        rules: Of a proven map.
    """
    listed = {leaf: at for at, leaf in enumerate(subjects.first.leaves)}
    joined = {
        one.target: [name.replace("*", "0") for name in one.source]
        for one in rules
        if len(one.source) > 1 and any(isinstance(step, Join) for step in one.transforms)
    }
    known = {target: names for target, names in joined.items() if listed.keys() >= set(names)}
    crossed = {target: names for target, names in known.items() if names != sorted(names, key=listed.__getitem__)}
    uses = uses_of(subjects.first, _values(subjects)[0], subjects.inputs.first) if crossed else None
    notes = []
    for target, names in crossed.items():
        by_use = sorted(names, key=lambda name: uses[name].number) if uses is not None else names
        if by_use == sorted(names, key=listed.__getitem__):
            notes.append(
                f"{target[0]} of {subjects.second.name} holds {', then '.join(names)}, which {subjects.first.name} "
                "lists and uses in another order: a checkpoint that is converted in that order computes otherwise"
            )
    return notes


def disorder(subjects: Subjects, matched: Matched, pairs: Sequence[Alike]) -> int:
    """Return how many two pairs stand in another order of use in one model than in the other.

    Args:
        subjects: The models.
        matched: Their pieces.
        pairs: Of all pieces.
    """
    sides = zip(subjects.both, _values(subjects), (matched.first, matched.second), strict=True)
    found = [(model, uses_of(model, values, inputs), pieces) for (model, inputs), values, pieces in sides]
    places = [_used_by_layers(model, uses, pieces) for model, uses, pieces in found if uses is not None]
    if len(places) != 2:
        return 0
    at = [(places[0](one.first), places[1](one.second)) for one in pairs]
    return sum((a < c) != (b < d) for (a, b), (c, d) in itertools.combinations(at, 2))


def _turned_over(pairs: Sequence[Alike]) -> list[Alike]:
    """Return pairs of which all square matrices lie the other way."""
    turned = []
    for one in pairs:
        orders = turns(one.first.index.shape, one.second.index.shape)
        other = orders[1 - orders.index(one.axes)] if len(orders) == 2 and one.axes in orders else one.axes
        turned.append(replace(one, axes=other))
    return turned


def _used(uses: Mapping[str, LeafUse]) -> CallPlace:
    """Return what gives the place of a piece in the order of use."""
    return lambda piece: (uses[piece.leaf].number, piece.number)


def _used_by_layers(model: ModelProbe, uses: Mapping[str, LeafUse], pieces: Sequence[LeafPart]) -> CallPlace:
    """Return what gives the place of a piece where a loop over stacks of layers takes them layer by layer.

    Leaves of as many layers that are used one after the other are taken by one loop.
    """
    depths: dict[str, int] = {}
    for one in pieces:
        length = np.shape(model.leaves[one.leaf])[0] if np.ndim(model.leaves[one.leaf]) else 1
        depths[one.leaf] = length if length > 1 and one.count % length == 0 else 1
    loops: dict[str, int] = {}
    last = 1
    for number, leaf in enumerate(sorted(depths, key=lambda leaf: uses[leaf].number)):
        joins = number and depths[leaf] == last > 1
        loops[leaf] = max(loops.values(), default=-1) + (not joins)
        last = depths[leaf]
    return lambda piece: (loops[piece.leaf], piece.number * depths[piece.leaf] // piece.count,
                          uses[piece.leaf].number, piece.number)  # fmt: skip


def _values(subjects: Subjects) -> list[dict[str, NDArray[np.float64]]]:
    """Return values of the leaves of both models, no two alike."""
    return [
        {leaf: drawn(value.shape, "statistic" if leaf in model.statistics else "parameter", (47, at))
         for at, (leaf, value) in enumerate(model.leaves.items())}
        for model in (subjects.first, subjects.second)
    ]  # fmt: skip


def _placed(model: ModelProbe, calls: Sequence[ModuleCall]) -> CallPlace:
    """Return what gives the place of a piece: first call of its module, kind of leaf, number among the pieces."""
    first: dict[str, int] = {}
    for at, call in enumerate(calls):
        first.setdefault(call.path, at)
    order = {leaf: at for at, leaf in enumerate(model.leaves)}

    def place(piece: LeafPart) -> tuple[int, ...]:
        home = piece.leaf
        while home and (home := home.rpartition(".")[0]) not in first and home:
            pass
        return first.get(home, len(calls)), kind_of(piece.leaf), order[piece.leaf], piece.number

    return place


def _paired(
    matched: Matched,
    known: Sequence[Alike],
    places: Sequence[CallPlace],
    pairing: Pairer | None = None,
    uses: tuple[Mapping[str, LeafUse], Mapping[str, LeafUse]] = ({}, {}),
) -> list[Alike] | None:
    """Return pairs of all pieces of one extent, one after the other; None where one model has more of them."""
    taken = {one.first for one in known} | {one.second for one in known}
    classes: dict[ExtentsKey, tuple[list[LeafPart], list[LeafPart]]] = defaultdict(lambda: ([], []))
    for at, pieces in enumerate((matched.first, matched.second)):
        for one in sorted((one for one in pieces if one not in taken), key=places[at]):
            classes[one.key][at].append(one)
    if any(len(here) != len(there) for here, there in classes.values()):
        return None
    pairs = [
        pair for both in classes.values() for pair in (pairing(*both) if pairing else zip(*both, strict=True))
    ]  # fmt: skip
    likely = [*pairs, *((one.first, one.second) for one in known)]
    return [*known, *(Alike(a, b, likely_turn(a, b, likely, uses), 1.0, 0.0, "order") for a, b in pairs)]


def _rules(subjects: Subjects, matched: Matched, pairs: Sequence[Alike] | None) -> list[LeafRule] | None:
    """Return the rules of a map; None where a row of it cannot be written."""
    rules = []
    for group in groups_of(pairs or []):
        rule = rule_of(group, subjects.first, subjects.second)
        if rule is None:
            return None
        rules.append(rule)
    return rules
