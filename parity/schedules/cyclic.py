"""A rate that goes up and down for ever, with the momentum against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from parity.errors import ScheduleError
from parity.schedules.rule import Position, Single
from parity.schedules.values import Each, Groups, Number, Values, spread

__all__ = ["Cyclic"]

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

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        cycle, height = self._height(epoch)
        scale = self._scale(cycle, epoch)
        pairs = zip(bases, spread(self.max_lr, len(bases)), strict=True)
        return tuple(base + (peak - base) * height * scale for base, peak in pairs)

    def next_momenta(self, epoch: Number, groups: Groups) -> Values | None:
        """Return the momenta at a step."""
        if not self.cycle_momentum:
            return groups.momenta
        count = len(groups.rates)
        cycle, height = self._height(epoch)
        scale = self._scale(cycle, epoch)
        pairs = zip(spread(self.base_momentum, count), spread(self.max_momentum, count), strict=True)
        return tuple(high - (high - low) * height * scale for low, high in pairs)

    def _height(self, epoch: Number) -> tuple[int, float]:
        """Return the number of the cycle, from 1, and how high in it the step is, 0 to 1."""
        cycle = math.floor(1 + epoch / self.total_size)
        x = 1.0 + epoch / self.total_size - cycle
        if x <= self.step_ratio:
            return cycle, x / self.step_ratio
        return cycle, (x - 1) / (self.step_ratio - 1)

    def _scale(self, cycle: int, epoch: Number) -> float:
        if self.mode == "triangular":
            return 1.0
        if self.mode == "triangular2":
            return 1 / (2.0 ** (cycle - 1))
        if self.mode == "exp_range":
            return float(self.gamma**epoch)
        index = cycle - 1 if self.scale_mode == "cycle" else epoch
        if not 0 <= index < len(self.table) or index != int(index):
            raise self.error("table", f"has {len(self.table)} factors, and step {epoch} needs number {index}")
        return self.table[int(index)]
