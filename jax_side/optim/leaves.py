"""Names and layouts: how the parameters of a JAX tree are called, and lie, on PyTorch's side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from parity.errors import StateError
from parity.mapping import Permute

__all__ = ["Leaves"]


@dataclass(frozen=True, kw_only=True)
class Leaves:
    """How the parameters of a JAX tree are called, and lie, on PyTorch's side.

    Example:
        >>> import jax.numpy as jnp
        >>> leaves = Leaves(names={"layer.kernel": "layer.weight"}, axes={"layer.weight": (1, 0)})
        >>> names, found, _ = leaves.flatten({"layer": {"kernel": jnp.zeros((2, 3))}})
        >>> leaves.shapes(names, found)
        {'layer.weight': (3, 2)}
    """

    names: Mapping[str, str] = field(default_factory=dict)
    """Path in the tree, joined by dots, to neutral name; a path that is not there is its own name."""
    axes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Neutral name to the order of JAX's axes that gives PyTorch's layout, as `transpose` takes it; as it is without.
    Muon and Adafactor depend on it, and the conversion of state does."""

    def name(self, path: Any) -> str:
        """Return the neutral name of a path of jax.tree_util."""
        joined = jax.tree_util.keystr(path, simple=True, separator=".")
        return self.names.get(joined, joined)

    def flatten(self, params: Any) -> tuple[list[str], list[Any], Any]:
        """Return neutral names, leaves (None included) and tree structure of parameters.

        Raises:
            StateError: Two leaves of one name.
        """
        found, treedef = jax.tree_util.tree_flatten_with_path(params, is_leaf=lambda x: x is None)
        names = [self.name(path) for path, _ in found]
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise StateError(twice[0], "two parameters have this name; give each its own in `names`")
        return names, [leaf for _, leaf in found], treedef

    def shapes(self, names: Sequence[str], leaves: Sequence[Any]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of parameters in PyTorch's layout.

        Args:
            names: Neutral names, as `flatten` returns them.
            leaves: The parameters, in the same order; None is left out.
        """
        return {
            name: Permute(self.axes[name]).moved([leaf.shape])[0] if name in self.axes else tuple(leaf.shape)
            for name, leaf in zip(names, leaves, strict=True)
            if leaf is not None
        }

    def to_jax(self, value: Any, name: str) -> Any:
        """Transpose a value that has the dimensions of a parameter from PyTorch's layout; others stay as they are.

        Args:
            value: The parameter, its gradient or a slot of it.
            name: Neutral name of the parameter.
        """
        turn = self._turn(name, value.ndim)
        return value if turn is None else turn.inverse().forward([value])[0]

    def to_torch(self, value: Any, name: str) -> Any:
        """Transpose a value that has the dimensions of a parameter to PyTorch's layout; others stay as they are.

        Args:
            value: The parameter, its gradient or a slot of it.
            name: Neutral name of the parameter.
        """
        turn = self._turn(name, value.ndim)
        return value if turn is None else turn.forward([value])[0]

    def _turn(self, name: str, ndim: int) -> Permute | None:
        """Return what leads a value with so many axes to PyTorch's layout; None where it stays as it is."""
        axes = self.axes.get(name, ())
        return Permute(axes) if len(axes) == ndim and axes != tuple(range(ndim)) else None
