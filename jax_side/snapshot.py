"""A copy of the full training state, which is written while training continues."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from jax_side.formats.host import fetched
from jax_side.shards import held_shards
from jax_side.state import DeviceState, export_arrays
from parity.twins import Layout

__all__ = ["Snapshot"]

ArrayPair = tuple[NDArray[np.generic], NDArray[np.generic]]

BLOCK = 32 << 20
"""Bytes that one thread copies at once."""


class Snapshot:
    """A copy of the full training state on the host, beside which training continues.

    Takes one copy of the state in memory; given the snapshot of the save before, it copies into that one's buffers,
    whose pages are there already. What a GPU holds is fetched into page-locked memory, which JAX keeps. What is saved
    is NumPy, so JAX may donate the live state to the next chunk at once. Of several processes none holds the whole
    state: they save the live arrays, which JAX keeps while there are views of them.
    """

    def __init__(self, layout: Layout, state: DeviceState, spare: Snapshot | None = None) -> None:
        self._spare = iter(jax.tree.leaves(spare.content) if spare else ())
        self._fetched = fetched(jax.tree.leaves(state)) if jax.process_count() == 1 else {}
        pairs: list[ArrayPair] = []
        self.content: DeviceState = jax.tree.map(lambda value: self._copied(value, pairs), state)
        """What is written."""
        self._fetched = {}  # the keys are addresses of live arrays
        _copy(pairs)
        self._neutral = export_arrays(layout, self.content, copy=False, shared=False)
        self._held = held_shards(self.content)

    @property
    def size(self) -> int:
        """Return the bytes of its arrays."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.content))

    def neutral(self) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
        """Return the neutral arrays, views of the copies, and the scalars."""
        return self._neutral

    def _copied(self, value: jax.Array, pairs: list[ArrayPair]) -> Any:
        """Return what will hold the copy of a leaf, once the pairs of target and source are copied."""
        spare = next(self._spare, None)
        if jax.process_count() > 1:
            return value
        if id(value) in self._fetched:
            return self._fetched[id(value)]
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            words = jnp.copy(jax.random.key_data(value))
            return jax.random.wrap_key_data(words, impl=jax.random.key_impl(value))
        host = np.asarray(value)
        copy = spare if isinstance(spare, np.ndarray) else np.empty_like(host)
        if (copy.shape, copy.dtype) != (host.shape, host.dtype):
            copy = np.empty_like(host)
        pairs.append((copy, host))
        return copy


def _copy(pairs: list[ArrayPair]) -> None:
    """Copy sources into targets, blocks of large ones side by side: one thread does not use all of the bandwidth."""
    tasks: list[ArrayPair] = []
    for target, source in pairs:
        if source.nbytes > BLOCK and target.flags.c_contiguous and source.flags.c_contiguous:
            ends = np.arange(BLOCK // source.itemsize, source.size, BLOCK // source.itemsize)
            tasks += zip(np.split(target.reshape(-1), ends), np.split(source.reshape(-1), ends), strict=True)
        else:
            tasks.append((target, source))
    threads = min(4, os.cpu_count() or 1)
    if len(tasks) == len(pairs) or threads == 1:
        for target, source in tasks:
            np.copyto(target, source)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda task: np.copyto(*task), tasks))
