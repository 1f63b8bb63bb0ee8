"""Checks before a run is continued: its records up to the checkpoint must be there, and a checkpoint at all.

A checkpoint never outlives the records of the steps before it, and a run that once saved has a checkpoint. Where
either does not hold, a disk was not mounted or files were removed: continuing would hide the loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from parity.checkpoints import Scan
from parity.contract import StepRecord, Validation, read_records, splice
from parity.errors import RunDirectoryError
from parity.policy import INT32
from parity.runs.directory import RunDirectory
from parity.runs.resume import ResumeChoice
from parity.storage import make_directory, move, read_lines

__all__ = ["next_attempt", "require_history", "start_over"]

_REPAIR = "restore the file or remove this line"
START_OVER = "--resume never starts over on purpose and moves what is left to abandoned/"


def require_history(run: RunDirectory, resume: ResumeChoice) -> int | None:
    """Check that everything is there that a run must have to be continued as asked.

    Args:
        run: A run that was started before; its lock is held.
        resume: What was asked for. A step that is named is accepted without its records.

    Returns:
        The step up to which records may be incomplete from now on, if a step was named and they are; else None.

    Raises:
        RunDirectoryError: Records make no sense, or are missing; or the run had checkpoints and has none. With
            `never`: the run has a whole checkpoint, and nothing is missing.
    """
    if resume == "never":
        _starts(run)
        if run.store.scan().whole and _what_is_missing(run, run.store.scan(), "auto") is None:
            raise RunDirectoryError(f"{run.path} holds a run already; choose another --dir, or --resume auto")
        return None
    scan = run.store.scan()
    missing = _what_is_missing(run, scan, resume)
    if missing is None:
        return None
    if isinstance(resume, int):
        return resume
    named = f"; --resume {scan.whole[-1].step} continues without them" if scan.whole else ""
    raise RunDirectoryError(f"{run.path}: {missing}. Restore what is missing{named}; {START_OVER}")


def next_attempt(run: RunDirectory, incomplete: int | None) -> int:
    """Return the number of the process that starts now: above that of every start, and every record, before.

    Args:
        run: The run directory.
        incomplete: What `require_history` returned; where it is None, the records are not read.

    Raises:
        RunDirectoryError: A record cannot be read.
    """
    if incomplete is None:
        return run.next_attempt()
    return max([run.next_attempt(), *(record.attempt + 1 for record in read_records(run.steps, StepRecord))])


def start_over(run: RunDirectory, attempt: int) -> list[str]:
    """Move checkpoints, records and pointers to `abandoned/<attempt>/`; return the names of what was moved.

    Process starts stay: attempts count on. The pointers go last: as long as they are there, a start that was killed
    halfway is not taken for a new run.

    Args:
        run: The run directory; its lock is held.
        attempt: Number of the process that starts now.

    Raises:
        OSError: Something could not be moved.
    """
    home = run.abandoned(attempt)
    scan = run.store.scan()
    names = [str(saved.step) for saved in (*scan.whole, *scan.unsealed)] + [name for name, _ in scan.damaged]
    moved = [f"checkpoints/{name}" for name in run.store.set_aside(names, home)]
    records = (run.steps, run.validations, run.states, run.metrics)
    for file in (*records, run.path / "latest.json", run.path / "best.json"):
        if file.exists():
            make_directory(home)
            move(file, _free(home / file.name))
            moved.append(file.name)
    return moved


def _what_is_missing(run: RunDirectory, scan: Scan, resume: ResumeChoice) -> str | None:
    """Return a sentence on what is missing, or None.

    Raises:
        RunDirectoryError: A record makes no sense.
    """
    records, validations = read_records(run.steps, StepRecord), read_records(run.validations, Validation)
    _require_sense(run.steps, ((record.attempt, record.step) for record in records))
    _require_sense(run.validations, ((record.attempt, record.step) for record in validations))
    starts = _starts(run)
    known = {record.attempt for record in records} | {record.attempt for record in validations}
    if scan.whole or scan.damaged or scan.unsealed:
        until = resume if isinstance(resume, int) else max((s.step for s in scan.whole), default=0)
        return (
            _missing_steps(run, until, records)
            or _missing_validations(run, scan, until, validations)
            or _missing_starts(run, known, starts, bool(scan.whole))
        )
    named = next((name for name in ("latest", "best") if run.store.pointed_step(name) is not None), None)
    if named is not None:
        return f"checkpoints/ holds none, though {named}.json names step {run.store.pointed_step(named)}"
    last = next(reversed(starts), None)
    if last is not None and starts[last] is not None:
        return f"checkpoints/ holds none, though process start {last} resumed from step {starts[last]}"
    return _missing_starts(run, known, starts, False) or _missing_saves(run, records)


def _require_sense(file: Path, records: Iterable[tuple[int, int]]) -> None:
    """Raise RunDirectoryError for the first record, given as (attempt, step), that no run writes."""
    for attempt, step in records:
        if not (1 <= step <= INT32 and 0 <= attempt <= INT32):
            raise RunDirectoryError(f"{file}: step {step} of attempt {attempt} makes no sense; {_REPAIR}")


def _starts(run: RunDirectory) -> dict[int, int | None]:
    """Return attempt to the step it resumed from, in order."""
    starts: dict[int, int | None] = {}
    for number, row in enumerate(read_lines(run.attempts), 1):
        attempt, start = row.get("attempt"), row.get("resumed_from")
        sensible = type(attempt) is int and attempt >= 0 and attempt not in starts
        if not sensible or not (start is None or (type(start) is int and start >= 0)):
            raise RunDirectoryError(f"{run.attempts} row {number} makes no sense: {row!r:.200}; {_REPAIR}")
        starts[attempt] = start  # type: ignore[index]
    for before, after in pairwise(starts):
        if after < before:
            raise RunDirectoryError(f"{run.attempts}: attempt {after} comes after {before}; {_REPAIR}")
    return starts


def _accepted(run: RunDirectory) -> int:
    """Return the step up to which this run was continued without its records, because a checkpoint was named."""
    step = 0
    for row in read_lines(run.attempts):
        step = 0 if row["resumed_from"] is None else max(step, row.get("records_after") or 0)
    return step


def _missing_steps(run: RunDirectory, until: int, records: Iterable[StepRecord]) -> str | None:
    accepted, have = _accepted(run), splice(records)
    gaps = [step for step in range(accepted + 1, until + 1) if step not in have]
    if not gaps:
        return None
    if not have:
        return f"steps.jsonl {'is empty' if run.steps.exists() else 'is missing'}, though checkpoint {until} stands"
    end = next((step for step, after in pairwise(gaps) if after != step + 1), gaps[-1])
    which = f"step {gaps[0]}" if end == gaps[0] else f"steps {gaps[0]} to {end}"
    kept = (
        ", unreadable lines are in steps.jsonl.damaged" if run.steps.with_name("steps.jsonl.damaged").exists() else ""
    )
    return f"steps.jsonl lacks the records of {which}, though checkpoint {until} stands{kept}"


def _missing_validations(run: RunDirectory, scan: Scan, until: int, validations: Iterable[Validation]) -> str | None:
    """Return whether a checkpoint has a metric, given at its save, whose validation was not recorded."""
    later, have, accepted = run.store.late_metrics(), splice(validations), _accepted(run)
    for saved in scan.whole:
        measured = saved.metric is not None and (saved.step, saved.saved_at) not in later
        if measured and accepted < saved.step <= until and saved.step not in have:
            return f"validations.jsonl lacks step {saved.step}, though its checkpoint has a metric"
    return None


def _missing_starts(run: RunDirectory, known: set[int], starts: dict[int, int | None], needed: bool) -> str | None:
    accepted = [row["attempt"] for row in read_lines(run.attempts) if row.get("records_after")]
    unknown = sorted(attempt for attempt in known - set(starts) if attempt >= max(accepted, default=0))
    if unknown:
        return f"{run.attempts.name} lacks attempt {unknown[0]}, of which there are records"
    return f"{run.attempts.name} is missing or empty, though checkpoints stand" if needed and not starts else None


def _missing_saves(run: RunDirectory, records: Iterable[StepRecord]) -> str | None:
    """Return whether a process trained beyond its second save: the first was complete by then."""
    every = {row["attempt"]: row.get("save_every") for row in read_lines(run.attempts)}
    for record in records:
        interval = every.get(record.attempt)
        if isinstance(interval, int) and interval > 0 and record.step > 2 * interval:
            return f"checkpoints/ holds none, though {record.step} steps with a save every {interval} are recorded"
    return None


def _free(path: Path) -> Path:
    """Return a path that does not exist: this one, or one with a number."""
    taken = (path.with_name(f"{path.name}.{number}") for number in range(1, 1_000_000))
    return path if not path.exists() else next(other for other in taken if not other.exists())
