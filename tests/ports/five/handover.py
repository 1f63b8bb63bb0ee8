"""One model carried over: mapped, its whole state converted, continued in JAX, and led back to PyTorch."""

from __future__ import annotations

import contextlib
import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from parity.checks.models import map_opened, open_subjects
from parity.checks.models.inputs import BothInputs
from parity.checks.models.opening import ModelSource
from parity.cli.main import main
from parity.results import Verdict
from tests.ports.five import hugging, in_jax, ported
from tests.ports.five.in_jax import JaxRun
from tests.ports.five.in_torch import AFTER, BEFORE, TorchRun, one_ulp

__all__ = ["CarriedRun", "carry", "command", "distance", "state_distance", "write_map"]


@dataclass(frozen=True)
class CarriedRun:
    """What one handover found; distances are relative."""

    model: str
    rows: int
    sure: int
    proof: Verdict
    proven: float
    """Largest difference of an output or a gradient in the proof."""
    curve: float
    """Largest difference of a loss of the steps after the handover."""
    state: float
    """Largest difference of a parameter or a moment at their end, of the largest element of its kind."""
    floor: float
    """Largest difference that one unit in the last place of PyTorch's parameters makes in its own losses."""
    back: float | None
    """Largest difference of a loss of as many steps more, in PyTorch from the state of JAX and in JAX; None: not led
    back."""
    islands: tuple[str, ...]
    """Casts to float32 within the training, of either framework, that were answered in float64; with their places."""
    unlifted: float | None
    """How far those of PyTorch move its first loss after the handover; None: not measured."""
    seconds_map: float
    seconds: float


def command(*words: str) -> str:
    """Run a command of the suite, and return what it printed.

    Raises:
        RuntimeError: It did not exit with 0.
    """
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(list(words))
    if code:
        raise RuntimeError(f"parity {' '.join(words)}: exit code {code}\n{said.getvalue()}")
    return said.getvalue()


def write_map(name: str, path: Path, **options: Any) -> Any:
    """Write the map of a model and its port, and return it with its proof."""
    subjects = open_subjects(
        ModelSource("--torch", name, hugging.MODELS[name]),
        ModelSource("--jax", f"{name} in NNX", ported.MODELS[name], (), {"dtype": jnp.float64, **options}),
        BothInputs(*hugging.INPUTS[name]),
    )
    found = map_opened(subjects, None, None)
    path.write_text(found.rules_text)
    return found


def distance(one: list[float], other: list[float]) -> float:
    """Return the largest relative difference of two curves."""
    a, b = np.array(one), np.array(other)
    return float(np.max(np.abs(a - b) / np.abs(a)))


def state_distance(one: Path, other: Path) -> float:
    """Return the largest difference of two files of the loop, of the largest element of their kind."""
    a, b = (torch.load(path, weights_only=True) for path in (one, other))
    if a["step"] != b["step"]:
        raise ValueError(f"steps {a['step']} and {b['step']}")
    kinds = {"model": (a["model"], b["model"])}
    for slot in ("exp_avg", "exp_avg_sq", "step"):
        kinds[slot] = tuple({at: own[slot] for at, own in held["optimizer"]["state"].items()} for held in (a, b))
    worst = 0.0
    for here, there in kinds.values():
        if set(here) != set(there):
            raise ValueError("the files hold other names")
        scale = max(float(value.abs().max()) for value in here.values())
        worst = max(worst, *(float((here[key] - there[key]).abs().max()) / scale for key in here))
    return worst


def carry(name: str, folder: Path, tx: str = "tx", **options: Any) -> CarriedRun:
    """Train in PyTorch, carry the state to the port and back, and compare with the runs that stayed.

    Args:
        name: Of the model.
        folder: An empty one, for the files.
        tx: The transformation of `in_jax` that continues.
        options: Of the port.
    """
    began = time.perf_counter()
    rules, last, here, there = (folder / one for one in ("map.toml", "last.pt", "run", "end"))
    found = write_map(name, rules, **options)
    mapped = time.perf_counter() - began
    run = TorchRun(name)
    run.advance(BEFORE)
    run.save(last)
    words = ("--rules", str(rules), "--model", f"tests.ports.five.in_torch:{name}")
    command("convert", str(last), str(here), "--to", "orbax", *words, "--optimizer", f"tests.ports.five.in_jax:{tx}")
    stayed = run.advance(AFTER)
    run.save(folder / "stayed.pt")
    port = JaxRun(name, here, getattr(in_jax, tx), **options)
    curve = distance(stayed, port.advance(AFTER))
    port.save(there)
    command("convert", str(there), str(folder / "back.pt"), "--to", "torch.save", "--rules", str(rules))
    state = state_distance(folder / "stayed.pt", folder / "back.pt")
    shaken, returned = TorchRun(name), TorchRun(name)
    shaken.load(last)
    lifted, as_it_is = (shaken.loss(BEFORE, lift=lift) for lift in (True, False))
    unlifted = distance([lifted], [as_it_is])
    one_ulp(shaken.model)
    floor = distance(stayed, shaken.advance(AFTER))
    returned.load(folder / "back.pt")
    back = distance(port.advance(AFTER), returned.advance(AFTER))
    proof = found.proof
    casts = {one.where: one.what for one in (*run.islands.values(), *port.islands.values())}
    return CarriedRun(name, len(found.found.rows) + len(found.found.alone), len(found.found.rules), found.verdict,
                      max(proof.outputs, proof.gradients), curve, state, floor, back,
                      tuple(f"{where} ({what})" for where, what in casts.items()), unlifted, mapped,
                      time.perf_counter() - began)  # fmt: skip
