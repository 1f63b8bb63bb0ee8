"""Initial values of the corpus: a normal distribution for what has several axes, one spread on both sides."""

import jax
import torch
from flax import nnx

SPREAD = 0.2


def initial_torch(model):
    """Draw matrices, kernels and tables of a module; what has one axis keeps its constant, biases are zero."""
    for name, p in model.named_parameters():
        if p.dim() >= 2:
            torch.nn.init.normal_(p, 0.0, SPREAD)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
    return model


def key_of(path):
    """Return the last name of a path that is no field of NNX."""
    return next(str(k) for one in reversed(path) if (k := getattr(one, "key", getattr(one, "name", ""))) != "value")


def initial_tree(tree, constant=()):
    """Draw all leaves of a tree of parameters but those of the names that stay constant."""
    flat, structure = jax.tree_util.tree_flatten_with_path(tree)
    keys = jax.random.split(jax.random.key(7), len(flat))
    drawn = [
        leaf if key_of(path) in constant else SPREAD * jax.random.normal(key, leaf.shape, leaf.dtype)
        for key, (path, leaf) in zip(keys, flat, strict=True)
    ]
    return jax.tree_util.tree_unflatten(structure, drawn)


def initial_nnx(model, constant=("bias", "scale")):
    """Draw the parameters of a module of NNX in place."""
    nnx.update(model, initial_tree(nnx.state(model, nnx.Param), constant))
    return model
