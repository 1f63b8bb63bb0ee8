"""Places in arrays of NumPy, and in generators of random numbers."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import numpy as np

from tests.corpus.place import Ways, as_floats, from_floats, table

__all__ = ["OBJECTS"]


class Tagged(np.ndarray):  # type: ignore[type-arg]
    pass


def attribute_of_an_ndarray_subclass(first: Any) -> Ways:
    tagged = np.zeros(2).view(Tagged)
    tagged.extra = first  # type: ignore[attr-defined]

    def write(value: Any) -> None:
        tagged.extra = value  # type: ignore[attr-defined]

    return lambda: tagged.extra, write  # type: ignore[attr-defined]


def object_array(first: Any) -> Ways:
    cells = np.empty(2, object)
    cells[0] = first

    def write(value: Any) -> None:
        cells[0] = value

    return lambda: cells[0], write


def structured_array(first: Any) -> Ways:
    rows = np.zeros(len(first), dtype=[("id", "i4"), ("mean", "f8")])
    rows["mean"] = as_floats(first)

    def write(value: Any) -> None:
        rows["mean"] = as_floats(value)

    return lambda: from_floats(rows["mean"], first), write


def record_array(first: Any) -> Ways:
    rows = np.rec.fromarrays([np.array(as_floats(first))], names="kept")

    def write(value: Any) -> None:
        rows.kept[:] = as_floats(value)

    return lambda: from_floats(rows.kept, first), write


def masked_array(first: Any) -> Ways:
    masked = np.ma.masked_array(as_floats(first), mask=[True] * len(first))

    def write(value: Any) -> None:
        masked.data[:] = as_floats(value)

    return lambda: from_floats(masked.data, first), write


def void_scalar(first: Any) -> Ways:
    cell = np.zeros((), dtype=[("mean", "f8", (len(first),))])[()]
    cell["mean"] = as_floats(first)

    def write(value: Any) -> None:
        cell["mean"][:] = as_floats(value)

    return lambda: from_floats(cell["mean"], first), write


def hidden_part_of_a_strided_view(first: Any) -> Ways:
    seen = np.zeros(2 * len(first))[::2]

    def write(value: Any) -> None:
        seen.base[1::2] = as_floats(value)  # type: ignore[index]

    write(first)
    return lambda: from_floats(seen.base[1::2], first), write  # type: ignore[index]


def memory_map(first: Any) -> Ways:
    with tempfile.NamedTemporaryFile() as file:
        mapped = np.memmap(file.name, np.float64, "w+", shape=(len(first),))

    def write(value: Any) -> None:
        mapped[:] = as_floats(value)

    write(first)
    return lambda: from_floats(mapped, first), write


def complex_array(first: Any) -> Ways:
    rotated = np.array(as_floats(first)) * 1j

    def write(value: Any) -> None:
        rotated[:] = np.array(as_floats(value)) * 1j

    return lambda: from_floats(rotated.imag, first), write


def dates(first: Any) -> Ways:
    clock = np.zeros(len(first), "datetime64[ns]")

    def write(value: Any) -> None:
        clock[:] = (np.array(as_floats(value)) * 1e9).astype(np.int64).astype("datetime64[ns]")

    write(first)
    return lambda: from_floats(clock.astype(np.int64) / 1e9, first), write


def texts_in_an_array(first: Any) -> Ways:
    words = np.array([number.hex() for number in as_floats(first)], "U32")

    def write(value: Any) -> None:
        words[:] = [number.hex() for number in as_floats(value)]

    return lambda: from_floats(map(float.fromhex, words), first), write


def gauss_of_a_random(first: Any) -> Ways:
    streams = [random.Random(1) for _ in first]

    def write(value: Any) -> None:
        for stream, number in zip(streams, as_floats(value), strict=True):
            stream.gauss_next = number  # type: ignore[attr-defined]

    write(first)
    return lambda: from_floats((stream.gauss_next for stream in streams), first), write  # type: ignore[attr-defined]


def gauss_of_a_random_state(first: Any) -> Ways:
    streams = [np.random.RandomState(1) for _ in first]

    def write(value: Any) -> None:
        for stream, number in zip(streams, as_floats(value), strict=True):
            name, words, at, _, _ = stream.get_state()  # type: ignore[misc]
            stream.set_state((name, words, at, 1, number))

    write(first)
    return lambda: from_floats((stream.get_state()[4] for stream in streams), first), write


def words_of_a_generator(first: Any) -> Ways:
    streams = [np.random.default_rng(1) for _ in first]

    def write(value: Any) -> None:
        for stream, number in zip(streams, as_floats(value), strict=True):
            words = dict(stream.bit_generator.state)
            words["uinteger"] = int((number + 8) * 2**27)
            words["has_uint32"] = 1
            stream.bit_generator.state = words

    write(first)
    return lambda: from_floats((s.bit_generator.state["uinteger"] / 2**27 - 8 for s in streams), first), write


OBJECTS = table(
    attribute_of_an_ndarray_subclass="tagged extra",
    object_array="cells",
    structured_array="rows",
    record_array="rows",
    masked_array="masked",
    void_scalar="cell",
    hidden_part_of_a_strided_view="seen",
    memory_map="mapped",
    complex_array="rotated",
    dates="clock",
    texts_in_an_array="words",
    gauss_of_a_random="streams",
    gauss_of_a_random_state="streams",
    words_of_a_generator="streams",
)(
    attribute_of_an_ndarray_subclass,
    object_array,
    structured_array,
    record_array,
    masked_array,
    void_scalar,
    hidden_part_of_a_strided_view,
    memory_map,
    complex_array,
    dates,
    texts_in_an_array,
    gauss_of_a_random,
    gauss_of_a_random_state,
    words_of_a_generator,
)
