"""The choice of how leaves are cut, one way for each shape, that leaves the fewest elements over.

Each way changes how many more pieces of each extent one model has than the other; the best two are taken at a time,
and where something is left over, two that were taken are made others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["descend"]


def descend(
    left: NDArray[np.int64], moves: NDArray[np.int64], sizes: NDArray[np.int64], units: NDArray[np.int64],
    costs: Sequence[int], without: int = -1, *, alike: bool = False,
) -> list[int]:  # fmt: skip
    """Return the moves that lead to the fewest elements left over, each the best of its time.

    One may be left out; and with it all that cut the same leaves into as many pieces of the same extents, of which
    another order of axes leads no other way.

    Args:
        left: How many more pieces of each key the first model has, `[keys]`.
        moves: What each way adds to that, `[ways, keys]`.
        sizes: Elements of a piece of each key, `[keys]`.
        units: The shape that each way cuts, `[ways]`.
        costs: How much each way does; of two that leave as much over, the cheaper one is taken.
        without: The way that is left out.
        alike: Whether those are left out with it that add the same.
    """
    chosen: list[int] = []
    apart = np.zeros(len(moves), bool)
    if without >= 0:
        apart[without] = True
    if without >= 0 and alike:
        apart = (moves == moves[without]).all(axis=1) & (units == units[without])
    price = np.array(costs) * 1e-6  # of two that leave as much, the simpler one
    while True:
        taken = {units[one] for one in chosen}
        free = [at for at in range(len(moves)) if not apart[at] and units[at] not in taken]
        best, step = float(np.abs(left) @ sizes), ()  # type: tuple[float, tuple[int, ...]]
        for at in free:
            after = left + moves[at]
            alone = float(np.abs(after) @ sizes + price[at])
            if alone < best - 0.5 or (step and alone < best):
                best, step = alone, (at,)
            others = [one for one in free if units[one] != units[at]]
            if others:
                both = np.abs(after + moves[others]) @ sizes + price[at] + price[others]
                nearest = int(np.argmin(both))
                if both[nearest] < best - 0.5 or (step and both[nearest] < best):
                    best, step = float(both[nearest]), (at, others[nearest])
        if not step:
            return _exchanged(chosen, left, moves, sizes, units, price)
        chosen += step
        left = left + moves[list(step)].sum(axis=0)


def _exchanged(
    chosen: Sequence[int], left: NDArray[np.int64], moves: NDArray[np.int64], sizes: NDArray[np.int64],
    units: NDArray[np.int64], price: NDArray[np.float64],
) -> list[int]:  # fmt: skip
    """Return the moves once two at a time are given up, or made others, as long as that leaves fewer elements over.

    What is best at its time may take the pieces of one that no other way cuts.
    """
    now = {int(units[one]): one for one in chosen}
    over = float(np.abs(left) @ sizes)
    while over > 0:
        given = np.array([moves[now[unit]] if unit in now else np.zeros_like(left) for unit in units])
        swaps = [(unit, -1) for unit in now] + [(int(unit), at) for at, unit in enumerate(units)]
        rows = np.concatenate([[-moves[now[unit]] for unit in now], moves - given]) if now else moves
        costs = np.array([0.0 if at < 0 else price[at] for _, at in swaps])
        best, taken = over - 0.5, ()  # type: float, tuple[int, ...]
        for at, (unit, _) in enumerate(swaps):
            beside = [other for other, (one, _) in enumerate(swaps) if one != unit]
            both = np.abs(left + rows[at] + np.concatenate([rows[beside], np.zeros_like(rows[:1])])) @ sizes
            both = both + costs[at] + np.append(costs[beside], 0.0)
            nearest = int(np.argmin(both))
            if both[nearest] < best:
                best, taken = float(both[nearest]), (at, *beside[nearest : nearest + 1])
        if not taken:
            break
        for one in taken:
            unit, move = swaps[one]
            now.pop(unit, None)
            if move >= 0:
                now[unit] = move
            left = left + rows[one]
        over = float(np.abs(left) @ sizes)
    return list(now.values())
