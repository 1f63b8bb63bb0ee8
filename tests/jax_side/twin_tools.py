"""The two sides next to each other on the same numbers: models, optimizers, scalers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
import optax
import torch
from flax import nnx

import jax_side
import jax_side.optimizer
import torch_side
import torch_side.optimizer
from parity.spec import RunSpec
from parity.twins import rates

Arrays = dict[str, np.ndarray]
CPU = torch.device("cpu")


@contextmanager
def float64() -> Iterator[None]:
    """Trace and run JAX with 64-bit types."""
    with jax.enable_x64(True):
        yield


class Parameters(torch.nn.Module):
    """A module that holds the given arrays as parameters."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        for name, value in arrays.items():
            self.register_parameter(name, torch.nn.Parameter(torch.tensor(value)))


def torch_walk(spec: RunSpec, start: Arrays, gradients: Sequence[Arrays]) -> list[Arrays]:
    """Return the parameters after each step of the PyTorch side's optimizer and schedule."""
    module = Parameters(start)
    optimizer = torch_side.optimizer.build_optimizer(spec, module, CPU)
    scheduler = torch_side.optimizer.build_scheduler(spec, optimizer)
    out = []
    for step in gradients:
        for name, p in module.named_parameters():
            p.grad = torch.tensor(step[name])
        if spec.clip_norm:
            torch.nn.utils.clip_grad_norm_(module.parameters(), spec.clip_norm)
        optimizer.step()
        scheduler.step()
        out.append({name: p.detach().numpy().copy() for name, p in module.named_parameters()})
    return out


def jax_walk(spec: RunSpec, start: Arrays, gradients: Sequence[Arrays]) -> list[Arrays]:
    """Return the parameters after each step of the JAX side's optimizer, rates from the shared schedule."""
    with jax.enable_x64(spec.precision == "float64"):
        optimizer = jax_side.optimizer.build_optimizer(spec)
        params: Any = {name: jax.numpy.asarray(value) for name, value in start.items()}
        dtype = next(iter(params.values())).dtype
        state = optimizer.init(params)

        @jax.jit
        def update(params: Any, state: Any, grads: Any, lr: Any) -> Any:
            updates, state = optimizer.update(grads, state, params, lr=lr)
            return optax.apply_updates(params, updates), state

        out = []
        lrs = rates(spec.schedule, spec.optimizer.lr, 0, len(gradients))
        for step, lr in zip(gradients, lrs, strict=True):
            params, state = update(params, state, step, jax.numpy.asarray(lr, dtype))
            out.append({name: np.array(value) for name, value in params.items()})
    return out


def logits(spec: RunSpec, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what both sides' models make of the same inputs at the same start, in evaluation."""
    ours, theirs = jax_side.build(spec), torch_side.build(spec)
    with jax.enable_x64(spec.precision == "float64"):
        model: Any = nnx.merge(ours.programs.graphdef, ours.state.params, ours.state.buffers, ours.state.rngs)
        left = np.array(model(jax.numpy.asarray(x), None, train=False))
    tensor = torch.tensor(x)
    with torch.no_grad():
        right = theirs.model(tensor if tensor.is_floating_point() else tensor.long(), None, train=False).numpy()
    return left, right


def relative(a: Any, b: Any) -> float:
    """Return the largest difference relative to the largest value of the second."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.abs(a - b).max() / np.abs(b).max())
