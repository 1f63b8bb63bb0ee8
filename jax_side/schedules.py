"""A schedule as a traced function of Optax's count, for training loops without a host part of their own."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from parity.errors import ScheduleError
from parity.schedules import Schedule

__all__ = ["traced"]


def traced(
    schedule: Schedule, steps: int, *, group: int = 0, momentum: bool = False
) -> Callable[[jax.typing.ArrayLike], jax.Array]:
    """Return the next rates of a schedule as a function of a count, as Optax's transformations take it.

    The rates are computed here, once, and are looked up in a table: most of them follow from the rate before, which a
    traced function of the count does not have. A program that holds it is larger by 4 or 8 bytes for each step.

    Args:
        schedule: The schedule; count 0 is its position now. It is not changed.
        steps: Length of the table; later counts get its last rate.
        group: Parameter group.
        momentum: Whether to return the momentum instead.

    Returns:
        A function of an integer count, of any shape, to the rates in JAX's default float dtype.

    Raises:
        ScheduleError: The schedule moves by a metric, has no rate for a step or no momentum, or has no such group.

    Numerics: the rates of the schedule rounded to the dtype: relative 6e-8 in float32, to the bit in float64. This is
        not the run that PyTorch makes: the rate is a rounded one, and Optax's count stands still where an update is
        skipped, while PyTorch's scheduler usually moves on. For equal runs, compute rates on the host and pass them.

    Example:
        >>> from parity.schedules import Cosine
        >>> rate = traced(Schedule(Cosine(T_max=100), [0.5]), 101)
        >>> float(rate(0)), float(rate(100))
        (0.5, 0.0)
    """
    if schedule.rule.metric:
        raise ScheduleError(schedule.rule.kind, "moves by a metric, which a count does not give; step it on the host")
    if not 0 <= group < len(schedule.rates):
        raise ScheduleError("traced", f"there is no group {group}; the schedule has {len(schedule.rates)}")
    if steps < 1:
        raise ScheduleError("traced", f"steps must be at least 1, got {steps}")
    copy = Schedule.at(schedule.rule, schedule.position, schedule.groups)
    ahead = copy.take(steps)
    values = ahead.momenta if momentum else ahead.rates
    if values is None:
        raise ScheduleError(schedule.rule.kind, "moves no momentum")
    table: np.ndarray[tuple[int], np.dtype[np.float64]] = np.ascontiguousarray(values[:, group])

    def rate(count: jax.typing.ArrayLike) -> jax.Array:
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return jnp.asarray(table, dtype)[jnp.clip(jnp.asarray(count), 0, len(table) - 1)]

    return rate
