"""What a checkpoint costs, by size: delay of the loop, time until durable, restore, bytes, peak memory, slowdown.

The model is an MLP under AdamW, so a checkpoint holds 12 bytes per parameter: 12 MB for a million, 3.6 GB for 300
million. Every cost is taken against what cannot be avoided: a memory copy of the same bytes, a raw write and fsync of
them, a read of them from the page cache.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.growth import per_unit
from benchmarks.memory import copies_of
from benchmarks.paired import Arm, Measured, Versus, run_all, run_paired, slower
from benchmarks.saving import (
    MILLION,
    Raw,
    Saver,
    SomeTrainer,
    build,
    orbax_saver,
    safetensors_saver,
    settle,
    state_bytes,
    torch_saver,
)
from benchmarks.worker import Worker
from parity import sides

LARGEST = int(os.environ.get("PARITY_BENCH_LARGEST", "300"))
"""Millions of parameters of the largest state: where there is less memory, disk or time."""

SIZES = [
    pytest.param((4,), id="4 M"),
    pytest.param(
        tuple(size for size in (1, 10, 100, 300) if size <= LARGEST), id=f"to {LARGEST} M", marks=pytest.mark.slow
    ),
]
"""Millions of parameters. 300 million need 14 GB of memory and 4 GB of disk."""

JUDGED = 100
"""Millions of parameters from which the bars hold: below, files and threads cost more than bytes do."""

LINEAR = 1.25
"""What a parameter may cost at 300 million, relative to 100: more is no linear growth."""

each_side = pytest.mark.parametrize("side", ["torch", "jax"])
each_range = pytest.mark.parametrize("sizes", SIZES)


@pytest.fixture(autouse=True)
def _installed(request: Any) -> None:
    side = request.node.callspec.params["side"]
    if side not in sides.installed():
        pytest.skip(f"{side} is not installed")


@each_side
@each_range
def test_delay_of_the_loop(benchmark: Any, side: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Steps k to k+2 with a save before them, less the same steps without, in copies of the state."""
    costs = []
    for millions in sizes:
        home = tmp_path / f"{millions}"
        with Worker("benchmarks.delay:arms", side=side, parameters=millions * MILLION, home=str(home)) as worker:
            size = worker.ask("run bytes")
            arms = [
                worker.arm("steps with a save", "saving", steps=3),
                worker.arm("steps", "steps", steps=3),
                replace(worker.arm("save call", "call"), bytes=size),
                replace(worker.arm("copy", "copy"), bytes=size),
            ]
            delay = Versus(
                name="delay by a save / copy",
                of="(seconds of steps with a save - seconds of steps) / seconds of copy",
                take=lambda s: (s["steps with a save"] - s["steps"]) / s["copy"],
                better="lower",
                bar=1.5 if millions >= JUDGED else None,
            )
            blocking = slower("save call", "copy")
            count = 15 if millions <= JUDGED else 7  # a difference of two times spreads more than either
            measured = run_paired(benchmark, arms, [delay, blocking], rounds=count, label=f"{millions} M")
            measured.note(arms[0].name, side=side, parameters=millions * MILLION, bytes=size)
            both = zip(measured.seconds["steps with a save"], measured.seconds["steps"], strict=True)
            costs.append((millions, [a - b for a, b in both]))
        shutil.rmtree(home)
    note_line(measured, "delay of the loop", costs)


@each_side
@each_range
def test_time_until_durable(benchmark: Any, side: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """Save and wait, against a raw write and fsync of as many bytes, and against what others offer."""
    costs = []
    for millions in sizes:
        with trainer_of(side, millions, tmp_path) as trainer:
            again = partial(settle, trainer, tmp_path / "run")
            durable(trainer)
            size = on_disk(tmp_path)
            savers = others(side, trainer, tmp_path)
            arms = [
                Arm(name="durable save", run=lambda t=trainer: durable(t), reset=again, bytes=size),
                Raw(size, tmp_path).write_arm(),
                *(saver.save_arm(size) for saver in savers),
            ]
            ratios = [slower("durable save", "raw write", 1.25 if millions >= JUDGED else None)]
            ratios += [slower("durable save", saver.name) for saver in savers]
            measured = run_paired(benchmark, arms, ratios, rounds=rounds(millions), label=f"{millions} M")
            per = size / state_bytes(trainer)
            measured.note(arms[0].name, side=side, parameters=millions * MILLION, bytes_over_state=per)
            costs.append((millions, measured.seconds["durable save"]))
            for arm in arms:
                arm.reset()
    note_line(measured, "time until durable", costs)


@each_side
@each_range
def test_restore(benchmark: Any, side: str, sizes: tuple[int, ...], tmp_path: Path) -> None:
    """A verified restore into a trainer, against reading the same bytes from the page cache into new memory."""
    costs = []
    for millions in sizes:
        with trainer_of(side, millions, tmp_path) as trainer:
            durable(trainer)
            size, path = on_disk(tmp_path), tmp_path / "run" / "checkpoints" / str(trainer.step)
            savers = others(side, trainer, tmp_path)
            for saver in savers:
                saver.save()
            arms = [
                Arm(name="restore", run=lambda t=trainer: t.restore("latest"), bytes=size),
                Arm(name="read", run=lambda p=path: Raw.read(p), bytes=size),
                *(saver.load_arm(size) for saver in savers),
            ]
            ratios = [slower("restore", "read", 2.0 if millions >= JUDGED else None)]
            ratios += [slower("restore", saver.name) for saver in savers]
            measured = run_paired(benchmark, arms, ratios, rounds=rounds(millions), label=f"{millions} M")
            measured.note(arms[0].name, side=side, parameters=millions * MILLION)
            costs.append((millions, measured.seconds["restore"]))
            for saver in savers:
                saver.remove()
            settle(trainer, tmp_path / "run")
    note_line(measured, "restore", costs)


@pytest.mark.slow
@each_side
@pytest.mark.parametrize("millions", [10, 100, 300])
def test_peak_memory(benchmark: Any, side: str, millions: int) -> None:
    """How many copies of the state the peak of a save lies above that of the steps alone, in a process of its own."""
    for how in ("twin", {"torch": "torch.save", "jax": "orbax"}[side]):
        answers: list[dict[str, Any]] = []
        with Worker("benchmarks.memory:arms", side=side, parameters=millions * MILLION, how=how) as worker:
            arm = Arm(name=how, run=lambda w=worker, a=answers: a.append(w.ask("run save")))
            measured = run_paired(benchmark, [arm], [], rounds=3, label=f"{millions} M")
        copies = [answer["copies"] for answer in answers[-len(measured.seconds[how]) :]]
        bar = 1.0 if how == "twin" and millions >= JUDGED else None
        measured.note_ratio(how, copies_of(how, bar), copies)
        measured.note(how, **answers[-1], side=side)


@pytest.mark.slow
@each_side
@pytest.mark.parametrize(("every", "whole"), [(10, 100), (100, 200), (1000, 1000)])
def test_slowdown_of_training(benchmark: Any, side: str, every: int, whole: int, tmp_path: Path) -> None:
    """Training with a save every so many steps until the last is durable, against other saves and none; 10 M.

    Every 10 steps a save is due before the one before is written, whoever writes it, so no bar is set against
    training without: it is against what cannot be avoided, and against what others offer.
    """
    own = {"side": side, "parameters": 10 * MILLION, "count": whole, "every": every}
    saves = whole // every
    with ExitStack() as stack:
        worker = stack.enter_context(Worker("benchmarks.slowdown:arms", home=str(tmp_path / "own"), **own))
        workers = {"with saves": (worker, "own"), "without": (worker, "none")}
        ratios = [less_copies(saves), slower("with saves", "without")]
        if every == 10:
            apart = stack.enter_context(Worker("benchmarks.slowdown:arms", home=str(tmp_path / "apart"), **own))
            workers |= {"raw background writes": (worker, "raw"), "plain background saves": (apart, "plain")}
            ratios = [against_raw_writes(), against_plain_saves(), *ratios]
        arms = [at.arm(name, its, steps=whole) for name, (at, its) in workers.items()]
        if every == 10:
            ends = {}
            for arm in arms:
                run_all([arm])
                ends[arm.name] = workers[arm.name][0].ask("run digest")
            assert len(set(ends.values())) == 1, f"the arms end at different states: {ends}"
        copy = worker.arm("copy", "copy")
        measured = run_paired(benchmark, [*arms, copy], ratios, rounds=3 if whole >= 1000 else 5)
        measured.note("with saves", side=side, saves=saves)


def against_raw_writes() -> Versus:
    """Return the ratio to what is durable at the least: the same bytes, files, fsyncs and renames."""
    return slower("with saves", "raw background writes", bar=1.25)


def against_plain_saves() -> Versus:
    """Return the ratio to `torch.save` in a thread, or plain asynchronous Orbax: the twin must be below them."""
    return slower("with saves", "plain background saves", bar=1.0)


def less_copies(saves: int) -> Versus:
    """Return the ratio to training without saves, after a memory copy of the state was subtracted for each."""
    return Versus(
        name="with saves, less their copies / without",
        of=f"(seconds with saves - {saves} * seconds of copy) / seconds without",
        take=lambda s: (s["with saves"] - saves * s["copy"]) / s["without"],
        better="lower",
    )


def note_line(measured: Measured, name: str, costs: Sequence[tuple[int, Sequence[float]]]) -> None:
    """Note how a cost grows: the line through the medians, and what a parameter more costs at the two largest sizes.

    A line explains most of a square's variance too, over these sizes; the ratio does not let that pass.
    """
    arm = next(iter(measured.seconds))
    medians = [(millions, median(values)) for millions, values in costs]
    if len(medians) > 2:  # through two points there always is a line
        measured.note_growth(arm, name, "million parameters", "seconds", medians)
    if len(costs) < 2:
        return
    (small, before), (large, after) = costs[-2:]
    per_parameter = per_unit((small, before), (large, after))
    if per_parameter and small >= 10:  # below, both are noise
        versus = Versus(
            name=f"{name} per parameter, {large} M / {small} M",
            of=f"seconds per parameter at {large} M, round by round / their median at {small} M",
            better="lower",
            bar=LINEAR if small >= JUDGED else None,
        )
        measured.note_ratio(arm, versus, per_parameter)


def rounds(millions: int) -> int:
    """Return fewer rounds where each moves gigabytes."""
    return 5 if millions >= JUDGED else 7


@contextmanager
def trainer_of(side: str, millions: int, home: Path) -> Iterator[SomeTrainer]:
    """Yield a trainer in a run directory of its own; close it and remove the directory at the end."""
    trainer = build(side, millions * MILLION, home / "run")
    try:
        yield trainer
    finally:
        trainer.close()
        shutil.rmtree(home / "run")


def durable(trainer: SomeTrainer) -> None:
    trainer.save(None)
    trainer.wait()


def on_disk(home: Path) -> int:
    """Return the bytes of the checkpoint that is there."""
    return sum(file.stat().st_size for file in (home / "run" / "checkpoints").rglob("*") if file.is_file())


def others(side: str, trainer: SomeTrainer, home: Path) -> list[Saver]:
    """Return the savers that handle a side's state, those that are installed."""
    if side == "jax":
        return [orbax_saver(trainer, home)]
    makers: list[Callable[[SomeTrainer, Path], Saver]] = [torch_saver]
    if importlib.util.find_spec("safetensors") is not None:
        makers.append(safetensors_saver)
    return [make(trainer, home) for make in makers]
