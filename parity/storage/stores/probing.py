"""A probe of a store: what the suite relies on, tried with a few objects of its own.

Not every store that speaks S3 keeps conditions, lists what it holds, or shows an upload whole or not at all; and its
documentation need not say so. What is tried here in seconds may still fail under load: a store that passes is one
that was not seen to fail.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from parity.errors import (
    ParityError,
    StoreConflictError,
    StoreContentionError,
    StoreError,
    StoreMissingError,
)
from parity.storage.digests import digest_bytes
from parity.storage.stores.objects import Objects, Version
from parity.storage.stores.transfer import digest_objects

__all__ = ["ONE_WRITER", "TRIED", "ProbeRow", "Probed", "probe"]

RACERS, RACES = 6, 5
MOST_SKEW = 900.0
"""Most seconds between the clock of the store and ours; S3 refuses signatures beyond."""
PART = 5 << 20
"""Bytes of a part: the least that S3 takes of one that is not the last."""
TICK = 1.2
"""Seconds between two objects whose times must differ: the times of S3 are in whole seconds."""
TEXT = b'{"step": 1}\n' * 1000
"""What a proxy that means it well might compress, or end the lines of in another way."""
NAMES = ("Name", "name", "e\u0301", "\u00e9", "a+b", "a b", "a%2Bb", "a&b=c;d", "a'(b)!~*", "1.", "1", "0/1", "0-1")
"""Files of checkpoints: items and parameters are named by users, and differ in as little as that."""


@dataclass(frozen=True)
class ProbeRow:
    """One thing that was tried."""

    name: str
    promise: str
    """What the suite promises only where it holds."""
    problem: str = ""
    """What was seen instead; empty where it held."""


@dataclass(frozen=True)
class Probed:
    """What a probe found."""

    rows: tuple[ProbeRow, ...]

    @property
    def safe(self) -> bool:
        """Return whether the store keeps everything that was tried."""
        return not self.problems

    @property
    def problems(self) -> list[ProbeRow]:
        """Return what did not hold."""
        return [row for row in self.rows if row.problem]


class _Broken(Exception):
    """What a store did other than it must."""


def probe(store: Objects) -> Probed:
    """Try what the suite relies on; every object of the probe is removed again.

    Args:
        store: The place below which the objects of the probe are written, in a folder of their own.

    Raises:
        StoreError: The store refused or was not reached: nothing is known of it.
    """
    store.look_around()
    home = store.at(f"probe-{uuid.uuid4().hex}")
    rows = []
    try:
        for name, promise, attempt in TRIED:
            problem = ""
            try:
                attempt(home.at(name.replace(" ", "-")))
            except _Broken as error:
                problem = str(error)
            except (StoreConflictError, StoreContentionError, StoreMissingError) as error:
                problem = f"refused what must succeed: {error}"
            except StoreError as error:
                if error.transient or error.denied:  # this says nothing of what the store keeps
                    raise
                problem = f"refused what must succeed: {error}"
            rows.append(ProbeRow(name, promise, problem))
    finally:
        with suppress(ParityError):
            home.delete(home.list())
    return Probed(tuple(rows))


def _say(fine: bool, problem: str) -> None:
    if not fine:
        raise _Broken(problem)


def _reads(store: Objects) -> None:
    """Each read after a write gives what was written, through other connections too."""
    contents = [*(_bytes(size, number) for number, size in enumerate((10, 100_000, 0, 10))), TEXT, bytes(5000)]
    for data in contents:
        size, written = len(data), store.put("x", data)
        for _ in range(2):
            found, entry = store.read("x")
            _say(found == data, "a read after a write gave something else")
            _say(entry.size == size, f"an object of {size} bytes is said to have {entry.size}")
            _say(store.look("x").size == size, f"an object of {size} bytes is said to have {store.look('x').size}")
            _say(entry.version == store.look("x").version, "the ETag of an object changes between two requests")
            _say(written == entry.version, "the ETag of a write is not that of the object")
    versions = {store.put("y", _bytes(20, number)) for number in range(3)}
    _say(len(versions) == 3, "different contents have the same ETag")


def _create(store: Objects) -> None:
    """A put of what must not be there."""
    _require_version(store, "a create-only put", store.create("x", b"first"))
    _say(not _succeeds(lambda: store.create("x", b"second")), "a create-only put replaced an object")
    _say(store.read("x")[0] == b"first", "a create-only put that was refused changed the object")
    store.delete(["x"])
    store.create("x", b"third")
    _say(store.read("x")[0] == b"third", "a create-only put after a delete did not write")


def _swap(store: Objects) -> None:
    """A put of what must be of a version."""
    first = store.create("x", b"1st")
    second = store.swap("x", b"2nd", first)
    _say(store.read("x")[0] == b"2nd", "a compare-and-swap put that succeeded did not write")
    _require_version(store, "a compare-and-swap put", second)
    for other in (b"3rd", b"third"):  # of the length of what is there, and of another
        put = partial(store.swap, "x", other, first)
        _say(not _succeeds(put), "a compare-and-swap put took an old version")
        _say(store.read("x")[0] == b"2nd", "a compare-and-swap put that was refused changed the object")
    store.delete(["x"])
    _say(not _succeeds(lambda: store.swap("x", b"4th", second)), "a compare-and-swap put took a deleted object")
    _say(_is_missing(store, "x"), "a compare-and-swap put that was refused made an object")


def _races(store: Objects) -> None:
    """Several at once: one wins, and what is there is the winner's."""
    for number in range(RACES):
        begin = store.create(f"swap{number}", b"before")
        for key, act in (
            (f"new{number}", lambda data, key=f"new{number}": store.create(key, data)),
            (f"swap{number}", lambda data, key=f"swap{number}", begin=begin: store.swap(key, data, begin)),
        ):
            winners = _race(act)
            what = "create-only" if key.startswith("new") else "compare-and-swap"
            _say(len(winners) == 1, f"of {RACERS} {what} puts at once, {len(winners)} succeeded")
            _say(store.read(key)[0] == winners[0], f"after {what} puts at once, a loser's content is there")


def _race(act: Callable[[bytes], object]) -> list[bytes]:
    winners: list[bytes] = []
    failures: list[StoreError] = []
    barrier = threading.Barrier(RACERS)

    def run(who: int) -> None:
        data = f"racer {who} {uuid.uuid4().hex}".encode()
        barrier.wait()
        try:
            act(data)
            winners.append(data)
        except StoreConflictError:
            pass
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(RACERS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failures and not winners:
        raise failures[0]
    return winners


def _deletes(store: Objects) -> None:
    """What is deleted is gone from reads and from lists."""
    store.put("x", b"1")
    store.put("y", b"2")
    store.delete(["x"])
    _say(_is_missing(store, "x"), "a deleted object can still be read")
    _say(
        list(store.list()) == ["y"], f"after a delete the list has {', '.join(store.list()) or 'nothing'}, expected y"
    )
    time.sleep(TICK)
    _say(_is_missing(store, "x"), "a deleted object is there again a moment later")
    _say(list(store.list()) == ["y"], "the list has a deleted object again a moment later")
    store.delete(["x"])
    store.put("x", b"3")
    _say(store.read("x")[0] == b"3", "an object written after a delete is another one")


def _lists(store: Objects) -> None:
    """A list has what is there, now, with its sizes, and nothing of a neighbour."""
    for number in range(12):
        store.put(f"a/{number}", _bytes(number, number))
        expected = {f"a/{one}": one for one in range(number + 1)}
        found = {key: entry.size for key, entry in store.list("a").items()}
        _say(found == expected, f"after {number + 1} writes the list has {len(found)} objects, or other sizes")
    store.put("ab", b"")
    _say(len(store.list("a")) == 12, "the list of a folder has an object beside it")
    store.put("a/0", b"12345")
    _say(store.list("a")["a/0"].size == 5, "the list has the size of before an object was replaced")


def _names(store: Objects) -> None:
    """Names that differ are of different objects, and are listed as they were written."""
    for number, name in enumerate(NAMES):
        store.put(name, _bytes(10, number))
    for number, name in enumerate(NAMES):
        _say(
            store.read(name)[0] == _bytes(10, number),
            f"an object named {name!a} was replaced by that of another name",
        )
    _say(
        sorted(store.list()) == sorted(NAMES), "the list has names that are spelled otherwise than they were written"
    )


def _ranges(store: Objects) -> None:
    """A range is those bytes."""
    data = _bytes(PART, 1)
    store.put("x", data)
    for start, size in ((0, 1), (1, 7), (PART - 5, 5), (PART // 2, 70_000)):
        _say(
            bytes(store.read_range("x", start, size)) == data[start : start + size],
            f"the range from {start} of {size} bytes has other bytes",
        )


def _wholes(store: Objects) -> None:
    """An object of one request or of several parts has all of its bytes, and is not seen before it is complete."""
    one = _bytes(PART, 2)
    store.put("one", one)
    several = _bytes(PART + 1000, 3)
    store.put("several", b"before")
    with store.writing("several", PART) as write, store.writing("new", PART) as write_new:
        write(several[:PART])
        write_new(several[:PART])
        time.sleep(0.2)
        _say(_is_missing(store, "new"), "an upload in parts can be read before it is complete")
        _say(store.read("several")[0] == b"before", "an upload in parts replaced an object before it is complete")
        write(several[PART:])
        write_new(several[PART:])
    expected = {"one": digest_bytes(one), "several": digest_bytes(several), "new": digest_bytes(several)}
    for key, digest in expected.items():
        size = store.look(key).size
        _say(size == digest.size, f"an object of {digest.size:,} bytes has {size:,}")
    found = digest_objects(store, {key: digest.size for key, digest in expected.items()})
    _say(found == expected, "an object holds other bytes than were uploaded")


def _clock(store: Objects) -> None:
    """The time of an object is when it was written, by a clock that goes on."""
    times = []
    store.put("old", b"0")
    for number in range(2):
        store.put("x", b"%d" % number)
        times.append(store.look("x").modified)
        time.sleep(TICK if number == 0 else 0)
    _say(store.read("old")[1].modified == store.look("old").modified, "GET and HEAD give other times of one object")
    _say(times[1] > times[0], "the time of an object does not move when it is written again")
    _say(times[1] - times[0] < 60, f"the clock of the store went {times[1] - times[0]:.0f} s in {TICK} s")
    skew = times[1] - time.time()
    differ = f"the clock of the store and that of this machine differ by {abs(skew):.0f} s"
    _say(abs(skew) < MOST_SKEW, f"{differ}; set that of this machine (NTP), or the store's")


def _require_version(store: Objects, what: str, version: Version) -> None:
    _say(store.look("x").version == version, f"{what} is answered with another ETag than that of the object")


def _bytes(size: int, seed: int) -> bytes:
    """Return bytes that no two pieces of have in common."""
    return hashlib.shake_128(b"%d" % seed).digest(size)


def _succeeds(act: Callable[[], object]) -> bool:
    try:
        act()
    except StoreConflictError:
        return False
    return True


def _is_missing(store: Objects, key: str) -> bool:
    try:
        store.read(key)
    except StoreMissingError:
        return True
    return False


ONE_WRITER = "one writer for each prefix"
WHOLE, KEPT, FETCH, EXPIRE = (
    "a checkpoint is whole or absent",
    "retention, and nothing left behind",
    "fetches that are verified as they arrive",
    "a lease that ends when its owner is gone",
)

TRIED: tuple[tuple[str, str, Callable[[Objects], None]], ...] = (
    ("reads after writes", WHOLE, _reads),
    ("create-only puts", ONE_WRITER, _create),
    ("compare-and-swap puts", ONE_WRITER, _swap),
    ("puts at once", ONE_WRITER, _races),
    ("deletes", KEPT, _deletes),
    ("lists", KEPT, _lists),
    ("names", WHOLE, _names),
    ("ranges", FETCH, _ranges),
    ("uploads in parts", WHOLE, _wholes),
    ("clock", EXPIRE, _clock),
)
