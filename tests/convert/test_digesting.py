"""Digests beside the writing: the same as of the whole array, however a writer reads it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from parity.convert.digesting import Digests
from parity.errors import CheckpointError
from parity.formats import Array, InMemory
from parity.state import digest_text

VALUE = np.arange(6000, dtype=np.float32).reshape(60, 100)


def whole(array: Array) -> None:
    list(array.blocks(4000))


def rows(array: Array) -> None:
    for at in reversed(range(60)):
        array.read(((at, at + 1), (0, 100)))


def twice(array: Array) -> None:
    whole(array)
    array.read(((0, 60), (0, 50)))


def half(array: Array) -> None:
    array.read(((0, 30), (0, 100)))


READERS: dict[str, Callable[[Array], None]] = {
    "whole": whole,
    "rows": rows,
    "twice": twice,
    "half": half,
    "not at all": lambda _: None,
}


@pytest.mark.parametrize("name", READERS)
def test_the_digest_is_that_of_the_array(name: str) -> None:
    with Digests() as digests:
        watched = digests.watch(("a", 0), InMemory(VALUE))
        assert digests.watch(("b",), 3) == 3
        READERS[name](watched)
        assert digests.texts() == {"a.0": digest_text(VALUE)}


def test_a_changed_element_changes_it() -> None:
    other = VALUE.copy()
    other[59, 99] += 1
    with Digests() as digests:
        whole(digests.watch(("a",), InMemory(other)))
        assert digests.texts() != {"a": digest_text(VALUE)}


def test_blocks_are_in_c_order_and_are_what_the_writer_gets() -> None:
    with Digests() as digests:
        watched = digests.watch(("a",), InMemory(VALUE.T))
        found = watched.read(((0, 100), (0, 60)))
        assert found.flags.c_contiguous
        assert np.array_equal(found, VALUE.T)


def test_an_array_that_cannot_be_read_is_an_error_and_no_thread_is_left() -> None:
    import threading

    class Broken(InMemory):
        def read(self, box: Any) -> Any:
            raise CheckpointError("gone")

    before = threading.active_count()

    def read() -> None:
        with Digests() as digests:
            digests.watch(("a",), Broken(VALUE))
            digests.texts()

    with pytest.raises(CheckpointError, match="gone"):
        read()
    assert threading.active_count() == before
