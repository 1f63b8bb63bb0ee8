"""A small GPT trained with torch.optim, called plainly, and with jax_side.optim, where its kernels lie transposed."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from jax_side.model import build_model as build_jax
from jax_side.model import cross_entropy as jax_cross_entropy
from jax_side.numerics import dtypes as jax_dtypes
from jax_side.optim import Leaves, by_name
from parity.spec import RunSpec, load
from parity.state import GroupRule
from parity.twins import initial_params, table, to_jax
from tests.optim.walks import QUICK, Arrays, torch_optimizer
from torch_side.model import build_model as build_torch
from torch_side.model import cross_entropy as torch_cross_entropy
from torch_side.numerics import dtypes as torch_dtypes

SPEC: RunSpec = load(
    "gpt-text",
    "float64",
    [
        "model.vocabulary=24",
        "model.context=6",
        "model.layers=1",
        "model.heads=2",
        "model.width=8",
        "dropout.rate=0.0",
    ],
)
ROWS = table(SPEC.model)
PATHS = {row.name: row.jax for row in ROWS}
LEAVES = Leaves(
    names={".".join(map(str, row.jax)): row.name for row in ROWS},
    axes={row.name: (1, 0) for row in ROWS if row.transforms},
)
BATCHES = 40
TEXT = np.random.default_rng(4).integers(0, 24, size=(BATCHES, 4, 7))
"""Random tokens, more than are learned by heart in a thousand steps: gradients never become rounding noise."""

MATRICES = GroupRule(label="matrices", ndim=(2,))
OTHERS = GroupRule(label="others", arguments={"optimizer": "AdamW", "lr": 1e-3})
"""What Muon takes, and its companion for the rest."""


def start(seed: int) -> Arrays:
    """Return drawn parameters by their neutral names."""
    return {name: value.astype(np.float64) for name, value in initial_params(SPEC.model, seed).items()}


def torch_walk(name: str, arguments: Mapping[str, Any], begin: Arrays, steps: int) -> tuple[np.ndarray, Arrays]:
    """Train with torch.optim; return the losses before each step, and the parameters."""
    model = build_torch(SPEC)
    model.load_state_dict({key: torch.from_numpy(value.copy()) for key, value in begin.items()})
    params, losses = list(model.parameters()), []
    if name == "Muon":
        optimizers = [
            torch_optimizer(name, [p for p in params if p.ndim == 2], **arguments),
            torch.optim.AdamW([p for p in params if p.ndim != 2], lr=OTHERS.arguments["lr"]),
        ]
    else:
        optimizers = [torch_optimizer(name, params, **arguments)]
    for step in range(steps):
        tokens = torch.from_numpy(TEXT[step % BATCHES])
        model.zero_grad()
        loss = torch_cross_entropy(model(tokens[:, :-1], train=True), tokens[:, 1:], torch_dtypes(SPEC.precision))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return np.array(losses), {key: p.detach().numpy() for key, p in model.named_parameters()}


def jax_walk(
    name: str, arguments: Mapping[str, Any], begin: Arrays, steps: int, leaves: Leaves = LEAVES
) -> tuple[np.ndarray, Arrays]:
    """Train with an optimizer of ours, in one scan; return losses and parameters."""
    muon = {"groups": [MATRICES, OTHERS], "iteration_dtype": "float64"} if name == "Muon" else {}
    tx = by_name(name, arguments, leaves=leaves, **muon)
    with jax.enable_x64(True):
        abstract = nnx.eval_shape(lambda: build_jax(SPEC))
        graph, state = nnx.split(abstract, nnx.Param)
        params = nnx.to_pure_dict(state)
        for path, value in to_jax(ROWS, begin, "model.params").items():
            inner = params
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = jnp.asarray(value)
        text = jnp.asarray(TEXT)

        def loss_of(params: Any, tokens: jax.Array) -> jax.Array:
            own = nnx.State(state)
            nnx.replace_by_pure_dict(own, params)
            logits = nnx.merge(graph, own)(tokens[:, :-1], train=True)
            return jax_cross_entropy(logits, tokens[:, 1:], jax_dtypes(SPEC.precision))

        def body(carry: Any, step: jax.Array) -> tuple[Any, jax.Array]:
            params, state = carry
            loss, grads = jax.value_and_grad(loss_of)(params, text[step % BATCHES])
            updates, state = tx.update(grads, state, params)
            return (jax.tree.map(jnp.add, params, updates), state), loss

        scanned = jax.jit(lambda carry: jax.lax.scan(body, carry, jnp.arange(steps)), compiler_options=QUICK)
        (params, _), losses = scanned((params, tx.init(params)))
        found = {}
        for row in ROWS:
            value = params
            for key in row.jax:
                value = value[key]
            found[row.name] = np.asarray(value).T if row.transforms else np.asarray(value)
        return np.asarray(losses), found
