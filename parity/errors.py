"""Every error the suite raises on purpose, each carrying its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = [
    "CheckpointError",
    "DamagedError",
    "DivergedError",
    "InconsistentStateError",
    "LockedError",
    "MissingFrameworkError",
    "OtherRunError",
    "ParityError",
    "ProcessesError",
    "ResultError",
    "RunDirectoryError",
    "SaveError",
    "SideError",
    "SpecError",
    "SpecMismatchError",
    "StateError",
    "UnknownNameError",
    "UnsealedError",
]


MOST_ROWS = 20
"""Rows of findings that a message shows; a hostile file may have a hundred thousand."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


class ParityError(Exception):
    """Base of all errors that name what failed, where, and what to do."""

    exit_code = 2
    """What the command exits with."""


class SpecError(ParityError, ValueError):
    """A run specification that cannot be run.

    Attributes:
        field: Dotted name of the field at fault, such as `optimizer.lr`.
    """

    def __init__(self, field: str, problem: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}")


class UnknownNameError(ParityError, ValueError):
    """A name that is not among the known ones.

    Attributes:
        kind: What was looked up (`preset`, `field`, `side`, `check`).
        name: The name that was given.
        known: The names that exist.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        super().__init__(f"unknown {kind} {name!r}; known: {', '.join(self.known)}")


class SpecMismatchError(ParityError, ValueError):
    """A run resumed with another specification than the one it was started with.

    Attributes:
        differences: Field name to the pair (in the run directory, asked for).
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
        side: `jax` or `torch`; also the name of the extra to install.
    """

    def __init__(self, side: str, module: str) -> None:
        self.side = side
        super().__init__(f"side {side!r} needs the module {module!r}: pip install 'parity-suite[{side}]'")


class SideError(ParityError, ImportError):
    """An installed side that cannot be used.

    Attributes:
        side: Its name.
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


class InconsistentStateError(ParityError, RuntimeError):
    """A trainer between two steps: an error interrupted a chunk or a restore, so its state belongs to no step."""

    def __init__(self) -> None:
        super().__init__(
            "an error interrupted the last chunk, so this state belongs to no step; restore a checkpoint or import a "
            "state"
        )


class CheckpointError(ParityError, RuntimeError):
    """No checkpoint that counts, or one that cannot be written.

    Attributes:
        found: What was found, as pairs (name, why it does not count).
    """

    def __init__(self, problem: str, found: Iterable[tuple[str, str]] = ()) -> None:
        self.found = list(found)
        rows = "".join(f"\n  {_cut(name, 200)}: {_cut(why, 600)}" for name, why in self.found[:MOST_ROWS])
        rest = len(self.found) - MOST_ROWS
        super().__init__(_cut(problem, 2000) + rows + (f"\n  and {rest} more" if rest > 0 else ""))


class DamagedError(CheckpointError):
    """A sealed checkpoint that is not what was sealed."""


class OtherRunError(DamagedError):
    """A whole checkpoint of another run: it does not belong where it lies, like a damaged one.

    Attributes:
        sealed: Hash of the run that it was sealed with.
        expected: Hash of the run that it lies in.
    """

    def __init__(self, step: int, sealed: str, expected: str) -> None:
        self.sealed, self.expected = sealed, expected
        super().__init__(
            f"step {step} is of another run (other model, data, optimizer or seed): its seal has the run hash "
            f"{sealed[:12]!r}, this run has {expected[:12]!r}"
        )


class UnsealedError(CheckpointError):
    """A checkpoint without a seal: foreign, readable on request, never proved whole."""


class SaveError(ParityError, RuntimeError):
    """A checkpoint or record could not be written; the command exits with 3.

    Attributes:
        step: The step that was to be saved.
        saved: Whether its checkpoint is there and whole all the same: something after the rename failed.
    """

    exit_code = 3

    def __init__(self, step: int, problem: str, *, saved: bool = False) -> None:
        self.step, self.saved = step, saved
        text = " ".join(problem.split())  # a framework's message may hold the whole state
        what = "is saved; what follows a save failed" if saved else "could not be saved"
        super().__init__(f"step {step} {what}: {text[:400]}{'...' if len(text) > 400 else ''}")


class ResultError(ParityError, ValueError):
    """A file of results (of checks, of benchmarks) that cannot be read as one."""


class RunDirectoryError(ParityError, RuntimeError):
    """A run directory that may not be used as asked."""


class LockedError(RunDirectoryError):
    """Another process writes to the run directory.

    Attributes:
        owner: Who that is: process, host, since when, by which command.
    """

    def __init__(self, directory: object, owner: str) -> None:
        self.owner = owner
        super().__init__(
            f"{directory} has a writer already: {owner}; wait for it or stop it, or choose another --dir"
        )


class ProcessesError(ParityError, RuntimeError):
    """The processes of one run cannot work together: one is missing, or was started differently."""

    def __init__(self, problem: str, exit_code: int = 2) -> None:
        self.exit_code = exit_code
        super().__init__(problem)


class DivergedError(ParityError, RuntimeError):
    """Training stopped because the loss or the gradient was not finite.

    Attributes:
        step: The first step at fault (or the last of the row of skips).
    """

    exit_code = 1

    def __init__(self, step: int, problem: str) -> None:
        self.step = step
        super().__init__(f"step {step}: {problem}")
