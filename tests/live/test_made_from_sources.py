"""What a suspect was made from is named before it: by the loop that marks, by what is written whole, by an index."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parity

torch = pytest.importorskip("torch")
nn: Any = torch.nn

Trainer = Callable[[Path, int], Iterator[int]]


def first(train: Trainer, stop: int = 6) -> str:
    found = parity.resumes(train, steps=12, stop_at=stop, mode="inline", scenarios="kill")
    assert found.verdict == ("broken" if found.suspects else "holds"), found.text()
    return found.suspects[0].path if found.suspects else ""


class Annealed:
    """Makes batches whose scale shrinks."""

    def __init__(self) -> None:
        self.scale = 1.0

    def batch(self, number: int) -> Any:
        self.scale *= 0.95
        return np.random.RandomState(number).randn(4, 3) * self.scale


def pairs(made: Annealed, start: int, stop: int) -> Iterator[tuple[int, Any]]:
    for number in range(start, stop):
        yield number, made.batch(number)


def loops_over(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        made, w, begin, mean, file = Annealed(), np.ones(3), 0, 1.0, folder / "state"
        if file.exists():
            w, begin, made.scale, mean = pickle.loads(file.read_bytes())
            made.scale = 1.0 if lost == "scale" else made.scale
            mean = 1.0 if lost == "mean" else mean
        for number, x in pairs(made, begin, steps):
            yield number
            error = x @ w - 1
            mean = 0.9 * mean + 0.1 * float((error**2).mean())
            w = w - 0.1 * x.T @ error / (4 + mean)
            file.write_bytes(pickle.dumps((w, number + 1, made.scale, mean)))

    return train


def loops_over_by_other_names(folder: Path, steps: int) -> Iterator[int]:
    qq, zz, begin, file = Annealed(), np.ones(3), 0, folder / "state"
    if file.exists():
        zz, begin = pickle.loads(file.read_bytes())
    oo = pairs(qq, begin, steps)
    for ii, vv in oo:
        yield ii
        zz = zz - 0.1 * vv.T @ (vv @ zz - 1) / 4
        file.write_bytes(pickle.dumps((zz, ii + 1)))


@pytest.mark.parametrize(("lost", "named"), [("scale", "made.scale"), ("mean", "mean"), ("", "")])
def test_what_a_loop_iterates_over_is_named_before_its_variable(lost: str, named: str) -> None:
    assert first(loops_over(lost)) == named


def test_so_it_is_under_other_names() -> None:
    assert first(loops_over_by_other_names) == "qq.scale"


def searches(lost: str) -> Trainer:
    """Search by candidates in a scratch network; `kept` is what is saved."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        torch.manual_seed(0)
        kept, scratch = (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)) for _ in range(2))
        sequence = torch.quasirandom.SobolEngine(13, scramble=True, seed=3)
        x = torch.randn(20, 2, generator=torch.Generator().manual_seed(1))
        done, file = 0, folder / "state.pt"
        if file.exists():
            held = torch.load(file)
            done = held["done"]
            if lost != "kept":
                kept.load_state_dict(held["kept"])
            if lost != "sequence":
                sequence.fast_forward(held["drawn"])
        while done < steps:
            yield done
            centre = nn.utils.parameters_to_vector(kept.parameters()).detach()
            losses = []
            candidates = [centre + 0.2 * (one - 0.5) for one in sequence.draw(3)]
            for one in candidates:
                nn.utils.vector_to_parameters(one, scratch.parameters())
                losses.append((scratch(x) - x.prod(1, keepdim=True)).square().mean().item())
            nn.utils.vector_to_parameters(candidates[int(np.argmin(losses))], kept.parameters())
            done += 1
            state = {"kept": kept.state_dict(), "done": done, "drawn": sequence.num_generated}
            torch.save(state, file)

    return train


@pytest.mark.parametrize(("lost", "named"), [("sequence", "sequence."), ("kept", "kept."), ("", "")])
def test_a_network_that_each_step_writes_whole_is_named_behind_what_it_was_made_by(lost: str, named: str) -> None:
    assert first(searches(lost)).startswith(named)


def indexes(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        words, table, counts, done, file = list[str](), np.zeros(40), np.zeros(3), 0, folder / "state"
        if file.exists():
            words, table, counts, done = pickle.loads(file.read_bytes())
            words = [] if lost == "words" else words
            table = np.zeros(40) if lost == "table" else table
        index = {word: at for at, word in enumerate(words)}
        while done < steps:
            yield done
            for word in (f"w{done * 7 % 12}", f"w{done * 5 % 9}"):
                if word not in index:
                    index[word] = len(words)
                    words.append(word)
                at = index[word]
                table[at] += 0.1 * (at + 1 - table[at])
            done += 1
            file.write_bytes(pickle.dumps((words, table, counts, done)))

    return train


@pytest.mark.parametrize(("lost", "named"), [("words", "words"), ("table", "table"), ("", "")])
def test_a_list_is_named_before_the_index_that_is_made_of_it(lost: str, named: str) -> None:
    assert first(indexes(lost)).startswith(named)


def draws_by_epochs(lost: str, anew: bool = False) -> Trainer:
    """Shuffle and draw from a generator of the epoch; `anew`: from one that each step makes, by a count of draws."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        order, own, epoch, w, done, drawn, file = list[int](), None, 0, np.zeros(3), 0, 0, folder / "state"
        if file.exists():
            order, own, epoch, w, done, drawn = pickle.loads(file.read_bytes())
            own = np.random.default_rng(99) if lost == "own" or anew else own
            order = [5, 4, 3, 2, 1, 0][: len(order)] if lost == "order" else order
            drawn = 0 if lost == "drawn" else drawn
        while done < steps:
            yield done
            if anew or not order:
                own = np.random.default_rng([epoch, drawn])
            if not order:
                epoch, order = epoch + 1, [int(one) for one in own.permutation(6)]
            at, drawn = order.pop(), drawn + anew
            x = np.array([at, 1.0, at % 2]) + 0.1 * own.normal(size=3)
            w = w - 0.01 * x * (x @ w - 1)
            done += 1
            file.write_bytes(pickle.dumps((order, own, epoch, w, done, drawn)))

    return train


@pytest.mark.parametrize(
    ("lost", "anew", "named"),
    [("own", False, "own"), ("order", False, "order"), ("", False, ""), ("drawn", True, "drawn"), ("", True, "")],
)
def test_a_generator_that_each_epoch_makes_is_named_at_the_resume(lost: str, anew: bool, named: str) -> None:
    assert first(draws_by_epochs(lost, anew), stop=9).startswith(named)
