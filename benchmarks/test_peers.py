"""Steps per second of the PyTorch twin against the trainers people use, on `mlp-digits` to the same losses.

Needs the extra `peers`. The twin records every step as always; the others keep nothing but the loss. How many times
faster than a trainer a loop can be depends on machine and trainer: the loop written by hand shows it, and the twin is
judged by that.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.bars import assert_same_losses
from benchmarks.paired import Arm, Versus, faster, relative, run_all, run_paired
from parity import sides
from parity.spec import load, override
from parity.twins import Prefetcher, open_stream

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("torch" not in sides.installed(), reason="torch is not installed"),
    pytest.mark.filterwarnings("ignore"),  # theirs, of which a dozen kinds; none is ours to mend
]

STEPS = 1000
PEERS = ("lightning", "transformers", "accelerate")


def ratios(peer: str) -> list[Versus]:
    """Return the ratio that is judged, and how many times faster than a peer twin and bare loop are."""
    judged = relative("twin", "bare", peer, 1.03)
    return [judged, *(faster(arm, other) for other in (peer, f"lean {peer}") for arm in ("twin", "bare"))]


@pytest.mark.parametrize("peer", PEERS)
def test_torch_twin_against(benchmark: Any, peer: str, tmp_path: Path) -> None:
    """The peers' data come as their tutorials feed it; `lean` gives them whole batches cut beforehand."""
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed: pip install 'parity-suite[peers]'")
    from benchmarks.bare_torch import BareLoop
    from benchmarks.peers_train import ARMS, Job

    spec = load("mlp-digits", overrides=["dropout.rate=0.0", "validate_every=0", "save.every=1000000"])
    trainer: Any = sides.load("torch").build(override(spec, [f"steps={STEPS}"]))  # nothing is fetched after them
    start, weights = trainer.export_state(), {k: v.clone() for k, v in trainer.model.state_dict().items()}

    def reset() -> None:
        trainer.import_state(start)
        trainer.feed = Prefetcher(open_stream(spec, trainer.dataset), trainer._place)

    def run() -> Any:
        return np.array([record.loss for record in trainer.steps(STEPS)], np.float32)

    bare = BareLoop(spec, STEPS, weights, None)
    arms = [
        Arm(name="twin", run=run, reset=reset, steps=STEPS),
        Arm(name="bare", run=bare.run, reset=bare.reset, steps=STEPS),
    ]
    for name, lean in ((peer, False), (f"lean {peer}", True)):
        arms.append(ARMS[peer](Job(spec=spec, steps=STEPS, start=weights, lean=lean), name, tmp_path))
    assert_same_losses(run_all(arms), STEPS)
    measured = run_paired(benchmark, arms, ratios(peer), rounds=5)
    measured.note(peer, peer_version=importlib.metadata.version(peer))
