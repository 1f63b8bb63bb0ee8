"""What a restore takes from a checkpoint for each leaf of a template, and everything in which the two differ.

Strict unless asked otherwise: a leaf that is missing, extra, or of another type is an error that names it, and what
is allowed to differ is listed in what the restore returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from parity.checkpoints.trees.nodes import ArrayType, Branch, LeafNode, Node, Unheld, fixed, leaves, subtrees, wholes
from parity.checkpoints.trees.rules import Renames, Rule, RuleLike
from parity.errors import CheckpointError, UnknownNameError

__all__ = ["Fit", "Reference", "RestoreRequest", "RestoredTree", "Take", "fit"]

Reference = Literal["exact", "sharding"]
"""What an array of a template counts for: for its type and where it lies, or for where it lies alone."""


@dataclass(frozen=True, kw_only=True)
class RestoredTree:
    """What a restore returns: the tree, and everything in which the checkpoint and the template differed."""

    tree: Any
    """Of the structure of the template; plain dicts, lists, tuples and arrays without one."""
    extra: tuple[str, ...] = ()
    """What the checkpoint has and the template has not: saved leaves, and items that were not asked for."""
    filled: tuple[str, ...] = ()
    """Leaves of the template that the checkpoint has not: they are the template's own."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Leaf of the template to the name under which it was saved, where a rule says so."""
    converted: Mapping[str, str] = field(default_factory=dict)
    """Leaf of the template to the change of its type."""
    step: int | None = None
    """The step of the checkpoint; None outside of a manager."""
    metric: float | None = None
    """The metric that was saved with it."""
    unproven: str = ""
    """What nothing proves of a checkpoint that has no seal, as a phrase; empty where all was compared with one."""


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """What a restore was asked for; as the parameters of `restore`."""

    like: Any = None
    rules: RuleLike = ()
    allow_extra: bool = False
    allow_missing: bool = False
    cast: bool = False
    reference: Reference = "exact"

    def __post_init__(self) -> None:
        if not isinstance(self.rules, Mapping):  # a reading that has to begin anew needs them again
            object.__setattr__(self, "rules", tuple(self.rules))
        if self.reference not in get_args(Reference):
            raise UnknownNameError("reference", str(self.reference), get_args(Reference))
        asked = self.rules or self.allow_extra or self.allow_missing or self.cast or self.reference != "exact"
        if self.like is None and asked:
            raise CheckpointError(
                "rules, allow_extra, allow_missing, cast and reference need a template: give like=..."
            )


@dataclass(frozen=True)
class Take:
    """Where the value of one leaf of a template comes from."""

    saved: str
    rule: Rule | None
    to: ArrayType | None
    """The type of the array that it becomes; None for a Python scalar."""


@dataclass(kw_only=True)
class Fit:
    """The plan of a restore."""

    takes: dict[str, Take] = field(default_factory=dict)
    wholes: dict[str, Node] = field(default_factory=dict)
    """Name of an object that takes a subtree to the subtree."""
    extra: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    converted: dict[str, str] = field(default_factory=dict)


def fit(
    stored: Node,
    template: Node,
    request: RestoreRequest,
    *,
    items: bool,
    fills: Callable[[str], bool],
    foreign: bool = False,
    no_state: Collection[str] = (),
) -> Fit:
    """Match what was saved with a template by name.

    Args:
        stored: What was saved; its leaves are scalars and types of arrays.
        template: Likewise.
        request: What may differ.
        items: Whether the first key of a name is an item; those that the template has not are left out.
        fills: Whether the template has a value for a leaf, not only its type.
        foreign: Whether another tool wrote it: None may then stand for a container without content, as Orbax writes
            it, and the words of a key for a key where the file names no implementation; the template says which.
        no_state: First keys that are no part of the state; one that the template has not is listed as extra.

    Raises:
        CheckpointError: They do not fit; names each leaf.
    """
    renames, made = Renames(request.rules), Fit()
    problems: list[tuple[str, str]] = []
    have: dict[str, tuple[LeafNode, Rule | None]] = {}
    for leaf in leaves(stored).values():
        name, rule = renames.find(leaf.name)
        if name in have:
            raise CheckpointError(f"the saved leaves {have[name][0].name} and {leaf.name} both become {name}")
        have[name] = leaf, rule
    named = {renames.find(name)[0]: node for name, node in subtrees(stored).items()}
    renames.require_used()
    used = set()
    typed = None if request.reference == "exact" else fixed(template)
    for name, wanted in leaves(template).items():
        if name not in have:
            _miss(name, made, problems, allowed=request.allow_missing and fills(name), abstract=not fills(name))
            continue
        used.add(name)
        leaf, rule = have[name]
        free = typed is not None and name not in typed
        take, why = (_words(leaf, wanted.value, rule) if foreign else None) or _match(
            leaf, _free(leaf.value, wanted.value, rule) if free else wanted.value, rule, request.cast
        )
        problems += [(name, why)] if why and take is None else []
        made.takes |= {name: take} if take else {}
        made.converted |= {name: why} if why and take else {}
        made.renamed |= {name: leaf.name} if rule is not None else {}
    for whole in wholes(template):
        if whole.name not in named:
            _miss(whole.name, made, problems, allowed=request.allow_missing, abstract=False)
            continue
        made.wholes[whole.name] = node = named[whole.name]
        problems += whole.check(node)
        problems += [
            (leaf.name, f"is {leaf.value} in the checkpoint, which only its code could rebuild")
            for leaf in leaves(node).values()
            if isinstance(leaf.value, Unheld)
        ]
        used |= {renames.find(name)[0] for name in leaves(node)}
    if foreign:
        hollow = {name for name, node in subtrees(template).items() if isinstance(node, Branch) and not node.children}
        used |= {name for name in hollow & have.keys() if have[name][0].value is None}
    _spare(have.keys() - used, template, request, made, problems, items=items, no_state=no_state)
    if problems:
        raise CheckpointError(_headline(problems), problems)
    return made


def _miss(name: str, made: Fit, problems: list[tuple[str, str]], *, allowed: bool, abstract: bool) -> None:
    if allowed:
        made.filled.append(name)
    elif abstract:
        problems.append((name, "is not in the checkpoint, and the template has only its type"))
    else:
        problems.append((name, "is not in the checkpoint"))


def _spare(
    names: set[str],
    template: Node,
    request: RestoreRequest,
    made: Fit,
    problems: list[tuple[str, str]],
    *,
    items: bool,
    no_state: Collection[str],
) -> None:
    """Sort what the template has no place for: items that were not asked for, and leaves."""
    asked = {str(key) for key in template.keys} if isinstance(template, Branch) else set()
    firsts = {name.partition(".")[0] for name in names}
    skipped = {first for first in firsts if (items or first in no_state) and first not in asked}
    rest = sorted(name for name in names if name.partition(".")[0] not in skipped)
    if request.allow_extra:
        made.extra = sorted(skipped) + rest
    else:
        made.extra = sorted(skipped)
        problems += [(name, "is in the checkpoint, and not in the template") for name in rest]


def _headline(problems: list[tuple[str, str]]) -> str:
    reasons = " ".join(why for _, why in problems)
    hints = {
        "is not in the checkpoint": "allow_missing=True keeps the template's value of what was not saved",
        "not in the template": "allow_extra=True leaves out what the template has not",
        "cast=True": "cast=True changes types",
    }
    shown = [hint for words, hint in hints.items() if words in reasons]
    return f"the template does not fit in {len(problems)} leaves ({'; '.join(shown) or 'nothing was restored'}):"


def _match(leaf: LeafNode, wanted: Any, rule: Rule | None, cast: bool) -> tuple[Take | None, str]:
    """Return where a leaf comes from and how its type changes; None and a reason, where it does not fit."""
    saved = leaf.value
    differ = f"is {_shown(saved)} in the checkpoint, and {_shown(wanted)} in the template"
    if isinstance(saved, ArrayType) and isinstance(wanted, ArrayType):
        shape, why = _shape(saved, wanted, rule)
        if why or (saved.key, shape) != (wanted.key, wanted.shape):
            return None, why or differ
        if saved.dtype == wanted.dtype:
            return Take(leaf.name, rule, wanted), ""
        if not cast or (_kind(saved.dtype) == "complex") > (_kind(wanted.dtype) == "complex"):
            return None, f"{differ} (cast=True converts numbers)"
        return Take(leaf.name, rule, wanted), f"{saved.dtype} to {wanted.dtype}"
    if rule is not None and (rule.permute or rule.reshape):
        return None, "is no array: a rule with permute or reshape is not for it"
    if isinstance(saved, ArrayType) or isinstance(wanted, ArrayType):
        return _number(leaf, wanted, rule, cast)
    if type(saved) is type(wanted):
        return Take(leaf.name, rule, None), ""
    names = type(saved).__name__, type(wanted).__name__
    if cast and {*names} <= {"int", "float"}:
        return Take(leaf.name, rule, None), " to ".join(names)
    return None, differ


def _words(leaf: LeafNode, wanted: Any, rule: Rule | None) -> tuple[Take | None, str] | None:
    """Match the words of a key with a key; None where they are none."""
    saved = leaf.value
    if not (isinstance(saved, ArrayType) and isinstance(wanted, ArrayType) and wanted.key and not saved.key):
        return None
    turned = rule is not None and (rule.permute or rule.reshape)
    if turned or (saved.dtype, saved.shape) != ("uint32", wanted.shape):
        return None
    return Take(leaf.name, rule, wanted), f"{saved} to {wanted}"


def _free(saved: Any, wanted: Any, rule: Rule | None) -> Any:
    """Return the type that a saved array keeps where the template's says only where it is to lie."""
    if not isinstance(saved, ArrayType) or not isinstance(wanted, ArrayType) or (saved.key, wanted.key) != ("", ""):
        return wanted
    axes: Sequence[int] = range(len(saved.shape))
    if rule is not None and sorted(rule.permute) == list(axes):
        axes = rule.permute
    shape = wanted.shape if rule is not None and rule.reshape else tuple(saved.shape[axis] for axis in axes)
    return replace(saved, shape=shape, numpy=wanted.numpy)


def _shape(saved: ArrayType, wanted: ArrayType, rule: Rule | None) -> tuple[tuple[int, ...], str]:
    """Return the shape of a leaf after its rule, or why the rule is not for it."""
    shape = saved.shape
    if rule is None or not (rule.permute or rule.reshape):
        return shape, ""
    if saved.key:
        return shape, "is a PRNG key: a rule with permute or reshape is not for it"
    if rule.permute:
        if sorted(rule.permute) != list(range(len(shape))):
            return shape, f"is {saved}: permute={rule.permute} are not its axes"
        shape = tuple(shape[axis] for axis in rule.permute)
    if rule.reshape and np.prod(shape, dtype=object) == np.prod(wanted.shape, dtype=object):
        shape = wanted.shape
    return shape, ""


def _number(leaf: LeafNode, wanted: Any, rule: Rule | None, cast: bool) -> tuple[Take | None, str]:
    """Match a Python number with an array of no axes: a counter is the one before a step, and the other after it."""
    saved = leaf.value
    array, number = (saved, wanted) if isinstance(saved, ArrayType) else (wanted, saved)
    kinds = {bool: "bool", int: "int", float: "float", complex: "complex"}
    kind = kinds.get(type(number))
    if kind is None or array.shape or array.key or _kind(array.dtype) != kind:
        return None, f"is {_shown(saved)} in the checkpoint, and {_shown(wanted)} in the template"
    change = f"{_shown(saved)} to {_shown(wanted)}"
    if array is wanted and not cast and not _exact(number, array.dtype):
        return None, f"is {number!r} in the checkpoint, which {array.dtype} does not hold exactly (cast=True rounds)"
    return Take(leaf.name, rule, wanted if array is wanted else None), change


def _kind(dtype: str) -> str:
    return next((kind for kind in ("bool", "complex", "int") if kind in dtype), "float")


def _exact(number: Any, dtype: str) -> bool:
    """Return whether an array of no axes holds a Python number as it is."""
    if dtype.startswith(("bfloat", "float8", "int4")):
        return False
    with np.errstate(over="ignore"):
        try:
            held = np.asarray(number, dtype).item()
        except OverflowError:
            return False
    return bool(held == number or (held != held and number != number))


def _shown(value: Any) -> str:
    if isinstance(value, ArrayType | Unheld):
        return str(value)
    return "None" if value is None else f"a Python {type(value).__name__}"
