"""Causes of updates that part: each is named where its values show it, and none that is false in its place."""

from types import SimpleNamespace

import numpy as np
import pytest

from parity.checks.proving import rate_causes
from parity.checks.proving.inner_averages import inner_average_cause
from parity.checks.proving.lockstep import MODEL as LEAVES
from parity.checks.proving.momentum_causes import shares_of
from parity.checks.proving.stages import _judged
from parity.checks.proving.update_causes import update_cause
from parity.checks.proving.updates import judge_updates
from parity.checks.proving.verdict import PortProof, PortStage
from parity.checks.proving.walk import walk_updates
from tests.ports.small_walks import MODEL, adam, gradients, momentum, pair_of, still_zero, walk_of


def half(grads):
    return {leaf: one / 2 for leaf, one in grads.items()}


def by_norm(top):
    def clipped(grads):
        norm = np.sqrt(sum((one**2).sum() for one in grads.values()))
        return {leaf: one * min(1.0, top / norm) for leaf, one in grads.items()}

    return clipped


def by_value(low, top):
    return lambda grads: {leaf: np.clip(one, low, top) for leaf, one in grads.items()}


def of_others(grads):
    return {leaf: one + np.cos(np.arange(one.size)).reshape(one.shape) for leaf, one in grads.items()}


def momenta(params):
    return {"m": still_zero(params)}


def moments(params):
    return {"m": still_zero(params), "sq": still_zero(params)}


def plain(rate=0.05):
    def rule(state, grads, at):
        for leaf, grad in grads.items():
            state["params"][leaf] = state["params"][leaf] - rate * grad

    return rule


def centred(change=lambda grads: grads, rate=0.01):
    """Return an RMSprop of PyTorch, centred, with momentum."""

    def rule(state, grads, at):
        for leaf, g in change(grads).items():
            mean = state["mean"][leaf] = 0.95 * state["mean"][leaf] + 0.05 * g
            square = state["sq"][leaf] = 0.95 * state["sq"][leaf] + 0.05 * g * g
            state["m"][leaf] = 0.5 * state["m"][leaf] + g / (np.sqrt(square - mean * mean) + 1e-3)
            state["params"][leaf] = state["params"][leaf] - rate * state["m"][leaf]

    return rule


def largest(rate=0.01, *, corrects=True):
    """Return an Adamax."""

    def rule(state, grads, at):
        for leaf, g in grads.items():
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + 0.1 * g
            v = state["sq"][leaf] = np.maximum(0.999 * state["sq"][leaf], np.abs(g) + 1e-8)
            state["params"][leaf] = state["params"][leaf] - rate / (1 - 0.9**at if corrects else 1) * m / v

    return rule


def centred_slots(params):
    return {"m": still_zero(params), "sq": still_zero(params), "mean": still_zero(params)}


def from_second(change):
    return lambda state, grads, at: momentum(1, 1, change=change if at > 1 else None)(state, grads, at)


CLIP, CLIPPED = by_norm(0.1), by_value(-0.2, 0.2)
HALVED = "accumulation: the gradients of the port are 1/2 times the trainer's"
MOMENTUM = "momentum: it takes 1 of the first gradient and 0.5 of later ones here, "
ONE_END = "clips every element of the gradient at both ends, the port above alone"
BY_VALUE = "every element is clipped by itself (by value) to 0.2"
BY_NORM = "the gradient of the loss, all of it scaled to one norm at each update (clipped by the norm of all)"

UPDATES = {
    "dampened first": (momentum(1, 0.5), momentum(0.5, 0.5), momenta, MOMENTUM + "0.5 of the first gradient"),
    "average, dampened": (momentum(1, 0.5), momentum(0.1, 0.1), momenta, MOMENTUM + "0.1 of the first gradient"),
    "not dampened": (momentum(1, 0.5), momentum(1, 1), momenta,
                     "momentum: from the second update on it is 0.9 of itself and 0.5 of the gradient here, 0.9 of"),
    "keeps less": (momentum(1, 1), momentum(1, 1, kept=0.8), momenta,
                   "momentum: from the second update on it is 0.9 of itself and 1 of the gradient here, 0.8 of"),
    "clipped at the second update": (
        from_second(by_norm(0.5)), from_second(by_norm(0.6)), momenta,
        "clipping: largest norm of the gradients 0.5 here, 0.6 there (from update 2 on",
    ),
    "average": (momentum(1, 1), momentum(0.1, 0.1), momenta, "momentum: it is 0.9 of itself and 1 of the gradient"),
    "halved, momentum": (momentum(1, 1), momentum(1, 1, change=half), momenta, HALVED),
    "halved, Adam": (adam(), adam(change=half), moments, HALVED),
    "clipped at the first update": (
        momentum(1, 1), momentum(1, 1, change=by_norm(3.5)), momenta, "clipping: the port clips the norm",
    ),
    "clipped": (
        momentum(1, 1), momentum(1, 1, change=CLIP), momenta, "clipping: the port clips the norm of the gradients",
    ),
    "gradient of others": (momentum(1, 1), momentum(1, 1, change=of_others), momenta, ""),
    "gradient of others, Adam": (adam(), adam(change=of_others), moments, "gradient: the moments of the port are of"),
    "norm for value": (centred(CLIPPED), centred(CLIP), centred_slots, f"clipping: {BY_VALUE} here; there {BY_NORM}"),
    "value for norm": (centred(CLIP), centred(CLIPPED), centred_slots, f"clipping: {BY_NORM} here; there {BY_VALUE}"),
    "no slots": (momentum(1, 1), plain(), (momenta, lambda params: {}), "state: no slot of the port holds a part"),
    "one end": (centred(CLIPPED), centred(by_value(-9, 0.2)), centred_slots, f"clipping: the trainer {ONE_END}"),
    "one end, Adam": (adam(change=CLIPPED), adam(change=by_value(-9, 0.2)), moments,
                      f"clipping: the trainer {ONE_END}"),
    "rate that looks like a correction": (centred(), centred(rate=0.02), centred_slots, "learning rate of the first"),
    "rate of single elements": (adam(), adam(lambda leaf: 0.1 if leaf in "sr" else 0.01), moments, ""),
    "rate of one element": (adam(), adam(lambda leaf: 0.1 if leaf == "s" else 0.01), moments, ""),
    "rates swapped": (
        adam(lambda leaf: 0.01 if leaf in "sr" else 0.001), adam(lambda leaf: 0.001 if leaf in "sr" else 0.01),
        moments,
        "learning rate of the first update, of groups: the port moves w, v, b by 10 times",
    ),
    "rate of a group": (
        adam(), adam(lambda leaf: 0.1 if leaf in "vb" else 0.01), moments,
        "learning rate of the first update, of groups: the port moves v, b by 10 times what the trainer does",
    ),
    "rate": (adam(), adam(lambda leaf: 0.02), moments, "learning rate of the first update (schedule)"),
    "rate to the last digits": (adam(), adam(lambda leaf: 0.01 * (1 + 1e-8)), moments, ""),
    "decay": (adam(), adam(decay=0.1), moments, "weight decay: another strength on all leaves"),
    "decay, and the rate of one element": (
        adam(), adam(lambda leaf: 0.1 if leaf == "s" else 0.01, decay=0.1), moments, "",
    ),
    "largest, not corrected": (largest(), largest(corrects=False), moments,
                               "bias correction: the port does not correct its first moment (0.1 times, beta 0.9)"),
    "largest, a tenth of the rate": (largest(), largest(rate=0.001), moments, "learning rate of the first update"),
    "second not corrected": (adam(epsilon=1e-12), adam(epsilon=1e-12, corrects=(True, False)), moments,
                             "bias correction: the trainer divides the second moment by one less its decay"),
    "no root in one": (adam(), adam(divides=False), moments,
                       "second moment: at update 1 the trainer divides by its root, the port moves by the first"),
    "no correction": (adam(epsilon=1e-12), adam(corrects=False, epsilon=1e-12), moments,
                      "bias correction: the port does not correct its moments"),
}  # fmt: skip
"""What parts to both rules, their slots and the beginning of the cause, which is none where values do not show it."""


@pytest.mark.parametrize("case", UPDATES)
def test_an_update_has_its_cause_and_no_other(case):
    here, there, slots, said = UPDATES[case]
    walk = walk_of(here, there, slots)
    assert walk.what
    found = update_cause(walk)
    assert found.startswith(said) if said else found == ""


def scheduled(rates):
    """Return plain SGD by a list of rates, which its state tells."""

    def rule(state, grads, at):
        for leaf, grad in grads.items():
            state["params"][leaf] = state["params"][leaf] - rates[at - 1] * grad
        state["optimizer"] = {"lr.0": np.array(rates[at])}

    return rule, lambda params: {"optimizer": {"lr.0": np.array(rates[0])}}


STEADY, MOVING = [0.05, 0.05, 0.04, 0.03, 0.03, 0.03], [0.05, 0.04, 0.03, 0.02, 0.01, 0.01]


@pytest.mark.parametrize(
    ("here", "there", "said"),
    [
        (STEADY, [*STEADY[1:], 0.03], "schedule: off by one step: update 2 of the port uses the rate of the update "),
        (MOVING, [*MOVING[:3], MOVING[4], 0.01, 0.01], "schedule: the rates part at update 4: 0.01 there, 0.02 here"),
    ],
)  # fmt: skip
def test_a_schedule_that_agreed_while_it_moved_is_not_off_by_a_step(here, there, said):
    (one, slots), (two, others) = scheduled(here), scheduled(there)
    assert update_cause(walk_of(one, two, (slots, others), steps=5)).startswith(said)


def inner_walk(*rules, begins_there=False):
    """Return a walk of one update in which `target` follows `online` by a rule, as far as its cause reads it."""
    draws = np.random.default_rng(6)
    start = {leaf: draws.normal(size=(3, 4)) for leaf in ("online", "target", "other")}
    if begins_there:
        start["target"] = start["online"].copy()
    moved = {leaf: start[leaf] - 0.1 * draws.normal(size=(3, 4)) for leaf in ("online", "other")}
    ends = [{**moved, "target": rule(start, moved)} for rule in rules]
    lanes = [SimpleNamespace(moments=[SimpleNamespace(slots={LEAVES: one}) for one in (start, end)]) for end in ends]
    return SimpleNamespace(
        what=LEAVES, gap=SimpleNamespace(leaves=("target",)), done=1, pairing=SimpleNamespace(over=dict), lanes=lanes
    )


def follow(share, *, late=False):
    return lambda start, moved: start["target"] + share * ((start if late else moved)["online"] - start["target"])


def test_a_target_that_stays_where_what_it_follows_was_is_not_frozen():
    walk = inner_walk(follow(0.1), follow(0.1, late=True), begins_there=True)
    said = inner_average_cause(walk)
    assert said.startswith("EMA: in the port target stay at update 1, where online were before it")
    assert said.endswith("in the trainer they follow them after it")
    # one that stays where nothing was, or beside one that follows nothing known, tells nothing
    assert not inner_average_cause(inner_walk(follow(0.1), follow(0.0)))
    assert not inner_average_cause(inner_walk(lambda start, _: start["target"] + 0.1, follow(0.0), begins_there=True))


def test_a_single_number_among_those_that_follow_is_no_obstacle():
    walk = inner_walk(follow(0.1), follow(0.2))
    for lane, share in zip(walk.lanes, (0.1, 0.2), strict=True):
        start, end = (one.slots[LEAVES] for one in lane.moments)
        start |= {"bias": np.ones(1), "target_bias": np.zeros(1), "third": np.full(1, 3.0)}
        end |= {"bias": np.ones(1) * 1.5, "target_bias": np.full(1, 1.5 * share), "third": np.full(1, 2.0)}
    walk.gap.leaves = ("target", "target_bias")
    assert "EMA: target go 0.1 of the way" in inner_average_cause(walk)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (follow(0.2), "EMA: target go 0.1 of the way to other leaves, such as online, here, 0.2 there at update 1"),
        (
            follow(0.1, late=True),
            "EMA: target follow other leaves, such as online, after its update here, before its",
        ),
        (lambda start, moved: start["target"] + 0.01 * start["other"] ** 2, ""),
        (lambda start, moved: start["target"], ""),
    ],
)
def test_an_average_inside_the_model_has_its_share(there, said):
    found = inner_average_cause(inner_walk(follow(0.1), there))
    assert found.startswith(said) if said else found == ""


def test_two_alike_part_nowhere():
    assert walk_of(adam(), adam(), moments).what == ""


def test_a_run_that_overflows_tells_no_share():
    walk = walk_of(momentum(1, 1), momentum(1, 1, change=half), momenta)
    lane = walk.lanes[0]
    assert shares_of(lane, "m", 2) is not None
    lane.moments[2].slots["m"]["w"][0, 0] = np.inf
    assert shares_of(lane, "m", 2) is None


def averaged(begin=1, decay=None, more=0, before=False):
    """Return SGD with an average of the values that it passes, or a moving one."""

    def rule(state, grads, at):
        old = dict(state["params"])
        plain()(state, grads, at)
        share = 1 / (max(at - begin, 0) + 1 + more) if decay is None else 1 - decay
        for leaf, one in (old if before else state["params"]).items():
            if at >= begin and "avg" in state:
                state["avg"][leaf] = state["avg"][leaf] + share * (one - state["avg"][leaf])

    return rule


def lookahead(share, every=3, sets=True):
    def rule(state, grads, at):
        plain()(state, grads, at)
        for leaf in state["params"] if at % every == 0 else ():
            state["avg"][leaf] = state["avg"][leaf] + share * (state["params"][leaf] - state["avg"][leaf])
            if sets:
                state["params"][leaf] = state["avg"][leaf].copy()

    return rule


def copied(params):
    return {"avg": {leaf: one.copy() for leaf, one in params.items()}}


LATE = (
    "EMA: avg of the trainer follows the parameters, at update 3 first, and avg of the port, which begins as a copy"
)
AVERAGES = {
    "late": (averaged(3), averaged(4), copied, LATE),
    "early": (averaged(4), averaged(3), copied, "EMA: avg moves at update 3 there, avg does not here"),
    "no copy": (averaged(3), averaged(3, more=1), copied, "EMA: decay 0 here, 0.5 there at update 3"),
    "decay": (averaged(decay=0.9), averaged(decay=0.99), copied, "EMA: decay 0.9 here, 0.99 there"),
    "absent": (averaged(decay=0.9), averaged(), (copied, lambda params: {}),
               "EMA absent: avg is an average of the parameters (decay 0.9), and the port keeps none"),
    "of the values before": (averaged(decay=0.9), averaged(decay=0.9, before=True), copied,
                             "EMA: taken after the update here, before it there"),
    "share of a lookahead": (lookahead(0.5), lookahead(0.8), copied,
                             "lookahead: at update 3 the parameters are avg itself here and avg there"),
    "period of a lookahead": (lookahead(0.5), lookahead(0.5, 4), copied,
                              "lookahead: the parameters are set from avg at update 3, 6 here, at update 4 there"),
    "slow values alone": (lookahead(0.5), lookahead(0.5, sets=False), copied,
                          "lookahead: the parameters are set from avg at update 3, 6 here, at none of updates 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", AVERAGES)
def test_an_average_has_its_cause_and_no_other(case):
    here, there, slots, said = AVERAGES[case]
    walk = walk_of(here, there, slots)
    assert walk.what
    assert update_cause(walk).startswith(said)


@pytest.mark.parametrize(("second", "said"), [("params", ""), ("avg", "the port's step trains on another loss")])
def test_a_loss_that_follows_another_network_is_no_matter_of_its_average(second, said):
    def losses(slot):
        def loss(state, made):
            value, grads = gradients(state["params"], made)
            far = sum(float(((one - state["params"][leaf]) ** 2).sum()) for leaf, one in state[slot].items())
            return value + far, grads

        return loss

    first = {"params": "avg", "avg": "params"}[second]
    walk = walk_of(averaged(decay=0.95), averaged(decay=0.95), copied, loss=losses(first), other=losses(second))
    assert walk.what == "loss"
    found = update_cause(walk)
    assert found.startswith(said or "the trainer's step trains on another loss")
    assert "EMA" not in found


@pytest.mark.parametrize(("off", "clouded"), [(3e-8, True), (1e-5, False)])
def test_what_a_cast_makes_is_not_judged_where_casts_stay(off, clouded):
    pairing, *two = pair_of(adam(), adam(lambda leaf: 0.01 * (1 + off)), moments, lifts=False)
    walk, told, notes = judge_updates(pairing, *two, MODEL, 4)
    assert (walk.what, told, bool(walk.clouded)) == ("the model", "", clouded)
    assert "casts to narrower types could not be left out" in notes[0]


@pytest.mark.parametrize("later", [1.0, 2.0])
def test_a_cast_hides_no_larger_difference_of_a_later_update(later):
    def rule(state, grads, at):
        adam(lambda leaf: 0.01 * (1 + 3e-8) * (later if at > 4 else 1.0))(state, grads, at)

    pairing, *two = pair_of(adam(), rule, moments, lifts=False)
    walk, _, notes = judge_updates(pairing, *two, MODEL, 8)
    assert (walk.what, walk.done, bool(walk.clouded)) == ("the model", *((1, True) if later == 1.0 else (5, False)))
    assert len(notes) == 1


@pytest.mark.parametrize(("cause", "said"), [("decay 0 here, 0.5 there", True), ("no weight is adhered to", False)])
def test_the_two_sides_of_a_cause_are_said_where_it_names_them(cause, said):
    proof = PortProof(("mine", "mine_jax"), (PortStage("update", "broken", "leaves part", cause),))
    assert ("(here: mine, the trainer; there: mine_jax, its port)" in proof.text()) == said


@pytest.mark.parametrize("name", ["update", "steps"])
def test_a_stage_that_a_cast_may_part_is_inconclusive_and_has_no_cause(name):
    pairing, *two = pair_of(adam(), adam(lambda leaf: 0.01 * (1 + 3e-8)), moments, lifts=False)
    walk, *_ = judge_updates(pairing, *two, MODEL, 4)
    stage = _judged(walk, name, "leaves part", "learning rate")
    assert (stage.verdict, stage.cause) == ("inconclusive", "")
    walk.clouded = ""
    assert _judged(walk, name, "leaves part", "learning rate").verdict == "broken"


def trusted(zeros):
    """Return SGD by a trust ratio, which is 1 where a norm is zero; one leaf begins at zero."""

    def rule(state, grads, at):
        for leaf, grad in grads.items():
            held = state["params"][leaf]
            size, norm = np.linalg.norm(held), np.linalg.norm(grad)
            state["params"][leaf] = held - 0.05 * (size / norm if size > 0 else 1.0) * grad

    pairing, *two = pair_of(rule, rule)
    start = MODEL | {"b": np.zeros(3)} if zeros else MODEL
    return walk_updates(pairing, *two, start, 6)


@pytest.mark.parametrize("zeros", [True, False])
def test_a_leaf_of_zeros_under_a_trust_ratio_is_no_chaos(zeros):
    walk = trusted(zeros)
    assert (walk.what, walk.chaotic, walk.done) == ("", False, 6)


def cycled(ahead=0, nesterov=True):
    """Return SGD whose momentum moves with its schedule."""

    def rule(state, grads, at):
        kept = 0.95 - 0.02 * (at + ahead)
        for leaf, grad in grads.items():
            m = state["m"][leaf] = kept * state["m"][leaf] + grad
            state["params"][leaf] = state["params"][leaf] - 0.05 * (grad + kept * m if nesterov else m)

    return rule


def test_a_momentum_that_is_a_step_ahead_is_told_as_one():
    said = update_cause(walk_of(cycled(), cycled(1), momenta))
    assert said.startswith(
        "schedule: off by one step: update 2 of the port uses the momentum of the update after (0.89,"
    )
    other = update_cause(walk_of(cycled(), momentum(1, 1), momenta))
    assert "off by one" not in other


def test_a_rate_that_falls_at_each_step_more_is_not_off_by_one():
    (here, slots), (there, others) = (
        scheduled([1, 1, 1, 0.5, 0.5, 0.25, 0.25]),
        scheduled([1, 1, 0.5, 0.25, 0.125, 0.1, 0.1]),
    )
    said = update_cause(walk_of(here, there, (slots, others), steps=6))
    assert said.startswith("schedule: the rates part at update 3: 0.5 there, 1 here (0.5 times); then 0.25, 0.125")


def set_first(rates):
    """Return SGD that sets its rate as its step begins, which its state tells afterwards."""

    def rule(state, grads, at):
        for leaf, grad in grads.items():
            state["params"][leaf] = state["params"][leaf] - rates[at - 1] * grad
        state["optimizer"] = {"lr.0": np.array(rates[at - 1])}

    return rule, lambda params: {"optimizer": {"lr.0": np.array(rates[0])}}


def test_a_rate_that_is_set_as_the_step_begins_is_that_of_the_step():
    here, there = ([0.05 * factor**at for at in range(8)] for factor in (0.9, 0.8))
    (one, slots), (two, others) = set_first(here), set_first(there)
    said = update_cause(walk_of(one, two, (slots, others), steps=6))
    assert said.startswith(
        "schedule: the rates part at update 2: 0.04 there, 0.045 here (0.888889 times); then 0.032,"
    )


@pytest.mark.parametrize(("kept", "betas"), [(0.9, {0.9}), (0.99999999, set())])
def test_what_keeps_all_of_itself_is_no_average_with_a_beta(kept, betas, monkeypatch):
    """Rounded to one it made a correction of the bias by nothing, which fits every factor."""
    monkeypatch.setattr(rate_causes, "shares_of", lambda *_, **__: SimpleNamespace(kept=kept, taken=1.0 - kept))
    lane = SimpleNamespace(moments=[None, SimpleNamespace(slots={LEAVES: {}, "m": {}})])
    assert rate_causes._kept_shares(lane) == (betas, betas)
