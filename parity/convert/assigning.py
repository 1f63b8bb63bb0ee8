"""Which component of a training state each leaf of a checkpoint is: by what its branch holds, else by a name.

A branch that is made of parts, such as `{"app": {"model": ..., "optim": ...}}`, is looked into, whatever its name.
What the keys of a framework's own state say (`param_groups`, `mu` and `nu`) comes before the name that somebody gave
it. All of it is inferred, and each part says from what.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parity.convert.branches import is_flat_optimizer
from parity.convert.components import COMPONENTS, SCALER, STEP_NAMES, Part, component_of_key
from parity.convert.flat_names import model_at_top
from parity.formats import Array, Key, Opaque, Tree, count_of, leaf_name, leaves

__all__ = ["parts_of"]

LAYERS = frozenset(
    {
        *("weight", "bias", "kernel", "scale", "embedding", "gamma", "beta", "in_proj_weight", "in_proj_bias"),
        *("running_mean", "running_var", "weight_v", "weight_g", "pos_embed", "cls_token"),
    }
)
"""Last words of the names of parameters and buffers, as the layers of PyTorch and Flax have them."""

MOMENTS = (
    *({"mu", "nu"}, {"exp_avg", "exp_avg_sq"}, {"momentum_buffer"}, {"param_groups", "state"}),
    *({"count", "trace"}, {"mini_step", "gradient_step"}),
)
"""Keys of the state of an optimizer, of which all of one row are there: Optax's named tuples, PyTorch's state."""

STATES = {"parameters", "optimizer", "schedule", "loss scaler", "random streams", "data position", "counters"}
"""Components by which a branch is known to be a training state, where it has two of them."""

STREAM_BYTES = 5056
"""Size of the state of PyTorch's generator on a CPU."""

NAME, KEYS, LEAVES = "name", "keys", "leaves"


@dataclass(frozen=True)
class _Given:
    """A component, and what it was inferred from."""

    component: str
    how: str
    where: str
    """The name of the branch; for keys those that it has."""


def parts_of(tree: Tree) -> list[Part]:
    """Return the parts of a checkpoint, in the order of `COMPONENTS`.

    Raises:
        CheckpointError: The tree has too many leaves, or is too deep.

    Example:
        >>> import numpy as np
        >>> from parity.formats import InMemory
        >>> state = {"step": 7, "app": {"model": {"w": InMemory(np.zeros(2))}, "optim": {"lr": 0.1}}}
        >>> for part in parts_of(state):
        ...     print(part.component, part.evidence)
        parameters by its name app.model
        optimizer by its name app.optim
        counters by its name step
    """
    found = dict(leaves(tree))
    if list(found) == [()] and not isinstance(tree, Array):
        return []  # an empty container, or a lone scalar
    survey = _Survey(frozenset(model_at_top(tree)))
    if (whole := survey.whole(tree)) is not None:
        return [Part(whole[0], "unknown" if whole[0] == "other" else "inferred", whole[1], found)] if found else []
    parts: dict[str, dict[tuple[Key, ...], Any]] = {}
    evidence: dict[str, dict[_Given, None]] = {}
    for given, keys, leaf in survey.assigned(tree, (), None):
        parts.setdefault(given.component, {})[keys] = leaf
        evidence.setdefault(given.component, {})[given] = None
    return [_part(name, parts[name], list(evidence[name])) for name in COMPONENTS if name in parts]


class _Survey:
    """One look at a tree; what was found of a branch is kept, as a branch is asked about from all above it."""

    def __init__(self, named: frozenset[str]) -> None:
        self._named = named
        self._moments: dict[int, str] = {}
        self._states: dict[tuple[int, bool], bool] = {}

    def assigned(
        self, tree: Tree, keys: tuple[Key, ...], above: _Given | None
    ) -> Iterator[tuple[_Given, tuple[Key, ...], Any]]:
        """Yield each leaf of a branch that has several parts, with what it is."""
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            here = (*keys, key)
            given = self.given(child, here, above)
            if given is None:
                named = component_of_key(str(key))
                yield from self.assigned(child, here, _Given(named, NAME, leaf_name(here)) if named else above)
                continue
            for rest, leaf in leaves(child):
                yield _counter((*here, *rest), given, leaf), (*here, *rest), leaf

    def given(self, child: Tree, keys: tuple[Key, ...], above: _Given | None) -> _Given | None:
        """Return what a branch is, all of it; None for one that has several parts."""
        where = leaf_name(keys)
        if len(keys) == 1 and keys[0] in self._named:
            return _Given("parameters", KEYS, "that the optimizer names")
        if (signed := _signature(child)) is not None:
            return _Given(signed[0], KEYS, signed[1])
        if self.is_state(child, keys[-1]):
            return None
        named = component_of_key(keys[-1]) if isinstance(keys[-1], str) else None
        layers = self.layers(child)
        if named == "random streams" and layers:
            named = None  # `generator_state_dict` of a GAN: no stream of random numbers has a weight
        if named == "parameters" and _is_stream(child):
            return _Given("random streams", KEYS, f"{STREAM_BYTES} bytes of torch.Generator, in {where}")
        if named is not None:
            return _Given(named, NAME, where)
        if (row := self.moments(child)) != "":
            return _Given("optimizer", KEYS, f"{row}, in {where}")
        if layers:
            return _Given("parameters", LEAVES, where)
        if isinstance(child, Opaque) and where.lower().endswith(("args", "config")):
            return _Given("configuration", NAME, where)
        return above or _Given("other", "", where)

    def whole(self, tree: Tree) -> tuple[str, str] | None:
        """Return the component that all of a checkpoint is, and why; None if it has several."""
        if (signed := _signature(tree)) is not None:
            return signed[0], f"from the keys {signed[1]}"
        if isinstance(tree, Array) or not isinstance(tree, dict | list | tuple):
            return "other", "a lone array" if isinstance(tree, Array) else "a lone value"
        if not isinstance(tree, dict) or not any(isinstance(leaf, Array) for _, leaf in leaves(tree)):
            return None
        known = {component_of_key(str(key)) for key in tree}
        if not self.layers(tree):
            return None  # means and deviations of data, a replay buffer: arrays alone are no parameters
        if known <= {None, "parameters"} and all(isinstance(child, Array) for child in tree.values()):
            return "parameters", "a flat state dict of arrays"
        parts = self.moments(tree) or any(self.is_state(child, key) for key, child in tree.items())
        if known == {None} and not parts:
            return "parameters", "nested names of layers, none of a training state"
        return None

    def is_state(self, tree: Tree, name: Key) -> bool:
        """Return whether a branch has parts of a training state: its children are two or more components.

        A module may have a part called `data` or `encoder`; where the branch is called a model, only an optimizer in
        it says that it is more.
        """
        if not isinstance(tree, dict):
            return False
        if _is_flax_optimizer(tree):
            return True
        called = component_of_key(str(name)) is not None
        if (id(tree), called) not in self._states:
            found = set().union(*(self._components(key, child) for key, child in tree.items()))
            self._states[id(tree), called] = len(found & STATES) > 1 and ("optimizer" in found or not called)
        return self._states[id(tree), called]

    def _components(self, key: Key, child: Tree) -> set[str]:
        """Return what a child of a branch is, as far as that shows whether the branch is a training state."""
        if (signed := _signature(child)) is not None:
            return {signed[0]}
        named = component_of_key(key) if isinstance(key, str) else None
        if named == "optimizer":
            return {named} if isinstance(child, dict | list | tuple) else set()
        if self.moments(child):
            return {"parameters", "optimizer"} if self.is_state(child, key) else {"optimizer"}
        return {named} if named else set()

    def layers(self, tree: Tree) -> bool:
        """Return whether a branch holds arrays that are called as those of layers are, and no moments."""
        return (
            isinstance(tree, dict)
            and not self.moments(tree)
            and any(
                isinstance(leaf, Array) and keys and str(keys[-1]).rpartition(".")[2] in LAYERS
                for keys, leaf in leaves(tree)
            )
        )

    def moments(self, tree: Tree) -> str:
        """Return the keys of an optimizer's state that a branch, or one below it, has; empty if none has."""
        if not isinstance(tree, dict | list | tuple):
            return ""
        if id(tree) not in self._moments:
            names = {str(key) for key in tree} if isinstance(tree, dict) else set()
            own = next((" and ".join(sorted(row)) for row in MOMENTS if row <= names), "")
            children = tree.values() if isinstance(tree, dict) else tree
            self._moments[id(tree)] = own or next((row for row in map(self.moments, children) if row), "")
        return self._moments[id(tree)]


def _counter(keys: tuple[Key, ...], given: _Given, leaf: Any) -> _Given:
    """Return the counters for a step in a document of the trainer, such as `global_step` of `trainer_state.json`."""
    in_document = given.component == "best so far" and str(keys[0]).startswith("trainer_state") and len(keys) == 2
    if in_document and str(keys[1]) in (*STEP_NAMES, "epoch"):
        return _Given("counters", NAME, leaf_name(keys))
    own = given.component == "other" and len(keys) == 2 and str(keys[1]) in STEP_NAMES  # such as `train_state.step`
    of_flax = given.component == "optimizer" and keys[-2:] == ("state", "step")
    if (own or of_flax) and count_of(leaf) is not None:
        return _Given("counters", NAME, leaf_name(keys))
    return given


def _is_flax_optimizer(tree: Tree) -> bool:
    """Return whether a branch is an optimizer of `flax.optim`, as T5X saves one: it holds what it trains, too."""
    state = tree.get("state") if isinstance(tree, dict) and set(tree) == {"target", "state"} else None
    return isinstance(state, dict) and {"step", "param_states"} <= set(state)


def _is_stream(tree: Tree) -> bool:
    return isinstance(tree, Array) and (tree.dtype.name, tree.shape) == ("uint8", (STREAM_BYTES,))


def _signature(tree: Tree) -> tuple[str, str] | None:
    """Return the component that the keys of a branch say it is, and those keys."""
    if isinstance(tree, list | tuple) and tree:
        rows = map(_signature, tree)
        first = next(rows)
        return first if first is not None and all(row == first for row in rows) else None
    if not isinstance(tree, dict):
        return None
    if set(tree) == {"state", "param_groups"}:
        return "optimizer", "state and param_groups, as torch.optim has them"
    if is_flat_optimizer(tree):
        return "optimizer", "state.* and param_groups.*, as torch.distributed has them"
    if {"last_epoch", "_step_count"} <= set(tree):
        return "schedule", "last_epoch and _step_count, as torch.optim.lr_scheduler has them"
    if set(tree) == SCALER:
        return "loss scaler", "of torch.amp.GradScaler"
    return None


def _part(component: str, held: dict[tuple[Key, ...], Any], given: list[_Given]) -> Part:
    if component == "other":
        return Part(component, "unknown", f"no customary name: {_shown([one.where for one in given])}", held)
    phrases = []
    for how, one, many in (
        (NAME, "by its name", "by their names"),
        (KEYS, "by its keys", "by its keys"),
        (LEAVES, "by the names of its leaves, in", "by the names of their leaves, in"),
    ):
        names = list(dict.fromkeys(row.where for row in given if row.how == how))
        phrases += [f"{many if len(names) > 1 else one} {_shown(names)}"] if names else []
    return Part(component, "inferred", "; ".join(phrases), held)


def _shown(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
