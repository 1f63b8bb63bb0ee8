"""A training loop of each side, written plainly, that can be stopped after any step, saved, and continued anywhere.

PyTorch's has an optimizer of torch.optim, a scheduler of torch.optim.lr_scheduler and a torch.amp.GradScaler; JAX's
has `jax_side.optim`, a schedule of `parity.schedules` and `jax_side.scaler`. What is saved is a TrainingState.
"""

import io
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch.optim import lr_scheduler as lr

import jax_side.optim
import torch_side.optim
from jax_side.optim import by_name, clip_by_global_norm, optimizer_of
from jax_side.scaler import ScalerState, all_finite, unscale, update_scaler
from parity import schedules
from parity.schedules import Schedule
from parity.spec import ScalerSpec
from parity.state import OPTIMIZERS, GroupRule, TrainingState, pack_schedule, unpack_schedule
from tests.optim.walks import BATCH, QUICK, X, Y, shapes_for, start, torch_optimizer
from torch_side.schedules import to_torch

STEPS = 24
VALIDATE_EVERY = 4
MOST_NORM = 0.5
SCALER = ScalerSpec(init_scale=2.0**20, growth_interval=3)
"""Overflows at the start, and again after every third good step."""


class Record(NamedTuple):
    """What a step shows, in the order in which a difference is named."""

    rates: tuple[float, ...]
    scale: float
    skipped: bool
    norm: float
    """Of what the optimizer is given: unscaled and clipped."""
    loss: float


COMPONENTS = {
    "rates": "schedule.rates",
    "scale": "scaler.scale",
    "skipped": "scaler.skipped",
    "norm": "gradients",
    "loss": "model.params",
}


class Precision(NamedTuple):
    """How a loop computes."""

    params: str
    compute: str
    half: bool
    """Whether values and gradients pass float16, and the loss is scaled."""


PRECISIONS = {
    "float64": Precision("float64", "float64", False),
    "float16": Precision("float32", "float16", True),
    "rounded to float16": Precision("float64", "float64", True),
}
"""The last one rounds what the second one computes with, and adds in float64: both sides get the same float16."""


@dataclass(frozen=True)
class Case:
    """One training."""

    name: str
    schedule: str
    precision: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def how(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def rules(self) -> tuple[GroupRule, ...]:
        """Two groups, the second with a rate of its own."""
        return GroupRule(label="first", names=("first.*",)), GroupRule(
            label="second", names=("second.*",), arguments={"lr": self.rates[1]}
        )

    @property
    def rates(self) -> tuple[float, float]:
        rate = self.arguments.get("lr", OPTIMIZERS[self.name].arguments["lr"])
        return rate, rate / 2

    @property
    def moves(self) -> str:
        """Return the argument that the schedule moves beside the rate."""
        names = [name for name in ("betas", "momentum") if name in OPTIMIZERS[self.name].arguments]
        return names[0] if names and self.schedule == "one-cycle" else ""

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """Return the scheduler as a user of PyTorch makes it."""
        if self.schedule == "one-cycle":
            return lr.OneCycleLR(optimizer, list(self.rates), total_steps=STEPS + 1, cycle_momentum=bool(self.moves))
        if self.schedule == "plateau":
            return lr.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.2)
        return lr.ConstantLR(optimizer, factor=1.0, total_iters=0)

    def made(self) -> Schedule:
        """Return the schedule as a user of JAX makes it."""
        rules: dict[str, schedules.AnyRule] = {
            "one-cycle": schedules.OneCycle.of(self.rates, STEPS + 1, cycle_momentum=bool(self.moves)),
            "plateau": schedules.Plateau(factor=0.5, patience=0, threshold=0.2),
            "constant": schedules.Constant(factor=1.0, total_iters=0),
        }
        return Schedule(rules[self.schedule], list(self.rates))


def kept(arrays: Mapping[str, Any], scalars: Mapping[str, Any]) -> TrainingState:
    """Return a state that has been written and read: bytes and a text of JSON."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file) as read:
        return TrainingState(arrays=dict(read), scalars=json.loads(json.dumps(scalars)))


class TorchLoop:
    """Training in PyTorch."""

    def __init__(self, case: Case, state: TrainingState | None = None) -> None:
        self.case, self.step = case, 0
        begin = start(3, shapes_for(case.name), case.how.params) if state is None else state.group("model.params")
        own = shapes_for(case.name)  # in the order of the model, whoever has saved
        self.params = {key: torch.nn.Parameter(torch.from_numpy(begin[key].copy())) for key in own}
        groups = torch_side.optim.param_groups(case.rules, self.params.items())
        self.optimizer = torch_optimizer(case.name, groups, **case.arguments)
        self.scaler = torch.amp.GradScaler(
            "cpu",
            init_scale=SCALER.init_scale,
            growth_interval=SCALER.growth_interval,
            enabled=case.how.half,
        )
        if state is None:
            self.scheduler = case.scheduler(self.optimizer)
            return
        torch_side.optim.from_neutral(state, self.optimizer, self.params.items())
        self.scheduler = to_torch(unpack_schedule(state), self.optimizer)
        self.step = state.scalars["counters.step"]
        if case.how.half:
            scale, tracker = (state.scalars[f"scaler.{name}"] for name in ("scale", "growth_tracker"))
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": scale, "_growth_tracker": tracker})

    def loss(self, rows: slice, half: bool) -> torch.Tensor:
        p, compute = self.params, getattr(torch, self.case.how.compute)
        exact = next(iter(p.values())).dtype
        cast = (lambda v: v.to(torch.float16).to(compute)) if half else lambda v: v
        x, y = (torch.from_numpy(part[rows]).to(exact) for part in (X, Y))
        bias = {key: cast(p[key]) if key in p else 0.0 for key in ("first.bias", "second.bias")}
        hidden = torch.tanh(cast(x) @ cast(p["first.weight"]).T + bias["first.bias"])
        out = hidden @ cast(p["second.weight"]).T + bias["second.bias"]
        return ((out.to(exact) - y) ** 2).mean()

    def until(self, last: int) -> list[Record]:
        """Train to a step, and return its records."""
        records, params = [], list(self.params.values())
        while self.step < last:
            self.optimizer.zero_grad()
            rates, scale = tuple(g["lr"] for g in self.optimizer.param_groups), self.scaler.get_scale()
            loss = self.loss(slice(BATCH * (self.step % 4), BATCH * (self.step % 4 + 1)), self.case.how.half)
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(params, MOST_NORM)
            norm = torch.cat([p.grad.ravel() for p in params]).norm().item()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.step += 1
            if self.case.schedule != "plateau":
                self.scheduler.step()
            elif self.step % VALIDATE_EVERY == 0:
                with torch.no_grad():
                    self.scheduler.step(self.loss(slice(None), False).item())
            records.append(Record(rates, scale, not np.isfinite(norm), norm, loss.item()))
        return records

    def save(self) -> TrainingState:
        optimizer = torch_side.optim.to_neutral(self.optimizer, self.params.items())
        params = {f"model.params.{key}": p.detach().numpy() for key, p in self.params.items()}
        scalars = {**optimizer.scalars, "counters.step": self.step}
        scalars |= pack_schedule(torch_side.schedules.from_torch(self.scheduler))
        if self.case.how.half:
            found = self.scaler.state_dict()
            scalars |= {"scaler.scale": found["scale"], "scaler.growth_tracker": found["_growth_tracker"]}
        return kept({**params, **optimizer.arrays}, scalars)


def through_float16(values: jax.Array) -> jax.Array:
    """Round values to float16 as PyTorch does, and their gradients on the way back: from float64 by way of float32.

    XLA rounds once where the processor has an instruction for it, and one value in 18,000 then differs.
    """
    return values.astype("float32").astype("float16").astype("float32")


class JaxLoop:
    """Training in JAX."""

    def __init__(self, case: Case, state: TrainingState | None = None) -> None:
        self.case, self.step = case, 0
        with self.types():
            begin = start(3, shapes_for(case.name), case.how.params) if state is None else state.group("model.params")
            self.params = {key: jnp.asarray(value) for key, value in begin.items()}
            own = {"iteration_dtype": "float64"} if case.name == "Muon" and case.how.params == "float64" else {}
            self.scaler = ScalerState(jnp.float32(SCALER.init_scale), jnp.int32(0))
            if state is None:
                self.tx = by_name(case.name, case.arguments, groups=case.rules, scalar_dtype="float32", **own)
                self.state, self.schedule = self.tx.init(self.params), case.made()
            else:
                self.tx = optimizer_of(state, **own)
                self.state = jax_side.optim.from_neutral(self.tx, state, self.params)
                self.schedule, self.step = unpack_schedule(state), state.scalars["counters.step"]
                if case.how.half:
                    scale, tracker = (state.scalars[f"scaler.{name}"] for name in ("scale", "growth_tracker"))
                    self.scaler = ScalerState(jnp.float32(scale), jnp.int32(tracker))
            self.clip = clip_by_global_norm(MOST_NORM)
            self.train = jax.jit(self._train, compiler_options=QUICK)

    def types(self) -> Any:
        return jax.enable_x64(True) if self.case.how.params == "float64" else nullcontext()

    def loss(self, p: Any, x: jax.Array, y: jax.Array, half: bool) -> jax.Array:
        cast = (lambda v: through_float16(v).astype(self.case.how.compute)) if half else lambda v: v
        bias = {key: cast(p[key]) if key in p else 0.0 for key in ("first.bias", "second.bias")}
        hidden = jnp.tanh(cast(x) @ cast(p["first.weight"]).T + bias["first.bias"])
        out = hidden @ cast(p["second.weight"]).T + bias["second.bias"]
        return ((out.astype(y.dtype) - y) ** 2).mean()

    def gradients(self, grads: Any, scale: jax.Array) -> Any:
        """Return what the optimizer is given: unscaled, then clipped."""
        return self.clip.update(unscale(grads, scale), optax.EmptyState())[0]

    def _train(self, params: Any, state: Any, scaler: ScalerState, x: jax.Array, y: jax.Array, moved: Any) -> Any:
        half = self.case.how.half
        scale = scaler.scale.astype(x.dtype) if half else jnp.ones((), x.dtype)

        def scaled(p: Any) -> tuple[jax.Array, jax.Array]:
            loss = self.loss(p, x, y, half)
            return loss * scale, loss

        grads, loss = jax.grad(scaled, has_aux=True)(params)
        finite = all_finite(grads)
        grads = self.gradients(grads, scale)
        norm = jnp.linalg.norm(jnp.concatenate([g.ravel() for g in grads.values()]))
        updates, state = self.tx.update(grads, state, params, mask=finite if half else None, **moved)
        scaler = update_scaler(scaler, SCALER, finite) if half else scaler
        return optax.apply_updates(params, updates), state, scaler, loss, norm

    def moved(self) -> dict[str, Any]:
        """Return the rates now, and the betas or momenta if the schedule moves them, by the label of each group."""
        labels = [group.label for group in self.tx.groups]
        found: dict[str, Any] = {"learning_rate": dict(zip(labels, self.schedule.rates, strict=True))}
        if self.case.moves:
            momenta, groups = self.schedule.momenta or (), zip(labels, self.tx.groups, strict=True)
            rest = {label: group.arguments.get("betas", ())[1:] for label, group in groups}
            pairs = zip(labels, momenta, strict=True)
            found[self.case.moves] = {k: (v, *rest[k]) if self.case.moves == "betas" else v for k, v in pairs}
        return found

    def until(self, last: int) -> list[Record]:
        """Train to a step, and return its records."""
        records = []
        with self.types():
            while self.step < last:
                rows = slice(BATCH * (self.step % 4), BATCH * (self.step % 4 + 1))
                rates, scale = self.schedule.rates, float(self.scaler.scale) if self.case.how.half else 1.0
                x, y = (jnp.asarray(part[rows], self.case.how.params) for part in (X, Y))
                self.params, self.state, self.scaler, loss, norm = self.train(
                    self.params, self.state, self.scaler, x, y, self.moved()
                )
                self.step += 1
                self.advance()
                records.append(Record(rates, scale, not np.isfinite(norm), float(norm), float(loss)))
        return records

    def advance(self) -> None:
        """Move the schedule on, after a completed step."""
        if self.case.schedule != "plateau":
            self.schedule.step()
        elif self.step % VALIDATE_EVERY == 0:
            x, y = (jnp.asarray(part, self.case.how.params) for part in (X, Y))
            self.schedule.step(float(self.loss(self.params, x, y, False)))

    def save(self) -> TrainingState:
        with self.types():
            optimizer = jax_side.optim.to_neutral(self.tx, self.state, self.params, **self.moved())
        params = {f"model.params.{key}": np.asarray(value) for key, value in self.params.items()}
        scalars = {**optimizer.scalars, "counters.step": self.step, **pack_schedule(self.schedule)}
        if self.case.how.half:
            scalars |= {
                "scaler.scale": float(self.scaler.scale),
                "scaler.growth_tracker": int(self.scaler.growth_tracker),
            }
        return kept({**params, **optimizer.arrays}, scalars)
