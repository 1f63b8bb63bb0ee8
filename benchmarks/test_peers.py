"""Steps per second of the PyTorch twin against the trainers people use, on `mlp-digits` to the same losses.

Needs the extra `peers`. The twin records every step as always; the others keep nothing but the loss.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bars import assert_same_losses
from benchmarks.paired import Arm, faster, run_all, run_paired
from parity import sides
from parity.spec import load

pytestmark = [
    pytest.mark.skipif("torch" not in sides.installed(), reason="torch is not installed"),
    pytest.mark.filterwarnings("ignore"),  # theirs, of which a dozen kinds; none is ours to mend
]

STEPS = 1000
BARS = {"lightning": 3.0, "transformers": 4.0, "accelerate": None}


@pytest.mark.parametrize("peer", BARS)
def test_torch_twin_against(benchmark: Any, peer: str, tmp_path: Path) -> None:
    """The bar is for data as their tutorials feed it; `lean` gives them whole batches cut beforehand."""
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed: pip install 'parity-suite[peers]'")
    from benchmarks.peers_train import ARMS, Job

    spec = load("mlp-digits", overrides=["dropout.rate=0.0", "validate_every=0", "save.every=1000000"])
    trainer: Any = sides.load("torch").build(spec)
    start, weights = trainer.export_state(), {k: v.clone() for k, v in trainer.model.state_dict().items()}
    arms = [
        Arm(
            name="twin",
            run=lambda: np.array([record.loss for record in trainer.steps(STEPS)], np.float32),
            reset=lambda: trainer.import_state(start),
            steps=STEPS,
        )
    ]
    for name, lean in ((peer, False), (f"lean {peer}", True)):
        arms.append(ARMS[peer](Job(spec=spec, steps=STEPS, start=weights, lean=lean), name, tmp_path))
    assert_same_losses(run_all(arms), STEPS)
    ratios = [faster("twin", peer, BARS[peer]), faster("twin", f"lean {peer}")]
    measured = run_paired(benchmark, arms, ratios, rounds=5)
    measured.note(peer, peer_version=importlib.metadata.version(peer))
