"""Updates of a transformation of the user's own, and of the same state by the rule of a class of torch.optim.

Both are computed in float64 on the same small numbers, so that what differs is the function and not its rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_side.formats.optimizer_template import plain_state
from jax_side.optim.groups import OptimState
from jax_side.optim.transform import by_name
from parity.errors import SpecError
from parity.formats import Tree, leaf_name, leaves
from parity.state import optimizer_kind

__all__ = ["updates_by_class", "updates_of"]

MOST_CALLS = 4096
"""Calls of `MultiSteps` until it gives an update."""


def updates_of(
    option: str, tx: Any, params: Tree, values: Mapping[str, np.ndarray], grads: Sequence[Tree]
) -> list[dict[str, np.ndarray]]:
    """Return the updates that a transformation makes of some gradients, one after the other, by path.

    Args:
        option: The option that names it, for messages.
        tx: A transformation, or a function without arguments that returns one.
        params: A tree of NumPy arrays of float64, which stay as they are.
        values: Leaves of its state by name, below `opt_state`; the others are as its init makes them.
        grads: Trees like the parameters.

    Raises:
        SpecError: It cannot take them.
    """
    try:
        with jax.enable_x64(True):
            tx = tx if hasattr(tx, "init") else tx()
            own = jax.tree.map(jnp.asarray, params)
            flat, structure = jax.tree.flatten(tx.init(own))
            between: list[int] = []
            for keys, at in leaves(plain_state(jax.tree.unflatten(structure, range(len(flat))))):
                given = values.get(leaf_name(("opt_state", *keys)))
                between += [at] if keys and keys[-1] == "mini_step" else []
                if given is not None and isinstance(at, int):
                    flat[at] = jnp.asarray(given, flat[at].dtype).reshape(flat[at].shape)
            state, found = jax.tree.unflatten(structure, flat), []
            for one in grads:
                for _ in range(MOST_CALLS):
                    made, state = tx.update(jax.tree.map(jnp.asarray, one), state, own)
                    now = jax.tree.leaves(state)
                    if not any(now[at] for at in between):
                        break
                found.append({leaf_name(keys): np.asarray(leaf) for keys, leaf in leaves(made)})
    except Exception as error:  # anything that the user's code does
        lines = f"{type(error).__name__}: {error}".splitlines()
        raise SpecError(option, f"its update cannot be computed: {lines[0][:300]}") from error
    return found


def updates_by_class(
    kind: str,
    groups: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
    params: Mapping[str, np.ndarray],
    slots: Mapping[str, Mapping[str, np.ndarray]],
    steps: Mapping[str, int],
    grads: Sequence[Mapping[str, np.ndarray]],
) -> list[dict[str, np.ndarray]]:
    """Return the updates that a class of torch.optim makes of some gradients, by path.

    Args:
        kind: The class.
        groups: Arguments of each group, and the paths of its parameters.
        params: Arrays of float64 by path, which stay as they are.
        slots: Neutral name of a slot to its arrays by path.
        steps: Updates that each parameter had.
        grads: Like the parameters.

    Raises:
        SpecError: An argument out of its range.
    """
    found: list[dict[str, np.ndarray]] = [{} for _ in grads]
    for given, paths in groups:
        own = {name: value for name, value in given.items() if name in optimizer_kind(kind).arguments}
        with jax.enable_x64(True):
            tx = by_name(kind, own, scalar_dtype="float64")
            order = sorted(paths)
            mine = {path: jnp.asarray(params[path]) for path in order}
            made = tx.init(mine)
            kept = {
                slot: {path: jnp.asarray(slots.get(slot, {}).get(path, tree[path])) for path in order}
                for slot, tree in made.slots.items()
            }
            state = OptimState(made.count, jnp.asarray([float(steps[path]) for path in order]), kept)
            for at, one in enumerate(grads):
                updates, state = tx.update({path: jnp.asarray(one[path]) for path in order}, state, mine)
                found[at] |= {path: np.asarray(update) for path, update in updates.items()}
    return found
