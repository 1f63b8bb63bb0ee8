"""State of JAX that a whole process shares: its settings. It has no generator of its own: every key is a value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from numpy.typing import NDArray

from jax_side.adapters.arrays import raw_value
from parity.capture import Walk

__all__ = ["SETTINGS", "clear", "fresh_process", "set_aside", "show_settings", "write"]

SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_enable_custom_prng",
    "jax_random_seed_offset",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_default_device",
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_debug_infs",
)
"""Settings that change results, or whether there are any."""


def show_settings(walk: Walk) -> None:
    """Show a walk the settings, as they are in this thread; no device is asked, so no backend is started."""
    for name in SETTINGS:
        if hasattr(jax.config, name):
            value = getattr(jax.config, name)
            shown = value if isinstance(value, bool | int | float | str | None) else str(value)
            walk.leaf(f"jax.config.{name}", shown, "settings", "flag")


def clear(value: object) -> None:
    """Do nothing: JAX gives no memory as it is."""


def set_aside() -> Callable[[], None]:
    """Return a function that puts the settings back as they are now.

    Only what has changed is set: a setting that is in force by a `with` of the caller must not become the process's.
    """
    before = {name: getattr(jax.config, name) for name in SETTINGS if hasattr(jax.config, name)}

    def put_back() -> None:
        for name, value in before.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)

    return put_back


def fresh_process() -> None:
    """Leave the process as it is.

    JAX draws nothing without a key, so there is no generator to seed. Its settings are the user's, who may have made
    them before the trainer was called; programs that are compiled already give the results of those compiled anew.
    """


def write(target: object, values: NDArray[Any]) -> bool:
    """Write values into a variable of Flax NNX; return whether it is one. Arrays of JAX themselves never change.

    Args:
        target: Any object.
        values: Of the variable's shape; converted to its dtype, and put where it lies.
    """
    held = raw_value(target) if hasattr(type(target), "set_raw_value") else None
    if not isinstance(held, jax.Array):
        return False
    target.set_raw_value(jax.device_put(values.astype(held.dtype), held.sharding))  # type: ignore[attr-defined]
    return True
