"""Stores that each do one thing other than they must; everything else is the honest double's."""

from __future__ import annotations

import time

from tests.remote.more_mutants import MORE_MUTANTS
from tests.remote.server import Held, Memory, Refusal

__all__ = ["MUTANTS"]


class IgnoresIfNoneMatch(Memory):
    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        super().check(held, {k: v for k, v in asked.items() if k != "if-none-match"})


class IgnoresIfMatch(Memory):
    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        super().check(held, {k: v for k, v in asked.items() if k != "if-match"})


class SwapsWhatIsGone(Memory):
    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        if held is not None or "if-match" not in asked:
            super().check(held, asked)


class ChecksBeforeItLocks(Memory):
    """Two conditional puts at once both succeed."""

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        self.check(self.bucket(bucket).get(key), asked)
        if "if-none-match" in asked:
            time.sleep(0.03)
        return self.write(bucket, key, data)


class SwapsBeforeItLocks(Memory):
    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        if "if-match" not in asked:
            return super().put(bucket, key, data, asked)
        self.check(self.bucket(bucket).get(key), asked)
        time.sleep(0.03)
        return self.write(bucket, key, data)


class AlwaysConflicts(Memory):
    """409 for every conditional put, as if another request were always in flight."""

    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        if {"if-match", "if-none-match"} & set(asked):
            raise Refusal(409, "ConditionalRequestConflict")


class KnowsNoConditions(Memory):
    """501 for every conditional put, as from a store that does not implement them."""

    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        if {"if-match", "if-none-match"} & set(asked):
            raise Refusal(501, "NotImplemented")


class RefusesAndWrites(Memory):
    """412, and the content is replaced all the same."""

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        try:
            return super().put(bucket, key, data, asked)
        except Refusal:
            self.write(bucket, key, data)
            raise


class SaysYesAndDoesNothing(Memory):
    """A condition that does not hold is answered with success."""

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        try:
            return super().put(bucket, key, data, asked)
        except Refusal as error:
            if error.status == 412:
                return self.get(bucket, key)
            raise


class ListsWhatIsDeleted(Memory):
    """404 after a delete, and a list that still shows it."""

    def __post_init__(self) -> None:
        self.gone: dict[str, Held] = {}

    def delete(self, bucket: str, key: str) -> None:
        if key in self.bucket(bucket):
            self.gone[key] = self.bucket(bucket)[key]
        super().delete(bucket, key)

    def listing(self, bucket: str) -> dict[str, Held]:
        return dict(sorted({**self.gone, **super().listing(bucket)}.items()))


class ListsLate(Memory):
    """A list that lacks what was written in the last second."""

    def listing(self, bucket: str) -> dict[str, Held]:
        return {key: held for key, held in super().listing(bucket).items() if self.now() - held.modified > 1}


class ListsOldSizes(Memory):
    def __post_init__(self) -> None:
        self.first: dict[str, Held] = {}

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        held = super().write(bucket, key, data)
        self.first.setdefault(key, held)
        return held

    def listing(self, bucket: str) -> dict[str, Held]:
        return {key: self.first[key] for key in super().listing(bucket)}


class ListsNeighbours(Memory):
    """A list of a folder that has something of the folder beside it."""

    def listing(self, bucket: str) -> dict[str, Held]:
        found = super().listing(bucket)
        return {
            **found,
            **{f"{key.rpartition('/')[0]}/a/stray": held for key, held in found.items() if key.endswith("/ab")},
        }


class TearsParts(Memory):
    """The last part of an upload is lost."""

    def joined(self, parts: dict[int, bytes]) -> bytes:
        return b"".join(parts[number] for number in sorted(parts)[:-1])


class ShufflesParts(Memory):
    def joined(self, parts: dict[int, bytes]) -> bytes:
        return b"".join(parts[number] for number in sorted(parts, reverse=True))


class ShowsParts(Memory):
    """What was uploaded so far can be read before the upload is complete."""

    def add_part(self, bucket: str, key: str, upload: str, number: int, data: bytes) -> str:
        tag = super().add_part(bucket, key, upload, number, data)
        with self.lock:
            self.write(bucket, key, self.joined(self.uploads[upload]))
        return tag


class ReadsOld(Memory):
    """A read within a second of an overwrite gives what was there before."""

    def __post_init__(self) -> None:
        self.before: dict[str, Held] = {}

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        if key in self.bucket(bucket):
            self.before[key] = self.bucket(bucket)[key]
        return super().write(bucket, key, data)

    def get(self, bucket: str, key: str) -> Held:
        held = super().get(bucket, key)
        return self.before[key] if key in self.before and self.now() - held.modified < 1 else held


class OneTag(Memory):
    """The ETag is that of the name, and not of the content."""

    def etag(self, data: bytes) -> str:
        return '"always"'


class TagsThatChange(Memory):
    def get(self, bucket: str, key: str) -> Held:
        held = super().get(bucket, key)
        self.generation += 1
        return Held(held.data, f'"{self.generation}"', held.generation, held.modified)


class RangesOffByOne(Memory):
    def part_of(self, data: bytes, start: int, end: int) -> bytes:
        return data[start + 1 : end + 1].ljust(end - start, b"\0")


class Truncates(Memory):
    """Bodies over 4 MiB are cut, without a word."""

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        return super().write(bucket, key, data[: 4 << 20])


class KeepsWhatIsDeleted(Memory):
    def delete(self, bucket: str, key: str) -> None:
        pass


class WrongLength(Memory):
    def said_length(self, held: Held) -> int:
        return len(held.data) + 1


class ClockStands(Memory):
    def now(self) -> float:
        return 1_795_000_000.0


class ClockIsOff(Memory):
    def now(self) -> float:
        return time.time() - 3600


class ClockRuns(Memory):
    def __post_init__(self) -> None:
        self.began = time.time()

    def now(self) -> float:
        return self.began + (time.time() - self.began) * 100


MUTANTS: dict[type[Memory], str] = {
    IgnoresIfNoneMatch: "create-only puts",
    IgnoresIfMatch: "compare-and-swap puts",
    SwapsWhatIsGone: "compare-and-swap puts",
    ChecksBeforeItLocks: "puts at once",
    SwapsBeforeItLocks: "puts at once",
    AlwaysConflicts: "create-only puts",
    KnowsNoConditions: "create-only puts",
    RefusesAndWrites: "create-only puts",
    SaysYesAndDoesNothing: "compare-and-swap puts",
    ListsWhatIsDeleted: "deletes",
    ListsLate: "lists",
    ListsOldSizes: "lists",
    ListsNeighbours: "lists",
    TearsParts: "uploads in parts",
    ShufflesParts: "uploads in parts",
    ShowsParts: "uploads in parts",
    ReadsOld: "reads after writes",
    OneTag: "reads after writes",
    TagsThatChange: "reads after writes",
    RangesOffByOne: "ranges",
    Truncates: "uploads in parts",
    KeepsWhatIsDeleted: "deletes",
    WrongLength: "reads after writes",
    ClockStands: "clock",
    ClockIsOff: "clock",
    ClockRuns: "clock",
    **MORE_MUTANTS,
}
"""Store to the part of the probe that finds its fault."""
