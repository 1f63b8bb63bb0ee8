"""Dropout whose masks are a function of (seed, step, micro-batch, layer, position), the same on both sides."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parity import threefry
from parity.spec import DropoutSpec

__all__ = ["Dropout", "mask_keys", "random_bits"]

STREAM = 0xD0
"""Folded into the seed's key, so that masks share no draw with the start or the data order."""


def mask_keys(seed: int, steps: NDArray[np.int32], micros: int, layers: int) -> Tensor:
    """Return the keys of all masks of a chunk: int32 (the bits of uint32), shape [steps, micros, layers, 2].

    Args:
        seed: The run's seed.
        steps: Steps completed before each step of the chunk.
        micros: Micro-batches per step.
        layers: Dropout layers of the model.
    """
    if layers == 0:
        return torch.empty((len(steps), micros, 0, 2), dtype=torch.int32)
    keys = threefry.fold_in(_root(seed), steps)[:, None]
    keys = threefry.fold_in(keys, np.arange(micros))[:, :, None]
    keys = threefry.fold_in(keys, np.arange(layers))
    return torch.from_numpy(keys.view(np.int32))


@lru_cache(maxsize=8)
def _root(seed: int) -> threefry.Words:
    return threefry.fold_in(threefry.key(seed), STREAM)


class Dropout(nn.Module):
    """Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate).

    With the shared generator an element's mask depends on its position in the micro-batch, as on the JAX side.
    With the native one it comes from PyTorch's global generator, whose state is part of the checkpoint.
    """

    def __init__(self, spec: DropoutSpec, layer: int) -> None:
        super().__init__()
        self.rate, self.layer = spec.rate, layer
        self.shared = spec.rate > 0.0 and spec.generator == "shared"
        self.threshold = threefry.keep_threshold(spec.rate)
        self.share = 0
        """Which part of a micro-batch this process has, of equal parts; its masks are those of these samples."""
        self._scales: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def forward(self, x: Tensor, key: Tensor | None, *, train: bool) -> Tensor:
        """Apply to x of any shape; without `train` it is returned as it is, and needs no key.

        Args:
            x: Of any shape and float dtype.
            key: int32 [layers, 2], the keys of one micro-batch, one for each layer.
            train: Whether to drop anything.
        """
        if not train or self.rate == 0.0:
            return x
        if not self.shared:
            return nn.functional.dropout(x, self.rate)
        assert key is not None
        keep = self._keep(key[self.layer], x.numel()).view(x.shape)
        return torch.where(keep, x * self._scale(x), 0.0)  # not a product: infinity times 0 is NaN

    def _keep(self, key: Tensor, n: int) -> Tensor:
        """Return the mask, bool [n]; on a CPU NumPy draws, in place and in a quarter of the time."""
        if key.device.type == "cpu" and not torch.compiler.is_compiling():
            return torch.from_numpy(threefry.bits(key.numpy().view(np.uint32), n, self.share * n) >= self.threshold)
        signed = random_bits(key, n, self.share * n).bitwise_xor(
            -(2**31)
        )  # as signed numbers, top bit flipped, they compare alike
        return signed >= self.threshold - 2**31

    def _scale(self, x: Tensor) -> Tensor:
        at = (x.dtype, x.device)
        if at not in self._scales:
            self._scales[at] = torch.tensor(1.0 / (1.0 - self.rate), dtype=x.dtype, device=x.device)
        return self._scales[at]


_ROTATIONS = threefry.ROTATIONS


def random_bits(key: Tensor, n: int, first: int = 0) -> Tensor:
    """Draw 32 random bits for n positions: int32 holding the bits of `jax.random.bits(key, (first + n,))[first:]`.

    int32 addition wraps as uint32 does; only the right shift needs its sign bits masked away.

    Args:
        key: int32, shape [2].
        n: Number of draws.
        first: The first position; the last is below 2**31 (the high counter word stays 0).
    """
    low = torch.arange(first, first + n, dtype=torch.int32, device=key.device)
    schedule = (key[0], key[1], key[0] ^ key[1] ^ threefry.PARITY_CONSTANT)
    a = schedule[0].expand(n)  # the high counter word is 0
    b = low + schedule[1]
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            a = a + b
            b = ((b << r) | ((b >> (32 - r)) & ((1 << r) - 1))) ^ a
        a = a + schedule[(i + 1) % 3]
        b = b + (schedule[(i + 2) % 3] + (i + 1))
    return a ^ b
