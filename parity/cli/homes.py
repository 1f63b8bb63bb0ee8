"""The directories of checkpoints that a command is given, of a run or of a manager, and one chosen among them.

A scan looks at names, sizes and small files. What a command names, it has read to the last byte first, so that `path`
never names what `verify` finds damaged; where nothing can be named, all of them are read, so that the error is true.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from parity import policy
from parity.checkpoints import CheckpointStore, Scan, Seal, describe, examine, read_mode, steadily, verify
from parity.checkpoints.trees import TREES, is_managed
from parity.contract import RunPlan
from parity.errors import CheckpointError, DamagedError, ParityError, RunDirectoryError, UnsealedError
from parity.policy import Mode, Rules, Which
from parity.runs import RunDirectory
from parity.spec import from_toml, spec_hash
from parity.twins import describe_data

__all__ = ["Home", "find_home", "hash_of_run", "home_of"]


@dataclass(frozen=True)
class Home:
    """One directory of checkpoints."""

    path: Path
    store: CheckpointStore
    plan: RunPlan
    run: RunDirectory | None
    """None for the directory of a manager."""

    def spec_hash(self) -> str | None:
        """Return the hash that each seal must have; None, after a warning, if it cannot be computed."""
        return TREES if self.run is None else hash_of_run(self.run)

    def choose(self, which: Which, *, or_next: bool = False) -> Path:
        """Return a checkpoint by what a scan says of it."""
        return self.store.path / str(self._choose(self.store.scan(), which, or_next))

    def chosen(self, which: Which, *, or_next: bool = False) -> Path:
        """Return a checkpoint after every byte of it was compared with its seal.

        Args:
            which: The best, the latest, or a step.
            or_next: Whether the next whole one is taken where the best or the latest is damaged or gone.

        Raises:
            UnsealedError: The step has no seal.
            CheckpointError: There is none that is whole; every checkpoint was read to say which are.
        """
        expected = self.spec_hash()
        return steadily(self.store.path, which, lambda: self._read(which, or_next, expected))

    def _read(self, which: Which, or_next: bool, expected: str | None) -> Path:
        scan = self.store.scan()
        while True:
            try:
                step = self._choose(scan, which, or_next)
            except CheckpointError:
                step = self._choose(self.store.scan(lambda path: _examined(path, expected)), which, or_next)
            path = self.store.path / str(step)
            try:
                _examined(path, expected, named=True)
                return path
            except DamagedError as error:
                if isinstance(which, int):
                    raise
                scan = scan.without(step, str(error))

    def _choose(self, scan: Scan, which: Which, or_next: bool) -> int:
        named = self.store.pointed_step("best")
        if which == "best" and self.plan.mode is None and any(saved.metric is not None for saved in scan.whole):
            if named is None:
                raise CheckpointError(
                    f"which checkpoint of {self.path} is the best is unknown: best.json is missing or unreadable, "
                    "and it alone says whether a larger or a smaller metric is better"
                )
            if any(saved.step == named for saved in scan.whole):
                return named
            raise CheckpointError(
                f"the best checkpoint of {self.path} is of step {named} and is not whole, and which one is the next "
                "is unknown: best.json does not say whether a larger or a smaller metric is better",
                [row for row in scan.found() if row[0] == str(named)],
            )
        return self.store.choose(scan, which, self.plan, or_next=or_next)


def home_of(path: Path, mode: Mode | None = None) -> Home:
    """Return the directory of a run, or of a manager.

    Args:
        path: The directory.
        mode: Whether a larger or a smaller metric is better; None for what the spec or `best.json` says.

    Raises:
        RunDirectoryError: It is neither, or the mode is not that of the run.
    """
    if (found := find_home(path, mode)) is not None:
        return found
    if not path.exists():
        raise RunDirectoryError(f"{path} does not exist")
    if not path.is_dir():
        what = "a file" if path.is_file() else "no directory"
        raise RunDirectoryError(f"{path} is {what}; give the directory of a run or of a manager")
    raise RunDirectoryError(RunDirectory(path).no_run())


def find_home(path: Path, mode: Mode | None = None) -> Home | None:
    """Return the directory of a run, or of a manager; None if a path is neither."""
    run = RunDirectory(path)
    if path.is_dir() and run.exists:
        plan = from_toml(run.identity_text()).plan
        if mode not in (None, plan.mode):
            raise RunDirectoryError(
                f"--mode {mode}: the metric of {path} is {plan.metric}, whose mode is {plan.mode}"
            )
        return Home(path, run.store, plan, run)
    if not is_managed(path):
        return None
    rules = Rules(mode=mode or read_mode(path / "best.json"))
    return Home(
        path, CheckpointStore(path), RunPlan(steps=policy.INT32, save_every=1, metric="metric", keep=rules), None
    )


def hash_of_run(run: RunDirectory) -> str | None:
    """Return the hash that the checkpoints of a run must have; None, after a warning, if it cannot be computed."""
    if not run.exists:
        return None
    try:
        spec = from_toml(run.identity_text())
        return run.spec_hash() or spec_hash(spec, describe_data(spec)["digest"])
    except (ParityError, ImportError) as error:
        print(f"parity: warning: checkpoints are not compared with their run: {error}", file=sys.stderr)
        return None


def _examined(path: Path, expected: str | None, *, named: bool = False) -> Seal:
    """Return the seal of a checkpoint that is whole to the last byte.

    Args:
        path: The checkpoint.
        expected: Hash of its run.
        named: Whether the message of an error names the path too.

    Raises:
        UnsealedError: It has no seal.
        DamagedError: It is not what was sealed.
    """
    result = verify(path, expected)
    if result.unsealed:
        raise UnsealedError(result.faults[0].problem)
    if result.seal is not None and not result.faults:
        return examine(path)
    faults = describe(result.faults)
    if named:
        raise DamagedError(f"{path} is not what was sealed:", faults)
    raise DamagedError("; ".join(f"{name}: {problem}" for name, problem in faults[:3]))
