"""A run that several PyTorch processes train with FSDP2, goes on in JAX on a mesh of 2 x 2, and comes back.

Float64: the spliced curve is that of one device within 1e-12, and each side holds bit for bit what the other gave it.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import torch_side
from parity.runs.launching import launch
from parity.spec import load, to_toml
from parity.state import compare_states
from tests.support.several import ROOT

pytestmark = pytest.mark.processes

WITHIN = 1e-12
"""Relative, in float64: the bar of the suite for equal semantics."""
SMALL = {
    "mlp-digits": ["model.hidden=[16,8]", "accumulation=2"],
    "gpt-text": ["model.layers=2", "model.width=16", "model.heads=2", "model.context=8", "batch=8"],
}
PART = """
import pickle, sys
from pathlib import Path
from parity import sides
from parity.contract import prepare_process, processes_of
from parity.runs import join
from parity.spec import from_toml, identity_of

name, spec, given, taken, until = sys.argv[1], *map(Path, sys.argv[2:5]), int(sys.argv[5])
side = sides.load(name)
prepare_process(side)
spec = from_toml(spec.read_text())
with join(processes_of(side), dict, identity_of(spec), spec, 60.0) as together:
    trainer = side.build(spec)
    state = pickle.loads(given.read_bytes()) if given.exists() else None
    if state is not None:
        trainer.import_state(state)
    start = trainer.export_state()
    rows = [(one.step, one.loss, one.grad_norm, one.batch) for one in trainer.steps(until)]
    end = trainer.export_state()
    if together.first:
        taken.write_bytes(pickle.dumps((start, rows, end)))
"""
"""Trains from a state to a step, in as many processes as were started."""


def given(preset: str) -> list[str]:
    return [*SMALL[preset], "execution.chunk=2", "steps=12"]


def part(home: Path, side: str, preset: str, mesh: list[str], count: int, taken_over: Any, until: int) -> Any:
    """Return the state with which a side began, its records, and the state with which it ended."""
    script, spec = home / "part.py", home / f"{until}.toml"
    state, taken = home / f"{until}-given.pkl", home / f"{until}-taken.pkl"
    script.write_text(PART)
    spec.write_text(to_toml(load(preset, "float64", [*given(preset), *mesh])))
    if taken_over is not None:
        state.write_bytes(pickle.dumps(taken_over))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    assert launch([sys.executable, str(script), side, str(spec), str(state), str(taken), str(until)], count, env) == 0
    return pickle.loads(taken.read_bytes())


CASES = [
    pytest.param("mlp-digits", 2, 1),
    pytest.param("mlp-digits", 4, 2, marks=pytest.mark.soak),
    pytest.param("gpt-text", 4, 4, marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("preset", "ranks", "hosts"), CASES)
def test_a_run_goes_from_fsdp2_to_jax_on_2_x_2_and_back(preset: str, ranks: int, hosts: int, tmp_path: Path) -> None:
    sharded, square = [f"mesh.fsdp={ranks}"], ["mesh.fsdp=2", "mesh.model=2", f"mesh.processes={hosts}"]
    first = part(tmp_path, "torch", preset, sharded, ranks, None, 4)
    second = part(tmp_path, "jax", preset, square, hosts, first[2], 8)
    third = part(tmp_path, "torch", preset, sharded, ranks, second[2], 12)
    one = torch_side.build(load(preset, "float64", given(preset)))
    rows = [(row.step, row.loss, row.grad_norm, row.batch) for row in one.steps(12)]
    spliced = [*first[1], *second[1], *third[1]]
    assert [(row[0], row[3]) for row in spliced] == [(row[0], row[3]) for row in rows]
    apart = max(abs(a[at] - b[at]) / abs(b[at]) for a, b in zip(spliced, rows, strict=True) for at in (1, 2))
    assert 0 < apart <= WITHIN
    for gave, took in ((first[2], second[0]), (second[2], third[0])):
        assert len(gave.arrays) > 6
        assert [one.leaf for one in compare_states(gave, took)] == ["config.spec"]  # the text, with its mesh
