"""The loops of the corpus: what trains a port into a folder, saves there and continues from it; one for each side."""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import torch
from flax import nnx

EVERY = 4
"""Steps between two saves."""


def torch_loop(port: Any, folder: Path, steps: int):
    """Train a port of PyTorch; every part of its state has a `state_dict`."""
    torch.manual_seed(0)
    state, begin, file = port.start(port.Model()), 0, folder / "last.pt"
    if file.exists():
        held = torch.load(file, weights_only=True)
        begin = held.pop("step")
        for name, value in held.items():
            state[name].load_state_dict(value)
    for step in range(begin, steps):
        yield step
        state, _ = port.step(state, port.batch(step))
        if (step + 1) % EVERY == 0:
            held = {name: one.state_dict() for name, one in state.items()}
            torch.save({**held, "step": step + 1}, folder / "new.pt")
            (folder / "new.pt").replace(file)


def jax_loop(port: Any, folder: Path, steps: int):
    """Train a port of JAX; its state is a dict of NNX objects, or of arrays."""
    state, begin = port.start(port.opened()), 0
    saved = sorted(int(one.name) for one in folder.iterdir() if one.name.isdigit())
    with ocp.StandardCheckpointer() as saver:
        if saved:
            begin = saved[-1]
            graph, leaves = nnx.split(state)
            leaves = nnx.to_pure_dict(leaves)
            held = saver.restore(folder.resolve() / str(begin), {"state": leaves, "step": np.zeros((), int)})
            state = nnx.merge(graph, *[_filled(nnx.split(state)[1], held["state"])])
        for step in range(begin, steps):
            yield step
            state, _ = port.step(state, port.batch(step))
            if (step + 1) % EVERY == 0:
                leaves = nnx.to_pure_dict(nnx.split(state)[1])
                saver.save(folder.resolve() / str(step + 1), {"state": leaves, "step": np.int64(step + 1)})
                saver.wait_until_finished()


@partial(nnx.jit, static_argnums=0)
def nnx_step(port: Any, model: nnx.Module, optimizer: nnx.Optimizer, batch: dict[str, jax.Array]) -> jax.Array:
    """Update a model of NNX by the gradients of one batch."""
    loss, grads = nnx.value_and_grad(port.loss)(model, batch)
    optimizer.update(model, grads)
    return loss


def _filled(like: Any, held: Any) -> Any:
    nnx.replace_by_pure_dict(like, jax.tree.map(lambda one: one, held))
    return like
