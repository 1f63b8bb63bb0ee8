"""Copies on the host of arrays that lie in a device's own memory, through page-locked memory and all at once.

`numpy.asarray` of an array on a GPU fetches one after the other into fresh pages. Measured for 1 GiB on an H100: 1.0
to 1.2 GB/s, with `copy_to_host_async` before it 1.5, through page-locked memory 1.7 the first times and 52 once JAX's
pool has the pages (`python -m benchmarks.host_copies`). On the CPU there is nothing to fetch.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import numpy as np
from numpy.typing import NDArray

__all__ = ["LOCKED", "fetched", "locked_copies"]

LOCKED = "pinned_host"
"""JAX's name of the host memory from and to which a device copies by itself."""


def fetched(values: Iterable[object]) -> dict[int, NDArray[np.generic]]:
    """Return copies of those values that are arrays in the memory of an accelerator, by `id` of the value.

    Arrays on the CPU, PRNG keys, arrays of which other processes hold parts and whatever is no array of JAX are left
    out.
    """
    far = [value for value in values if isinstance(value, jax.Array) and _is_far(value)]
    return dict(zip(map(id, far), locked_copies(far), strict=True))


def locked_copies(values: list[jax.Array]) -> list[NDArray[np.generic]]:
    """Return read-only copies of arrays in page-locked memory, which nobody else writes to.

    The live arrays may be donated afterwards. Bits, dtypes and shapes are theirs.
    """
    places = [value.sharding.with_memory_kind(LOCKED) for value in values]
    return [np.asarray(copy) for copy in jax.block_until_ready(jax.device_put(values, places))]


def _is_far(value: jax.Array) -> bool:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key) or not value.is_fully_addressable:
        return False
    return all(
        device.platform != "cpu" and LOCKED in (memory.kind for memory in device.addressable_memories())
        for device in value.sharding.device_set
    )
