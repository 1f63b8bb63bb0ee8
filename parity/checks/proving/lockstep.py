"""A trainer and its port in lock step: every array of both states after each update, by the map of their models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.models import NOISE
from parity.checks.noise import distance, one_ulp_away, spread_of
from parity.checks.proving.losses import Pairing, nudged_batch
from parity.checks.proving.slots import choose_model, slots_of
from parity.checks.proving.sources import PortTrainer
from parity.contract import StateView
from parity.errors import SpecError

__all__ = [
    "AHEAD",
    "MODEL",
    "QUIET_NOISE",
    "SLOW",
    "Lane",
    "LeafSlots",
    "SlotGap",
    "SlotMoment",
    "begin_lanes",
    "gaps_of",
]

LeafSlots = Mapping[str, Mapping[str, NDArray[np.float64]]]

MODEL = "the model"
"""Slot that holds the parameters and running statistics themselves."""

AHEAD = 3
"""Updates after which it is decided which slot is the model itself."""

QUIET = 1e-6
"""Share of the largest move below which an element has moved by rounding alone: no gradient reaches it, such as the
bias of keys, and Adam divides what rounding leaves by its root."""

QUIET_NOISE = 30.0
"""Times what a unit in the last place moves such an element by which it may differ: of two draws of rounding one is
now and then several times the other, and noise is known from two runs."""

SLOW = 0.1
"""Seconds of an update above which noise is measured by one nudged run of each side, and not by two."""


@dataclass
class SlotMoment:
    """A state at one step, its slots by the leaves of the model."""

    loss: float
    view: StateView
    slots: LeafSlots


@dataclass
class Lane:
    """One run of one trainer."""

    trainer: PortTrainer
    second: bool
    nudged: bool
    moments: list[SlotMoment] = field(default_factory=list)
    homes: tuple[str, ...] = ()
    """LeafSlots that together are the model itself: its parameters, and its running statistics; they are `MODEL`."""
    run: object = None
    seconds: float = 0.0
    """Of the processor, for the last update."""
    gradients: dict[int, Mapping[str, NDArray[np.float64]]] = field(default_factory=dict)
    """Of its own loss before a step, where causes asked for them."""
    lift: bool = False
    """Whether its casts are left out, as of `parity.contract.TrainerProbe.begin`."""
    kept: Mapping[str, float] = field(default_factory=dict)
    """What slots keep of themselves at each update, where that is known already."""

    def advance(self, step: int) -> None:
        """Make the update of a step, and keep the state after it."""
        began = time.process_time()  # what it costs, also where other work goes on
        batch = self.trainer.batch(step)
        loss = self.run.step(nudged_batch(batch, step) if self.nudged else batch)  # type: ignore[attr-defined]
        self.seconds = time.process_time() - began
        self.keep(loss)

    def keep(self, loss: float) -> None:
        """Keep the state as it is; what lies more than `AHEAD` + 2 steps back is dropped, but for the first."""
        view = self.run.view()  # type: ignore[attr-defined]
        self.moments.append(self._settled(SlotMoment(loss, view, slots_of(view, self.trainer.model))))
        self.drop()

    def drop(self) -> None:
        """Drop the state that lies more than `AHEAD` + 2 steps back."""
        old = len(self.moments) - AHEAD - 3
        if old > 1:
            self.moments[old] = SlotMoment(self.moments[old].loss, StateView({}), {})

    def set_from(self, at: int) -> str:
        """Return the slot that the parameters are set from at an update, as from the slow ones of a lookahead.

        Args:
            at: The update, of which both ends are kept.
        """
        before = self.moments[at - 1].slots
        for slot in self.equal_slots(at):
            if any(not np.array_equal(one, before[MODEL][leaf]) for leaf, one in before.get(slot, {}).items()):
                return slot
        return ""

    def equal_slots(self, at: int) -> list[str]:
        """Return the slots that moved at an update and are the parameters after it.

        Args:
            at: The update.
        """
        before, after = self.moments[at - 1].slots, self.moments[at].slots
        params = after.get(MODEL, {}).keys() - self.trainer.model.statistics
        found = []
        for slot, held in after.items():
            # what is the very arrays of the parameters at the start is a slot of its own after one update
            old = before.get(slot, before.get(MODEL, {}) if at == 1 else {})
            if slot == MODEL or not params or not params <= held.keys() & old.keys():
                continue
            same = all(np.array_equal(held[leaf], after[MODEL][leaf]) for leaf in params)
            if same and any(not np.array_equal(old[leaf], held[leaf]) for leaf in params):
                found.append(slot)
        return found

    def settle(self, given: Mapping[str, NDArray[np.float64]]) -> None:
        """Decide which slots are the model itself, from the first moments.

        Args:
            given: The values that it was begun from.

        Raises:
            SpecError: No part of the state holds the model's parameters.
        """
        model = self.trainer.model
        seen = [moment.slots for moment in self.moments if moment.slots]
        params = [leaf for leaf in model.leaves if leaf not in model.statistics]
        home = choose_model(given, seen, params, self.moments[0].view.model)
        if home is None:
            held = ", ".join(list(seen[0])[:5]) or "no arrays"
            raise SpecError("start", f"of {self.trainer.name}: its state holds no copy of the parameters under the "
                            f"names of the model, such as {params[0]}; it has {held}")  # fmt: skip
        homes = [home]
        if model.statistics and not model.statistics <= set(seen[0][home]):
            other = choose_model(given, seen, sorted(model.statistics), None)
            if other is None:
                raise SpecError(
                    "start", f"of {self.trainer.name}: its state holds no running statistics of the model"
                )
            homes.append(other)
        self.homes = tuple(homes)
        self.moments = [self._settled(moment) for moment in self.moments]

    def _settled(self, moment: SlotMoment) -> SlotMoment:
        if not self.homes or not moment.slots:
            return moment
        merged: dict[str, NDArray[np.float64]] = {}
        for home in self.homes:
            merged |= moment.slots.get(home, {})
        rest = {slot: held for slot, held in moment.slots.items() if slot not in self.homes}
        return SlotMoment(moment.loss, moment.view, {MODEL: merged, **rest})


def begin_lanes(pairing: Pairing, first: PortTrainer, second: PortTrainer, values: Mapping[str, NDArray[np.float64]],
                seeds: range, *, lift: bool = False, zeros: bool = True) -> list[Lane]:  # fmt: skip
    """Begin both trainers from one set of values, and from values that are nudged.

    Args:
        pairing: Of their models.
        first: The trainer.
        second: Its port.
        values: Of the leaves of the first model.
        seeds: One run of each for each: 0 begins at the values, others one unit in the last place away.
        lift: As of `parity.contract.TrainerProbe.begin`.
        zeros: Whether leaves that are zero everywhere are moved too.
    """
    lanes = []
    for seed in seeds:
        rng = np.random.default_rng([7, seed])
        start = values
        if seed:
            start = {leaf: one_ulp_away(v, rng.random(v.shape) < 0.5, "float64") if zeros or np.any(v) else v
                     for leaf, v in values.items()}  # fmt: skip
        for trainer, is_second in ((first, False), (second, True)):
            lane = Lane(trainer, is_second, seed > 0, lift=lift)
            lane.run = trainer.probe.begin(pairing.over(start) if is_second else start, lift=lift)
            lane.keep(float("nan"))
            lanes.append(lane)
    return lanes


@dataclass(frozen=True)
class SlotGap:
    """A slot of the first state that is no slot of the second at a step."""

    slot: str
    other: str
    """The slot of the second that is nearest, or the model's; empty where there is none."""
    leaves: tuple[str, ...]
    """Leaves of the second model at which they part."""
    gap: float
    """Largest difference, relative to the largest element of its leaf."""
    doubtful: bool = False
    """Whether no leaf parts by more than `QUIET_NOISE` times its noise: few runs may have measured too little."""


def gaps_of(pairing: Pairing, lanes: list[Lane], step: int, one: str, two: str, floor: Mapping[str, float],
            limit: float = FLOAT64_LIMIT) -> SlotGap | None:  # fmt: skip
    """Return at which leaves a slot of the first and one of the second part at a step; None where they do not.

    Args:
        pairing: Of the models.
        lanes: Both runs first, then nudged ones.
        step: Completed steps.
        one: Slot of the first.
        two: Slot of the second.
        floor: Largest movement of each leaf by noise up to this step, which is updated.
        limit: Share of its largest element by which a leaf may differ.

    Numerics: a leaf may differ by the limit (1e-12 of its largest element), by three times what one unit in the last
    place at the start has moved it up to this step, or by 16 units in the last place of the largest element of the
    slot, times the root of the updates: each rounds anew, and what began at zero holds nothing but updates. Elements
    that moved less than a millionth of the largest move may differ by thirty times their noise.
    """
    expected = pairing.over(lanes[0].moments[step].slots.get(one, {}))
    got = lanes[1].moments[step].slots.get(two, {})
    noise: dict[str, float] = floor  # type: ignore[assignment]
    for lane in lanes[2:]:
        held = lane.moments[step].slots.get(two if lane.second else one, {})
        moved, base = (held, got) if lane.second else (pairing.over(held), expected)
        for path, array in moved.items():
            if path in base:
                noise[path] = max(noise.get(path, 0.0), spread_of(array, base[path]))
    largest = max((float(np.abs(a).max(initial=0.0)) for a in expected.values()), default=0.0)
    before = pairing.over(lanes[0].moments[0].slots.get(one, {}))
    before = {path: before.get(path, np.zeros_like(array)) for path, array in expected.items()}
    most = max((spread_of(array, before[path]) for path, array in expected.items()), default=0.0)
    parted: list[str] = []
    worst, doubtful = 0.0, True
    own = pairing.over(lanes[0].moments[step].slots.get(MODEL, {}))
    for path, array in expected.items():
        there = got.get(path)
        scale = float(np.abs(array).max(initial=0.0))
        if there is None:
            # an average that is a module holds a copy of the running statistics, which one of parameters does without
            copied = one != MODEL and path in pairing.subjects.second.statistics
            copied = copied and np.array_equal(array, own.get(path, np.nan))
            if scale > 0.0 and not copied:
                parted.append(path)
                worst, doubtful = float("inf"), False
            continue
        scale = max(scale, float(np.abs(there).max(initial=0.0)))
        apart = distance(array, np.asarray(there))
        still = np.maximum(abs(array - before[path]), abs(there - before[path])) <= QUIET * most
        gap = float(np.where(still, apart * 3.0 / QUIET_NOISE, apart).max(initial=0.0))
        if gap > max(limit * scale, 3.0 * noise.get(path, 0.0), NOISE * largest * max(step, 1) ** 0.5):
            parted.append(path)
            worst = max(worst, gap / max(scale, 1e-300))
            doubtful = doubtful and gap <= QUIET_NOISE * noise.get(path, 0.0)
    return SlotGap(one, two, tuple(parted), worst, doubtful) if parted else None
