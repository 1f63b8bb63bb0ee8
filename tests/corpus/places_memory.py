"""Places in memory that is no array: buffers, C types, maps, a database, a picture of numbers as text."""

from __future__ import annotations

import array
import ctypes
import io
import mmap
import multiprocessing
import sqlite3
import struct
import tempfile
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from multiprocessing import shared_memory
from queue import Queue, SimpleQueue
from types import MappingProxyType, SimpleNamespace
from typing import Any

from tests.corpus.place import Ways, as_bytes, as_floats, from_bytes, from_floats, table

__all__ = ["MEMORY"]


def bytes_io(first: Any) -> Ways:
    stream = io.BytesIO(as_bytes(first))

    def write(value: Any) -> None:
        stream.seek(0)
        stream.write(as_bytes(value))

    return lambda: from_bytes(stream.getvalue(), first), write


def string_io(first: Any) -> Ways:
    stream = io.StringIO(repr(as_floats(first)))

    def write(value: Any) -> None:
        stream.seek(0)
        stream.truncate()
        stream.write(repr(as_floats(value)))

    return lambda: from_floats(map(float, stream.getvalue()[1:-1].split(",")), first), write


def ctypes_array(first: Any) -> Ways:
    raw = (ctypes.c_double * len(first))(*as_floats(first))

    def write(value: Any) -> None:
        raw[:] = as_floats(value)  # type: ignore[call-overload]

    return lambda: from_floats(raw, first), write


class Record(ctypes.Structure):
    _fields_ = (("a", ctypes.c_double), ("b", ctypes.c_double), ("c", ctypes.c_double))


def ctypes_structure(first: Any) -> Ways:
    record = Record(*as_floats(first))

    def write(value: Any) -> None:
        record.a, record.b, record.c = as_floats(value)

    return lambda: from_floats((record.a, record.b, record.c), first), write


def array_array(first: Any) -> Ways:
    raw = array.array("d", as_floats(first))

    def write(value: Any) -> None:
        raw[:] = array.array("d", as_floats(value))

    return lambda: from_floats(raw, first), write


def byte_array(first: Any) -> Ways:
    raw = bytearray(as_bytes(first))

    def write(value: Any) -> None:
        raw[:] = as_bytes(value)

    return lambda: from_bytes(raw, first), write


def memory_view(first: Any) -> Ways:
    view = memoryview(bytearray(as_bytes(first)))

    def write(value: Any) -> None:
        view[:] = as_bytes(value)

    return lambda: from_bytes(view, first), write


def anonymous_map(first: Any) -> Ways:
    pages = mmap.mmap(-1, 4096)
    pages[: len(first) * 8] = as_bytes(first)

    def write(value: Any) -> None:
        pages[: len(first) * 8] = as_bytes(value)

    return lambda: from_bytes(pages[: len(first) * 8], first), write


def map_of_a_file(first: Any) -> Ways:
    with tempfile.TemporaryFile() as file:
        file.truncate(4096)
        pages = mmap.mmap(file.fileno(), 4096)
    pages[: len(first) * 8] = as_bytes(first)

    def write(value: Any) -> None:
        pages[: len(first) * 8] = as_bytes(value)

    return lambda: from_bytes(pages[: len(first) * 8], first), write


def sqlite_in_memory(first: Any) -> Ways:
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("create table kept (content blob)")
    database.execute("insert into kept values (?)", (as_bytes(first),))

    def write(value: Any) -> None:
        database.execute("update kept set content = ?", (as_bytes(value),))

    return lambda: from_bytes(database.execute("select content from kept").fetchone()[0], first), write


def array_of_multiprocessing(first: Any) -> Ways:
    common = multiprocessing.RawArray("d", as_floats(first))

    def write(value: Any) -> None:
        common[:] = as_floats(value)

    return lambda: from_floats(common, first), write


def shared_block(first: Any) -> Ways:
    block = shared_memory.SharedMemory(create=True, size=64)
    block.unlink()
    size = len(first) * 8
    assert block.buf is not None
    block.buf[:size] = as_bytes(first)

    def write(value: Any) -> None:
        block.buf[:size] = as_bytes(value)  # type: ignore[index]

    return lambda: from_bytes(block.buf[:size], first), write  # type: ignore[index]


def packed_text(first: Any) -> Ways:
    packed = struct.pack("3d", *as_floats(first)).hex()

    def write(value: Any) -> None:
        nonlocal packed
        packed = struct.pack("3d", *as_floats(value)).hex()

    return lambda: from_floats(struct.unpack("3d", bytes.fromhex(packed)), first), write


def floats_of_python(first: Any) -> Ways:
    numbers = as_floats(first)

    def write(value: Any) -> None:
        numbers[:] = as_floats(value)

    return lambda: from_floats(numbers, first), write


def fractions_and_decimals(first: Any) -> Ways:
    numbers = [Fraction(number) for number in as_floats(first)]
    exact = [Decimal(number) for number in as_floats(first)]

    def write(value: Any) -> None:
        numbers[:] = [Fraction(number) for number in as_floats(value)]
        exact[:] = [Decimal(number) for number in as_floats(value)]

    return lambda: from_floats(
        [float(a + Fraction(b)) / 2 for a, b in zip(numbers, exact, strict=True)], first
    ), write


def ring(first: Any) -> Ways:
    last = deque([first], maxlen=1)
    return lambda: last[0], last.append


def ordered_dict(first: Any) -> Ways:
    ordered = OrderedDict(slow=first)
    return lambda: ordered["slow"], lambda value: ordered.__setitem__("slow", value)


def default_factory(first: Any) -> Ways:
    box = [first]

    def make() -> Any:
        return box[0]

    table: defaultdict[str, Any] = defaultdict(make)

    def read() -> Any:
        table.clear()
        return table["slow"]

    return read, lambda value: box.__setitem__(0, value)


def counter(first: Any) -> Ways:
    counted = Counter({str(at): number for at, number in enumerate(as_floats(first))})  # type: ignore[misc]

    def write(value: Any) -> None:
        for at, number in enumerate(as_floats(value)):
            counted[str(at)] = number  # type: ignore[assignment]

    return lambda: from_floats((counted[str(at)] for at in range(len(first))), first), write


def chain_map(first: Any) -> Ways:
    layers = ChainMap({}, {"slow": first})
    return lambda: layers["slow"], lambda value: layers.maps[1].__setitem__("slow", value)


def user_dict(first: Any) -> Ways:
    noted = UserDict(slow=first)
    return lambda: noted["slow"], lambda value: noted.__setitem__("slow", value)


def user_list(first: Any) -> Ways:
    listed = UserList([first])
    return lambda: listed[0], lambda value: listed.__setitem__(0, value)


def namespace(first: Any) -> Ways:
    space = SimpleNamespace(slow=first)

    def write(value: Any) -> None:
        space.slow = value

    return lambda: space.slow, write


def mapping_proxy(first: Any) -> Ways:
    proxy = MappingProxyType({"slow": [first]})
    return lambda: proxy["slow"][0], lambda value: proxy["slow"].__setitem__(0, value)


def in_a_line(line: Queue[Any] | SimpleQueue[Any], first: Any) -> Ways:
    line.put(first)

    def read() -> Any:
        value = line.get()
        line.put(value)
        return value

    def write(value: Any) -> None:
        line.get()
        line.put(value)

    return read, write


def queue(first: Any) -> Ways:
    return in_a_line(Queue(), first)


def simple_queue(first: Any) -> Ways:
    return in_a_line(SimpleQueue(), first)


def keys_of_a_dict(first: Any) -> Ways:
    table = {tuple(as_floats(first)): "slow"}

    def write(value: Any) -> None:
        table.clear()
        table[tuple(as_floats(value))] = "slow"

    return lambda: from_floats(next(iter(table)), first), write


def frozen_set(first: Any) -> Ways:
    members = frozenset(enumerate(as_floats(first)))

    def write(value: Any) -> None:
        nonlocal members
        members = frozenset(enumerate(as_floats(value)))

    return lambda: from_floats((number for _, number in sorted(members)), first), write


MEMORY = table(
    bytes_io="stream",
    string_io="stream",
    ctypes_array="raw",
    ctypes_structure="record",
    array_array="raw",
    byte_array="raw",
    memory_view="view",
    anonymous_map="pages",
    map_of_a_file="pages",
    sqlite_in_memory="database",
    array_of_multiprocessing="common",
    shared_block="block",
    packed_text="packed",
    floats_of_python="numbers",
    fractions_and_decimals="numbers exact",
    ring="last",
    ordered_dict="ordered",
    default_factory="table box",
    counter="counted",
    chain_map="layers",
    user_dict="noted",
    user_list="listed",
    namespace="space",
    mapping_proxy="proxy",
    queue="line",
    simple_queue="line",
    keys_of_a_dict="table",
    frozen_set="members",
)(
    bytes_io,
    string_io,
    ctypes_array,
    ctypes_structure,
    array_array,
    byte_array,
    memory_view,
    anonymous_map,
    map_of_a_file,
    sqlite_in_memory,
    array_of_multiprocessing,
    shared_block,
    packed_text,
    floats_of_python,
    fractions_and_decimals,
    ring,
    ordered_dict,
    default_factory,
    counter,
    chain_map,
    user_dict,
    user_list,
    namespace,
    mapping_proxy,
    queue,
    simple_queue,
    keys_of_a_dict,
    frozen_set,
)
