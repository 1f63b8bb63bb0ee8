"""The loss of a trainer against its steps, as its own loop had it: of the uninterrupted run and of a resumed one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from parity.checks.running import Trace
from parity.checks.traces import RESUMED_LABELS, trace
from parity.contract import StepRecord
from parity.results import Curves

__all__ = ["loss_curves"]


def loss_curves(reference: Trace, before: Sequence[Trace], resumed: Trace, killed: int) -> Curves | None:
    """Return both curves of the loss, or None where the loop keeps none in sight.

    The loss is a variable that is called one and holds one floating number. Of several the one with the shortest
    name is drawn, among those that are there at most marks: `loss` before `train.loss_of_last_epoch`.

    Args:
        reference: The run that nothing stopped.
        before: The runs that were killed, the last one last.
        resumed: The run that continued to the end.
        killed: Completed steps at the kill.
    """
    whole = _losses(reference)
    path = _chosen(whole, len(reference.marks))
    if path is None or not resumed.marks:
        return None
    resume = resumed.marks[0].step
    parts = [_losses(part) for part in before]
    other = {step: found[path] for part in parts for step, found in part.items() if path in found and step <= resume}
    other |= {step: found[path] for step, found in _losses(resumed).items() if path in found}
    found = trace(
        _records((step, found[path]) for step, found in whole.items() if path in found),
        _records(other.items()),
        RESUMED_LABELS,
        kills=(killed,),
        resumes=(resume,),
    )
    if found is None:
        return None
    unknown = (None,) * len(found.steps)
    return replace(found, lr=(unknown, unknown), grad_norm=(unknown, unknown), loss_scale=(unknown, unknown))


def _losses(run: Trace) -> dict[int, dict[str, float]]:
    """Return completed steps to the losses that a run had then, by path; the last ones are those at its return."""
    found = {mark.step: mark.snapshot.losses for mark in run.marks}
    if run.final is not None and run.marks and run.end == "finished" and not run.state_was_named:
        found[run.marks[-1].step + 1] = run.final.losses
    return found


def _chosen(losses: Mapping[int, Mapping[str, float]], marks: int) -> str | None:
    """Return the path of the loss: it is there at half of the marks, and changes."""
    seen: dict[str, list[float]] = {}
    for found in losses.values():
        for path, value in found.items():
            seen.setdefault(path, []).append(value)
    known = [path for path, values in seen.items() if 2 * len(values) >= marks and len(set(values)) > 1]
    return min(known, key=lambda path: (len(path), path), default=None)


def _records(values: Iterable[tuple[int, float]]) -> dict[int, StepRecord]:
    """Return records of a loop of which the loss is known and nothing else."""
    rest = {"attempt": 0, "lr": 0.0, "grad_norm": 0.0, "loss_scale": 1.0, "skipped": False}
    own = {"batch": "", "epoch": 0, "samples": 0, "seconds": 0.0}
    return {step: StepRecord(**rest, **own, step=step, loss=loss) for step, loss in values}  # type: ignore[arg-type]
