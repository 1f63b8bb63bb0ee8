"""Calls of PyTorch that are made again from a change on give what the user's code gives with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from parity.contract import OperationEdit
from torch_side.probes.programs import TorchProgram
from torch_side.probes.replays import CannotReplayError

_X = torch.from_numpy(np.random.default_rng(3).standard_normal((4, 3)))
_MEAN, _VARIANCE = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
_LARGER = OperationEdit(after=lambda made, taken, held: tuple(1.5 * one for one in made))


def _plain(calls: list[int]) -> Any:
    calls.append(1)
    parts = torch.stack([torch.tanh(_X), _X * 2.0])
    low, high = parts.min(0), parts.max(0)
    assert float(_X.abs().sum()) > 0.0
    return torch.softmax(low.values + high.values, -1).sum(0)


def _normed(calls: list[int]) -> Any:
    """A norm writes to its statistics, which nothing reads."""
    calls.append(1)
    y = torch.tanh(_X) * 2.0
    return torch.nn.functional.batch_norm(y, _MEAN, _VARIANCE, training=True).exp()


def _written(calls: list[int]) -> Any:
    calls.append(1)
    x = torch.tanh(_X)
    x[0] = 0.0
    return x.exp()


def _added(calls: list[int]) -> Any:
    calls.append(1)
    x = torch.tanh(_X)
    x += 1.0
    return x.exp()


def _drawn(calls: list[int]) -> Any:
    calls.append(1)
    torch.manual_seed(5)
    return torch.rand(3, dtype=torch.float64).exp() * torch.rand(3, dtype=torch.float64)


def _program(function: Callable[[list[int]], Any], calls: list[int]) -> TorchProgram:
    program = TorchProgram(lambda: lambda: function(calls))
    calls.clear()
    return program


def _run_by_the_code(program: TorchProgram, *args: Any) -> Any:
    kept, program._tape = program._tape, None
    try:
        return program.run(*args)
    finally:
        program._tape = kept


@pytest.mark.parametrize("function", [_plain, _normed, _written, _added, _drawn])
def test_every_change_gives_what_the_code_gives_with_it(function: Callable[[list[int]], Any]) -> None:
    program = _program(function, [])
    for place, one in enumerate(program.operations):
        edits = {place: _LARGER if one.outputs[0].dtype.kind == "f" else OperationEdit()}
        for at in (None, place, len(program.operations) - 1):
            made, wanted = program.run(edits, at), _run_by_the_code(program, edits, at)
            assert (made is None) == (wanted is None), (place, at)
            assert made is None or all(map(np.array_equal, made, wanted)), (place, at)


@pytest.mark.parametrize(("function", "runs"), [(_plain, 0), (_normed, 0), (_written, 1), (_added, 1), (_drawn, 1)])
def test_the_code_runs_only_where_calls_do_not_tell_all(function: Callable[[list[int]], Any], runs: int) -> None:
    calls: list[int] = []
    program = _program(function, calls)
    program.run({1: _LARGER})
    assert len(calls) == runs


def test_what_is_taken_from_an_operation_before_follows_a_change_of_it() -> None:
    program = _program(lambda calls: torch.tanh(_X).exp() + 1.0, [])
    taken = OperationEdit(after=lambda made, given, held: (made[0] + held[0][0],), sources=(0,))
    (made,) = program.run({0: _LARGER, 2: taken}) or ()
    tanh = 1.5 * np.tanh(_X.numpy())
    assert np.allclose(made, np.exp(tanh) + 1.0 + tanh, rtol=1e-14)


def test_a_choice_that_falls_otherwise_is_made_by_the_code() -> None:
    def choosing(calls: list[int]) -> Any:
        calls.append(1)
        x = _X.abs()
        return x.exp() if x.min() > 0.0 else x.sin().cos()

    calls: list[int] = []
    program = _program(choosing, calls)
    assert program.run({0: OperationEdit(after=lambda made, given, held: (-made[0],))}) is None, "another way"
    assert len(calls) == 1
    assert program.run({0: _LARGER}) is not None
    assert len(calls) == 1, "the choice falls as it did"


def test_another_shape_is_left_to_the_code() -> None:
    def shaped(calls: list[int]) -> Any:
        x = _X[:2]
        return x.sum(0) / x.shape[0]

    program = _program(shaped, [])
    (made,) = program.run({0: OperationEdit(settings={"1": slice(None, 4)})}) or ()
    assert np.allclose(made, _X.numpy().mean(0), rtol=1e-14)


def test_a_change_for_good_is_kept() -> None:
    program = _program(lambda calls: torch.tanh(_X).exp() + 1.0, [])
    changed = program.changed({0: _LARGER})
    assert changed is not None
    (made,) = changed.run({2: _LARGER}) or ()
    assert np.allclose(made, 1.5 * (np.exp(1.5 * np.tanh(_X.numpy())) + 1.0), rtol=1e-14)


def test_what_cannot_be_made_again_says_so() -> None:
    program = _program(_drawn, [])
    assert program._tape is not None
    with pytest.raises(CannotReplayError):
        program._tape.replay({})
