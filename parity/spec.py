"""RunSpec: everything that says what a run is, as frozen values checked when they are made.

Presets are functions that return a RunSpec. Reading and writing TOML, overrides and differences live in
`specfile.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from parity.errors import UnknownNameError
from parity.model_spec import CnnSpec, GptSpec, MlpSpec, ModelSpec, positive, require, require_numbers, shown
from parity.plan import RunPlan
from parity.policy import Rules, mode_of

__all__ = [
    "PRECISIONS",
    "PRESETS",
    "AdamSpec",
    "CnnSpec",
    "DataSpec",
    "DropoutSpec",
    "ExecutionSpec",
    "GptSpec",
    "MeshSpec",
    "MlpSpec",
    "ModelSpec",
    "OptimizerSpec",
    "Precision",
    "Priority",
    "RunSpec",
    "SaveSpec",
    "ScalerSpec",
    "ScheduleSpec",
    "SgdSpec",
    "preset",
]

Precision = Literal["float64", "float32", "bfloat16", "float16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
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
class AdamSpec:
    """Adam (`adam`: L2 decay in the gradient) or AdamW (`adamw`: decoupled), as torch.optim defines them."""

    kind: Literal["adam", "adamw"] = "adamw"
    lr: float = 1e-3
    """Peak learning rate; the schedule multiplies it."""
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    decay: Literal["all", "matrices"] = "all"
    """Which parameters decay: all, or only those with two or more axes."""

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        positive(self.lr, "optimizer.lr")
        positive(self.eps, "optimizer.eps")
        for name in ("beta1", "beta2"):
            require(0 <= getattr(self, name) < 1, f"optimizer.{name}", "must be in [0, 1)")
        require(self.weight_decay >= 0, "optimizer.weight_decay", "must not be negative")


@dataclass(frozen=True, kw_only=True)
class SgdSpec:
    """SGD with optional momentum (no dampening) and Nesterov, decay as L2 in the gradient."""

    kind: Literal["sgd"] = "sgd"
    lr: float = 1e-2
    momentum: float = 0.9
    """0 means no momentum buffer at all."""
    nesterov: bool = False
    weight_decay: float = 0.0
    decay: Literal["all", "matrices"] = "all"

    def __post_init__(self) -> None:
        require_numbers(self, "optimizer")
        positive(self.lr, "optimizer.lr")
        require(0 <= self.momentum < 1, "optimizer.momentum", "must be in [0, 1)")
        require(self.weight_decay >= 0, "optimizer.weight_decay", "must not be negative")
        require(not self.nesterov or self.momentum > 0, "optimizer.nesterov", "needs a momentum above 0")


OptimizerSpec = AdamSpec | SgdSpec


@dataclass(frozen=True, kw_only=True)
class ScheduleSpec:
    """Learning-rate factor by completed steps; linear warm-up first, then the named shape."""

    kind: Literal["constant", "linear", "cosine"] = "cosine"
    warmup: int = 0
    """Steps of linear warm-up; step w of it uses (w + 1) / (warmup + 1) of the peak."""
    horizon: int = 1000
    """Step at which `linear` and `cosine` reach `final`; later steps stay there. Not where training stops."""
    final: float = 0.0
    """Fraction of the peak at the horizon."""

    def __post_init__(self) -> None:
        require_numbers(self, "schedule")
        require(self.warmup >= 0, "schedule.warmup", "must not be negative")
        require(0 <= self.final <= 1, "schedule.final", "must be in [0, 1]")
        require(
            self.horizon > self.warmup,
            "schedule.horizon",
            f"must lie after the warm-up of {self.warmup} steps, got {self.horizon}",
        )


@dataclass(frozen=True, kw_only=True)
class ScalerSpec:
    """Dynamic loss scaling of float16 runs, as torch.amp.GradScaler does it."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    max_skips: int = 20
    """Stop after this many skipped steps in a row."""
    overflow_steps: tuple[int, ...] = ()
    """Steps whose scaled loss is multiplied by infinity, to force an overflow (drills and tests); float16 only."""

    def __post_init__(self) -> None:
        require_numbers(self, "scaler")
        require(self.init_scale >= 1, "scaler.init_scale", f"must be at least 1, got {self.init_scale}")
        require(self.growth_factor > 1, "scaler.growth_factor", "must be above 1")
        require(0 < self.backoff_factor < 1, "scaler.backoff_factor", "must be in (0, 1)")
        for name in ("growth_factor", "backoff_factor"):
            exact = math.frexp(getattr(self, name))[0] == 0.5
            require(exact, f"scaler.{name}", "must be a power of two: only then both sides scale without rounding")
        positive(self.growth_interval, "scaler.growth_interval")
        positive(self.max_skips, "scaler.max_skips")
        for step in self.overflow_steps:
            require(step > 0, "scaler.overflow_steps", f"steps count from 1, got {step}")


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


QUICK_STEPS = ExecutionSpec(chunk=100)
"""Of presets whose step takes a millisecond or so: what a chunk costs beside its steps, about a millisecond with cold
caches, then adds one percent at most."""


def _mlp_digits() -> RunSpec:
    return RunSpec(name="mlp-digits", model=MlpSpec(), schedule=ScheduleSpec(warmup=20), execution=QUICK_STEPS)


def _cnn_digits() -> RunSpec:
    return RunSpec(
        name="cnn-digits",
        model=CnnSpec(),
        optimizer=SgdSpec(lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4, decay="matrices"),
        schedule=ScheduleSpec(kind="linear", warmup=20, final=0.1),
        execution=QUICK_STEPS,
    )


def _gpt_text() -> RunSpec:
    return RunSpec(
        name="gpt-text",
        model=GptSpec(),
        data=DataSpec(source="text", validation=128),
        optimizer=AdamSpec(lr=1e-3, beta2=0.95, weight_decay=0.1, decay="matrices"),
        schedule=ScheduleSpec(warmup=20, final=0.1),
        batch=16,
        accumulation=2,
        metric="loss",
    )


PRESETS: dict[str, Callable[[], RunSpec]] = {
    "mlp-digits": _mlp_digits,
    "cnn-digits": _cnn_digits,
    "gpt-text": _gpt_text,
}


def preset(name: str, precision: Precision = "float32") -> RunSpec:
    """Return a preset by name, in a precision.

    A float16 preset starts at a scale of 2**10 that grows every 40 steps, so that growth shows within the
    200 steps such a run is given on CPU.

    Raises:
        UnknownNameError: No such preset.

    Example:
        >>> preset("mlp-digits").model.hidden
        (128, 128)
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, PRESETS)
    spec = replace(PRESETS[name](), precision=precision)
    if precision == "float16":
        spec = replace(spec, scaler=ScalerSpec(init_scale=1024.0, growth_interval=40))
    return spec
