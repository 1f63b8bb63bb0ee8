"""Faults that lose the place in the data: wrong positions, and right positions of a stream that is elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from parity.twins import ArrayStream
from parity.twins.data import _digests
from tests.faults.fault import Fault, Plant
from tests.faults.plants import after_restore, around_save, reordered, reset

__all__ = ["FAULTS"]

POSITION = ("data.position",)


def _go_to(number: Any) -> Plant:
    """Return a plant that goes to another batch behind a restore; `number` gets the trainer and the right one."""

    def spoil(trainer: Any) -> None:
        stream, batch = trainer.feed._stream, trainer.spec.batch
        target = number(trainer, trainer.feed.position["samples"] // batch)
        epoch, place = divmod(target, stream.batches_per_epoch)
        samples = target * batch
        trainer.feed.seek({"epoch": epoch, "batch": place, "samples": samples, "batch_size": batch})

    return after_restore(spoil)


def _stream_at_zero(trainer: Any) -> None:
    """Leave the stream where it was opened; what is reported comes from the file."""
    trainer.feed._stream._next = 0


def _second_time(trainer: Any, number: int) -> int:
    return number if trainer.attempt == 1 else number - number % trainer.feed._stream.batches_per_epoch


def _skip_an_epoch(trainer: Any, number: int) -> int:
    per_epoch = trainer.feed._stream.batches_per_epoch
    return number if number % per_epoch else number + per_epoch


def _producer(trainer: Any) -> None:
    trainer.consumer, trainer.feed.position = trainer.feed.position, trainer.feed._stream.position()


def _consumer(trainer: Any) -> None:
    trainer.feed.position = trainer.consumer


def _same_window_again(trainer: Any) -> None:
    position = trainer.feed.position
    state = {"next_index": position["iterator"]["next_index"] - 1}
    trainer.feed.seek({**position, "iterator": state})


def _first_rank_only(trainer: Any) -> None:
    """Give every half of a batch the samples of the first."""
    stream = trainer.feed._stream
    take, half = stream.take, trainer.spec.batch // 2

    def take_twice(n: int) -> Any:
        chunk = take(n)
        inputs, targets = (np.concatenate([a[:, :half]] * 2, axis=1) for a in (chunk.inputs, chunk.targets))
        return replace(chunk, inputs=inputs, targets=targets, digests=_digests(inputs, targets))

    stream.take = take_twice


def _offset_everywhere(trainer: Any, right: Any, epoch: int) -> Any:
    """Start later epochs where the resumed one was gone on with."""
    position = trainer.offset = getattr(trainer, "offset", trainer.feed.position)
    if epoch == position["epoch"]:
        return right(epoch)
    return np.roll(right(epoch), -position["batch"] * trainer.spec.batch)


def _epoch_twice(trainer: Any, right: Any, epoch: int) -> Any:
    """Order the epoch behind the resumed one as that one was: nobody said that it ended."""
    trainer.resumed_epoch = getattr(trainer, "resumed_epoch", epoch)
    return right(min(epoch, trainer.resumed_epoch))


def _seedless(trainer: Any, right: Any, epoch: int) -> Any:
    data = trainer.dataset
    return ArrayStream(data.inputs, data.targets, batch=trainer.spec.batch, seed=0)._order(epoch)


FAULTS = (
    Fault(
        id="loader_restarts_at_zero",
        group="data",
        plant=reset("data.position"),
        suspects=POSITION,
    ),
    Fault(
        id="offset_read_before_load",
        group="data",
        plant=after_restore(_stream_at_zero),
        suspects=POSITION,
    ),
    Fault(
        id="sampler_epoch_reset",
        group="data",
        plant=reordered(lambda trainer, right, epoch: right(0)),
        suspects=POSITION,
        sides=("torch",),
    ),
    Fault(
        id="epoch_order_twice_or_skipped",
        group="data",
        plant=reordered(_epoch_twice),
        suspects=POSITION,
    ),
    Fault(
        id="skip_reapplied_every_epoch",
        group="data",
        plant=reordered(_offset_everywhere),
        suspects=POSITION,
        sides=("torch",),
    ),
    Fault(
        id="sampler_seed_ignored",
        group="data",
        plant=reordered(_seedless),
        suspects=POSITION,
        sides=("torch",),
        overrides=("seed=3",),
    ),
    Fault(
        id="skip_unit_grad_accum",
        group="data",
        plant=_go_to(lambda trainer, number: number // trainer.spec.accumulation),
        suspects=POSITION,
        overrides=("accumulation=4",),
    ),
    Fault(
        id="consumed_unit_rows_vs_queries",
        group="data",
        plant=_go_to(lambda trainer, number: 2 * number),
        suspects=POSITION,
        sides=("torch",),
    ),
    Fault(
        id="second_resume_counter_lost",
        group="data",
        plant=_go_to(_second_time),
        suspects=POSITION,
        sides=("torch",),
    ),
    Fault(
        id="prefetch_ahead_saved",
        group="data",
        plant=around_save(_producer, _consumer),
        suspects=POSITION,
    ),
    Fault(
        id="shuffle_window_flag_lost",
        group="data",
        plant=after_restore(_same_window_again),
        suspects=POSITION,
        sides=("jax",),
        overrides=("data.reader=grain",),
    ),
    Fault(
        id="end_of_epoch_index_overflow",
        group="data",
        plant=_go_to(_skip_an_epoch),
        suspects=POSITION,
        sides=("torch",),
        overrides=("save.every=12", "validate_every=12", "steps=48", "execution.chunk=6"),
        kills=(30, 42),
    ),
    Fault(
        id="rank_data_state_collapsed",
        group="sharding",
        plant=after_restore(_first_rank_only),
        suspects=POSITION,
        sides=("jax",),
        overrides=("mesh.data=2",),
    ),
)
