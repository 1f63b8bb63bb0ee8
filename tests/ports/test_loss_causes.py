"""Causes of losses that part, by outputs and a batch alone; and arrays of both layouts brought to one."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from parity.checks.models.modules import comparable
from parity.checks.proving.gradient_causes import gradient_cause
from parity.checks.proving.lockstep import MODEL
from parity.checks.proving.loss_causes import UNKNOWN, UNSEEN, loss_cause, ways_of_loss
from parity.checks.proving.losses import LossPair
from parity.checks.proving.update_causes import _loss_cause
from parity.contract import LossEvaluation

DRAWS = np.random.default_rng(4)
OUTPUTS = DRAWS.normal(size=(3, 5, 7))
TOKENS = np.where(np.arange(6) < np.array([6, 4, 5])[:, None], DRAWS.integers(1, 7, (3, 6)), 0)


def losses(labels):
    logs = OUTPUTS - np.log(np.exp(OUTPUTS).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, labels[..., None], -1)[..., 0]


def cause(one, two):
    made = [LossEvaluation(float(loss), {}, (OUTPUTS,), (), ()) for loss in (one, two)]
    batch = {"text": TOKENS}
    return loss_cause(LossPair((batch, batch), *made, {}, 0.0, {}, (True, True)))


def test_labels_that_are_rows_less_a_place_are_known():
    after, before = TOKENS[:, 1:], TOKENS[:, :-1]
    kept = after != 0
    said = cause((losses(after) * kept).sum() / kept.sum(), (losses(after) * kept).mean())
    assert said.startswith("loss: mean of the cross entropy to text from the second place on where text from")
    assert "mean over all places, those left out too" in said
    shifted = cause(losses(after).mean(), losses(before).mean())
    assert "to text from the second place on here" in shifted
    assert "to text up to the last place but one there" in shifted


def test_a_loss_of_no_known_labels_has_no_cause_of_labels():
    assert cause(1.0, 2.0) == UNKNOWN


def test_where_channels_are_is_told_by_values_where_shapes_do_not():
    value = DRAWS.normal(size=(2, 4, 4, 4))
    for first, second in ((value, np.moveaxis(value, 1, -1)), (np.moveaxis(value, 1, -1), value), (value, value)):
        one, two = comparable([first], [second])
        assert np.array_equal(one, two)
    one, two = comparable([value], [value + 1.0])
    assert np.allclose(two - one, 1.0)


def gradient_said(gradients, others):
    made = [LossEvaluation(1.0, held, (), (), ()) for held in (gradients, others)]
    return gradient_cause(
        LossPair(({}, {}), *made, gradients, 0.0, {}, (True, True)), [*others], {p: p for p in others}
    )


def test_a_gradient_of_one_number_is_not_called_scaled():
    """Of one number any other is a multiple; of several it shows."""
    one, two = {"scale": np.array(2.0)}, {"scale": np.array(1.5)}
    assert gradient_said(one, two).startswith("gradient: part of it is missing or added on one of the ways back")
    several = {"weight": np.arange(1.0, 4.0)}
    assert gradient_said(several, {"weight": several["weight"] * 0.75}).startswith("gradient scaled: 0.75 times")


def test_outputs_that_were_not_seen_are_not_called_equal():
    """The other model's are as good where they make both losses; where they make one alone nothing is said."""
    after = TOKENS[:, 1:]
    batch = {"text": TOKENS}

    def of(one, two):
        sides = (LossEvaluation(float(one), {}, (OUTPUTS,), (), ()), LossEvaluation(float(two), {}, (), (), ()))
        return loss_cause(LossPair((batch, batch), *sides, {}, 0.0, {}, (True, True)))

    assert "mean of the cross entropy" in of(losses(after).mean(), losses(after).sum())
    assert "sum of the cross entropy" in of(losses(after).mean(), losses(after).sum())
    assert of(losses(after).mean(), 3.21) == of(1.0, 3.21) == UNSEEN


def test_labels_that_are_moved_once_more_are_told_with_the_output_that_is_left_out() -> None:
    rng = np.random.default_rng(12)
    logits, tokens = rng.standard_normal((3, 5, 4)), rng.integers(0, 4, (3, 6))
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    def loss(start: int) -> float:
        wanted = tokens[:, start:]
        return float(-np.take_along_axis(logs[:, : wanted.shape[1]], wanted[..., None], -1).mean())

    words = "mean of the cross entropy to tokens from the"
    ways = [ways_of_loss(loss(start), (logits,), {"tokens": tokens}) for start in (1, 2)]
    assert ways[0] == [f"{words} second place on"]
    assert ways[1] == [f"{words} third place on (the last output left out)"]
    assert ways_of_loss(loss(2) * 1.01, (logits,), {"tokens": tokens}) == []


def test_a_step_of_another_loss_is_told_with_what_both_take() -> None:
    """A step that leaves out a term of its loss function returns another number."""
    rng = np.random.default_rng(13)
    logits, labels = rng.standard_normal((4, 3)), rng.integers(0, 3, 4)
    square = float((np.log(np.exp(logits).sum(-1)) ** 2).mean())
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    plain = float(-logs[np.arange(4), labels].mean())
    whole = plain + 0.01 * square
    batch = {"label": labels}

    def lane(returned: float) -> SimpleNamespace:
        trainer = SimpleNamespace(
            probe=SimpleNamespace(loss=lambda values, batch: LossEvaluation(whole, {}, (logits,))),
            batch=lambda step: batch,
        )
        return SimpleNamespace(trainer=trainer, seconds=1e9, returned=returned)

    def walk(*losses: float) -> Any:
        lanes = [lane(one) for one in losses]
        for one in lanes:
            one.moments = [SimpleNamespace(slots={MODEL: {}})]
        return SimpleNamespace(
            done=1, lanes=lanes, losses=losses, pairing=SimpleNamespace(over=lambda values: values)
        )

    said = _loss_cause(walk(whole, plain))
    assert said.endswith("(the step takes the mean of the cross entropy, the loss function the mean of the cross "
                         "entropy and 0.01 of the squared log of the sum)"), said  # fmt: skip
    assert _loss_cause(walk(whole, plain * 1.3)).endswith(f"not {whole!r}")
    assert _loss_cause(walk(whole, whole)) == ""


def _smoothed(logs: np.ndarray, labels: np.ndarray, share: float, kind: str) -> float:
    """Return a loss of labels of which 0 is padding, smoothed over some classes or at some places."""
    count, kept = logs.shape[-1], labels != 0
    each = -np.take_along_axis(logs, labels[..., None], -1)[..., 0]
    spread = {"all": -logs.mean(-1), "but": -logs[..., 1:].mean(-1), "places": -logs.mean(-1)}
    spread["others but"] = (-logs[..., 1:].sum(-1) - each) / (count - 2)
    own = 0.0
    if kind == "divergence":
        own = (1 - share) * np.log(1 - share) + share * np.log(share / (count - 2))
        kind = "others but"
    smooth = spread[kind].sum() if kind == "places" else (spread[kind] * kept).sum()
    return float(((1 - share) * (each * kept).sum() + share * smooth) / kept.sum() + own)


def test_smoothing_that_counts_padding_is_told_by_what_it_counts() -> None:
    logs = OUTPUTS - np.log(np.exp(OUTPUTS).sum(-1, keepdims=True))
    after = TOKENS[:, 1:]
    told = {
        "all": "with label smoothing 0.1",
        "but": "with label smoothing 0.1 over all classes but 0",
        "others but": "with label smoothing 0.1 over the other classes but 0",
        "divergence": "with label smoothing 0.1 over the other classes but 0, less the entropy of the labels",
        "places": "with label smoothing 0.1 that counts all places, over the number that count, those left out too",
    }
    begin = "mean of the cross entropy to text from the second place on where text from the second place on is not 0"
    for here, there in (("but", "all"), ("others but", "all"), ("divergence", "all"), ("all", "places")):
        said = cause(*(_smoothed(logs, after, 0.1, kind) for kind in (here, there)))
        assert said == f"loss: {begin} {told[here]} here, {begin} {told[there]} there"
    values = [_smoothed(logs, after, share, kind) for share, kind in ((0.1, "all"), (0.1234567, "but"))]
    assert "smoothing 0.123" not in cause(*values), "no share of few digits"
    labels = np.where(after == 0, 1, after)  # 0 is left out as no place's label then
    assert cause(_smoothed(logs, labels, 0.1, "all"), 2 * _smoothed(logs, labels, 0.1, "all")).count("but 0") == 0
