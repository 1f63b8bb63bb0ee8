"""`python -m benchmarks.host_copies`: how fast 1 GiB of a GPU reaches the host, by each way to copy it.

What the copies of a save rest on (`torch_side.formats.host`, `jax_side.formats.host`). Without a GPU it measures
nothing and ends with exit code 4.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # both frameworks hold their gigabyte

import numpy as np

__all__ = ["main"]

SIZE = 1 << 30
"""Bytes of all arrays together."""

ARRAYS = 16
TIMES = 3


def main() -> int:
    """Print bytes per second of each way, three times each: the first may have to find memory."""
    import torch

    if not torch.cuda.is_available():
        print("host_copies: no GPU here; nothing was measured", file=sys.stderr)
        return 4
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; GB/s of {TIMES} times")
    _torch()
    _jax()
    return 0


def _torch() -> None:
    import torch

    live = [torch.randn(SIZE // 4 // ARRAYS, device="cuda") for _ in range(ARRAYS)]
    torch.cuda.synchronize()
    warm = [torch.empty_like(one, device="cpu") for one in live]
    _timed("PyTorch, ordinary memory (fresh, then written before)", lambda: _into(warm, live))
    _timed("PyTorch, .cpu()", lambda: [one.cpu() for one in live])
    begin = time.perf_counter()
    locked = [torch.empty_like(one, device="cpu", pin_memory=True) for one in live]
    print(f"PyTorch, locking the memory: {time.perf_counter() - begin:.2f} s")
    _timed("PyTorch, page-locked memory", lambda: _into(locked, live))


def _jax() -> None:
    import jax

    print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    ways: dict[str, Callable[[list[Any]], Any]] = {
        "JAX, numpy.asarray": lambda live: [np.asarray(one) for one in live],
        "JAX, copy_to_host_async and numpy.asarray": _asynchronously,
        "JAX, device_put to pinned_host": lambda live: jax.block_until_ready(
            jax.device_put(live, [one.sharding.with_memory_kind("pinned_host") for one in live])
        ),
    }
    for name, way in ways.items():
        seconds = []
        for turn in range(TIMES):  # other arrays each time: JAX keeps what numpy.asarray has fetched
            live = jax.block_until_ready(
                [jax.random.normal(jax.random.key(turn * ARRAYS + i), (SIZE // 4 // ARRAYS,)) for i in range(ARRAYS)]
            )
            begin = time.perf_counter()
            way(live)
            seconds.append(time.perf_counter() - begin)
        _print(name, seconds)


def _asynchronously(live: list[Any]) -> list[Any]:
    for one in live:
        one.copy_to_host_async()
    return [np.asarray(one) for one in live]


def _into(targets: list[Any], sources: list[Any]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)


def _timed(name: str, way: Callable[[], Any]) -> None:
    seconds = []
    for _ in range(TIMES):
        begin = time.perf_counter()
        way()
        seconds.append(time.perf_counter() - begin)
    _print(name, seconds)


def _print(name: str, seconds: list[float]) -> None:
    print(f"{name}: " + ", ".join(f"{SIZE / 1e9 / one:.1f}" for one in seconds))


if __name__ == "__main__":
    sys.exit(main())
