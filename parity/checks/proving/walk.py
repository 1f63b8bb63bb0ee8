"""The updates of a trainer and its port, one after the other, up to the first after which something parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.progress import tell
from parity.checks.proving.averages import average_of
from parity.checks.proving.lockstep import AHEAD, MODEL, QUIET_NOISE, SLOW, Lane, SlotGap, begin_lanes, gaps_of
from parity.checks.proving.losses import Pairing
from parity.checks.proving.sources import PortTrainer
from parity.errors import ParityError

__all__ = ["FURTHER", "TwoWalks", "go_on", "scaled", "still", "walk_updates"]

MOST_NOISE = 1e-6
"""Relative movement of the loss by one unit in the last place at the start above which nothing can be judged: a
difference that matters would pass."""


FIRST_WIDER = 3
"""Seed of the first of the runs that measure noise once more."""

WIDER = 8
"""Runs of each side by which noise is measured again where what parts is near to it."""

WIDER_SECONDS = 20.0
"""Seconds that these may take."""

FURTHER = 3
"""Updates that both make beyond the one after which they part: `lockstep.AHEAD` + 3 of them are kept."""


@dataclass
class TwoWalks:
    """What was found of both."""

    pairing: Pairing
    lanes: list[Lane]
    steps: int = 0
    """Updates that were asked for."""
    done: int = 0
    """Completed updates that were compared."""
    what: str = ""
    """What parts: `loss`, `MODEL`, or a slot of the first; empty where nothing does."""
    gap: SlotGap | None = None
    losses: tuple[float, float] = (0.0, 0.0)
    """Of the last update that was compared."""
    worst: float = 0.0
    """Largest relative difference of a loss that passed."""
    noise: float = 0.0
    """Largest relative movement of a loss by one unit in the last place at the start."""
    suspects: dict[str, tuple[int, SlotGap]] = field(default_factory=dict)
    """LeafSlots of the first without an equal in the second, with the update after which they had none any more."""
    extra: tuple[str, ...] = ()
    """LeafSlots of the second without an equal in the first."""
    matched: Mapping[str, str] = field(default_factory=dict)
    """LeafSlots of the first to equal ones of the second, after the last update that was compared."""
    equal_at_first: tuple[str, ...] = ()
    """LeafSlots of the first that had an equal after the first update."""
    chaotic: bool = False
    lost: bool = False
    """Whether a state holds values that are not finite, on both sides: nothing can be judged from then on."""
    silent: bool = False
    """Whether a step returned no loss."""
    given: dict[int, object] = field(default_factory=dict)
    """What is known of the gradients that each run was given, where causes asked for it."""
    only: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    """Leaves of each run's own model that are looked at, and with them the slots that have those; all where empty."""
    widened: bool = False
    """Whether more runs measured the noise, because what parted was near it."""
    clouded: str = ""
    """Why what parts may be the rounding of a cast that could not be left out: nothing can be judged then."""

    @property
    def doubtful(self) -> bool:
        """Whether what parts is near to its noise, which few runs may have measured too small."""
        if self.what == "loss":
            gap = abs(self.losses[0] - self.losses[1]) / max(abs(self.losses[0]), 1e-300)
            return gap <= QUIET_NOISE * self.noise  # not a number is never near
        return self.what == MODEL and self.gap is not None and self.gap.doubtful


def walk_updates(pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]],
                 steps: int, *, lift: bool = False, limit: float = FLOAT64_LIMIT) -> TwoWalks:  # fmt: skip
    """Train both from one set of values, and compare losses and states after every update.

    Args:
        pairing: Of the models.
        first: The trainer.
        second: Its port.
        values: Of the leaves of the first model.
        steps: Updates.
        lift: As of `parity.contract.TrainerProbe.begin`.
        limit: Relative distance that passes, of losses and of leaves.

    Raises:
        SpecError: The user's code fails, or a state does not hold the model's parameters.
    """
    walk = _walked(pairing, first, second, values, steps, lift, limit, zeros=True)
    some = {bool(np.any(value)) for value in values.values()}
    if walk.chaotic and len(some) == 2:
        # a trust ratio is 1 at a leaf of zeros and nearly 0 beside it: that start is another one, no rounding
        walk = _walked(pairing, first, second, values, steps, lift, limit, zeros=False)
    return walk


def _walked(pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]],
            steps: int, lift: bool, limit: float, *, zeros: bool) -> TwoWalks:  # fmt: skip
    lanes = begin_lanes(pairing, first, second, values, range(2), lift=lift, zeros=zeros)
    walk = TwoWalks(pairing, lanes, steps)
    judge = _Judge(walk, limit)

    def more_lanes(seeds: range, done: int) -> None:
        for lane in begin_lanes(pairing, first, second, values, seeds, lift=lift, zeros=zeros):
            for step in range(done):
                lane.advance(step)
            if lanes[0].homes:
                lane.settle(pairing.over(values) if lane.second else values)
            lanes.append(lane)

    def parts(done: int) -> bool:
        if not judge.parts(done):
            return False
        made = len(lanes[0].moments) - 1
        wanted = WIDER if not walk.widened and walk.doubtful else 0
        runs = min(wanted, int(WIDER_SECONDS / max(made * sum(lane.seconds for lane in lanes[:2]), 1e-9)))
        if runs < 1:
            return True
        # two runs of noise are few where a leaf is moved by rounding alone, such as a bias before a batch norm that
        # Adam divides by its root: what parts is believed once more runs leave it outside
        walk.widened = True
        tell(f"{runs} more nudged runs")
        more_lanes(range(FIRST_WIDER, FIRST_WIDER + runs), made)
        walk.what, walk.gap = "", None
        return judge.parts(done)

    for step in range(steps):
        if step % 10 == 0:
            tell(f"update {step} of {steps}")
        for lane in lanes:
            lane.advance(step)
        if step == 0 and sum(lane.seconds for lane in lanes) < SLOW * len(lanes):
            more_lanes(range(2, FIRST_WIDER), 1)
        if step + 1 == min(AHEAD, steps):
            for lane in lanes:
                lane.settle(pairing.over(values) if lane.second else values)
            for done in range(1, step + 2):
                if parts(done):
                    break
        elif step + 1 > AHEAD:
            parts(step + 1)
        if walk.what or walk.chaotic or walk.lost:
            break
    tell()
    judge.end()
    return walk


class _Judge:
    """Compares both states after one update after the other."""

    def __init__(self, walk: TwoWalks, limit: float) -> None:
        self.walk, self.limit = walk, limit
        self.floors: dict[tuple[str, str], dict[str, float]] = {}
        self.candidates: dict[str, set[str]] = {}
        self.back: dict[str, set[str]] = {}

    def parts(self, done: int) -> bool:
        """Return whether something parts after so many updates."""
        walk, lanes = self.walk, self.walk.lanes
        walk.done = done
        self._follow_slots(done)
        if done == 1:
            walk.equal_at_first = tuple(sorted(slot for slot, others in self.candidates.items() if others))
        losses = [lane.moments[done].loss for lane in lanes]
        walk.losses = losses[0], losses[1]
        walk.lost = all(not _finite(lane.moments[done].slots[MODEL]) for lane in lanes[:2])
        if walk.lost:
            return True
        if any(np.isnan(losses[:2])) and not all(np.isnan(losses[:2])):
            walk.what = "loss"
            return True
        if not np.isnan(losses[0]):
            scale = max(abs(losses[0]), 1e-300)
            base = {False: losses[0], True: losses[1]}
            moved = max((abs(lane.moments[done].loss - base[lane.second]) for lane in lanes[2:]), default=0.0)
            walk.noise = max(walk.noise, moved / scale)
            walk.chaotic = not walk.noise < MOST_NOISE
            gap = abs(losses[0] - losses[1]) / scale
            if walk.chaotic:
                return True
            if gap > max(self.limit, 3.0 * walk.noise):
                walk.what = "loss"
                return True
            walk.worst = max(walk.worst, gap)
        else:
            walk.silent = True
        walk.gap = gaps_of(walk.pairing, lanes, done, MODEL, MODEL, self._floor(MODEL, MODEL), self.limit)
        if walk.gap is not None:
            walk.what = MODEL
            return True
        for slot, (since, gap_of) in walk.suspects.items():
            if since <= done and average_of(lanes[0], slot, done) is not None:
                walk.what, walk.gap = slot, gap_of
                return True
        for slot in self._extra(done):
            if average_of(lanes[1], slot, done) is not None:
                walk.what = slot
                walk.gap = SlotGap("", slot, tuple(lanes[1].moments[done].slots[slot]), float("inf"))
                return True
        return False

    def end(self) -> None:
        """Keep which slot is which."""
        self.walk.matched = {slot: sorted(others)[0] for slot, others in self.candidates.items() if others}
        self.walk.extra = tuple(self._extra(self.walk.done)) if self.walk.done else ()

    def _floor(self, one: str, two: str) -> dict[str, float]:
        return self.floors.setdefault((one, two), {})

    def _follow_slots(self, done: int) -> None:
        """Take those slots of the second away that are no longer equal to one of the first."""
        here, there = (lane.moments[done].slots for lane in self.walk.lanes[:2])
        for slot in here:
            if slot == MODEL or _zero(here[slot]) or _counts(here[slot], done):
                continue
            if slot not in self.candidates:
                self.candidates[slot] = set(there)
            gaps = {
                other: gaps_of(
                    self.walk.pairing, self.walk.lanes, done, slot, other, self._floor(slot, other), self.limit
                )
                for other in self.candidates[slot]
            }
            left = {other for other, gap in gaps.items() if gap is None}
            if not left and slot not in self.walk.suspects:
                known = {
                    o: g for o, g in gaps.items() if g is not None and o != MODEL and not _zero(there.get(o, {}))
                }
                nearest = min(
                    known.values(), key=lambda g: (g.gap, len(g.leaves)), default=SlotGap(slot, "", (), np.inf)
                )
                self.walk.suspects[slot] = (done, nearest)
            self.candidates[slot] = left

    def _extra(self, done: int) -> list[str]:
        """Return slots of the second that move and that no slot of the first equals."""
        taken = {other for others in self.candidates.values() for other in others}
        taken |= {gap.other for _, gap in self.walk.suspects.values()}
        there = self.walk.lanes[1].moments[done].slots
        start = self.walk.lanes[1].moments[0].slots
        return [
            slot
            for slot, held in there.items()
            if slot != MODEL and slot not in taken and not _zero(held)
            and not all(np.array_equal(held[leaf], start.get(slot, {}).get(leaf, np.nan)) for leaf in held)
        ]  # fmt: skip


def _finite(held: Mapping[str, NDArray[np.float64]]) -> bool:
    return all(bool(np.isfinite(array).all()) for array in held.values())


def go_on(walk: TwoWalks) -> None:
    """Have both runs make some further updates, each from where it is, as far as updates were asked for.

    Args:
        walk: Two trainers that part.
    """
    for lane in walk.lanes[:2]:
        while len(lane.moments) <= min(walk.done + FURTHER, walk.steps):
            try:
                lane.advance(len(lane.moments) - 1)
            except ParityError:
                return


def still(walk: TwoWalks) -> bool:
    """Return whether no parameter of the first trainer has moved: nothing was trained."""
    lane = walk.lanes[0]
    start, now = lane.moments[0].slots[MODEL], lane.moments[walk.done].slots[MODEL]
    params = [leaf for leaf in now if leaf not in lane.trainer.model.statistics]
    return all(np.array_equal(start[leaf], now[leaf]) for leaf in params)


def _counts(held: Mapping[str, NDArray[np.float64]], done: int) -> bool:
    """Return whether a slot is a count of updates: that of a parameter without axes has the shape of a moment."""
    return all(array.size == 1 and float(array.ravel()[0]) == done for array in held.values())


def _zero(held: Mapping[str, NDArray[np.float64]]) -> bool:
    return not any(np.any(array) for array in held.values())


def scaled(walk: TwoWalks, slot: str) -> float | None:
    """Return c where a slot of the second is c times one of the first at all leaves; None where there is no such one.

    Args:
        walk: Two trainers after some updates.
        slot: Of the first, without an equal in the second.
    """
    _, gap = walk.suspects[slot]
    one = walk.pairing.over(walk.lanes[0].moments[walk.done].slots[slot])
    two = walk.lanes[1].moments[walk.done].slots.get(gap.other, {})
    if not one or set(one) - set(two):
        return None
    a, b = (np.concatenate([held[leaf].ravel() for leaf in one]) for held in (one, two))
    if not np.any(a) or not np.any(b):
        return None
    factor = float(a @ b) / float(a @ a)
    return factor if float(np.abs(b - factor * a).max()) <= 1e-9 * float(np.abs(b).max()) else None
