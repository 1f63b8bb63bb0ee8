"""The parameters of a tree of JAX that says nothing of PyTorch: names by the rules, shapes by the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.convert.ledger import Ledger
from parity.convert.to_jax import Options
from parity.errors import CheckpointError
from parity.formats import Array, Tree, leaf_name, leaves

__all__ = ["params_alone"]


def params_alone(tree: Mapping[str, Any], options: Options, ledger: Ledger, where: str) -> Tree:
    """Return the model of a tree that says nothing of PyTorch.

    Args:
        tree: JAX's.
        options: What was asked for.
        ledger: Takes a line for each leaf.
        where: The checkpoint, for messages.

    Raises:
        CheckpointError: More than the parameters is wanted, or their shapes in PyTorch are not known.
    """
    more = [key for key in tree if key not in ("params", "buffers")]
    if more and not options.only_params:
        raise CheckpointError(
            f"{where} also has {', '.join(map(str, more[:6]))}, and nothing says how PyTorch numbers its parameters: "
            "give a PyTorch checkpoint of the same model and optimizer with --like FILE, or --only params"
        )
    homes = [key for key in ("params", "buffers") if key in tree]
    arrays = {leaf_name(k): leaf for home in homes for k, leaf in leaves(tree[home]) if isinstance(leaf, Array)}
    model: dict[str, Array] = {}
    for placement in options.rules.place_back(list(arrays)):
        if placement.rule.needs_shapes:
            raise CheckpointError(f"{placement.source[0]}: shapes in PyTorch are not known; give --like FILE")
        made = placement.backward([arrays[path] for path in placement.target])
        for name, array in zip(placement.source, made, strict=True):
            model[name] = array
            how = placement.rule.how
            ledger.add(f"params.{placement.target[0]}", "transformed" if how else "copied", name, how, array.nbytes)
    for key in more:
        for keys, _ in leaves(tree[key]):
            ledger.add(leaf_name((key, *keys)), "left out", how="only the parameters were asked for")
    return model if options.only_params else {"model": model}
