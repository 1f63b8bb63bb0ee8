"""The counter-based random generator that both sides share: Threefry-2x32 with 20 rounds, in NumPy.

JAX draws with this generator (`jax.random.key`, `fold_in` and `bits` under the default `jax_threefry_partitionable`).
The JAX side uses JAX's own implementation; PyTorch and NumPy reproduce it bit for bit. A draw is a pure function of
key and position: the generator has no state, so a resume cannot lose it.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11, doi:10.1145/2063384.2063405;
the layout of words follows `jax._src.prng.threefry_2x32` (jax 0.10).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["bits", "block", "fold_in", "keep_threshold", "key", "permutation", "permutations", "uniform"]

Words = NDArray[np.uint32]

PIECE = 1 << 14
"""Number of draws made at once: three arrays of 64 KiB stay in the second-level cache for all twenty rounds."""

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY_CONSTANT = 0x1BD11BDA
"""Constant of the key schedule: the 32-bit form of the one that the Threefish family calls C240."""


_SHIFTS = tuple(tuple((np.uint32(r), np.uint32(32 - r)) for r in four) for four in ROTATIONS)
"""Left and right shift of each rotation, in two groups of four that alternate."""


def block(key_words: Words, x0: ArrayLike, x1: ArrayLike) -> tuple[Words, Words]:
    """Encrypt the counter words (x0, x1) under a key.

    Args:
        key_words: uint32, shape [..., 2]; leading axes broadcast against the counters.
        x0: uint32 high counter words, any shape.
        x1: uint32 low counter words, any shape.

    Returns:
        Two uint32 arrays of the broadcast shape.

    Numerics: exact; all additions are modulo 2**32.

    Example:
        >>> [f"{int(word):08x}" for word in block(key(0), 0, 0)]  # test vector of the reference implementation
        ['6b200159', '99ba4efe']
    """
    k0, k1 = key_words[..., 0], key_words[..., 1]
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(PARITY_CONSTANT))
    shape = np.broadcast_shapes(k0.shape, np.shape(x0), np.shape(x1))
    a, b, spare = (np.empty(shape, np.uint32) for _ in range(3))
    with np.errstate(over="ignore"):  # wrapping addition is the algorithm
        np.add(np.asarray(x0, np.uint32), schedule[0], out=a)
        np.add(np.asarray(x1, np.uint32), schedule[1], out=b)
        for i in range(5):
            for left, right in _SHIFTS[i % 2]:
                np.add(a, b, out=a)
                np.left_shift(b, left, out=spare)
                np.right_shift(b, right, out=b)
                np.bitwise_or(b, spare, out=b)
                np.bitwise_xor(b, a, out=b)
            np.add(a, schedule[(i + 1) % 3], out=a)
            np.add(b, schedule[(i + 2) % 3] + np.uint32(i + 1), out=b)
    return a, b


def key(seed: int) -> Words:
    """Return the key of a seed, equal to the data of `jax.random.key(seed)`.

    Args:
        seed: Integer in [0, 2**32).

    Returns:
        uint32, shape [2].

    Raises:
        ValueError: The seed is out of range.
    """
    if not 0 <= seed < 2**32:
        raise ValueError(f"seed must be in [0, 2**32), got {seed}")
    return np.array([0, seed], np.uint32)


def fold_in(key_words: Words, data: ArrayLike) -> Words:
    """Derive a key from a key and an integer, as `jax.random.fold_in` does.

    Args:
        key_words: uint32, shape [..., 2].
        data: Integers in [0, 2**32), of any shape that broadcasts against the leading axes of the key.

    Returns:
        uint32, shape [..., 2] with the leading axes broadcast.
    """
    words = np.asarray(data, np.uint32)
    return np.stack(block(key_words, np.zeros_like(words), words), axis=-1)


def bits(key_words: Words, n: int, first: int = 0) -> Words:
    """Draw 32 random bits for each of n positions, those of `jax.random.bits(key, (first + n,))` from `first` on.

    Args:
        key_words: uint32, shape [2].
        n: Number of draws.
        first: The first position.

    Returns:
        uint32, shape [n].

    Example:
        >>> [int(word) for word in bits(key(0), 2)]
        [4070199207, 4202968722]
    """
    out = np.empty(n, np.uint32)
    start, end = first, first + n
    while start < end:
        stop = min(end, (start // PIECE + 1) * PIECE)  # a piece never spans two high words
        low = np.arange(start, stop, dtype=np.uint64).astype(np.uint32)
        a, b = block(key_words, np.uint32(start >> 32), low)
        np.bitwise_xor(a, b, out=out[start - first : stop - first])
        start = stop
    return out


def uniform(key_words: Words, n: int) -> NDArray[np.float64]:
    """Draw n values that are uniform in the open interval (0, 1).

    Args:
        key_words: uint32, shape [2].
        n: Number of draws.

    Returns:
        float64, shape [n].

    Numerics: multiples of 2**-32 shifted by 2**-33, so neither 0 nor 1 occurs; every operation is exact.

    Example:
        >>> uniform(key(0), 2).tolist()
        [0.9476671012816951, 0.9785799129167572]
    """
    return (bits(key_words, n).astype(np.float64) + 0.5) * 2.0**-32


def permutation(key_words: Words, n: int) -> NDArray[np.int64]:
    """Return a permutation of 0 to n - 1: the order that sorts n draws, equal draws by position.

    NumPy's own `permutation` may change between versions (NEP 19). This one does not, so the data order of a seed is
    the same on every version and machine.

    Args:
        key_words: uint32, shape [2].
        n: Length of the permutation, below 2**32.

    Returns:
        int64, shape [n].

    Example:
        >>> permutation(key(0), 5).tolist()
        [2, 3, 4, 0, 1]
    """
    return permutations(key_words[None], n)[0]


def permutations(keys: Words, n: int) -> NDArray[np.int64]:
    """Return a permutation of 0 to n - 1 for each key; many short ones cost little more than one.

    Args:
        keys: uint32, shape [keys, 2].
        n: Length of each permutation, below 2**32.

    Returns:
        int64, shape [keys, n]; row i equals `permutation(keys[i], n)`.
    """
    if len(keys) * n > PIECE:
        draws = np.stack([bits(key, n) for key in keys])
    else:
        a, b = block(keys[:, None], np.uint32(0), np.arange(n, dtype=np.uint32))
        draws = a ^ b
    ranked = draws.astype(np.uint64) << np.uint64(32) | np.arange(n, dtype=np.uint64)  # unique
    ranked.sort(axis=1)  # takes a fifth of the time of a stable argsort
    return (ranked & np.uint64(0xFFFFFFFF)).astype(np.int64)


def keep_threshold(rate: float) -> int:
    """Return the integer t for which `bits >= t` keeps an element with probability 1 - rate.

    Numerics: `rate` is rounded to a multiple of 2**-32; the largest t is 2**32 - 1.

    Example:
        >>> keep_threshold(0.5) == 2**31
        True
    """
    return min(round(rate * 2.0**32), 2**32 - 1)
