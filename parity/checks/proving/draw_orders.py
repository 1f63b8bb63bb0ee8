"""Random numbers that both batch functions draw from generators of one seed, in another order or with further draws.

Both functions are called with generators that keep what is drawn. The one is then called once more with numbers that
were drawn in the order of the other: where it gives the other's batch, that order is all that differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.checks.proving.batch_causes import same_array
from parity.checks.proving.sources import PortSource, batch_of
from parity.contract import StepBatch
from parity.errors import SpecError

__all__ = ["draw_order_cause"]

MOST = 40
"""Draws of a generator above which no order is told."""

SHOWN = 6


@dataclass(frozen=True)
class _GeneratorCall:
    """One call of a generator, by what it is called with."""

    name: str
    given: str
    again: Callable[[np.random.Generator], Any] = field(compare=False)
    shape: tuple[int, ...] = field(compare=False, default=())

    @property
    def text(self) -> str:
        return f"{self.name}{list(self.shape)}" if self.shape else self.name


class _KeptGenerator:
    """A generator of NumPy whose draws are kept, or given in the order in which another one made them.

    Args:
        made: The generator.
        seed: What it was made of, as text.
        order: Draws of another one of the same seed; None for its own order.
    """

    def __init__(self, made: np.random.Generator, seed: str, order: Sequence[_GeneratorCall] | None) -> None:
        self._made, self.seed, self.draws = made, seed, list[_GeneratorCall]()
        self._held: dict[_GeneratorCall, list[Any]] = {}
        for draw in order or ():
            self._held.setdefault(draw, []).append(draw.again(made))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._made, name)
        if not callable(found):
            return found

        def drawn(*args: Any, **kwargs: Any) -> Any:
            def again(made: np.random.Generator) -> Any:
                return getattr(made, name)(*args, **kwargs)

            draw = _GeneratorCall(name, repr((args, sorted(kwargs.items()))), again)
            held = self._held.get(draw)
            value = held.pop(0) if held else again(self._made)
            self.draws.append(_GeneratorCall(name, draw.given, again, np.shape(value)))
            return value

        return drawn


def draw_order_cause(first: PortSource, second: PortSource, step: int, one: StepBatch, two: StepBatch) -> str:
    """Return that two batches are drawn from one generator in another order; empty where that is not what parts them.

    Args:
        first: The trainer.
        second: Its port.
        step: Whose batches part.
        one: The trainer's.
        two: The port's.
    """
    try:
        with _keeping({}) as here:
            batch_of(first, step)
        with _keeping({}) as there:
            batch_of(second, step)
        draws = [{each.seed: each.draws for each in side} for side in (here, there)]
        if draws[0].keys() != draws[1].keys() or len(draws[0]) != len(here) or len(draws[1]) != len(there):
            return ""
        apart = [seed for seed in draws[0] if draws[0][seed] != draws[1][seed]]
        if not apart or any(len(side[seed]) > MOST for side in draws for seed in apart):
            return ""
        for at, source, wanted in ((0, first, two), (1, second, one)):
            if any(Counter(draws[at][seed]) - Counter(draws[1 - at][seed]) for seed in apart):
                continue  # it draws what the other does not
            with _keeping({seed: draws[1 - at][seed] for seed in apart}):
                made = batch_of(source, step)
            if set(made) == set(wanted) and all(same_array(made[key], wanted[key]) for key in made):
                said = [", ".join(draw.text for draw in side[apart[0]][:SHOWN]) for side in draws]
                return f"random numbers of the step: drawn from one seed in the order {said[0]} here, {said[1]} there"
    except SpecError:
        pass
    return ""


@contextmanager
def _keeping(orders: dict[str, list[_GeneratorCall]]) -> Iterator[list[_KeptGenerator]]:
    """Have generators that are made meanwhile keep their draws, and put that back."""
    seen: list[_KeptGenerator] = []
    plain = np.random.default_rng

    def made(*args: Any, **kwargs: Any) -> Any:
        generator = plain(*args, **kwargs)
        if any(isinstance(one, np.random.Generator | np.random.BitGenerator) for one in args):
            return generator
        seed = repr((args, kwargs))
        seen.append(_KeptGenerator(generator, seed, orders.get(seed)))
        return seen[-1]

    np.random.default_rng = made
    try:
        yield seen
    finally:
        np.random.default_rng = plain
