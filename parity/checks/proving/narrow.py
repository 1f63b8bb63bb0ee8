"""The updates of both trainers in a narrower type, inside the envelope that one unit in the last place spans there.

What float64 shows and this envelope hides is not equal: it is hidden, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import ENVELOPE_LIMIT, judge_curve
from parity.checks.noise import FLOOR_ULPS, SEEDS, envelope, one_ulp_away, rounded, spread_of, ulp
from parity.checks.ports import ARRAY_LIMIT, CLOSE
from parity.checks.progress import tell
from parity.checks.proving.lockstep import AHEAD, MODEL, Lane
from parity.checks.proving.losses import Pairing, other_values
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.sources import PortTrainer
from parity.checks.proving.verdict import PortStage
from parity.contract import Precision, StepBatch
from parity.errors import SpecError
from parity.results import Verdict

__all__ = ["hidden", "judge_narrow", "of_rounding"]

ROUNDS = (2, 4, 8, SEEDS)
"""Nudged runs of each side after which it is looked whether the two agree: more runs only widen what passes."""


@dataclass
class _Run:
    """One run of one trainer."""

    losses: list[float] = field(default_factory=list)
    models: dict[int, LeafArrays] = field(default_factory=dict)
    """Completed updates to the leaves of the second model, where they are compared."""


def judge_narrow(
    pairing: Pairing, first: PortTrainer, second: PortTrainer, values: LeafArrays, steps: int, precision: Precision
) -> PortStage:
    """Take the loss with its gradients and train both in a type, and judge all by its measured envelope.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
        values: Of the leaves of the first model; both begin from these, rounded to the type.
        steps: Updates, at least 3.
        precision: The type of every leaf, of all floats of a batch and of what the steps make of them.

    Numerics: a loss may differ by three times the envelope, which is what one unit in the last place of the start
    moves either side by within 25 steps, at least 4 units of the loss; a leaf by ten times what that moves it, at
    least 4 units of its largest element, and a gradient as a leaf. Leaves are compared after 1, 2, 4, 8 ... updates
    and the last.
    """
    name = f"in {precision}"
    start = {leaf: rounded(value, precision) for leaf, value in values.items()}
    try:
        parted = _judge_losses(name, pairing, first, second, start, precision)
        if parted is not None:
            return parted
        base = [_train(pairing, one, start, steps, precision, one is second) for one in (first, second)]
        done = _finite_steps(base)
        if done < min(steps, AHEAD):
            said = f"values are not finite after update {done + 1} in {precision}: nothing can be judged"
            return PortStage(name, "inconclusive", said)
        moved: list[list[_Run]] = [[], []]
        found = PortStage(name, "inconclusive", "")
        for seeds in ROUNDS:
            for side, trainer in enumerate((first, second)):
                for seed in range(len(moved[side]), seeds):
                    tell(f"{precision}: nudged run {seed + 1} of {seeds} of {trainer.name}")
                    nudged = dict(_nudged(start, seed, precision))
                    moved[side].append(_train(pairing, trainer, nudged, done, precision, side == 1))
            found = _judge(name, base, moved, done, steps, precision)
            if found.verdict != "broken":
                break
        return found
    except SpecError as error:
        return PortStage(name, "inconclusive", f"cannot be trained in {precision}: {error}")
    finally:
        tell()


def hidden(parted: PortStage, narrow: PortStage, precision: str) -> PortStage:
    """Return what is said of a type in which a difference that float64 shows is inside the envelope.

    Args:
        parted: The stage that parts in float64.
        narrow: What was found in the type: it passes.
        precision: The type.
    """
    said = f"inconclusive at this precision: what parts at {parted.name} in float64 is hidden by the envelope"
    return PortStage(narrow.name, "inconclusive", said, lines=(narrow.said,))


def of_rounding(parted: PortStage, precision: str) -> PortStage:
    """Return what is said of a difference in a type where float64 shows none.

    Up to 10 times the envelope it may be what one library computes in another type than the other: Optax's bias
    correction in float32 alone reaches 4.8 times.

    Args:
        parted: What was found in the type.
        precision: The type.
    """
    why = f"equal in float64: what parts is what each computes in {precision}"
    if parted.multiple is not None and parted.multiple < CLOSE:
        said = f"{parted.said}: near, and the two libraries may round in other places; {why}"
        return PortStage(parted.name, "inconclusive", said, multiple=parted.multiple)
    return replace(parted, cause=why)


def _judge_losses(name: str, pairing: Pairing, first: PortTrainer, second: PortTrainer, values: LeafArrays,
                  precision: Precision) -> PortStage | None:  # fmt: skip
    """Return that the losses, or their gradients, part at the start and at drawn values; None where they do not."""
    for step, at in ((0, values), (1, other_values(pairing, 41))):
        batches = first.batch(step), second.batch(step)

        def evaluate(given: LeafArrays, batches: tuple[StepBatch, StepBatch] = batches) -> list[dict[str, Any]]:
            one = first.probe.loss(given, batches[0], precision)
            two = second.probe.loss(pairing.over(given), batches[1], precision)
            return [{"": one.loss, **pairing.over(one.gradients, grads=True)}, {"": two.loss, **two.gradients}]

        start = {leaf: rounded(value, precision) for leaf, value in at.items()}
        base, widest, parted = evaluate(start), dict[str, float](), ""
        for seeds in pairwise((0, *ROUNDS)):
            for seed in range(*seeds):
                for one, moved in zip(base, evaluate(dict(_nudged(start, seed, precision))), strict=True):
                    for path in base[0]:
                        widest[path] = max(widest.get(path, 0.0), spread_of(one[path], moved[path]))
            parted, multiple = _worst_of(base, widest, precision)
            if not parted:
                break
        if parted:
            said = f"on batch {step}: {parted} is {multiple:.1f} times the envelope of {ROUNDS[-1]} nudged runs"
            return PortStage(name, "broken", said, multiple=multiple)
    return None


def _worst_of(base: list[dict[str, Any]], widest: Mapping[str, float], precision: Precision) -> tuple[str, float]:
    """Return what is furthest beyond what passes and the multiple of the envelope; empty where all pass."""
    most, found, multiple = 1.0, "", 0.0
    largest = max(float(np.abs(one).max(initial=0.0)) for path, one in base[0].items() if path)
    for path, expected in base[0].items():
        limit = ARRAY_LIMIT if path else ENVELOPE_LIMIT[precision]
        # a gradient that is zero in exact arithmetic is as wide as what it is the rounding of
        scale = max(float(np.abs(expected).max(initial=0.0)), largest / 16.0 if path else 0.0)
        width = max(widest[path], float(FLOOR_ULPS * ulp(np.array([scale]), precision)[0]))
        share = spread_of(expected, base[1][path]) / width
        if not share / limit <= most:
            most, multiple = share / limit, share
            found = f"the gradient of {path}" if path else f"the loss ({base[0]['']!r} and {base[1]['']!r})"
    return found, multiple


def _nudged(start: LeafArrays, seed: int, precision: Precision) -> Iterator[tuple[str, NDArray[np.float64]]]:
    draws = np.random.default_rng([11, seed])
    for leaf, value in start.items():
        yield leaf, one_ulp_away(value, draws.random(value.shape) < 0.5, precision)


def _train(pairing: Pairing, trainer: PortTrainer, values: LeafArrays, steps: int, precision: Precision, second: bool
           ) -> _Run:  # fmt: skip
    """Train and keep the losses, and the leaves at the steps at which they are compared."""
    given = pairing.over(values) if second else values
    lane, run = Lane(trainer, second, False), _Run()
    lane.run = trainer.probe.begin(given, precision=precision)
    lane.keep(float("nan"))
    for step in range(steps):
        lane.advance(step)
        run.losses.append(lane.moments[step + 1].loss)
        if step + 1 == min(AHEAD, steps):
            lane.settle(given)
            for done in range(1, step + 2):
                _keep(run, pairing, lane, done, steps)
        elif step + 1 > AHEAD:
            _keep(run, pairing, lane, step + 1, steps)
    return run


def _keep(run: _Run, pairing: Pairing, lane: Lane, done: int, steps: int) -> None:
    if done == steps or done & (done - 1) == 0:
        held = lane.moments[done].slots[MODEL]
        run.models[done] = held if lane.second else pairing.over(held)


def _finite_steps(base: list[_Run]) -> int:
    """Return after how many updates the losses and leaves of both are still finite."""
    most = len(base[0].losses)
    for run in base:
        lost = [at for at, loss in enumerate(run.losses) if np.isinf(loss)]
        lost += [
            at - 1 for at, held in run.models.items() if not all(np.isfinite(one).all() for one in held.values())
        ]
        most = min([most, *lost])
    return most


def _judge(name: str, base: list[_Run], moved: list[list[_Run]], done: int, steps: int, precision: Precision
           ) -> PortStage:  # fmt: skip
    curves = [{at + 1: loss for at, loss in enumerate(run.losses[:done])} for run in base]
    width = np.zeros(done)
    for one, others in zip(base, moved, strict=True):
        if not all(np.isnan(one.losses[:done])):
            width = np.maximum(width, envelope(one.losses[:done], [run.losses[:done] for run in others]))
    width = np.maximum(width, FLOOR_ULPS * ulp(np.abs(np.nan_to_num(base[0].losses[:done])), precision))
    found = judge_curve(curves[0], curves[1], precision, floor=lambda: 0.0, width=lambda _: width)
    if found.chaotic:
        said = f"a run whose start moved by one unit of {precision} diverged: nothing can be judged; fewer steps help"
        return PortStage(name, "inconclusive", said)
    runs = f"of {len(moved[0])} nudged runs of each side"
    if found.first is not None:
        a, b = (curve[found.first] for curve in curves)
        said = f"the losses of update {found.first}: {a!r} and {b!r}, {found.multiple:.1f} times the envelope {runs}"
        return PortStage(name, "broken", said, multiple=found.multiple)
    worst, where = _worst_leaf(base, moved, precision, done)
    if worst > 1.0:
        step, leaf = where
        said = f"{leaf} after update {step}: {worst * ARRAY_LIMIT:.1f} times the envelope {runs}"
        return PortStage(name, "broken", said, multiple=worst * ARRAY_LIMIT)
    verdict: Verdict = "holds"
    said = (f"{done} updates: losses within {found.multiple:.1f} times the envelope {runs} (3 pass), leaves within "
            f"{worst * ARRAY_LIMIT:.1f} ({ARRAY_LIMIT:.0f} pass)")  # fmt: skip
    if done < steps:
        verdict, said = "inconclusive", f"{said}; values are not finite after that"
    return PortStage(name, verdict, said)


def _worst_leaf(base: list[_Run], moved: list[list[_Run]], precision: Precision, done: int
                ) -> tuple[float, tuple[int, str]]:  # fmt: skip
    """Return the largest difference of a leaf as a share of what passes, with its step and leaf."""
    worst, where = 0.0, (0, "")
    widest: dict[str, float] = {}
    for step in sorted(at for at in base[0].models if at <= done and at in base[1].models):
        for leaf, expected in base[0].models[step].items():
            got = base[1].models[step].get(leaf)
            if got is None:
                continue
            spread = [
                spread_of(run.models[step][leaf], one.models[step][leaf])
                for one, others in zip(base, moved, strict=True)
                for run in others
                if step in run.models
            ]
            widest[leaf] = max([widest.get(leaf, 0.0), *spread])
            scale = float(np.abs(expected).max(initial=0.0))
            limit = ARRAY_LIMIT * max(widest[leaf], float(FLOOR_ULPS * ulp(np.array([scale]), precision)[0]))
            share = spread_of(expected, got) / limit
            if share > worst:
                worst, where = share, (step, leaf)
    return worst, where
