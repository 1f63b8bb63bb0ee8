"""What it costs to look at a live state: a capture of 100 M parameters against reading the same bytes with XXH3."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from benchmarks.paired import Arm, run_paired, slower
from benchmarks.saving import MILLION
from parity import sides
from parity.capture import StateSnapshot, Walk, digest_of

PARAMETERS = 100 * MILLION
LAYERS = 4


def layers(side: str) -> list[Any]:
    """Return arrays of 100 million float32 parameters together, in memory order."""
    rows = PARAMETERS // LAYERS // 5000
    if side == "torch":
        import torch

        return [torch.randn(rows, 5000) for _ in range(LAYERS)]
    import jax

    return [jax.random.normal(jax.random.key(layer), (rows, 5000)).block_until_ready() for layer in range(LAYERS)]


def capture(arrays: list[Any]) -> StateSnapshot:
    """Capture the arrays as the parameters of a loop."""
    walk = Walk()
    walk.root("params", arrays)
    return walk.finish()


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_capture_against_digests(benchmark: Any, side: str) -> None:
    """The capture holds the digest of every array; memory that it takes beside them is noted."""
    arrays = layers(side)
    sides.adapters()
    views = [memoryview(value.numpy() if side == "torch" else value.__array__()).cast("B") for value in arrays]
    assert sum(leaf.kind.startswith("float32") for leaf in capture(arrays).leaves.values()) == LAYERS
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arms = [
        Arm(name="capture", run=lambda: capture(arrays), bytes=4 * PARAMETERS),
        Arm(name="digests", run=lambda: [digest_of(view) for view in views], bytes=4 * PARAMETERS),
    ]
    measured = run_paired(benchmark, arms, [slower("capture", "digests", bar=1.5)], rounds=15, label=side)
    if measured.enabled:
        extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        measured.note("capture", extra_memory_mb=extra)
