"""A disk that fails on order: the library that is preloaded into a process, built once, and the orders for it."""

import ctypes
import errno
import functools
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["FAULTS", "LOOKS", "REASONS", "SYNCS", "Disk", "Fault", "Order", "answers", "environment"]

_KINDS = ("look", "open", "read", "create", "write", "sync", "name", "size", "close")
"""As in failing_disk.c, one bit each."""


def _mask(*names: str) -> int:
    return sum(1 << _KINDS.index(name) for name in names)


CHANGES = _mask("create", "write", "sync", "name", "size")
"""Operations that a full or read-only disk can refuse; a failing one also refuses `CLOSES`, and `LOOKS`."""
CLOSES = _mask("close")
LOOKS = _mask("look", "open", "read")
SYNCS = _mask("sync")


@dataclass(frozen=True)
class Fault:
    """A way in which a disk fails."""

    error: int
    persistent: bool
    """From the n-th operation on, or only that one."""
    kinds: int = CHANGES


FAULTS = {
    "full": Fault(errno.ENOSPC, True),
    "full-once": Fault(errno.ENOSPC, False),
    "read-only": Fault(errno.EROFS, True),
    "failing": Fault(errno.EIO, True, CHANGES | CLOSES),
    "failing-once": Fault(errno.EIO, False, CHANGES | CLOSES),
    "unreadable": Fault(errno.EIO, True, LOOKS),
    "unreadable-once": Fault(errno.EIO, False, LOOKS),
}
"""By name."""

REASONS = {
    errno.ENOSPC: "No space left on device",
    errno.EROFS: "Read-only file system",
    errno.EIO: "Input/output error",
}


SECONDS_TO_END = 60
"""A failed save must not hold up the end of its process; unfixed, Orbax's threads did for 300 s."""


@dataclass(frozen=True)
class Order:
    """What was counted, and what failed, while the disk was armed."""

    seen: int
    fired: int
    operations: tuple[str, ...]
    """Name and path below the directory; what failed has a `!` before it."""

    @property
    def failed(self) -> str:
        """Return the first operation that failed."""
        return next((name[1:] for name in self.operations if name.startswith("!")), "")


@functools.cache
def library() -> Path:
    """Build the library, or find the one built before; no two processes meet in the middle."""
    source = Path(__file__).with_name("failing_disk.c")
    name = f"parity-failing-disk-{os.getuid()}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}.so"
    built = Path(tempfile.gettempdir(), name)
    if not built.exists():
        compiler = shutil.which("c++")
        assert compiler, "the tests need a C++ compiler (Debian: apt-get install g++)"
        draft = built.with_name(f"{name}.{os.getpid()}")
        options = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run(
            [compiler, "-x", "c", *options, "-o", str(draft), str(source), "-ldl", "-lpthread"], check=True
        )
        draft.rename(built)
    return built


def environment(
    fault: Fault | None = None, below: Path | None = None, *, part: str = "*", n: int = 0
) -> dict[str, str]:
    """Return the environment of a process with such a disk, armed from its start if a fault is given.

    Args:
        fault: What fails.
        below: The directory whose operations count.
        part: Text in the path of those that count, `*` for all.
        n: The one that fails, from 1.
    """
    env = {**os.environ, "LD_PRELOAD": str(library())}
    if fault is not None:
        order = (below, part, fault.kinds, n, fault.error, int(fault.persistent))
        env["FAILING_DISK"] = "|".join(map(str, order))
    return env


@contextmanager
def memory() -> Iterator[Path]:
    """Give a new directory, in memory where the system has such a place: hundreds of saves wait for no real disk."""
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="parity-storage-", dir=shared) as path:
        yield Path(path)


def answers(module: str, *arguments: str) -> list[dict[str, Any]]:
    """Run a module of this package on a failing disk, in a directory of its own, and return its lines of JSON.

    Args:
        module: Prints one line for each answer, and `end`; it must be gone soon after.
        arguments: What it is given; `{}` is replaced by the directory.
    """
    with memory() as home, (home / "stderr").open("w+") as errors:
        command = [sys.executable, "-m", f"tests.storage.{module}", *(word.format(home) for word in arguments)]
        out = subprocess.PIPE
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, env=environment(), cwd=root, stdout=out, stderr=errors, text=True) as process:
            try:
                lines = list(itertools.takewhile(lambda line: line != "end\n", process.stdout or ()))
                code = process.wait(SECONDS_TO_END)
            finally:
                process.kill()
        assert code == 0, errors.seek(0) or errors.read()[-4000:]
    return [json.loads(line) for line in lines]


class Disk:
    """The library as a preloaded process controls it from within."""

    def __init__(self, below: Path) -> None:
        self.below = os.fsencode(os.path.realpath(below))
        self.library = ctypes.CDLL(None)
        for name in ("disk_seen", "disk_fired"):
            getattr(self.library, name).restype = ctypes.c_long
        self.library.disk_operation.restype = ctypes.c_char_p
        self.order = Order(0, 0, ())

    @contextmanager
    def failing(self, fault: Fault, n: int, part: str = "*") -> Iterator[None]:
        """Fail the n-th operation of the block, none for n = 0; `order` then tells what came of it."""
        arguments = (ctypes.c_char_p(self.below), part.encode(), fault.kinds, ctypes.c_long(n), fault.error)
        self.library.disk_arm(*arguments, int(fault.persistent))
        try:
            yield
        finally:
            self.library.disk_disarm()
            seen = self.library.disk_seen()
            operations = (self.library.disk_operation(ctypes.c_long(i)).decode() for i in range(seen))
            self.order = Order(seen, self.library.disk_fired(), tuple(operations))
