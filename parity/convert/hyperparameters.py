"""Hyperparameters of `inject_hyperparams` on their way to the groups of PyTorch: set there, or refused by name.

PyTorch's groups have the arguments of one class. A value that is not one of them, two that are the same one, and one
that acts at another place of the update would leave PyTorch with another update than that of the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.convert.branches import branches, node_at
from parity.convert.ledger import Ledger
from parity.convert.optax_parts import HYPERPARAMETERS, Hyperparameter, parts_of_optax
from parity.convert.optax_tree import OptaxState, argument_of
from parity.errors import CheckpointError
from parity.formats import Tree, leaf_name, number_of

__all__ = ["require_placed", "with_hyperparameters"]

WITHOUT_EFFECT = {"eps_root": 0.0, "threshold": 5.0}
"""Arguments of Optax's functions that classes of PyTorch do not have, and the value that PyTorch computes with."""

OF_GRADIENTS = ("max_norm", "max_delta")
"""Arguments of clipping: in PyTorch that is of the training loop, which clips before the optimizer's step."""

LABELS = ".inner_states."


@dataclass(frozen=True)
class _GroupsAsked:
    """What a conversion says of a state's hyperparameters."""

    tree: Tree
    recorded: Mapping[str, Any]
    reset: Collection[str]
    proven: bool
    scheduled: bool


def with_hyperparameters(
    tree: Tree,
    state: OptaxState,
    recorded: Any,
    paths: Mapping[str, str],
    ledger: Ledger,
    *,
    reset: Collection[str] = (),
    proven: bool = False,
) -> Tree:
    """Return a tree of PyTorch whose groups have the hyperparameters that a state of `inject_hyperparams` has.

    Args:
        tree: PyTorch's.
        state: The state in JAX.
        recorded: Where the optimizer is in the tree, its class, and the names in each of its groups.
        paths: Path of each parameter to its name in PyTorch.
        ledger: Takes a line for each.
        reset: Leaves that may be left out.
        proven: Whether updates are compared, so that a value without a place in PyTorch is found by what it does.
    """
    scheduled = any(one.component == "schedule" and isinstance(one.value, dict) for one in branches(tree))
    if not isinstance(recorded, Mapping):
        for hyper in state.hyperparameters:
            ledger.add(hyper.leaf, "left out", how="PyTorch's state has no optimizer")
        return tree
    asked = _GroupsAsked(tree, recorded, reset, proven, scheduled)
    for hyper in state.hyperparameters:
        if hyper.leaf in reset or "optimizer" in reset:
            ledger.add(hyper.leaf, "reset", how="left out on request")
        elif why := _second(hyper, state.hyperparameters):
            ledger.add(hyper.leaf, "refused", how=why)
        elif hyper.name not in HYPERPARAMETERS:
            _unknown(hyper, asked, ledger)
        else:
            _set_in_groups(hyper, state, asked, paths, ledger)
    return tree


def require_placed(state: Tree, why: str) -> None:
    """Check that a state which is filled has no hyperparameter of which nothing says what it is in PyTorch.

    Args:
        state: The state of `--optimizer`.
        why: Why updates do not tell it.

    Raises:
        CheckpointError: It has one.
    """
    for one in parts_of_optax(state, "--optimizer").hyperparameters:
        if one.name not in HYPERPARAMETERS and not _is_without_place(one) and not _is_without_effect(one):
            raise CheckpointError(
                f"{one.leaf}: nothing says which argument of PyTorch {one.name} is, so it is not filled; known are "
                f"{', '.join(HYPERPARAMETERS)}; and no updates tell whether it may stay as it is: {why}"
            )


def _is_without_place(hyper: Hyperparameter) -> bool:
    """Return whether a value is a switch of the code, or of clipping, which PyTorch leaves to the training loop."""
    return hyper.value.dtype.kind == "b" or (hyper.name in OF_GRADIENTS and hyper.paths is None)


def _is_without_effect(hyper: Hyperparameter) -> bool:
    known = WITHOUT_EFFECT.get(hyper.name)
    return known is not None and number_of(hyper.value) == known and not hyper.moved


def _unknown(hyper: Hyperparameter, asked: _GroupsAsked, ledger: Ledger) -> None:
    """Refuse a value of which nothing says what it is in PyTorch, unless it has no effect there."""
    value = number_of(hyper.value)
    if _is_without_place(hyper):
        ledger.add(hyper.leaf, "left out", how="an argument of the code, which no group of PyTorch has")
    elif _is_without_effect(hyper):
        ledger.add(hyper.leaf, "left out", how=f"{value} is what PyTorch computes with")
    elif asked.proven:
        ledger.add(hyper.leaf, "left out", how="no group of PyTorch has it; its update is that of PyTorch's class")
    else:
        ledger.add(
            hyper.leaf,
            "refused",
            how=f"is {value}, and nothing says which argument of PyTorch {hyper.name} is; known are "
            f"{', '.join(HYPERPARAMETERS)}; --optimizer MODULE:NAME, which made it, compares updates, and "
            f"--reset {hyper.leaf} leaves it out",
        )


def _set_in_groups(
    hyper: Hyperparameter, state: OptaxState, asked: _GroupsAsked, paths: Mapping[str, str], ledger: Ledger
) -> None:
    """Set one value in the groups of its parameters, with a line for each."""
    leaf, argument, value = hyper.leaf, HYPERPARAMETERS[hyper.name], float(number_of(hyper.value))
    names = {paths[path] for path in paths if hyper.paths is None or path in hyper.paths}
    at, known = asked.recorded["at"], len(ledger.entries)
    if hyper.moved and argument == "lr" and asked.scheduled:
        ledger.add(leaf, "left out", how="a schedule of the code gives it, and that of PyTorch's state PyTorch's")
        return
    masked = False
    rows = zip(node_at(asked.tree, at)["param_groups"], asked.recorded["groups"], strict=True)
    for number, (group, held) in enumerate(rows):
        now = argument_of(group, argument)
        if now is None or not names.intersection(held):
            continue
        target = leaf_name((*at, "param_groups", number, argument))
        if argument == "weight_decay" and hyper.masked and now == 0:
            masked = True
        elif why := _misplaced(hyper, group, str(asked.recorded.get("kind")), value, asked.proven):
            ledger.add(leaf, "refused", target, why)
        elif np.float32(now) == np.float32(value):
            ledger.add(leaf, "copied", target)
        elif hyper.paths is None and (hyper.within or _differ(state.hyperparameters, hyper)):
            why = f"is {value} where PyTorch's group has {now}, and nothing says for which parameters"
            ledger.add(leaf, "refused", target, why)
        elif not names.issuperset(held):
            ledger.add(leaf, "refused", target, f"is {value}, and for some parameters of the group alone")
        elif argument == "lr" and asked.scheduled:
            why = f"is {value}, and the schedule of PyTorch's state gives {now}; leave one of them"
            ledger.add(leaf, "refused", target, why)
        elif hyper.moved and argument != "lr" and not asked.proven:
            why = f"a schedule of the code gives it, {value} now, where PyTorch's group has {now} for good"
            ledger.add(leaf, "refused", target, f"{why}; --reset {leaf} leaves it out")
        else:
            _set(group, argument, value)
            ledger.add(leaf, "transformed", target, f"was {now}{', the last of a schedule' if hyper.moved else ''}")
    if len(ledger.entries) == known and masked and value and not asked.proven:
        why = (
            f"is {value} and masked, no state has the mask, and no group of PyTorch's state decays a parameter of it"
        )
        ledger.add(leaf, "refused", how=f"{why}; --reset {leaf} leaves it out")
    elif len(ledger.entries) == known and (masked or value == 0):
        ledger.add(leaf, "left out", how=f"no group of PyTorch's state has {argument} for its parameters")
    elif len(ledger.entries) == known:
        ledger.add(leaf, "refused", how=f"is {value}, and no group of PyTorch's state has {argument}")
    elif argument == "weight_decay" and hyper.masked and not asked.proven:
        if hyper.paths is not None and not masked:
            why = "is masked in JAX, and PyTorch's groups have a weight_decay for all parameters of it"
            ledger.add(leaf, "refused", how=f"{why}; --reset {leaf} leaves it out")
        else:
            ledger.notes.append(
                f"{leaf} is masked, and no state has the mask: it is taken for that of PyTorch's groups; --optimizer "
                "MODULE:NAME compares updates"
            )


def _misplaced(hyper: Hyperparameter, group: Mapping[str, Any], kind: str, value: float, proven: bool) -> str:
    """Return why a decay acts at another place of the update than in PyTorch; empty if it does not, or is unknown."""
    if HYPERPARAMETERS[hyper.name] != "weight_decay" or not hyper.place or proven or not value:
        return ""
    decoupled = bool(group.get("decoupled_weight_decay", kind == "AdamW"))
    if (hyper.place == "after") == decoupled:
        return ""
    other = "before" if hyper.place == "after" else "after"
    return (
        f"is a decay {hyper.place} the moments in the chain, and {kind} of PyTorch's state has one {other} them: "
        f"the updates are others; --reset {hyper.leaf} leaves it out"
    )


def _second(hyper: Hyperparameter, every: Sequence[Hyperparameter]) -> str:
    """Return which other value of some parameters is of the same argument: a chain acts with both."""
    for other in every:
        same = HYPERPARAMETERS.get(other.name) == HYPERPARAMETERS.get(hyper.name, other)
        if other is hyper or not same:
            continue
        if hyper.paths is not None and other.paths is not None:
            overlap = bool(hyper.paths & other.paths)
        else:  # under labels of a partition each is for parameters of its own
            overlap = not (hyper.within and other.within) or _labels(hyper.leaf) == _labels(other.leaf)
        if overlap:
            return f"is a {hyper.name} as {other.leaf} is, and a group of PyTorch has one"
    return ""


def _labels(leaf: str) -> str:
    head, label, rest = leaf.rpartition(LABELS)
    return f"{head}{label}{rest.partition('.')[0]}"


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
