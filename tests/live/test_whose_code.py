"""Which code is the trainer's: not that of packages, wherever they are installed, nor that of the suite."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import parity
from parity.checks.running.source import is_users, writes


@pytest.mark.parametrize(
    "file",
    [
        "/base/lib/python3.12/site-packages/torch/nn/modules/module.py",
        "/usr/lib/python3/dist-packages/torch/nn/modules/module.py",
        "/home/someone/.local/lib/python3.11/site-packages/accelerate/data_loader.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_what_is_installed_anywhere_is_not_the_users(file: str) -> None:
    assert not is_users(file)


def test_what_lies_elsewhere_is_the_users(tmp_path: Path) -> None:
    assert is_users(str(tmp_path / "train.py"))
    assert is_users("/home/someone/packages/mine/train.py")


class Prepared:
    """A loader as wrappers of loaders are; nothing of the trainer decides by its device."""

    def __init__(self) -> None:
        self.device = "cpu"

    def batch(self, step: int) -> torch.Tensor:
        return torch.full((3,), float(step), device=self.device)


def test_what_the_adapters_decide_by_is_no_decision_of_the_trainer() -> None:
    """A clean Trainer of Hugging Face was broken from a checkout: fewer loaders are prepared after a stop.

    The code that looks at tensors decides by `device`, lies outside of `site-packages` there, and ran.
    """

    class Keeper:
        def __init__(self) -> None:
            self.loaders = [Prepared()]

    def train(folder: Path, steps: int) -> None:
        weights, start, keeper = torch.zeros(3), 0, Keeper()
        for found in sorted(folder.glob("state-*.pt")):
            weights, start = torch.load(found), int(found.stem.partition("-")[2])
        for step in range(start, steps):
            parity.mark(step)
            weights = weights * 0.9 + keeper.loaders[0].batch(step)
            if step % 3 == 2:
                keeper.loaders.append(Prepared())
            torch.save(weights, folder / f"state-{step + 1:03}.pt")

    found = parity.resumes(train, steps=12, scenarios="kill", mode="inline")
    assert found.verdict == "holds", found.text()


def test_a_folder_beside_that_of_the_run_under_a_longer_name_is_not_the_runs(tmp_path):
    for name in ("run", "run_logs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text("3")
    trace = SimpleNamespace(reads=set(), reading=False)
    run = SimpleNamespace(folder=tmp_path / "run", trace=trace, frame=None, has_written=lambda name: False)
    writes.start(run)
    try:
        (tmp_path / "run_logs" / "text").read_text()
        os.listdir(tmp_path / "run_logs")
        beside = (set(trace.reads), trace.reading)
        os.listdir(tmp_path / "run")
        (tmp_path / "run" / "text").read_text()
    finally:
        writes.stop()
    assert beside == (set(), False)
    assert (trace.reads, trace.reading) == ({"text"}, True)
