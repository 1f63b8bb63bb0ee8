"""The live PyTorch objects, their form in files, and the translation to and from the neutral TrainingState."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from parity.errors import StateError
from parity.schedules import Schedule
from parity.spec import RunSpec
from parity.state import TrainingState, take_count, take_scale
from parity.twins import (
    Layout,
    check_leaves,
    from_torch,
    initial_buffers,
    initial_params,
    kind_of,
    one_count,
    to_torch,
)
from torch_side.formats.structure import require_alike
from torch_side.optimizer import RuleScheduler
from torch_side.parts import Held, cut, gathered, map_parts

__all__ = [
    "LiveState",
    "check_file_state",
    "export_arrays",
    "file_state",
    "import_arrays",
    "initial_model_state",
    "load_file_state",
    "neutral_arrays",
]


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """The objects that hold everything a step reads and writes, the process's generators aside."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR | RuleScheduler
    scaler: torch.amp.GradScaler
    device: torch.device
    parts: Mapping[str, Held] | None = None
    """Parameter name to the part of it that this process holds; None where it holds all."""

    @property
    def names(self) -> list[str]:
        """Return the parameters' names in the order in which the optimizer numbers them."""
        parts = self.parts or {}
        names = {id(parts[name].local if parts else p): name for name, p in self.model.named_parameters()}
        return [names[id(p)] for group in self.optimizer.param_groups for p in group["params"]]


def initial_model_state(spec: RunSpec, layout: Layout) -> dict[str, Tensor]:
    """Return the state_dict of a model at the start of a run, buffers among it.

    Args:
        spec: The run, for its model and its seed.
        layout: The run's.

    Returns:
        Key to tensor on the CPU: float32 in every precision, int64 for the batch counters of BatchNorm.
    """
    leaves = to_torch(layout.rows, {**initial_params(spec.model, spec.seed), **initial_buffers(spec.model)}, "model")
    return {name: torch.tensor(value) for name, value in leaves.items()}


def export_arrays(
    layout: Layout, state: LiveState, *, copy: bool = True
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that PyTorch objects hold.

    Args:
        layout: The run's.
        state: What to export; of several processes, each exports the whole.
        copy: Whether the arrays outlive the next step; without, they are views of the parameters on a CPU.

    Raises:
        StateError: The parameters' step counts differ; one count cannot stand for them.
    """
    content = file_state(state)
    if state.parts is not None:
        content, copy = map_parts(content, state.names, state.parts, gathered), False
    return neutral_arrays(layout, state.names, content, copy=copy)


def neutral_arrays(
    layout: Layout, names: Sequence[str], saved: Mapping[str, Any], *, copy: bool = False
) -> tuple[dict[str, NDArray[np.generic]], dict[str, Any]]:
    """Turn the file form of a state into neutral arrays and scalars.

    PyTorch has no optimizer entries before the first applied update: they become what they start from, and step 0.

    Args:
        layout: The run's.
        names: Parameter names in the order in which the optimizer numbers them.
        saved: What `file_state` returned.
        copy: Whether the arrays are copies; otherwise they may be views.

    Raises:
        StateError: A leaf is missing or unexpected, or the parameters' step counts differ.
    """
    spec, host = layout.spec, _copied if copy else _viewed
    tensors = dict(saved["model"])
    arrays: dict[str, NDArray[np.generic]] = {}
    for group, rows in (("model.params", layout.params), ("model.buffers", layout.buffers)):
        own = {row.torch: host(tensors.pop(row.torch)) for row in rows}
        arrays |= {f"{group}.{name}": value for name, value in from_torch(rows, own, group).items()}
    if tensors:
        raise StateError(f"model.{min(tensors)}", "unexpected leaf: this model has no such parameter")
    entries = {name: saved["optimizer"]["state"].get(i, {}) for i, name in enumerate(names)}
    for own_slot in layout.slots:
        slot, leaves = own_slot.slot, {}
        for row in own_slot.rows:
            value = entries[row.torch].get(slot.key)
            leaves[row.torch] = own_slot.before(row) if value is None else host(value)
        own = from_torch(own_slot.rows, leaves, f"optimizer.{slot.name}")
        arrays |= {f"optimizer.{slot.name}.{name}": value for name, value in own.items()}
    arrays |= {f"rng.native.{name}": host(stream) for name, stream in _native_streams(layout, saved["rng"]).items()}
    scalars: dict[str, Any] = {}
    if layout.counted:
        counting = {row.name for row in layout.params if kind_of(spec.optimizer, len(row.shape)).counts}
        counts = {
            name: _count(name, entry["step"]) if "step" in entry else int(bool(entry) and name not in counting)
            for name, entry in entries.items()
        }
        scalars["optimizer.step"] = one_count(spec.optimizer, layout.params, counts)
    if spec.scaled:
        scalars["scaler.scale"] = saved["scaler"]["scale"]
        scalars["scaler.growth_tracker"] = saved["scaler"]["_growth_tracker"]
    return arrays, scalars


def import_arrays(layout: Layout, state: LiveState, neutral: TrainingState) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that make a state hold a neutral one, and the scalars that remain for the host.

    The values have the form of `file_state`, and `load_file_state` puts them in.

    Args:
        layout: The run's.
        state: Gives settings and the generators that no neutral state has; it is not changed.
        neutral: What it should hold.

    Raises:
        StateError: A leaf is missing, unexpected, or of another dtype or shape.
    """
    if any(leaf.startswith("rng.native.jax") for leaf in neutral.arrays):
        raise StateError("rng.native", "a native JAX stream has no meaning in PyTorch; use dropout.generator=shared")
    spec, scalars, values = layout.spec, dict(neutral.scalars), file_state(state)
    groups = {"model.params": layout.params, "model.buffers": layout.buffers}
    groups |= {f"optimizer.{one.slot.name}": one.rows for one in layout.slots}
    dtypes = {f"optimizer.{one.slot.name}": one.dtype for one in layout.slots}
    found: dict[str, dict[str, Tensor]] = {}
    for group, rows in groups.items():
        check_leaves(rows, neutral.group(group), group, dtypes.get(group, layout.dtype))
        leaves = to_torch(rows, neutral.group(group), group)
        # In C order: fused kernels take a moment whose strides are not its parameter's for another matrix.
        found[group] = {name: torch.tensor(np.asarray(value, order="C")) for name, value in leaves.items()}
    own, native = _native_streams(layout, values["rng"]), neutral.group("rng.native")
    for name in sorted({*own} ^ {*native}):
        problem = "is missing" if name in own else "unexpected leaf: this run has no such state"
        raise StateError(f"rng.native.{name}", problem)
    for name, stream in own.items():
        expected, got = (f"{a.dtype} {a.shape}" for a in (stream.numpy(), native[name]))
        if expected != got:
            raise StateError(f"rng.native.{name}", f"expected {expected}, got {got}")
    taken = {f"{group}.{row.name}" for group, rows in groups.items() for row in rows}
    for leaf in sorted(set(neutral.arrays) - taken - {f"rng.native.{name}" for name in native}):
        raise StateError(leaf, "unexpected leaf: this run has no such state")

    values["model"] = {**found["model.params"], **found["model.buffers"]}
    entries: dict[str, dict[str, Tensor]] = {name: {} for name in state.names}
    for one in layout.slots:
        for name, value in found[f"optimizer.{one.slot.name}"].items():
            entries[name][one.slot.key] = value
    if layout.counted:
        step = take_count(scalars, "optimizer.step")
        for row in layout.params:
            if kind_of(spec.optimizer, len(row.shape)).counts:
                entries[row.torch]["step"] = torch.tensor(float(step), dtype=torch.float32)
        if not (step or layout.former or spec.optimizer.row.eager):
            entries = {}  # torch's classes start what they do not find
    numbered = {number: entries[name] for number, name in enumerate(state.names) if entries.get(name)}
    values["optimizer"] = {**values["optimizer"], "state": numbered}
    if spec.scaled:
        scale, tracker = take_scale(scalars, "scaler.scale"), take_count(scalars, "scaler.growth_tracker")
        values["scaler"] |= {"scale": scale, "_growth_tracker": tracker}
    if "torch_cpu" in own:
        values["rng"]["torch_cpu"] = torch.tensor(native["torch_cpu"])
    if "torch_cuda" in own:
        values["rng"]["torch_cuda"] = [torch.tensor(native["torch_cuda"])]
    return values, scalars


def file_state(state: LiveState) -> dict[str, Any]:
    """Return the full training state in PyTorch's own terms, as `torch.save` writes it.

    Every RNG stream of the process is kept, also those that the twin never draws from. Of several processes, each
    has its own parts of the parameters and of what the optimizer keeps for them.
    """
    model, parts = state.model.state_dict(), state.parts or {}
    name, words, *rest = np.random.get_state()  # noqa: NPY002 - the legacy stream is the one others may use
    return {
        "model": {key: parts[key].local.detach() if key in parts else value for key, value in model.items()},
        "optimizer": state.optimizer.state_dict(),
        "scheduler": state.scheduler.state_dict(),
        "scaler": state.scaler.state_dict(),
        "rng": {
            "torch_cpu": torch.get_rng_state(),
            "torch_cuda": [torch.cuda.get_rng_state(state.device)] if state.device.type == "cuda" else [],
            "python": random.getstate(),
            "numpy": [name, torch.from_numpy(np.asarray(words).astype(np.int64)), *map(float, rest)],
        },
    }


def check_file_state(layout: Layout, state: LiveState, saved: Mapping[str, Any]) -> None:
    """Check the file form of a state, down to the last setting, against the objects it would be loaded into.

    Args:
        layout: The run's.
        state: The objects; they are not changed.
        saved: What a file holds, in the form of `file_state`.

    Raises:
        StateError: Something is missing, unexpected, of another dtype or shape, or set otherwise; or the state of a
            generator is none.
    """
    if not isinstance(saved, dict):
        raise StateError("state", f"expected a mapping, got {type(saved).__name__}")
    like, row = file_state(state), layout.spec.optimizer.row
    if state.parts is not None:
        like = map_parts(like, state.names, state.parts, _room)
    entries: dict[str, dict[str, Tensor]] = {name: {} for name in state.names}
    for one in layout.slots:
        for own in one.rows:
            dtype = getattr(torch, one.dtype)
            entries[own.torch][one.slot.key] = torch.empty(own.shape, dtype=dtype, device="meta")
    for own in layout.params:
        if kind_of(layout.spec.optimizer, len(own.shape)).counts:
            entries[own.torch]["step"] = torch.empty((), dtype=torch.float32, device="meta")
    found = saved.get("optimizer")
    bare = isinstance(found, dict) and found.get("state") == {}  # nothing was applied yet: PyTorch has no entries
    numbered = {number: entries[name] for number, name in enumerate(state.names) if entries[name]}
    like["optimizer"]["state"] = {} if bare and not row.eager else numbered
    if isinstance(state.scheduler, RuleScheduler):
        _take_moved(state.scheduler, saved, like)
    require_alike(saved, like)
    _, scalars = neutral_arrays(layout, state.names, saved)
    for leaf in list(scalars):
        (take_scale if leaf == "scaler.scale" else take_count)(scalars, leaf)
    rng = saved["rng"]
    for leaf, attempt in (
        ("torch_cpu", lambda: torch.Generator().set_state(rng["torch_cpu"].cpu())),
        ("python", lambda: random.Random().setstate(rng["python"])),
        ("numpy", lambda: np.random.RandomState().set_state(_legacy(*rng["numpy"]))),
    ):
        try:
            attempt()
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise StateError(f"rng.{leaf}", f"is no state of a generator: {error}") from error


def load_file_state(state: LiveState, saved: Mapping[str, Any]) -> None:
    """Put the file form of a state, which was checked, into its objects; the inverse of `file_state`.

    The generators of the process are set too: those of PyTorch, of Python and of NumPy.

    Args:
        state: The objects; changed in place. Of several processes, each takes its own parts.
        saved: What `check_file_state` accepted.
    """
    if state.parts is None:
        state.model.load_state_dict(saved["model"], strict=True)
    else:
        saved = map_parts(saved, state.names, state.parts, cut)
        own = {**dict(state.model.named_buffers()), **{name: part.local for name, part in state.parts.items()}}
        with torch.no_grad():
            for key, value in saved["model"].items():
                own[key].copy_(value)
    state.optimizer.load_state_dict(saved["optimizer"])
    _restore_scalars(state.optimizer, saved["optimizer"]["state"])
    if isinstance(state.scheduler, RuleScheduler):
        state.scheduler.put(Schedule.restore(saved["scheduler"]["schedule"]))
    else:
        state.scheduler.load_state_dict(saved["scheduler"])
    state.scaler.load_state_dict(saved["scaler"])
    rng = saved["rng"]
    torch.set_rng_state(rng["torch_cpu"].cpu())
    if rng["torch_cuda"] and state.device.type == "cuda":
        torch.cuda.set_rng_state(rng["torch_cuda"][0].cpu(), state.device)
    random.setstate(rng["python"])
    np.random.set_state(_legacy(*rng["numpy"]))  # noqa: NPY002


def _take_moved(scheduler: RuleScheduler, saved: Mapping[str, Any], like: dict[str, Any]) -> None:
    """Let a file have its own schedule, which is read strictly, and what the schedule moves of the groups."""
    found = saved.get("scheduler")
    if not isinstance(found, dict) or found.keys() != {"schedule"}:
        raise StateError("scheduler", "expected an object with schedule")
    read, own = Schedule.restore(found["schedule"]), scheduler.read()
    if read.rule != own.rule or len(read.rates) != len(own.rates):
        raise StateError("scheduler.schedule.rule", "belongs to a run of another schedule")
    like["scheduler"] = found
    if read.momenta is None:
        return
    for momentum, group in zip(read.momenta, like["optimizer"]["param_groups"], strict=True):
        if "betas" in group:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


def _restore_scalars(optimizer: torch.optim.Optimizer, entries: Mapping[int, Mapping[str, Tensor]]) -> None:
    """Put scalars back in their own dtype: `load_state_dict` casts all but `step` to that of the parameter."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for number, entry in entries.items():
        own = optimizer.state.get(params[number], {})
        for key, value in entry.items():
            if value.ndim == 0 and key in own and own[key].dtype != value.dtype:
                own[key] = value.clone().to(own[key].device)


def _room(value: Tensor, part: Held) -> Tensor:
    return torch.empty(part.shape, dtype=value.dtype, device="meta")


def _legacy(name: str, words: Tensor, position: float, has_gauss: float, gauss: float) -> tuple[Any, ...]:
    """Return a state of NumPy's legacy stream from the form in which it is saved; NumPy itself checks no value."""
    if not (0 <= position <= 624 and position == int(position) and has_gauss in (0, 1)):
        raise ValueError(f"position {position} of 624, has_gauss {has_gauss}")
    if not 0 <= int(words.min()) <= int(words.max()) < 1 << 32:
        raise ValueError("its words do not fit 32 bits")
    return (name, words.cpu().numpy().astype(np.uint32), int(position), int(has_gauss), gauss)


def _count(name: str, step: Tensor) -> int:
    """Return the step of a parameter's optimizer entry, a float in PyTorch, as the count it is."""
    value = float(step)
    if not (math.isfinite(value) and value >= 0 and value == int(value)):
        raise StateError("optimizer.step", f"of {name} is {value}, no count")
    return int(value)


def _viewed(value: Tensor) -> NDArray[np.generic]:
    return value.detach().cpu().numpy()


def _copied(value: Tensor) -> NDArray[np.generic]:
    return _viewed(value).copy()


def _native_streams(layout: Layout, rng: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the generator states that native dropout draws from; none with the shared generator."""
    if layout.spec.dropout.generator != "native":
        return {}
    return {"torch_cpu": rng["torch_cpu"], **({"torch_cuda": rng["torch_cuda"][0]} if rng["torch_cuda"] else {})}
