"""Streams of batches: whole chunks as NumPy arrays, and a JSON position that reproduces the next batch exactly."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from parity import threefry
from parity.errors import StateError
from parity.spec import RunSpec
from parity.twins.datasets import Dataset

__all__ = ["ArrayStream", "BatchStream", "Chunk", "GrainStream", "Share", "StreamPosition", "open_stream"]

GRAIN_READS = {"num_threads": 2, "prefetch_buffer_size": 16}
"""What Grain reads ahead, in batches. The samples lie in memory: its defaults, 500 batches by 16 threads, are for
files, and take 2.5 s of a processor at every start and every seek."""

StreamPosition = dict[str, Any]
"""JSON object; always holds `samples` (consumed so far) and `batch_size`."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """The batches of n consecutive steps."""

    inputs: NDArray[np.generic]
    """Shape [n, batch, ...]; of several processes, of the samples that this one computes on."""
    targets: NDArray[np.generic]
    """Shape [n, batch] or [n, batch, context], as the inputs."""
    digests: list[str]
    """XXH3-128 of each whole batch: its inputs, then its targets. Empty texts in a process that reads only a part."""
    epochs: list[int]
    """Epoch each batch belongs to, from 0."""
    samples: list[int]
    """Samples consumed after each batch."""
    after: StreamPosition
    """Position after the last batch of the chunk."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """The samples that one of several processes computes on: an equal, contiguous part of each micro-batch.

    Which samples a batch has is a function of seed and step; only which of them are read here depends on the share.
    """

    index: int
    """Which part, from 0."""
    count: int
    """Number of parts."""
    accumulation: int
    """Micro-batches of a batch."""
    digests: bool
    """Whether this process digests whole batches for the records, and therefore reads them."""

    def of(self, batches: NDArray[Any]) -> NDArray[Any]:
        """Return this part of batches [n, batch, ...]: [n, batch / count, ...], micro-batch by micro-batch.

        Example:
            >>> Share(index=1, count=2, accumulation=2, digests=False).of(np.arange(8).reshape(1, 8)).tolist()
            [[2, 3, 6, 7]]
        """
        n, batch, *rest = batches.shape
        micros = batches.reshape(n, self.accumulation, self.count, -1, *rest)
        return micros[:, :, self.index].reshape(n, batch // self.count, *rest)


class BatchStream(Protocol):
    """Where batches come from; both sides consume the same object."""

    def take(self, n: int) -> Chunk:
        """Return the next n batches."""

    def position(self) -> StreamPosition:
        """Return the position of the next batch."""

    def seek(self, position: Mapping[str, Any]) -> None:
        """Move to a position; the next batch is the one it names.

        Raises:
            StateError: The position does not belong to this stream.
        """


def open_stream(spec: RunSpec, dataset: Dataset, share: Share | None = None) -> BatchStream:
    """Return the training stream of a spec.

    Args:
        spec: The run: its reader, batch and seed.
        dataset: The samples.
        share: Those of each batch that this process computes on; None for all.

    Raises:
        StateError: The reader is `grain`, and Grain is not installed.
    """
    if spec.data.reader == "grain":
        return GrainStream(lambda: _grain_batches(spec, dataset), spec.batch, len(dataset.inputs), share)
    return ArrayStream(dataset.inputs, dataset.targets, batch=spec.batch, seed=spec.seed, share=share)


class _CountedStream(BatchStream):
    """The base of both streams: it counts the batches that were taken since the start of the run."""

    def __init__(self, batch: int, per_epoch: int, share: Share | None) -> None:
        self._batch, self.batches_per_epoch, self._next, self._share = batch, per_epoch, 0, share

    def take(self, n: int) -> Chunk:
        """Return the next n batches; they may span epochs."""
        numbers, share = range(self._next, self._next + n), self._share
        if share is None or share.digests:
            inputs, targets = self._read(n, None)
            digests = _digests(inputs, targets)
            if share is not None:
                inputs, targets = share.of(inputs), share.of(targets)
        else:
            inputs, targets = self._read(n, share)
            digests = [""] * n
        self._next += n
        return Chunk(
            inputs=inputs,
            targets=targets,
            digests=digests,
            epochs=[number // self.batches_per_epoch for number in numbers],
            samples=[(number + 1) * self._batch for number in numbers],
            after=self.position(),
        )

    @abstractmethod
    def _read(self, n: int, share: Share | None) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Return the inputs and the targets of the next n batches, or of a share of each."""


class ArrayStream(_CountedStream):
    """Arrays in memory: shuffled per epoch by (seed, epoch), the incomplete last batch dropped.

    A chunk is one gather per array, so a batch costs microseconds; seeking is constant in time.

    Args:
        inputs: Shape [samples, ...].
        targets: Shape [samples] or [samples, context].
        batch: Samples per batch, at most as many as there are.
        seed: Seed of the order, in [0, 2**32).
        share: The samples of each batch that are read; None for all.
    """

    def __init__(
        self,
        inputs: NDArray[np.generic],
        targets: NDArray[np.generic],
        *,
        batch: int,
        seed: int,
        share: Share | None = None,
    ) -> None:
        super().__init__(batch, len(inputs) // batch, share)
        self._inputs, self._targets = inputs, targets
        self._root = threefry.fold_in(threefry.key(seed), 0xDA7A)
        self._group = max(1, threefry.PIECE // len(inputs))
        """Epochs whose orders are drawn together."""
        self._orders = lru_cache(maxsize=2)(self._draw)

    def _read(self, n: int, share: Share | None) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        rows = self._rows(n) if share is None else share.of(self._rows(n))
        return self._inputs[rows], self._targets[rows]

    def _rows(self, n: int) -> NDArray[np.int64]:
        """Return the samples of the next n batches, shape [n, batch]."""
        parts, number, left = [], self._next, n
        while left:
            epoch, batch = divmod(number, self.batches_per_epoch)
            count = min(left, self.batches_per_epoch - batch)
            parts.append(self._order(epoch)[batch * self._batch : (batch + count) * self._batch])
            number, left = number + count, left - count
        return np.concatenate(parts).reshape(n, self._batch)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        return self._orders(epoch // self._group)[epoch % self._group]

    def _draw(self, group: int) -> NDArray[np.int64]:
        """Return the orders of a group of epochs."""
        epochs = np.arange(group * self._group, (group + 1) * self._group)
        return threefry.permutations(threefry.fold_in(self._root, epochs), len(self._inputs))

    def position(self) -> StreamPosition:
        """Return epoch, batch in it, samples consumed and batch size; an epoch's end is the next one's batch 0."""
        epoch, batch = divmod(self._next, self.batches_per_epoch)
        return {
            "epoch": epoch,
            "batch": batch,
            "samples": self._next * self._batch,
            "batch_size": self._batch,
        }

    def seek(self, position: Mapping[str, Any]) -> None:
        """Move to a position; the counters in it must agree with each other and with this stream.

        Raises:
            StateError: They do not; nothing was changed.
        """
        try:
            number = position["epoch"] * self.batches_per_epoch + position["batch"]
            consistent = (
                all(type(position[name]) is int for name in ("epoch", "batch", "samples", "batch_size"))
                and position["epoch"] >= 0
                and 0 <= position["batch"] < self.batches_per_epoch
                and position["batch_size"] == self._batch
                and position["samples"] == number * self._batch
            )
        except (KeyError, TypeError) as error:
            raise StateError("data.position", f"is not a position of an array stream: {position!r}") from error
        if not consistent:
            raise StateError(
                "data.position",
                f"{dict(position)!r} does not fit {self.batches_per_epoch} batches of {self._batch} per epoch",
            )
        self._next = number


class GrainStream(_CountedStream):
    """Any Grain iterator over (inputs, targets) batches, resumed by its own `get_state` and `set_state`."""

    def __init__(self, make: Callable[[], Any], batch: int, size: int, share: Share | None = None) -> None:
        """Wrap an iterator.

        Args:
            make: Returns a fresh iterator from its start; its elements are dicts of `inputs` and `targets`.
            batch: Samples per element.
            size: Samples per epoch, to name the epoch of a batch.
            share: The samples of each batch that are kept; None for all.
        """
        super().__init__(batch, size // batch, share)
        self._iterator: Any = make()

    def _read(self, n: int, share: Share | None) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        batches = [next(self._iterator) for _ in range(n)]  # whole: an element of the iterator is a batch
        both = np.stack([b["inputs"] for b in batches]), np.stack([b["targets"] for b in batches])
        return both if share is None else (share.of(both[0]), share.of(both[1]))

    def position(self) -> StreamPosition:
        """Return the iterator's own state beside the samples consumed."""
        state = self._iterator.get_state()
        if isinstance(state, bytes):  # grain.DataLoader's iterators; datasets give a dict
            state = {"utf8": state.decode()}
        return {
            "iterator": json.loads(json.dumps(state)),
            "samples": self._next * self._batch,
            "batch_size": self._batch,
        }

    def seek(self, position: Mapping[str, Any]) -> None:
        """Give the iterator its state back.

        Raises:
            StateError: The counters do not fit, or the iterator refuses the state; it has the one from before.
        """
        before = self._iterator.get_state()
        try:
            samples, state = position["samples"], position["iterator"]
            if type(samples) is not int or samples % self._batch or position["batch_size"] != self._batch:
                raise ValueError("its counters do not fit")
            self._iterator.set_state(state["utf8"].encode() if set(state) == {"utf8"} else state)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # Grain has no error of its own for this
            self._iterator.set_state(before)
            raise StateError(
                "data.position", f"is not a position of this Grain stream: {dict(position)!r}"
            ) from error
        self._next = samples // self._batch


def _digests(inputs: NDArray[np.generic], targets: NDArray[np.generic]) -> list[str]:
    out = []
    for x, y in zip(inputs, targets, strict=True):
        digest = xxhash.xxh3_128(x)
        digest.update(y)
        out.append(digest.hexdigest())
    return out


def _grain_batches(spec: RunSpec, dataset: Dataset) -> Iterator[Any]:
    try:
        import grain
    except ImportError as error:
        raise StateError("data.reader", "'grain' needs Grain: pip install 'parity-suite[data]'") from error

    per_epoch = len(dataset.inputs) // spec.batch * spec.batch
    samples = grain.MapDataset.range(len(dataset.inputs)).shuffle(seed=spec.seed)[:per_epoch].repeat()
    batches = samples.map(lambda i: {"inputs": dataset.inputs[i], "targets": dataset.targets[i]}).batch(spec.batch)
    return iter(batches.to_iter_dataset(grain.ReadOptions(**GRAIN_READS)))
