"""What copies at a store cost: `python -m benchmarks.remote seal|copy|loop [--megabytes N] [--rounds N]`.

`seal`: `parity seal` of a file against reading it by as many threads. `copy`: sending and fetching a checkpoint,
verified, against obstore alone moving the same file to and from the same server; wall time, CPU seconds and largest
memory of a process of its own for each. `loop`: the time that a training loop itself spends on its copies. The server
is the tests' double in another process, and as slow as it is: only ratios within one round mean something.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from parity.checkpoints import DRAFT, Seal, commit
from parity.checkpoints.remote import Lease, fetch, require_head, send
from parity.cli import main as parity
from parity.convert import seal_checkpoint
from parity.formats import SAFETENSORS, InMemory
from parity.runs import copies
from parity.storage.parallel_read import by_threads
from parity.storage.stores import open_store

PIECE, BLOCK = 1 << 20, 8 << 20
URL = "s3://bucket/bench"
SERVER = """
import sys, time
from tests.remote.server import Server
server = Server()
server.start()
print(server.endpoint, flush=True)
sys.stdin.read()
"""


def read_all(path: Path) -> None:
    """Read a file by threads, a block each, into a buffer that stays in the cache."""
    size, local = path.stat().st_size, threading.local()
    handle = os.open(path, os.O_RDONLY)

    def read(start: int) -> None:
        if not hasattr(local, "piece"):
            local.piece = bytearray(PIECE)
        for at in range(start, min(start + BLOCK, size), PIECE):
            os.preadv(handle, [local.piece], at)

    by_threads(read, range(0, size, BLOCK))
    os.close(handle)


def timed(act: Callable[[], object]) -> float:
    """Return the seconds that something takes."""
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def measure_seal(home: Path, megabytes: int, rounds: int) -> None:
    """Print the ratio of sealing to reading, from the page cache, and the memory that sealing takes."""
    path = home / "big.safetensors"
    count = max(1, megabytes // 64)
    arrays = {f"w{n}": InMemory(np.random.default_rng(n).integers(0, 255, 64 << 20, np.uint8)) for n in range(count)}
    SAFETENSORS.write(arrays, path)
    arrays.clear()
    os.sync()
    walls, cpus, reads = [], [], []
    for number in range(rounds):
        took: dict[str, tuple[float, float]] = {}
        arms = {"read": lambda: read_all(path), "seal": lambda: seal_checkpoint(path, replace=True)}
        for arm in sorted(arms, reverse=number % 2 == 0):  # each is first in half of the rounds
            (home / ".big.safetensors.seal.json").unlink(missing_ok=True)
            cpu = time.process_time()
            took[arm] = timed(arms[arm]), time.process_time() - cpu
        walls.append(took["seal"][0] / took["read"][0])
        cpus.append(took["seal"][1] / took["read"][1])
        reads.append(took["read"][0])
    speed = path.stat().st_size / statistics.median(reads) / 1e9
    memory = run_arm("seal", home)[2]
    print(
        f"seal / read, page cache: wall {statistics.median(walls):.2f} ({min(walls):.2f} to {max(walls):.2f}), "
        f"CPU {statistics.median(cpus):.2f}; read at {speed:.1f} GB/s; memory of a process that seals {memory:.0f} MB"
    )


def make_checkpoint(home: Path, megabytes: int) -> Path:
    """Save a sealed checkpoint of one large file and two small ones."""
    draft = home / "checkpoints" / f"{DRAFT}1"
    draft.mkdir(parents=True)
    (draft / "state.bin").write_bytes(os.urandom(megabytes << 20))
    (draft / "meta.json").write_text("{}")
    seal = Seal(step=1, metric=None, saved_at=1.0, side="torch", spec_hash="aa" * 16)
    commit(draft, home / "checkpoints" / "1", seal)
    return home / "checkpoints" / "1"


def peak() -> float:
    """Return the largest memory of this process in MB; `ru_maxrss` would have that of the one it was forked from."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def run_arm(arm: str, home: Path) -> list[float]:
    """Return wall time, CPU seconds and largest memory in MB of one arm, in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.remote", "arm", arm, str(home)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def act(arm: str, home: Path) -> None:
    """Do one of the arms, in a process of its own; print wall time, CPU seconds and largest memory in MB."""
    if arm == "seal":
        took = timed(lambda: seal_checkpoint(home / "big.safetensors", replace=True))
        print(json.dumps([took, time.process_time(), peak()]))
        return
    import obstore

    path, store = home / "checkpoints" / "1", open_store(URL)
    target = Path(tempfile.mkdtemp(dir=home))
    lease = Lease.take(store, "bench") if arm == "send" else None
    head = require_head(store) if arm == "fetch" else None
    cpu, begun = time.process_time(), time.perf_counter()
    if arm == "put":
        obstore.put(store.raw, store.path("alone"), path / "state.bin", chunk_size=BLOCK, max_concurrency=4)
    elif arm == "get":
        with (target / "alone").open("wb") as file:
            for chunk in obstore.get(store.raw, store.path("alone")).stream(min_chunk_size=BLOCK):
                file.write(memoryview(chunk))
    elif lease is not None:
        send(lease, path, None, {})
    elif head is not None:
        fetch(store, head.checkpoints[1], target)
    wall, used = time.perf_counter() - begun, time.process_time() - cpu
    if lease is not None:
        lease.close()
    print(json.dumps([wall, used, peak()]))


def measure_copy(home: Path, megabytes: int, rounds: int) -> None:
    """Print the ratios of sending to obstore's put, and of fetching to its get."""
    make_checkpoint(home, megabytes)
    found: dict[str, list[list[float]]] = {arm: [] for arm in ("put", "send", "get", "fetch")}
    for _ in range(rounds):
        for arm in found:
            found[arm].append(run_arm(arm, home))
    for ours, alone in (("send", "put"), ("fetch", "get")):
        pairs = list(zip(found[ours], found[alone], strict=True))
        wall = sorted(one[0] / other[0] for one, other in pairs)
        cpu = sorted(one[1] / other[1] for one, other in pairs)
        memory = max(one[2] for one in found[ours])
        base = max(one[2] for one in found[alone])
        print(
            f"{ours} / {alone}: wall {statistics.median(wall):.2f} ({wall[0]:.2f} to {wall[-1]:.2f}), CPU "
            f"{statistics.median(cpu):.2f} ({cpu[0]:.2f} to {cpu[-1]:.2f}), memory {memory:.0f} MB, alone {base:.0f}"
        )


def measure_loop(home: Path) -> None:
    """Print the time that the loop of a run spends on its copies: waking them, and asking what happened."""
    spent: dict[str, list[float]] = {}

    def watch(name: str) -> None:
        real = getattr(copies.RunCopies, name)

        def watched(self: object) -> object:
            begun = time.perf_counter()
            try:
                return real(self)
            finally:
                spent.setdefault(name, []).append(time.perf_counter() - begun)

        setattr(copies.RunCopies, name, watched)

    for name in ("wake", "lines", "require"):
        watch(name)
    sets = ["save.every=50", "validate_every=50", f"save.remote={URL}-loop"]
    words = ["train", "--side", "torch", "--spec", "mlp-digits", "--steps", "1000", "--dir", str(home / "run")]
    parity([*words, *(word for one in sets for word in ("--set", one))])
    for name, times in spent.items():
        middle, most = 1e6 * statistics.median(times), 1e6 * max(times)
        print(f"{name}: {len(times)} calls, {middle:.1f} microseconds, at most {most:.0f}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description="What seals and copies at a store cost.")
    parser.add_argument("what", choices=("seal", "copy", "loop", "arm"))
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.what == "arm":
        act(options.rest[0], Path(options.rest[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "seal":
            measure_seal(Path(folder), options.megabytes, options.rounds)
            return
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as server:  # type: ignore[call-overload]
            os.environ |= {
                "AWS_ENDPOINT_URL_S3": server.stdout.readline().strip(),
                "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_REGION": "us-east-1",
            }
            try:
                if options.what == "copy":
                    measure_copy(Path(folder), options.megabytes, options.rounds)
                else:
                    measure_loop(Path(folder))
            finally:
                server.stdin.close()


if __name__ == "__main__":
    main()
