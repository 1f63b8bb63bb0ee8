"""The two sides of a check: how they are run, how their differences are worded, and the record."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from parity.checks.ports.basis import Basis, Setting
from parity.checks.ports.judge import Judged, PortDifference
from parity.checks.ports.noise import DIVERGED, Noise
from parity.checks.ports.series import Trained
from parity.checks.progress import announce
from parity.checks.running import RunMode, Train, open_workdir, runner_of
from parity.errors import SpecError
from parity.results import Crossing, Suspect

__all__ = ["CLOSE", "CrossingBrokenError", "Sides", "advise_port", "crossing", "open_sides", "suspects_of"]

CLOSE = 10.0
"""Multiple of the envelope below which a difference may be one of precision."""

NEAR = (
    "a difference of this size may come from what one side computes in a narrower type: Optax's bias correction in "
    "float32 alone reaches 4.8 times the envelope. Compare in float64 (jax_enable_x64) to see if the meaning differs"
)

_FIRST = {
    "data.batch": "the two read other samples, or the same ones in another order: give both one data order",
    "loss": "equal parameters, another loss: compare forward pass and loss function (epsilon of norms, form of GELU, "
    "dropout, reduction, padding, smoothing)",
    "optimizer.first_moment": "the loss agrees, the first moment does not: the gradient differs after the forward "
    "pass (clipping, scaling, decay added to the gradient, accumulation), or beta1",
    "optimizer.momentum": "the loss agrees, the momentum does not: dampening, Nesterov, clipping, or decay that is "
    "added to the gradient",
    "optimizer.second_moment": "the first moment agrees, the second does not: beta2, or where its epsilon is added",
    "model.params": "the moments agree, the parameters do not: rate, decay, epsilon or bias correction of the update",
    "model.buffers": "parameters agree, running statistics do not: momentum of the norm (PyTorch's is one less "
    "Flax's), or the biased variance",
    "ema": "the averages differ: decay, or whether it is taken before or after the update",
    "schedule.lr": "the learning rates differ: horizon, warm-up, or whether the schedule steps before the update",
    "scaler.scale": "the loss scales differ: initial scale, growth interval, or which steps were skipped",
    "optimizer.hyperparameters": "set both optimizers to the same hyperparameters: the defaults of PyTorch and Optax "
    "differ",
    "optimizer.step": "the count of updates did not survive the conversion: bias correction starts anew",
    "counters.step": "both must mark every completed step, the same number of times",
    "checkpoint.restore": "what was converted is not what the other side reads: give it the files it resumes from",
}

_START = "the two do not start equal: load the same initial values on both sides"
_TAKEN = "this did not survive the conversion: carry it over, transposed where the parameter is"


@dataclass
class Sides:
    """A trainer and its port, each run once."""

    a: Trained
    b: Trained
    notes: list[str]

    @property
    def names(self) -> tuple[str, str]:
        """Return what both are called."""
        return self.a.name, self.b.name

    def conclude(self, judged: Judged, basis: Basis, noise: Noise, settings: Sequence[Setting] = ()) -> Judged:
        """Add to a verdict what it rests on, and take a pass back that rests on nothing.

        Args:
            judged: What the curves and arrays showed.
            basis: What was compared with what.
            noise: The measured noise.
            settings: Numbers that differ and may be the cause.
        """
        if judged.verdict == "broken" and judged.differences[0].component != "data.batch":
            batch = self._other_batch()
            first = judged.differences[0].step
            if batch is not None and batch.step <= first:
                judged.differences.insert(0, batch)
            judged.differences[:0] = [
                PortDifference(one.component, one.path, one.other, first, one.value, one.got, float("inf"))
                for one in settings
                if judged.differences[0].component.startswith(("optimizer", "model.params"))
            ]
        judged.notes += basis.notes
        if judged.verdict == "broken" and judged.multiple is not None and judged.multiple < CLOSE:
            judged.notes.append(NEAR)
        if noise.unmoved:
            said = f"noise was not measured on {', '.join(noise.unmoved)}: its parameters cannot be written in place"
            judged.notes += [] if said in judged.notes else [said]
        if judged.verdict == "holds" and (doubt := self._doubt(basis, noise)):
            judged.verdict = "inconclusive"
            judged.notes.append(doubt)
        return judged

    def _doubt(self, basis: Basis, noise: Noise) -> str:
        """Return why a pass would rest on nothing; empty if it rests on something."""
        if basis.precision != "float64" and not noise.sides:
            return "no noise could be measured, so nothing says what may differ: compare in float64"
        if noise.diverged(path for pair in basis.params for path in (pair.a, pair.b)):
            return DIVERGED
        alone = [p for p in basis.unpaired if self._component(p) == "model.params"]
        if alone and not any(curve.component == "loss" for curve in basis.curves):
            return f"{len(alone)} parameters have no counterpart and no loss was seen: give rules"
        if not any(pair.a in self.a.changing for pair in basis.params):
            return "no parameter changed: nothing was trained"
        return ""

    def _component(self, path: str) -> str:
        return self.a.component(path) if path in self.a.leaves else self.b.component(path)

    def _other_batch(self) -> PortDifference | None:
        """Return the first step at which a batch differs that both keep under one name, in one type and shape."""
        for one, two in zip(self.a.reference.marks, self.b.reference.marks, strict=False):
            for path, leaf in one.snapshot.leaves.items():
                other = two.snapshot.leaves.get(path)
                batch = leaf.component == "data.batch" and path in self.a.changing and path in self.b.changing
                if batch and other is not None and leaf.kind == other.kind and leaf.digest != other.digest:
                    return PortDifference("data.batch", path, path, one.step, leaf.text, other.text, float("inf"))
        return None


def open_sides(stack: ExitStack, train_a: Train, train_b: Train, steps: int, mode: RunMode,
               options: Mapping[str, Any] | None, workdir: Path | None) -> Sides:  # fmt: skip
    """Run both trainers once.

    Args:
        stack: Closes what runs them, and removes a temporary directory.
        train_a: The reference.
        train_b: Its port, another function.
        steps: Steps of both runs, at least 2; given to a function that takes `steps`.
        mode: As of `parity.resumes`.
        options: Further keyword arguments for both functions.
        workdir: Directory that keeps the folders of the runs; None for a temporary one.

    Raises:
        SpecError: An argument that cannot be used.
        TrainerError: A function that makes no marks, or fails.
        MarkError: A mark that is no whole number or goes backwards.
    """
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 2:
        raise SpecError("steps", f"must be a whole number of at least 2, got {steps!r}")
    if train_a is train_b:
        raise SpecError("train_b", "is train_a itself: a trainer that is compared with itself shows nothing")
    root = open_workdir(stack, workdir)
    notes: list[str] = []
    names = _names(train_a, train_b)
    trained = []
    for name, train in zip(names, (train_a, train_b), strict=True):
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        runner, remarks = runner_of(train, mode, folder)
        stack.enter_context(runner)  # type: ignore[arg-type]
        notes += [f"{name}: {note}" for note in remarks]
        trained.append(Trained(name, runner, folder, steps, _options(train, steps, options)))
    return Sides(trained[0], trained[1], notes)


def _options(train: Train, steps: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        takes = "steps" in inspect.signature(train).parameters
    except (TypeError, ValueError):
        takes = False
    return {**({"steps": steps} if takes else {}), **(options or {})}


def _names(train_a: Train, train_b: Train) -> tuple[str, str]:
    """Return names that differ: of the functions, or of their modules where those are the same."""
    own = [
        getattr(one, "__qualname__", type(one).__qualname__).replace("<locals>.", "") for one in (train_a, train_b)
    ]
    if own[0] == own[1]:
        own = [getattr(one, "__module__", "?").rpartition(".")[2] for one in (train_a, train_b)]
    return (own[0], own[1]) if own[0] != own[1] else (f"{own[0]}-a", f"{own[1]}-b")


class CrossingBrokenError(AssertionError):
    """A trainer and its port that do not fit, or of which that cannot be shown.

    Attributes:
        crossing: The whole verdict.
    """

    def __init__(self, crossing: Crossing) -> None:
        self.crossing = crossing
        super().__init__(crossing.text())


def advise_port(component: str, when: str) -> str:
    """Return the usual cause of a difference.

    Args:
        component: What differs first.
        when: `at the start`, `at the handover`, or later.
    """
    if when == "at the start":
        return _START
    if when == "at the handover" and component.startswith(("model", "optimizer", "ema", "schedule")):
        return _TAKEN
    return next((text for prefix, text in _FIRST.items() if component.startswith(prefix)), "")


def suspects_of(differences: Sequence[PortDifference], sides: Sides, scenario: str, when: str = "") -> list[Suspect]:
    """Return differences as suspects of a record.

    Args:
        differences: The likeliest cause first.
        sides: The trainers.
        scenario: `twins`, or how a run was handed over.
        when: When they were seen; by default `at the start` or `after n steps`.
    """
    start = sides.a.marked[0]
    found = []
    for one in differences[:200]:
        seen = when or ("at the start" if one.step <= start else f"after {one.step - start} steps")
        path = one.path if one.path == one.other else f"{one.path} ({sides.b.name}: {one.other})"
        found.append(
            Suspect(component=one.component, path=path, step=one.step, expected=one.expected, got=one.got, when=seen,
                    scenario=scenario, advice=advise_port(one.component, seen), max_rel=one.relative)
        )  # fmt: skip
    return found


def crossing(check: Literal["twins", "handover"], sides: Sides, judged: Judged, basis: Basis,
             suspects: Sequence[Suspect], *, name: str | None, began: float, handovers: tuple[int, ...] = ()
             ) -> Crossing:  # fmt: skip
    """Return the verdict of a check, after all who listen have heard of it.

    Args:
        check: Which check it is.
        sides: The trainers.
        judged: The verdict and its figures.
        basis: What was compared with what.
        suspects: The likeliest cause first.
        name: Name of the record; None for those of both trainers.
        began: What `time.perf_counter` returned at the beginning, in seconds.
        handovers: Completed steps at which a run was taken over.
    """
    seen = judged.gap.steps > 0
    found = Crossing(
        check=check,
        name=name or f"{sides.a.name} and {sides.b.name}",
        verdict=judged.verdict,
        steps=sides.a.steps,
        sides=sides.names,
        precision=basis.precision,
        suspects=tuple(suspects),
        pairs=len(basis.pairs),
        unpaired=basis.unpaired,
        compared=judged.compared,
        max_abs=judged.gap.max_abs if seen else None,
        max_rel=judged.gap.max_rel if seen else None,
        multiple=judged.multiple,
        arrays=judged.arrays,
        handovers=handovers,
        notes=(*sides.notes, *judged.notes),
        frameworks=tuple(dict.fromkeys((*sides.a.reference.frameworks, *sides.b.reference.frameworks))),
        seconds=time.perf_counter() - began,
    )
    return announce(found)
