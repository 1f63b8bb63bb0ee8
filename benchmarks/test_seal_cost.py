"""What the seal costs: the delay of the loop by a save with it against without, and verifying against reading.

The model has 100 million float32 parameters under AdamW, so a checkpoint holds 1.2 GB; both arms of a round save the
same state. Without the seal means: no digest of a leaf or a file is computed, everything else is as it was.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.saving import MILLION, build, settle, steps
from benchmarks.unsealed import unsealed
from parity.checkpoints import verify
from parity.results import ratio_summary

PARAMETERS = 100 * MILLION


def steps_seconds(trainer: Any, save: bool) -> float:
    """Return the seconds of the steps k to k+2, with a save before them or without."""
    began = time.perf_counter()
    if save:
        trainer.save(None)
    steps(trainer)
    return time.perf_counter() - began


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_delay_of_the_loop_by_a_save_with_the_seal_and_without(benchmark: Any, side: str, tmp_path: Path) -> None:
    trainer = build(side, PARAMETERS, tmp_path)
    rounds: dict[str, list[float]] = {"bare": [], "sealed": [], "unsealed": []}

    def arm(name: str) -> None:
        if name == "unsealed":
            with unsealed(side):
                seconds = steps_seconds(trainer, save=True)
                settle(trainer, tmp_path)
        else:
            seconds = steps_seconds(trainer, save=name == "sealed")
            settle(trainer, tmp_path)
        rounds[name].append(seconds)

    def one_round(order: list[str]) -> None:
        for name in order:
            arm(name)

    one_round(["sealed", "unsealed"])  # memory and the page cache are paid for here
    rounds.update({name: [] for name in rounds})
    # What a save costs depends on the memory that the arm before left: it is the same before each.
    orders = [["bare", "sealed", "bare", "unsealed"], ["bare", "unsealed", "bare", "sealed"]]
    benchmark.pedantic(lambda: [one_round(orders[i % 2]) for i in range(10)], rounds=1)
    bare = statistics.median(rounds["bare"])
    delays = {name: [t - bare for t in rounds[name]] for name in ("sealed", "unsealed")}
    whole = [a / b for a, b in zip(rounds["sealed"], rounds["unsealed"], strict=True)]
    of = "seconds of the steps with a sealed save / with an unsealed one"
    ratio = {"of": of, **ratio_summary(whole), "better": "lower", "bar": None}
    benchmark.extra_info |= {
        "parameters": sum(v.size for k, v in trainer.export_state().arrays.items() if k.startswith("model.params")),
        "seconds": rounds,
        "delay": {name: statistics.median(values) for name, values in delays.items()},
        "ratio_of_delays": statistics.median(delays["sealed"]) / statistics.median(delays["unsealed"]),
        "ratios": {"sealed / unsealed": ratio},
    }
    print(f"\n{side}: {benchmark.extra_info['delay']} ratio {benchmark.extra_info['ratio_of_delays']:.3f}", end=" ")
    print(f"loops {ratio}")


@pytest.mark.slow
@pytest.mark.parametrize("side", ["torch", "jax"])
def test_verify_against_reading_the_same_bytes(benchmark: Any, side: str, tmp_path: Path) -> None:
    """From the page cache on both arms; the reader fills one buffer, over and over, as fast as one thread can."""
    trainer = build(side, PARAMETERS, tmp_path)
    trainer.save(None)
    trainer.close()
    path = tmp_path / "checkpoints" / "2"
    files = [path / name for name in verify(path).seal.files]  # type: ignore[union-attr]
    size = sum(file.stat().st_size for file in files)
    pairs = []

    def compare() -> None:
        for number in range(10):
            arms: list[Callable[[], Any]] = [lambda: verify(path), lambda: read(files)]
            seconds = {}
            for index in (0, 1) if number % 2 == 0 else (1, 0):
                began = time.perf_counter()
                result = arms[index]()
                seconds[index] = time.perf_counter() - began
                assert index or result.whole
            pairs.append((seconds[0], seconds[1]))

    compare()
    pairs.clear()
    benchmark.pedantic(compare, rounds=1)
    ratios = [reading / verifying for verifying, reading in pairs]
    ratio = {
        "of": "seconds of reading / seconds of verifying",
        **ratio_summary(ratios),
        "better": "higher",
        "bar": None,
    }
    benchmark.extra_info |= {
        "bytes": size,
        "gigabytes_per_second": size / statistics.median(v for v, _ in pairs) / 1e9,
        "ratios": {"verify over read": ratio},
    }
    print(f"\n{side}: {size / 1e9:.2f} GB, {ratio}, ", end="")
    print(f"{benchmark.extra_info['gigabytes_per_second']:.1f} GB/s")


def read(files: list[Path]) -> None:
    buffer = bytearray(8 << 20)
    for file in files:
        handle = os.open(file, os.O_RDONLY)
        while os.readv(handle, [buffer]):
            pass
        os.close(handle)
