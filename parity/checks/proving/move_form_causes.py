"""What two forms of moves differ in: the direction, epsilon, a trust ratio, bias correction, and decay.

Each run's form makes all of its own updates; rates and decays of one update are compared with those of the same
update of the other. A factor that is one number says nothing here: that is a rate, which the moves themselves tell.
"""

from __future__ import annotations

from collections.abc import Callable

from parity.checks.proving.aheads import taken_share, unused_momentum_cause
from parity.checks.proving.bias_forms import betas_of, corrections, power_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.groups import of_group, parted_group
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.move_decays import beside_decay_cause
from parity.checks.proving.move_forms import MoveForm, entering_form, move_form
from parity.checks.proving.move_ratios import SAME, Rates, ratios_of
from parity.checks.proving.nadam_forms import nadam_cause
from parity.checks.proving.schedule_forms import moving_momentum
from parity.checks.proving.slot_causes import largest_slot
from parity.checks.proving.slots import names_of
from parity.checks.proving.trust_forms import trust_cause, trust_form
from parity.checks.proving.walk import TwoWalks

__all__ = ["kept_ascent_cause", "move_forms_cause"]

SEEN = 1e-3
"""Relative distance of two epsilons that are told apart: their own rounding is larger than that of rates."""


def move_forms_cause(walk: TwoWalks) -> str:
    """Return what the moves of two runs differ in; empty where one form of each is not known, or nothing known does.

    Args:
        walk: Two trainers after some updates.
    """
    if cause := _of_forms(walk, move_form(walk, 0), move_form(walk, 1)):
        return cause
    return _group_forms_cause(walk)


def _group_forms_cause(walk: TwoWalks) -> str:
    """Return what the moves of those leaves differ in that part: the others may be moved by another rule."""
    group = None if walk.suspects else parted_group(walk)
    one, two = (None, None) if group is None else (move_form(group, 0), move_form(group, 1))
    cause = "" if one is None or two is None else _direction_cause(walk, one, two)
    return f"{cause}{of_group(walk)}" if cause else ""


def _of_forms(walk: TwoWalks, one: MoveForm | None, two: MoveForm | None) -> str:
    """Return what two forms differ in; empty where one of them is not known, or nothing known does."""
    if one is None or two is None:
        return ""
    if one.top and two.top and not (one.under or two.under or one.mixed or two.mixed):
        first, second = entering_form(walk, 0, one.top), entering_form(walk, 1, two.top)
        if first is not None and second is not None and (first.under or second.under):
            cause = _direction_cause(walk, first, second) or _epsilon_cause(walk, first, second)
            if cause:
                return cause
    trusts = trust_form(one), trust_form(two)
    if cause := _direction_cause(walk, one, two) or trust_cause(*trusts, walk.pairing.names()):
        return cause
    ratios = ratios_of(walk, one, two)
    if all(trust is not None and trust.kind == "leaf" for trust in trusts):
        # a ratio of norms takes any factor out: what is left of it is in how much decay there is beside the direction
        shares = [trust.shares for trust in trusts if trust is not None]
        ratios = {at: {"": shares[0][at] / shares[1][at]} for at in ratios
                  if shares[0].get(at) and shares[1].get(at)}  # fmt: skip
    equal = all(abs(value - 1.0) <= SAME for each in ratios.values() for value in each.values())
    return (
        _correction_cause(walk, one, two, ratios) or (_epsilon_cause(walk, one, two) if equal else "")
        or beside_decay_cause(walk, one, two) or _scaled_cause(one, two, ratios) or _groups_cause(ratios, walk.done)
    )  # fmt: skip


def kept_ascent_cause(walk: TwoWalks) -> str:
    """Return that one run does not take back what it went up the gradient; empty where both do, or it is not seen.

    Args:
        walk: Two trainers after some updates, its gradients those at the parameters themselves.
    """
    one, two = move_form(walk, 0), move_form(walk, 1)
    return "" if one is None or two is None else _kept_up_cause(one, two)


def _scaled_cause(one: MoveForm, two: MoveForm, ratios: Rates) -> str:
    """Return that one moves by a multiple of the gradient alone, its decay alike: no rate does that."""
    factors = {str(at): one_value(each, SAME) for at, each in ratios.items() if each}
    if len(factors) < 2 or None in factors.values():
        return ""
    factor = one_value(factors, SAME)  # type: ignore[arg-type]
    decays = [{one.decay for leaves in form.moves.values() for one in leaves.values()} for form in (one, two)]
    if factor is None or abs(factor - 1.0) <= SAME or one.top or one.under or two.top or two.under:
        return ""
    values = [one_value({str(at): decay for at, decay in enumerate(each)}, 1e-5) for each in decays]
    if values[0] and values[1] and abs(values[0] - values[1]) <= 1e-5 * values[0]:
        return (
            f"accumulation: the port moves by {factor:.6g} times as much of the gradient, its decay is alike: the "
            "gradients are scaled, and not the rate"
        )
    return ""


def _groups_cause(ratios: Rates, done: int) -> str:
    """Return that single leaves move at other rates, by the same factors at every update.

    Args:
        ratios: Of the updates that are looked at; before the first that parts all are one.
        done: The first update after which something parts.
    """
    first = ratios[min(ratios)] if ratios else {}
    other = {leaf: factor for leaf, factor in first.items() if abs(factor - 1.0) > SAME}
    kinds: list[float] = []
    for factor in other.values():
        if not any(abs(factor - kind) <= SAME * abs(kind) for kind in kinds):
            kinds.append(factor)
    if not other or len(kinds) > 2 or len(other) == len(first) == len(kinds) or len(ratios) < 2:
        return ""
    if len(other) == len(first) and len(kinds) == 1:
        return ""  # one rate for all
    for each in ratios.values():
        if each.keys() != first.keys() or any(
            abs(each[leaf] - first[leaf]) > SAME * abs(first[leaf]) for leaf in first
        ):
            return ""
    shown = ", ".join(
        f"{names_of([leaf for leaf in other if abs(other[leaf] - kind) <= SAME * abs(kind)])} by {kind:.6g} times"
        for kind in kinds
    )
    when = "of the first update" if done == 1 else f"of update {done}"
    return f"learning rate {when}, of groups: the port moves {shown} what the trainer does"


def _unused_largest_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return that both keep the largest second moment so far and one alone divides by it."""
    sides = [largest_slot(walk, at) for at in (0, 1)]
    if not (sides[0] and sides[1]):
        return ""
    by_largest = [form.under == side[0] for form, side in zip((one, two), sides, strict=True) if side]
    by_second = [form.under == side[1] for form, side in zip((one, two), sides, strict=True) if side]
    if by_largest == [True, False] == [not kept for kept in by_second]:
        who, other, slot = "the trainer", "the port", sides[0][0]
    elif by_largest == [False, True] == [not kept for kept in by_second]:
        who, other, slot = "the port", "the trainer", sides[1][0]
    else:
        return ""
    return f"AMSGrad: {who} divides by {slot}, the largest second moment so far; {other} keeps it, unused"


def _direction_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return that two move by other things: by signs, ahead of a momentum, or divided by another root."""
    if one.signed != two.signed:
        who, other = ("the trainer", "the port") if one.signed else ("the port", "the trainer")
        return f"sign: {who} moves by the signs of what {other} moves by, all elements alike"
    if cause := _kept_up_cause(one, two) or _unused_largest_cause(walk, one, two):
        return cause
    if bool(one.under) == bool(two.under) and (cause := _nesterov_cause(walk, one, two)):
        return cause
    if cause := _momentum_alone_cause(walk, one, two):
        return cause
    if one.under and two.under and bool(one.mean) != bool(two.mean):
        who, mean = ("the trainer", one.mean) if one.mean else ("the port", two.mean)
        return f"second moment: {who} takes the square of {mean} from it (centred), the other does not"
    if one.under and two.under and one.place != two.place and "whole" not in (one.place, two.place):
        words = ("under the root", "beside it") if one.place == "under" else ("beside the root", "under it")
        return f"epsilon of the optimizer: {words[0]} of the second moment here, {words[1]} there"
    return ""


def _momentum_alone_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return that one moves by a momentum, the other by what enters a momentum alone."""
    for at, form, other, who, whose in ((0, one, two, "the trainer", "the port"),
                                        (1, two, one, "the port", "the trainer")):  # fmt: skip
        if not form.top or form.under or form.mixed or other.top:
            continue
        entering = entering_form(walk, at, form.top)
        if entering is None or entering.top or bool(entering.under) != bool(other.under):
            continue
        shares = {f"{n} {leaf}": made.decay for n, leaves in entering.moves.items() for leaf, made in leaves.items()
                  if n > 1}  # fmt: skip
        share = one_value(shares, 1e-5)
        kept = f", which keeps {share:.6g} of itself" if share else ""
        return f"momentum: {who} moves by {form.top}{kept}; {whose} by what enters it alone, without a momentum"
    return ""


def _kept_up_cause(one: MoveForm, two: MoveForm) -> str:
    """Return that one goes on from the point up the gradient at which the other only takes its own."""
    ups = [_kept_up(form) for form in (one, two)]
    if (ups[0] is None) != (ups[1] is None):
        who, other, up = (
            ("the port", "the trainer", ups[1]) if ups[0] is None else ("the trainer", "the port", ups[0])
        )
        return (
            f"SAM: the step of {who} is taken from the ascended point, {up:.6g} up the gradient, which it does not "
            f"take back; {other} steps from the parameters"
        )
    return ""


def _nesterov_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return that one moves ahead of its momentum and the other not, or by another share of it."""
    aheads = [_one_number(form, lambda leaf: leaf.ahead) for form in (one, two)]
    # the gradient is added to a momentum, the momentum before taken from it: all else is no such step
    signs = {"gradient": 1.0, "before": -1.0, "": 0.0}
    for form, ahead in zip((one, two), aheads, strict=True):
        if form.mixed and max(ahead, default=0) < 2:
            return ""
        if any(at > 1 and (share is None or share * signs[form.mixed] < 0.0) for at, share in ahead.items()):
            return ""
    if bool(one.mixed) != bool(two.mixed):
        who, other = ("the trainer", "the port") if one.mixed else ("the port", "the trainer")
        lane, form = (0, one) if one.mixed else (1, two)
        share = one_value({str(at): share for at, share in aheads[lane].items() if at > 1 and share}, 1e-5)
        if form.mixed == "before" and share is not None:
            unused = unused_momentum_cause(walk, lane, form.top, share)
            if unused is not None:
                return unused
        return f"Nesterov: {who} moves ahead of its momentum, {other} by its momentum alone"
    if not one.mixed or one.mixed != two.mixed:
        return ""
    for at in sorted(aheads[0].keys() & aheads[1].keys()):
        a, b = aheads[0][at], aheads[1][at]
        if at < 2 or a is None or b is None or abs(a - b) <= SAME * max(abs(a), abs(b)):
            continue
        takes = [taken_share(lane, form.top, at) for lane, form in zip(walk.lanes, (one, two), strict=False)]
        if (
            one.mixed == "gradient"
            and takes[0]
            and takes[1]
            and abs(a / takes[0] - b / takes[1]) <= 10 * SAME * abs(a / takes[0])
        ):
            continue  # the gradients are clipped by other factors, what is added of them is alike
        kept = [shares_of(lane, form.top, 2) for lane, form in zip(walk.lanes, (one, two), strict=False)]
        if kept[0] is not None and kept[1] is not None and abs(kept[0].kept - kept[1].kept) > SAME:
            if cause := moving_momentum(walk, one.top, two.top):
                return cause
            return f"momentum: it keeps {kept[0].kept:.6g} of itself here, {kept[1].kept:.6g} there (Nesterov)"
        if one.mixed == "gradient":
            beta, rest = one_value({str(n): each.kept for n, each in enumerate(kept) if each}, SAME), aheads[:2]
            numbers = [{n: share for n, share in each.items() if share is not None} for each in rest]
            if beta is not None and (cause := nadam_cause(beta, *numbers)):
                return cause
            return (
                f"Nesterov: at update {at} the moment has {a:.6g} times as much of the gradient added here, {b:.6g} "
                "times there"
            )
        # g + b m is (1 + b) m less b of the momentum before
        return f"momentum: Nesterov's is {-a / (1 + a):.6g} here, {-b / (1 + b):.6g} there"
    return ""


def _kept_up(form: MoveForm) -> float | None:
    """Return the length by which the parameters are moved up the gradient beside each update; None where not."""
    if form.mixed != "gradient" or form.under:
        return None
    ups = {str(at): -one.rate * one.ahead * form.gradients[at]
           for at, leaves in form.moves.items() if at > 1 for one in leaves.values()}  # fmt: skip
    length = one_value(ups, SAME)
    return length if length is not None and length > 0.0 and len(form.moves) > 2 else None


def _one_number(form: MoveForm, of: Callable) -> dict[int, float | None]:
    """Return what all leaves that show it clearly have at each update, those updates left out at which none does."""
    clear = {at: {leaf: of(one) for leaf, one in leaves.items() if one.clear} for at, leaves in form.moves.items()}
    return {at: one_value(each, 1e-5) for at, each in clear.items() if each}


def _correction_cause(walk: TwoWalks, one: MoveForm, two: MoveForm, ratios: Rates) -> str:
    """Return that the rates of one are those of the other times a factor that only a bias correction has."""
    factors = {at: value for at, each in ratios.items() if (value := one_value(each, SAME)) is not None}
    if len(factors) < 2 or len(factors) < sum(bool(each) for each in ratios.values()):
        return ""
    if one_value({str(at): factor for at, factor in factors.items()} | {"": 1.0}, SAME) is not None:
        return ""
    found = set()
    for at, form, who, other, power in ((1, two, "the port", "the trainer", 1),
                                        (0, one, "the trainer", "the port", -1)):  # fmt: skip
        lane = walk.lanes[at]
        for words, factor in corrections(lane, form, list(factors)).items():
            if all(abs(factor[at] ** power - value) <= SAME * abs(value) for at, value in factors.items()):
                found.add(f"bias correction: {words.format(who=who, other=other, times=factors[min(factors)])}")
    # of equal betas, or of two updates, two ways may give the same: that it is a correction is true of both
    return " or, as well, ".join(sorted(found))


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
    seconds = [betas_of(lane, form, updates)[1] for lane, form in zip(walk.lanes, (one, two), strict=False)]
    where = "under" if under else "beside"
    if seconds[0] and seconds[1] and not under:
        roots = [{at: (1.0 - power_of(each, at)) ** 0.5 for at in updates} for each in seconds if each]
        sizes = [[form.epsilons[at] / root[at] for at in updates]
                 for form, root in zip((one, two), roots, strict=True)]  # fmt: skip
        plain = [[form.epsilons[at] for at in updates] for form in (one, two)]
        steady = [[_steady(values) for values in both] for both in (sizes, plain)]
        if all(steady[0]):
            times = sizes[1][0] / sizes[0][0]
            return (
                f"epsilon of the optimizer: the port's is {times:.4g} times the trainer's ({sizes[0][0]:.4g} here, "
                f"{sizes[1][0]:.4g} there), beside the root of the second moment"
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
