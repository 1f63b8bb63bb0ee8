"""Where a tree of PyTorch has its model and its optimizer, and which parameter each entry of the optimizer is of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parity.convert.branches import (
    MOST_AROUND,
    arrays_beside,
    arrays_of,
    branches,
    is_optimizer,
    is_state_dict,
    node_at,
)
from parity.convert.components import component_of_key
from parity.convert.flat_names import model_at_top
from parity.convert.naming import ADVICE, Naming, name_numbers
from parity.convert.torch_names import is_buffer, plain_name
from parity.errors import CheckpointError, ParityError
from parity.formats import Array, Key, Opaque, Tree, leaf_name
from parity.state import OPTIMIZERS, OptimizerKind, Slot, has_effect, optimizer_kind, slot_shape

__all__ = ["STORED", "OptimizerPart", "TorchState", "read_torch_state"]

_FLAGS = {"foreach", "fused", "capturable", "differentiable", "params", "param_names", "initial_lr"}
"""Keys of a group that do not tell classes apart."""


_STORED = (
    *OPTIMIZERS.values(),
    OptimizerKind(
        name="SparseAdam",
        arguments={"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "maximize": False},
        slots=(Slot(name="first_moment", key="exp_avg"), Slot(name="second_moment", key="exp_avg_sq")),
        flags=(),
    ),
)
"""Classes whose state converts; SparseAdam's is kept for the way back, as nothing in JAX takes its steps."""

STORED = {kind.name: kind for kind in _STORED}
"""Name of a class whose state converts to what it takes and keeps."""


@dataclass(frozen=True)
class OptimizerPart:
    """A `state_dict` of torch.optim with the names of its parameters."""

    at: tuple[Key, ...]
    """Keys of it in the tree."""
    kind: OptimizerKind
    names: Mapping[Key, str]
    """Key in the state, a number or a name, to the parameter's name, wrappers removed."""
    state: Mapping[Key, Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]
    named_by: str = ""
    """What the names are known by, as a phrase."""
    taken_for: str = ""
    """What the class is taken for although nothing decides it, as a sentence; empty where something does."""


@dataclass(frozen=True)
class TorchState:
    """A tree of PyTorch, taken apart."""

    model_at: tuple[Key, ...]
    """Keys of the model's state dict; empty where it is all of the tree."""
    model: Mapping[str, Array]
    """Arrays by name, wrappers removed, in the order of the file."""
    spelled: Mapping[str, str]
    """Name to how the file spells it."""
    others: Mapping[tuple[Key, ...], Mapping[str, Array]]
    """Other state dicts of the same names, such as averaged parameters, by their keys."""
    optimizer: OptimizerPart | None


def read_torch_state(
    tree: Tree, known: Naming | None = None, *, alone: bool = False, named: Collection[str] = ()
) -> TorchState:
    """Take a tree apart by the customary names.

    Args:
        tree: The tree of a checkpoint.
        known: What is known of the names of the optimizer's parameters, beside its own state.
        alone: Whether the model alone is wanted, and its optimizer not looked at.
        named: Arrays at the top that are the model, where an optimizer that is left out named them.

    Raises:
        CheckpointError: There is no model, or several; an optimizer whose parameters cannot be named: their number or
            a shape does not fit, or nothing decides.
    """
    at, model = _find_model(tree, known, named)
    spelled = {plain_name(name): name for name in model}
    if len(spelled) < len(model):
        raise CheckpointError("two parameters have one name once wrappers such as module. are removed")
    plain = {name: model[spelling] for name, spelling in spelled.items()}
    others: dict[tuple[Key, ...], dict[str, Array]] = {}
    for one in branches(tree):
        arrays = arrays_of(one.value) if one.keys != at and is_state_dict(one.value) else {}
        if arrays and {plain_name(name) for name in arrays} <= set(plain):
            others[one.keys] = {plain_name(name): array for name, array in arrays.items()}
    found = None if alone else _find_optimizer(tree, at, plain, known)
    naming = replace(known or Naming(), elsewhere=_elsewhere(tree, at, others))
    optimizer = None if found is None else _read_optimizer(*found, plain, naming)
    return TorchState(at, plain, spelled, others, optimizer)


def _find_model(
    tree: Tree, known: Naming | None, named: Collection[str]
) -> tuple[tuple[Key, ...], Mapping[str, Array]]:
    if not isinstance(tree, dict):
        raise CheckpointError("the checkpoint is no dict, so nothing in it is known to be a model")
    if is_state_dict(tree):
        return (), arrays_of(tree)
    found = [
        (key,) for key, child in tree.items() if component_of_key(str(key)) == "parameters" and is_state_dict(child)
    ]
    if not found and (top := model_at_top(tree) or {key: tree[key] for key in named}):
        return (), top
    if not found:
        _require_arrays(tree)
        nested = list(_state_dicts_below(tree, ()))
        if len(nested) == 1:
            keys = nested[0][0]
            if beside := arrays_beside(tree, keys) or _arrays_of_models(tree, keys):
                raise CheckpointError(
                    f"{leaf_name(keys)} is the only state dict, and {leaf_name(beside[0])} beside it may be a "
                    f"parameter too; to convert it alone: {_keys_hint(tree, [keys], known)}"
                )
            return nested[0]
        around = {keys[:-1] for keys, _ in nested}
        called = [one for one in nested if component_of_key(str(one[0][-1])) == "parameters"]
        if len(around) == 1 and len(called) == 1:  # beside its averages, as at the top of a checkpoint
            return called[0]
        if nested:
            names = [leaf_name(keys) for keys, _ in nested]
            raise CheckpointError(
                f"several state dicts ({', '.join(names[:6])}): each may be the model; convert one: "
                f"{_keys_hint(tree, [keys for keys, _ in nested], known)}"
            )
    if len(found) != 1:
        have = ", ".join(str(keys[0]) for keys in found) or f"none among {', '.join(map(str, list(tree)[:8]))}"
        hint = ""
        if found:
            hint = f"; convert one at a time: {_keys_hint(tree, found, known)}"
        raise CheckpointError(
            f"expected one state dict of a model by a customary name (model, state_dict), found {have}{hint}"
        )
    return found[0], arrays_of(tree[found[0][0]])


def _require_arrays(tree: Mapping[Key, Any]) -> None:
    """Refuse what is called a model and has arrays, and among them what is none: another part would be the model.

    Raises:
        CheckpointError: There is one; it is named.
    """
    for key, child in tree.items():
        if not isinstance(child, dict) or component_of_key(str(key)) != "parameters":
            continue
        if not any(isinstance(leaf, Array) for leaf in child.values()):
            continue
        for name, leaf in child.items():
            where = leaf_name((key, name))
            if isinstance(leaf, Opaque):
                raise CheckpointError(
                    f"{key} is no state dict of arrays alone: {where} is an {leaf}, which only its code could "
                    f"rebuild; --reset {where} leaves it out"
                )
            if not isinstance(leaf, Array | dict | list | tuple):
                raise CheckpointError(
                    f"{key} is no state dict of arrays alone: {where} is {leaf!r:.60}; save it beside {key}"
                )


def _arrays_of_models(tree: Mapping[Key, Any], keys: tuple[Key, ...]) -> list[tuple[Key, ...]]:
    """Return the arrays right below what is called a model and is none, other than what leads to some keys."""
    return [
        (key, name)
        for key, child in tree.items()
        if key != keys[0] and isinstance(child, dict) and component_of_key(str(key)) == "parameters"
        for name, leaf in child.items()
        if isinstance(leaf, Array)
    ]


def _state_dicts_below(tree: Tree, keys: tuple[Key, ...]) -> Iterator[tuple[tuple[Key, ...], Mapping[str, Array]]]:
    """Yield the state dicts within a tree of dicts, such as `model.state_dict`; those of optimizers are none."""
    if len(keys) > MOST_AROUND or not isinstance(tree, dict) or set(tree) == {"state", "param_groups"}:
        return
    for key, child in tree.items():
        if is_state_dict(child) and any(not is_buffer(name, leaf) for name, leaf in arrays_of(child).items()):
            component = component_of_key(str((*keys, key)[0]))
            if component in (None, "parameters"):
                yield (*keys, key), arrays_of(child)
        else:
            yield from _state_dicts_below(child, (*keys, key))


def _elsewhere(tree: Tree, at: tuple[Key, ...], others: Mapping[tuple[Key, ...], Any]) -> str:
    """Return a key of parameters beside the model, such as those of a loss; empty if there are none.

    A floating array under the name of an extra state may be a parameter of that name.
    """
    for name, leaf in node_at(tree, at).items():
        extra = str(name).rpartition(".")[2] == "_extra_state"
        if extra and isinstance(leaf, Array) and leaf.dtype.kind not in "iub":
            return leaf_name((*at, name))
    for one in branches(tree):
        known = one.keys == at or one.keys in others or one.component is not None or not is_state_dict(one.value)
        if not known and any(not is_buffer(name, leaf) for name, leaf in arrays_of(one.value).items()):
            return leaf_name(one.keys)
    return ""


def _find_optimizer(
    tree: Tree, at: tuple[Key, ...], model: Mapping[str, Array], known: Naming | None
) -> tuple[tuple[Key, ...], Mapping[str, Any]] | None:
    found = _optimizers(tree)
    for one in branches(tree):
        if isinstance(one.value, dict) and {"state", "param_groups"} < set(one.value):
            name, more = leaf_name(one.keys), [str(k) for k in one.value if k not in ("state", "param_groups")]
            both = ",".join([leaf_name(at) or ".", f"{name}.state", f"{name}.param_groups"])
            raise CheckpointError(
                f"{name} has {', '.join(more[:4])} beside state and param_groups, which nothing here converts: "
                f"--reset optimizer leaves it out whole, --keys {both} converts the rest"
            )
    if len(found) > 1:
        where = ", ".join(leaf_name(keys) for keys, _ in found)
        hint = _keys_hint(tree, [at], known)
        raise CheckpointError(
            f"several optimizers ({where}): each belongs to a part of the model; convert one at a time: {hint}"
        )
    return found[0] if found else None


def _optimizers(tree: Tree) -> list[tuple[tuple[Key, ...], Mapping[str, Any]]]:
    return [(one.keys, one.value) for one in branches(tree) if is_optimizer(one.value)]


def _keys_hint(tree: Tree, models: Sequence[tuple[Key, ...]], known: Naming | None) -> str:
    """Return the options that take one model and one optimizer of several, with --names where nothing names them."""
    optimizers = _optimizers(tree)
    if not optimizers:
        return f"--keys {leaf_name(models[0])}"
    for keys_of_model in models:
        model, arrays = leaf_name(keys_of_model), node_at(tree, keys_of_model)
        plain = {plain_name(name): array for name, array in arrays.items() if isinstance(array, Array)}
        fits = []
        for keys, one in optimizers:
            try:
                _read_optimizer(keys, one, plain, known or Naming())
            except ParityError:
                continue
            fits.append(leaf_name(keys))
        if len(fits) == 1 or (fits and len(models) == 1):  # of one model each optimizer trains a part
            return f"--keys {model},{fits[0]}"
        if fits:  # two networks of one architecture: nothing but their names says which is whose
            return f"--keys {model},OPTIMIZER with the one that trains {model}: {' or '.join(fits)} fit its shapes"
    both = f"{leaf_name(models[0])},{leaf_name(optimizers[0][0])}"
    return f"--keys {both} --names FILE, the names of its parameters one a line"


def _read_optimizer(
    at: tuple[Key, ...], value: Mapping[str, Any], model: Mapping[str, Array], known: Naming
) -> OptimizerPart:
    where = leaf_name(at)
    groups, state = value["param_groups"], value["state"]
    if not isinstance(groups, list) or not isinstance(state, dict) or not all(isinstance(g, dict) for g in groups):
        raise CheckpointError(f"{where} is no state_dict of torch.optim")
    ids = [_number(number) for group in groups for number in group.get("params", ())]
    keys = {_number(key): key for key in state}
    if len(set(ids)) != len(ids) or not set(keys) <= set(ids):
        raise CheckpointError(f"{where}: its groups name a parameter twice, or lack one that has state")
    kind = _kind(where, groups, state, known.kind)
    entries = {number: state[key] for number, key in keys.items()}
    counted = [{**group, "params": [_number(number) for number in group.get("params", ())]} for group in groups]
    names, source = name_numbers(where, kind, counted, entries, model, known)
    by_key = {keys.get(number, number): name for number, name in zip(ids, names, strict=True)}
    part = OptimizerPart(
        at, kind, by_key, state, groups, source, "" if known.kind else _undecided(where, kind, groups)
    )
    _check_shapes(where, part, model, source)
    return part


def _number(key: Key) -> Key:
    """Return a key of a state as a number where it is one: DCP writes numbers as text."""
    return int(key) if isinstance(key, str) and key.isascii() and key.isdigit() else key


def _kind(where: str, groups: Sequence[Mapping[str, Any]], state: Mapping[Key, Any], stated: str) -> OptimizerKind:
    """Return the class of an optimizer, by the arguments of its groups and the keys of its state.

    Raises:
        CheckpointError: None fits, or several and none is stated, or not the one that is stated.
        SpecError: It is LBFGS.
    """
    keys = {str(key) for entry in state.values() for key, value in entry.items() if value is not None}
    own = {str(key) for key in (groups[0] if groups else {})} - _FLAGS
    fits: list[OptimizerKind] = []
    added: dict[str, tuple[OptimizerKind, set[str]]] = {}
    if {"history_size", "line_search_fn"} <= own:
        optimizer_kind("LBFGS")  # raises, and says why it has no counterpart
    for kind in _STORED:
        slots = {slot.key for slot in kind.slots} | ({"step"} if kind.counts else set())
        needed = set(kind.arguments) - {"decoupled_weight_decay", "maximize"}
        if kind.in_torch and keys <= slots and needed <= own:
            more = own - set(kind.arguments) - _ADDED
            if not more:
                fits.append(kind)
            elif not more & _ARGUMENTS:
                added[kind.name] = kind, more
    if stated in added and not fits:  # such as lr_scale of a recipe: whose keys these are, only a person knows
        return added[stated][0]
    if len(fits) > 1 and "decoupled_weight_decay" in own:  # a class without this argument never writes it
        fits = [kind for kind in fits if kind.name == "AdamW" or "decoupled_weight_decay" in kind.arguments] or fits
    if stated and fits:
        named = [kind for kind in fits if kind.name == stated]
        if not named:
            shown = " or ".join(kind.name for kind in fits)
            raise CheckpointError(f"{where}: is of {shown} by its arguments and its state, and {stated} is stated")
        if stated == "AdamW" and any(group.get("decoupled_weight_decay") is False for group in groups):
            raise CheckpointError(
                f"{where}: AdamW is stated, and its groups have decoupled_weight_decay=False, as Adam's have"
            )
        return OPTIMIZERS["AdamW"] if stated == "Adam" and _decoupled(groups) else named[0]
    if len(fits) > 1 and {kind.name for kind in fits} == {"Adam", "AdamW"}:
        return OPTIMIZERS["AdamW" if _decoupled(groups) else "Adam"]
    if len(fits) != 1:
        names = [kind.name for kind in fits]
        flags = " or ".join(f"--class {name}" for name in names)
        several = f"several classes fit: {', '.join(names)}; {flags} states it"
        which = several if fits else "no class of torch.optim has"
        shown = "" if fits else f" the arguments {', '.join(sorted(own))} and the state {', '.join(sorted(keys))}"
        hints = [f"--class {name} if your code added {', '.join(sorted(more))}" for name, (_, more) in added.items()]
        raise CheckpointError(f"{where}: {which}{shown}{'; ' if hints and not fits else ''}{' or '.join(hints)}")
    return fits[0]


def _decoupled(groups: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether decay is decoupled in all groups: then Adam takes the steps of AdamW, which never lacks it."""
    return bool(groups) and all(bool(group.get("decoupled_weight_decay")) for group in groups)


def _undecided(where: str, kind: OptimizerKind, groups: Sequence[Mapping[str, Any]]) -> str:
    """Return what a class is taken for where its groups are those of an older PyTorch, or of somebody's own class."""
    own = {str(key) for group in groups for key in group}
    decays = any(has_effect(group.get("weight_decay", 0)) for group in groups)
    if kind.name == "Adam" and decays and "decoupled_weight_decay" not in own:
        return (
            f"{where} is of Adam or of AdamW, whose groups were alike before decoupled_weight_decay: it is taken for "
            "Adam; --class AdamW states the other"
        )
    lacking = [name for name in kind.arguments if name not in own and name != "decoupled_weight_decay"]
    if kind.name not in _OWN_NAMES and lacking:
        return (
            f"{where} is taken for {kind.name} by what it keeps, though its groups lack {', '.join(lacking)}: an "
            f"older PyTorch, or a class of your own with other steps; --class {kind.name} states it"
        )
    return ""


_OWN_NAMES = ("Adam", "AdamW")
"""Classes with an argument of their own, amsgrad."""

_ARGUMENTS = {name for kind in _STORED for name in kind.arguments}
"""Arguments of any class: one that a class lacks was not added by people."""

_ADDED = {
    "decoupled_weight_decay",
    "max_lr",
    "min_lr",
    "base_momentum",
    "max_momentum",
    "swa_lr",
    "initial_momentum",
    "name",
}
"""Keys that schedulers and people add to a group."""


def _check_shapes(where: str, part: OptimizerPart, model: Mapping[str, Array], source: str) -> None:
    """Check that every slot has the shape that its parameter gives it: names come from an order alone."""
    slots = {slot.key: slot for slot in part.kind.slots}
    for number, name in part.names.items():
        if name not in model:
            raise CheckpointError(f"{where}: {source} names {name}, which is no parameter of the model")
        for key, value in part.state.get(number, {}).items():
            if value is None or not isinstance(value, Array) or key not in slots:
                continue
            expected = slot_shape(slots[key], model[name].shape)
            if value.shape != expected:
                raise CheckpointError(
                    f"{where}: {key} of parameter {number} is {value}, and by {source} it belongs to {name}, "
                    f"{model[name]}; {ADVICE}"
                )
