"""The same training in torch.optim, called plainly, and with jax_side.optim: a small MLP in float64, its losses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from jax_side.optim import Optimizer, OptimState
from parity.state import OPTIMIZERS

Arrays = dict[str, np.ndarray]
SHAPES = {
    "first.weight": (6, 4),
    "first.bias": (6,),
    "second.weight": (2, 6),
    "second.bias": (2,),
}
MATRICES = {name: shape for name, shape in SHAPES.items() if len(shape) == 2}

QUICK = {"xla_backend_optimization_level": 0}
"""Compilation is most of the time of a short walk."""

rng = np.random.default_rng(5)
X, Y = rng.normal(size=(24, 4)), rng.normal(size=(24, 2))


def start(seed: int = 0, shapes: Mapping[str, tuple[int, ...]] = SHAPES, dtype: Any = np.float64) -> Arrays:
    """Return drawn parameters."""
    generator = np.random.default_rng(seed)
    return {name: (0.5 * generator.normal(size=shape)).astype(dtype) for name, shape in shapes.items()}


BATCH = 6
"""Rows of a batch, a quarter of the data: at the minimum of all of it, gradients are rounding noise."""


def torch_loss(p: Mapping[str, torch.Tensor], step: int | None = None) -> torch.Tensor:
    """Return the loss on the batch of a step, or on all data."""
    rows = slice(None) if step is None else slice(BATCH * (step % 4), BATCH * (step % 4 + 1))
    x, y = torch.from_numpy(X[rows]), torch.from_numpy(Y[rows])
    hidden = x @ p["first.weight"].T + p.get("first.bias", 0.0)
    out = torch.tanh(hidden) @ p["second.weight"].T + p.get("second.bias", 0.0)
    return ((out - y) ** 2).mean()


def jax_loss(p: Mapping[str, jax.Array], step: jax.Array | None = None) -> jax.Array:
    """Return the loss on the batch of a step, or on all data."""
    x, y = (part if step is None else jnp.asarray(part.reshape(4, BATCH, -1))[step % 4] for part in (X, Y))
    hidden = x @ p["first.weight"].T + p.get("first.bias", 0.0)
    out = jnp.tanh(hidden) @ p["second.weight"].T + p.get("second.bias", 0.0)
    return ((out - y) ** 2).mean()


def nested(arrays: Arrays) -> Any:
    """Return parameters as a JAX tree: a dict by name, whose keys are the neutral names."""
    return {name: jnp.asarray(value) for name, value in arrays.items()}


def torch_optimizer(name: str, params: Any, **arguments: Any) -> torch.optim.Optimizer:
    """Return an optimizer of torch.optim as a user makes it."""
    made: torch.optim.Optimizer = getattr(torch.optim, name)(params, **arguments)
    return made


def torch_walk(
    name: str,
    arguments: Mapping[str, Any],
    begin: Arrays,
    steps: int,
    rates: Sequence[float] | None = None,
    clip: Callable[[list[torch.Tensor]], Any] | None = None,
) -> tuple[np.ndarray, Arrays]:
    """Train with torch.optim; return the losses before each step, and the parameters."""
    params = {key: torch.nn.Parameter(torch.from_numpy(value.copy())) for key, value in begin.items()}
    optimizer = torch_optimizer(name, list(params.values()), **arguments)
    losses = []
    for step in range(steps):
        if rates is not None:
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
        optimizer.zero_grad()
        loss = torch_loss(params, step)
        loss.backward()
        if clip:
            clip(list(params.values()))
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses), {key: p.detach().numpy() for key, p in params.items()}


def jax_walk(
    tx: Optimizer,
    begin: Arrays,
    steps: int,
    rates: Sequence[float] | None = None,
    clip: Any = None,
) -> tuple[np.ndarray, Arrays, OptimState]:
    """Train with an optimizer of ours, in one scan; return losses, parameters and state."""
    with jax.enable_x64(True):
        params = nested(begin)

        def body(carry: Any, at: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            (params, state), (step, rate) = carry, at
            loss, grads = jax.value_and_grad(jax_loss)(params, step)
            if clip is not None:
                grads, _ = clip.update(grads, clip.init(params), params)
            extra = {} if rates is None else {"learning_rate": rate}
            updates, state = tx.update(grads, state, params, **extra)
            return (jax.tree.map(jnp.add, params, updates), state), loss

        given = jnp.arange(steps), jnp.zeros(steps) if rates is None else jnp.asarray(rates)
        (params, state), losses = jax.jit(lambda c, r: jax.lax.scan(body, c, r), compiler_options=QUICK)(
            (params, tx.init(params)), given
        )
        return np.asarray(losses), {k: np.asarray(v) for k, v in params.items()}, state


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest relative difference of two curves; infinite where one alone is not finite."""
    if not np.array_equal(np.isfinite(ours), np.isfinite(theirs)):
        return float("inf")
    there = np.isfinite(ours)
    scale = np.abs(theirs[there]) + 1e-300
    return float(np.max(np.abs(ours[there] - theirs[there]) / scale, initial=0.0))


def far(ours: Arrays, theirs: Arrays) -> float:
    """Return the largest difference of parameters, relative to the largest element of each."""
    return max(
        float(np.max(np.abs(ours[k] - theirs[k]), initial=0.0) / (np.max(np.abs(theirs[k]), initial=0.0) + 1e-300))
        for k in theirs
    )


def shapes_for(name: str) -> Mapping[str, tuple[int, ...]]:
    """Return the parameters that an optimizer takes: Muon takes matrices alone."""
    return MATRICES if name == "Muon" else SHAPES


IN_TORCH = [name for name, kind in OPTIMIZERS.items() if kind.in_torch]
