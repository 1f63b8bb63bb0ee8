"""An Optax state on its way to PyTorch: in the layout that the document of a conversion refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from parity.convert.branches import branches, node_at
from parity.convert.ledger import Ledger
from parity.convert.optax_parts import HYPERPARAMETERS, Hyperparameter, parts_of_optax
from parity.convert.optax_tree import OptaxState, argument_of, read_optax
from parity.convert.optimizer_layout import COUNT
from parity.errors import CheckpointError
from parity.formats import InMemory, Tree, leaf_name, leaves, number_of

__all__ = ["in_recorded_layout", "with_hyperparameters"]

_OPTAX = {"first_moment": "mu", "second_moment": "nu", "momentum": "trace"}


def in_recorded_layout(tree: Mapping[str, Any], content: Mapping[str, Any], where: str) -> OptaxState | None:
    """Return the state of an optimizer in the layout of a document; None where it is in that already.

    Args:
        tree: JAX's.
        content: The document, whose references are to leaves of our layout, or of Optax's plainest chain.
        where: The checkpoint, for messages.

    Raises:
        CheckpointError: As of `read_optax`; or the document has one count, and the state several.
    """
    state = tree.get("opt_state")
    position_at = str(content.get("position_at") or "")
    layout = content.get("layout", "parity" if position_at == COUNT else "optax")
    if not layout or state is None or (isinstance(state, dict) and {"step", "slots"} <= set(state)):
        return None
    if layout == "optax":
        there = {leaf_name(("opt_state", *keys)) for keys, _ in leaves(state)}
        heads = ("opt_state.0.mu", "opt_state.0.trace", "opt_state.0.count")
        head = any(name.startswith(heads) for name in there)
        if set(content.get("counts") or {}) <= there:
            parts = None if head else parts_of_optax(state, where)
            if parts is None or not (parts.moments or parts.hyperparameters):
                return None
    order = [leaf_name(keys) for keys in sorted(keys for keys, _ in leaves(tree["params"]))]
    kind = str((content.get("optimizer") or {}).get("kind") or "")
    found = read_optax(state, order, where, kind)
    return _plainest(found, position_at, where) if layout == "optax" else found


def _plainest(found: OptaxState, position_at: str, where: str) -> OptaxState:
    """Return a state as Optax's plainest chain has it: moments first, the count of the schedule last."""
    steps = sorted(set(found.tree["step"].load().tolist()))
    if len(steps) > 1:
        raise CheckpointError(f"{where}: transformations had {steps} updates, and the document has one count for all")
    head = {_OPTAX[slot]: own for slot, own in found.tree["slots"].items()}
    if "trace" not in head and head:
        head["count"] = InMemory(np.array(steps[0], np.int32))
    tree: dict[str, Any] = {"0": head}
    if position_at.count(".") == 2 and found.scheduled:
        tree[position_at.split(".")[1]] = {"count": found.tree["count"]}
    origin = {}
    for name, leaf in found.origin.items():
        _, _, slot, path = name.split(".", 3)
        origin[f"opt_state.0.{_OPTAX[slot]}.{path}"] = leaf
    return OptaxState(tree, origin, found.scheduled, set(), found.hyperparameters)


def with_hyperparameters(
    tree: Tree, state: OptaxState, recorded: Any, paths: Mapping[str, str], ledger: Ledger
) -> Tree:
    """Return a tree of PyTorch whose groups have the hyperparameters that a state of `inject_hyperparams` has.

    Args:
        tree: PyTorch's.
        state: The state in JAX.
        recorded: Where the optimizer is in the tree, and the names in each of its groups.
        paths: Path of each parameter to its name in PyTorch.
        ledger: Takes a line for each.
    """
    scheduled = any(one.component == "schedule" and isinstance(one.value, dict) for one in branches(tree))
    for hyper in state.hyperparameters:
        leaf, argument, value = hyper.leaf, HYPERPARAMETERS.get(hyper.name, ""), float(number_of(hyper.value))
        if not argument or not isinstance(recorded, dict):
            ledger.add(leaf, "left out", how="an argument of the code, which no group of PyTorch has")
            continue
        names = {paths[path] for path in paths if hyper.paths is None or path in hyper.paths}
        node, known = node_at(tree, recorded["at"]), len(ledger.entries)
        for number, (group, held) in enumerate(zip(node["param_groups"], recorded["groups"], strict=True)):
            now = argument_of(group, argument)
            left_out = argument == "weight_decay" and hyper.masked and now == 0
            if now is None or left_out or not names.intersection(held):
                continue
            target = leaf_name((*recorded["at"], "param_groups", number, argument))
            if np.float32(now) == np.float32(value):
                ledger.add(leaf, "copied", target)
            elif hyper.paths is None and (hyper.within or _differ(state.hyperparameters, hyper)):
                why = f"is {value} where PyTorch's group has {now}, and nothing says for which parameters"
                ledger.add(leaf, "refused", target, why)
            elif not names.issuperset(held):
                ledger.add(leaf, "refused", target, f"is {value}, and for some parameters of the group alone")
            elif argument == "lr" and scheduled:
                why = f"is {value}, and the schedule of PyTorch's state gives {now}; leave one of them"
                ledger.add(leaf, "refused", target, why)
            else:
                _set(group, argument, value)
                ledger.add(leaf, "transformed", target, f"was {now}")
        if len(ledger.entries) == known:
            ledger.add(leaf, "left out", how=f"no group of PyTorch's state has {argument} for its parameters")
    return tree


def _differ(hyperparameters: Sequence[Hyperparameter], one: Hyperparameter) -> bool:
    """Return whether there is another value of one name, for parameters that nothing tells either."""
    alike = [other for other in hyperparameters if other.name == one.name and other.paths is None]
    return len({float(number_of(other.value)) for other in alike}) > 1


def _set(group: dict[str, Any], argument: str, value: float) -> None:
    name, _, at = argument.partition(".")
    if not at:
        group[name] = value
        return
    values = list(group[name])
    values[int(at)] = value
    group[name] = type(group[name])(values)
