"""The errors that the suite raises on purpose.

Each message names what failed, where, what was expected and found, and what to do; the values in it are attributes
too. All are subclasses of `ParityError`, whose `exit_code` is what the command returns.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

__all__ = [
    "CheckpointError",
    "DamagedError",
    "DivergedError",
    "InconsistentStateError",
    "LeaseLostError",
    "LockedError",
    "MissingFrameworkError",
    "MissingPackageError",
    "NoCounterpartError",
    "OtherRunError",
    "ParityError",
    "ProcessesError",
    "ResultError",
    "RunDirectoryError",
    "SaveError",
    "ScheduleError",
    "SideError",
    "SpecError",
    "SpecMismatchError",
    "StateError",
    "StoreConflictError",
    "StoreContentionError",
    "StoreError",
    "StoreMissingError",
    "TrainerError",
    "UnknownNameError",
    "UnsealedError",
    "WorkError",
    "explain",
    "similar",
]


MOST_NAMES = 8
"""Most names that a message lists where a similar one was found."""

MOST_ROWS = 20
"""Largest number of findings in a message; a hostile file may cause a hundred thousand."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def similar(name: str, known: list[str]) -> list[str]:
    """Return up to three names like the one that was given: those that end with it first, such as `optimizer.lr`."""
    ends = [one for one in known if one.rpartition(".")[2] == name]
    return (ends or difflib.get_close_matches(name, known, 3))[:3]


def explain(error: Exception) -> str:
    """Return why a value that was read cannot be used, as a phrase for people.

    Example:
        >>> explain(KeyError("schema")), explain(ValueError("0 is no step"))
        ("it has no 'schema'", '0 is no step')
    """
    return f"it has no {error.args[0]!r}" if type(error) is KeyError and error.args else str(error)


class ParityError(Exception):
    """The base of all errors that the suite raises on purpose."""

    exit_code = 2
    """Exit code of the command that this error ends."""


class SpecError(ParityError, ValueError):
    """A value in a run specification or in an option that cannot be used.

    Args:
        field: Dotted name of the field, or name of the option.
        problem: What the value must be, and what it is.

    Attributes:
        field: Dotted name of the field, such as `optimizer.lr`, or name of the option, such as `--kill-at`.

    Example:
        >>> print(SpecError("optimizer.lr", "must be above 0, got -1.0"))
        optimizer.lr: must be above 0, got -1.0
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}")


class UnknownNameError(ParityError, ValueError):
    """A name that does not exist; the message names similar ones, or lists all that do.

    Args:
        kind: What was looked up: `preset`, `field`, `side` or `check`.
        name: The name that was given.
        known: The names that exist, in any order.

    Attributes:
        kind: What was looked up.
        name: The name that was given.
        known: The names that exist, sorted.

    Example:
        >>> print(UnknownNameError("side", "tensorflow", ["torch", "jax"]))
        unknown side 'tensorflow'; known: jax, torch
        >>> print(UnknownNameError("field", "optimizer.rl", ["optimizer.lr", *"abcdefgh"]))
        unknown field 'optimizer.rl'; did you mean optimizer.lr?
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        close = similar(name, self.known)
        if close and len(self.known) > MOST_NAMES:
            hint = f"did you mean {' or '.join(close)}?"
        else:
            hint = f"known: {', '.join(self.known)}"
            hint += "; `parity spec PRESET` prints them with their values" if kind == "field" else ""
            hint += f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class SpecMismatchError(ParityError, ValueError):
    """A run that was asked to resume with a specification other than its own.

    Attributes:
        differences: Dotted field name to the pair (value in the run directory, value asked for).
    """

    def __init__(self, differences: Mapping[str, tuple[object, object]]) -> None:
        self.differences = dict(differences)
        rows = "\n".join(f"  {k}: run has {a!r}, asked for {b!r}" for k, (a, b) in self.differences.items())
        super().__init__(
            f"the run was started with another specification:\n{rows}\n"
            "Give the run's own values, or choose another --dir for a new run."
        )


class MissingFrameworkError(ParityError, ImportError):
    """A side whose framework is not installed.

    Attributes:
        side: `jax` or `torch`, which is also the name of the extra to install.
    """

    def __init__(self, side: str, module: str, package: str = "", companions: Iterable[str] = ()) -> None:
        self.side = side
        needs = f"side {side!r} needs the module {module!r}"
        if package:
            needs = f"{package} needs {', '.join(companions)}; there is no {module}"
        super().__init__(f"{needs}: pip install 'parity-suite[{side}]'")


class MissingPackageError(ParityError, ImportError):
    """A package of an extra that is not installed.

    Args:
        why: What needs it, as a phrase.
    """

    def __init__(self, package: str, extra: str, why: str) -> None:
        super().__init__(f"{package} is not installed, and {why}: pip install 'parity-suite[{extra}]'")


class SideError(ParityError, ImportError):
    """A side of an installed package that cannot be used.

    Attributes:
        side: Name of the entry point.
    """

    def __init__(self, side: str, problem: str) -> None:
        self.side = side
        super().__init__(f"side {side!r}: {problem}")


class StateError(ParityError, ValueError):
    """A training state that does not fit: a leaf missing, unexpected, or of another dtype or shape.

    Attributes:
        leaf: The leaf path at fault, such as `optimizer.first_moment.layers.0.weight`.
    """

    def __init__(self, leaf: str, problem: str) -> None:
        self.leaf = leaf
        super().__init__(f"{leaf}: {problem}")


class NoCounterpartError(StateError):
    """A state that has no meaning on another side: nothing was lost, and nothing can be compared."""


class TrainerError(ParityError, RuntimeError):
    """A training function that cannot be judged: it does not mark, does not save, or fails by itself."""


class InconsistentStateError(ParityError, RuntimeError):
    """A trainer between two steps: an error ended a chunk, or a restore, halfway."""

    def __init__(self) -> None:
        super().__init__(
            "an error ended the last chunk halfway, so this state is of no step; restore a checkpoint or import a "
            "state"
        )


class CheckpointError(ParityError, RuntimeError):
    """A checkpoint that is missing, cannot be read or cannot be written.

    Args:
        problem: What is wrong; at most 2,000 characters of it are shown.
        found: Pairs (name, problem) of the checkpoints, files or leaves that were found; the message shows the first
            `MOST_ROWS`.

    Attributes:
        found: All pairs that were given.
    """

    def __init__(self, problem: str, found: Iterable[tuple[str, str]] = ()) -> None:
        self.found = list(found)
        rows = "".join(f"\n  {_cut(name, 200)}: {_cut(why, 600)}" for name, why in self.found[:MOST_ROWS])
        rest = len(self.found) - MOST_ROWS
        super().__init__(_cut(problem, 2000) + rows + (f"\n  and {rest} more" if rest > 0 else ""))


class DamagedError(CheckpointError):
    """A checkpoint whose files or leaves differ from what its seal records."""


class OtherRunError(DamagedError):
    """An undamaged checkpoint of another run; it is never restored here, like a damaged one.

    Attributes:
        sealed: Hash of the run that saved the checkpoint, from its seal.
        expected: Hash of the run whose directory holds it.
    """

    def __init__(self, step: int, sealed: str, expected: str) -> None:
        self.sealed, self.expected = sealed, expected
        super().__init__(
            f"step {step} is of another run (other model, data, optimizer or seed): its seal has the run hash "
            f"{sealed[:12]!r}, this run has {expected[:12]!r}"
        )


class UnsealedError(CheckpointError):
    """A checkpoint without a seal; it can be read by its step, but nothing proves that it is whole."""


class SaveError(ParityError, RuntimeError):
    """A save that failed, of a checkpoint or of records; the command exits with 3.

    Args:
        step: The step that was to be saved.
        problem: Why it failed; at most 400 characters are shown.
        saved: Whether its checkpoint is on disk and whole all the same, because only work after its rename failed.

    Attributes:
        step: The step that was to be saved.
        saved: Whether its checkpoint is on disk and whole.
    """

    exit_code = 3

    def __init__(self, step: int, problem: str, *, saved: bool = False) -> None:
        self.step, self.saved = step, saved
        text = " ".join(problem.split())  # a framework's message may hold the whole state
        what = "is saved, but work after the save failed" if saved else "could not be saved"
        super().__init__(f"step {step} {what}: {text[:400]}{'...' if len(text) > 400 else ''}")


class ScheduleError(ParityError, ValueError):
    """A schedule that cannot be built, moved or converted as asked.

    Args:
        where: The rule and its constant, such as `cosine.T_max`, or the class that was given.
        problem: What it must be and what it is, or why there is no next rate.

    Attributes:
        where: The rule and its constant, or the class that was given.

    Example:
        >>> print(ScheduleError("plateau", "needs the metric of this validation: step(metric)"))
        plateau: needs the metric of this validation: step(metric)
    """

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        super().__init__(f"{where}: {problem}")


class ResultError(ParityError, ValueError):
    """A file that cannot be read as a result of checks or of benchmarks."""


class RunDirectoryError(ParityError, RuntimeError):
    """A run directory that cannot be used as asked."""


class LockedError(RunDirectoryError):
    """A run directory that another process, or another trainer of this process, is writing to.

    Attributes:
        owner: The writer: process ID, host, start time and command, as far as they are known.
    """

    def __init__(self, directory: object, owner: str) -> None:
        self.owner = owner
        super().__init__(
            f"{directory} has a writer already: {owner}; wait for it or stop it, or choose another --dir"
        )


class LeaseLostError(RunDirectoryError):
    """The lease of a prefix that another process has taken; nothing that is uploaded counts any more.

    Attributes:
        owner: Who holds it now.
    """

    def __init__(self, url: object, epoch: int, owner: str) -> None:
        self.owner = owner
        super().__init__(
            f"{url}: this process lost the lease (epoch {epoch}), which it did not renew in time, to {owner}; its "
            "checkpoints stay in the run directory and are not copied"
        )


class StoreError(ParityError, RuntimeError):
    """An object store that refused, or did not answer; one line without anything of a credential.

    Attributes:
        url: What was asked for.
        transient: Whether the same request may succeed later.
        denied: Whether it is the credentials that may not, whatever the store keeps.
    """

    def __init__(self, url: object, problem: str, *, transient: bool = False, denied: bool = False) -> None:
        self.url, self.transient, self.denied = str(url), transient, denied
        self.exit_code = 3 if transient else 2
        super().__init__(f"{url}: {problem}")


class StoreMissingError(StoreError):
    """An object that is not there."""


class StoreContentionError(StoreError):
    """A conditional put that the store refuses again and again, though its condition holds."""


class StoreConflictError(StoreError):
    """A conditional put whose condition did not hold: another writer was there first."""


class ProcessesError(ParityError, RuntimeError):
    """Processes that cannot train one run together, because one is missing or was started with other options."""

    def __init__(self, problem: str, exit_code: int = 2) -> None:
        self.exit_code = exit_code
        super().__init__(problem)


class DivergedError(ParityError, RuntimeError):
    """A run that stopped because its loss or gradient was not finite.

    Attributes:
        step: The first such step; in float16, the last of the steps that were skipped in a row.
    """

    exit_code = 1

    def __init__(self, step: int, problem: str) -> None:
        self.step = step
        super().__init__(f"step {step}: {problem}")


class WorkError(ParityError, RuntimeError):
    """Two ways to run a step that do not do the same work, so that their times cannot be compared.

    Attributes:
        mode: The way that does other work.
    """

    exit_code = 1

    def __init__(self, mode: str, problem: str) -> None:
        self.mode = mode
        super().__init__(f"{mode}: {problem}; its time is of other work, so nothing was measured")
