"""The tree that an Optax transformation keeps for some parameters, as it is saved: its shapes, and its small values.

Nothing of the size of the parameters is allocated: the state is traced, and its scalars alone are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
import optax

from parity.errors import SpecError
from parity.formats import Array, InMemory, Tree, map_leaves

__all__ = ["optimizer_template", "plain_state", "wide_types"]


def wide_types(params: Tree) -> AbstractContextManager[Any]:
    """Return a context in which parameters keep their types while something is traced with them.

    A loop with parameters of float64 runs under `jax_enable_x64`; without it a trace would make them float32, and the
    state of the optimizer with them.
    """
    wide: list[bool] = []
    map_leaves(params, lambda _, one: wide.append(np.dtype(one.dtype) == np.float64))
    return jax.enable_x64(True) if any(wide) else nullcontext()


def optimizer_template(option: str, tx: Any, params: Tree, shape_only: Callable[..., Array]) -> Tree:
    """Return what `tx.init` makes of parameters: tuples as lists, fields as a dict, scalars with their values.

    Args:
        option: The option that names it, for messages.
        tx: A transformation, or a function without arguments that returns one.
        params: A tree of arrays, which are not read.
        shape_only: Makes an array of a shape and a dtype that holds nothing.

    Raises:
        SpecError: It is no transformation, or cannot be initialised with these parameters.
    """
    try:
        with wide_types(params):
            tx = tx if hasattr(tx, "init") else tx()
            shapes = map_leaves(params, lambda _, one: jax.ShapeDtypeStruct(one.shape, one.dtype))
            made = jax.eval_shape(tx.init, shapes)
            flat, structure = jax.tree.flatten(made)
            keys = {at for at, leaf in enumerate(flat) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)}
            small = [at for at, leaf in enumerate(flat) if leaf.ndim == 0 and at not in keys]

            def scalars() -> list[jax.Array]:
                zeros = jax.tree.map(lambda one: jax.numpy.zeros(one.shape, one.dtype), shapes)
                found = jax.tree.leaves(tx.init(zeros))
                return [found[at] for at in small]

            values: dict[int, Any] = dict(zip(small, jax.jit(scalars)(), strict=True))
    except Exception as error:  # anything that the user's code does
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise SpecError(option, f"its init cannot take these parameters: {lines[0][:300]}") from error
    leaves = [
        InMemory(np.asarray(values[at]))
        if at in values  # a random key has no type of NumPy, and no place in the state of an optimizer
        else shape_only(leaf.shape, np.dtype(np.uint32 if at in keys else leaf.dtype))
        for at, leaf in enumerate(flat)
    ]
    return plain_state(jax.tree.unflatten(structure, leaves))


def plain_state(node: Any) -> Tree:
    """Return a state as it is saved: tuples as lists, fields as a dict, nothing for a state without arrays.

    Args:
        node: A state of Optax.
    """
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return {name: plain_state(getattr(node, name)) for name in node._fields}
    if isinstance(node, dict):
        return {key: plain_state(child) for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [plain_state(child) for child in node]
    return {} if node is None or isinstance(node, optax.EmptyState) else node
