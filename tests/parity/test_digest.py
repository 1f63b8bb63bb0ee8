"""A file has one digest, however it was written or read; what is no plain file is refused and nothing hangs."""

import io
import os
import resource
import socket
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import xxhash

from parity.errors import CheckpointError
from parity.storage import BLOCK, DigestWriter, FileDigest, digest_files, digest_range, list_files, open_regular
from parity.storage import digests as digest


def noise(size: int) -> bytes:
    return np.random.default_rng(size).bytes(size)


def reference(data: bytes, block: int = BLOCK) -> FileDigest:
    """Return the digest as its name says it: of the digests of every block."""
    joined = b"".join(xxhash.xxh3_128_digest(data[i : i + block]) for i in range(0, len(data), block))
    return FileDigest(len(data), xxhash.xxh3_128_hexdigest(joined))


def written(data: bytes, pieces: Iterator[int]) -> tuple[bytes, FileDigest]:
    file = io.BytesIO()
    writer = DigestWriter(file)
    start = 0
    while start < len(data):
        start += writer.write(data[start : start + next(pieces)])
    return file.getvalue(), writer.result()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 12345])
def test_written_in_pieces_and_read_in_blocks_give_the_same_digest(size: int, tmp_path: Path) -> None:
    data = noise(size)
    (tmp_path / "file").write_bytes(data)
    expected = reference(data)
    assert digest_files(tmp_path, ["file"]) == {"file": expected}
    assert written(data, cycle([1, 4097, (1 << 20) + 3, 7, BLOCK // 2 - 1])) == (data, expected)
    assert written(data, cycle([BLOCK])) == (data, expected)
    assert written(data, cycle([max(1, size)])) == (data, expected)


def test_every_size_around_every_border_gives_the_same_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With blocks of 16 bytes and reads of 4, every size and piece meets every border."""
    monkeypatch.setattr(digest, "BLOCK", 16)
    monkeypatch.setattr(digest, "_PIECE", 4)
    data = noise(70)
    for size in range(70):
        (tmp_path / str(size)).write_bytes(data[:size])
        for piece in (1, 3, 15, 16, 17, 33):
            assert written(data[:size], cycle([piece]))[1] == reference(data[:size], 16)
    found = digest_files(tmp_path, map(str, range(70)))
    assert found == {str(size): reference(data[:size], 16) for size in range(70)}
    assert len({d.digest for d in found.values()}) == 70


def test_the_number_of_threads_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(noise(3 * BLOCK + 1))
    (tmp_path / "small").write_bytes(b"x")
    names = ["large", "small"]
    found = []
    for count in (1, 2, 64):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        found.append(digest_files(tmp_path, names))
    assert found[0] == found[1] == found[2]
    assert list(found[0]) == names


@pytest.mark.parametrize("place", [0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK])
def test_one_bit_anywhere_gives_another_digest(place: int, tmp_path: Path) -> None:
    data = bytearray(2 * BLOCK + 1)
    (tmp_path / "file").write_bytes(data)
    before = digest_files(tmp_path, ["file"])
    data[place] ^= 1
    (tmp_path / "file").write_bytes(data)
    assert digest_files(tmp_path, ["file"]) != before


def test_exchanged_blocks_and_a_moved_border_give_another_digest() -> None:
    a, b = noise(BLOCK), noise(BLOCK)[::-1]
    digests = {reference(data).digest for data in (a + b, b + a, a, b, b"")}
    assert len(digests) == 5
    assert written(a + b, cycle([12345]))[1] != written(b + a, cycle([12345]))[1]


class Reluctant(io.BytesIO):
    """Takes at most five bytes at once, as a full pipe or a signal makes a file do."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return super().write(data[:5])


def test_a_file_that_takes_part_of_a_write_gets_the_rest() -> None:
    file = Reluctant()
    writer = DigestWriter(file)
    assert writer.write(noise(103)) == 103
    assert file.getvalue() == noise(103)
    assert writer.result() == reference(noise(103))


def test_a_result_in_between_does_not_disturb_what_follows() -> None:
    writer = DigestWriter(io.BytesIO())
    writer.write(b"abc")
    assert writer.result() == reference(b"abc")
    writer.write(memoryview(b"def"))
    writer.flush()
    assert writer.result() == reference(b"abcdef")


def test_more_files_than_may_be_open_are_digested(tmp_path: Path) -> None:
    names = [f"{n:03}" for n in range(400)]
    for name in names:
        (tmp_path / name).write_bytes(noise(4096) + name.encode())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, before[1]))
    try:
        found = digest_files(tmp_path, names)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert found["399"] == reference(noise(4096) + b"399")
    assert len({d.digest for d in found.values()}) == 400


def test_no_handle_stays_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(noise(2 << 20))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = set(os.listdir("/proc/self/fd"))
    digest_files(tmp_path, ["file"])
    digest_range(tmp_path / "file", 0, 10)
    for name in ("link", "."):
        with pytest.raises(OSError, match=r"symbolic links|is not a regular file"):
            digest_range(tmp_path / name, 0, 10)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_range_is_digested_as_far_as_it_is_there(tmp_path: Path) -> None:
    data = noise((1 << 20) + 500)
    (tmp_path / "file").write_bytes(data)
    for start, size in (
        (0, 0),
        (0, len(data)),
        (17, 1 << 20),
        (len(data) - 3, 3),
        (len(data) - 3, 300),
        (1 << 30, 9),
    ):
        assert digest_range(tmp_path / "file", start, size) == xxhash.xxh3_128_hexdigest(data[start : start + size])


def make(kind: str, path: Path) -> None:
    """Put something that is no plain file at a path."""
    target = path.with_name("target")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            server.bind(f"/proc/self/fd/{here}/{path.name}")  # a socket's path may have 107 bytes
            os.close(here)
    elif kind == "link to a file":
        target.write_bytes(b"outside")
        path.symlink_to(target)
    elif kind == "link to a directory":
        target.mkdir()
        path.symlink_to(target, target_is_directory=True)
    else:
        path.symlink_to(target)


KINDS = ("pipe", "socket", "link to a file", "link to a directory", "link to nothing")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_plain_file_is_refused_without_waiting_for_anybody(kind: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "items").mkdir(parents=True)
    odd = tmp_path / "checkpoint" / "items" / "odd"
    make(kind, odd)
    with pytest.raises(CheckpointError, match="items/odd is a link or no regular file; a checkpoint holds neither"):
        list_files(tmp_path / "checkpoint")
    for read in (
        open_regular,
        lambda path: digest_range(path, 0, 8),
        lambda path: digest_files(path.parent, ["odd"]),
    ):
        with pytest.raises(OSError, match=r"not a regular file|symbolic links|No such device"):
            read(odd)


def test_a_linked_file_is_not_digested(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"outside")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="link is not a regular file"):
        digest_files(tmp_path, ["link"])


def test_a_listing_gives_every_file_by_its_path_in_order(tmp_path: Path) -> None:
    sizes = {"a/b/c": 1, "a/b.c": 2, "a.c": 0, "ü": 3}
    for name, size in sizes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(size))
    (tmp_path / "empty").mkdir()
    assert list_files(tmp_path) == sizes
    assert list(list_files(tmp_path)) == sorted(sizes)


def test_a_directory_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"none cannot be listed: No such file or directory"):
        list_files(tmp_path / "none")


def test_a_tree_deeper_than_any_checkpoint_is_refused(tmp_path: Path) -> None:
    deepest = tmp_path.joinpath(*["d"] * 16)
    deepest.mkdir(parents=True)
    (deepest / "file").touch()
    assert len(list_files(tmp_path)) == 1
    (deepest / "d").mkdir()
    with pytest.raises(CheckpointError, match="lies deeper than 16 folders"):
        list_files(tmp_path)


def test_a_tree_with_more_files_than_any_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "MAX_FILES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    assert len(list_files(tmp_path)) == 3
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "e").touch()
    with pytest.raises(CheckpointError, match="holds more than 3 files"):
        list_files(tmp_path)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice on files")
@pytest.mark.parametrize("pieces", [[10], [1000, 3000], [999, 1, 1000, 2500]])
def test_what_was_written_is_sent_to_the_disk_once_and_in_order(
    pieces: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(digest, "SENT_BYTES", 1000)
    monkeypatch.setattr(os, "posix_fadvise", lambda handle, start, size, advice: sent.append((start, size)))
    with (tmp_path / "a").open("wb") as file:
        writer = digest.DigestWriter(file)
        for size in pieces:
            writer.write(bytes(size))
    ends = [start + size for start, size in sent]
    assert [start for start, _ in sent] == [0, *ends][: len(sent)]
    assert sum(pieces) - (ends[-1] if ends else 0) < 1000
    assert writer.result() == digest.digest_files(tmp_path, ["a"])["a"]


def test_a_system_that_refuses_the_advice_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(digest, "SENT_BYTES", 1000)
    monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    with (tmp_path / "a").open("wb") as file:
        writer = digest.DigestWriter(file)
        writer.write(bytes(5000))
    assert (tmp_path / "a").stat().st_size == 5000
    assert writer.failure is None
    assert writer.result() == digest.digest_files(tmp_path, ["a"])["a"]
