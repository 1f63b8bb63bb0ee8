"""A run that is killed at random moments, again and again, and what each process finds and leaves."""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from parity import sides
from parity.checkpoints import read_seal
from parity.contract import StepRecord, child_environment, read_records, splice
from parity.runs import RunDirectory
from parity.spec import load, to_toml
from parity.storage import read_lines
from tests.support.small import bits_of

__all__ = ["Begin", "Chain", "Result"]

Begin = Literal["lock", "start", "record"]
"""What a random delay is counted from: a process has the lock (most of these kills hit recovery), it begins to train
(on the JAX side it compiles then), its first records are on disk (these hit saves)."""

EVERY = 5
"""Steps between saves, and of a chunk."""
SPEC = load(
    "mlp-digits",
    "float32",
    [
        *("model.hidden=[8]", "batch=8", "mesh.data=1", f"execution.chunk={EVERY}", "steps=1000000"),
        *(f"save.every={EVERY}", "save.keep_latest=2", f"validate_every={4 * EVERY}", "data.validation=8"),
    ],
)
LONGEST = 0.4
"""Seconds between what a kill waits for and the kill, at most: tens of saves."""


@dataclass(frozen=True)
class Result:
    """What a run gives in the end."""

    curve: list
    leaves: dict[str, str]


@dataclass
class Chain:
    """One run directory and the processes that work on it, one after the other."""

    side: str
    home: Path
    seed: int
    before: int | None = None
    """The newest whole checkpoint that the last kill left."""
    starts: int = 0
    """Process starts that came as far as training."""
    lost: list[str] = field(default_factory=list)
    """What must never be."""
    inside: int = 0
    """Kills that left an unfinished save or removal: they hit in the middle of one."""

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.side} {self.seed}")
        self.run = RunDirectory(self.home / "run")
        self.spec_file = self.home / "spec.toml"
        self.spec_file.write_text(to_toml(SPEC))

    def start(self, run: Path, *options: str, cached: bool = True) -> subprocess.Popen:
        """Start a process of the run, with a cache of compiled programs for this chain alone: a kill may spoil it."""
        environment = child_environment(sides.load(self.side))
        environment["JAX_COMPILATION_CACHE_DIR"] = str(self.home / "compiled")
        if not cached:
            del environment["JAX_COMPILATION_CACHE_DIR"]
        command = [sys.executable, "-m", "parity", "train", "--side", self.side, "--spec", str(self.spec_file)]
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen([*command, "--dir", str(run), *options], stdout=log, stderr=log, env=environment)

    def kill_once(self, begin: Begin) -> None:
        """Start a process, kill it at a random moment after `begin`, and look at what it found and left."""
        size = self.size()
        process = self.start(self.run.path)
        try:
            self.await_begin(process, begin, size)
            time.sleep(self.random.uniform(0, LONGEST))
            assert process.poll() is None, f"ended on its own: {self.tail()}"
        finally:
            process.kill()
            process.wait()
        self.judge_starts()
        scan = self.run.store.scan()
        newest = max((saved.step for saved in scan.whole), default=None)
        self.lost += [f"{name} looks like a checkpoint: {why}" for name, why in scan.damaged]
        self.lost += [f"{saved.step} has no seal" for saved in scan.unsealed]
        if self.before is not None and (newest is None or newest < self.before):
            self.lost.append(f"checkpoint {self.before} is gone, the newest is {newest}")
        self.inside += bool(scan.unfinished)
        self.before = newest

    def await_begin(self, process: subprocess.Popen, begin: Begin, size: int) -> None:
        """Return when the process has come so far; `size` is that of the records before."""
        lock = self.run.path / "lock"
        begun = {
            "lock": lambda: lock.exists() and f'"pid": {process.pid},' in lock.read_text(errors="replace"),
            "start": lambda: self.rows()[-1:] and self.rows()[-1]["pid"] == process.pid,
            "record": lambda: self.size() > size,
        }[begin]
        until = time.monotonic() + 180
        while time.monotonic() < until and process.poll() is None:
            if begun():
                return
            time.sleep(0.002)
        raise AssertionError(f"never began (exit {process.poll()}): {self.tail()}")

    def size(self) -> int:
        """Return the bytes of the records."""
        return self.run.steps.stat().st_size if self.run.steps.exists() else 0

    def rows(self) -> list[dict]:
        """Return the process starts on disk, without one that is being written."""
        return read_lines(self.run.attempts)

    def judge_starts(self) -> None:
        """Check that a process which trained went on from the newest checkpoint there was."""
        new = self.rows()[self.starts :]
        self.starts += len(new)
        self.lost += [
            f"a process went on from {row['resumed_from']}, the newest was {self.before}"
            for row in new
            if row["resumed_from"] != self.before
        ]
        if len(new) > 1:
            self.lost.append(f"one process wrote down {len(new)} starts")

    def finish(self) -> tuple[Result, Result]:
        """Train to the end, and the same without any kill and compiled anew; return what both give."""
        end = max(row["step"] for row in read_lines(self.run.steps)) + 2 * EVERY
        end += -end % EVERY
        reference = RunDirectory(self.home / "reference")
        seldom = ("--set", f"save.every={10 * end}", "--set", "save.on_best=always")  # its best is to be the same
        both = [
            self.start(self.run.path, "--steps", str(end)),
            self.start(reference.path, "--steps", str(end), *seldom, cached=False),
        ]
        for process in both:
            assert process.wait(600) == 0, self.tail()
        self.judge_starts()
        return self.result(self.run, end), self.result(reference, end)

    def result(self, run: RunDirectory, end: int) -> Result:
        records = splice(read_records(run.steps, StepRecord))
        seal = read_seal(run.checkpoints / str(end))
        leaves = {name: digest for name, digest in seal.leaves.items() if name != "config.spec"}  # the interval
        return Result(bits_of([records[step] for step in sorted(records)]), leaves)

    def tail(self) -> str:
        return "\n".join((self.home / "log").read_text(errors="replace").splitlines()[-15:])

    def describe(self) -> str:
        return json.dumps({"side": self.side, "seed": self.seed, "starts": self.starts, "lost": self.lost})
