"""No name decides: loops under random names train to the same bits, and get the same verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

import parity
from tests.corpus.proof import run_in_pieces, what_is_left
from tests.corpus.registry import MODULES, loops_of
from tests.corpus.rename import load_renamed

EVERY = [(module, at) for module in MODULES for at in range(len(loops_of(module)))]
SOME, FEW = EVERY[::5], EVERY[4::20]


@pytest.mark.parametrize(("module", "at"), SOME)
def test_a_renamed_loop_trains_to_the_same_bits(module: str, at: int, tmp_path: Path) -> None:
    plain, other = loops_of(module)[at], load_renamed(module, 1, tmp_path).LOOPS[at]
    assert plain.id != other.id
    values = [
        sorted(what_is_left(*run_in_pieces(one.train, tmp_path / one.id), (*one.volatile, "*.ckpt")).values())
        for one in (plain, other)
    ]
    assert values[0] == values[1]


def same_verdict(module: str, at: int, seed: int, folder: Path, scenarios: str) -> None:
    """Require one verdict of a loop and of the same under other names."""
    both = (loops_of(module)[at], load_renamed(module, seed, folder).LOOPS[at])
    found = [
        parity.resumes(one.train, steps=one.steps, stop_at=one.stop_at, mode="inline", scenarios=scenarios)
        for one in both
    ]
    assert found[0].verdict == found[1].verdict, found[1].text()


@pytest.mark.parametrize(("module", "at"), FEW)
def test_names_of_chance_change_no_verdict(module: str, at: int, tmp_path: Path) -> None:
    same_verdict(module, at, 1, tmp_path, "kill")


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("module", "at"), EVERY)
def test_names_of_chance_change_no_verdict_of_any_loop(module: str, at: int, seed: int, tmp_path: Path) -> None:
    same_verdict(module, at, seed, tmp_path, "all")
