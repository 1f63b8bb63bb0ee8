"""Train a run in this process: lock its directory, build the trainer, resume, and run the loop."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from parity.contract import Side, drafts_of, require_trainer
from parity.errors import RunDirectoryError, SpecError
from parity.runs.copies import NoCopies
from parity.runs.directory import RunDirectory
from parity.runs.history import next_attempt, require_history, start_over
from parity.runs.loop import Loop, Start
from parity.runs.options import QUIET, Observers, ProcessOptions, ProcessOutcome
from parity.runs.remote import RemoteStart
from parity.runs.resume import compare_topology, resume_run
from parity.runs.together import Alone, Together
from parity.storage import WriterLock

__all__ = ["train"]


def train(
    side: Side,
    side_name: str,
    described: Any,
    directory: Path,
    options: ProcessOptions = ProcessOptions(),
    observers: Observers = Observers(),
    together: Alone | None = None,
) -> ProcessOutcome:
    """Train a run in this process until the last step of its plan, or until a signal.

    Args:
        side: The side that trains.
        side_name: Its name, written into the run directory.
        described: The run, as the side understands it: what its `build` takes.
        directory: Run directory; created, or continued.
        options: What to start from, and what happens when a save fails or a signal comes.
        observers: What is called as the run proceeds.
        together: The processes that train this run, entered; None for one.

    Returns:
        The step that was reached, what was resumed from, the signal that stopped it, and the saves that failed where
        the run continued all the same.

    Raises:
        SpecError: `options.on_error` is `continue`, and several processes train the run.
        RunDirectoryError: The directory may not be used as asked, or something of the run is missing.
        LockedError: Another process writes to it.
        SaveError: A checkpoint or records could not be written; the checkpoints before it stay.
        SpecMismatchError: The run was started as another run.
        StoreError: The store of its copies refused, or was not reached where nothing of the run is here.
        SideError: The side has built something that lacks a member of `Trainer`.
        CheckpointError: There is no checkpoint to resume from.
        DivergedError: Loss or gradient were not finite; the last good checkpoint stays.
    """
    run, together = RunDirectory(directory, drafts=drafts_of(side)), together or Alone()
    resume, log = options.resume, observers.log
    if isinstance(together, Together):
        if options.on_error == "continue":
            raise SpecError("--on-error", "continue is for one process; of several, a save that failed ends all")
        if not together.first:
            return _follow(side, described, directory, options, together)
    with ExitStack() as stack:
        remote = stack.enter_context(RemoteStart(options.remote, run, resume, log))
        remote.fetch_run(or_next=options.or_next)
        if resume not in ("never", "auto") and not run.exists:
            raise RunDirectoryError(f"{directory} holds no run to resume; use --resume auto to start one")
        run.require_free()
        locked, incomplete = run.exists, None
        if locked:
            stack.enter_context(WriterLock(directory))
            for line in run.repair():  # the writer alone may: another process may have started a run meanwhile
                log(line)
            incomplete = require_history(run, resume)
            remote.join()
        attempt = together.share(next_attempt(run, incomplete))
        built = side.build(described, directory, attempt=attempt)  # what cannot be built leaves no trace
        trainer = require_trainer(built, side_name)
        remote.require_run(trainer.spec_hash)
        if not locked:
            stack.enter_context(WriterLock(directory))
            if run.exists:
                raise RunDirectoryError(f"another process started a run in {directory} meanwhile; start again")
        stack.enter_context(together.closing(trainer))  # before the lock is released: a save may be under way
        run.open(trainer.identity, side_name)
        if locked and resume == "never":
            moved = start_over(run, attempt)
            log(f"moved {', '.join(moved) or 'nothing'} to abandoned/{attempt}: the run starts over")
        restoring = together.restoring(trainer, run.checkpoints)
        start = resume_run(run, restoring, resume, attempt, log, or_next=options.or_next)
        if incomplete is not None:
            log(f"records up to step {incomplete} are incomplete: continuing without them, as the step was named")
        if warning := trainer.plan.warning():
            log(warning)
        topology = side.topology(described)
        compare_topology(run, topology, start, log)
        facts = {"save_every": trainer.plan.save_every, "records_after": incomplete, "spec_hash": trainer.spec_hash}
        run.begin_attempt(attempt, start, topology, **facts)
        together.share({"start": start})
        copies = remote.begin(trainer.plan, start, partial(together.carriers, trainer))
        with together.signals(options.deadline) as signals:
            return Loop(trainer, run, Start(attempt, start), options, observers, signals, together, copies).run()


def _follow(
    side: Side, described: Any, directory: Path, options: ProcessOptions, together: Together
) -> ProcessOutcome:
    """Train in a process other than the first of several, which decides what is trained and writes the records."""
    attempt = together.share(0)
    trainer = side.build(described, directory, attempt=attempt)
    with together.closing(trainer):
        start = Start(attempt, together.follow(trainer))
        run = RunDirectory(directory)
        together.help_copying(trainer, run.checkpoints)
        with together.signals(0) as signals:
            asked = replace(options, on_error="stop")
            return Loop(trainer, run, start, asked, QUIET, signals, together, NoCopies()).run()
