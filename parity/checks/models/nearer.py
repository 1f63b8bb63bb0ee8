"""The map of two models that part under which they do most alike: leaves that behaviour left, exchanged.

Behind a fault nothing tells which of several leaves of one shape is which: the two biases of a recurrent cell, or
its weights where both sides of it are as wide. Names and the order of calls give a map to begin with; each exchange
of two such leaves is measured, and kept where fewer operations of both make what the other has not or, where as many
do, where outputs and gradients come nearer. Where they stay as far apart, as do those of two biases that one model
adds up, that order is kept in which other leaves of the module lie. The map that is left is a likely one: what is
said under it is proven by values, and a wrong one makes nothing equal.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from parity.checks.models.assembly import groups_of, rule_of
from parity.checks.models.followed import FollowedMap
from parity.checks.models.likeness import Alike, gap
from parity.checks.models.mapping import ModelMap
from parity.checks.models.ordered import disorder, pairs_by_use
from parity.checks.models.pieces import ExtentsKey, turns
from parity.checks.models.proposal import Matched
from parity.checks.models.quiet import likely_turn
from parity.checks.models.subjects import Subjects, own_values, values_of
from parity.checks.programs import candidates_of
from parity.errors import SpecError
from parity.mapping import LeafRule

__all__ = ["nearer_rules"]

SECONDS = 6.0
"""Of the processor, after which no exchange is tried any more."""

SEED = 53

MUCH = 0.5
"""Share of the distance to which the order of use must not bring two models where what they do says nothing else."""

NEARER = 0.999
"""Share of the distance below which an exchange has brought two models nearer: less is rounding."""


def nearer_rules(subjects: Subjects, found: ModelMap) -> list[LeafRule] | None:
    """Return a complete map under which two models that part do most alike; None where behaviour left no choice.

    Args:
        subjects: The models.
        found: Their map, of which some rows are not sure.
    """
    matched = found.matched
    if matched is None or found.alone or found.agree or not matched.unsure:
        return None
    try:
        pairs = _nearest_pairs(subjects, _likeliest(subjects, matched))
    except SpecError:  # such values need not be finite
        return None
    rules = []
    for group in groups_of(pairs):
        rule = rule_of(group, subjects.first, subjects.second)
        if rule is None:
            return None
        rules.append(rule)
    return rules


def _likeliest(subjects: Subjects, matched: Matched) -> Matched:
    """Return what was told by the plan of cuts under which the fewest operations part where leaves go by their use.

    Of plans under which as many do it is the one whose pieces are used in the order of their counterparts: what is
    fused is used together. Plans of which behaviour tells less than of another are not looked at.
    """
    most = len(matched.sure) / max(len(matched.first), 1)
    plans = [matched, *(one for one in matched.others if len(one.sure) >= most * len(one.first))]
    if len(plans) == 1:
        return matched
    ranks = []
    for at, one in enumerate(plans):
        followed = FollowedMap(subjects, one, 0.0)
        ranks += [
            (followed.parted(pairs), disorder(subjects, one, pairs), at) for pairs in pairs_by_use(subjects, one)
        ]
    return plans[min(ranks)[2]] if ranks else matched


def _nearest_pairs(subjects: Subjects, matched: Matched) -> list[Alike]:
    """Return pairs of all leaves: by the order of use, or by what behaviour told, with such as it left exchanged."""
    sure, unsure = list(matched.sure), [one for one, _ in matched.unsure]
    followed = FollowedMap(subjects, matched, time.process_time() + SECONDS)
    told = [*sure, *unsure]
    count = followed.parted(told)
    used: list[Alike] | None = None
    least = count + 1
    ways = pairs_by_use(subjects, matched)
    ways = sorted(ways, key=followed.parted) if len(ways) > 2 else ways  # the time may not be enough for all
    for tried in ways:
        pairs, fewer = followed.better(tried)
        if fewer < least:
            used, least = pairs, fewer
    # behind a fault what leaves do tells little, and behind one that moves nothing much it tells all
    if used is not None and (least < count or not (
        _distance(subjects, matched, told) < MUCH * _distance(subjects, matched, used)
    )):  # fmt: skip
        return used
    end = time.process_time() + SECONDS
    best = _measured(subjects, matched, [*sure, *unsure])
    for _ in range(2):  # an exchange may show only after another one
        before = best
        for tried in _exchanged(sure, unsure):
            if time.process_time() > end:
                break
            now = _measured(subjects, matched, [*sure, *tried])
            if _is_nearer(now, best):
                best, unsure[:] = now, tried
        if best == before:
            break
    return [*sure, *unsure]


def _exchanged(sure: Sequence[Alike], unsure: list[Alike]) -> Iterator[list[Alike]]:
    """Yield pairs of which two have their counterparts exchanged, or one its axes, each from what is kept by then."""
    classes: dict[ExtentsKey, list[int]] = defaultdict(list)
    for at, one in enumerate(unsure):
        classes[one.first.key].append(at)
    for places in classes.values():
        for a, b in itertools.combinations(places, 2):
            one, two = unsure[a], unsure[b]
            others = [(p.first, p.second) for p in (*sure, *unsure) if p is not one and p is not two]
            changed = list(unsure)
            for at, first, second in ((a, one.first, two.second), (b, two.first, one.second)):
                turn = likely_turn(first, second, others)
                changed[at] = replace(unsure[at], second=second, axes=turn)
            yield changed
    for at, one in enumerate(list(unsure)):
        for turn in turns(one.first.index.shape, one.second.index.shape):
            now = unsure[at]
            if turn != now.axes and turn in turns(now.first.index.shape, now.second.index.shape):
                yield [replace(now, axes=turn) if place == at else each for place, each in enumerate(unsure)]


def _measured(subjects: Subjects, matched: Matched, pairs: Sequence[Alike]) -> tuple[int, float, int]:
    """Return how many operations part, how far apart outputs and gradients are, and how unlike leaves are ordered."""
    return _parted(subjects, matched, pairs), _distance(subjects, matched, pairs), -_order(subjects, pairs)


def _is_nearer(now: tuple[int, float, int], best: tuple[int, float, int]) -> bool:
    if now[0] != best[0]:
        return now[0] < best[0]
    return now[1] < NEARER * best[1] or (now[1] * NEARER <= best[1] and now[2] < best[2])


def _parted(subjects: Subjects, matched: Matched, pairs: Sequence[Alike]) -> int:
    """Return how many operations of both models make what the other has not; 0 where they are not looked at."""
    own = own_values(sorted(pairs, key=lambda one: (one.first.leaf, one.first.number)), SEED)
    sides = zip(subjects.both, (matched.first, matched.second), own, strict=True)
    traced = [model.trace(values_of(model, pieces, some, SEED), inputs) for (model, inputs), pieces, some in sides]
    programs = [one.operations for one in traced if one is not None]
    if len(programs) != 2:
        return 0
    return sum(len(candidates_of(*both).parted) for both in (programs, programs[::-1]))


def _distance(subjects: Subjects, matched: Matched, pairs: Sequence[Alike]) -> float:
    """Return how far apart all outputs and gradients are, where each pair has values of its own."""
    own = own_values(sorted(pairs, key=lambda one: (one.first.leaf, one.first.number)), SEED)
    made = subjects.evaluate(
        values_of(subjects.first, matched.first, own[0], SEED),
        values_of(subjects.second, matched.second, own[1], SEED),
    )
    left, right = (one.gradients for one in made)
    apart = [gap(one, two) for one, two in zip(made[0].outputs, made[1].outputs, strict=True)]
    for one in pairs:
        if one.first.leaf in left and one.second.leaf in right:
            mine, theirs = one.first.of(left[one.first.leaf]), one.second.of(right[one.second.leaf])
            apart.append(gap(mine.transpose(one.axes), theirs))
    return float(np.sum(apart))


def _order(subjects: Subjects, pairs: Sequence[Alike]) -> int:
    """Return how alike leaves of one module are ordered: of each number of axes as of the others, or turned about."""
    places = [{leaf: at for at, leaf in enumerate(model.leaves)} for model, _ in subjects.both]
    turned: dict[tuple[str, str], int] = defaultdict(int)
    for one, two in itertools.combinations(pairs, 2):
        homes = {(each.first.leaf.rpartition(".")[0], each.second.leaf.rpartition(".")[0]) for each in (one, two)}
        if len(homes) == 1 and one.first.index.ndim == two.first.index.ndim:
            first = places[0][one.first.leaf] - places[0][two.first.leaf]
            second = places[1][one.second.leaf] - places[1][two.second.leaf]
            turned[homes.pop()] += int(np.sign(first * second))
    return sum(map(abs, turned.values()))
