"""Forms of a gradient that need the loss again: at another point, as SAM takes it, and on parts of the batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.proving.batch_parts import BatchParts, ways_of
from parity.checks.proving.effective import fitted_any
from parity.checks.proving.lockstep import MODEL, Lane
from parity.checks.proving.seen import SeenUpdate, decays_of, joined
from parity.checks.proving.slots import LeafArrays
from parity.checks.proving.unit_forms import EPSILON, GradientForm
from parity.errors import ParityError

__all__ = ["ascended_forms", "ascent_of", "parted_forms", "parted_loss"]

FIT = 1e-7
"""How far an update may be from what a form makes of it, relative to its largest element."""

SEARCH = (0.0, 0.01, 0.06, 0.3, 2.0)
"""Lengths of an ascent between which the one that is used is looked for."""

PARTS = (2, 3, 4, 8)
"""Numbers of equal parts of a batch that are tried."""

SLOWEST = 0.5
"""Seconds of an update above which no further gradients are asked for: a search takes a hundred of them."""


def ascended_forms(lane: Lane, update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the gradients at a point where the loss is higher, of which an update is made.

    Args:
        lane: The run.
        update: The first one.
        seen: The gradient that its optimizer was given, but for its scale.

    Numerics: the length is a root of one number, by bracketing and false position to the last digits.
    """
    own = lane.trainer.model.leaves
    strange = any(leaf not in own or one.shape != own[leaf].shape for leaf, one in update.gradient.items())
    if strange or lane.seconds > SLOWEST:
        return []  # leaves of the other model, or in its layout: the loss takes its own
    found = []
    for name, words, rise in RISES:

        def gradient(one: SeenUpdate, rho: float, rise: Callable = rise) -> LeafArrays:
            values = dict(lane.moments[one.at - 1].slots[MODEL])
            step = rise(one)
            values |= {leaf: values[leaf] + rho * up for leaf, up in step.items()}
            made = lane.trainer.probe.loss(values, lane.trainer.batch(one.at - 1)).gradients
            return {leaf: made[leaf] for leaf in one.gradient}

        at = lambda rho, gradient=gradient: gradient(update, rho)  # noqa: E731
        rho = _length(at, update, seen, 1.0)
        rho = _length(at, update, seen, -1.0) if rho is None and name == "norm" else rho
        if rho is not None:
            made = lambda one, rho=rho, gradient=gradient: gradient(one, rho)  # noqa: E731
            said = f"the gradient is that at a point {abs(rho):.6g} {'up' if rho > 0 else 'down'}, {words}"
            found.append(GradientForm(f"ascended {name}", "SAM", said, made, rho))
    return found


def _length(
    gradient: Callable[[float], LeafArrays], update: SeenUpdate, seen: LeafArrays, sign: float
) -> float | None:
    """Return how far up a gradient was taken, or down; None where no length gives it."""
    leaves = list(update.gradient)
    o, g = joined(seen, leaves), joined(update.gradient, leaves)
    decays = decays_of(update, leaves)
    # what of the gradient at the values themselves is neither in the one used nor in a decay that is added to it
    span = np.stack([o, *(column for further in decays for column in further)], 1)
    away = g - span @ np.linalg.lstsq(span, g, rcond=None)[0]

    def off(rho: float) -> float:
        made = joined(gradient(rho), leaves)
        return float(made @ away) / float(np.abs(made) @ np.abs(o))

    low, low_off = 0.0, off(0.0)
    for high in (sign * one for one in SEARCH[1:]):
        high_off = off(high)
        if low_off * high_off <= 0.0:
            break
        low, low_off = high, high_off
    else:
        return None
    a, b, x, y = low, high, low_off, high_off
    rho = b
    for _ in range(40):
        rho = b - y * (b - a) / (y - x) if y != x else 0.5 * (a + b)
        now = off(rho)
        if now == 0.0 or abs(b - a) <= 1e-13 * abs(b) or abs(rho - b) <= 1e-13 * abs(b):
            break
        if now * y < 0.0:
            a, x = b, y
        else:
            x *= 0.5  # false position that does not stay at one end
        b, y = rho, now
    made = joined(gradient(rho), leaves)
    return rho if fitted_any([made], decays, o, FIT) is not None else None


def _by_norm(update: SeenUpdate) -> LeafArrays:
    size = np.sqrt(sum(float((g * g).sum()) for g in update.gradient.values()))
    return {leaf: g / size for leaf, g in update.gradient.items()}


def _by_leaf(update: SeenUpdate) -> LeafArrays:
    return {leaf: g / max(float(np.linalg.norm(g)), 1e-300) for leaf, g in update.gradient.items()}


def _adaptive(update: SeenUpdate) -> LeafArrays:
    size = np.sqrt(sum(float(((g * update.before[leaf]) ** 2).sum()) for leaf, g in update.gradient.items()))
    return {leaf: g * update.before[leaf] ** 2 / max(size, 1e-300) for leaf, g in update.gradient.items()}


def _plain(update: SeenUpdate) -> LeafArrays:
    return update.gradient


RISES = (
    ("norm", "by the gradient over the norm of all", _by_norm),
    ("leaf", "by the gradient over the norm of each leaf", _by_leaf),
    ("adaptive", "by the gradient times the squared parameters (adaptive)", _adaptive),
    ("plain", "times the gradient itself", _plain),
)
"""Name, words, and the step up for a length of one."""


def ascent_of(form: GradientForm) -> Callable[[SeenUpdate], LeafArrays] | None:
    """Return the step up of a form that is at a point where the loss is higher; None where it is no such form."""
    rise = next((rise for name, _, rise in RISES if form.kind == f"ascended {name}"), None)
    return None if rise is None else lambda one: {leaf: form.size * up for leaf, up in rise(one).items()}


def parted_forms(lane: Lane, update: SeenUpdate, seen: LeafArrays) -> list[GradientForm]:
    """Return the sums of gradients of parts of the batch of which an update is made.

    Args:
        lane: The run.
        update: The first one.
        seen: The gradient that its optimizer was given, but for its scale.
    """
    if set(update.gradient) - set(lane.trainer.model.leaves) or lane.seconds > SLOWEST:
        return []
    leaves = list(update.gradient)
    o = joined(seen, leaves)
    for parts in ways_of(lane.trainer.batch(0), PARTS):
        if o.size < 4 * parts.count:
            continue
        try:
            made = _of_parts(lane, update, parts)
        except ParityError:
            return []  # the loss takes no part of a batch
        columns = [joined(one, leaves) for one in made]
        weights = fitted_any(columns, decays_of(update, leaves), o, FIT)
        if weights is None:
            continue
        w = np.array(weights)
        norms = np.array([float(np.linalg.norm(column)) for column in columns])
        limit, top = float((w * norms).max()), float(w.max())
        clipped = np.abs(w * norms - limit) <= 1e-5 * limit
        if (clipped | (np.abs(w - top) <= 1e-5 * top)).all() and (clipped & (w < top * (1 - 1e-5))).any():
            words = f"each of {parts.words} is clipped by itself, then they are added"
            kind = f"{parts.words} clipped"
            return [
                GradientForm(kind, "clipping", words, _summed(lane, parts, None, free, limit, more))
                for more in _added(w[clipped], norms[clipped], parts.count) for free in (top, np.inf)
            ]  # fmt: skip
        if (most := _running_limit(w, columns)) is not None:
            words = f"clipped again by the norm of all after each of {parts.words} is added"
            return [GradientForm(f"running {parts.words}", "clipping", words, _running(lane, parts, most))]
        w = w / w.sum() if abs(w.sum()) > 1e-9 else w
        shown = ", ".join(f"{weight:.4g}" if abs(weight) > 1e-7 else "0" for weight in w)
        words = f"the gradients of {parts.words} with the weights {shown}"
        return [
            GradientForm(f"{parts.words} {shown}", "accumulation", words,
                         _summed(lane, parts, [float(one) for one in w]),
                         weights=tuple(float(one) for one in w), strided=parts.strided)
        ]  # fmt: skip
    return []


def _added(w: NDArray[np.float64], norms: NDArray[np.float64], parts: int) -> list[float]:
    """Return what may be added to the norms of parts that are clipped: of two the weights tell it.

    A part that is divided by their number before it is clipped has as many times the epsilon beside its own norm.
    """
    one, two = int(w.argmin()), int(w.argmax())
    if w[two] - w[one] <= 1e-3 * w[two]:
        return [0.0, EPSILON, parts * EPSILON]
    more = float((w[one] * norms[one] - w[two] * norms[two]) / (w[two] - w[one]))
    return [more] if 0.1 * EPSILON <= more <= 100 * EPSILON else [0.0]


def _running_limit(w: NDArray[np.float64], columns: Sequence[NDArray[np.float64]]) -> float | None:
    """Return the norm to which a sum is clipped after each part is added, by weights of parts; None where it is not.

    What is clipped with the later parts is clipped once more each time: a part has the share of the next one that
    the sum up to it kept.
    """
    if not (w > 0.0).all():
        return None
    added = np.zeros_like(columns[0])
    for share, column in zip(w[:-1] / w[1:], columns, strict=False):
        added = added + column
        if share < 1.0 - 1e-4:
            limit = share * float(np.linalg.norm(added))
            made = np.array(_kept_shares(columns, limit))
            return limit if np.abs(made / made[-1] - w / w[-1]).max() <= 1e-4 else None
    return None


def _kept_shares(columns: Sequence[NDArray[np.float64]], limit: float) -> list[float]:
    """Return how much of each part is in a sum that is clipped to a norm after each of them is added."""
    added, shares = np.zeros_like(columns[0]), []  # type: NDArray[np.float64], list[float]
    for column in columns:
        whole = added + column
        kept = min(1.0, limit / max(float(np.linalg.norm(whole)), 1e-300))
        added, shares = kept * whole, [kept * one for one in (*shares, 1.0)]
    return shares


def _running(lane: Lane, parts: BatchParts, limit: float) -> Callable[[SeenUpdate], LeafArrays]:
    def make(update: SeenUpdate) -> LeafArrays:
        made, leaves = _of_parts(lane, update, parts), list(update.gradient)
        shares = _kept_shares([joined(one, leaves) for one in made], limit)
        return {leaf: np.sum([w * one[leaf] for w, one in zip(shares, made, strict=True)], axis=0) for leaf in leaves}

    return make


def _summed(
    lane: Lane,
    parts: BatchParts,
    weights: Sequence[float] | None,
    top: float = 1.0,
    limit: float = 1.0,
    more: float = 0.0,
) -> Callable[[SeenUpdate], LeafArrays]:
    def make(update: SeenUpdate) -> LeafArrays:
        made, leaves = _of_parts(lane, update, parts), list(update.gradient)
        norms = [float(np.linalg.norm(joined(one, leaves))) for one in made]
        shares = weights if weights is not None else [min(top, limit / (norm + more)) for norm in norms]
        return {leaf: np.sum([w * one[leaf] for w, one in zip(shares, made, strict=True)], axis=0) for leaf in leaves}

    return make


def parted_loss(lane: Lane, values: LeafArrays, step: int, loss: float) -> str:
    """Return of which parts of a batch a loss is the mean or the sum, in words; empty where it is of none.

    Each part has its own number of terms, such as tokens that count: the mean of means is not the mean.

    Args:
        lane: The run.
        values: Of its leaves before the step.
        step: Whose batch it is.
        loss: What the step returned.
    """
    batch = lane.trainer.batch(step)
    if lane.seconds > 10 * SLOWEST:  # two dozen losses are asked for
        return ""
    rows = max((len(one) for one in batch.values() if isinstance(one, np.ndarray) and one.ndim), default=0)
    for parts in ways_of(batch, (*PARTS, rows)):
        try:
            made = [lane.trainer.probe.loss(values, part).loss for part in parts.of(batch)]
        except ParityError:
            return ""
        for words, total in (("mean", float(np.mean(made))), ("sum", float(np.sum(made)))):
            if abs(total - loss) <= 1e-11 * abs(loss):
                return f"the {words} of the losses of {parts.words}, each over its own terms"
    return ""


def _of_parts(lane: Lane, update: SeenUpdate, parts: BatchParts) -> list[LeafArrays]:
    values, batch = lane.moments[update.at - 1].slots[MODEL], lane.trainer.batch(update.at - 1)
    return [lane.trainer.probe.loss(values, part).gradients for part in parts.of(batch)]
