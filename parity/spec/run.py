"""RunSpec, the full description of a training run, as frozen dataclasses that are checked when they are created.

`presets.py` has complete ones by name. `toml.py` reads and writes TOML, applies overrides and lists differences.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from parity.contract import PRECISIONS, Precision, RunPlan
from parity.errors import RunDirectoryError, SpecError
from parity.policy import Rules, mode_of
from parity.spec.mesh import MeshSpec, require_mesh
from parity.spec.models import ModelSpec
from parity.spec.optimizer import LATER, AdamSpec, OptimizerSpec
from parity.spec.scaler import ScalerSpec
from parity.spec.schedule import AnyScheduleSpec, RuleSpec, ScheduleSpec
from parity.spec.values import require, require_at_least_zero, require_numbers, require_positive
from parity.storage import Priority, shown
from parity.storage.stores import parse_url

__all__ = [
    "PRECISIONS",
    "DataSpec",
    "DropoutSpec",
    "ExecutionSpec",
    "Precision",
    "RunSpec",
    "SaveSpec",
]

MOST_THREADS = 1024
"""Largest number of threads of a PyTorch process; OpenMP ends a process that asks for more than the system allows, as
it did for 100,000."""


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """The training data and how batches are read.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    source: Literal["digits", "text", "regression"] = "digits"
    """`digits`: scikit-learn's 1,797 images of 8 by 8 pixels. `text`: the bytes of `path`. `regression`: samples of a
    linear map with noise, drawn from the seed."""
    path: str = ""
    """UTF-8 file for `text`; empty for the English text of the standard library's pydoc_data.topics."""
    reader: Literal["memory", "grain"] = "memory"
    """`memory`: chunks are cut from arrays in memory. `grain`: a Grain iterator, which resumes by its own state."""
    validation: int = 360
    """Number of samples held out for validation."""

    def __post_init__(self) -> None:
        require_numbers(self, "data")
        require_positive(self, "data", "validation")
        read = self.source == "text" or not self.path
        require(read, "data.path", f"is read only with source 'text', not {self.source!r}; remove it")


@dataclass(frozen=True, kw_only=True)
class DropoutSpec:
    """The dropout rate and the source of its masks.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    rate: float = 0.1
    """Probability of dropping an element, in [0, 1)."""
    generator: Literal["shared", "native"] = "shared"
    """`shared`: Threefry, the same masks on both sides. `native`: the framework's own random stream."""

    def __post_init__(self) -> None:
        require_numbers(self, "dropout")
        require(0 <= self.rate < 1, "dropout.rate", f"must be in [0, 1), got {self.rate}")


@dataclass(frozen=True, kw_only=True)
class SaveSpec:
    """When to save and how many checkpoints to keep."""

    every: int = 100
    """Steps between saves; the last step is always saved."""
    on_best: Literal["auto", "always", "never"] = "auto"
    """Whether a validation that is a new best is saved at once. `auto`: if neither `save.every` nor
    `validate_every` is a multiple of the other, so that few validations, or none, coincide with a save."""
    keep_latest: int = 3
    """Number of newest checkpoints that stay; at least 1."""
    keep_best: int = 1
    """Number of best checkpoints by metric that stay; 0 for none."""
    keep_every: int = 0
    """Checkpoints of steps that are a multiple of this stay for good; 0 for none."""
    keep_seconds: float = 0.0
    """One checkpoint for every period of this many seconds stays for good; 0 for none."""
    remote: str = field(default="", metadata=LATER)
    """Where each checkpoint is copied to while the run trains, `s3://bucket/prefix` or `gs://bucket/prefix`; empty
    for nowhere. Credentials come from the environment, never from here."""

    def __post_init__(self) -> None:
        require_numbers(self, "save")
        if self.remote:
            try:
                parse_url(self.remote)
            except RunDirectoryError as error:
                raise SpecError("save.remote", str(error)) from None
        require_positive(self, "save", "every", "keep_latest")
        require_at_least_zero(self, "save", "keep_best", "keep_every", "keep_seconds")
        kept = self.on_best != "always" or self.keep_best > 0
        require(kept, "save.on_best", "'always' has no effect without save.keep_best of 1 or more")


@dataclass(frozen=True, kw_only=True)
class ExecutionSpec:
    """How the steps are executed: this changes speed and rounding, not what is computed.

    Raises:
        SpecError: A value is out of range, or does not fit another one; names the field.
    """

    jax: Literal["scan", "loop"] = "scan"
    """`scan`: one call for a chunk of steps. `loop`: a Python loop over the jitted step."""
    torch: Literal["eager", "compile"] = "eager"
    """Whether PyTorch runs the step eagerly or through torch.compile."""
    chunk: int = 50
    """Largest number of steps in a chunk; every save, validation and stop also ends a chunk."""
    chunk_seconds: float = 5.0
    """Longest time that a chunk should take, because signals are handled at its end: chunks are halved until they are
    short enough. It applies to a single process; several processes of a run must cut the same chunks, and their
    clocks differ."""
    threads: int = 1
    """CPU threads of a PyTorch process; 0 for PyTorch's default. Bitwise equality requires the same number."""
    save_priority: Priority = "idle"
    """Priority of the threads that write a large checkpoint, until one is late for the next; `normal` if other
    programs leave no processor idle."""

    def __post_init__(self) -> None:
        require_numbers(self, "execution")
        require_positive(self, "execution", "chunk", "chunk_seconds")
        require_at_least_zero(self, "execution", "threads")
        most = f"must be at most {MOST_THREADS}, got {self.threads}"
        require(self.threads <= MOST_THREADS, "execution.threads", most)


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training run, the same on both sides.

    Raises:
        SpecError: A value, or a combination of values, cannot be used; the error names the field.

    Example:
        >>> from parity.spec import MlpSpec
        >>> RunSpec(name="small", model=MlpSpec(hidden=(16,)), batch=32, accumulation=2).micro_batch
        16
    """

    name: str
    """At most 200 letters, digits, `.`, `_` and `-`; identifies the spec in reports."""
    model: ModelSpec
    data: DataSpec = field(default_factory=DataSpec)
    optimizer: OptimizerSpec = field(default_factory=AdamSpec)
    schedule: AnyScheduleSpec = field(default_factory=ScheduleSpec)
    precision: Precision = "float32"
    """`float64` and `float32`: everything is in that type. `bfloat16` and `float16`: the forward pass is in that
    type, parameters and optimizer are in float32."""
    scaler: ScalerSpec = field(default_factory=ScalerSpec)
    """Loss scaling, used in float16. In other precisions it has no effect, so that the precision can be changed
    alone; only `overflow_steps` are refused there."""
    batch: int = 64
    """Samples per step, over all devices and micro-batches."""
    accumulation: int = 1
    """Micro-batches per step; must divide the batch."""
    clip_norm: float = 1.0
    """Largest global norm of the gradient; 0 turns clipping off."""
    dropout: DropoutSpec = field(default_factory=DropoutSpec)
    seed: int = 0
    """Seed in [0, 2**32) of the initial parameters, the data order and the dropout masks."""
    steps: int = 1000
    """Step after which the run stops."""
    save: SaveSpec = field(default_factory=SaveSpec)
    validate_every: int = 100
    """Steps between validations; 0 turns them off."""
    metric: Literal["accuracy", "loss"] = "accuracy"
    """Validation quantity that decides which checkpoint is the best: the largest accuracy, or the smallest loss."""
    execution: ExecutionSpec = field(default_factory=ExecutionSpec)
    mesh: MeshSpec = field(default_factory=MeshSpec)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**32, "seed", f"must be in [0, 2**32), got {shown(self.seed)}")
        require_numbers(self, seed=2**32 - 1)
        require(len(self.name) <= 200, "name", f"must be at most 200 characters, got {len(self.name)}")
        named = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.name)
        require(named is not None, "name", f"must be letters, digits, '.', '_' and '-', got {self.name!r}")
        require_positive(self, "", "batch", "accumulation", "steps")
        require(self.precision in PRECISIONS, "precision", f"must be one of {', '.join(PRECISIONS)}")
        require(
            self.scaled or not self.scaler.overflow_steps,
            "scaler.overflow_steps",
            f"have an effect only with precision 'float16', not {self.precision!r}; remove them",
        )
        require_at_least_zero(self, "", "clip_norm", "validate_every")
        validated = self.save.on_best != "always" or self.validate_every > 0
        require(validated, "save.on_best", "'always' has no effect while validate_every is 0")
        require(
            self.batch % self.accumulation == 0,
            "accumulation",
            f"{self.batch} samples / {self.accumulation} micro-batches leaves {self.batch % self.accumulation}",
        )
        require_mesh(self.mesh, self.model, self.batch, self.accumulation)
        source = self.data.source
        require(
            source in self.model.SOURCES,
            "data.source",
            f"{self.data.source!r} does not fit a model of kind {self.model.kind!r}",
        )
        self._check_rule()
        judged = source == "digits" or self.metric == "loss"
        require(judged, "metric", f"a {source} run is judged by 'loss', it has no accuracy")

    def _check_rule(self) -> None:
        """Refuse a rule of the schedule that nothing would move, or that moves what the optimizer has not."""
        if not isinstance(self.schedule, RuleSpec):
            return
        own = self.optimizer.arguments()
        moves = bool(own.get("momentum") or "betas" in own) or not self.schedule.rule.momentum
        problem = f"moves the momentum, and {self.optimizer.kind} has none here; say cycle_momentum = false"
        require(moves, "schedule.rule", problem)
        measured = self.validate_every > 0 or not self.schedule.rule.metric
        require(measured, "schedule.rule", "moves by the metric of a validation, and validate_every is 0")

    @property
    def plan(self) -> RunPlan:
        """The facts about this run that the harness needs."""
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
            metric_moves=isinstance(self.schedule, RuleSpec) and self.schedule.rule.metric,
            chunk=self.execution.chunk,
            chunk_seconds=self.execution.chunk_seconds,
        )

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch, over all devices."""
        return self.batch // self.accumulation

    @property
    def scaled(self) -> bool:
        """Whether loss scaling is on: in float16."""
        return self.precision == "float16"
