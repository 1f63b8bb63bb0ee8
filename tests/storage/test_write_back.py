"""Writing in a thread: all of it, in order, and what fails is raised by whoever waits."""

import errno
import os
from pathlib import Path
from random import Random

import pytest

from parity.storage import WriteBack, write_back


def test_all_of_it_is_there_at_the_end_of_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_back, "EVERY", 1000)
    random = Random(0)
    pieces = [random.randbytes(random.randint(0, 3000)) for _ in range(200)]
    at = sum(map(len, pieces))
    with (tmp_path / "file").open("xb", buffering=0) as file, WriteBack() as back:
        for piece in pieces:
            back.write(file.fileno(), piece)
        back.write(file.fileno(), b"there", at + 10)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces) + bytes(10) + b"there"


def test_small_and_large_ones_stay_in_their_order(tmp_path: Path) -> None:
    random = Random(1)
    sizes = [random.choice([1, 100, write_back.SMALL, write_back.SMALL + 1, 1 << 19]) for _ in range(200)]
    pieces = [random.randbytes(8) * (size // 8 + 1) for size in sizes]
    with (tmp_path / "file").open("xb", buffering=0) as file, WriteBack() as back:
        for piece in pieces:
            back.write(file.fileno(), piece)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


def test_files_may_be_closed_at_once_and_no_handle_is_left(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with WriteBack() as back:
        for number in range(50):
            with (tmp_path / str(number)).open("xb", buffering=0) as file:
                back.write(file.fileno(), b"x" * number)
    assert [(tmp_path / str(n)).stat().st_size for n in range(50)] == list(range(50))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_system_that_writes_a_part_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    with (tmp_path / "file").open("xb", buffering=0) as file, WriteBack() as back:
        back.write(file.fileno(), bytes(range(100)))
    assert (tmp_path / "file").read_bytes() == bytes(range(100))


@pytest.mark.parametrize("call", ["write", "SYNCHRONIZE"])
def test_what_fails_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """A full disk under a write, and a disk that fails when it is asked to keep what was written."""
    monkeypatch.setattr(write_back, "EVERY", 1)
    before = len(os.listdir("/proc/self/fd"))

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with (tmp_path / "file").open("xb", buffering=0) as file:
        monkeypatch.setattr(write_back if call.isupper() else os, call, fail)
        with pytest.raises(OSError, match="No space left"), WriteBack() as back:
            back.write(file.fileno(), b"x")
        written: list[int] = []
        with pytest.raises(OSError, match="No space left"):
            write_many(file.fileno(), written)
        assert len(written) < 100, "the error of a write came only at the end"
        monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before


def write_many(handle: int, written: list[int]) -> None:
    with WriteBack() as back:
        for number in range(100):
            back.write(handle, b"x")
            written.append(number)


def test_the_error_of_the_block_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "failed too")

    monkeypatch.setattr(os, "write", fail)

    def write() -> None:
        with (tmp_path / "file").open("xb", buffering=0) as file, WriteBack() as back:
            back.write(file.fileno(), bytes(write_back.SMALL + 1))
            raise KeyError("first")

    with pytest.raises(KeyError, match="first"):
        write()
