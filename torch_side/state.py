"""Between the live PyTorch objects, their file form and the neutral TrainingState, through the two-way table."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parity.contract import TrainingState, take_count, take_scale
from parity.errors import StateError
from parity.spec import AdamSpec, RunSpec
from parity.twins import Row, check_leaves, from_torch, to_torch
from torch_side.formats.structure import require_alike
from torch_side.optimizer import slots

if TYPE_CHECKING:
    from torch_side.train import TorchTrainer

__all__ = [
    "Layout",
    "adopt_model",
    "check_file_state",
    "export_arrays",
    "file_state",
    "import_arrays",
    "load_file_state",
    "neutral_arrays",
]

Array = NDArray[np.generic]


def adopt_model(
    model: nn.Module, rows: tuple[Row, ...], params: Mapping[str, Array], buffers: Mapping[str, Array]
) -> None:
    """Put neutral leaves into a module; every key of its state_dict is set."""
    leaves = to_torch(rows, {**params, **buffers}, "model")
    model.load_state_dict({name: torch.tensor(value) for name, value in leaves.items()}, strict=True)


def export_arrays(trainer: TorchTrainer, *, copy: bool = True) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays of the neutral state, and the scalars that PyTorch objects hold.

    Args:
        trainer: Whose state.
        copy: Whether the arrays outlive the next step; without, they are views of the parameters on a CPU.

    Raises:
        StateError: The parameters' step counts differ; one count cannot stand for them.
    """
    return neutral_arrays(Layout.of(trainer), file_state(trainer), _copied if copy else _viewed)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What turns the file form of a state into the neutral one."""

    spec: RunSpec
    param_rows: tuple[Row, ...]
    buffer_rows: tuple[Row, ...]
    names: tuple[str, ...]
    """Parameter names in the order in which the optimizer numbers them."""

    @classmethod
    def of(cls, trainer: TorchTrainer) -> Layout:
        """Return the layout of a trainer."""
        names = {id(p): name for name, p in trainer.model.named_parameters()}
        order = [names[id(p)] for group in trainer.optimizer.param_groups for p in group["params"]]
        return cls(
            spec=trainer.spec, param_rows=trainer.param_rows, buffer_rows=trainer.buffer_rows, names=tuple(order)
        )


def neutral_arrays(
    layout: Layout, saved: Mapping[str, Any], host: Callable[[Tensor], Array]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Turn the file form of a state into neutral arrays and scalars.

    PyTorch has no optimizer entries before the first applied update: they become zeros and step 0.

    Args:
        layout: Of the trainer it was taken from.
        saved: What `file_state` returned.
        host: Turns a tensor into an array, a copy or a view.

    Raises:
        StateError: A leaf is missing or left over, or the parameters' step counts differ.
    """
    spec = layout.spec
    tensors = dict(saved["model"])
    arrays: dict[str, Array] = {}
    for group, rows in (("model.params", layout.param_rows), ("model.buffers", layout.buffer_rows)):
        own = {row.torch: host(tensors.pop(row.torch)) for row in rows}
        arrays |= {f"{group}.{name}": value for name, value in from_torch(rows, own, group).items()}
    if tensors:
        raise StateError(f"model.{min(tensors)}", "is left over: no row of the table takes it")
    entries = {name: saved["optimizer"]["state"].get(i, {}) for i, name in enumerate(layout.names)}
    for slot, key in slots(spec.optimizer).items():
        leaves = {}
        for name, entry in entries.items():
            value = entry.get(key)
            leaves[name] = host(torch.zeros_like(saved["model"][name]) if value is None else value)
        own = from_torch(layout.param_rows, leaves, f"optimizer.{slot}")
        arrays |= {f"optimizer.{slot}.{name}": value for name, value in own.items()}
    if spec.dropout.generator == "native":
        arrays["rng.native.torch_cpu"] = host(saved["rng"]["torch_cpu"])
        if saved["rng"]["torch_cuda"]:
            arrays["rng.native.torch_cuda"] = host(saved["rng"]["torch_cuda"][0])
    scalars: dict[str, Any] = {}
    if isinstance(spec.optimizer, AdamSpec):
        counts = {name: _count(name, entry["step"]) if "step" in entry else 0 for name, entry in entries.items()}
        if len(set(counts.values())) > 1:
            raise StateError("optimizer.step", f"differs between parameters: {counts}")
        scalars["optimizer.step"] = next(iter(counts.values()))
    if spec.scaled:
        scalars["scaler.scale"] = saved["scaler"]["scale"]
        scalars["scaler.growth_tracker"] = saved["scaler"]["_growth_tracker"]
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
        # In C order: fused kernels take a moment whose strides are not its parameter's for another matrix.
        found[group] = {name: torch.tensor(np.asarray(value, order="C")) for name, value in leaves.items()}
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


def check_file_state(trainer: TorchTrainer, saved: Mapping[str, Any]) -> None:
    """Check a full training state against a trainer, down to the last setting; changes nothing.

    Raises:
        StateError: Something is missing, left over, of another dtype or shape, or set otherwise.
    """
    if not isinstance(saved, dict):
        raise StateError("state", f"expected a mapping, got {type(saved).__name__}")
    like = file_state(trainer)
    entries = {}
    for number, p in enumerate(p for group in trainer.optimizer.param_groups for p in group["params"]):
        entries[number] = {key: torch.empty_like(p, device="meta") for key in slots(trainer.spec.optimizer).values()}
        if isinstance(trainer.spec.optimizer, AdamSpec):
            entries[number]["step"] = torch.empty((), dtype=torch.float32, device="meta")
    found = saved.get("optimizer")
    bare = isinstance(found, dict) and found.get("state") == {}  # nothing was applied yet: PyTorch has no entries
    like["optimizer"]["state"] = {} if bare else entries
    require_alike(saved, like)
    _, scalars = neutral_arrays(Layout.of(trainer), saved, _viewed)
    for leaf in list(scalars):
        (take_scale if leaf == "scaler.scale" else take_count)(scalars, leaf)
    rng = saved["rng"]
    name, words, position, has_gauss, gauss = rng["numpy"]
    for leaf, attempt in (
        ("torch_cpu", lambda: torch.Generator().set_state(rng["torch_cpu"].cpu())),
        ("python", lambda: random.Random().setstate(rng["python"])),
        ("numpy", lambda: np.random.RandomState().set_state(_legacy(name, words, position, has_gauss, gauss))),
    ):
        try:
            attempt()
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise StateError(f"rng.{leaf}", f"is no state of a generator: {error}") from error


def load_file_state(trainer: TorchTrainer, saved: Mapping[str, Any]) -> None:
    """Put a full training state, which was checked, back into a trainer; the inverse of `file_state`."""
    trainer.model.load_state_dict(saved["model"], strict=True)
    trainer.optimizer.load_state_dict(saved["optimizer"])
    trainer.scheduler.load_state_dict(saved["scheduler"])
    trainer.scaler.load_state_dict(saved["scaler"])
    rng = saved["rng"]
    torch.set_rng_state(rng["torch_cpu"].cpu())
    if rng["torch_cuda"] and trainer.device.type == "cuda":
        torch.cuda.set_rng_state(rng["torch_cuda"][0].cpu(), trainer.device)
    random.setstate(rng["python"])
    np.random.set_state(_legacy(*rng["numpy"]))  # noqa: NPY002


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


def _viewed(value: Tensor) -> Array:
    return value.detach().cpu().numpy()


def _copied(value: Tensor) -> Array:
    return _viewed(value).copy()


def _native_streams(trainer: TorchTrainer) -> dict[str, Array]:
    """Return the generator states that native dropout draws from; none with the shared generator."""
    if trainer.spec.dropout.generator != "native":
        return {}
    streams = {"torch_cpu": torch.get_rng_state().numpy().copy()}
    if trainer.device.type == "cuda":
        streams["torch_cuda"] = torch.cuda.get_rng_state(trainer.device).numpy().copy()
    return streams
