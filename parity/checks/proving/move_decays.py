"""What decays beside the optimizers' steps differ in: their leaves, rate and schedule, before or after the step."""

from __future__ import annotations

from collections.abc import Mapping

from parity.checks.proving.bias_forms import betas_of, power_of
from parity.checks.proving.effective import one_value
from parity.checks.proving.lockstep import Lane
from parity.checks.proving.move_forms import MoveForm
from parity.checks.proving.move_ratios import SAME, Rates, by_leaf, ratios_of
from parity.checks.proving.slots import names_of
from parity.checks.proving.walk import TwoWalks

__all__ = ["beside_decay_cause"]


def beside_decay_cause(walk: TwoWalks, one: MoveForm, two: MoveForm) -> str:
    """Return what decays beside the optimizer's step differ in, beyond their strength."""
    updates = sorted(one.moves.keys() & two.moves.keys())
    decays = {at: [by_leaf(walk, form, at, lambda leaf: leaf.decay, form is two) for form in (one, two)]
              for at in updates}  # fmt: skip
    rates = ratios_of(walk, one, two)
    leaves = [leaf for leaf in decays[updates[0]][0] if all(leaf in each for at in updates for each in decays[at])]
    if not leaves:
        return ""
    on = [{leaf for leaf in leaves if all(decays[at][side][leaf] for at in updates)} for side in (0, 1)]
    if on[0] != on[1]:
        last = updates[-1]
        shares = [by_leaf(walk, form, last, lambda leaf: leaf.decay / leaf.rate, form is two) for form in (one, two)]
        return _places(decays[updates[0]], on, "{share:.4g} of") or _places(shares, on, "a share of")
    if not on[0]:
        return ""
    ratios = {at: one_value({leaf: decays[at][1][leaf] / decays[at][0][leaf] for leaf in on[0]}, 1e-4)
              for at in updates}  # fmt: skip
    if None in ratios.values():
        return _of_rates(walk, one, two, decays)
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


def _of_rates(
    walk: TwoWalks, one: MoveForm, two: MoveForm, decays: Mapping[int, list[dict[str, float]]]
) -> str:  # fmt: skip
    """Return that one decays each leaf by a share of that leaf's own rate, and the other all leaves alike."""
    last = max(decays)
    shares = [by_leaf(walk, form, last, lambda leaf: leaf.decay / leaf.rate if leaf.rate else 0.0, form is two)
              for form in (one, two)]  # fmt: skip
    of_rate, plain = (
        [one_value({leaf: value for leaf, value in each.items() if value}, 1e-4) for each in held]
        for held in (shares, decays[last])
    )
    for side, (who, other) in enumerate((("the trainer", "the port"), ("the port", "the trainer"))):
        share, same = of_rate[side], plain[1 - side]
        if share is not None and same is not None and plain[side] is None and of_rate[1 - side] is None:
            held = decays[last][side]
            shown = [f"{value:.4g} of {leaf}" for value, leaf in sorted({v: k for k, v in held.items() if v}.items())]
            return (
                f"weight decay: {who}'s is in proportion to the rate of each leaf, such as {' and '.join(shown[:2])} "
                f"at an update, {other}'s is {same:.4g} of every leaf, though leaves have rates of their own there "
                f"too: the factors of leaves do not scale its decay"
            )
    return ""


def _unscaled(walk: TwoWalks, one: MoveForm, ratios: Mapping[int, float | None]) -> str:
    """Return that one decays by as much more as the other's rate is below 1: it does not multiply by the rate."""
    rates = _own_rates(walk.lanes[0], one)
    for who, other, power in (("the port", "the trainer", 1), ("the trainer", "the port", -1)):
        known = [(ratio**power, rates[at]) for at, ratio in ratios.items() if ratio and rates.get(at)]
        if len(known) > 1 and all(abs(ratio * rate - 1.0) <= 1e-4 for ratio, rate in known):
            return (
                f"weight decay: {who}'s is {known[0][0]:.6g} times {other}'s, one over the rate: {other} multiplies "
                f"it by the rate ({known[0][1]:.6g}), {who} does not"
            )
    return ""


def _own_rates(lane: Lane, form: MoveForm) -> dict[int, float]:
    """Return the rate of each update, bias corrections taken out, where it is one number at all of them."""
    updates = sorted(form.moves)
    ones, twos = betas_of(lane, form, updates) if form.under else (None, None)
    plain = {at: one_value({leaf: one.rate for leaf, one in form.moves[at].items()}, SAME) for at in updates}
    if None in plain.values():
        return {}
    for first, second in ((None, None), (ones, twos)):
        found = {at: float(plain[at] or 0.0) * (1 - power_of(first, at) if first else 1.0)
                 / ((1 - power_of(second, at)) ** 0.5 if second else 1.0) for at in updates}  # fmt: skip
        if one_value({str(at): rate for at, rate in found.items()}, SAME) is not None:
            return found
    return {}


def _places(decays: list[dict[str, float]], on: list[set[str]], words: str) -> str:
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
        f"weight decay: on other leaves: {('the trainer', 'the port')[side]} takes {words.format(share=share)} "
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
