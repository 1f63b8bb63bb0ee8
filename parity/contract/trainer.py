"""The Trainer protocol, which everything that is trained fulfils, and the records that it gives out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol, cast, get_args, runtime_checkable

from parity.contract.identity import RunIdentity
from parity.contract.plan import RunPlan
from parity.errors import SideError
from parity.policy import Which
from parity.state import TrainingState

__all__ = [
    "PRECISIONS",
    "QUANTITIES",
    "Precision",
    "StepRecord",
    "Trainer",
    "Validation",
    "require_trainer",
    "written_of",
]

Precision = Literal["float64", "float32", "bfloat16", "float16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
"""What a step computes in, as records of checks name it."""

QUANTITIES = ("batch", "epoch", "samples", "lr", "loss_scale", "loss", "grad_norm", "skipped")
"""The judged fields of a StepRecord, in the order in which a step decides them."""


class StepRecord(NamedTuple):
    """What one completed step reports; a tuple is made in half the time of a frozen dataclass, once per step."""

    attempt: int
    """Process starts of the run before this one."""
    step: int
    """Completed steps after it, from 1."""
    loss: float
    """Unscaled, mean over the samples of the step."""
    lr: float
    """Learning rate used."""
    grad_norm: float
    """Global 2-norm of the gradient after unscaling, before clipping."""
    loss_scale: float
    """Loss scale used; 1.0 without a scaler."""
    skipped: bool
    """Whether the scaler withheld the update."""
    batch: str
    """Digest of the batch."""
    epoch: int
    """Epoch of the batch, from 0."""
    samples: int
    """Samples consumed after the step."""
    seconds: float
    """Wall time of the chunk over its steps; never judged."""


class Validation(NamedTuple):
    """One validation."""

    attempt: int
    step: int
    metric: str
    """`accuracy` or `loss`."""
    value: float
    """The metric: correct / samples, or the mean loss."""
    loss: float
    """Mean validation loss."""


@runtime_checkable
class Trainer(Protocol):
    """What the harness drives; both twins are one, and so is any trainer that a team brings."""

    side: str
    """Name of the framework, for reports."""
    plan: RunPlan
    """When the run saves, validates and stops."""
    identity: RunIdentity
    """What makes the run this run and no other."""
    spec_hash: str
    """`identity.hash` with the digest of the data; every seal of the run has it."""

    @property
    def step(self) -> int:
        """Return the number of completed steps."""

    def steps(self, until: int) -> Iterator[StepRecord]:
        """Train up to a step, yielding a record for each; `step` is always the end of a finished chunk.

        Args:
            until: Completed steps to stop at, such as `RunPlan.next_stop` gives.
        """

    def evaluate(self) -> Validation:
        """Measure on the validation samples; must not change anything that a later step sees.

        The one exception is a schedule that moves by the metric (`RunPlan.metric_moves`), once for each step at which
        a validation is due.
        """

    def note_best(self, metric: float | None) -> None:
        """Take the metric of this step, which is about to be saved, into the best so far.

        A trainer whose state holds no best does nothing.

        Args:
            metric: As in `save`.
        """

    def save(self, metric: float | None, *, saved_at: float | None = None) -> None:
        """Write a checkpoint of this step, perhaps in the background.

        Args:
            metric: Validation metric of this very step, or None; decides the best checkpoint.
            saved_at: The time that its seal records, seconds since the epoch; None for now.

        Raises:
            SaveError: It could not be written, or the save before was not; an OSError counts as one too.
        """

    def restore(self, which: Which) -> int:
        """Load a checkpoint and return its step.

        Args:
            which: The newest, the best, or a step; `resume_run` always names the step.

        Raises:
            DamagedError: It is not what was saved; the caller may try another one.
            CheckpointError: There is none, or it cannot be restored.
        """

    def wait(self) -> None:
        """Return when every save is durable.

        Raises:
            SaveError: One in the background failed; raised once.
        """

    def close(self) -> None:
        """Wait, and release what is held."""

    def export_state(self, *, copy: bool = True) -> TrainingState:
        """Return everything that must survive a stop, on the host.

        Args:
            copy: Whether the arrays are in C order and outlive the next step; without, they may be views of the
                state, their axes in memory as the side keeps them.
        """

    def import_state(self, state: TrainingState) -> None:
        """Become the given state.

        Raises:
            StateError: A leaf is missing, unexpected, or of the wrong dtype or shape; nothing was changed.
        """


def written_of(trainer: Trainer, step: int) -> Mapping[str, Mapping[int, int]]:
    """Return what this process wrote of a checkpoint, where its trainer says so by the optional member `written`.

    Several processes that copy a checkpoint each send what they wrote, if they can.

    Args:
        trainer: That of this process.
        step: Of the checkpoint.

    Returns:
        File of the checkpoint to the number of each block of 8 MiB to the bytes of it that this process wrote;
        nothing where that is not known.
    """
    asked: Callable[[int], Mapping[str, Mapping[int, int]]] = getattr(trainer, "written", lambda step: {})
    return asked(step)


def require_trainer(built: object, side: str) -> Trainer:
    """Return what a side has built, which must have every member of `Trainer`.

    Args:
        built: What `Side.build` returned.
        side: Name of the side, for the message.

    Raises:
        SideError: A member is missing; the message lists all that are.

    Example:
        >>> require_trainer(object(), "mine")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        parity.errors.SideError: side 'mine': its trainer has no side, plan, identity, spec_hash, step, steps, ...
    """
    named = [*Trainer.__annotations__, *(name for name in vars(Trainer) if not name.startswith("_"))]
    if lacking := [name for name in named if not hasattr(built, name)]:
        raise SideError(side, f"its trainer has no {', '.join(lacking)}; see parity.contract.Trainer")
    return cast(Trainer, built)
