"""Checkpoints whose form nothing reads but the trainer: equal values in other bytes are no loss, other values are."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parity
from parity.checks.judging import Evidence, Outcome
from parity.checks.resume import read_back

Trainer = Callable[[Path, int], Iterator[int]]


def hidden(data: bytes) -> bytes:
    return bytes(byte ^ 0x5A for byte in data)


class Saver:
    """Keeps weights, a momentum and the record of losses in one file behind an exclusive or."""

    def __init__(self, lost: str) -> None:
        self.lost, self.w, self.pull, self.done, self.record = lost, np.ones(3), np.zeros(3), 0, list[float]()
        self.seen = 0

    def load(self, file: Path) -> None:
        held = pickle.loads(hidden(file.read_bytes()))
        held |= {"record": [], "extra": None} if self.lost == "record" else {}
        self.w, self.pull, self.done, self.record = (held[name] for name in ("w", "pull", "done", "record"))

    def save(self, file: Path) -> None:
        held = {"w": self.w, "pull": self.pull, "done": self.done, "record": self.record}
        file.write_bytes(hidden(pickle.dumps(held)))
        if self.lost == "export":  # which nobody reads
            file.with_suffix(".out").write_bytes(hidden(pickle.dumps([self.w, self.seen])))

    def step(self) -> None:
        self.pull = 0.9 * self.pull + np.cos(self.w + self.done)
        self.w, self.done = self.w - 0.1 * self.pull, self.done + 1
        self.record.append(float(self.w.sum()))
        self.seen += self.lost == "export"


def trainer(lost: str) -> Trainer:
    def train(folder: Path, steps: int) -> Iterator[int]:
        own, file = Saver(lost), folder / "state.bin"
        if file.exists():
            own.load(file)
        while own.done < steps:
            yield own.done
            own.step()
            own.save(file)

    return train


@pytest.mark.parametrize("scenarios", ["kill", "all"])
def test_pickles_that_a_trainer_hides_count_by_what_it_reads_from_them(scenarios: str) -> None:
    found = parity.resumes(trainer(""), steps=10, stop_at=6, mode="inline", scenarios=scenarios)
    assert found.verdict == "holds", found.text()


@pytest.mark.parametrize("lost", ["record", "export"])
def test_a_record_that_begins_anew_and_a_file_that_nobody_reads_are_losses_there(lost: str) -> None:
    found = parity.resumes(trainer(lost), steps=10, stop_at=6, mode="inline", scenarios="kill")
    assert found.verdict == "broken", found.text()


@pytest.mark.parametrize(("digests", "lost"), [(("a", "a"), False), (("a", "b"), True)])
def test_two_processes_that_begin_otherwise_tell_of_two_files(
    digests: tuple[str, str], lost: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What they read is compared, also where both runs ended alike."""
    began = [SimpleNamespace(role="array", kind="float64[3]", digest=one) for one in digests]
    traces = iter([SimpleNamespace(end="killed", marks=[{"w": one}], restored={"state.bin"}) for one in began])
    monkeypatch.setattr(read_back, "_end_alike", lambda *_: True)
    monkeypatch.setattr(read_back, "_used", lambda mark, _: mark)
    monkeypatch.setattr(read_back, "copy_folder", lambda *_: None)
    monkeypatch.setattr(read_back, "replace", lambda asked, **_: asked)
    e = Evidence("checkpoint", "state.bin", 10, "file[9]", "file[9]", "at the end")
    found, asked = Outcome(broken=[e]), SimpleNamespace(steps=10, options={"steps": 10})
    runner: Any = SimpleNamespace(run=lambda *_: next(traces))
    resumed: Any = SimpleNamespace(restored={"state.bin"})
    read_back.settle_unread(found, resumed, resumed, tmp_path, tmp_path, runner, asked, ())  # type: ignore[arg-type]
    assert (found.broken == [e], bool(found.bookkeeping)) == (lost, not lost)
