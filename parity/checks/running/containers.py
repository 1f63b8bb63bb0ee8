"""Files that hold several things: archives, databases, streams of arrays or pickles, curves of TensorBoard.

Each is opened as data; what differs between equal runs by design (times of members, a counter in a header) is left
out, so that two files of the same content have equal leaves. Every byte is of some piece: what stands before, between
or behind the parts that are known is one of bytes, so that nothing is passed over that a run had left.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import itertools
import lzma
import pickletools
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, BinaryIO

import numpy as np

__all__ = ["PACKED", "is_curve", "is_database", "is_one_archive", "is_tar", "pieces_of_archives", "pieces_of_pickles",
           "pieces_of_streams", "read_arrays", "read_curves", "read_database", "read_tar"]  # fmt: skip

MOST_SPLIT = 4 << 20
"""Bytes of a stream of pickles that is taken apart: its opcodes are read one by one."""
MOST_ROWS = 50_000

CurvesByTag = dict[str, dict[int, Any]]
"""Tag to step to value."""


def is_tar(data: bytes) -> bool:
    """Tell whether bytes begin as a tar archive does."""
    return data[257:262] == b"ustar"


def read_tar(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of an archive; times, owners and modes are left out.

    Another archive may stand behind the blocks of zeros that end one.
    """
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", ignore_zeros=True) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()
            elif member.issym() or member.islnk():
                yield member.name, member.linkname.encode()
        if behind := data[archive.offset :].strip(b"\0"):
            yield "", behind


def is_one_archive(file: BinaryIO) -> bool:
    """Tell whether a file is one archive (zip) from its first byte to its last, of a comment that is within it.

    Raises:
        zipfile.BadZipFile: It is none.
    """
    with zipfile.ZipFile(file) as archive:
        begin = min((item.header_offset for item in archive.infolist()), default=archive.start_dir)
        file.seek(-(22 + len(archive.comment)), io.SEEK_END)
        return begin == 0 and file.read(4) == b"PK\5\6"


def pieces_of_archives(data: bytes) -> list[zipfile.ZipFile | bytes]:
    """Return the archives (zip) that stand one after the other, and what bytes stand beside them, in their order.

    A shard of DCP is one `torch.save` behind the other. A reader of archives sees the last alone.

    Raises:
        zipfile.BadZipFile: There is none.
    """
    found: list[zipfile.ZipFile | bytes] = []
    rest = data
    while rest:
        try:
            archive = zipfile.ZipFile(io.BytesIO(rest))
        except zipfile.BadZipFile:
            if not found:
                raise
            found.append(rest)
            break
        end = rest.rfind(b"PK\5\6")
        if behind := rest[end + 22 + len(archive.comment) :]:
            found.append(behind)
        found += [archive.comment, archive] if archive.comment else [archive]
        begin = min((item.header_offset for item in archive.infolist()), default=archive.start_dir)
        rest = rest[:begin]
    return found[::-1]


def pieces_of_streams(data: bytes, most: int) -> list[bytes]:
    """Return what streams of zlib, bz2 or lzma hold that stand one after the other, and bytes behind them.

    Args:
        data: They begin with a stream.
        most: Bytes of which no more are unpacked; the others stay as they are.

    Raises:
        zlib.error: It is none, or is damaged.
    """
    found: list[bytes] = []
    while data:
        one = next(kind for begins, kind in _STREAMS.items() if data.startswith(begins))()
        try:
            inside = one.decompress(data, max(most, 1))
        except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
            if not found:
                raise zlib.error(str(error)) from error
            return [*found, data]
        most -= len(inside)
        found.append(inside)
        if left := getattr(one, "unconsumed_tail", b"" if one.eof else data):  # the others keep to themselves what
            return [*found, left]  # they have not unpacked: it counts with all that was packed
        data = one.unused_data
    return found


PACKED = (b"x\x01", b"x\x5e", b"x\x9c", b"x\xda", b"BZh", b"\xfd7zXZ\0")
"""How streams of zlib, bz2 and lzma begin."""
_STREAMS: dict[bytes, Callable[[], Any]] = {b"BZh": bz2.BZ2Decompressor, b"\xfd7zXZ\0": lzma.LZMADecompressor,
                                            b"": zlib.decompressobj}  # fmt: skip


def is_database(data: bytes) -> bool:
    """Tell whether bytes are a database of SQLite."""
    return data[:16] == b"SQLite format 3\0"


def read_database(data: bytes) -> dict[str, Any]:
    """Return the rows of each table: the bytes also hold counters of changes and free pages.

    Of a key that the database itself counts up and never gives twice (`AUTOINCREMENT`) the order counts alone: rows
    that were deleted and written again have other numbers, and the last one given is no content.

    Raises:
        sqlite3.Error: It is damaged.
    """
    whole = bytearray(data)
    whole[18:20] = b"\1\1"  # a database with a log beside it, opened without the log
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.deserialize(bytes(whole))
        opened.execute("PRAGMA trusted_schema = OFF")
        names = opened.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        found = {name: _rows(opened.execute(f"SELECT * FROM {_quoted(name)}")) for (name,) in names}
        for name in {name for name, *_ in found.pop("sqlite_sequence", ())} & found.keys():
            key = next(at for at, *_, place in opened.execute(f"PRAGMA table_info({_quoted(name)})") if place)
            found[name] = [(*row[:key], at, *row[key + 1 :]) for at, row in enumerate(found[name], 1)]
        for word in ("user_version", "application_id"):  # numbers that only the program itself sets
            (number,) = opened.execute(f"PRAGMA {word}").fetchone()
            found |= {word: [(number,)]} if number else {}
        return found


def _rows(table: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows of a table; those beyond as many as are told one by one as one row, their digest."""
    rows = iter(table)
    told = list(itertools.islice(rows, MOST_ROWS))
    rest = hashlib.blake2b(digest_size=16)
    more = False
    for row in rows:
        more = True
        rest.update(repr(row).encode())
    return [*told, (rest.hexdigest(),)] if more else told


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def read_arrays(data: bytes) -> Iterator[np.ndarray[Any, Any] | bytes]:
    """Yield what `numpy.save` wrote, one after the other into one file; an array of objects as its pickle.

    Raises:
        ValueError: It is something else.
    """
    file = io.BytesIO(data)
    while (start := file.tell()) < len(data):
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        _, _, dtype = read(file)
        if dtype.hasobject:
            stream = data[file.tell() :]
            end = next(_ends(stream), len(stream))
            yield stream[:end]
            file.seek(file.tell() + end)
        else:
            file.seek(start)
            yield np.lib.format.read_array(file, allow_pickle=False)


def pieces_of_pickles(data: bytes) -> list[bytes]:
    """Return the pickles that stand one after the other; the whole as one where it is large, or is something else."""
    if len(data) > MOST_SPLIT:
        return [data]
    try:
        ends = [0, *_ends(data)]
    except Exception:  # pickletools has no error of its own
        return [data]
    pieces = [data[a:b] for a, b in itertools.pairwise(ends)]
    return pieces if ends[-1] == len(data) and pieces else [data]


def _ends(data: bytes) -> Iterator[int]:
    """Yield where each pickle of a stream ends; nothing of it is executed."""
    file = io.BytesIO(data)
    while file.tell() < len(data) and data[file.tell()] == 0x80:
        for _ in pickletools.genops(file):
            pass
        yield file.tell()


def is_curve(data: bytes) -> bool:
    """Tell whether bytes begin as an event file of TensorBoard does."""
    return b"brain.Event:" in data[:64]


def read_curves(files: Iterable[bytes]) -> CurvesByTag:
    """Return tag to step to value, of event files in the order of their names; of a step the last value counts.

    A process that continues a run begins a file of its own, and TensorBoard shows all of a directory as one curve.
    Times are left out. A record that was cut short ends its file.
    """
    found: CurvesByTag = {}
    for data in files:
        at = 0
        while at + 12 <= len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            if at + 16 + size > len(data):
                break
            step, values = 0, []
            for field, value in _fields(data[at + 12 : at + 12 + size]):
                step = value if field == 2 else step
                values += [one for key, one in _fields(value) if key == 1] if field == 5 else []
            for value in values:
                parts = dict(_fields(value))
                tag = bytes(parts.pop(1, b"")).decode("utf-8", "replace")
                found.setdefault(tag, {})[int(step)] = parts.get(2, b"".join(_plain(parts)))
            at += 16 + size
    return found


def _plain(parts: dict[int, Any]) -> Iterator[bytes]:
    """Yield what a summary holds beside its tag: a tensor, an image; not the description of its plugin."""
    yield from (bytes(part) for field, part in sorted(parts.items()) if field != 9 and isinstance(part, bytes))


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message: an integer, a float, or the bytes of a part."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 1:
            yield key >> 3, struct.unpack_from("<d", message, at)[0]
            at += 8
        elif kind == 5:
            yield key >> 3, struct.unpack_from("<f", message, at)[0]
            at += 4
        elif kind == 2:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size
        else:
            return
