"""Zip tricks in `state.pt`: bombs, names that lead outside, two readers that see two archives; sealed again."""

import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from tests.hostile.entry import Entry
from tests.hostile.pickles import STATE, read_archive, write_archive
from tests.hostile.runs import Sandbox

TAIL = 98
"""Bytes of the three end records that PyTorch writes: zip64 end (56), its locator (20), the classic end (22)."""

End = Callable[[bytes], bytes]


def _zipped(change: Callable[[zipfile.ZipFile, dict[str, bytes]], None]) -> Callable[[Sandbox], None]:
    """Return a spoiler that writes the records with Python's zipfile, and lets `change` add to them."""

    def spoil(box: Sandbox) -> None:
        records = read_archive(box.newest / STATE)
        with zipfile.ZipFile(box.newest / STATE, "w") as archive:
            change(archive, records)
            for name, data in records.items():
                archive.writestr(f"archive/{name}", data)

    return spoil


def _bytes(change: Callable[[bytearray], bytes | bytearray | None]) -> Callable[[Sandbox], None]:
    """Return a spoiler that changes the bytes of the file."""

    def spoil(box: Sandbox) -> None:
        data = bytearray((box.newest / STATE).read_bytes())
        new = change(data)
        (box.newest / STATE).write_bytes(data if new is None else new)

    return spoil


def _directory(data: bytes | bytearray) -> int:
    """Return where the central directory starts."""
    return int(struct.unpack("<Q", data[-TAIL + 48 : -TAIL + 56])[0])


def _in_directory(field: int, form: str, value: int) -> Callable[[Sandbox], None]:
    """Return a spoiler that sets a field of the first entry of the central directory."""

    def change(data: bytearray) -> None:
        struct.pack_into(form, data, _directory(data) + field, value)

    return _bytes(change)


def _in_end(field: int, form: str, value: int) -> Callable[[Sandbox], None]:
    """Return a spoiler that sets a field of the end records, counted from the zip64 end."""
    return _bytes(lambda data: struct.pack_into(form, data, len(data) - TAIL + field, value))


def _add(name: str, data: bytes = b"abc", how: int = zipfile.ZIP_STORED) -> Callable[[Sandbox], None]:
    def change(archive: zipfile.ZipFile, records: dict[str, bytes]) -> None:
        archive.writestr(zipfile.ZipInfo(name), data, compress_type=how)

    return _zipped(change)


def _bomb(archive: zipfile.ZipFile, records: dict[str, bytes]) -> None:
    """Let a record unpack to 512 MiB from half a MiB."""
    del records["data/0"]
    with archive.open(zipfile.ZipInfo("archive/data/0"), "w") as file:
        file._compressor = zipfile._get_compressor(zipfile.ZIP_DEFLATED)
        file._zinfo.compress_type = zipfile.ZIP_DEFLATED
        for _ in range(512):
            file.write(bytes(1 << 20))


def _twice(archive: zipfile.ZipFile, records: dict[str, bytes]) -> None:
    archive.writestr(zipfile.ZipInfo("archive/data/0"), bytes(len(records["data/0"])))


def _overlapping(data: bytearray) -> None:
    """Let two records of the directory be the same bytes."""
    names = zipfile.ZipFile(io.BytesIO(data)).infolist()
    entry = bytes(data).index(b"PK\1\2", _directory(data) + 4)
    struct.pack_into("<I", data, entry + 42, names[0].header_offset)


def _second_directory(inside: str) -> Callable[[Sandbox], None]:
    """Put another archive into a record, and let the zip64 locator point to its end record.

    Python's zipfile reads the end record before the locator; PyTorch's reader follows the locator's offset, and sees
    a `data/0` of zeros, compressed.
    """

    def spoil(box: Sandbox) -> None:
        path = box.newest / STATE
        records = read_archive(path)
        zeros = bytes(len(records["data/0"]))
        pack = zlib.compressobj(9, zlib.DEFLATED, -15)
        packed = pack.compress(zeros) + pack.flush()
        marker = b"\xa5" * 4096  # room for the second archive, filled in once offsets are known
        write_archive(path, {**records, inside: records.get(inside, b"") + marker})
        data = bytearray(path.read_bytes())
        room, start = bytes(data).index(marker), _directory(data)
        name = zipfile.ZipFile(path).namelist()[0].partition("/")[0].encode() + b"/data/0"
        local = struct.pack(
            "<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 0, zlib.crc32(zeros), len(packed), len(zeros), len(name), 0
        )
        second, count = b"", 0
        for entry in _entries(bytes(data), start):
            count += 1
            if entry[46 : 46 + len(name)] == name and len(name) == struct.unpack("<H", entry[28:30])[0]:
                sizes = (zlib.crc32(zeros), len(packed), len(zeros))
                entry = (
                    struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 0, *sizes, len(name), 0, 0, 0, 0, 0, room)
                    + name
                )
            second += entry
        hidden = local + name + packed
        end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(second), room + len(hidden))
        whole = hidden + second + end
        assert len(whole) <= len(marker)
        data[room : room + len(whole)] = whole
        struct.pack_into("<Q", data, len(data) - 34, room + len(hidden) + len(second))
        path.write_bytes(data)

    return spoil


def _entries(data: bytes, start: int) -> list[bytes]:
    found = []
    while data[start : start + 4] == b"PK\1\2":
        length = 46 + sum(struct.unpack("<3H", data[start + 28 : start + 34]))
        found.append(data[start : start + length])
        start += length
    return found


def _legacy(keep: bool) -> Callable[[Sandbox], None]:
    """Write the state as PyTorch did before 1.6; with the good archive behind it, or without."""

    def spoil(box: Sandbox) -> None:
        path = box.newest / STATE
        good = path.read_bytes()
        saved = torch.load(path, weights_only=True)
        saved["model"]["layers.0.weight"] += 1
        torch.save(saved, path, _use_new_zipfile_serialization=False)
        if keep:
            path.write_bytes(path.read_bytes() + good)

    return spoil


def _tar(box: Sandbox) -> None:
    """Write the oldest format of PyTorch, whose loader unpacks a tar."""
    with tarfile.open(box.newest / STATE, "w") as archive:
        for name in ("storages", "tensors", "pickle", "../../../canary"):
            info = tarfile.TarInfo(name)
            info.size = 4
            archive.addfile(info, io.BytesIO(b"abcd"))


def _of_megabytes(count: int) -> Callable[[Sandbox], None]:
    """Write a directory of a hundred thousand entries, all of them for the same bytes."""

    def spoil(box: Sandbox) -> None:
        data = bytearray((box.newest / STATE).read_bytes())
        start = _directory(data)
        entry = _entries(bytes(data), start)[0]
        body = entry * count
        end = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(body), start)
        locator = struct.pack("<4sIQI", b"PK\6\7", 0, start + len(body), 1)
        (box.newest / STATE).write_bytes(bytes(data[:start]) + body + end + locator + bytes(data[-22:]))

    return spoil


def _sparse(size: int) -> Callable[[Sandbox], None]:
    """Let the file be of gigabytes that take no room on disk."""

    def spoil(box: Sandbox) -> None:
        path: Path = box.newest / STATE
        with path.open("r+b") as file:
            file.truncate(size)

    return spoil


REFUSED: dict[str, Callable[[Sandbox], None]] = {
    "no-archive": _bytes(lambda data: b"this is no archive"),
    "empty-file": _bytes(lambda data: b""),
    "only-an-end-record": _bytes(lambda data: data[-22:]),
    "only-the-three-end-records": _bytes(lambda data: data[-TAIL:]),
    "cut-in-the-middle": _bytes(lambda data: data[: len(data) // 2]),
    "cut-by-one-byte": _bytes(lambda data: data[:-1]),
    "cut-before-the-end-record": _bytes(lambda data: data[:-22]),
    "something-before-it": _bytes(lambda data: b"#!/bin/sh\n" + data),
    "something-behind-it": _bytes(lambda data: data + b"behind"),
    "legacy-format": _legacy(keep=False),
    "legacy-format-before-a-good-archive": _legacy(keep=True),
    "tar-format": _tar,
    "compressed-bomb": _zipped(_bomb),
    "compressed-record": _add("archive/more", bytes(1000), zipfile.ZIP_DEFLATED),
    "compressed-with-bzip2": _add("archive/more", bytes(1000), zipfile.ZIP_BZIP2),
    "record-twice": _zipped(_twice),
    "record-of-another-folder": _add("other/data.pkl", b"\x80\x02}."),
    "record-named-outside": _add("archive/../../../canary"),
    "record-named-absolute": _add("/etc/hostname"),
    "record-without-folder": _add("data.pkl"),
    "record-of-no-known-kind": _add("archive/more"),
    "records-that-overlap": _bytes(_overlapping),
    "encrypted-flag": _in_directory(8, "<H", 0x809),
    "method-unknown": _in_directory(10, "<H", 99),
    "method-deflate-of-stored-bytes": _in_directory(10, "<H", 8),
    "version-of-the-future": _in_directory(6, "<H", 255),
    "size-of-an-exabyte": _in_directory(24, "<I", 0xFFFFFFF0),
    "both-sizes-too-large": _in_directory(20, "<Q", 0x7FFFFFFF_7FFFFFFF),
    "offset-beyond-the-file": _in_directory(42, "<I", 0x7FFFFFFF),
    "offset-into-another-record": _in_directory(42, "<I", 6),
    "signature-of-the-directory": _in_directory(0, "<I", 0),
    "name-longer-than-the-directory": _in_directory(28, "<H", 0xFFFF),
    "extra-field-longer-than-the-directory": _in_directory(30, "<H", 0xFFFF),
    "zip64-count-of-a-billion": _in_end(32, "<Q", 1 << 30),
    "zip64-directory-of-an-exabyte": _in_end(40, "<Q", 1 << 60),
    "zip64-directory-elsewhere": _in_end(48, "<Q", 0),
    "zip64-locator-elsewhere": _in_end(64, "<Q", 0),
    "comment-longer-than-the-file": _in_end(56 + 20 + 20, "<H", 0xFFFF),
    "second-directory-in-a-record": _second_directory("more"),
    "second-directory-behind-the-pickle": _second_directory("data.pkl"),
    "directory-of-100000-entries": _of_megabytes(100_000),
    "sparse-of-a-gigabyte": _sparse(1 << 30),
    "header-zeroed": _bytes(lambda data: data.__setitem__(slice(0, 64), bytes(64))),
    "comment": _bytes(lambda data: bytes(data[:-2]) + struct.pack("<H", 5) + b"hello"),
}
"""Name to how the file is spoiled."""

DISK = _in_end(56 + 20 + 4, "<H", 7)
"""Sets the number of the disk, which both readers ignore: they read the same bytes as before."""

ENTRIES = [
    *(
        Entry(f"zip-{name}", "torch", "refused", r"state\.pt|does not fit this run: \S+: ", spoil)
        for name, spoil in REFUSED.items()
    ),
    Entry("zip-of-another-disk", "torch", "harmless", "", DISK),
]
