"""One writer to a run directory; who it is can be read, and a dead one stands in nobody's way."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parity.errors import LockedError, RunDirectoryError
from parity.storage import WriterLock

HOLDER = """
import sys
from pathlib import Path
from parity.storage.lock import WriterLock
with WriterLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_another(directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_another_process_is_named_with_its_command(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as process:
        with pytest.raises(LockedError, match="has a writer already") as caught, WriterLock(tmp_path):
            pass
        assert caught.value.owner.startswith(f"process {process.pid} on {os.uname().nodename} since ")
        assert caught.value.owner.endswith(f" (-c {tmp_path})")
        owner = json.loads((tmp_path / "lock").read_text())
        assert owner["pid"] == process.pid, "what was refused has not written its own name over it"


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as process:
        process.kill()
        process.wait()
        with WriterLock(tmp_path):
            assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_a_process_that_ends_on_its_own_holds_nothing(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as process:
        process.communicate("")
        with WriterLock(tmp_path):
            pass


def test_within_one_process_there_is_one_writer_too(tmp_path: Path) -> None:
    """Record locks do not conflict there: the process keeps a list."""
    (tmp_path / "link").symlink_to(tmp_path)
    with WriterLock(tmp_path):
        for path in (tmp_path, tmp_path / "link", tmp_path / "." / "link" / ".." / tmp_path.name):
            with pytest.raises(LockedError, match=f"process {os.getpid()}: this one, by another trainer"):
                WriterLock(path).__enter__()
        refused: list[LockedError] = []

        def from_a_thread() -> None:
            try:
                WriterLock(tmp_path).__enter__()
            except LockedError as error:
                refused.append(error)

        thread = threading.Thread(target=from_a_thread)
        thread.start()
        thread.join()
        assert len(refused) == 1
    with WriterLock(tmp_path):
        pass


def test_what_was_refused_takes_nothing_from_who_holds_it(tmp_path: Path) -> None:
    """A refused attempt that opened the file would drop the lock of its own process on closing it."""
    with WriterLock(tmp_path):
        with pytest.raises(LockedError, match="this one, by another trainer"):
            WriterLock(tmp_path).__enter__()
        code = f"from pathlib import Path; from parity.storage import WriterLock; WriterLock(Path({str(tmp_path)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", f"{code}.__enter__()"], capture_output=True, text=True, check=False
        )
        assert f"has a writer already: process {os.getpid()} on " in done.stderr


def test_other_directories_are_free(tmp_path: Path) -> None:
    with WriterLock(tmp_path / "a"), WriterLock(tmp_path / "b"):
        assert (tmp_path / "a" / "lock").exists()


def test_an_error_releases_it_and_the_file_stays(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="diverged"), WriterLock(tmp_path):
        raise RuntimeError("diverged")
    assert (tmp_path / "lock").exists(), "removed, two owners could hold two files of one name"
    with WriterLock(tmp_path):
        pass


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "thesis.tex")
    with pytest.raises(RunDirectoryError, match="lock is not a regular file; move it away"):
        WriterLock(tmp_path / "run").__enter__()
    assert (tmp_path / "thesis.tex").read_text() == "precious"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "\0\0"])
def test_a_lock_without_a_readable_name_is_a_lock_all_the_same(text: str, tmp_path: Path) -> None:
    with held_by_another(tmp_path) as process:
        (tmp_path / "lock").write_text(text)
        with pytest.raises(LockedError, match=f"has a writer already: process {process.pid}; wait for it or stop it"):
            WriterLock(tmp_path).__enter__()


def test_the_name_of_a_writer_before_is_not_taken_for_the_one_who_holds_it(tmp_path: Path) -> None:
    with held_by_another(tmp_path) as process:
        (tmp_path / "lock").write_text('{"pid": 1, "host": "elsewhere", "since": "long ago", "command": "other"}')
        with pytest.raises(LockedError, match=f"process {process.pid}; wait") as caught:
            WriterLock(tmp_path).__enter__()
        assert "elsewhere" not in str(caught.value)


def test_a_full_disk_costs_the_name_and_not_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with WriterLock(tmp_path), pytest.raises(LockedError, match="this one"):
        WriterLock(tmp_path).__enter__()
