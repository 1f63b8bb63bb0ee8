"""The stages of a proof: each looks at one thing, and leaves what the next ones need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from parity.checks.models import MappedModels, Subjects, crossed_joins, map_opened, nearer_rules, parting_of, placed
from parity.checks.ports import Convert
from parity.checks.progress import tell
from parity.checks.proving.batches import compare_batches
from parity.checks.proving.dropouts import compare_dropouts
from parity.checks.proving.gradient_causes import gradient_cause, mode_cause
from parity.checks.proving.initial import compare_starts
from parity.checks.proving.initial_singles import StartDraws
from parity.checks.proving.later_losses import later_loss_cause
from parity.checks.proving.lockstep import AHEAD
from parity.checks.proving.loss_causes import loss_cause, says_little
from parity.checks.proving.losses import (
    LossPair,
    Pairing,
    evaluate_losses,
    gradient_gaps,
    loss_gap,
    other_values,
    smaller_values,
)
from parity.checks.proving.masked import compare_masked
from parity.checks.proving.narrow import hidden, judge_narrow, of_rounding
from parity.checks.proving.nearest_maps import lines_beside, parted_but_for_a_change
from parity.checks.proving.program_causes import loss_program_cause, model_program_cause
from parity.checks.proving.sources import NAMES, PortSource, PortTrainer, open_port
from parity.checks.proving.stops import loss_stop_cause, model_stop_cause
from parity.checks.proving.trained import handover_stage, resume_stage
from parity.checks.proving.update_causes import update_cause
from parity.checks.proving.updates import judge_updates
from parity.checks.proving.verdict import STAGES, PortStage
from parity.checks.proving.walk import TwoWalks, scaled, still
from parity.contract import Precision
from parity.mapping import LeafRule

__all__ = ["Proving"]

NEEDS = {
    "batches": ("batch",),
    "forward": ("Model",),
    "loss": ("Model", "batch", "loss"),
    "gradients": ("Model", "batch", "loss"),
    "update": ("Model", "batch", "start", "step"),
    "steps": ("Model", "batch", "start", "step"),
    "initial values": ("Model",),
    "resume": ("train",),
    "handover": ("train",),
}
"""Stage to what both modules must expose for it."""

WIDE = ("angles: ", "activation: nothing here, ")
"""Beginnings of causes that are true of several mistakes, which what the programs compute may tell apart."""

STOPPED = "the outputs agree and gradients do not"
"""Beginning of the cause that says no more than where modules see it; values of the way back may tell it."""

UNMAPPED = "the models have no proven map"


class Proving:
    """The stages of one proof.

    Args:
        first: The trainer.
        second: Its port.
        inputs: What the models are called with; None for what the modules say.
        rules: Which leaf is which; None for what is proposed.
        steps: Updates that are compared.
        convert: Takes what the trainer saved to what the port resumes from; None where there is none.
        back: The same from the port to the trainer.
        until: The last stage that will be looked at: what only later ones need is not asked for.
    """

    def __init__(
        self, first: PortSource, second: PortSource, inputs: object, rules: Path | Sequence[LeafRule] | None,
        steps: int, convert: Convert | None = None, back: Convert | None = None, until: str = STAGES[-1],
    ) -> None:  # fmt: skip
        self.first, self.second, self.inputs, self.rules, self.steps = first, second, inputs, rules, steps
        self.convert, self.back, self.until = convert, back, until
        self.stages: list[PortStage] = []
        self.notes: list[str] = []
        self.figures: dict[str, float] = {}
        self.rules_text = ""
        self.trainers: tuple[PortTrainer, PortTrainer] | None = None
        self.pairing: Pairing | None = None
        self.unproven: Pairing | None = None
        """The map under which the models part, if it is one: what a narrower type is looked at with."""
        self.walked: TwoWalks | None = None
        self.losses: list[LossPair] = []
        self.drops = False
        """Whether modules that drop something were seen at equal places and rates."""
        self.told = ""

    def look_at(self, name: str) -> None:
        """Look at a stage, and keep what was found."""
        tell(f"port: {name}")
        looks: dict[str, Callable[[], PortStage]] = {
            "interface": self._interface, "batches": self._batches, "forward": self._forward, "loss": self._loss,
            "gradients": self._gradients, "update": self._update, "steps": self._steps,
            "initial values": self._initial, "resume": self._resume, "handover": self._handover,
        }  # fmt: skip
        both = (self.first, self.second)
        needed = NEEDS.get(name, ())
        lacking = [f"{one.name} has no {word}" for word in needed for one in both if one.get(word) is None]
        if lacking:
            self.stages.append(PortStage(name, "inconclusive", ", ".join(lacking)))
        elif name in looks:
            self.stages.append(looks[name]())
        tell()

    def _interface(self) -> PortStage:
        asked = STAGES[: STAGES.index(self.until) + 1]
        needed = {word for stage in asked for word in NEEDS.get(stage, ())}
        both = (self.first, self.second)
        lacking = [f"{one.name} has no {word}" for one in both for word in one.lacking if word in needed]
        if lacking:
            return PortStage("interface", "inconclusive", ", ".join(lacking))
        words = [word for word in NAMES if word in needed]
        return PortStage("interface", "holds", f"both have {', '.join(words)}")

    def _batches(self) -> PortStage:
        return compare_batches(self.first, self.second, self.steps)

    def _opened(self) -> Subjects:
        subjects, one, two = open_port(self.first, self.second, self.inputs)
        self.trainers = one, two
        return subjects

    def _forward(self) -> PortStage:
        subjects = self._opened()
        mapped = map_opened(subjects, self.rules, None)
        proof = mapped.proof
        if proof is None or (proof.verdict != "holds" and not proof.dead):
            return self._forward_parted(subjects, mapped)
        if proof.dead:
            gone = ", ".join(proof.dead[:4])
            self.notes.append(f"no output can follow {gone}, whatever the values: how they lie was not compared")
        rules = list(mapped.rules)
        if mapped.found is not None:
            rules = [row.rule for row in mapped.found.rows if row.rule is not None]
            self.rules_text = mapped.rules_text if mapped.found.rules else ""
            self.notes += crossed_joins(subjects, mapped.found.rules)
            if mapped.found.unsure:
                self.notes.append(
                    f"{len(mapped.found.unsure)} of {len(mapped.found.rows)} rows of the map are not told by "
                    "behaviour; the proof is under the likely ones"
                )
        self.pairing = Pairing(subjects, placed(subjects, rules)[0])
        self.figures |= {"outputs": proof.outputs or 0.0, "gradients of outputs": proof.gradients or 0.0}
        said = (f"{len(subjects.first.leaves)} leaves, outputs differ by {proof.outputs:.1e} and gradients by "
                f"{proof.gradients:.1e} at most")  # fmt: skip
        dropped = compare_dropouts(self.pairing)
        if dropped.verdict == "broken":
            return PortStage("forward", "broken", dropped.said, dropped.said.partition(",")[0], (said,))
        if dropped.verdict == "inconclusive":
            return PortStage("forward", "inconclusive", dropped.said, lines=(said,))
        self.notes += [dropped.said] if dropped.said else []
        self.drops = bool(dropped.said)
        return PortStage("forward", "holds", said)

    def _forward_parted(self, subjects: Subjects, mapped: MappedModels) -> PortStage:
        lines = mapped.text().splitlines()
        if mapped.verdict != "broken":
            if (parted := parted_but_for_a_change(subjects, mapped)) is not None:
                self.unproven, stage = parted
                return stage
            return PortStage("forward", "inconclusive", lines[0], lines=tuple(lines[1:6]))
        rows = mapped.found.rows if mapped.found is not None else ()
        nearer = nearer_rules(subjects, mapped.found) if mapped.found is not None else None
        likely = nearer or [row.rule for row in rows if row.rule] or list(mapped.rules)
        placements, missing = placed(subjects, likely)
        if not missing:
            self.unproven = Pairing(subjects, placements)
        parting = parting_of(subjects, self.rules, mapped.found, nearer)
        said = next((line for line in lines[1:] if not line.startswith("unsure")), lines[0])
        more = [line.strip() for line in parting.text().splitlines()[:6]] if parting.what else []
        sizes = [sum(value.size for value in model.leaves.values()) for model in (subjects.first, subjects.second)]
        # of models of one size a leaf is left over by the way in which they were cut: that is no cause
        alone = mapped.found.alone if mapped.found is not None and sizes[0] != sizes[1] else ()
        cause = parting.cause or ("; ".join(f"a leaf of {what}: {why}" for what, why in alone[:2]))
        stopped = ""
        if self.unproven is not None and said.startswith("parts: gradient of "):  # no operation differs
            told_before = bool(cause) and not cause.startswith(STOPPED) and not _is_wide(cause)
            stopped = "" if told_before else model_stop_cause(self.unproven)
            cause = stopped or cause
        if self.unproven is not None and not stopped and (not cause or _is_wide(cause)):
            told = model_program_cause(self.unproven)
            # an activation that one alone has there may stand elsewhere in the other, and be no other one
            cause = told if told and (not cause.startswith("activation: ") or told.startswith("order: ")) else cause
        return PortStage("forward", "broken", said, cause, lines_beside(more, cause))

    def _loss(self) -> PortStage:
        if self.pairing is None or self.trainers is None:
            return PortStage("loss", "inconclusive", UNMAPPED)
        worst = 0.0
        self.losses.clear()
        points = (
            (0, dict(self.pairing.subjects.first.leaves), "at the trainer's initial values"),
            (1, other_values(self.pairing, 41), "at drawn values"),
            (0, smaller_values(self.pairing, 43), "at small drawn values"),
        )
        for step, values, where in points:
            pair = evaluate_losses(self.pairing, *self.trainers, values, step)
            if len(self.losses) == 2:  # the gradients are compared at the first two
                if not np.isfinite([pair.first.loss, pair.second.loss, pair.noise]).all():
                    break
            else:
                self.losses.append(pair)
            for repeats, trainer in zip(pair.repeats, self.trainers, strict=True):
                if not repeats:
                    said = f"the loss of {trainer.name} is another one when it is asked again"
                    masked = compare_masked(self.pairing, *self.trainers, values, step)
                    self.losses.clear()  # gradients of other draws part, whatever the two are
                    return PortStage("loss", "inconclusive", f"{said}: give what it draws in the batch",
                                     lines=(masked.said,) if masked.said else ())  # fmt: skip
            gap, limit = loss_gap(pair)
            if not gap <= limit:
                said = (
                    f"{pair.first.loss!r} and {pair.second.loss!r} on batch {step}, {where}: {gap:.1e} apart "
                    f"where {limit:.1e} passes"
                )
                cause = mode_cause(self.pairing, *self.trainers, values, step) or loss_cause(pair)
                if says_little(cause):
                    cause = loss_program_cause(self.pairing, *self.trainers) or cause
                return PortStage("loss", "broken", said, cause)
            worst = max(worst, gap)
        self.figures["loss"] = worst
        return PortStage("loss", "holds", f"2 batches, at initial and at drawn values: {worst:.1e} apart at most")

    def _gradients(self) -> PortStage:
        if self.pairing is None:
            return PortStage("gradients", "inconclusive", UNMAPPED)
        if not self.losses:
            return PortStage("gradients", "inconclusive", "the losses were not compared")
        names, worst = self.pairing.names(), 0.0
        for pair in self.losses:
            parted, largest = gradient_gaps(pair)
            worst = max(worst, largest)
            if parted:
                path = max(parted, key=lambda one: parted[one])
                said = (
                    f"the loss agrees, and gradients of {len(parted)} of {len(pair.expected)} leaves do not: "
                    f"{names[path]} -> {path}, {parted[path]:.1e} of the largest element"
                )
                cause = gradient_cause(pair, parted, names)
                if cause and self.trainers is not None:
                    cause = loss_stop_cause(self.pairing, *self.trainers) or cause
                return PortStage("gradients", "broken", said, cause)
        self.figures["gradients"] = worst
        if self.drops and self.trainers is not None:
            masked = compare_masked(self.pairing, *self.trainers, other_values(self.pairing, 41), 1)
            if masked.verdict == "broken":
                return PortStage("gradients", "broken", masked.said, "dropout: what stays is not scaled alike, or is "
                                 "dropped elsewhere while training")  # fmt: skip
            self.notes += [masked.said] if masked.said else []
        leaves = len(self.losses[0].expected)
        return PortStage("gradients", "holds", f"of every one of {leaves} leaves: {worst:.1e} apart at most")

    def _update(self) -> PortStage:
        if self.pairing is None or self.trainers is None:
            return PortStage("update", "inconclusive", UNMAPPED)
        values = dict(self.pairing.subjects.first.leaves)
        self.walked, self.told, notes = judge_updates(self.pairing, *self.trainers, values, self.steps)
        self.notes += notes
        walk = self.walked
        if walk.what and not self.told and not walk.clouded:
            self.told = later_loss_cause(walk) or update_cause(walk)
        if walk.what and (walk.done == 1 or any(since == 1 for since, _ in walk.suspects.values())):
            return self._parted(walk, "update")
        if walk.lost:
            said = f"values are not finite after update {walk.done}, on both sides: nothing can be judged"
            return PortStage("update", "inconclusive", said)
        equal = walk.equal_at_first if walk.what else sorted(walk.matched)
        slots = f" and {len(equal)} slots ({', '.join(equal)})" if equal else ""
        return PortStage("update", "holds", f"every leaf of the model{slots}")

    def _steps(self) -> PortStage:
        walk = self.walked
        if walk is None:
            return PortStage("steps", "inconclusive", UNMAPPED)
        if walk.what:
            return self._parted(walk, "steps")
        moved = f"one unit in the last place of the start moves the loss by {walk.noise:.1e}"
        if walk.chaotic:
            said = f"{moved} at update {walk.done}: too chaotic to judge; fewer steps help"
            return PortStage("steps", "inconclusive", said)
        if walk.lost:
            return PortStage("steps", "inconclusive", f"values are not finite after update {walk.done}")
        if still(walk):
            return PortStage("steps", "inconclusive", "no parameter moved: nothing was trained")
        if walk.silent:
            self.notes.append("a step returns no loss: states alone were compared")
        for slot, (since, gap) in walk.suspects.items():
            factor = scaled(walk, slot)
            if factor is None:
                said = f"the models train alike, and nothing in the state of the port is {slot} after update {since}"
                return PortStage("steps", "inconclusive", f"{said}: what it is for cannot be told")
            self.notes.append(f"{gap.other} of the port is {factor:.6g} times {slot}; both train alike all the same")
        self.figures |= {"steps": walk.worst, "noise": walk.noise}
        said = f"{walk.done} updates: losses {walk.worst:.1e} apart at most, where {moved}"
        return PortStage("steps", "holds", said)

    def _initial(self) -> PortStage:
        if self.pairing is None:
            return PortStage("initial values", "inconclusive", UNMAPPED)
        unlike, count = compare_starts(self.pairing, self._built_again)
        if not unlike:
            said = f"{count} leaves: constants, means and spreads as far as draws tell"
            return PortStage("initial values", "holds", said)
        names = self.pairing.names()
        shown = [f"{names[one.leaf]} -> {one.leaf}: {one.said}" for one in unlike]
        cause = f"initial values of another distribution: {unlike[0].leaf} is {unlike[0].said}"
        return PortStage("initial values", "broken", f"{len(unlike)} of {count} leaves begin otherwise", cause,
                         tuple(shown[:5]))  # fmt: skip

    def _built_again(self) -> StartDraws | None:
        """Return the initial values of both models built once more; None where their leaves are others then."""
        assert self.pairing is not None
        for source in (self.first, self.second):  # a generator that is no argument has moved on after that
            source.get("Model")(*source.args, **source.kwargs)
        subjects, *_ = open_port(self.first, self.second, self.inputs)
        old = self.pairing.subjects
        if subjects.first.leaves.keys() != old.first.leaves.keys() or subjects.second.leaves.keys() != (
            old.second.leaves.keys()
        ):
            return None
        return self.pairing.over(subjects.first.leaves), subjects.second.leaves

    def in_precision(self, precision: Precision) -> PortStage:
        """Return what is found in a narrower type: equal within its envelope, parted, or hidden by it."""
        name = f"in {precision}"
        pairing = self.pairing or self.unproven
        if pairing is None or self.trainers is None:
            return PortStage(name, "inconclusive", UNMAPPED)
        both = (self.first, self.second)
        if any(one.get(word) is None for one in both for word in ("batch", "loss", "start", "step")):
            return PortStage(name, "inconclusive", "batch, loss, start and step of both are needed")
        values = dict(pairing.subjects.first.leaves)
        found = judge_narrow(pairing, *self.trainers, values, max(self.steps, AHEAD), precision)
        parted = next((one for one in self.stages if one.verdict == "broken"), None)
        if parted is not None:
            if parted.name == "forward" and found.verdict == "holds" and not self._is_seen_by_loss(pairing):
                said = f"neither loss nor updates show what parts at forward: nothing is said of {precision}"
                return PortStage(name, "broken", said)
            return hidden(parted, found, precision) if found.verdict == "holds" else found
        return of_rounding(found, precision) if found.verdict == "broken" else found

    def _is_seen_by_loss(self, pairing: Pairing) -> bool:
        """Return whether what parts of the models reaches the loss: a type that hides it was looked at then."""
        assert self.trainers is not None
        if any(one.get("loss") is None for one in (self.first, self.second)):
            return False
        pair = evaluate_losses(pairing, *self.trainers, other_values(pairing, 41), 1)
        gap, limit = loss_gap(pair)
        return gap > limit or bool(gradient_gaps(pair)[0])

    def _resume(self) -> PortStage:
        return resume_stage(self.first, self.second)

    def _handover(self) -> PortStage:
        return handover_stage(self.first, self.second, self.convert, self.back)

    def _parted(self, walk: TwoWalks, name: str) -> PortStage:
        if walk.what == "loss":
            said = f"the losses of update {walk.done}: {walk.losses[0]!r} and {walk.losses[1]!r}"
            return _judged(walk, name, said, self.told)
        assert walk.gap is not None
        said = (
            f"{walk.what} after update {walk.done}: {len(walk.gap.leaves)} leaves part, {walk.gap.gap:.1e} of the "
            f"largest element: {', '.join(walk.gap.leaves[:3])}"
        )
        return _judged(walk, name, said, self.told)


def _judged(walk: TwoWalks, name: str, said: str, cause: str) -> PortStage:
    """Return a stage at which a walk parts: broken, unless a cast may be all of it."""
    if walk.clouded:
        return PortStage(name, "inconclusive", f"{said}: {walk.clouded}")
    return PortStage(name, "broken", said, cause)


def _is_wide(cause: str) -> bool:
    """Return whether a cause is true of several mistakes: of a factor it is one without a meaning or a place."""
    if cause.startswith("factor: ") and cause.endswith(" times what is here"):
        return True
    return cause.startswith(WIDE) or (cause.startswith("activation: ") and cause.endswith(" here, nothing there"))
