"""The judge of the resume check: from the evidence of two runs, alone, to findings that name what was lost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parity.checks import curve_gap, losses
from parity.contract import QUANTITIES, Divergence, first_divergence, same, splice
from parity.reference.planned.evidence import LeafEvent, RunEvidence
from parity.reference.suspects import MOST_LEAVES, SUSPECTS, describe_leaf
from parity.results import LeafChange
from parity.state import Difference, compare_digests, measure_kept

__all__ = ["Findings", "judge"]


class EvidenceReason(NamedTuple):
    """One point in which the evidence differs."""

    components: tuple[str, ...]
    """The components that are suspected."""
    note: str
    """The sentence that says what differs."""
    leaves: tuple[LeafChange, ...] = ()
    """The leaves that differ, where states were compared."""


Cause = list[EvidenceReason]


@dataclass(kw_only=True)
class Findings:
    """What the judge found."""

    steps_compared: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    first: Divergence | None = None
    suspects: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    leaves: list[LeafChange] = field(default_factory=list)
    """Leaves that differ in the states that point to the suspects, the largest difference first."""

    @property
    def broken(self) -> bool:
        """Whether anything was found."""
        return bool(self.notes) or self.first is not None

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record that hold what was found."""
        return {
            "steps_compared": self.steps_compared,
            "max_abs_diff": self.max_abs,
            "max_rel_diff": self.max_rel,
            "first_divergence": self.first,
            "suspects": tuple(self.suspects),
            "notes": tuple(self.notes),
            "leaves": tuple(self.leaves[:MOST_LEAVES]),
        }


def judge(
    reference: RunEvidence,
    resumed: RunEvidence,
    expected_starts: Sequence[int | None],
    *,
    chosen: Collection[int] = (),
    other_intervals: bool = False,
) -> Findings:
    """Compare an uninterrupted run with one that was killed and resumed; no tolerance.

    Evidence is looked at in causal order, and the first kind that differs names the suspects: a state that was
    restored wrongly makes everything after it differ too.

    Args:
        reference: The uninterrupted run.
        resumed: The run that was killed.
        expected_starts: Per attempt of it, the newest whole checkpoint when it started, or the one that was asked
            for; None for step 0.
        chosen: Attempts for which a checkpoint was asked for, by its step or as the best: newer ones are given up.
        other_intervals: Whether it validated at other steps: then those of both are compared.
    """
    first = _first_difference(reference, resumed, other_intervals)
    causes = [
        _restored_against_saved(resumed),
        _starts(resumed, expected_starts, chosen),
        _saving_changes_nothing(resumed),
        *_curve_and_states(first, reference, resumed),
        _against_reference(reference, resumed, ("final",))[1],
    ]
    blamed = next((cause for cause in causes if cause), [])
    gap = curve_gap(losses(reference.curve), losses(resumed.curve))
    return Findings(
        steps_compared=gap.steps,
        max_abs=gap.max_abs,
        max_rel=gap.max_rel,
        first=first,
        suspects=list(dict.fromkeys(component for reason in blamed for component in reason.components)),
        notes=[reason.note for cause in causes for reason in cause],
        leaves=[leaf for reason in blamed for leaf in reason.leaves],
    )


def _restored_against_saved(resumed: RunEvidence) -> Cause:
    """The state restored must be the state saved, leaf by leaf."""
    out: Cause = []
    for event in resumed.events:
        if event.event != "restored":
            continue
        saved = resumed.find("saved", event.step, before=event.attempt)
        if saved is None:
            text = f"attempt {event.attempt} restored step {event.step}, which was never saved"
            out.append(EvidenceReason(("counters.step",), text))
        else:
            out += _differences(saved, event, f"restored at step {event.step} is not what was saved")
    return out[:1]


def _starts(resumed: RunEvidence, expected: Sequence[int | None], chosen: Collection[int]) -> Cause:
    """A resumed process starts after its checkpoint and repeats nothing that was saved."""
    out: Cause = []
    if len(resumed.resumed_from) != len(expected):
        text = f"{len(expected)} processes were started, {len(resumed.resumed_from)} recorded their start"
        out.append(EvidenceReason(("counters.step",), text))
    for attempt, (recorded, start) in enumerate(zip(resumed.resumed_from, expected, strict=False)):
        if recorded != start:
            text = f"attempt {attempt} resumed from {recorded}, the newest whole checkpoint was {start}"
            out.append(EvidenceReason(("counters.step",), text))
        saved = _saved_before(attempt, resumed, expected, chosen)
        if len(saved) > 1 and (start or 0) < saved[-2]:  # only the newest may be lost, to a save under way
            text = f"attempt {attempt} found no checkpoint newer than {start}, though step {saved[-2]} was saved"
            out.append(EvidenceReason(("checkpoints",), text))
        steps = [r.step for r in resumed.records if r.attempt == attempt]
        first = (start or 0) + 1
        if steps and steps[0] != first:
            out.append(
                EvidenceReason(("counters.step",), f"attempt {attempt} began with step {steps[0]}, expected {first}")
            )
        elif steps != list(range(first, first + len(steps))):
            out.append(EvidenceReason(("counters.step",), f"attempt {attempt} skipped or repeated a step"))
    return out


def _saved_before(
    attempt: int, resumed: RunEvidence, expected: Sequence[int | None], chosen: Collection[int]
) -> list[int]:
    """Return the steps saved before a process start, but for those given up when an older one was asked for."""
    ends = [(at, expected[at] or 0) for at in chosen if at <= attempt]
    saved = (e for e in resumed.events if e.event == "saved" and e.attempt < attempt)
    return sorted({e.step for e in saved if all(e.step <= start or e.attempt >= at for at, start in ends)})


def _saving_changes_nothing(resumed: RunEvidence) -> Cause:
    out: Cause = []
    for event in resumed.events:
        if event.event == "saving":
            saved = ("saved", event.attempt, event.step)
            after = next((e for e in resumed.events if (e.event, e.attempt, e.step) == saved), None)
            if after is not None:
                out += _differences(event, after, f"saving step {event.step} changed the live run")
    return out[:1]


def _against_reference(
    reference: RunEvidence, resumed: RunEvidence, kinds: tuple[str, ...]
) -> tuple[int | None, Cause]:
    """Return the first state along the resumed run that is not the uninterrupted one's, and its step."""
    last = len(resumed.resumed_from) - 1
    for event in resumed.events:
        if event.event not in kinds:
            continue
        ends = event.event == "final" and event.attempt == last
        other = reference.find("final" if ends else "saving" if event.step else "started", event.step)
        if other is None and ends:
            text = f"ended at step {event.step}, where the uninterrupted run did not"
            return event.step, [EvidenceReason(("counters.step",), text)]
        text = f"state at step {event.step} is not the uninterrupted run's"
        if other is not None and (found := _differences(other, event, text)):
            return event.step, found
    if "final" in kinds and not any(e.event == "final" and e.attempt == last for e in resumed.events):
        return None, [EvidenceReason(("counters.step",), "never finished")]
    return None, []


def _curve_and_states(first: Divergence | None, reference: RunEvidence, resumed: RunEvidence) -> list[Cause]:
    """The curve, and the states along it: what differs at the earlier step first.

    The record of step s comes before the state at step s, which that step made; a validation comes after it.
    """
    curve = _from_curve(first, reference, resumed)
    step, states = _against_reference(reference, resumed, ("restored", "saving"))
    if first is None or step is None:
        return [curve, states]
    after = first.quantity == "validation"
    return [states, curve] if step < first.step + after else [curve, states]


def _first_difference(reference: RunEvidence, resumed: RunEvidence, other_intervals: bool) -> Divergence | None:
    """Return the first difference of the records and of the validations."""
    a = reference.curve
    found = [first_divergence(a, resumed.curve)]
    for attempt in range(len(resumed.resumed_from)):  # also what a later attempt replaced in the spliced curve
        own = splice(r for r in resumed.records if r.attempt == attempt)
        found.append(first_divergence({s: r for s, r in a.items() if s in own}, own))
    first = min((d for d in found if d is not None), key=lambda d: d.step, default=None)
    left, right = splice(reference.validations), splice(resumed.validations)
    for step in sorted({*left} & {*right} if other_intervals else {*left, *right}):
        if first is not None and first.step <= step:
            return first
        x, y = left.get(step), right.get(step)
        if x is None or y is None or not (same(x.value, y.value) and same(x.loss, y.loss)):
            values = [None if v is None else v.value for v in (x, y)]
            return Divergence(step=step, quantity="validation", expected=values[0], got=values[1])
    return first


def _from_curve(first: Divergence | None, reference: RunEvidence, resumed: RunEvidence) -> Cause:
    """Blame by the first quantity that differs; called when the states that were compared do not explain it."""
    if first is None:
        return []
    text = f"{first.quantity} of step {first.step} is {first.got}, was {first.expected}"
    if first.quantity in SUSPECTS:
        return [EvidenceReason(SUSPECTS[first.quantity], text)]
    if first.quantity == "loss" and _only_logged(reference, resumed):
        return [
            EvidenceReason(("records.loss",), f"{text}, and nothing else differs: the log is wrong, not the training")
        ]
    if len(resumed.resumed_from) == 1:
        return [
            EvidenceReason(
                ("model.params", "rng"), f"{text}, and nothing was restored: a save or a validation changed it"
            )
        ]
    starts = {(step or 0) + 1 for step in resumed.resumed_from}
    if first.quantity == "loss" and first.step in starts:
        return [EvidenceReason(("rng", "model.params"), f"{text}, on the same batch from the same state")]
    if first.quantity == "grad_norm":
        return [EvidenceReason(("model.params",), f"{text}, at the same loss")]
    return [EvidenceReason(("optimizer.hyperparameters",), f"{text}, though the steps before were equal")]


def _only_logged(reference: RunEvidence, resumed: RunEvidence) -> bool:
    """Return whether the losses alone differ: every other quantity of every record, and the states, are equal."""
    others = [q for q in QUANTITIES if q != "loss"]
    a, b = reference.curve, resumed.curve
    quiet = first_divergence(a, b, others) is None
    return quiet and not _against_reference(reference, resumed, ("restored", "saving", "final"))[1]


def _differences(a: LeafEvent, b: LeafEvent, text: str) -> Cause:
    found: list[Difference] = compare_digests(a.leaves, b.leaves)
    if not found:
        return []
    worst = found[0]
    more = f" and {len(found) - 1} more leaves" if len(found) > 1 else ""
    return [
        EvidenceReason(_by_weight(found), f"{text}: {worst.leaf} ({worst.detail}){more}", _sizes(found, a, b, text))
    ]


def _sizes(found: list[Difference], a: LeafEvent, b: LeafEvent, where: str) -> tuple[LeafChange, ...]:
    """Return the leaves that differ with the size of their difference where it is known, the largest first."""
    out = []
    for one in found:
        size = None
        if one.kind == "value" and a.values is not None and b.values is not None:
            size = measure_kept((a.values, a.leaves[one.leaf]), (b.values, b.leaves[one.leaf]))
        out.append(describe_leaf(one, size, where))
    return tuple(sorted(out, key=_by_size))


def _by_size(leaf: LeafChange) -> float:
    """Return a place in the order of leaves: NaN first, then the largest difference, those of unknown size last."""
    if leaf.max_abs is None:
        return math.inf
    return -math.inf if math.isnan(leaf.max_abs) else -leaf.max_abs


def _by_weight(found: list[Difference]) -> tuple[str, ...]:
    """Return components, those with most leaves gone first, `config` last: it follows from the others."""
    count = Counter(difference.component for difference in found)
    return tuple(sorted(count, key=lambda c: (c == "config", -count[c], c)))
