"""Why two losses part: ways to make one from outputs and batch are tried, until one makes each of the two values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from parity.checks.noise import spread_of
from parity.checks.proving.losses import LossPair
from parity.checks.proving.smoothings import smoothed_ways
from parity.contract import LossEvaluation, StepBatch
from parity.mapping import permutation_of

__all__ = ["loss_cause", "says_little", "ways_of_loss"]

CLOSE = 1e-9
"""Relative distance within which a way makes a loss."""

UNKNOWN = "equal outputs, another loss: its formula differs (target, reduction, weights, smoothing)"
"""What is said where no way makes either loss."""

UNSEEN = (
    "another loss, or other outputs inside it, which were not seen: its formula, or what it gives the model, differs"
)
"""What is said where outputs were not seen and no way makes both losses of the other model's."""

OTHER_OUTPUTS = (
    "the models give other outputs inside the loss, though they agree in evaluation: mode, or what they are given"
)
"""What is said where the loss gives the model something else, or in another mode."""

ONE_ALONE = ", the other does not"
"""End of what is said where a way makes one of two losses: of the other nothing is known but that."""

LossWay = tuple[str, float]


def loss_cause(pair: LossPair) -> str:
    """Return what two losses differ in; empty where no known ways make both.

    Args:
        pair: Both losses at one place, with the outputs of the models inside them.
    """
    if cause := _inputs_cause(pair):
        return cause
    if not _same_outputs(pair):
        return OTHER_OUTPUTS
    # of a model that the loss calls by another name nothing was seen, and the other's outputs are as good
    seen = pair.first.outputs or pair.second.outputs
    complete = bool(pair.first.outputs and pair.second.outputs)
    here, there = (
        _fitting(one, one.outputs or seen, batch)
        for one, batch in zip((pair.first, pair.second), pair.batch, strict=True)
    )
    if not here or not there:
        known = here or there
        if not known:
            if cause := _part_cause(pair):
                return cause
            return UNKNOWN if complete else UNSEEN
        if not complete:
            return UNSEEN  # it may be other outputs, as of masks that only the loss gives the model
        return f"equal outputs, another loss: {'the trainer' if here else 'the port'} takes {known[0]}{ONE_ALONE}"
    both = [way for way in here if way in there]
    if both:
        return ""
    ratio = pair.second.loss / pair.first.loss
    whole = next((r for r in (ratio, 1 / ratio) if round(r) >= 2 and abs(r - round(r)) <= CLOSE * r), None)
    times = f" ({ratio:.6g} times the trainer's)" if whole else ""
    return f"loss: {here[0]} here, {there[0]} there{times}"


def says_little(cause: str) -> bool:
    """Return whether a cause says no more than where two losses part: what their programs do may tell why.

    Args:
        cause: As `loss_cause` returned it; empty for none.
    """
    return cause in ("", UNKNOWN, UNSEEN, OTHER_OUTPUTS) or cause.endswith(ONE_ALONE)


def ways_of_loss(loss: float, outputs: Sequence[NDArray[np.float64]], batch: StepBatch) -> list[str]:
    """Return the known ways in which a loss is made of what a model gives, in words, the plainest first.

    Args:
        loss: Its value.
        outputs: Of the model, on the batch.
        batch: That it is of.
    """
    return _fitting(LossEvaluation(loss, {}), outputs, batch)


def _part_cause(pair: LossPair) -> str:
    """Return the part of a sum that differs: what the losses differ by is the difference of two ways of one output.

    Terms that both have, as of words beside actions, fall out. Of two pairs that differ by as much none counts.
    """
    apart = pair.first.loss - pair.second.loss
    limit = CLOSE * abs(apart)
    found: dict[str, None] = {}
    for outputs in pair.first.outputs:
        ways = [way for way in (*_of_classes(outputs, pair.batch[0], 0.0), *_of_numbers(outputs, pair.batch[0]))
                if np.isfinite(way[1])]  # fmt: skip
        values = np.array([value for _, value in ways])
        for i, j in np.argwhere(np.abs(values[:, None] - values[None, :] - apart) <= limit):
            found[f"loss: a part of it is the {ways[i][0]} here, the {ways[j][0]} there"] = None
    return next(iter(found)) if len(found) == 1 else ""


def _inputs_cause(pair: LossPair) -> str:
    """Return which input of the model differs inside the loss."""
    first, second = pair.first.inputs, pair.second.inputs
    if not first or len(first) != len(second):
        return ""
    for at, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.size != b.size:
            return f"the loss gives the model another input {at}: {list(a.shape)} here, {list(b.shape)} there"
        if a.shape == b.shape and spread_of(a, b) > CLOSE * float(np.abs(a).max(initial=0.0)):
            made = [_mixed(x, batch) for x, batch in ((a, pair.batch[0]), (b, pair.batch[1]))]
            if all(made) and made[0] != made[1]:
                return f"the loss gives the model another input {at}: {made[0]} here, {made[1]} there"
            return f"the loss gives the model another input {at}, though the batch is the same"
    return ""


def _mixed(value: NDArray[np.float64], batch: StepBatch) -> str:
    """Return of which two arrays of the batch, and in which proportion, an input is mixed."""
    arrays = {k: v for k, v in batch.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f"}
    full = {k: v for k, v in arrays.items() if v.shape == value.shape}
    for name, t in arrays.items():
        if t.ndim > value.ndim or t.shape != value.shape[: t.ndim]:
            continue
        t = t.reshape(*t.shape, *(1,) * (value.ndim - t.ndim))
        for x, one in full.items():
            for y, two in full.items():
                if x != y and spread_of(t * one + (1 - t) * two, value) <= CLOSE * float(np.abs(value).max()):
                    return f"{name} * {x} + (1 - {name}) * {y}"
    return ""


def _same_outputs(pair: LossPair) -> bool:
    """Return whether both models gave the same inside the loss; also where that was not seen."""
    if len(pair.first.outputs) != len(pair.second.outputs):
        return True  # calls inside the derivatives of a loss are not seen in JAX
    for a, b in zip(pair.first.outputs, pair.second.outputs, strict=False):
        limit = CLOSE * float(np.abs(a).max(initial=0.0))
        if a.size != b.size:
            return False
        if a.shape == b.shape and spread_of(a, b) > limit:
            return permutation_of(a, b) is not None
    return True


def _fitting(made: LossEvaluation, seen: Sequence[NDArray[np.float64]], batch: StepBatch) -> list[str]:
    """Return the ways that make a loss of outputs, the plainest first."""
    found = []
    for outputs in seen[-1:]:
        for words, value in (*_of_classes(outputs, batch, made.loss), *_of_numbers(outputs, batch)):
            if np.isfinite(value) and abs(value - made.loss) <= CLOSE * abs(made.loss):
                found.append(words)
    return found


def _of_classes(outputs: NDArray[np.float64], batch: StepBatch, loss: float) -> Iterator[LossWay]:
    """Yield cross entropies: with each weighting, in each reduction, without and with smoothing of labels."""
    if outputs.ndim < 2:
        return
    for name, labels, kept in _labels(batch, outputs.shape):
        yield from _of_labels(outputs if kept is None else outputs[:, :kept], name, labels, batch, loss)


def _of_labels(
    outputs: NDArray[np.float64], name: str, labels: NDArray[np.int64], batch: StepBatch, loss: float
) -> Iterator[LossWay]:  # fmt: skip
    """Yield the cross entropies of outputs to labels; of whole numbers that are none of as many classes, none."""
    logits = outputs.reshape(-1, outputs.shape[-1])
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    rows = outputs.shape[-2] if outputs.ndim > 2 else 1
    if labels.size == len(logs):
        y = labels.reshape(-1)
        safe = np.clip(y, 0, logits.shape[-1] - 1)
        each, even = -logs[np.arange(len(y)), safe], -logs.mean(-1)
        square = np.log(np.exp(shifted).sum(-1)) + logits.max(-1)
        shown = "" if name in batch else f" to {name}"
        for words, weight in _weights(y, name, batch):
            weighted = shown + words
            for reduced, reduce in _reductions(weight, rows):
                plain, flat = reduce(each), reduce(even)
                yield f"{reduced} of the cross entropy{weighted}", plain
                if flat != plain:
                    share = (loss - plain) / (flat - plain)
                    if 0.0 < share < 1.0 and abs(share * 1000 - round(share * 1000)) < 1e-6:
                        smoothing = f"{reduced} of the cross entropy{weighted} with label smoothing {share:.3g}"
                        yield smoothing, (1 - share) * plain + share * flat
                    classes = logits.shape[-1]
                    others = share * (classes - 1) / classes
                    if 0.0 < others < 1.0 and abs(others * 1000 - round(others * 1000)) < 1e-6:
                        smoothed = f"with label smoothing {others:.3g} over the other classes"
                        yield f"{reduced} of the cross entropy{weighted} {smoothed}", loss
                for smoothing, value in smoothed_ways(logs, each, reduce, y, weight, loss):
                    yield f"{reduced} of the cross entropy{weighted} {smoothing}", value
                penalty = reduce(square**2)
                if penalty:
                    share = (loss - plain) / penalty
                    if 0.0 < share < 0.1 and abs(share * 1e6 - round(share * 1e6)) < 1e-5:
                        yield (
                            f"{reduced} of the cross entropy{weighted} and {share:.3g} of the squared log of the sum",
                            loss,
                        )


def _labels(
    batch: StepBatch, shape: tuple[int, ...]
) -> Iterator[tuple[str, NDArray[np.int64], int | None]]:  # fmt: skip
    """Yield arrays of whole numbers, and what is left of rows without their first or last places.

    Beside each stands how many places of the outputs are taken with it; None for all of them. Labels that are moved
    once more than they should be leave an output without one.
    """
    rows = shape[1] if len(shape) == 3 else 0
    later = []
    for name, array in batch.items():
        if isinstance(array, np.ndarray) and array.dtype.kind in "iu":
            yield name, array, None
            if array.ndim == 2 and array.shape[1] > 1:
                yield f"{name} from the second place on", array[:, 1:], None
                yield f"{name} up to the last place but one", array[:, :-1], None
                for start, word in ((1, "second"), (2, "third")):
                    if 1 < array.shape[1] - start == rows - 1:
                        later.append((f"{name} from the {word} place on (the last output left out)", array[:, start:],
                                      rows - 1))  # fmt: skip
    yield from later


def _weights(y: NDArray[np.int64], name: str, batch: StepBatch) -> Iterator[tuple[str, NDArray[np.float64]]]:
    yield "", np.ones(len(y))
    for value in (-100, -1, 0):
        if (y == value).any():
            yield f" where {name} is not {value}", (y != value).astype(np.float64)
    for other, array in batch.items():
        if other != name and isinstance(array, np.ndarray) and array.size == len(y) and array.dtype.kind in "bif":
            if not np.isin(array, (0, 1)).all():
                continue
            yield f" where {other} is set", array.reshape(-1).astype(np.float64)
    lengths = [(k, v) for k, v in batch.items() if isinstance(v, np.ndarray) and v.ndim == 1 and v.dtype.kind in "iu"]
    for other, array in lengths:
        if len(y) % max(len(array), 1) == 0 and len(array) and len(array) != len(y):
            width = len(y) // len(array)
            for off in (0, 1):
                inside = np.arange(width)[None, :] < array[:, None] - off
                yield f" up to {other}" + (" less one" if off else ""), inside.reshape(-1).astype(np.float64)


def _reductions(
    weight: NDArray[np.float64], rows: int
) -> Iterator[tuple[str, Callable[[NDArray[np.float64]], float]]]:
    total = weight.sum()
    yield ("mean", lambda e: float((e * weight).sum() / total) if total else float("nan"))
    if total != len(weight):
        yield ("mean over all places, those left out too,", lambda e: float((e * weight).sum() / len(weight)))
    yield ("sum", lambda e: float((e * weight).sum()))
    if rows > 1 and len(weight) % rows == 0:
        each = weight.reshape(-1, rows)
        if (each.sum(-1) > 0).all() and total != len(weight):
            yield (
                "mean over rows of the mean",
                lambda e: float(((e * weight).reshape(-1, rows).sum(-1) / each.sum(-1)).mean()),
            )
        yield ("mean over rows of the sum", lambda e: float((e * weight).reshape(-1, rows).sum(-1).mean()))


def _of_numbers(outputs: NDArray[np.float64], batch: StepBatch) -> Iterator[LossWay]:
    """Yield squared and absolute errors: of each target, or difference of two, over all or the first columns."""
    arrays = {
        k: v for k, v in batch.items() if isinstance(v, np.ndarray) and v.dtype.kind == "f" and v.size == outputs.size
    }
    targets = {name: array.reshape(outputs.shape) for name, array in arrays.items()}
    targets |= {f"{x} - {y}": arrays[x].reshape(outputs.shape) - arrays[y].reshape(outputs.shape)
                for x in arrays for y in arrays if x != y}  # fmt: skip
    width = outputs.shape[-1] if outputs.ndim else 1
    for name, target in targets.items():
        for kind, error in (("squared error", (outputs - target) ** 2), ("absolute error", np.abs(outputs - target))):
            yield f"mean of the {kind} to {name}", float(error.mean())
            yield f"half the mean of the {kind} to {name}", float(0.5 * error.mean())
            yield f"sum of the {kind} to {name}", float(error.sum())
            yield f"mean over the batch of the sum of the {kind} to {name}", float(error.sum() / max(len(error), 1))
            for columns in range(1, width):
                yield (f"mean of the {kind} to {name} over the first {columns} of {width} columns",
                       float(error[..., :columns].mean()))  # fmt: skip
