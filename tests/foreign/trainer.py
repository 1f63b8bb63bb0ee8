"""A trainer that a team brings: linear regression in plain NumPy, with a checkpoint format of its own.

It uses of the suite what any trainer needs to be checked, and nothing of RunSpec or the twins. No registry knows it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from parity import policy, storage
from parity.checkpoints import DRAFT, Seal, after_save, commit, require_own, require_verified
from parity.contract import Pace, RunIdentity, RunPlan, StepRecord, Validation
from parity.errors import CheckpointError, StateError, UnsealedError
from parity.policy import Rules, Which
from parity.runs import RunDirectory
from parity.state import TrainingState, leaf_digests

__all__ = ["FAULTS", "Config", "Numbers", "NumpySide", "keeping"]

SAMPLES, BATCH, WIDTH = 40, 8, 3
FREE = ("steps", "save_every", "keep")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A run, as this trainer understands it."""

    steps: int = 40
    save_every: int = 8
    seed: int = 1
    lr: float = 0.05
    keep: Rules = field(default_factory=lambda: Rules(mode="min"))

    @property
    def plan(self) -> RunPlan:
        """Return when it saves, validates and stops."""
        return RunPlan(
            steps=self.steps,
            save_every=self.save_every,
            saves_new_best=self.keep.keep_best > 0,
            validate_every=self.save_every,
            metric="correlation" if self.keep.mode == "max" else "loss",
            keep=self.keep,
            chunk=4,
        )

    @property
    def identity(self) -> RunIdentity:
        """Return what makes it this run and no other."""
        keep = {f"keep.{name}": value for name, value in asdict(self.keep).items()}
        fields = {"steps": self.steps, "save_every": self.save_every, "seed": self.seed, "optimizer.lr": self.lr}
        return RunIdentity.of({**fields, **keep}, free=FREE)


@dataclass
class Numbers:
    """Everything that changes while it trains."""

    weight: np.ndarray
    momentum: np.ndarray
    position: int
    """Samples consumed; gives the epoch and the place in it."""
    noise: np.random.Generator
    """Of the inputs, drawn anew at each step."""
    step: int = 0


class NumpyTrainer:
    """Momentum SGD on shuffled, noisy samples."""

    side = "numpy"

    def __init__(self, config: Config, directory: Path | None, attempt: int, plant: Plant | None) -> None:
        self.config, self.attempt, self.plant = config, attempt, plant
        self.plan, self.identity = config.plan, config.identity
        made = np.random.default_rng(0)
        self.inputs = made.normal(size=(SAMPLES, WIDTH))
        self.targets = self.inputs @ np.arange(1.0, WIDTH + 1) + 0.1 * made.normal(size=SAMPLES)
        self.spec_hash = self.identity.hash(xxhash.xxh3_128_hexdigest(self.inputs.tobytes() + self.targets.tobytes()))
        self.numbers = self._start()
        self.store = None if directory is None else RunDirectory(directory).store

    @property
    def step(self) -> int:
        """Return the number of completed steps."""
        return self.numbers.step

    def _start(self) -> Numbers:
        noise = np.random.default_rng([self.config.seed, 1])
        return Numbers(weight=np.zeros(WIDTH), momentum=np.zeros(WIDTH), position=0, noise=noise)

    def steps(self, until: int) -> Iterator[StepRecord]:
        """Train up to a step, yielding the records of each chunk when it is done."""
        pace = Pace(self.plan)
        while self.step < until:
            n = self.plan.chunk_length(self.step, until, pace.limit)
            yield from [self._one() for _ in range(n)]

    def _one(self) -> StepRecord:
        now = self.numbers
        epoch, at = divmod(now.position, SAMPLES)
        order = np.random.default_rng([self.config.seed, 2, epoch]).permutation(SAMPLES)
        rows = order[np.arange(at, at + BATCH) % SAMPLES]
        x, y = self.inputs[rows] + 0.01 * now.noise.normal(size=(BATCH, WIDTH)), self.targets[rows]
        error = x @ now.weight - y
        gradient = 2 * x.T @ error / BATCH
        now.momentum = 0.9 * now.momentum + gradient
        now.weight = now.weight - self.config.lr * now.momentum
        now.position, now.step = now.position + BATCH, now.step + 1
        return StepRecord(
            attempt=self.attempt,
            step=now.step,
            loss=float(np.mean(error**2)),
            lr=self.config.lr,
            grad_norm=float(np.linalg.norm(gradient)),
            loss_scale=1.0,
            skipped=False,
            batch=xxhash.xxh3_128_hexdigest(rows.tobytes()),
            epoch=epoch,
            samples=now.position,
            seconds=1e-4,
        )

    def evaluate(self) -> Validation:
        """Measure on all samples, without noise."""
        found = self.inputs @ self.numbers.weight
        loss = float(np.mean((found - self.targets) ** 2))
        value = loss if self.plan.metric == "loss" else float(np.corrcoef(found, self.targets)[0, 1])
        return Validation(attempt=self.attempt, step=self.step, metric=self.plan.metric, value=value, loss=loss)

    def note_best(self, metric: float | None) -> None:
        """Do nothing: the state holds no best."""

    def save(self, metric: float | None, *, saved_at: float | None = None) -> None:
        """Write, seal and rename a checkpoint; then remove what the policy no longer keeps."""
        assert self.store is not None, "built without a directory"
        final = self.store.path / str(self.step)
        if final.exists():
            raise CheckpointError(f"{final} exists already")
        storage.make_directory(self.store.path)
        draft = self.store.path / f"{DRAFT}{self.step}-{os.getpid()}"
        draft.mkdir()
        state = self.export_state()
        (draft / "numbers.bin").write_bytes(b"".join(array.tobytes() for array in state.arrays.values()))
        storage.write_file(draft / "rest.json", json.dumps(dict(state.scalars)))
        seal = Seal(
            step=self.step,
            metric=metric,
            saved_at=time.time() if saved_at is None else saved_at,
            side=self.side,
            spec_hash=self.spec_hash,
            leaves=leaf_digests(state),
        )
        self.store.sync()
        commit(draft, final, seal)
        with after_save(self.step):
            scan = self.store.scan()
            keep = policy.kept(scan.whole, self.plan.keep)
            self.store.point(scan, self.plan, keep)
            for saved in scan.whole:
                if saved.step not in keep:
                    self.store.evict(saved.step)

    def restore(self, which: Which) -> int:
        """Load a checkpoint and return its step."""
        assert self.store is not None, "built without a directory"
        path = self.store.path / str(self.store.choose(self.store.scan(), which, self.plan))
        try:
            require_own(require_verified(path), self.spec_hash)
        except UnsealedError:
            assert isinstance(which, int), "only one that is named is taken unverified"
        weight, momentum = np.frombuffer((path / "numbers.bin").read_bytes()).reshape(2, WIDTH)
        arrays = {"model.params.weight": weight, "optimizer.momentum.weight": momentum}
        self.import_state(TrainingState(arrays=arrays, scalars=json.loads((path / "rest.json").read_text())))
        if self.plant is not None:
            self.plant(self.numbers, self._start())
        return self.step

    def wait(self) -> None:
        """Return at once: a save is durable when it returns."""

    def close(self) -> None:
        """Hold nothing."""

    def export_state(self, *, copy: bool = True) -> TrainingState:
        """Return everything that must survive a stop."""
        del copy
        now = self.numbers
        return TrainingState(
            arrays={"model.params.weight": now.weight.copy(), "optimizer.momentum.weight": now.momentum.copy()},
            scalars={
                "data.position": {"samples": now.position},
                "rng.noise": now.noise.bit_generator.state,
                "counters.step": now.step,
            },
        )

    def import_state(self, state: TrainingState) -> None:
        """Become the given state."""
        own = self.export_state()
        for name in sorted(({*own.arrays} ^ {*state.arrays}) | ({*own.scalars} ^ {*state.scalars})):
            raise StateError(name, "is missing or unexpected")
        noise = np.random.default_rng()
        noise.bit_generator.state = state.scalars["rng.noise"]
        self.numbers = Numbers(
            weight=state.arrays["model.params.weight"].copy(),
            momentum=state.arrays["optimizer.momentum.weight"].copy(),
            position=state.scalars["data.position"]["samples"],
            noise=noise,
            step=state.scalars["counters.step"],
        )


Plant = Callable[[Numbers, Numbers], None]
"""Spoils what was restored; the second are the numbers of a new run."""


def _momentum_lost(now: Numbers, new: Numbers) -> None:
    now.momentum = new.momentum


def _position_off_by_one(now: Numbers, new: Numbers) -> None:
    del new
    now.position += 1


def _noise_reseeded(now: Numbers, new: Numbers) -> None:
    now.noise = new.noise


FAULTS: Mapping[str, tuple[Plant, str]] = {
    "momentum lost": (_momentum_lost, "optimizer.momentum"),
    "position off by one": (_position_off_by_one, "data.position"),
    "noise reseeded": (_noise_reseeded, "rng"),
}
"""Name to what a resume does wrong, and to the component that the check must name first."""


@dataclass(frozen=True)
class NumpySide:
    """What the harness is given."""

    fault: str = ""

    def build(self, config: Config, /, directory: Path | None = None, *, attempt: int = 0) -> NumpyTrainer:
        """Build a trainer at step 0."""
        plant = FAULTS[self.fault][0] if self.fault else None
        return NumpyTrainer(config, directory, attempt, plant)

    def topology(self, config: Config, /) -> dict[str, Any]:
        """Return what bitwise equality depends on beside the run."""
        del config
        return {"numpy": np.__version__}


def keeping(rules: Rules) -> Config:
    """Return the run that the policy check drives."""
    return replace(Config(steps=1000, save_every=10), keep=rules)
