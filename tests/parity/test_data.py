"""A position reproduces the next batch exactly, from anywhere, whatever the chunks were."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

import grain
import numpy as np
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from parity.errors import SpecError, StateError
from parity.spec import DataSpec, RunSpec, load, preset
from parity.twins import ArrayStream, BatchStream, Chunk, Dataset, GrainStream, load_dataset, open_stream
from tests.support.small import quick, small

SIZE, BATCH = 23, 5
PER_EPOCH = SIZE // BATCH


def arrays() -> tuple[np.ndarray, np.ndarray]:
    """Return samples whose first column is their own number."""
    numbers = np.arange(SIZE, dtype=np.int32)
    return np.stack([numbers, numbers**2, -numbers], axis=1).astype(np.float32), numbers


def array_stream(seed: int = 3) -> ArrayStream:
    return ArrayStream(*arrays(), batch=BATCH, seed=seed)


def grain_stream(seed: int = 3) -> GrainStream:
    inputs, targets = arrays()
    dataset = Dataset(
        inputs=inputs, targets=targets, validation_inputs=inputs, validation_targets=targets, digest="none"
    )
    spec = replace(preset("mlp-digits"), batch=BATCH, seed=seed, data=DataSpec(reader="grain"))
    stream = open_stream(spec, dataset)
    assert isinstance(stream, GrainStream)
    return stream


STREAMS: dict[str, Callable[..., BatchStream]] = {"memory": array_stream, "grain": grain_stream}
each_stream = pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)


def assert_same(a: Chunk, b: Chunk) -> None:
    np.testing.assert_array_equal(a.inputs, b.inputs, strict=True)
    np.testing.assert_array_equal(a.targets, b.targets, strict=True)
    assert (a.digests, a.epochs, a.samples, a.after) == (b.digests, b.epochs, b.samples, b.after)


def joined(chunks: list[Chunk]) -> Chunk:
    return Chunk(
        inputs=np.concatenate([c.inputs for c in chunks]),
        targets=np.concatenate([c.targets for c in chunks]),
        digests=list(chain.from_iterable(c.digests for c in chunks)),
        epochs=list(chain.from_iterable(c.epochs for c in chunks)),
        samples=list(chain.from_iterable(c.samples for c in chunks)),
        after=chunks[-1].after,
    )


def assert_seeking_reproduces(stream: BatchStream, others: list[BatchStream], before: int, n: int) -> None:
    if before:
        stream.take(before)
    position = json.loads(json.dumps(stream.position()))
    expected = stream.take(n)
    for other in others:
        other.seek(position)
        assert other.position() == position
        assert_same(other.take(n), expected)


@pytest.mark.takes_seconds
@given(before=st.integers(0, 30), n=st.integers(1, 12), elsewhere=st.integers(0, 30))
@quick(100)
def test_seeking_reproduces_the_next_batches_exactly(before: int, n: int, elsewhere: int) -> None:
    used = array_stream()
    if elsewhere:
        used.take(elsewhere)
    assert_seeking_reproduces(array_stream(), [array_stream(), used], before, n)


@cache
def used_grain_stream() -> GrainStream:
    """Return one iterator for many seeks: Grain starts threads on every first read, a quarter of a second."""
    return grain_stream()


@pytest.mark.takes_seconds
@given(before=st.integers(0, 30), n=st.integers(1, 12))
@quick(8)
def test_seeking_a_grain_stream_reproduces_the_next_batches_exactly(before: int, n: int) -> None:
    assert_seeking_reproduces(grain_stream(), [used_grain_stream()], before, n)


def assert_cuts_do_not_matter(stream: BatchStream, cut: BatchStream, lengths: list[int]) -> None:
    assert_same(joined([cut.take(n) for n in lengths]), stream.take(sum(lengths)))


@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6))
@quick(60)
def test_chunks_may_be_cut_anywhere(lengths: list[int]) -> None:
    assert_cuts_do_not_matter(array_stream(), array_stream(), lengths)


@pytest.mark.takes_seconds
def test_chunks_of_a_grain_stream_may_be_cut_anywhere() -> None:
    assert_cuts_do_not_matter(grain_stream(), grain_stream(), [3, 1, 1, 6, 2])


def assert_epochs_are_permutations(stream: BatchStream) -> None:
    chunk = stream.take(3 * PER_EPOCH)
    epochs = chunk.targets.reshape(3, PER_EPOCH * BATCH)
    assert chunk.epochs == [0] * PER_EPOCH + [1] * PER_EPOCH + [2] * PER_EPOCH
    for epoch in epochs:
        assert len(set(epoch.tolist())) == PER_EPOCH * BATCH
    assert len({epoch.tobytes() for epoch in epochs}) == 3


@given(seed=st.integers(0, 2**32 - 1))
@quick(50)
def test_an_epoch_has_no_repeats_and_no_epoch_is_like_another(seed: int) -> None:
    assert_epochs_are_permutations(array_stream(seed))


@pytest.mark.parametrize("seed", [0, 77])
def test_an_epoch_of_a_grain_stream_has_no_repeats_and_none_is_like_another(seed: int) -> None:
    assert_epochs_are_permutations(grain_stream(seed))


@each_stream
def test_inputs_and_targets_stay_together_and_samples_count_up(make: Callable[..., BatchStream]) -> None:
    chunk = make().take(9)
    np.testing.assert_array_equal(chunk.inputs[..., 0], chunk.targets)
    assert chunk.inputs.dtype == np.float32
    assert chunk.targets.dtype == np.int32
    assert chunk.samples == [BATCH * (i + 1) for i in range(9)]
    assert chunk.after["samples"] == 9 * BATCH


@each_stream
def test_a_digest_is_over_the_bytes_of_the_batch(make: Callable[..., BatchStream]) -> None:
    chunk = make().take(3)
    for x, y, digest in zip(chunk.inputs, chunk.targets, chunk.digests, strict=True):
        assert digest == xxhash.xxh3_128_hexdigest(x.tobytes() + y.tobytes())
    assert len(set(chunk.digests)) == 3


@pytest.mark.takes_seconds
@each_stream
def test_the_order_depends_on_the_seed_alone(make: Callable[..., BatchStream]) -> None:
    assert_same(make(1).take(6), make(1).take(6))
    assert make(1).take(6).digests != make(2).take(6).digests


def test_the_end_of_an_epoch_is_batch_0_of_the_next() -> None:
    stream = array_stream()
    stream.take(PER_EPOCH)
    assert stream.position() == {"epoch": 1, "batch": 0, "samples": PER_EPOCH * BATCH, "batch_size": BATCH}


def test_the_order_of_an_array_stream_is_pinned() -> None:
    """A recorded run must find its batches again on every NumPy and every machine."""
    assert array_stream(0).take(2).targets.tolist() == [[8, 19, 12, 3, 7], [18, 0, 17, 11, 6]]


GOOD = {"epoch": 2, "batch": 1, "samples": (2 * PER_EPOCH + 1) * BATCH, "batch_size": BATCH}
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "is not a position of an array stream"),
    ({"iterator": {}, "samples": 0, "batch_size": BATCH}, "is not a position of an array stream"),
    ({**GOOD, "epoch": "2"}, "is not a position of an array stream"),
    ({**GOOD, "epoch": None}, "is not a position of an array stream"),
    ({**GOOD, "batch": PER_EPOCH}, f"does not fit {PER_EPOCH} batches of {BATCH} per epoch"),
    ({**GOOD, "batch": -1}, "does not fit"),
    ({**GOOD, "samples": 0}, "does not fit"),
    ({**GOOD, "batch_size": BATCH + 1}, "does not fit"),
    ({"epoch": -1, "batch": 0, "samples": -PER_EPOCH * BATCH, "batch_size": BATCH}, "does not fit|is not a position"),
    ({**GOOD, "epoch": 2.0}, "does not fit|is not a position"),
    ({**GOOD, "batch": True}, "does not fit|is not a position"),
]


@pytest.mark.parametrize(("position", "message"), BAD)
def test_an_array_stream_refuses_a_bad_position_and_stays_where_it_was(
    position: dict[str, Any], message: str
) -> None:
    stream = array_stream()
    stream.seek(GOOD)
    with pytest.raises(StateError, match=rf"data\.position: .*({message})"):
        stream.seek(position)
    assert stream.position() == GOOD


GRAIN_GOOD = {"iterator": {"next_index": 3}, "samples": 3 * BATCH, "batch_size": BATCH}
GRAIN_BAD: list[dict[str, Any]] = [
    {},
    GOOD,
    {**GRAIN_GOOD, "batch_size": BATCH + 1},
    {**GRAIN_GOOD, "iterator": 3},
    {**GRAIN_GOOD, "iterator": {"somewhere": 3}},
    {"iterator": {"next_index": 3}, "batch_size": BATCH},
    {**GRAIN_GOOD, "samples": "15"},
    {**GRAIN_GOOD, "samples": 7},
]


@pytest.mark.parametrize("position", GRAIN_BAD)
def test_a_grain_stream_refuses_a_bad_position_and_stays_where_it_was(position: dict[str, Any]) -> None:
    stream = grain_stream()
    stream.take(4)
    before = stream.position()
    with pytest.raises(StateError, match=r"data\.position: is not a position of this Grain stream"):
        stream.seek(position)
    assert stream.position() == before


def data_loader_stream(name: str) -> GrainStream:
    inputs, targets = arrays()

    class Source:
        def __len__(self) -> int:
            return SIZE

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"inputs": inputs[i], "targets": targets[i]}

        def __repr__(self) -> str:  # Grain tells sources apart by it
            return name

    def make() -> Any:
        sampler = grain.samplers.IndexSampler(SIZE, seed=1, shuffle=True, num_epochs=3)
        batch = [grain.transforms.Batch(BATCH, drop_remainder=True)]
        return iter(grain.DataLoader(data_source=Source(), sampler=sampler, operations=batch, worker_count=0))

    return GrainStream(make, BATCH, SIZE)


def test_a_grain_data_loader_resumes_too() -> None:
    """Its iterators give their state as bytes, not as a dict."""
    stream, again = data_loader_stream("samples"), data_loader_stream("samples")
    stream.take(3)
    position = json.loads(json.dumps(stream.position()))
    again.seek(position)
    assert_same(again.take(4), stream.take(4))


def test_the_position_of_another_data_loader_is_refused() -> None:
    position = data_loader_stream("others").position()
    with pytest.raises(StateError, match=r"data\.position: is not a position of this Grain stream"):
        data_loader_stream("samples").seek(position)


@cache
def text_run() -> RunSpec:
    return small("gpt-text")


@pytest.mark.parametrize("reader", ["memory", "grain"])
def test_text_targets_are_the_next_bytes(reader: Any) -> None:
    spec = replace(text_run(), data=replace(text_run().data, reader=reader))
    chunk = open_stream(spec, load_dataset(spec)).take(2)
    assert chunk.inputs.shape == (2, 8, 8)
    assert chunk.inputs.dtype == chunk.targets.dtype == np.int32
    np.testing.assert_array_equal(chunk.inputs[..., 1:], chunk.targets[..., :-1])


def test_validation_samples_are_held_out_and_the_split_ignores_the_seed() -> None:
    spec = preset("mlp-digits")
    a, b = load_dataset(spec), load_dataset(replace(spec, seed=9))
    np.testing.assert_array_equal(a.validation_inputs, b.validation_inputs)
    np.testing.assert_array_equal(a.inputs, b.inputs)
    assert (len(a.inputs), len(a.validation_inputs)) == (1797 - 360, 360)
    rows = {x.tobytes() for x in a.inputs} & {x.tobytes() for x in a.validation_inputs}
    assert rows == set()
    assert (a.inputs.min(), a.inputs.max()) == (0.0, 1.0)


def test_too_few_samples_are_refused_with_the_arithmetic() -> None:
    spec = replace(preset("mlp-digits"), batch=2048)
    with pytest.raises(SpecError, match=r"batch: 2048 samples .* 1797 samples - 360 for validation = 1437"):
        load_dataset(spec)


def test_a_text_file_that_cannot_be_read_is_refused(tmp_path: Any) -> None:
    spec = preset("gpt-text")
    for path, content in (("absent.txt", None), ("latin.txt", b"\xe9" * 100)):
        if content is not None:
            (tmp_path / path).write_bytes(content)
        broken = replace(spec, data=replace(spec.data, path=str(tmp_path / path)))
        with pytest.raises(SpecError, match=rf"data\.path: cannot read .*{path} as UTF-8 text"):
            load_dataset(broken)


def test_a_regression_is_a_linear_map_with_bounded_noise_drawn_from_the_seed():
    """Least squares finds the map again, up to the noise, on samples that were held out."""
    spec = load("linear-regression", None, ["model.inputs=5", "model.outputs=3"])
    data = load_dataset(spec)
    assert (data.inputs.dtype, data.targets.dtype) == (np.float32, np.float32)
    assert (data.inputs.shape, data.targets.shape) == ((2048 - 256, 5), (2048 - 256, 3))
    assert np.abs(data.inputs).max() <= 1
    rows = np.c_[data.inputs, np.ones(len(data.inputs))].astype(np.float64)
    found = np.linalg.lstsq(rows, data.targets.astype(np.float64), rcond=None)[0]
    held_out = np.c_[data.validation_inputs, np.ones(256)] @ found
    assert 0.08 < np.abs(held_out - data.validation_targets).max() < 0.12
    assert load_dataset(spec).digest == data.digest
    other = load_dataset(load("linear-regression", None, ["model.inputs=5", "model.outputs=3", "seed=1"]))
    assert other.digest != data.digest


def test_a_regression_by_an_mlp_has_the_samples_of_one_by_a_linear_map():
    linear = load_dataset(load("linear-regression", None, ["model.inputs=5", "model.outputs=3"]))
    mlp = load_dataset(load("linear-regression", None, ["model.kind=mlp", "model.inputs=5", "model.classes=3"]))
    assert mlp.targets.shape == (2048 - 256, 3)
    assert mlp.digest == linear.digest


def test_a_regression_needs_outputs_that_are_numbers_and_is_judged_by_its_loss():
    for overrides, message in (
        (["model.kind=gpt"], r"data\.source: 'regression' does not fit a model of kind 'gpt'"),
        (["model.kind=cnn"], r"data\.source: 'regression' does not fit a model of kind 'cnn'"),
        (["model.kind=mlp", "metric=accuracy"], "metric: a regression run is judged by 'loss'"),
        (["data.source=digits"], r"data\.source: 'digits' does not fit a model of kind 'linear'"),
        (["metric=accuracy"], "metric: a regression run is judged by 'loss'"),
    ):
        with pytest.raises(SpecError, match=message):
            load("linear-regression", None, overrides)
