"""Suspects as a record keeps them: evidence with its scenario and amount, and one line of advice by its component."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.capture import whole_of
from parity.checks.judging.evidence import Evidence
from parity.checks.judging.otherwise import IN_ORDER_OF, ONE_WITH
from parity.results import Suspect, clipped
from parity.state import measure_arrays

__all__ = ["advise", "each_once", "measured", "suspect"]

_ADVICE: tuple[tuple[str, str], ...] = (
    (
        "checkpoint.latest",
        "the function did not continue from its newest checkpoint: look at how it finds and loads it",
    ),
    (
        "checkpoint.retention",
        "what is kept depends on the process: read the list of checkpoints from the folder at the start",
    ),
    ("checkpoint.restore", "the function failed when it was resumed: the traceback below says where"),
    ("counters.step", "save the completed steps with the state, and continue at exactly that step"),
    ("schedule.step", "save and load the scheduler's state_dict; load it after its constructor ran"),
    (
        "schedule.lr",
        "the constructor of a scheduler sets lr: load the optimizer's state after building the scheduler",
    ),
    ("schedule", "save and load the scheduler's whole state_dict"),
    ("scaler", "save scaler.state_dict() and load it into the scaler that the loop uses"),
    ("optimizer.param_order", "optimizer state is matched by position: give the parameters in one fixed order"),
    (
        "optimizer.param_groups",
        "something holds param_groups from before load_state_dict: it edits a list nobody reads",
    ),
    (
        "optimizer.hyperparameters",
        "decide whether the checkpoint or the configuration wins, and apply it to every group",
    ),
    ("optimizer.step", "the optimizer's step count was lost: bias correction starts again; load its whole state"),
    ("optimizer.master_params", "save the float32 copies; deriving them from narrow weights loses their low bits"),
    ("optimizer", "save optimizer.state_dict() and load it after the last place that builds the optimizer"),
    ("model.params", "load the model's state after every initialisation, strict, and check missing keys"),
    ("model.buffers", "save buffers with the parameters: state_dict has the persistent ones, JAX keeps them apart"),
    ("model.mode", "call model.train() before the first step after a resume, and after each evaluation"),
    ("model.requires_grad", "freeze and unfreeze from the step, not from what this process has done"),
    ("model.ties", "tie the weights again after loading, or save both"),
    ("ema", "save the averaged parameters and their count, and load both"),
    ("rng.torch", "save torch.get_rng_state() and set it after everything that draws at the start"),
    ("rng", "save the generator's state and set it last, after everything that draws at the start"),
    ("data.position", "save the position, epoch and order of the data, counted where batches are consumed"),
    ("data.batch", "save the position, epoch and order of the data, counted where batches are consumed"),
    ("gradients", "a save fell within an accumulation: save gradients too, or save at its end"),
    ("best", "save the best value so far with the state and load it before the first evaluation"),
    ("settings", "set precision, determinism flags and the numbers of training alike at the start of every process"),
    ("counters", "save the counter with the state"),
)


def advise(evidence: Evidence, among: Sequence[Evidence] = ()) -> str:
    """Return one line on what to change.

    Args:
        evidence: The first suspect.
        among: All that was found: `lr` alone has another cause than `lr` with a lost schedule.
    """
    if evidence.when.startswith("across the evaluation") and evidence.component.startswith("rng"):
        return "evaluation draws from a generator that training uses: give it its own, or put the state back after it"
    if evidence.when.startswith("across the"):
        what = "save" if "save" in evidence.when else "evaluation"
        return f"the {what} changes the live state: work on a copy, or put back what it changed"
    if evidence.is_one_number and evidence.expected != evidence.got:
        return (
            "the same number in another type: what it is computed with comes to be of another precision; convert it"
        )
    if evidence.when.endswith("at the end") and ": " in evidence.path:
        kept = f"ignore={{{evidence.path!r}: reason}}"
        return f"no loss was seen before it: restore what this is written from; if it differs on purpose, {kept}"
    if evidence.when.startswith("otherwise than on"):
        return "ranks that train one model came to hold different values: reduce or broadcast what they decide by"
    if evidence.expected.startswith(ONE_WITH):
        return (
            f"after loading, have {evidence.path} and {evidence.expected.removeprefix(ONE_WITH)} be one object again"
        )
    if evidence.got.startswith(ONE_WITH):
        return f"after loading, have {evidence.path} and {evidence.got.removeprefix(ONE_WITH)} be two objects again"
    if evidence.expected.startswith(IN_ORDER_OF):
        return f"load the keys of {evidence.path} in the order in which they were saved"
    if evidence.component == "schedule.lr" and any(one.component == "schedule.step" for one in among):
        return dict(_ADVICE)["schedule.step"]
    for component, advice in _ADVICE:
        if evidence.component == component or evidence.component.startswith(f"{component}."):
            return advice
    return f"save {evidence.path} with the state and load it"


def suspect(e: Evidence, scenario: str, advice: str = "") -> Suspect:
    """Return evidence as a suspect of a record.

    Args:
        e: The evidence.
        scenario: Name of the scenario in which it was found.
        advice: What to do about it; empty for none.
    """
    return Suspect(**e._asdict(), scenario=scenario, advice=advice)


def measured(
    suspects: Sequence[Suspect], expected: Mapping[str, Any], got: Mapping[str, Any], step: int
) -> list[Suspect]:
    """Return suspects with the amounts by which their arrays differ, of those that were seen at a step.

    Args:
        suspects: Suspects of a record; those of other steps, or without both values, stay as they are.
        expected: Path to value in the uninterrupted run.
        got: Path to value in the resumed one.
        step: Completed steps at which the values were kept.
    """
    return [
        replace(one, **_amount(expected[one.path], got[one.path]))
        if one.step == step and one.path in expected and one.path in got
        else one
        for one in suspects
    ]


def each_once(found: Iterable[Suspect]) -> list[Suspect]:
    """Return the last suspect of each path."""
    return list({one.path: one for one in found}.values())


def _amount(expected: Any, got: Any) -> dict[str, Any]:
    """Return by how much two arrays or long containers differ, as fields of a suspect."""
    if isinstance(expected, list | dict | set) and type(expected) is type(got):
        return _elements(expected, got)
    if not isinstance(expected, np.ndarray) or not isinstance(got, np.ndarray):
        return {}
    same = expected.shape == got.shape and expected.dtype == got.dtype and expected.dtype.kind in "fiub"
    return measure_arrays(expected, got)._asdict() if same else {}


def _elements(expected: Any, got: Any) -> dict[str, Any]:
    """Return how many elements of two containers differ, and the first of them on both sides."""
    left, right = map(_by_key, (expected, got))
    apart = [key for key in {**left, **right} if key not in left or key not in right or _apart(left[key], right[key])]
    if not apart:
        return {}
    first = apart[0]
    said = ("absent" if first not in one else "there" if isinstance(expected, set) else repr(one[first])
            for one in (left, right))  # fmt: skip
    texts = (clipped(f"[{first!r}]: {text}") for text in said)
    return dict(zip(("expected", "got"), texts, strict=True)) | {"elements": len(left), "differing": len(apart)}


def _by_key(held: Any) -> dict[Any, Any]:
    """Return what a container holds by its keys, its places, or the elements themselves."""
    if isinstance(held, set):
        return dict.fromkeys(sorted(held, key=repr))
    return dict(enumerate(held)) if isinstance(held, list) else held


def _apart(one: Any, other: Any) -> bool:
    """Return whether two plain values, or containers of them, differ in type or in what their leaves would say.

    Not by their own text: dicts and sets are written in the order in which they came to be filled.
    """
    if type(one) is not type(other):
        return True
    if isinstance(one, list | tuple | dict | set | frozenset):
        left, right = (whole_of(each, shared=True) for each in (one, other))
        if left is not None and right is not None:
            return left.text != right.text
    return repr(one) != repr(other)
