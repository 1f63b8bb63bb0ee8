"""What decimal rounds to is state of a thread: lost where it is not restored."""

import decimal
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import parity
from parity.results import Resumption


@pytest.fixture(autouse=True)
def digits_of_before() -> Iterator[None]:
    before = decimal.getcontext().copy()
    yield
    decimal.setcontext(before)


@pytest.mark.parametrize("lost", [True, False])
def test_the_digits_of_decimal(lost: bool) -> None:
    def train(folder: Path, steps: int) -> Iterator[int]:
        context, w, start, state = decimal.getcontext(), Decimal(1), 0, folder / "state.pkl"
        context.prec = 8
        if state.exists():
            w, start, digits = pickle.loads(state.read_bytes())
            context.prec = context.prec if lost else digits
        for n in range(start, steps):
            yield n
            w -= Decimal("0.3") * (w - Decimal(n % 3) / 7)
            context.prec += n % 5 == 4
            if n % 4 == 3:
                state.write_bytes(pickle.dumps((w, n + 1, context.prec)))

    found: Resumption = parity.resumes(train, steps=16, stop_at=11, mode="inline", scenarios=("kill", "third"))
    assert found.verdict == ("broken" if lost else "holds"), found
    assert [one.path for one in found.suspects[:1]] == ["decimal.getcontext().prec"] * lost
