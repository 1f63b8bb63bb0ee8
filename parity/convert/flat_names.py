"""An optimizer's state under flat names, `state.NAME.SLOT` and `param_groups.NAME.ARGUMENT`, and the model beside it.

`torch.distributed.checkpoint.state_dict` writes it so with `flatten_optimizer_state_dict`, as pipelines need it, and
trainers put the arrays of the model beside it at the top of the checkpoint. Conversions take it with its groups, and
lay it flat again on the way back. Parameters whose arguments are all the same are one group: the names say no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from parity.convert.branches import branches, is_flat_optimizer, is_optimizer, node_at
from parity.convert.ledger import Entry
from parity.formats import Array, Key, Tree, leaf_name, number_of

__all__ = ["flat_again", "lines_of_flat", "model_at_top", "with_groups"]

STATE, GROUPS = "state", "param_groups"


def with_groups(tree: Tree) -> tuple[Tree, list[dict[str, Any]]]:
    """Return a tree whose flat optimizers have a dict for each parameter and a list of groups.

    Args:
        tree: PyTorch's; it is not changed.

    Returns:
        The tree, and of each of these optimizers where it is and its flat names in their order: what `flat_again`
        takes. An optimizer with state of a name that has no arguments stays as it is.

    Example:
        >>> flat = {"state.w.step": 3, "param_groups.w.lr": 0.1, "param_groups.v.lr": 0.1}
        >>> with_groups({"optim": flat})[0]
        {'optim': {'state': {'w': {'step': 3}}, 'param_groups': [{'lr': 0.1, 'params': ['w', 'v']}]}}
    """
    laid: list[dict[str, Any]] = []
    for one in list(branches(tree)):
        if is_flat_optimizer(one.value) and (made := _grouped(one.value, tree)) is not None:
            laid.append({"at": list(one.keys), "names": list(one.value)})
            tree = _replaced(tree, one.keys, made)
    return tree, laid


def flat_again(tree: Tree, laid: Sequence[Mapping[str, Any]]) -> Tree:
    """Return a tree whose optimizers have flat names, as they had.

    Args:
        tree: PyTorch's, with groups.
        laid: What `with_groups` returned.
    """
    for one in laid:
        keys = tuple(one["at"])
        found = node_at(tree, keys)
        flat: dict[str, Any] = {}
        for name, entry in found[STATE].items():
            flat |= {f"{STATE}.{name}.{slot}": value for slot, value in entry.items()}
        for group in found[GROUPS]:
            rest = {key: value for key, value in group.items() if key != "params"}
            flat |= {f"{GROUPS}.{name}.{key}": value for name in group["params"] for key, value in rest.items()}
        order = [name for name in one["names"] if name in flat]
        tree = _replaced(tree, keys, {name: flat[name] for name in dict.fromkeys([*order, *flat])})
    return tree


def lines_of_flat(lines: Sequence[Entry], tree: Tree, laid: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the lines of a ledger by the names of the file: one for each argument of each parameter.

    Args:
        lines: Those of a tree with groups.
        tree: That tree.
        laid: What `with_groups` returned.
    """
    names: dict[str, list[str]] = {}
    for one in laid:
        keys = tuple(one["at"])
        for at, group in enumerate(node_at(tree, keys)[GROUPS]):
            prefix = leaf_name((*keys, GROUPS, at))
            names[prefix] = [leaf_name((*keys, f"{GROUPS}.{name}")) for name in group["params"]]
    made: list[Entry] = []
    for line in lines:
        group = next((one for one in names if line.leaf.startswith(f"{one}.")), None)
        if group is None:
            made.append(line)
        elif not (rest := line.leaf[len(group) :]).startswith(".params."):
            made += [replace(line, leaf=name + rest) for name in names[group]]
    return made


def model_at_top(tree: Tree) -> dict[str, Array]:
    """Return the arrays at the top of a tree that an optimizer in it names, and those of their modules.

    Args:
        tree: PyTorch's.

    Example:
        >>> import numpy as np
        >>> from parity.formats import InMemory
        >>> one = InMemory(np.ones(3))
        >>> flat = {"state.a.w.exp_avg": one, "param_groups.a.w.lr": 0.1}
        >>> list(model_at_top({"a.w": one, "a.running": one, "queue": one, "optim": flat}))
        ['a.w', 'a.running']
    """
    if not isinstance(tree, dict):
        return {}
    arrays = {key: leaf for key, leaf in tree.items() if isinstance(key, str) and isinstance(leaf, Array)}
    named = {name for one in branches(tree) for name in _own_names(one.value)} if arrays else set()
    if not named or not named <= set(arrays):
        return {}
    modules = {name.partition(".")[0] for name in named if "." in name}
    return {key: leaf for key, leaf in arrays.items() if key in named or key.partition(".")[0] in modules - {key}}


def _own_names(value: Tree) -> Iterator[str]:
    """Yield the names of its parameters that an optimizer says itself."""
    if is_flat_optimizer(value):
        yield from _parameters(value)
    elif is_optimizer(value) and isinstance(value[GROUPS], list):
        for group in value[GROUPS]:
            params = group.get("params", ()) if isinstance(group, dict) else ()
            yield from (one for one in params if isinstance(one, str) and not one.isdigit())


def _parameters(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each parameter; their names have no dots."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        root, _, rest = name.partition(".")
        if root == GROUPS:
            parameter, _, argument = rest.rpartition(".")
            found.setdefault(parameter, {})[argument] = value
    return found


def _grouped(flat: Mapping[str, Any], tree: Tree) -> dict[str, Any] | None:
    """Return an optimizer with groups; None where a name of its state is of no parameter, or of several."""
    parameters = _parameters(flat)
    groups: list[dict[str, Any]] = []
    for name, arguments in parameters.items():
        group = next((one for one in groups if _same({k: one[k] for k in one if k != "params"}, arguments)), None)
        if group is None:
            groups.append({**arguments, "params": [name]})
        else:
            group["params"].append(name)
    state: dict[str, dict[str, Any]] = {}
    for key, value in flat.items():
        root, _, rest = key.partition(".")
        if root != STATE:
            continue
        cuts = [at for at, letter in enumerate(rest) if letter == "." and rest[:at] in parameters]
        if len(cuts) != 1:
            return None
        state.setdefault(rest[: cuts[0]], {})[rest[cuts[0] + 1 :]] = value
    return {STATE: state, GROUPS: _as_scheduled(groups, tree)}


def _same(one: Any, other: Any) -> bool:
    """Return whether arguments are the same, bit for bit where they are arrays."""
    if isinstance(one, Array) and isinstance(other, Array):
        return str(one) == str(other) and one.load().tobytes() == other.load().tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)


def _as_scheduled(groups: list[dict[str, Any]], tree: Tree) -> list[dict[str, Any]]:
    """Return groups in the order that a schedule has, where their rates tell it: flat names keep none."""
    for one in branches(tree):
        if one.component != "schedule" or not isinstance(one.value, dict):
            continue
        last, bases = one.value.get("_last_lr"), _base_rates(one.value)
        if not isinstance(last, list) or len(last) != len(groups):
            continue
        if not isinstance(bases, list) or len(bases) != len(last):
            bases = [None] * len(last)
        left, ordered = list(groups), []
        for rate, base in zip(last, bases, strict=True):
            found = next((g for g in left if _rates(g, base) == (number_of(rate), base)), None)
            if found is None:
                break
            left.remove(found)
            ordered.append(found)
        if not left:
            return ordered
    return groups


def _rates(group: Mapping[str, Any], base: Any) -> tuple[Any, Any]:
    return number_of(group.get("lr")), None if base is None else number_of(group.get("initial_lr"))


def _base_rates(state: Mapping[str, Any]) -> Any:
    """Return `base_lrs` of a schedule, or of the first one in it that has them."""
    if "base_lrs" in state:
        return state["base_lrs"]
    inner = state.get("_schedulers")
    rows = (_base_rates(one) for one in inner if isinstance(one, dict)) if isinstance(inner, list) else ()
    return next((row for row in rows if row is not None), None)


def _replaced(tree: Tree, keys: tuple[Key, ...], value: Any) -> Any:
    """Return a tree with another value at some keys; what is on the way is copied."""
    if not keys:
        return value
    if isinstance(tree, list):
        return [_replaced(child, keys[1:], value) if at == keys[0] else child for at, child in enumerate(tree)]
    return {key: _replaced(child, keys[1:], value) if key == keys[0] else child for key, child in tree.items()}
