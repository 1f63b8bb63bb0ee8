"""What several threads read is what one reads; a file that cannot be read whole is refused by name."""

import io
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parity.storage import ParallelReader, read_ranges
from parity.storage import parallel_read as reading
from tests.support.small import quick

DATA = bytes(i * i % 251 for i in range(1000))

MOVES = st.one_of(
    st.tuples(st.just("read"), st.integers(-1, 1200)),
    st.tuples(st.just("readinto"), st.integers(0, 1200)),
    st.tuples(st.sampled_from(["set", "current", "end"]), st.integers(-1200, 1200)),
)


def act(file: io.RawIOBase, move: str, n: int) -> object:
    """Return what a move on a file gives, or that it is refused."""
    try:
        if move == "read":
            return file.read(n)
        if move == "readinto":
            target = bytearray(n)
            return file.readinto(target), bytes(target)
        return file.seek(n, ["set", "current", "end"].index(move))
    except (OSError, ValueError):
        return "refused"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("file") / "data"
    path.write_bytes(DATA)
    return path


@pytest.mark.takes_seconds("1")
@pytest.mark.parametrize("block", [1, 7, 1 << 20])
def test_it_reads_and_seeks_as_a_file_does(block: int, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", block)

    @quick()
    @given(st.lists(MOVES, max_size=8))
    def same(moves: list[tuple[str, int]]) -> None:
        with ParallelReader(file) as ours, file.open("rb", buffering=0) as plain:
            for move in moves:
                assert act(ours, *move) == act(plain, *move)
                assert ours.tell() == plain.tell()

    same()


def test_the_blocks_of_large_reads_are_read_side_by_side(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 500)
    monkeypatch.setattr(reading.os, "cpu_count", lambda: 2)
    both = threading.Barrier(2, timeout=60)
    real = os.preadv

    def together(*arguments: object) -> int:
        both.wait()  # breaks if one thread reads both
        return real(*arguments)

    monkeypatch.setattr(reading.os, "preadv", together)
    target = bytearray(1000)
    read_ranges({file: [(0, memoryview(target))]})
    assert target == DATA


def test_ranges_of_several_files_come_to_their_buffers(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(DATA[::-1])
    targets = [bytearray(n) for n in (10, 0, 300)]
    first, none, last = map(memoryview, targets)
    read_ranges({file: [(5, first), (1000, none)], tmp_path / "other": [(700, last)]})
    assert targets == [DATA[5:15], b"", DATA[::-1][700:]]


def test_a_read_that_gives_less_than_asked_for_goes_on(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr(reading.os, "preadv", lambda handle, parts, start: real(handle, [parts[0][:3]], start))
    with ParallelReader(file) as ours:
        assert ours.read() == DATA


def test_a_file_that_became_shorter_is_refused_by_name(file: Path) -> None:
    with pytest.raises(EOFError, match=f"{file} ends at 1000 bytes; it was longer a moment ago"):
        read_ranges({file: [(991, memoryview(bytearray(10)))]})


def test_neither_a_link_nor_a_pipe_is_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "none"):
        with pytest.raises(OSError, match=name):
            ParallelReader(tmp_path / name)
        with pytest.raises(OSError, match=name):
            read_ranges({tmp_path / name: [(0, memoryview(bytearray(1)))]})


def test_files_are_closed_behind_a_failure(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        with pytest.raises(EOFError):
            read_ranges({file: [(1000, memoryview(bytearray(1)))]})
        ParallelReader(file).close()
    assert len(os.listdir("/proc/self/fd")) == before
