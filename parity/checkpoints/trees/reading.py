"""The reading of a tree: matched with a template first, read then, and handed out once every digest was compared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.checkpoints import Neutral, read_meta
from parity.checkpoints.trees.document import from_json
from parity.checkpoints.trees.fit import Fit, RestoredTree, RestoreRequest, fit
from parity.checkpoints.trees.form import TreeForm, parts_of, sealed_name
from parity.checkpoints.trees.nodes import ArrayType, LeafNode, Node, leaves, rebuild, walk, wholes
from parity.checkpoints.trees.snapshot import ITEMS, META, TREE, described
from parity.checkpoints.trees.together import HeldArray
from parity.errors import CheckpointError

__all__ = ["Pending", "is_described", "match_tree", "read_tree"]

Read = Callable[[set[str], Mapping[str, Any]], dict[str, Any]]
"""Reads arrays of a checkpoint by name; of some the part that a leaf of the template says."""


@dataclass(frozen=True)
class Pending:
    """What was read of a checkpoint, before it is proved to be what was saved: nothing of the program has it yet."""

    form: TreeForm
    stored: Node
    template: Node
    live: dict[str, LeafNode]
    """Leaves of the template; those of the checkpoint in a restore without one."""
    plan: Fit
    arrays: dict[str, Any]
    """Name of each saved array that was read to the array."""
    raw: bool
    unproven: str = ""
    """What nothing proves of it; empty where there is a seal."""

    def neutral(self) -> Neutral:
        """Return the arrays that were read whole under their names in the seal, and no scalars."""
        whole = {name: value for name, value in self.arrays.items() if not isinstance(value, HeldArray)}
        return {sealed_name(name): self.form.neutral(value) for name, value in whole.items()}, {}

    @property
    def held(self) -> dict[str, HeldArray]:
        """Return what was read of arrays that lie in several processes, under their names in the seal."""
        return {sealed_name(name): v for name, v in self.arrays.items() if isinstance(v, HeldArray)}

    def finish(self, step: int | None = None, metric: float | None = None) -> RestoredTree:
        """Return the tree; objects of the template that hold state take it over now, after everything was compared.

        Raises:
            CheckpointError: A leaf cannot be what the template has here; names each.
        """
        return self.take_over(self.placed(), step, metric)

    def placed(self) -> dict[str, Any]:
        """Return the leaves as the template has them; nothing of the program has changed yet.

        Raises:
            CheckpointError: A leaf cannot be what the template has here; names each.
        """
        scalars = {name: leaf.value for name, leaf in leaves(self.stored).items() if name not in self.arrays}
        saved = {**scalars, **self.arrays}
        values: dict[str, Any] = {}
        problems = []
        for name, leaf in self.live.items():
            try:
                values[name] = self._placed(name, leaf, saved)
            except TypeError as error:
                problems.append((sealed_name(name), str(error)))
        if problems:
            raise CheckpointError("cannot be restored here:", problems)
        return values

    def take_over(self, values: dict[str, Any], step: int | None = None, metric: float | None = None) -> RestoredTree:
        """Return the tree of placed leaves; objects of the template that hold state take it over now.

        Raises:
            CheckpointError: An object refused its state.
        """
        scalars = {name: leaf.value for name, leaf in leaves(self.stored).items() if name not in self.arrays}
        saved = {**scalars, **self.arrays}
        plan = self.plan
        likes = {whole.name: whole.likes for whole in wholes(self.template)}
        states = {
            name: rebuild(node, _raw(self.form, node, saved, likes[name](node))) for name, node in plan.wholes.items()
        }
        for whole in wholes(self.template):
            values[whole.name] = whole.build(states[whole.name]) if whole.name in states else whole.unchanged
        return RestoredTree(
            tree=rebuild(self.template, values),
            extra=tuple(plan.extra),
            filled=tuple(plan.filled),
            renamed=plan.renamed,
            converted=plan.converted,
            step=step,
            metric=metric,
            unproven=self.unproven,
        )

    def _placed(self, name: str, leaf: LeafNode, saved: dict[str, Any]) -> Any:
        if self.raw:
            return self.form.raw(saved[name], leaf.value) if isinstance(leaf.value, ArrayType) else leaf.value
        take = self.plan.takes.get(name)
        if take is None:
            return leaf.value
        value = saved[take.saved]
        if take.to is not None:
            return self.form.place(value, take.to, take.rule.permute if take.rule else (), leaf.value)
        number = value.item() if hasattr(value, "item") else value  # a scalar may be saved as an array without axes
        return number if number is None else type(leaf.value)(number)


def is_described(path: Path) -> bool:
    """Return whether a directory has the description of a tree that `save` or a manager wrote."""
    try:
        return TREE in read_meta(path / META)["scalars"]
    except CheckpointError:
        return False


def read_tree(form: TreeForm, path: Path, request: RestoreRequest, *, together: bool = False) -> Pending:
    """Read what a template needs of a checkpoint whose bytes were verified.

    Args:
        form: The framework's part.
        path: The checkpoint.
        request: The template, and what may differ from it; without a template, all of the tree is read.
        together: Whether other processes read it too, so that this one reads parts of what lies in several.

    Returns:
        What was read; it is compared with the seal before `finish` hands it out.

    Raises:
        CheckpointError: It holds no tree, cannot be read, or does not fit the template; names each leaf.
    """
    scalars = read_meta(path / META)["scalars"]
    stored = from_json(scalars.get(TREE))
    items = scalars.get(ITEMS) is True
    parts = parts_of(stored, items=items)
    try:
        return match_tree(
            form,
            stored,
            request,
            lambda names, likes: form.read(path, parts, names, likes if together else {}),
            items=items,
        )
    except LookupError as error:
        raise CheckpointError(f"{path} does not hold its leaves {error.args[0]}") from error


def match_tree(
    form: TreeForm,
    stored: Node,
    request: RestoreRequest,
    read: Read,
    *,
    items: bool,
    foreign: bool = False,
    no_state: Collection[str] = (),
) -> Pending:
    """Match a saved tree with a template, and read what that needs.

    Args:
        form: The framework's part.
        stored: What was saved; its leaves are scalars and types of arrays.
        request: The template, and what may differ from it.
        read: Reads arrays.
        items: Whether the first keys are items, of which the template need not have all.
        foreign: Whether another tool wrote it; see `fit`.
        no_state: First keys that are no part of the state; one that the template has not is listed as extra.

    Raises:
        CheckpointError: It does not fit the template; names each leaf.
        LookupError: Arrays are not there; its argument names them.
    """
    if request.like is None:
        template, live, plan = stored, leaves(stored), Fit()
        names = set(live)
    else:
        template = walk(request.like, form.open_template)
        live = leaves(template)
        kinds = described(template, form, "the template cannot be filled")
        fills = lambda name: form.has_value(live[name].value)  # noqa: E731
        plan = fit(stored, kinds, request, items=items, foreign=foreign, no_state=no_state, fills=fills)
        names = {take.saved for take in plan.takes.values()}
        names |= {name for node in plan.wholes.values() for name in leaves(node)}
    wanted = {name for name, leaf in leaves(stored).items() if name in names and isinstance(leaf.value, ArrayType)}
    likes = _likes(form, plan, live, template, wanted)
    arrays = read(wanted, likes) if wanted else {}
    if missing := wanted - arrays.keys():
        raise LookupError(", ".join(sorted(missing)[:5]))
    return Pending(form, stored, template, live, plan, arrays, request.like is None)


def _likes(
    form: TreeForm, plan: Fit, live: Mapping[str, LeafNode], template: Node, wanted: set[str]
) -> dict[str, Any]:
    """Return the saved arrays of which this process needs a part, to the leaf of the template that says which.

    An array whose rule turns or reshapes it is read whole: its part is not a box of what was saved.
    """
    found: dict[str, Any] = {}
    for name, take in plan.takes.items():
        turned = take.rule is not None and (take.rule.permute or take.rule.reshape)
        if take.saved in wanted and not turned and form.is_split(live[name].value):
            found[take.saved] = live[name].value
    for whole in wholes(template):
        if whole.name in plan.wholes:
            parts = whole.likes(plan.wholes[whole.name])
            found |= {name: like for name, like in parts.items() if name in wanted and form.is_split(like)}
    return found


def _raw(form: TreeForm, node: Node, saved: dict[str, Any], likes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a saved subtree as without a template, or as arrays of an object lie."""
    found: dict[str, Any] = {}
    for name, leaf in leaves(node).items():
        if not isinstance(leaf.value, ArrayType):
            found[name] = leaf.value
        elif name in likes:
            found[name] = form.place(saved[name], leaf.value, (), likes[name])
        else:
            found[name] = form.raw(saved[name], leaf.value)
    return found
