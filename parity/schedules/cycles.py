"""Rules that raise and lower the rate, and the momentum against it: cyclic, one-cycle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from parity.errors import ScheduleError
from parity.schedules.rule import Groups, Number, Position, Single, Values, shown, spread

__all__ = ["Cyclic", "OneCycle"]

Each = Number | tuple[Number, ...]
"""One value for all groups, or one for each."""

MODES = ("triangular", "triangular2", "exp_range", "table")


@dataclass(frozen=True, kw_only=True)
class Cyclic(Single):
    """A triangle between `base_lr` and `max_lr`, repeated, its height scaled; momentum falls as the rate rises.

    `Cyclic.of` takes PyTorch's arguments; the fields are what PyTorch computes with.

    Source: `torch.optim.lr_scheduler.CyclicLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number or no known choice, or `table` does not go with `mode`.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(Cyclic.of(0.5, 1.0, step_size_up=2), [1.0]).take(5).rates[:, 0].tolist()
        [0.5, 0.75, 1.0, 0.75, 0.5]
    """

    kind: ClassVar[str] = "cyclic"

    base_lr: Each
    """Lowest rate."""
    max_lr: Each
    """Highest rate."""
    total_size: Number
    """Steps of a cycle."""
    step_ratio: Number
    """Part of a cycle in which the rate rises."""
    mode: str = "triangular"
    """`triangular`: no scaling; `triangular2`: half the height in each cycle; `exp_range`: `gamma` to the power of
    the step; `table`: the factors in `table`."""
    gamma: Number = 1.0
    """Base of the scaling `exp_range`."""
    table: tuple[Number, ...] = ()
    """Factors on the height, of cycle 1, 2, ... or of step 0, 1, ...; for the mode `table` only."""
    scale_mode: str = "cycle"
    """Whether the factors of the table are those of a `cycle`, or of a step (`iterations`)."""
    cycle_momentum: bool = True
    """Whether the momentum moves."""
    base_momentum: Each = 0.8
    """Lowest momentum."""
    max_momentum: Each = 0.9
    """Highest momentum."""

    @classmethod
    def of(
        cls,
        base_lr: Each,
        max_lr: Each,
        step_size_up: Number = 2000,
        step_size_down: Number | None = None,
        *,
        mode: str = "triangular",
        gamma: Number = 1.0,
        table: Sequence[Number] = (),
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: Each = 0.8,
        max_momentum: Each = 0.9,
    ) -> Cyclic:
        """Return the rule for PyTorch's arguments; a `scale_fn` is given as a table of its values.

        Args:
            base_lr: Lowest rate, one for all groups or one for each.
            max_lr: Highest rate, likewise.
            step_size_up: Steps in which the rate rises.
            step_size_down: Steps in which it falls; by default as many.
            mode: `triangular`, `triangular2` or `exp_range`; a table replaces it.
            gamma: As the field.
            table: As the field.
            scale_mode: As the field; `exp_range` without a table always scales each step.
            cycle_momentum: As the field.
            base_momentum: As the field.
            max_momentum: As the field.

        Raises:
            ScheduleError: A cycle has no steps, or a constant is refused as by the class.

        Example:
            >>> rule = Cyclic.of(0.1, 1.0, step_size_up=4, step_size_down=12)
            >>> rule.total_size, rule.step_ratio
            (16.0, 0.25)
        """
        down = step_size_up if step_size_down is None else step_size_down
        size = float(step_size_up) + float(down)
        if not size > 0:
            raise ScheduleError("cyclic.step_size_up", f"a cycle must have steps, got {step_size_up!r} and {down!r}")
        return cls(
            base_lr=base_lr,
            max_lr=max_lr,
            total_size=size,
            step_ratio=float(step_size_up) / size,
            mode="table" if table else mode,
            gamma=gamma,
            table=tuple(table),
            scale_mode="iterations" if mode == "exp_range" and not table else scale_mode,
            cycle_momentum=cycle_momentum,
            base_momentum=base_momentum,
            max_momentum=max_momentum,
        )

    def __post_init__(self) -> None:
        self.require_values("base_lr", "max_lr", "base_momentum", "max_momentum")
        self.require_number("total_size", "step_ratio", "gamma")
        self.require_choice("mode", MODES)
        self.require_choice("scale_mode", ("cycle", "iterations"))
        self.require_flag("cycle_momentum")
        if (self.mode == "table") != bool(self.table):
            raise self.error("table", "holds the factors of the mode `table`, and of no other")
        if self.table:
            self.require_values("table")

    @property
    def momentum(self) -> bool:
        """Whether the rule moves the momentum."""
        return self.cycle_momentum

    def fit(self, count: int) -> None:
        """Check the rule against a number of parameter groups."""
        self.require_fit(count, "base_lr", "max_lr", "base_momentum", "max_momentum")

    def build(self, groups: Groups) -> tuple[Position, Groups]:
        """Return the position and values after construction; the first rates are the initial ones of the groups."""
        bases = spread(self.base_lr, len(groups.rates))
        momenta = spread(self.max_momentum, len(bases)) if self.cycle_momentum else groups.momenta
        position, groups = super().build(groups._replace(rates=bases, momenta=momenta))
        return replace(position, bases=bases), groups

    def next_rates(self, epoch: int, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        cycle, height = self._height(epoch)
        scale = self._scale(cycle, epoch)
        pairs = zip(bases, spread(self.max_lr, len(bases)), strict=True)
        return tuple(base + (peak - base) * height * scale for base, peak in pairs)

    def next_momenta(self, epoch: int, groups: Groups) -> Values | None:
        """Return the momenta at a step."""
        if not self.cycle_momentum:
            return groups.momenta
        count = len(groups.rates)
        cycle, height = self._height(epoch)
        scale = self._scale(cycle, epoch)
        pairs = zip(spread(self.base_momentum, count), spread(self.max_momentum, count), strict=True)
        return tuple(high - (high - low) * height * scale for low, high in pairs)

    def _height(self, epoch: int) -> tuple[int, float]:
        """Return the number of the cycle, from 1, and how high in it the step is, 0 to 1."""
        cycle = math.floor(1 + epoch / self.total_size)
        x = 1.0 + epoch / self.total_size - cycle
        if x <= self.step_ratio:
            return cycle, x / self.step_ratio
        return cycle, (x - 1) / (self.step_ratio - 1)

    def _scale(self, cycle: int, epoch: int) -> float:
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return 1 / (2.0 ** (cycle - 1))
        if self.mode == "exp_range":
            return float(self.gamma**epoch)
        index = cycle - 1 if self.scale_mode == "cycle" else epoch
        if not 0 <= index < len(self.table):
            raise self.error("table", f"has {len(self.table)} factors, and step {epoch} needs number {index}")
        return self.table[index]


@dataclass(frozen=True, kw_only=True)
class OneCycle(Single):
    """A rise to the peak and a fall far below the start, in two or three phases; momentum moves against the rate.

    `OneCycle.of` takes PyTorch's arguments; the fields are what PyTorch computes with.

    Source: `torch.optim.lr_scheduler.OneCycleLR` (torch 2.13).

    Raises:
        ScheduleError: A constant is no finite number or no known choice, `total_steps` is no integer of at least 1,
            or `ends` does not hold two or three steps.

    Example:
        >>> from parity.schedules import Schedule
        >>> Schedule(OneCycle.of(1.0, 6, pct_start=0.5, div_factor=10.0), [1.0]).take(6).rates[:, 0].round(3).tolist()
        [0.1, 0.55, 1.0, 0.75, 0.25, 0.0]
    """

    kind: ClassVar[str] = "one_cycle"

    initial_lr: Each
    """Rate at the start."""
    max_lr: Each
    """Rate at the peak."""
    min_lr: Each
    """Rate at the end."""
    total_steps: int
    """Steps in all; there is no rate for a later one."""
    ends: tuple[Number, ...]
    """Step at which each of the two or three phases ends; fractions occur."""
    anneal_strategy: str = "cos"
    """Shape of a phase, `cos` or `linear`."""
    cycle_momentum: bool = True
    """Whether the momentum moves."""
    base_momentum: Each = 0.85
    """Momentum at the peak."""
    max_momentum: Each = 0.95
    """Momentum at the start and at the end."""

    @classmethod
    def of(
        cls,
        max_lr: Each,
        total_steps: int,
        *,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Each = 0.85,
        max_momentum: Each = 0.95,
        div_factor: Number = 25.0,
        final_div_factor: Number = 1e4,
        three_phase: bool = False,
    ) -> OneCycle:
        """Return the rule for PyTorch's arguments.

        Args:
            max_lr: Rate at the peak, one for all groups or one for each.
            total_steps: Steps in all.
            pct_start: Part of the steps in which the rate rises, in [0, 1].
            anneal_strategy: As the field.
            cycle_momentum: As the field.
            base_momentum: As the field.
            max_momentum: As the field.
            div_factor: The peak over the rate at the start; not 0.
            final_div_factor: The rate at the start over that at the end; not 0.
            three_phase: Whether the rate falls to that of the start in as many steps as it rose, and then to the end;
                otherwise it falls from the peak to the end in one phase.

        Raises:
            ScheduleError: `pct_start` or a divisor is outside of its range, or a constant is refused as by the class.

        Example:
            >>> OneCycle.of(1.0, 100, div_factor=10.0).ends
            (29.0, 99)
        """
        if not 0 <= pct_start <= 1:
            raise ScheduleError("one_cycle.pct_start", f"must be in [0, 1], got {pct_start!r}")
        if div_factor == 0 or final_div_factor == 0:
            raise ScheduleError("one_cycle.div_factor", "divides the rate and must not be 0")
        peaks = max_lr if isinstance(max_lr, tuple) else (max_lr,)
        initial = tuple(peak / div_factor for peak in peaks)
        final = tuple(rate / final_div_factor for rate in initial)
        first, last = float(pct_start * total_steps) - 1, total_steps - 1
        whole = isinstance(max_lr, tuple)
        return cls(
            initial_lr=initial if whole else initial[0],
            max_lr=max_lr,
            min_lr=final if whole else final[0],
            total_steps=total_steps,
            ends=(first, float(2 * pct_start * total_steps) - 2, last) if three_phase else (first, last),
            anneal_strategy=anneal_strategy,
            cycle_momentum=cycle_momentum,
            base_momentum=base_momentum,
            max_momentum=max_momentum,
        )

    def __post_init__(self) -> None:
        self.require_values("initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "ends")
        self.require_count("total_steps")
        self.require_choice("anneal_strategy", ("cos", "linear"))
        self.require_flag("cycle_momentum")
        if not isinstance(self.ends, tuple) or len(self.ends) not in (2, 3):
            raise self.error("ends", f"must hold the ends of two or three phases, got {shown(self.ends)}")

    @property
    def momentum(self) -> bool:
        """Whether the rule moves the momentum."""
        return self.cycle_momentum

    def fit(self, count: int) -> None:
        """Check the rule against a number of parameter groups."""
        self.require_fit(count, "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum")

    def build(self, groups: Groups) -> tuple[Position, Groups]:
        """Return the position and values after construction; the initial rates of the groups become this rule's."""
        count = len(groups.rates)
        momenta = spread(self.max_momentum, count) if self.cycle_momentum else groups.momenta
        return super().build(groups._replace(initial=spread(self.initial_lr, count), momenta=momenta))

    def next_rates(self, epoch: int, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        phase, part = self._phase(epoch)
        low, high, end = (spread(value, len(bases)) for value in (self.initial_lr, self.max_lr, self.min_lr))
        starts, stops = (
            ((low, high), (high, low), (low, end))[phase]
            if len(self.ends) == 3
            else ((low, high), (high, end))[phase]
        )
        return tuple(self._anneal(a, b, part) for a, b in zip(starts, stops, strict=True))

    def next_momenta(self, epoch: int, groups: Groups) -> Values | None:
        """Return the momenta at a step."""
        if not self.cycle_momentum:
            return groups.momenta
        phase, part = self._phase(epoch)
        low, high = (spread(value, len(groups.rates)) for value in (self.base_momentum, self.max_momentum))
        starts, stops = ((high, low), (low, high), (high, high))[phase]
        return tuple(self._anneal(a, b, part) for a, b in zip(starts, stops, strict=True))

    def _phase(self, epoch: int) -> tuple[int, float]:
        """Return the phase of a step, from 0, and the part of it that is over."""
        if epoch > self.total_steps:
            raise self.error("total_steps", f"is {self.total_steps}: there is no rate for step {epoch}")
        start: Number = 0.0
        for phase, end in enumerate(self.ends):
            if epoch <= end or phase == len(self.ends) - 1:
                return phase, (epoch - start) / (end - start)
            start = end
        raise AssertionError("the last phase takes every step")

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start
