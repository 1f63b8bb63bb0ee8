"""What two forms of moves differ in: the direction, epsilon, a trust ratio, bias correction, and decay.

Each run's form makes all of its own updates; rates and decays of one update are compared with those of the same update
of the other. A factor that is one number says nothing here: that is a rate, which the moves themselves tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_forms import MoveForm, entering_form, move_form
from parity.checks.proving.slots import names_of
from parity.checks.proving.trust_forms import trust_cause, trust_form
from parity.checks.proving.walk import TwoWalks

__all__ = ["move_forms_cause"]

SAME = 1e-6
"""Relative distance of two numbers that are one."""

SEEN = 1e-3
"""Relative distance of two epsilons that are told apart: their own rounding is larger than that of rates."""

Rates = Mapping[int, Mapping[str, float]]


def move_forms_cause(walk: TwoWalks) -> str:
    """Return what the moves of two runs differ in; empty where one form of each is not known, or nothing known does.

    Args:
        walk: Two trainers after some updates.
    """
    one, two = move_form(walk, 0), move_form(walk, 1)
    if one is None or two is None:
        return ""
    if one.top and two.top and not (one.under or two.under or one.mixed or two.mixed):
        inner = entering_form(walk, 0, one.top), entering_form(walk, 1, two.top)
        if inner[0] is not None and inner[1] is not None and (inner[0].under or inner[1].under):
            cause = _direction_cause(*inner) or _epsilon_cause(walk, *inner)
            if cause:
                return cause
    if cause := _direction_cause(one, two) or trust_cause(trust_form(one), trust_form(two)):
        return cause
    ratios = _ratios(walk, one, two)
    return (
        _correction_cause(walk, one, two, ratios) or _epsilon_cause(walk, one, two) or _decay_cause(walk, one, two)
    )


def _direction_cause(one: MoveForm, two: MoveForm) -> str:
    """Return that two move by other things: by signs, ahead of a momentum, or divided by another root."""
    if one.signed != two.signed:
        who, other = ("the trainer", "the port") if one.signed else ("the port", "the trainer")
        return f"sign: {who} moves by the signs of what {other} moves by, all elements alike"
    ups = [_kept_up(form) for form in (one, two)]
    if (ups[0] is None) != (ups[1] is None):
        who, other, up = ("the port", "the trainer", ups[1]) if ups[0] is None else ("the trainer", "the port", ups[0])
        return (
            f"SAM: the step of {who} is taken from the ascended point, {up:.6g} up the gradient, which it does not take "
            f"back; {other} steps from the parameters"
        )
    if any(one.rate * one.ahead < 0.0 for form in (one, two) for at, each in form.moves.items() if at > 1
           for one in each.values()):  # fmt: skip
        return ""  # nothing moves ahead of a momentum by going back
    if bool(one.under) == bool(two.under) and one.mixed != two.mixed:
        who, other = ("the trainer", "the port") if one.mixed else ("the port", "the trainer")
        return f"Nesterov: {who} moves ahead of its momentum, {other} by its momentum alone"
    if one.mixed and two.mixed and bool(one.under) == bool(two.under):
        aheads = [_one_number(form, lambda leaf: leaf.ahead) for form in (one, two)]
        for at in sorted(aheads[0].keys() & aheads[1].keys()):
            a, b = aheads[0][at], aheads[1][at]
            if at > 1 and a is not None and b is not None and abs(a - b) > SAME * max(abs(a), abs(b)):
                return (
                    f"Nesterov: at update {at} the moment has {a:.4g} times as much of the gradient added here, "
                    f"{b:.4g} times there"
                )
    if one.under and two.under and bool(one.mean) != bool(two.mean):
        who, mean = ("the trainer", one.mean) if one.mean else ("the port", two.mean)
        return f"second moment: {who} takes the square of {mean} from it (centred), the other does not"
    if one.under and two.under and one.place != two.place and "whole" not in (one.place, two.place):
        words = ("under the root", "beside it") if one.place == "under" else ("beside the root", "under it")
        return f"epsilon of the optimizer: {words[0]} of the second moment here, {words[1]} there"
    return ""


def _kept_up(form: MoveForm) -> float | None:
    """Return the length by which the parameters are moved up the gradient beside each update; None where not."""
    if not form.mixed or form.under:
        return None
    ups = {str(at): -one.rate * one.ahead * form.gradients[at]
           for at, leaves in form.moves.items() if at > 1 for one in leaves.values()}  # fmt: skip
    length = one_value(ups, SAME)
    return length if length is not None and length > 0.0 and len(form.moves) > 2 else None


def _one_number(form: MoveForm, of: Callable) -> dict[int, float | None]:  # type: ignore[type-arg]
    return {at: one_value({leaf: of(one) for leaf, one in leaves.items()}, 1e-5) for at, leaves in form.moves.items()}


def _by_leaf(walk: TwoWalks, form: MoveForm, at: int, of: Callable, second: bool) -> dict[str, float]:  # type: ignore[type-arg]
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


def _ratios(walk: TwoWalks, one: MoveForm, two: MoveForm) -> Rates:
    """Return update to leaf of the second to the port's rate over the trainer's."""
    found = {}
    for at in sorted(one.moves.keys() & two.moves.keys()):
        here, there = (_by_leaf(walk, form, at, lambda leaf: leaf.rate, form is two) for form in (one, two))
        found[at] = {leaf: there[leaf] / rate for leaf, rate in here.items() if rate and leaf in there}
    return found


def _correction_cause(walk: TwoWalks, one: MoveForm, two: MoveForm, ratios: Rates) -> str:
    """Return that the rates of one are those of the other times a factor that only a bias correction has."""
    factors = {at: one_value(each, SAME) for at, each in ratios.items() if each}
    if len(factors) < 2 or None in factors.values():
        return ""
    if one_value({str(at): factor for at, factor in factors.items()} | {"": 1.0}, SAME) is not None:  # type: ignore[dict-item]
        return ""
    found = set()
    for at, form, who, other, power in ((1, two, "the port", "the trainer", 1),
                                        (0, one, "the trainer", "the port", -1)):  # fmt: skip
        lane = walk.lanes[at]
        for words, factor in _corrections(lane, form, list(factors)).items():
            if all(abs(factor[at] ** power - value) <= SAME * abs(value) for at, value in factors.items()):  # type: ignore[operator,arg-type]
                found.add(f"bias correction: {words.format(who=who, other=other, times=factors[min(factors)])}")
    # with two updates alone two ways may give the same: then neither is said
    return found.pop() if len(found) == 1 else ""


def _corrections(lane: Lane, form: MoveForm, updates: list[int]) -> dict[str, dict[int, float]]:
    """Return words of an error of bias correction to the factor of each update."""
    firsts = _betas(lane, form.top, 1, updates) if form.top else None
    seconds = _betas(lane, form.under, 2, updates) if form.under else None
    made: dict[str, dict[int, float]] = {}
    one, two = ({at: 1.0 - _power(each, at) for at in (*updates, updates[-1] + 1)} if each else None
                for each in (firsts, seconds))  # fmt: skip
    shown = [f"beta {each[max(each)]:.6g}" if each else "" for each in (firsts, seconds)]
    if one:
        made[f"{{who}} does not correct its first moment ({{times:.6g}} times, {shown[0]})"] = one
    if two:
        made["{other} divides the second moment by one less its decay, the other does not"] = {
            at: value**-0.5 for at, value in two.items()
        }
    if one and two:
        made[f"{{who}} does not correct its moments ({{times:.6g}} times, {' and '.join(shown)})"] = {
            at: one[at] / two[at] ** 0.5 for at in one
        }
    steady = [each is None or one_value({str(at): beta for at, beta in each.items()}, SAME) is not None
              for each in (firsts, seconds)]  # fmt: skip
    if all(steady) and one and two:
        made["{who} counts one update more than {other} in it"] = {
            at: (two[at + 1] / two[at]) ** 0.5 * one[at] / one[at + 1] for at in updates if at + 1 in one
        }
    elif all(steady) and one:
        made["{who} counts one update more than {other} in it"] = {
            at: one[at] / one[at + 1] for at in updates if at + 1 in one
        }
    if firsts and not steady[0] and min(updates) == 1:
        made["{who} divides by one less the product of the betas of all updates, {other} by one less the power of the "
             "last (a beta that moves, as under OneCycle)"] = {
            at: (1.0 - firsts[at] ** at) / (1.0 - float(np.prod([firsts[n] for n in range(1, at + 1)])))
            for at in updates
        }  # fmt: skip
    return {words: each for words, each in made.items() if set(updates) <= each.keys() or set(updates) == {*each}}


def _power(betas: Mapping[int, float], at: int) -> float:
    """Return a beta to the power of the update."""
    return betas.get(at, betas[max(betas)]) ** at


def _betas(lane: Lane, slot: str, power: int, updates: list[int]) -> dict[int, float] | None:
    """Return what a moment keeps of itself at each update; None where it is no mean of gradients or their squares."""
    found: dict[int, float] = {}
    for at in updates:
        if at == 1:
            continue
        shares = shares_of(lane, slot, at, power=power)
        if shares is None or not 0.0 < shares.kept < 1.0:
            return None
        found[at] = float(f"{shares.kept:.9g}")
    if not found:
        return None
    if 1 in updates:  # at the first update it keeps nothing; what it takes tells its beta
        first = _first_beta(lane, slot, power)
        found[1] = found[min(found)] if first is None else first
    return found


def _first_beta(lane: Lane, slot: str, power: int) -> float | None:
    held, gradient = lane.moments[1].slots.get(slot, {}), lane.gradients.get(0, {})
    leaves = [leaf for leaf in held if leaf in gradient]
    if not leaves:
        return None
    m = np.concatenate([held[leaf].ravel() for leaf in leaves])
    g = np.concatenate([gradient[leaf].ravel() ** power for leaf in leaves])
    part = float(g @ m) / max(float(g @ g), 1e-300)
    fits = float(np.abs(m - part * g).max()) <= 1e-7 * float(np.abs(m).max(initial=0.0))
    return float(f"{1.0 - part:.9g}") if fits and 0.0 < part < 1.0 else None


def _epsilon_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return that two divide by the same root and other epsilons, which differ at every update."""
    if not (one.under and two.under and one.place == two.place) or one.place == "whole":
        return ""
    updates = sorted(one.epsilons.keys() & two.epsilons.keys())
    pairs = [(one.epsilons[at], two.epsilons[at]) for at in updates]
    if any(max(pair) <= 0.0 or abs(pair[0] - pair[1]) <= SEEN * max(pair) for pair in pairs):
        return ""
    if not _told(one, two):
        return ""
    under = one.place == "under"
    seconds = [_betas(lane, form.under, 2, updates) for lane, form in zip(walk.lanes, (one, two), strict=False)]
    where = "under" if under else "beside"
    if seconds[0] and seconds[1] and not under:
        roots = [{at: (1.0 - _power(each, at)) ** 0.5 for at in updates} for each in seconds if each]
        sizes = [[form.epsilons[at] / root[at] for at in updates]
                 for form, root in zip((one, two), roots, strict=True)]  # fmt: skip
        plain = [[form.epsilons[at] for at in updates] for form in (one, two)]
        steady = [[_steady(values) for values in both] for both in (sizes, plain)]
        if all(steady[0]):
            return (
                f"epsilon of the optimizer: {sizes[0][0]:.4g} here, {sizes[1][0]:.4g} there, beside the root of the "
                f"second moment"
            )
        if steady[0][0] != steady[0][1] and steady[1][0] != steady[1][1]:
            who, other = ("the port", "the trainer") if steady[1][1] else ("the trainer", "the port")
            shown = [f"{(size if fits else raw)[0]:.4g}" for size, raw, fits in zip(sizes, plain, steady[0],
                     strict=True)]  # fmt: skip
            return (
                f"epsilon of the optimizer: {who} adds it to the second moment as it is, {other} to the "
                f"corrected one ({shown[0]} here, {shown[1]} there)"
            )
    return (
        f"epsilon of the optimizer: {pairs[0][0]:.4g} here, {pairs[0][1]:.4g} there at update {updates[0]}, {where} "
        "the root of the second moment"
    )


def _told(one: MoveForm, two: MoveForm) -> bool:
    """Return whether epsilons of this size show in the moves at all, beside the roots they are added to."""
    return max(*one.seen.values(), *two.seen.values()) > 1e-9


def _steady(values: list[float]) -> bool:
    return max(values) - min(values) <= SEEN * max(values)


def _decay_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return what decays beside the optimizer's step differ in, beyond their strength."""
    updates = sorted(one.moves.keys() & two.moves.keys())
    decays = {at: [_by_leaf(walk, form, at, lambda leaf: leaf.decay, form is two) for form in (one, two)]
              for at in updates}  # fmt: skip
    rates = _ratios(walk, one, two)
    leaves = [leaf for leaf in decays[updates[0]][0] if all(leaf in each for at in updates for each in decays[at])]
    if not leaves:
        return ""
    on = [{leaf for leaf in leaves if all(decays[at][side][leaf] for at in updates)} for side in (0, 1)]
    if on[0] != on[1]:
        return _places(decays[updates[0]], on, leaves)
    if not on[0]:
        return ""
    ratios = {at: one_value({leaf: decays[at][1][leaf] / decays[at][0][leaf] for leaf in on[0]}, 1e-4)
              for at in updates}  # fmt: skip
    if None in ratios.values():
        return ""
    if all(abs(ratio - 1.0) <= 1e-5 for ratio in ratios.values()):  # type: ignore[operator]
        return _after(rates, decays, on[0])
    same = all(abs(value - 1.0) <= SAME for each in rates.values() for value in each.values())
    each = [[decays[at][side][min(on[0])] for at in updates] for side in (0, 1)]
    steady = [max(values) - min(values) <= 1e-4 * max(values) for values in each]
    if same and steady[0] != steady[1]:
        who, other = ("the port", "the trainer") if steady[1] else ("the trainer", "the port")
        shown = [", ".join(f"{value:.4g}" for value in values) for values in each]
        return (
            f"weight decay: {who} takes the same share of the parameters at each update, {other} one that moves with "
            f"its rate (schedule): {shown[0]} here, {shown[1]} there"
        )
    return _unscaled(walk, one, ratios) if same else ""


def _unscaled(walk: TwoWalks, one: MoveForm, ratios: Mapping[int, float | None]) -> str:
    """Return that one decays by as much more as the other's rate is below 1: it does not multiply by the rate."""
    rates = _own_rates(walk.lanes[0], one)
    for who, other, power in (("the port", "the trainer", 1), ("the trainer", "the port", -1)):
        known = [(ratio**power, rates[at]) for at, ratio in ratios.items() if ratio and rates.get(at)]
        if len(known) > 1 and all(abs(ratio * rate - 1.0) <= 1e-4 for ratio, rate in known):
            return (
                f"weight decay: {who}'s is {known[0][0]:.6g} times {other}'s, one over the rate: {other} multiplies it by "
                f"the rate ({known[0][1]:.6g}), {who} does not"
            )
    return ""


def _own_rates(lane: Lane, form: MoveForm) -> dict[int, float]:
    """Return the rate of each update, bias corrections taken out, where it is one number at all of them."""
    updates = sorted(form.moves)
    ones = _betas(lane, form.top, 1, updates) if form.top and form.under else None
    twos = _betas(lane, form.under, 2, updates) if form.under else None
    plain = {at: one_value({leaf: one.rate for leaf, one in form.moves[at].items()}, SAME) for at in updates}
    if None in plain.values():
        return {}
    for first, second in ((None, None), (ones, twos)):
        found = {at: float(plain[at] or 0.0) * (1 - _power(first, at) if first else 1.0)
                 / ((1 - _power(second, at)) ** 0.5 if second else 1.0) for at in updates}  # fmt: skip
        if one_value({str(at): rate for at, rate in found.items()}, SAME) is not None:
            return found
    return {}


def _places(decays: list[dict[str, float]], on: list[set[str]], leaves: list[str]) -> str:
    """Return that one decays more leaves than the other, by the share that it has elsewhere."""
    both = on[0] & on[1]
    more = on[1] - on[0] or on[0] - on[1]
    side = 1 if on[1] - on[0] else 0
    if both and any(abs(decays[0][leaf] - decays[1][leaf]) > 1e-5 * decays[0][leaf] for leaf in both):
        return ""
    share = one_value({leaf: decays[side][leaf] for leaf in more | both}, 1e-5)
    if not both or share is None or on[1 - side] - on[side]:
        return ""
    return (
        f"weight decay: on other leaves: {('the trainer', 'the port')[side]} takes {share:.4g} of "
        f"{names_of(sorted(more))} at an update, the other nothing of {'it' if len(more) == 1 else 'them'}"
    )


def _after(rates: Rates, decays: Mapping[int, list[dict[str, float]]], leaves: set[str]) -> str:
    """Return that one shrinks the parameters after the step, which is then smaller by as much."""
    for who, other, power in (("the port", "the trainer", 1), ("the trainer", "the port", -1)):
        known = [(each[leaf] ** power, decays[at][0][leaf]) for at, each in rates.items() for leaf in leaves
                 if leaf in each]  # fmt: skip
        if known and all(abs(ratio - (1.0 - decay)) <= 1e-4 * decay for ratio, decay in known):
            return f"weight decay: {who} takes it off after the step, {other} of the parameters before it"
    return ""
