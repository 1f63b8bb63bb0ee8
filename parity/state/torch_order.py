"""The order in which a DataLoader of PyTorch reads samples, in NumPy, bit for bit: JAX alone reads the same batches.

`TorchGenerator` draws what PyTorch's generator of the CPU draws; `LoaderOrder` and `DistributedOrder` are the orders
of `DataLoader(shuffle=True)` and `DistributedSampler`; `OrderedSource` puts samples in such an order, for Grain.

Source: `torch.randperm`, `torch.randint` and `Tensor.random_` of the CPU, `RandomSampler`, `DistributedSampler` and
`_BaseDataLoaderIter` (torch 2.13); the generator is Matsumoto and Nishimura's MT19937, doi:10.1145/272991.272995.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parity.errors import SpecError

__all__ = ["DistributedOrder", "LoaderOrder", "OrderedSource", "SampleOrder", "TorchGenerator"]

WORDS = 624
"""Words of the state of MT19937."""

LARGEST = (2**32 - 1) // 20
"""Length from which `torch.randperm` draws 64 bits for each place."""

STATE = 5056
"""Bytes of `torch.get_rng_state()`: seed, words left, seeded, place, 624 words of 8 bytes, normal variates."""


class TorchGenerator:
    """PyTorch's generator of the CPU: the same whole numbers from the same seed or state.

    Args:
        seed: As of `torch.manual_seed`; of it the lower 32 bits count.

    Example:
        >>> TorchGenerator(7).randperm(5).tolist()  # torch.randperm(5, generator=torch.Generator().manual_seed(7))
        [0, 1, 3, 2, 4]
    """

    def __init__(self, seed: int) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not -(2**63) <= seed < 2**64:
            raise SpecError("seed", f"must be a whole number of 64 bits, as of torch.manual_seed, got {seed!r}")
        self._bits = np.random.MT19937()
        # the seeding of the original, which NumPy's own constructor replaced by SeedSequence
        self._bits._legacy_seeding(seed & 0xFFFFFFFF)

    @classmethod
    def from_state(cls, state: Any) -> TorchGenerator:
        """Return a generator that goes on where one of PyTorch stands.

        Args:
            state: What `torch.get_rng_state()` or `Generator.get_state()` returns, uint8, shape [5056]; a tensor or
                an array, such as a checkpoint holds.

        Raises:
            SpecError: It is no state of a generator of the CPU.
        """
        data = np.asarray(state)
        if data.dtype != np.uint8 or data.shape != (STATE,):
            raise SpecError("state", f"must be that of a generator of the CPU, uint8 [{STATE}], got {data.dtype} "
                            f"{list(data.shape)}; one of a GPU is another generator (Philox)")  # fmt: skip
        _, left, seeded, place = struct.unpack("<Qi?3xQ", data.tobytes()[:24])
        if not seeded or not 0 < left <= WORDS or place > WORDS:
            raise SpecError("state", f"is no state of MT19937: {left} words are left, the next is {place}")
        made = cls(0)
        words = np.frombuffer(data.tobytes()[24 : 24 + 8 * WORDS], "<u8").astype(np.uint32)
        # with one left PyTorch makes new words before the next draw, which is place 624 in NumPy
        made._bits.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": WORDS if left == 1 else place}}
        return made

    def randperm(self, n: int) -> NDArray[np.int64]:
        """Return what `torch.randperm(n)` does, int64, shape [n].

        Args:
            n: Length, below 214,748,364.

        Raises:
            SpecError: The length is not one of these.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 0 <= n < LARGEST:
            raise SpecError("n", f"must be a whole number from 0 to {LARGEST - 1}, got {n!r}")
        n = int(n)
        if n < 2:
            return np.arange(n)
        far = (self._bits.random_raw(n - 1) % np.arange(n, 1, -1, dtype=np.uint64)).tolist()
        order = list(range(n))
        for at, more in enumerate(far):
            other = at + more
            order[at], order[other] = order[other], order[at]
        return np.array(order, np.int64)

    def randint(self, high: int, size: int) -> NDArray[np.int64]:
        """Return what `torch.randint(high, (size,))` does, int64, shape [size].

        Args:
            high: Above the largest, below 2**32.
            size: How many.

        Raises:
            SpecError: A number that is not one of these.
        """
        if not 0 < high < 2**32 or size < 0:
            raise SpecError("high", f"must be from 1 to 2**32 - 1, with a size of at least 0, got {high!r}, {size!r}")
        drawn = self._bits.random_raw(size) if size else np.zeros(0, np.uint64)
        return np.asarray(drawn % np.uint64(high), np.int64)

    def random(self) -> int:
        """Return what `torch.empty((), dtype=torch.int64).random_()` does, as samplers and loaders draw seeds."""
        high, low = self._bits.random_raw(2).tolist()
        return int(((high << 32) | low) & (2**63 - 1))


class SampleOrder(Protocol):
    """Indices of samples, epoch after epoch."""

    @property
    def each(self) -> int:
        """Return the samples of an epoch."""

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the indices of an epoch, from 0, in order, int64, shape [each]."""


class LoaderOrder:
    """Indices that a DataLoader with `shuffle=True`, or with a RandomSampler, reads.

    Args:
        size: Length of the dataset.
        generator: Where the generator stands before the first epoch: the one that was given to the loader and its
            sampler or, if `given` is false, PyTorch's default one. It is drawn from.
        given: Whether the loader was given a generator. Without one the loader draws from the default generator at
            the beginning of every epoch. So does what else draws there (initial values, dropout, augmentation):
            these orders are then the loader's own only while nothing else draws between epochs.
        sampled: Whether the generator was given to the sampler alone, `RandomSampler(data, generator=g)`, and not to
            the loader: then only the order is drawn from it.
        replacement: As of `RandomSampler`.
        num_samples: As of `RandomSampler`; None for the size.

    Numerics: exact. An epoch depends on those before it: they are drawn once and kept.

    Example:
        >>> LoaderOrder(4, TorchGenerator(0)).epoch(0).tolist()
        [1, 0, 3, 2]
    """

    def __init__(
        self, size: int, generator: TorchGenerator, *, given: bool = True, sampled: bool = False,
        replacement: bool = False, num_samples: int | None = None
    ) -> None:  # fmt: skip
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise SpecError("size", f"must be a whole number of at least 1, got {size!r}")
        if num_samples is not None and num_samples < 1:
            raise SpecError("num_samples", f"must be at least 1, got {num_samples!r}")
        self.size, self.generator, self.given, self.sampled = size, generator, given, sampled
        self.replacement, self._each = replacement, num_samples or size
        self._lock = threading.Lock()
        self._epochs: list[NDArray[np.int64]] = []

    @property
    def each(self) -> int:
        """Return the samples of an epoch."""
        return self._each

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the indices of an epoch, from 0, in order, int64, shape [each]."""
        with self._lock:  # Grain reads ahead in threads
            while len(self._epochs) <= number:
                self._epochs.append(self._drawn())
            return self._epochs[number]

    def _drawn(self) -> NDArray[np.int64]:
        if not self.sampled:
            self.generator.random()  # the loader's base seed, of its workers; it is drawn without workers too
        draws = self.generator if self.given or self.sampled else TorchGenerator(self.generator.random())
        whole, rest = divmod(self._each, 32 if self.replacement else self.size)
        if self.replacement:
            return np.concatenate([draws.randint(self.size, n) for n in [32] * whole + [rest]])
        # PyTorch draws a permutation for the rest even where nothing of it is read
        return np.concatenate([*(draws.randperm(self.size) for _ in range(whole)), draws.randperm(self.size)[:rest]])


class DistributedOrder:
    """Indices that one rank reads by `DistributedSampler`, with `set_epoch` called for each epoch.

    Args:
        size: Length of the dataset.
        seed: As of the sampler.
        replicas: Number of ranks.
        rank: Which one.
        shuffle: As of the sampler.
        drop_last: As of the sampler.
    """

    def __init__(
        self, size: int, seed: int = 0, *, replicas: int, rank: int, shuffle: bool = True, drop_last: bool = False
    ) -> None:
        if size < 1 or not 0 <= rank < replicas:
            raise SpecError("rank", f"must be from 0 to {replicas - 1} of a dataset of at least 1, got {rank!r}")
        self.size, self.seed, self.replicas, self.rank, self.shuffle = size, seed, replicas, rank, shuffle
        self.drop_last = drop_last and size % replicas != 0

    @property
    def each(self) -> int:
        """Return the samples of an epoch."""
        return self.size // self.replicas if self.drop_last else -(-self.size // self.replicas)

    def epoch(self, number: int) -> NDArray[np.int64]:
        """Return the indices of an epoch, from 0, in order, int64, shape [each]."""
        order = TorchGenerator(self.seed + number).randperm(self.size) if self.shuffle else np.arange(self.size)
        return np.resize(order, self.each * self.replicas)[self.rank :: self.replicas]  # repeated where it is short


class OrderedSource:
    """Samples in the order of a loader, over epochs, by their place in the whole run: a source of Grain.

    `grain.MapDataset.source(OrderedSource(samples, order, epochs=3)).batch(32).to_iter_dataset()` reads what the
    loader reads. Where the loader has given k batches in all, the iterator's state is `{"next_index": k}`. Where the
    size is no multiple of the batch, `batch` also says how epochs end.

    Args:
        samples: Has samples by index.
        order: Which is read when.
        epochs: How many are read.
        batch: Samples of a batch, where the loader drops an incomplete last one of each epoch (`drop_last=True`).
            Left out, every sample is there; then batches are the loader's only where the batch divides an epoch.

    Example:
        >>> source = OrderedSource("abcd", LoaderOrder(4, TorchGenerator(0)), epochs=2)
        >>> len(source), source[0], source[3]
        (8, 'b', 'c')
    """

    def __init__(self, samples: Sequence[Any] | Any, order: SampleOrder, *, epochs: int, batch: int = 1) -> None:
        if epochs < 1 or not 1 <= batch <= order.each:
            said = f"must be at least 1, with batches of 1 to {order.each}, got {epochs!r}, {batch!r}"
            raise SpecError("epochs", said)
        self.samples, self.order, self.epochs = samples, order, epochs
        self.each = order.each - order.each % batch

    def __len__(self) -> int:
        """Return the samples of all epochs."""
        return self.each * self.epochs

    def __getitem__(self, place: int) -> Any:
        """Return the sample at a place of the whole run, from 0."""
        number, at = divmod(range(len(self))[place], self.each)
        return self.samples[int(self.order.epoch(number)[at])]
