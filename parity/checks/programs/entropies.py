"""What a cross entropy of a framework may do otherwise with smoothing, weights of classes, and rows left out.

What the call does is told by its values: the way that makes its output of what it is given is looked for first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from parity.checks.programs.edits import FloatNumbers, OperationChange, computed, equal
from parity.contract import OperationArrays, OperationEdit, ProgramOperation

__all__ = ["entropies_of"]

LARGEST = 2**20
"""Elements of logits above which no other way is tried."""


@dataclass(frozen=True)
class _EntropyWay:
    """A way to take the cross entropy of logits and labels."""

    smoothing: str = "over all classes"
    """Over which classes the share of smoothing goes: all, or all but the label's."""
    weights: str = "of each class"
    """By what the share of smoothing is weighed: each term by its class, all of a row by its label, or none."""
    divisor: str = "the sum of the weights"
    """By what the sum of the rows is divided: nothing for a sum, `""` for rows by themselves."""

    def of(self, inputs: OperationArrays, share: float, ignored: float) -> FloatNumbers:
        """Return the cross entropy.

        Args:
            inputs: Logits, float64[rows, classes, ...], labels, int64[rows, ...], and weights of classes, if any.
            share: Of smoothing.
            ignored: Label of rows that are left out.
        """
        logits, labels = np.moveaxis(np.asarray(inputs[0], np.float64), 1, -1), np.asarray(inputs[1], np.int64)
        count = logits.shape[-1]
        weights = np.asarray(inputs[2], np.float64) if len(inputs) > 2 else np.ones(count)
        kept = labels != ignored
        at = np.where(kept, labels, 0)[..., None]
        shifted = logits - logits.max(-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        own = np.take_along_axis(-logs, at, -1)[..., 0]
        mine = weights[at[..., 0]]
        terms = -logs * (weights if self.weights == "of each class" else 1.0)
        spread = terms.sum(-1)
        if self.smoothing != "over all classes":
            spread = spread - np.take_along_axis(terms, at, -1)[..., 0]
        spread = spread * (mine if self.weights == "of the label" else 1.0)
        classes = count if self.smoothing == "over all classes" else count - 1
        rows = np.where(kept, (1.0 - share) * mine * own + share / classes * spread, 0.0)
        divisors = {
            "the sum of the weights": (mine * kept).sum(), "the rows that count": kept.sum(), "all rows": kept.size,
        }  # fmt: skip
        return np.asarray(rows if not self.divisor else rows.sum() / divisors.get(self.divisor, 1.0))


_SMOOTHINGS = ("over all classes", "over the other classes")
_WEIGHTS = ("of each class", "of the label", "none")
_DIVISORS = ("the sum of the weights", "the rows that count", "all rows", "nothing", "")


def entropies_of(one: ProgramOperation) -> Iterator[OperationChange]:
    """Yield other ways to take the cross entropy that a call takes; of all that differ in one thing, then in two.

    Args:
        one: The call.
    """
    if one.kind != "cross_entropy" or len(one.outputs) != 1 or not 2 <= len(one.inputs) <= 3:
        return
    logits, labels = one.inputs[:2]
    fits = logits.ndim >= 2 and labels.dtype.kind in "iu" and logits.size <= LARGEST
    if not fits or labels.shape != (*logits.shape[:1], *logits.shape[2:]):
        return
    y = one.outputs[0]
    share, ignored = one.numbers.get("label_smoothing", 0.0), one.numbers.get("ignore_index", -100.0)
    ways = [_EntropyWay(*each) for each in itertools.product(_SMOOTHINGS, _WEIGHTS, _DIVISORS)]
    made = {way: computed(lambda *x, way=way: way.of(x, share, ignored), *one.inputs) for way in ways}
    own = next((way for way, value in made.items() if equal(value, y)), None)
    if own is None:
        return
    others = [(len(_apart(own, way)), way) for way, value in made.items() if value.shape == y.shape]
    for count, way in sorted(others, key=lambda each: each[0]):
        if not 1 <= count <= 2 or equal(made[way], y):
            continue
        names = _apart(own, way)
        if any(equal(made[replace(own, **{name: getattr(way, name)})], y) for name in names):
            continue  # one of the two changes nothing here
        first, second = (", ".join(f"{_WORDS[name]} {getattr(each, name)}" for name in names) for each in (own, way))
        edit = OperationEdit(after=lambda o, i, s, w=way: (w.of(i, share, ignored),))  # type: ignore[misc]
        yield OperationChange("loss", f"cross_entropy with {first}", second, count - 1, edit)


_WORDS = {
    "smoothing": "the share of smoothing", "weights": "the share of smoothing by the weight",
    "divisor": "the sum of rows divided by",
}  # fmt: skip


def _apart(one: _EntropyWay, other: _EntropyWay) -> Sequence[str]:
    return [name for name in _WORDS if getattr(one, name) != getattr(other, name)]
