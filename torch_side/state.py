"""Between the live PyTorch objects, their file form and the neutral TrainingState, through the two-way table."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parity.errors import StateError
from parity.spec import AdamSpec
from parity.state import TrainingState, take_count, take_scale
from parity.table import Row, check_leaves, from_torch, to_torch
from torch_side.optimizer import slots

if TYPE_CHECKING:
    from torch_side.train import TorchTrainer

__all__ = ["adopt_model", "export_arrays", "file_state", "import_arrays", "load_file_state"]

Array = NDArray[np.generic]


def adopt_model(
    model: nn.Module, rows: tuple[Row, ...], params: Mapping[str, Array], buffers: Mapping[str, Array]
) -> None:
    """Put neutral leaves into a module; every key of its state_dict is set."""
    leaves = to_torch(rows, {**params, **buffers}, "model")
    model.load_state_dict({name: torch.tensor(value) for name, value in leaves.items()}, strict=True)


def export_arrays(trainer: TorchTrainer) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that PyTorch objects hold.

    PyTorch has no optimizer entries before the first applied update: they are exported as zeros and step 0.

    Raises:
        StateError: The parameters' step counts differ; one count cannot stand for them.
    """
    spec = trainer.spec
    tensors = {name: _host(value) for name, value in trainer.model.state_dict().items()}
    arrays: dict[str, Array] = {}
    for group, rows in (("model.params", trainer.param_rows), ("model.buffers", trainer.buffer_rows)):
        own = {row.torch: tensors.pop(row.torch) for row in rows}
        arrays |= {f"{group}.{name}": value for name, value in from_torch(rows, own, group).items()}
    if tensors:
        raise StateError(f"model.{min(tensors)}", "is left over: no row of the table takes it")
    named = dict(trainer.model.named_parameters())
    state = trainer.optimizer.state
    for slot, key in slots(spec.optimizer).items():
        leaves = {name: _slot(state.get(p, {}).get(key), p) for name, p in named.items()}
        own = from_torch(trainer.param_rows, leaves, f"optimizer.{slot}")
        arrays |= {f"optimizer.{slot}.{name}": value for name, value in own.items()}
    arrays |= {f"rng.native.{name}": stream for name, stream in _native_streams(trainer).items()}
    scalars: dict[str, Any] = {}
    if isinstance(spec.optimizer, AdamSpec):
        counts = {name: int(state[p]["step"]) if p in state else 0 for name, p in named.items()}
        if len(set(counts.values())) > 1:
            raise StateError("optimizer.step", f"differs between parameters: {counts}")
        scalars["optimizer.step"] = next(iter(counts.values()))
    if spec.scaled:
        scaler = trainer.scaler.state_dict()
        scalars |= {"scaler.scale": scaler["scale"], "scaler.growth_tracker": scaler["_growth_tracker"]}
    return arrays, scalars


def import_arrays(trainer: TorchTrainer, state: TrainingState) -> tuple[Callable[[], None], dict[str, Any]]:
    """Check a neutral state against a trainer.

    Returns:
        A function that puts the arrays in, and the scalars left for the host.

    Raises:
        StateError: A leaf is missing, left over, or of another dtype or shape.
    """
    spec, scalars = trainer.spec, dict(state.scalars)
    if any(leaf.startswith("rng.native.jax") for leaf in state.arrays):
        raise StateError("rng.native", "a native JAX stream has no meaning in PyTorch; use dropout.generator=shared")
    groups = {"model.params": trainer.param_rows, "model.buffers": trainer.buffer_rows}
    groups |= {f"optimizer.{slot}": trainer.param_rows for slot in slots(spec.optimizer)}
    dtype = "float64" if spec.precision == "float64" else "float32"
    taken: set[str] = set()
    found: dict[str, dict[str, Tensor]] = {}
    for group, rows in groups.items():
        check_leaves(spec.model, rows, state.group(group), group, dtype)
        taken.update(f"{group}.{row.name}" for row in rows)
        leaves = to_torch(rows, state.group(group), group)
        found[group] = {name: torch.tensor(value) for name, value in leaves.items()}
    own, native = _native_streams(trainer), state.group("rng.native")
    for name in sorted({*own} ^ {*native}):
        raise StateError(f"rng.native.{name}", "is missing" if name in own else "is left over: nothing takes it")
    for name, stream in own.items():
        expected, got = (f"{a.dtype} {a.shape}" for a in (stream, native[name]))
        if expected != got:
            raise StateError(f"rng.native.{name}", f"expected {expected}, got {got}")
    for leaf in sorted(set(state.arrays) - taken - {f"rng.native.{name}" for name in native}):
        raise StateError(leaf, "is left over: no row of the table takes it")
    step = take_count(scalars, "optimizer.step") if isinstance(spec.optimizer, AdamSpec) else None
    scaler = trainer.scaler.state_dict()
    if spec.scaled:
        scaler |= {
            "scale": take_scale(scalars, "scaler.scale"),
            "_growth_tracker": take_count(scalars, "scaler.growth_tracker"),
        }

    def adopt() -> None:
        trainer.model.load_state_dict({**found["model.params"], **found["model.buffers"]}, strict=True)
        named = dict(trainer.model.named_parameters())
        for name, p in named.items():
            entry = {key: found[f"optimizer.{slot}"][name] for slot, key in slots(spec.optimizer).items()}
            if step is not None:
                entry["step"] = torch.tensor(float(step), dtype=torch.float32)
            trainer.optimizer.state[p] = {k: v.to(trainer.device) for k, v in entry.items()}
        if spec.scaled:
            trainer.scaler.load_state_dict(scaler)
        if native:
            torch.set_rng_state(torch.tensor(native["torch_cpu"]))
        if "torch_cuda" in native:
            torch.cuda.set_rng_state(torch.tensor(native["torch_cuda"]), trainer.device)

    return adopt, scalars


def file_state(trainer: TorchTrainer) -> dict[str, Any]:
    """Return the full training state in PyTorch's own terms, as `torch.save` writes it.

    Every RNG stream of the process is kept, also those that the twin never draws from.
    """
    name, words, *rest = np.random.get_state()  # noqa: NPY002 - the legacy stream is the one others may use
    return {
        "model": trainer.model.state_dict(),
        "optimizer": trainer.optimizer.state_dict(),
        "scheduler": trainer.scheduler.state_dict(),
        "scaler": trainer.scaler.state_dict(),
        "rng": {
            "torch_cpu": torch.get_rng_state(),
            "torch_cuda": [torch.cuda.get_rng_state(trainer.device)] if trainer.device.type == "cuda" else [],
            "python": random.getstate(),
            "numpy": [name, torch.from_numpy(np.asarray(words).astype(np.int64)), *map(float, rest)],
        },
    }


def load_file_state(trainer: TorchTrainer, saved: Mapping[str, Any]) -> None:
    """Put a full training state back into a trainer; the inverse of `file_state`."""
    trainer.model.load_state_dict(saved["model"], strict=True)
    trainer.optimizer.load_state_dict(saved["optimizer"])
    trainer.scheduler.load_state_dict(saved["scheduler"])
    trainer.scaler.load_state_dict(saved["scaler"])
    rng = saved["rng"]
    torch.set_rng_state(rng["torch_cpu"].cpu())
    if rng["torch_cuda"] and trainer.device.type == "cuda":
        torch.cuda.set_rng_state(rng["torch_cuda"][0].cpu(), trainer.device)
    random.setstate(rng["python"])
    name, words, position, has_gauss, gauss = rng["numpy"]
    state = (name, words.cpu().numpy().astype(np.uint32), int(position), int(has_gauss), gauss)
    np.random.set_state(state)  # noqa: NPY002


def _host(value: Tensor) -> Array:
    return value.detach().cpu().numpy().copy()


def _slot(value: Tensor | None, param: Tensor) -> Array:
    return _host(torch.zeros_like(param) if value is None else value)


def _native_streams(trainer: TorchTrainer) -> dict[str, Array]:
    """Return the generator states that native dropout draws from; none with the shared generator."""
    if trainer.spec.dropout.generator != "native":
        return {}
    streams = {"torch_cpu": torch.get_rng_state().numpy().copy()}
    if trainer.device.type == "cuda":
        streams["torch_cuda"] = torch.cuda.get_rng_state(trainer.device).numpy().copy()
    return streams
