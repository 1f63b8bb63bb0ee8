"""More stores that each do one thing other than they must: of answers, names and what happens a moment later."""

from __future__ import annotations

import gzip
import time
import unicodedata
from dataclasses import replace

from tests.remote.server import Held, Memory, Refusal

__all__ = ["MORE_MUTANTS"]


class ComparesLengths(Memory):
    """A compare-and-swap that compares the length of the content."""

    def __post_init__(self) -> None:
        self.lengths: dict[str, int] = {}

    def etag(self, data: bytes) -> str:
        tag = super().etag(data)
        self.lengths[tag] = len(data)
        return tag

    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        tag = asked.get("if-match")
        if tag is not None and held is not None and self.lengths.get(tag) == len(held.data):
            return
        super().check(held, asked)


class TagsOfLengths(Memory):
    def etag(self, data: bytes) -> str:
        return f'"{len(data)}"'


class ListsTwoSecondsLate(Memory):
    """Lists show what was there two seconds before: neither new objects nor removals."""

    def __post_init__(self) -> None:
        self.past: list[tuple[float, dict[str, Held]]] = []

    def note(self, bucket: str) -> None:
        self.past.append((self.now(), dict(self.bucket(bucket))))

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        held = super().write(bucket, key, data)
        self.note(bucket)
        return held

    def delete(self, bucket: str, key: str) -> None:
        super().delete(bucket, key)
        self.note(bucket)

    def listing(self, bucket: str) -> dict[str, Held]:
        old = [found for when, found in self.past if when < self.now() - 2]
        return dict(sorted(old[-1].items())) if old else {}


class StoresHalf(Memory):
    """200 for a put, and half of it is there."""

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        held = super().put(bucket, key, data, asked)
        self.write(bucket, key, data[: len(data) // 2])
        return held


class StoresHalfOfConditional(Memory):
    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        given = data[: len(data) // 2] if {"if-match", "if-none-match"} & set(asked) else data
        return super().put(bucket, key, given, asked)


class TagOfAnotherObject(Memory):
    """A write is answered with the ETag of what was written before it."""

    def __post_init__(self) -> None:
        self.last = '"none"'

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        held = super().put(bucket, key, data, asked)
        self.last, told = held.etag, self.last
        return replace(held, etag=told)


class SwapsAnswerAnotherTag(Memory):
    """The answer to a compare-and-swap has the ETag that was replaced."""

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        held = super().put(bucket, key, data, asked)
        return replace(held, etag=asked.get("if-match", held.etag))


class DeletesComeBack(Memory):
    """What was deleted is there again half a second later."""

    def __post_init__(self) -> None:
        self.gone: list[tuple[float, str, str, Held]] = []

    def delete(self, bucket: str, key: str) -> None:
        if key in self.bucket(bucket):
            self.gone.append((self.now() + 0.5, bucket, key, self.bucket(bucket)[key]))
        super().delete(bucket, key)

    def return_them(self) -> None:
        with self.lock:
            for one in [one for one in self.gone if one[0] < self.now()]:
                self.gone.remove(one)
                self.buckets[one[1]].setdefault(one[2], one[3])

    def get(self, bucket: str, key: str) -> Held:
        self.return_them()
        return super().get(bucket, key)

    def listing(self, bucket: str) -> dict[str, Held]:
        self.return_them()
        return super().listing(bucket)


class RangesEndEarly(Memory):
    """The last byte of a range is taken for the one behind it."""

    def part_of(self, data: bytes, start: int, end: int) -> bytes:
        return data[start : end - 1] if end - start > 1 else data[start:end]


class RangesOfPartsOffByOne(Memory):
    """Ranges of what was uploaded in parts alone begin one byte late."""

    def __post_init__(self) -> None:
        self.several: set[bytes] = set()

    def joined(self, parts: dict[int, bytes]) -> bytes:
        data = super().joined(parts)
        self.several.add(data[:64])
        return data

    def part_of(self, data: bytes, start: int, end: int) -> bytes:
        late = 1 if data[:64] in self.several else 0
        return data[start + late : end + late].ljust(end - start, b"\0")


class HeadHasAnotherTag(Memory):
    def said(self, held: Held, method: str) -> Held:
        return replace(held, etag='"of-head"') if method == "HEAD" else held


class GetIsAnHourOlder(Memory):
    """The times of GET and HEAD differ: by them a lease that lives has ended long ago."""

    def said(self, held: Held, method: str) -> Held:
        return replace(held, modified=held.modified - 3600) if method == "GET" else held


class GetIsAlwaysNow(Memory):
    """GET says that every object was written this moment: a lease never ends."""

    def said(self, held: Held, method: str) -> Held:
        return replace(held, modified=self.now()) if method == "GET" else held


class RefusesFirstPuts(Memory):
    """412 for a create-only put of what is not there."""

    def check(self, held: Held | None, asked: dict[str, str]) -> None:
        if held is None and "if-none-match" in asked:
            raise Refusal(412, "PreconditionFailed")
        super().check(held, asked)


class Redirects(Memory):
    """Every read is sent elsewhere, where nothing is."""

    def get(self, bucket: str, key: str) -> Held:
        held = super().get(bucket, key)
        if not key.endswith("-elsewhere"):
            raise Refusal(307, "TemporaryRedirect", headers={"location": f"/{bucket}/{key}-elsewhere"})
        return held


class Compresses(Memory):
    """What compresses well comes compressed, as from a proxy that means it well."""

    def said(self, held: Held, method: str) -> Held:
        small = gzip.compress(held.data, mtime=0)
        return replace(held, data=small) if len(small) < len(held.data) // 2 else held


class EndsLinesOtherwise(Memory):
    """Text comes with the ends of lines of another system."""

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        text = data.isascii() and b"\0" not in data
        return super().write(bucket, key, data.replace(b"\n", b"\r\n") if text else data)


class Names(Memory):
    """Keys are kept as something else."""

    def name(self, key: str) -> str:
        return key

    def write(self, bucket: str, key: str, data: bytes) -> Held:
        return super().write(bucket, self.name(key), data)

    def get(self, bucket: str, key: str) -> Held:
        return super().get(bucket, self.name(key))

    def delete(self, bucket: str, key: str) -> None:
        super().delete(bucket, self.name(key))

    def put(self, bucket: str, key: str, data: bytes, asked: dict[str, str]) -> Held:
        return super().put(bucket, self.name(key), data, asked)


class LowersKeys(Names):
    def name(self, key: str) -> str:
        return key.lower()


class ComposesKeys(Names):
    def name(self, key: str) -> str:
        return unicodedata.normalize("NFC", key)


class PlusIsSpace(Names):
    def name(self, key: str) -> str:
        return key.replace("+", " ")


class RemembersAbsence(Memory):
    """What was asked for and was not there is not there for two more seconds."""

    def __post_init__(self) -> None:
        self.absent: dict[str, float] = {}

    def get(self, bucket: str, key: str) -> Held:
        if time.time() - self.absent.get(key, 0.0) < 2:
            raise Refusal(404, "NoSuchKey")
        try:
            return super().get(bucket, key)
        except Refusal:
            self.absent[key] = time.time()
            raise


class CompletesNothing(Memory):
    """200 for the end of an upload in parts, and nothing is there."""

    def complete(self, bucket: str, key: str, upload: str) -> Held:
        with self.lock:
            data = self.joined(self.uploads.pop(upload))
        return Held(data, self.etag(data), 1, self.now())


MORE_MUTANTS: dict[type[Memory], str] = {
    ComparesLengths: "compare-and-swap puts",
    TagsOfLengths: "reads after writes",
    ListsTwoSecondsLate: "lists",
    StoresHalf: "reads after writes",
    StoresHalfOfConditional: "create-only puts",
    TagOfAnotherObject: "reads after writes",
    SwapsAnswerAnotherTag: "compare-and-swap puts",
    DeletesComeBack: "deletes",
    RangesEndEarly: "ranges",
    RangesOfPartsOffByOne: "uploads in parts",
    HeadHasAnotherTag: "reads after writes",
    GetIsAnHourOlder: "clock",
    GetIsAlwaysNow: "clock",
    RefusesFirstPuts: "create-only puts",
    Redirects: "reads after writes",
    Compresses: "reads after writes",
    EndsLinesOtherwise: "reads after writes",
    LowersKeys: "names",
    ComposesKeys: "names",
    PlusIsSpace: "names",
    RemembersAbsence: "deletes",
    CompletesNothing: "uploads in parts",
}
"""Store to the part of the probe that finds its fault."""
