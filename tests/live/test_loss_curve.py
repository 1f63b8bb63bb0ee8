"""The loss of a trainer of one's own, as its record has it: of every kind of number, of both runs, none made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity
from parity.report import check_markdown
from parity.report.html import check_page
from parity.results import document, encode, read_result

Number = Callable[[float], Any]


def trainer(number: Number, *, lost: bool = False, called: str = "loss") -> Any:
    def train(folder: Path, steps: int) -> Iterator[int]:
        weights, momentum, start = np.ones(3), np.zeros(3), 0
        file = folder / "state.npz"
        if file.exists():
            with np.load(file) as found:
                weights, start, momentum = found["w"], int(found["step"]), momentum if lost else found["m"]
        for step in range(start, steps):
            yield step
            momentum = 0.9 * momentum + 2 * weights
            weights = weights - 0.01 * momentum
            if called == "loss":
                loss = number(float((weights**2).sum()))  # noqa: F841 - looked at by the check alone
            if (step + 1) % 5 == 0:
                np.savez(file, w=weights, m=momentum, step=step + 1)

    return train


def expected(steps: int) -> list[float]:
    weights, momentum, found = np.ones(3), np.zeros(3), []
    for _ in range(steps):
        momentum = 0.9 * momentum + 2 * weights
        weights = weights - 0.01 * momentum
        found.append(float((weights**2).sum()))
    return found


def tensor(value: float) -> Any:
    import torch

    return torch.tensor(value, dtype=torch.float64)


def in_jax(value: float) -> Any:
    import jax.numpy as jnp

    return jnp.float32(value)


@pytest.mark.parametrize(
    ("number", "close"), [(float, 0.0), (np.float64, 0.0), (np.array, 0.0), (tensor, 0.0), (in_jax, 1e-6)]
)
def test_it_is_the_loss_of_every_step_of_both_runs(number: Number, close: float) -> None:
    found = parity.resumes(trainer(number), steps=20, stop_at=13, mode="inline", scenarios="kill")
    curves = found.record().curves
    assert curves is not None
    assert curves.steps == tuple(range(1, 21))
    assert curves.loss[0] == pytest.approx(expected(20), rel=close)
    assert curves.loss[1] == curves.loss[0]
    assert (curves.kills, curves.resumes) == ((13,), (10,))
    assert set(curves.difference) == {0.0}


def test_a_loss_of_state_shows_from_the_resume_on_with_its_advice_in_every_rendering(tmp_path: Path) -> None:
    found = parity.resumes(trainer(float, lost=True), steps=20, stop_at=13, mode="inline", scenarios="kill")
    record = found.record()
    assert record.curves is not None
    parted = [step for step, gap in zip(record.curves.steps, record.curves.difference, strict=True) if gap]
    assert parted == list(range(11, 21))
    assert record.advice == {found.components[0]: found.suspects[0].advice}
    advice = found.suspects[0].advice
    assert advice in found.text()
    text = encode(document([record], {"python": "3"}))
    (tmp_path / "check.json").write_text(text)
    read = read_result(tmp_path / "check.json").records[0]  # type: ignore[union-attr]
    assert read.advice == record.advice
    assert read.curves == record.curves
    page = check_page([read], {})
    assert advice in page
    assert "difference of the loss" in page
    assert "learning rate" not in page, "nothing is drawn of what is not known"
    assert advice in check_markdown([read], {}).replace("\\", "")


def test_without_a_loss_there_is_no_curve_and_no_chart() -> None:
    found = parity.resumes(trainer(float, called=""), steps=20, stop_at=13, mode="inline", scenarios="kill")
    assert found.curves is None
    assert "difference of the loss" not in check_page([found.record()], {})


def test_a_run_that_holds_has_no_advice() -> None:
    found = parity.resumes(trainer(float), steps=20, stop_at=13, mode="inline", scenarios="kill")
    assert found.record().advice == {}
