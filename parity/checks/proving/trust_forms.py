"""Trust ratios, told by the rates at which leaves move, and by the norms of what they are moved by.

LAMB and LARS move each leaf by a share of its norm. A rate that is one number for all leaves shows none; one that
is one number times the norm of the parameters over that of what they are moved by is a trust ratio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parity.checks.proving.effective import one_value
from parity.checks.proving.move_forms import LeafMove, MoveForm
from parity.checks.proving.slots import names_of

__all__ = ["TrustForm", "trust_cause", "trust_form"]

SAME = 1e-7
"""Relative distance of two rates that are one."""


@dataclass(frozen=True)
class TrustForm:
    """How the rates of leaves come about."""

    kind: str
    """`none`, `leaf`, or `all`: of all leaves together."""
    inside: bool = True
    """Whether decay is in the norm of what is divided by."""
    scaled: bool = True
    """Whether decay is scaled by the ratio."""
    decays: bool = False
    share: float = 0.0
    """Of the parameters that decay adds to what is scaled; 0 where leaves have several."""
    shares: Mapping[int, float] = field(default_factory=dict)
    """The same of each update."""
    rest: Mapping[str, float] = field(default_factory=dict)
    """Leaves that move at one rate, or at two, beside leaves with a ratio, with their rate over that of a ratio."""
    rests: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """The same of each update."""


def trust_form(form: MoveForm) -> TrustForm | None:
    """Return how the rates of a form come about; None where no rule that is known gives them."""
    found = [_at(leaves) for leaves in form.moves.values()]
    first = found[-1] if found else None
    if first is None or any(one is None or (one.kind, one.inside, one.scaled) != (first.kind, first.inside,
                            first.scaled) for one in found):  # fmt: skip
        return None
    if first.kind == "none" and _of_all(form):
        return TrustForm("all")
    shares = {at: one.share for at, one in zip(form.moves, found, strict=True) if one is not None}
    rests = {at: one.rest for at, one in zip(form.moves, found, strict=True) if one is not None}
    return TrustForm(first.kind, first.inside, first.scaled, first.decays, first.share, shares, first.rest, rests)


def _of_all(form: MoveForm) -> bool:
    """Return whether one rate for all is a number times the norm of all parameters over that of all directions."""
    sizes = {}
    for at, (direction, params) in form.wholes.items():
        rate = one_value({leaf: one.rate for leaf, one in form.moves[at].items()}, SAME)
        if rate is None or not params or not direction:
            return False
        sizes[str(at)] = rate * direction / params
    return len(sizes) > 1 and one_value(sizes, SAME) is not None


def _at(leaves: Mapping[str, LeafMove]) -> TrustForm | None:
    """Return how the rates of one update come about."""
    known = {leaf: one for leaf, one in leaves.items() if one.rate > 0.0 and one.params > 0.0 and one.size > 0.0}
    if len(known) < 2:
        return None
    if one_value({leaf: one.rate for leaf, one in known.items()}, SAME) is not None:
        return TrustForm("none")
    decays = any(one.decay for one in known.values())
    shares = one_value({leaf: one.decay / one.rate for leaf, one in known.items() if one.decay}, 1e-6)
    for inside in (True, False):
        ratios = {leaf: one.rate * (one.size_decayed if inside else one.size) / one.params
                  for leaf, one in known.items()}  # fmt: skip
        if one_value(ratios, SAME) is not None:
            return TrustForm("leaf", inside or not decays, not decays or shares is not None, decays, shares or 0.0)
    return next((found for inside in (True, False) if (found := _in_part(known, inside)) is not None), None)


def _in_part(known: Mapping[str, LeafMove], inside: bool) -> TrustForm | None:
    """Return a trust ratio of some leaves, beside others of one rate, or of two of which one is a bound."""
    ratios = {leaf: one.rate * (one.size_decayed if inside else one.size) / one.params for leaf, one in known.items()}
    for middle in ratios.values():
        held = {leaf for leaf, ratio in ratios.items() if abs(ratio - middle) <= SAME * middle}
        rest = {leaf: ratio / middle for leaf, ratio in ratios.items() if leaf not in held}
        if len(held) >= 2 and _of_rates(known, rest):
            decays = any(known[leaf].decay for leaf in held)
            shares = one_value(
                {leaf: known[leaf].decay / known[leaf].rate for leaf in held if known[leaf].decay}, 1e-6
            )
            return TrustForm("leaf", inside or not decays, not decays or shares is not None, decays,
                             shares or 0.0, {}, rest)  # fmt: skip
    return None


def _of_rates(known: Mapping[str, LeafMove], rest: Mapping[str, float]) -> bool:
    """Return whether leaves without a ratio move at one rate, or some, faster by their ratio, at a larger."""
    rates = {leaf: known[leaf].rate for leaf in rest}
    if one_value(rates, SAME) is not None:
        return True
    most = max(rates.values())
    bound = {leaf for leaf, rate in rates.items() if abs(rate - most) <= SAME * most}
    plain = {leaf: rate for leaf, rate in rates.items() if leaf not in bound}
    return len(plain) > 1 and one_value(plain, SAME) is not None and all(rest[leaf] < 1.0 for leaf in bound)


def trust_cause(one: TrustForm | None, two: TrustForm | None, names: Mapping[str, str]) -> str:
    """Return what two ways to come to the rates of leaves differ in; empty where one is not known, or they agree.

    Args:
        one: The trainer's.
        two: The port's.
        names: Each leaf of the port to that of the trainer, or to several with ` + ` between.
    """
    if one is None or two is None or one.kind == two.kind == "none":
        return ""
    if one.kind != two.kind:
        ratio = "scaled by the norm of the parameters over that of the update (LAMB, LARS)"
        words = {"none": "one rate for all leaves", "all": f"they are {ratio}, of all leaves together",
                 "leaf": f"each leaf is {ratio}"}  # fmt: skip
        return f"trust ratio: {words[one.kind]} here, {words[two.kind]} there"
    if one.decays and two.decays and (one.inside, one.scaled) != (two.inside, two.scaled):
        said = [f"{'in' if form.inside else 'not in'} its norm and {'scaled' if form.scaled else 'not scaled'} by it"
                for form in (one, two)]  # fmt: skip
        return f"trust ratio: weight decay is {said[0]} here, {said[1]} there"
    if one.decays != two.decays:
        who, other = ("the trainer", "the port") if one.decays else ("the port", "the trainer")
        return f"weight decay: {who} adds a share of the parameters to what its trust ratio scales, {other} none"
    times = {str(at): two.shares[at] / share for at, share in one.shares.items() if share and two.shares.get(at)}
    factor = one_value(times, 1e-5) if len(times) > 1 else None
    if factor is not None and abs(factor - 1.0) > 1e-5:  # one that moves is that of a bias correction
        return (
            f"weight decay: another strength: the port adds {factor:.6g} times as much of the parameters to what the "
            "trust ratio scales"
        )
    return _rest_cause(one, two, names)


def _rest_cause(one: TrustForm, two: TrustForm, names: Mapping[str, str]) -> str:
    """Return which leaves have a ratio in one run and none in the other, at the same update."""
    found: dict[tuple[int, str], tuple[int, float]] = {}
    for at in one.rests.keys() & two.rests.keys():
        for leaf, sources in names.items():
            here = [one.rests[at].get(name) for name in sources.split(" + ")]
            if (None in here) == (leaf in two.rests[at]) and (None in here) == all(a is None for a in here):
                found[at, leaf] = (0, here[0]) if here[0] is not None else (1, two.rests[at][leaf])
    if len({side for side, _ in found.values()}) != 1:
        return ""
    side = next(iter(found.values()))[0]
    who, other = ("the trainer", "the port") if side == 0 else ("the port", "the trainer")
    form, leaves = (one, two)[side], sorted({leaf for _, leaf in found})
    slower = all(share < 1.0 for _, share in found.values())
    said = names_of(leaves)
    own = {leaf: names[leaf].split(" + ")[0] if side == 0 else leaf for leaf in leaves}
    # a leaf that has a ratio at another update has one: what it moves at here is where that is clipped
    if slower and all(any(own[leaf] not in rest for rest in form.rests.values()) for leaf in leaves):
        at = min(at for at, _ in found)
        return (
            f"trust ratio: that of {who} is clipped from above, lower than where that of {other} is, if at all: at "
            f"update {at} {names_of([leaf for when, leaf in sorted(found) if when == at])} would move faster by it"
        )
    also = "no trust ratio, or one that is clipped (at most one number), for" if slower else "no trust ratio for"
    return f"trust ratio: {who} has {also} {said}, the other has one"
