"""Metrics of Flax that are reset from time to time: lost, they are named before the record that they make."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from tests.live.small_loops import check, first


def trainer(*, lost: bool) -> Any:
    """Return a trainer with a mean over five steps, which a list keeps."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        w, start, metrics, history, path = np.ones(2), 0, nnx.metrics.Average("value"), [], folder / "state.pkl"
        if path.exists():
            w, start, history, leaves = pickle.loads(path.read_bytes())
            if not lost:
                nnx.update(metrics, jax.tree.unflatten(jax.tree.structure(nnx.state(metrics)), leaves))
        for n in range(start, steps):
            yield n
            error = w - np.sin(n)
            w = w - 0.1 * error
            metrics.update(value=np.float32(error @ error))
            if n % 5 == 4:
                history.append(float(metrics.compute()))
                metrics.reset()
            if n % 4 == 3:
                path.write_bytes(pickle.dumps((w, n + 1, history, jax.tree.leaves(nnx.state(metrics)))))

    return train


def renamed(*, lost: bool) -> Any:
    """Return the same under other names."""

    def train(folder: Path, steps: int) -> Iterator[int]:
        seen, k, zq, pl, at = np.ones(2), 0, nnx.metrics.Average("uv"), [], folder / "kept.pkl"
        if at.exists():
            seen, k, pl, of = pickle.loads(at.read_bytes())
            if not lost:
                nnx.update(zq, jax.tree.unflatten(jax.tree.structure(nnx.state(zq)), of))
        for m in range(k, steps):
            yield m
            off = seen - np.sin(m)
            seen = seen - 0.1 * off
            zq.update(uv=np.float32(off @ off))
            if m % 5 == 4:
                pl.append(float(zq.compute()))
                zq.reset()
            if m % 4 == 3:
                at.write_bytes(pickle.dumps((seen, m + 1, pl, jax.tree.leaves(nnx.state(zq)))))

    return train


@pytest.mark.parametrize(("make", "name"), [(trainer, "metrics"), (renamed, "zq")])
def test_a_lost_metric_is_named_before_what_it_is_written_into(make: Any, name: str) -> None:
    assert first(check(make(lost=True), scenarios=("kill",))).startswith(f"{name}.")


@pytest.mark.parametrize("make", [trainer, renamed])
def test_it_holds_where_the_metric_comes_back(make: Any) -> None:
    found = check(make(lost=False), scenarios=("kill",))
    assert found.verdict == "holds", found
