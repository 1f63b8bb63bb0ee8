"""What strace writes is read back as it happened, and what cannot be modelled is refused."""

import re
import sys

import pytest

from tests.crash.calls import Call, TraceError, read_calls
from tests.crash.disk import replay, tree_on_disk
from tests.crash.operations import MARK, Cut, Entry, Mark, Sync, Write
from tests.crash.reader import parse
from tests.crash.record import explain, record, traced

pytestmark = pytest.mark.breaks_first

ROOT = "/run"


def hexed(text: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def lines(text: str) -> list[str]:
    """Return lines as strace writes them: `'text'` stands for a string, `<path>` for what a descriptor is."""
    text = re.sub(r"'([^']*)'", lambda found: f'"{hexed(found[1])}"', text)
    text = re.sub(r"<(/[^>]*)>", lambda found: f"<{hexed(found[1])}>", text)
    return [line.strip() for line in text.strip().splitlines()]


def done(text: str):
    return list(parse(lines(text), ROOT).done)


def test_a_saved_file_is_read_back():
    assert done(
        """
        7 openat(AT_FDCWD</>, '/run/a', O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</run/a>
        7 write(3</run/a>, 'one', 3) = 3
        7 writev(3</run/a>, [{iov_base='t', iov_len=1}, {iov_base='wo', iov_len=2}], 2) = 3
        7 pwrite64(3</run/a>, 'X', 1, 1) = 1
        7 write(3</run/a>, '!', 1) = 1
        7 fsync(3</run/a>) = 0
        7 close(3</run/a>) = 0
        7 rename('/run/a', '/run/b') = 0
        7 access('/parity-mark-5', F_OK) = -1 ENOENT (No such file or directory)
        """
    ) == [
        Entry(0, (("a", 1),), "create a"),
        Write(1, 0, b"one", "write 3 at 0 of a"),
        Write(1, 3, b"two", "write 3 at 3 of a"),
        Write(1, 1, b"X", "write 1 at 1 of a"),
        Write(1, 6, b"!", "write 1 at 6 of a"),
        Sync(1, 5, "sync a"),
        Entry(0, (("a", None), ("b", 1)), "rename a to b"),
        Mark(5),
    ]


def test_a_sync_covers_what_had_ended_when_it_began():
    """Thread 8 writes while thread 7 syncs: its write may or may not be on the disk."""
    found = done(
        """
        7 execve('/python', ['python'], 0x7ffe) = 0
        7 clone3({flags=CLONE_VM|CLONE_THREAD, stack_size=0x7fff80} => {parent_tid=[8]}, 88) = 8
        7 openat(AT_FDCWD</>, '/run/a', O_WRONLY|O_CREAT, 0666) = 3</run/a>
        7 write(3</run/a>, 'old', 3) = 3
        7 fsync(3</run/a> <unfinished ...>
        8 write(3</run/a>, 'new', 3 <unfinished ...>
        8 <... write resumed>) = 3
        7 <... fsync resumed>) = 0
        """
    )

    assert [type(operation) for operation in found] == [Entry, Write, Write, Sync]
    assert found[3].covers == 2


def test_a_descriptor_that_is_closed_and_reused_meanwhile_keeps_its_meaning():
    found = done(
        """
        7 clone3({flags=CLONE_THREAD}, 88) = 8
        7 openat(AT_FDCWD</>, '/run/a', O_WRONLY|O_CREAT, 0666) = 3</run/a>
        7 close(3</run/a> <unfinished ...>
        8 openat(AT_FDCWD</>, '/run/b', O_WRONLY|O_CREAT, 0666) = 3</run/b>
        7 <... close resumed>) = 0
        8 write(3</run/b>, 'b', 1) = 1
        """
    )

    assert found[-1] == Write(2, 0, b"b", "write 1 at 0 of b")


def test_positions_follow_seeks_duplicates_and_appending():
    found = done(
        """
        7 openat(AT_FDCWD</>, '/run/a', O_RDWR|O_CREAT, 0666) = 3</run/a>
        7 write(3</run/a>, 'abc', 3) = 3
        7 dup(3</run/a>) = 4</run/a>
        7 lseek(4</run/a>, 1, SEEK_SET) = 1
        7 write(3</run/a>, 'B', 1) = 1
        7 openat(AT_FDCWD</>, '/run/a', O_WRONLY|O_APPEND) = 5</run/a>
        7 write(5</run/a>, 'd', 1) = 1
        7 ftruncate(3</run/a>, 2) = 0
        7 write(5</run/a>, 'e', 1) = 1
        7 openat(AT_FDCWD</>, '/run/a', O_WRONLY|O_TRUNC) = 6</run/a>
        """
    )

    assert [op.start for op in found if isinstance(op, Write)] == [0, 1, 3, 2]
    assert [op.size for op in found if isinstance(op, Cut)] == [2, 0]


def test_folders_keep_what_is_in_them_when_they_are_renamed():
    operations = parse(
        lines(
            """
            7 mkdir('/run', 0777) = 0
            7 mkdir('/run/draft', 0777) = 0
            7 openat(AT_FDCWD</>, '/run', O_RDONLY|O_DIRECTORY) = 3</run>
            7 openat(3</run>, 'draft/a', O_WRONLY|O_CREAT, 0666) = 4</run/draft/a>
            7 rename('/run/draft', '/run/final') = 0
            7 write(4</run/final/a>, 'late', 4) = 4
            7 link('/run/final/a', '/run/b') = 0
            7 unlinkat(3</run>, 'final/a', 0) = 0
            7 fsync(3</run>) = 0
            """
        ),
        ROOT,
    )

    assert replay(operations, len(operations.done)) == {"final": None, "b": b"late"}
    assert operations.done[-1] == Sync(0, 6, "sync .")


def test_a_rename_between_folders_is_two_changes():
    found = done(
        """
        7 mkdir('/run/a', 0777) = 0
        7 mkdir('/run/b', 0777) = 0
        7 openat(AT_FDCWD</>, '/run/a/x', O_WRONLY|O_CREAT, 0666) = 3</run/a/x>
        7 renameat(AT_FDCWD</>, '/run/a/x', AT_FDCWD</>, '/run/b/y') = 0
        """
    )

    assert found[-2:] == [
        Entry(2, (("y", 3),), "rename a/x to b/y (comes)"),
        Entry(1, (("x", None),), "rename a/x to b/y (goes)"),
    ]


def test_what_fails_and_what_is_elsewhere_changes_nothing():
    assert (
        done(
            """
            7 mkdir('/run/a', 0777) = -1 EEXIST (File exists)
            7 mkdir('/running', 0777) = 0
            7 openat(AT_FDCWD</>, '/elsewhere/a', O_WRONLY|O_CREAT, 0666) = 3</elsewhere/a>
            7 write(3</elsewhere/a>, 'a', 1) = 1
            7 fallocate(3</elsewhere/a>, 0, 0, 8) = 0
            7 --- SIGCHLD {si_signo=SIGCHLD} ---
            7 +++ exited with 0 +++
            """
        )
        == []
    )


OPEN = "7 openat(AT_FDCWD</>, '/run/a', O_RDWR|O_CREAT, 0666) = 3</run/a>\n"
REFUSED = {
    "copy_file_range": "7 copy_file_range(4</x>, NULL, 3</run/a>, NULL, 9, 0) = 9",
    "fallocate": "7 fallocate(3</run/a>, 0, 0, 8) = 0",
    "symlink": "7 symlink('/x', '/run/link') = 0",
    "io_uring_setup": "7 io_uring_setup(8, {flags=0}) = 5",
    "is mapped for writing": "7 mmap(NULL, 8, PROT_READ|PROT_WRITE, MAP_SHARED, 3</run/a>, 0) = 0x7f00",
    "frobnicate on the tree": "7 frobnicate('/run/a') = 0",
    "F_SETFL": "7 fcntl(3</run/a>, F_SETFL, O_RDWR|O_APPEND) = 0",
    "RENAME_EXCHANGE": "7 renameat2(AT_FDCWD</>, '/run/a', AT_FDCWD</>, '/run/b', RENAME_EXCHANGE) = 0",
    "into or out of the tree": "7 rename('/run/a', '/elsewhere') = 0",
    "without a name": "7 openat(AT_FDCWD</>, '/run', O_WRONLY|O_TMPFILE, 0666) = 4</run/#1>",
    "chdir has no place": "7 chdir('/run') = 0",
    "whole string": "7 write(3</run/a>, 'abc'..., 99) = 99",
    "does not fit": "7 write(4</run/b>, 'abc', 3) = 3",
    "does not exist": "7 openat(AT_FDCWD</>, '/run/b', O_RDONLY) = 4</run/b>",
    "other processes": "9 unlink('/run/a') = 0",
    "is not one of strace's": "strace: exec: Exec format error",
    "resumes a write": "7 <... write resumed>) = 3",
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_place_in_the_model_is_an_error(message):
    with pytest.raises(TraceError, match=message):
        done(OPEN + REFUSED[message])


def test_a_call_comes_out_as_it_begins_and_as_it_ends():
    calls = list(
        read_calls(["7 close(3 <unfinished ...>", "8 close(4) = -1 EBADF (Bad)", "7 <... close resumed>) = 0"])
    )

    assert [(begins, call.thread, call.error) for begins, call in calls] == [
        (True, 7, ""),
        (True, 8, "EBADF"),
        (False, 8, "EBADF"),
        (False, 7, ""),
    ]
    assert isinstance(calls[0][1], Call)


def run_python(code: str, tmp_path):
    run = tmp_path.resolve() / "run"
    operations = traced(
        [sys.executable, "-c", f"import os, mmap, sys, subprocess\nd = {str(run)!r}\n{code}"], run, tmp_path / "t"
    )
    return operations, run


@pytest.mark.takes_seconds
@pytest.mark.processes
def test_a_real_process_is_recorded_to_the_byte(tmp_path):
    operations, run = run_python(
        """if True:
        import shutil, threading
        os.mkdir(d)
        def work(n):
            os.makedirs(f"{d}/{n}/deep")
            with open(f"{d}/{n}/deep/file", "w+b") as f:
                for k in range(50): f.write(bytes([n, k]) * 100)
                f.seek(7); f.write(b"seven"); f.flush(); os.fsync(f.fileno()); f.truncate(9000)
            with open(f"{d}/{n}/log", "ab") as f: f.write(b"a")
            with open(f"{d}/{n}/log", "ab") as f: f.write(b"b")
            os.rename(f"{d}/{n}", f"{d}/done-{n}")
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        shutil.rmtree(f"{d}/done-3")
        """
        f"os.access({MARK + '1'!r}, os.F_OK)",
        tmp_path,
    )

    explain(operations, operations.mark(1), tree_on_disk(run))
    assert sum(isinstance(op, Sync) for op in operations.done) == 8
    with pytest.raises(TraceError, match="does not explain what lies on the disk: done-3"):
        explain(operations, operations.mark(1) - 1, tree_on_disk(run))


@pytest.mark.takes_seconds
@pytest.mark.processes
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("f = open(d + '/a', 'w+b'); f.write(b'x' * 99); f.flush(); mmap.mmap(f.fileno(), 0)", "mapped for writing"),
        ('subprocess.run([sys.executable, \'-c\', f\'open({d!r} + "/a", "w").write("x")\'])', "other processes"),
        ("os.posix_fallocate(os.open(d + '/a', os.O_CREAT | os.O_WRONLY), 0, 9)", "fallocate has no place"),
        ("sys.exit('broken')", "failed under strace: broken"),
    ],
)
def test_a_real_process_that_cannot_be_modelled_is_refused(code, message, tmp_path):
    with pytest.raises(TraceError, match=message):
        run_python(f"os.mkdir(d)\n{code}", tmp_path)


def test_without_strace_the_error_says_so(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(TraceError, match="strace is not installed"):
        record.__wrapped__("torch")
