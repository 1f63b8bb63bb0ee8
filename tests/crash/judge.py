"""What recovery makes of a directory that a crash left, decided without a framework."""

import functools
import json
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from parity.checkpoints import DRAFT, Seal, verify
from parity.errors import RunDirectoryError
from parity.runs import RunDirectory
from parity.storage import REMOVED, read_lines, repair
from tests.crash.disk import Tree
from tests.crash.record import Recording
from tests.crash.workload import NEW, OLD

__all__ = ["Judge", "Verdict", "half_cleaned"]

LEFTOVERS = (DRAFT, REMOVED, ".orbax-checkpoint-tmp")
"""In the names of what a save or a removal that was cut short leaves behind."""


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    step: int | None
    """Step that a run goes on from; None when it would start over."""
    faults: tuple[str, ...]
    """What a crash must never leave; none when all is well."""
    records: tuple[str, ...]
    """What is wrong with the records beside the checkpoints."""
    outcome: tuple[object, ...]
    """What recovery gets to see of checkpoints, leftovers and pointers: it treats equal ones alike."""
    torn: tuple[str, ...]
    """The records that recovery has to repair."""


@dataclass(frozen=True)
class Judge:
    """What may be left: the old checkpoint or the new one, as the clean run wrote them."""

    recording: Recording
    checkpoints: dict[int, Tree] = field(default_factory=dict)
    """Step to its files, by path inside of it."""

    @classmethod
    def of(cls, recording: Recording) -> "Judge":
        """Return the judge of a recording."""
        trees = {OLD: recording.old, NEW: recording.new}
        return cls(recording, {step: _below(tree, f"checkpoints/{step}/") for step, tree in trees.items()})

    def look(self, path: Path, tree: Tree, *, allowed: set[int | None]) -> Verdict:
        """Judge a directory by what recovery does with it.

        Stricter than recovery, which would fall back: a crash may leave whole checkpoints and leftovers, and nothing
        that has a checkpoint's name and is none.

        Args:
            path: A run directory that a crash left.
            tree: What is in it.
            allowed: Steps that may be gone on from; None for a start from step 0.
        """
        run = RunDirectory(path)
        scan = run.store.scan()
        faults = [f"{name} has a checkpoint's name and is none: {why}" for name, why in scan.damaged]
        faults += [f"{saved.step} has a checkpoint's name and no seal" for saved in scan.unsealed]
        step = None
        for saved in reversed(scan.whole):
            verified = verify(run.checkpoints / str(saved.step))
            if verified.seal is not None and not verified.faults:
                step = saved.step
                faults += self._differences(step, tree, verified.seal)
                break
            wrong = verified.faults[0]
            faults.append(f"{saved.step} counts as whole and is not: {wrong.file} {wrong.problem}")
        if step not in allowed:
            faults.append(f"goes on from {step}, which is none of {sorted(allowed, key=str)}")
        pointers = [_pointer(path / f"{name}.json", faults) for name in ("latest", "best")]
        whole = {saved.step for saved in scan.whole}
        faults += [f"a pointer names {at}, whole are {sorted(whole)}" for at in pointers if at and at not in whole]
        leftovers = {next((kind for kind in LEFTOVERS if kind in name), name) for name, _ in scan.unfinished}
        names = {re.sub(r"\.\d+$", "", name) for name in tree if "/" not in name and not name.endswith(".jsonl")}
        outcome = (step, *(tuple(sorted(part)) for part in (whole, leftovers, names)), *pointers)
        records, torn = _wrong_records(run, tree, step or 0)
        return Verdict(step, tuple(faults), tuple(records), outcome, torn)

    def _differences(self, step: int, tree: Tree, seal: Seal) -> list[str]:
        """Say how a checkpoint differs from that of the clean run: its bytes, and the digests of its leaves."""
        found, clean = _below(tree, f"checkpoints/{step}/"), self.checkpoints.get(step, {})
        faults = [
            f"{step}/{name} is not what was saved"
            for name in sorted({*found, *clean})
            if name not in clean or name not in found or found[name] != clean[name]
        ]
        if seal.leaves != self.recording.leaves.get(step):
            faults.append(f"the seal of {step} does not hold the digests of the live state")
        return faults


def half_cleaned(tree: Tree, random: Random) -> Tree | None:
    """Return what a second crash may leave while leftovers are removed, None when there are none.

    Removing is the one thing that recovery does before it has chosen; any part of it may be durable.
    """
    entries = [path for path in tree if any(kind in path for kind in LEFTOVERS) or _DRAFT.search(path)]
    if not entries:
        return None
    share = random.random()
    left = dict(tree)
    for path in entries:
        if random.random() < share:
            for below in [p for p in left if p == path or p.startswith(path + "/")]:
                del left[below]
    return left


_DRAFT = re.compile(r"^\.[a-z.]+\.\d+$")
"""What `durable.replace_file` writes before it renames."""


def _below(tree: Tree, prefix: str) -> Tree:
    return {path.removeprefix(prefix): content for path, content in tree.items() if path.startswith(prefix)}


def _pointer(path: Path, faults: list[str]) -> int | None:
    """Return the step a pointer names, None when there is no pointer."""
    if not path.exists():
        return None
    try:
        return int(json.loads(path.read_text())["step"])
    except (ValueError, KeyError, TypeError) as error:
        faults.append(f"{path.name} is no pointer: {error!r}")
        return None


def _wrong_records(run: RunDirectory, tree: Tree, step: int) -> tuple[list[str], tuple[str, ...]]:
    """Say what is wrong with the records once they are mended, and which had to be.

    They must be readable, and hold whatever was written before the checkpoint of a step.
    """
    wrong, torn = [], []
    expected = {run.attempts: set(), run.steps: {*range(1, step + 1)}, run.validations: {*range(OLD, step + 1, OLD)}}
    for file, steps in expected.items():
        content = tree.get(file.name)
        try:
            rows, mended = _mended(content or b"")
        except RunDirectoryError as error:
            wrong.append(f"{file.name} cannot be read: {error}")
            continue
        if mended:
            torn.append(file.name)
        if lost := sorted(steps - {row["step"] for row in rows if "step" in row}):
            wrong.append(f"{file.name} lacks the steps {lost} before the checkpoint of step {step}")
        if step and not rows:
            wrong.append(f"{file.name} is empty, and there is a checkpoint")
    return wrong, ("torn", *torn)


@functools.lru_cache(10_000)
def _mended(content: bytes) -> tuple[list[dict], bool]:
    """Return the rows of records as recovery reads them, and whether it had to repair them."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "records")
        file.write_bytes(content)
        repair(file)
        return read_lines(file), file.read_bytes() != content
