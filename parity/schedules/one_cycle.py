"""One rise of the rate to its peak and one fall, with the momentum against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from parity.errors import ScheduleError
from parity.schedules.rule import Position, Single
from parity.schedules.values import Each, Groups, Number, Values, shown, spread

__all__ = ["OneCycle"]


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

    def next_rates(self, epoch: Number, groups: Groups, bases: Values, *, first: bool) -> Values:
        """Return the rates at a step."""
        phase, part = self._phase(epoch)
        low, high, end = (spread(value, len(bases)) for value in (self.initial_lr, self.max_lr, self.min_lr))
        starts, stops = (
            ((low, high), (high, low), (low, end))[phase]
            if len(self.ends) == 3
            else ((low, high), (high, end))[phase]
        )
        return tuple(self._anneal(a, b, part) for a, b in zip(starts, stops, strict=True))

    def next_momenta(self, epoch: Number, groups: Groups) -> Values | None:
        """Return the momenta at a step."""
        if not self.cycle_momentum:
            return groups.momenta
        phase, part = self._phase(epoch)
        low, high = (spread(value, len(groups.rates)) for value in (self.base_momentum, self.max_momentum))
        starts, stops = ((high, low), (low, high), (high, high))[phase]
        return tuple(self._anneal(a, b, part) for a, b in zip(starts, stops, strict=True))

    def _phase(self, epoch: Number) -> tuple[int, float]:
        """Return the phase of a step, from 0, and the part of it that is over."""
        if epoch > self.total_steps:
            raise self.error("total_steps", f"is {self.total_steps}: there is no rate for step {epoch}")
        last = len(self.ends) - 1
        phase = next((number for number, end in enumerate(self.ends) if epoch <= end), last)
        start = self.ends[phase - 1] if phase else 0.0
        return phase, (epoch - start) / (self.ends[phase] - start)

    def _anneal(self, start: float, end: float, part: float) -> float:
        if self.anneal_strategy == "cos":
            return end + (start - end) / 2.0 * (math.cos(math.pi * part) + 1)
        return (end - start) * part + start
