"""RunSpec: everything that says what a run is, as frozen values checked when they are made.

Presets are functions that return a RunSpec. Reading and writing TOML, overrides and differences live in
`specfile.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from parity.contract import PRECISIONS, Precision, RunPlan
from parity.policy import Rules, mode_of
from parity.spec.model import ModelSpec, positive, require, require_numbers, shown
from parity.spec.optimizer import AdamSpec, OptimizerSpec, ScalerSpec, ScheduleSpec

__all__ = [
    "PRECISIONS",
    "DataSpec",
    "DropoutSpec",
    "ExecutionSpec",
    "MeshSpec",
    "Precision",
    "Priority",
    "RunSpec",
    "SaveSpec",
]

Priority = Literal["idle", "normal"]

MOST_THREADS = 1024
"""Of one PyTorch process: OpenMP ends a process that asks for more than the system allows (100,000, where tried)."""


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """What is trained on and how batches are read."""

    source: Literal["digits", "text"] = "digits"
    """`digits`: scikit-learn's 1,797 images. `text`: bytes of `path`."""
    path: str = ""
    """UTF-8 file for `text`; empty means the English text of the standard library's pydoc_data.topics."""
    reader: Literal["memory", "grain"] = "memory"
    """`memory`: whole chunks cut from arrays. `grain`: a Grain iterator and its own state."""
    validation: int = 360
    """Samples held out for validation."""

    def __post_init__(self) -> None:
        require_numbers(self, "data")
        positive(self.validation, "data.validation")
        read = self.source == "text" or not self.path
        require(read, "data.path", f"is read only with source 'text', not {self.source!r}; remove it")


@dataclass(frozen=True, kw_only=True)
class DropoutSpec:
    """Dropout rate and where its masks come from."""

    rate: float = 0.1
    generator: Literal["shared", "native"] = "shared"
    """`shared`: Threefry, the same masks on both sides. `native`: the framework's own stream."""

    def __post_init__(self) -> None:
        require_numbers(self, "dropout")
        require(0 <= self.rate < 1, "dropout.rate", f"must be in [0, 1), got {self.rate}")


@dataclass(frozen=True, kw_only=True)
class SaveSpec:
    """When to save and how many checkpoints to keep."""

    every: int = 100
    """Steps between saves; the last step is always saved."""
    on_best: Literal["auto", "always", "never"] = "auto"
    """Whether a validation that is a new best is saved at once. `auto`: where neither `save.every` nor
    `validate_every` is a multiple of the other, so that few validations, or none, fall on a save."""
    keep_latest: int = 3
    """The n newest stay; at least 1."""
    keep_best: int = 1
    """The m best by metric stay; 0 for none."""
    keep_every: int = 0
    """Checkpoints of steps that are a multiple of this stay for good; 0 for none."""
    keep_seconds: float = 0.0
    """One checkpoint for every such time of training stays for good; 0 for none."""

    def __post_init__(self) -> None:
        require_numbers(self, "save")
        positive(self.every, "save.every")
        positive(self.keep_latest, "save.keep_latest")
        for name in ("keep_best", "keep_every", "keep_seconds"):
            require(getattr(self, name) >= 0, f"save.{name}", "must not be negative")
        kept = self.on_best != "always" or self.keep_best > 0
        require(kept, "save.on_best", "'always' has no effect without save.keep_best of 1 or more")


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How the steps are executed; changes speed and rounding, never meaning."""

    jax: Literal["scan", "loop"] = "scan"
    """`scan`: a chunk of steps in one call. `loop`: a Python loop over the jitted step."""
    torch: Literal["eager", "compile"] = "eager"
    chunk: int = 50
    """Most steps in one chunk; every save, validation and stop also ends one."""
    chunk_seconds: float = 5.0
    """Longest a chunk should take: the chunk is halved until it does, so that signals are heard. In one process only:
    several that train together must cut the same chunks, and their clocks differ."""
    threads: int = 1
    """CPU threads of one PyTorch process; 0 leaves PyTorch's default. Bitwise equality needs the same number."""
    save_priority: Priority = "idle"
    """Of the threads that write a large checkpoint; `normal` where other programs leave no processor idle."""

    def __post_init__(self) -> None:
        require_numbers(self, "execution")
        positive(self.chunk, "execution.chunk")
        positive(self.chunk_seconds, "execution.chunk_seconds")
        require(self.threads >= 0, "execution.threads", "must not be negative")
        most = f"must be at most {MOST_THREADS}, got {self.threads}"
        require(self.threads <= MOST_THREADS, "execution.threads", most)


@dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """Devices of the JAX side; the batch is sharded over `data`, parameters are replicated."""

    data: int = 1

    def __post_init__(self) -> None:
        require_numbers(self, "mesh")
        positive(self.data, "mesh.data")


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run, the same on both sides."""

    name: str
    model: ModelSpec
    data: DataSpec = field(default_factory=DataSpec)
    optimizer: OptimizerSpec = field(default_factory=AdamSpec)
    schedule: ScheduleSpec = field(default_factory=ScheduleSpec)
    precision: Precision = "float32"
    """`float64`, `float32`; `bfloat16` and `float16`: forward in that type, parameters and optimizer in float32."""
    scaler: ScalerSpec = field(default_factory=ScalerSpec)
    """Used when the precision is float16. Without effect otherwise, so that a precision can be changed alone; but
    `overflow_steps`, which nobody has by default, are refused then."""
    batch: int = 64
    """Samples per step, over all devices and micro-batches."""
    accumulation: int = 1
    """Micro-batches per step."""
    clip_norm: float = 1.0
    """Largest global gradient norm; 0 turns clipping off."""
    dropout: DropoutSpec = field(default_factory=DropoutSpec)
    seed: int = 0
    """Below 2**32; gives the start, the data order and the dropout masks."""
    steps: int = 1000
    """Where to stop."""
    save: SaveSpec = field(default_factory=SaveSpec)
    validate_every: int = 100
    """Steps between validations; 0 turns them off."""
    metric: Literal["accuracy", "loss"] = "accuracy"
    """Validation quantity that decides the best checkpoint; accuracy is maximised, loss minimised."""
    execution: ExecutionSpec = field(default_factory=ExecutionSpec)
    mesh: MeshSpec = field(default_factory=MeshSpec)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, "seed", f"must be in [0, 2**32), got {shown(self.seed)}")
        require_numbers(self, seed=2**32 - 1)
        require(len(self.name) <= 200, "name", f"must be at most 200 characters, got {len(self.name)}")
        named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name)
        require(named is not None, "name", f"must be letters, digits, '.', '_' and '-', got {self.name!r}")
        for name in ("batch", "accumulation", "steps"):
            positive(getattr(self, name), name)
        require(self.precision in PRECISIONS, "precision", f"must be one of {', '.join(PRECISIONS)}")
        require(
            self.scaled or not self.scaler.overflow_steps,
            "scaler.overflow_steps",
            f"have an effect only with precision 'float16', not {self.precision!r}; remove them",
        )
        require(self.clip_norm >= 0, "clip_norm", "must not be negative")
        require(self.validate_every >= 0, "validate_every", "must not be negative")
        validated = self.save.on_best != "always" or self.validate_every > 0
        require(validated, "save.on_best", "'always' has no effect while validate_every is 0")
        require(
            self.batch % self.accumulation == 0,
            "accumulation",
            f"{self.batch} samples / {self.accumulation} micro-batches leaves {self.batch % self.accumulation}",
        )
        require(
            self.micro_batch % self.mesh.data == 0,
            "mesh.data",
            f"micro-batch of {self.batch} / {self.accumulation} = {self.micro_batch} samples over "
            f"{self.mesh.data} devices leaves {self.micro_batch % self.mesh.data}",
        )
        text = self.data.source == "text"
        require(
            text == (self.model.kind == "gpt"),
            "data.source",
            f"{self.data.source!r} does not fit a model of kind {self.model.kind!r}",
        )
        require(not text or self.metric == "loss", "metric", "a text run is judged by 'loss', it has no accuracy")

    @property
    def plan(self) -> RunPlan:
        """What the harness needs to know of the run."""
        save = self.save
        meet = self.validate_every > 0 and (
            save.every % self.validate_every == 0 or self.validate_every % save.every == 0
        )
        at_once = save.on_best == "always" or (save.on_best == "auto" and not meet)
        rules = Rules(
            mode=mode_of(self.metric),
            keep_latest=save.keep_latest,
            keep_best=save.keep_best,
            keep_every=save.keep_every,
            keep_seconds=save.keep_seconds,
        )
        return RunPlan(
            steps=self.steps,
            save_every=save.every,
            saves_new_best=at_once and self.validate_every > 0 and save.keep_best > 0,
            validate_every=self.validate_every,
            metric=self.metric,
            keep=rules,
            scaled=self.scaled,
            max_skips=self.scaler.max_skips,
            chunk=self.execution.chunk,
            chunk_seconds=self.execution.chunk_seconds,
        )

    @property
    def micro_batch(self) -> int:
        """Samples per micro-batch."""
        return self.batch // self.accumulation

    @property
    def scaled(self) -> bool:
        """Whether the loss scaler is on."""
        return self.precision == "float16"
