"""Why an update, or that of single leaves, is a multiple of the other: rates, their groups, bias correction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from parity.checks.proving.averages import averages_in
from parity.checks.proving.effective import fitted, one_value
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.rate_series import schedules_of
from parity.checks.proving.schedule_forms import is_shifted, later_rates, rates_of
from parity.checks.proving.slots import LeafArrays, names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["FEW", "rate_cause"]

FIT = 1e-6
"""How far a difference may be from what a cause gives, relative to its largest element."""

PRINTED = 1e-6
"""Relative distance within which two rates print as one."""

FEW = 3
"""Elements below which a leaf by itself shows no multiple of anything."""


def rate_cause(walk: TwoWalks, moves: Sequence[LeafArrays]) -> str:
    """Return that all of one update is a multiple of the other."""
    factors = {}
    largest = max(float(np.abs(one).max(initial=0.0)) for one in moves[0].values())
    for leaf, one in moves[0].items():
        a, b = one.ravel(), moves[1][leaf].ravel()
        square = float(a @ a)
        if float(np.abs(a).max(initial=0.0)) <= 1e-6 * largest:
            continue
        factor = float(a @ b) / square
        # a parameter is rounded at its own size, which bounds what its move can show
        if float(np.abs(b - factor * a).max(initial=0.0)) > FIT * float(np.abs(a).max(initial=0.0)):
            return ""
        factors[leaf] = factor
    shared = one_value(factors, 1e-6)
    if shared is None:
        return _group_cause(walk, moves, factors)
    if abs(shared - 1.0) <= PRINTED or sum(moves[0][leaf].size for leaf in factors) < FEW:
        return ""  # two figures that print as one tell nothing
    factor = shared
    done = walk.done
    if no_correction := _correction(walk, factor):
        return no_correction
    rates = rates_of(walk)
    if rates:
        used = rates.get(done - 1)
        for other, words in ((done - 2, "the rate of the update before"), (done, "the rate of the update after")):
            # a schedule that is off by a step has parted where its rates first moved
            moved = [at for at in rates if at < done - 1 and rates.get(at + other - done + 1, rates[at]) != rates[at]]
            if moved or not used or other not in rates:
                continue
            if abs(factor * used - rates[other]) <= 1e-6 * abs(rates[other]) != 0.0 and is_shifted(
                walk, other - done + 1
            ):
                return (
                    f"schedule: off by one step: update {done} of the port uses {words} "
                    f"({rates[other]:.6g}, not {used:.6g})"
                )
        if used:
            shown = f"{factor * used:.6g} there, {used:.6g} here"
            when = f"schedule: the rates part at update {done}" if done > 1 else "learning rate of the first update"
            return f"{when}: {shown} ({factor:.6g} times){later_rates(walk)}{_schedules(walk)}"
    when = (
        f"schedule: the rates part at update {done}" if done > 1 else "learning rate of the first update (schedule)"
    )
    return f"{when}: the port's update is {factor:.6g} times the trainer's{_schedules(walk)}"


def _schedules(walk: TwoWalks) -> str:
    """Return in what schedules of known families differ, as the end of a sentence."""
    said = schedules_of(walk)
    return f": {said}" if said else ""


def _group_cause(walk: TwoWalks, moves: Sequence[LeafArrays], factors: Mapping[str, float]) -> str:
    """Return that single leaves move by other rates, where the optimizers hold the same.

    Args:
        walk: Two trainers, equal before the update.
        moves: Of the trainer and of the port, by leaf.
        factors: Of each leaf, by which the port's move is the trainer's.
    """
    if walk.suspects.keys() - averages_in(walk.lanes[0]):
        return ""  # what differs in the moments shows in the moves; an average follows them
    held = [dict(walk.lanes[0].moments[walk.done].slots[slot]) for slot in walk.matched if slot != MODEL]
    # no rate moves a leaf whose moments are zero, as behind a layer that begins at zero: a decay does
    known = {leaf for one in held for leaf, moment in walk.pairing.over(one).items() if np.any(moment)}
    several = {leaf: factor for leaf, factor in factors.items() if moves[0][leaf].size >= FEW and leaf in known}
    other = {leaf: factor for leaf, factor in several.items() if abs(factor - 1.0) > PRINTED}
    kinds: list[float] = []
    for factor in other.values():
        if not any(abs(factor - kind) <= PRINTED * abs(kind) for kind in kinds):
            kinds.append(factor)
    # one factor for a group; as many factors as leaves are of another kind, such as a norm of each
    if not other or len(kinds) > 2 or (len(kinds) > 1 and len(kinds) == len(several)):
        return ""
    shown = ", ".join(
        f"{names_of([leaf for leaf in other if abs(other[leaf] - kind) <= PRINTED * abs(kind)])} by {kind:.6g} times"
        for kind in kinds
    )
    when = "of the first update" if walk.done == 1 else f"of update {walk.done}"
    scale = "" if len(other) > len(kinds) else " (or a scale of that leaf, such as a trust ratio)"
    return f"learning rate {when}, of groups: the port moves {shown} what the trainer does, from equal moments{scale}"


def _correction(walk: TwoWalks, factor: float) -> str:
    """Return that one does not correct the bias of its moments, told by the size of its first updates.

    The betas are those by which the moments of both move. The factor of one update may be that of two rates: the
    second update, of each by its own moments, tells them apart.
    """
    if walk.done != 1:
        return ""
    kept = [_kept_shares(lane) for lane in walk.lanes[:2]]
    firsts, seconds = kept[0][0] & kept[1][0], kept[0][1] & kept[1][1]
    ways: list[tuple[str, float | None, float | None]] = [("moments", one, two) for one in firsts for two in seconds]
    ways += [("first moment", one, None) for one in firsts] + [("second moment", None, two) for two in seconds]
    grown: float | None = None
    for words, one, two in ways:
        sizes = [(1 - one**at if one else 1.0) / (np.sqrt(1 - two**at) if two else 1.0) for at in (1, 2)]
        for who, power in (("the port", 1), ("the trainer", -1)):
            value, later = (size**power for size in sizes)
            if abs(factor - value) > 1e-4 * value:
                continue
            grown = grown or _growth(walk)
            if grown is None or abs(grown - later / value) <= 1e-4 * abs(grown):
                betas = " and ".join(f"{beta}" for beta in (one, two) if beta)
                return (
                    f"bias correction: {who} does not correct its {words} ({factor:.6g} times, "
                    f"beta{'s' if one and two else ''} {betas})"
                )
    return ""


def _growth(walk: TwoWalks) -> float | None:
    """Return the scale of the port's second move over that of its first, relative to the trainer's; None if unseen.

    A move is a scale times the first moment, divided by a slot or by its root where that fits, and some of the
    parameters: the scale holds the rate and the corrections alone.
    """
    growths = []
    for lane in walk.lanes[:2]:
        if len(lane.moments) < 3:
            return None
        slots = [slot for slot in lane.moments[1].slots if slot != MODEL]
        ways = [(first, under, power) for first in slots for under in (None, *slots) for power in (0.5, 1.0)]
        sizes = ([_scale_of(lane, at, *way) for at in (1, 2)] for way in ways)
        found = next((two for two in sizes if two[0] and two[1]), None)
        if found is None:
            return None
        growths.append(found[1] / found[0])  # type: ignore[operator]
    return growths[1] / growths[0] if growths[0] else None


def _scale_of(lane: Lane, at: int, first: str, under: str | None, power: float) -> float | None:
    """Return of how much of a moment, over a power of another, a move is made that also holds some parameters."""
    before, now = lane.moments[at - 1].slots[MODEL], lane.moments[at].slots
    slots = [now.get(first, {}), now.get(under, {}) if under else now.get(first, {})]
    leaves = [leaf for leaf in before if all(leaf in one for one in slots) and leaf in now[MODEL]]
    if first == under or sum(before[leaf].size for leaf in leaves) < 2 * FEW:
        return None
    m, v, p, q = (np.concatenate([one[leaf].ravel() for leaf in leaves]) for one in (*slots, before, now[MODEL]))
    if under and not (v > 0.0).all():
        return None
    parts = fitted([m / v**power if under else m, p], q - p, 1e-5)
    return None if parts is None else parts[0]


def _kept_shares(lane: Lane) -> tuple[set[float], set[float]]:
    """Return what slots keep of themselves that take the gradient, and its square, to six digits."""
    found: tuple[set[float], set[float]] = (set(), set())
    for slot in lane.moments[1].slots:
        for power, kept in enumerate(found, 1):
            shares = None if slot == MODEL else shares_of(lane, slot, 2, power=power)
            if shares is None or shares.taken <= 0.0:
                continue
            share = float(f"{shares.kept:.6g}")
            if 0.0 < share < 1.0:  # one that keeps all of itself to so many digits is no average with a beta
                kept.add(share)
    return found
