"""Checkpoints of a form that nothing here reads: whether the trainer itself reads the same from two of them.

A trainer may hide its pickles behind an exclusive or, or write them by a codec of its own. Equal values are then
other bytes after a resume: arrays that came out of a pickle refer to other objects than new ones do. The trainer
knows how to read them. Two more processes begin with what either run has left, and hold the same at their first
marks, or do not. That alone would pass over what a file has and no process takes from it, such as a record of losses
that begins anew: so the two runs have to hold the same at their ends, too, of which the files were made.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from parity.capture import Leaf, PathLeaves
from parity.checks.judging import Evidence, Outcome, TwoStates
from parity.checks.running import Mark, Request, Runner, Trace, copy_folder

__all__ = ["settle_unread"]

READ_ALIKE = "other bytes, of which the trainer reads the same"


def settle_unread(
    found: Outcome,
    reference: Trace,
    resumed: Trace,
    folder: Path,
    root: Path,
    runner: Runner,
    asked: Request,
    changing: Collection[str],
) -> None:
    """List checkpoints of unknown form as no loss, where nothing else is one and the trainer reads the same of both.

    Files that it does not read, such as an export, stay what they are.

    Args:
        found: What the files at the end show; changed in place.
        reference: The uninterrupted run.
        resumed: The resumed run.
        folder: Its folder.
        root: Where further runs have their folders.
        runner: Runs the function.
        asked: The run that the scenario asks for.
        changing: Paths whose value changes in the uninterrupted run: generators that nobody draws from are others in
            each process.
    """
    if not found.broken or "steps" not in asked.options or not all(_is_unread(e, resumed) for e in found.broken):
        return
    if not _end_alike(reference, resumed, changing):
        return
    longer = replace(asked, steps=asked.steps + 1, options={**asked.options, "steps": asked.steps + 1}, kill=0)
    begun: list[dict[str, tuple[str, str, str]]] = []
    for left in (root / "reference", folder):
        copy = root / f"read-back-{folder.name}-of-{left.name}"
        copy_folder(left, copy)
        trace = runner.run(copy, longer)
        names = {e.path.rstrip(":") for e in found.broken}
        if trace.end != "killed" or not trace.marks or not names <= trace.restored:
            return
        begun.append({path: _without_place(leaf) for path, leaf in _used(trace.marks[0], changing).items()})
    if begun[0] == begun[1]:
        found.bookkeeping += [e._replace(got=READ_ALIKE) for e in found.broken]
        found.broken = []


def _is_unread(e: Evidence, resumed: Trace) -> bool:
    """Return whether evidence is of the bytes of a file of unknown form that the run was resumed from."""
    return e.expected.startswith("file[") and e.got.startswith("file[") and e.path.rstrip(":") in resumed.restored


def _end_alike(reference: Trace, resumed: Trace, changing: Collection[str]) -> bool:
    """Return whether both runs hold the same at their last marks, but for places in iterators and leftovers."""
    both = TwoStates(reference.marks[-1].step, reference.marks[-1].snapshot, resumed.marks[-1].snapshot)
    known = _used(reference.marks[-1], changing)
    return all(known[p].role in ("position", "alias") or both.is_dead(p) for p in both.differing() if p in known)


def _used(mark: Mark, changing: Collection[str]) -> PathLeaves:
    """Return the leaves at a mark, without generators that nobody draws from."""
    leaves = mark.snapshot.leaves
    return {path: leaf for path, leaf in leaves.items() if leaf.role != "stream" or path in changing}


def _without_place(leaf: Leaf) -> tuple[str, str, str]:
    return leaf.role, leaf.kind, leaf.digest
