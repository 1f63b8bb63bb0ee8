"""The last line of a process that trained to its end, or had nothing to train."""

from __future__ import annotations

from parity.contract import RunPlan
from parity.runs.directory import RunDirectory
from parity.storage import reason

__all__ = ["describe_end", "describe_nothing"]


def describe_end(run: RunDirectory, plan: RunPlan, step: int, loss: float, seconds: float) -> str:
    """Return what a finished run has reached, where its checkpoint is, and how to train it further.

    Args:
        run: The run directory, after the last save.
        plan: What best is measured by.
        step: The last step.
        loss: Training loss of that step.
        seconds: Duration of this process's training.

    A disk that cannot be read now is part of the line: everything is saved, so it does not end the run with an error.
    """
    try:
        found = _describe_saved(run, plan)
    except OSError as error:
        found = f"best and latest are not known ({reason(error)})"
    what = f"done: step {step}, loss {loss:.6g}, {found}, {seconds:.1f} s"
    return f"{what}; repeat the command with --steps above {step} to resume"


def _describe_saved(run: RunDirectory, plan: RunPlan) -> str:
    """Return the best metric, and where the last checkpoint is."""
    best, latest = run.store.pointed("best"), run.store.pointed("latest")
    reached = f"no best {plan.metric} yet"
    if best is not None and best.metric is not None:
        reached = f"best {plan.metric} {best.metric:.6g} at step {best.step}"
    saved = "no checkpoint" if latest is None else f"checkpoint {run.checkpoints / str(latest.step)}"
    return f"{reached}, {saved}"


def describe_nothing(step: int, steps: int) -> str:
    """Return why there is nothing to train, and how to train further.

    Args:
        step: Steps that the run has trained.
        steps: Steps that were asked for.

    Example:
        >>> describe_nothing(20, 15)
        'nothing to do: the run is at step 20, and 15 steps were asked for; give --steps above 20 to resume'
    """
    asked = f"the run is at step {step}, and {steps} steps were asked for"
    return f"nothing to do: {asked}; give --steps above {step} to resume"
