"""A training state of PyTorch as a tree of JAX, with a document of everything that has no leaf of its own there."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity.convert.branches import branches
from parity.convert.complete import require_complete
from parity.convert.flat_names import lines_of_flat, model_at_top, with_groups
from parity.convert.hyperparameters import require_placed
from parity.convert.ledger import Ledger
from parity.convert.measuring import Updates, require_updates
from parity.convert.moving import LOSS_SCALE, MOVING, SCHEDULE, moving_leaves, note_unmoving
from parity.convert.naming import Naming, is_inferred
from parity.convert.objects import without_objects
from parity.convert.optax_names import name_of, require_class, require_momentum
from parity.convert.optax_tree import fill_optax
from parity.convert.optimizer_layout import SCALAR, OptimizerLayout, OptimizerTree, optimizer_tree, put
from parity.convert.position import note_position, require_one_rate, schedule_position, steps_counted
from parity.convert.selecting import without
from parity.convert.torch_names import is_buffer
from parity.convert.torch_state import TorchState, read_torch_state
from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Key, Tree, encode_tree, leaf_name, leaves, map_leaves
from parity.mapping import CLASSES, ConversionRules, RuleClass, RulePlacement, row_of

__all__ = ["DOCUMENT", "OPTIMIZER", "SCHEMA", "Options", "to_jax"]

DOCUMENT = "torch"
"""Key of the JAX tree below which everything of PyTorch's is that has no leaf of its own: `state`, a JSON text, and
`arrays`."""

SCHEMA = "parity.torch_state/1"
MOST_SHOWN = 6
OPTIMIZER = "optimizer"
"""The component."""

_TAKEN = ("opt_state", "step", DOCUMENT, SCHEDULE, LOSS_SCALE)


@dataclass(frozen=True)
class Options:
    """What a conversion was asked for."""

    rules: ConversionRules = field(default_factory=ConversionRules)
    only_params: bool = False
    layout: OptimizerLayout | None = None
    """Layout of the optimizer; by default Optax's where it holds the state."""
    template: Callable[[Tree], Tree] | None = None
    """What the state of the optimizer in JAX is for some parameters; it decides the layout."""
    traced: Callable[[Tree], Collection[str]] | None = None
    """The transformations that this one's update calls, for some parameters, as `transformations_of` names them."""
    measured: Updates | None = None
    """What computes updates of this transformation, and those of PyTorch's class, to compare them."""
    called: str = ""
    """The function of Optax that made the state of a tree of JAX; empty if it is not stated."""
    names: Sequence[str] | None = None
    """Names of the optimizer's parameters in its order."""
    kind: str = ""
    """Class of the optimizer in torch.optim, where it is stated."""
    registered: Sequence[tuple[str, bool]] | None = None
    """Names of the model's parameters in the order of its modules, and whether each is trained."""
    allow: Collection[RuleClass] = ()
    """Classes of rules that are allowed for a training state too."""
    reset: Collection[str] = ()
    """Leaves, or components such as `schedule`, that may be left out, or stay as they were."""
    keys: Collection[str] | None = None
    """Top-level keys of the source that are converted; all by default."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """What parts of a tree of JAX are called there, where it is not by their names: `{"params": "model"}`."""


def to_jax(tree: Tree, options: Options, ledger: Ledger, *, ordered: bool = False) -> dict[str, Any]:
    """Return a training state of PyTorch as a tree of JAX; arrays stay lazy.

    Args:
        tree: PyTorch's.
        options: What was asked for.
        ledger: Takes a line for each leaf.
        ordered: Whether the names of the model are in the order in which they were put there (`keeps_order`).

    Raises:
        CheckpointError: No model, names that do not fit the optimizer, rules that do not fit the names, a learning
            rate on which optimizer and schedule differ.

    Example:
        >>> import numpy as np
        >>> from parity.mapping import ConversionRule
        >>> from parity.formats import InMemory
        >>> tree = {"model": {"fc.weight": InMemory(np.zeros((2, 3), np.float32))}, "step": 7}
        >>> rules = ConversionRules([ConversionRule(torch=("fc.weight",), jax=("fc.kernel",), transpose=True)])
        >>> ledger = Ledger()
        >>> made = to_jax(tree, Options(rules=rules), ledger)
        >>> made["params"], made["step"]
        ({'fc': {'kernel': <Permuted float32[3,2]>}}, 7)
        >>> for line in ledger.entries:
        ...     print(line.leaf, line.action, line.target)
        model.fc.weight transformed params.fc.kernel
        step copied torch.state
    """
    named = frozenset(model_at_top(tree))  # by an optimizer that a reset leaves out
    if OPTIMIZER in options.reset and not options.only_params:
        tree = _without_optimizers(tree, ledger)
    tree, laid = with_groups(tree)
    written = len(ledger.entries)
    forward = _Forward(tree, options, ledger, ordered, named)
    state, placements, made = forward.state, forward.placements, forward.tree
    forward.place(state.model_at, state.model, _homes(state, placements, options))
    if options.only_params:
        _leave_out(tree, forward.references, ledger)
        return made
    if state.optimizer is not None:
        _refuse_classes(placements, options, ledger)
    for at, arrays in state.others.items():
        forward.place(at, arrays, dict.fromkeys(arrays, "_".join(map(str, at))))
    optimizer = None
    if state.optimizer is not None:
        require_complete(state.optimizer, state.model)
        require_one_rate(tree, state.optimizer, ledger)
        order = [leaf_name(keys) for keys in sorted(keys for keys, _ in leaves(made["params"]))]
        position, counted = schedule_position(tree), steps_counted(tree)
        optimizer = optimizer_tree(
            state.optimizer,
            state.model,
            placements,
            order=order,
            layout="parity" if options.template else options.layout,
            position=position,
            counted=counted,
        )
        known = position is not None or state.optimizer.kind.counts or counted is not None
        if optimizer.layout == "parity" and position is None and not state.optimizer.kind.counts:
            note_position(state.optimizer, counted, ledger)
        made["opt_state"] = optimizer.tree
        if options.called:
            raise CheckpointError(
                f"--optimizer {options.called} says what made a state of JAX; from PyTorch to JAX give optax, "
                "parity, or MODULE:NAME, your own transformation"
            )
        if options.template is not None:
            called = options.traced(made["params"]) if options.traced else ()
            forward.made_by = name_of(called)
            require_class(forward.made_by, state.optimizer.kind.name, "--optimizer")
            require_momentum(called, state.optimizer.groups, "--optimizer")
            given = {path: name for name, placement in placements.items() for path in placement.target}
            template = options.template(made["params"])
            known = known or "schedule" in options.reset
            made["opt_state"] = fill_optax(template, optimizer, state.optimizer, given, order, known=known)
            forward.require_updates(made)
        for leaf, why in optimizer.refused:
            ledger.add(leaf, "refused", how=why)
        forward.references |= optimizer.references
    step = steps_counted(tree)
    if step is None and optimizer is not None and state.optimizer is not None and state.optimizer.kind.counts:
        step = optimizer.count
    if step is not None:
        made["step"] = step
    moving = moving_leaves(tree)
    made |= moving
    note_unmoving(tree, moving, ledger)
    made[DOCUMENT] = forward.document(optimizer, step, moving, laid)
    ledger.entries[written:] = lines_of_flat(ledger.entries[written:], tree, laid)
    return made


class _Forward:
    """One conversion: arrays are put where their rules say, and each leaves a reference for the document."""

    def __init__(self, source: Tree, options: Options, ledger: Ledger, ordered: bool, named: Collection[str]) -> None:
        self.source, self.options, self.ledger = source, options, ledger
        known = Naming(given=options.names, order=options.registered, ordered=ordered, kind=options.kind)
        self.state = read_torch_state(
            source, known, alone=options.only_params or OPTIMIZER in options.reset, named=named
        )
        part = self.state.optimizer
        if part is not None and is_inferred(part.named_by):
            ledger.notes.append(
                f"the names of the optimizer's parameters are inferred: by {part.named_by}; --names FILE or --model "
                "mine:Model states them"
            )
        if part is not None and part.taken_for:
            ledger.notes.append(part.taken_for)
        self.placements = {name: p for p in options.rules.place(list(self.state.model)) for name in p.source}
        self.tree: dict[str, Any] = {"params": {}}
        self.made_by = ""
        """The function of Optax whose state is filled, where its update was traced."""
        self.references: dict[tuple[Key, ...], dict[str, Any]] = {}

    def place(self, at: tuple[Key, ...], arrays: Mapping[str, Array], homes: Mapping[str, str]) -> None:
        """Put the arrays of one state dict where their rules say, below the top-level key that each has."""
        done = set()
        for name, array in arrays.items():
            placement, prefix = self.placements[name], homes[name]
            keys = (*at, self.state.spelled[name])
            source = leaf_name(keys)
            self.references[keys] = {
                **{"from": prefix, "name": name, "shape": list(array.shape), "dtype": array.dtype.name},
                **({"model": True} if at == self.state.model_at else {}),
            }
            how = placement.rule.how
            target = ", ".join(f"{prefix}.{path}" for path in placement.target)
            if placement.source not in done:
                done.add(placement.source)
                missing = [member for member in placement.source if member not in arrays]
                if missing:
                    raise CheckpointError(
                        f"{leaf_name(at)} has {name} and lacks {missing[0]}, which its rule joins it with"
                    )
                members = [arrays[member] for member in placement.source]
                if placement.rule.ties and not _tied(members):
                    why = f"tied with {placement.source[-1]}, and their values differ"
                    self.ledger.add(source, "refused", target, why)
                    continue
                for path, value in zip(placement.target, placement.forward(members), strict=True):
                    put(self.tree.setdefault(prefix, {}), path, value)
            self.ledger.add(source, "transformed" if how else "copied", target, how, array.nbytes)

    def document(
        self,
        optimizer: OptimizerTree | None,
        step: int | None,
        moving: Collection[str],
        laid: Sequence[Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Return the document, and the arrays that have no other place; writes their lines in the ledger."""
        arrays: dict[str, Array] = {}
        own: set[tuple[Key, ...]] = set()

        def refer(keys: tuple[Key, ...], array: Array) -> dict[str, Any]:
            known = self.references.get(keys)
            if known is not None:
                if keys[:-1] != self.state.model_at and keys[:-1] not in self.state.others:
                    where = "opt_state" if self.options.template else known.get("from") or known.get("count", "")
                    self.ledger.add(leaf_name(keys), "copied", where, self._moment(known), array.nbytes)
                return known
            name = "_".join(map(str, keys)).replace(".", "_").replace("/", "_")
            while name in arrays:
                name += "_"
            arrays[name] = array
            own.add(keys)
            self.ledger.add(leaf_name(keys), "copied", f"{DOCUMENT}.arrays.{name}", "", array.nbytes)
            return {"array": name, "shape": list(array.shape), "dtype": array.dtype.name}

        def counts(keys: tuple[Key, ...], leaf: Any) -> Any:
            """Return Python's own counts of updates as arrays, which have references."""
            return InMemory(np.array(leaf)) if type(leaf) is int and keys in self.references else leaf

        kept: Tree = map_leaves(without_objects(self.source, (), self.options.reset, self.ledger), counts)
        content = {
            "schema": SCHEMA,
            "names": list(self.state.model),
            "named_by": "" if self.state.optimizer is None else self.state.optimizer.named_by,
            "rules": [row_of(rule) for rule in self.options.rules.rules],
            "step": step,
            "counts": {} if optimizer is None else _counts(optimizer),
            "counted": self.state.optimizer is None or self.state.optimizer.kind.counts,
            "position_at": "" if optimizer is None else optimizer.position_at,
            "layout": "" if optimizer is None else optimizer.layout,
            "optimizer": self._groups(),
            "absent": {} if optimizer is None else {p: [optimizer.places[p], v] for p, v in optimizer.absent.items()},
            **({"flat": laid} if laid else {}),
            "tree": encode_tree(kept, refer),
        }
        homes = {one.keys: MOVING[one.component] for one in branches(self.source) if one.component in MOVING}
        for keys, leaf in leaves(kept):
            if not isinstance(leaf, Array):
                beside = next((homes[keys[:n]] for n in range(1, len(keys) + 1) if keys[:n] in homes), None)
                where = f"{DOCUMENT}.state, {beside}" if beside in moving else f"{DOCUMENT}.state"
                self.ledger.add(leaf_name(keys), "copied", where, "")
        self._note_kept(own)
        return {"state": json.dumps(content), **({"arrays": arrays} if arrays else {})}

    def _note_kept(self, own: Collection[tuple[Key, ...]]) -> None:
        """Say which parts JAX gets nothing of, though they may be of what is trained: the document keeps them."""
        kept: dict[str, list[str]] = {}
        for one in branches(self.source):
            if one.component in (None, "parameters", "averaged parameters", OPTIMIZER) and any(
                keys[: len(one.keys)] == one.keys for keys in own
            ):
                whole = one.keys != self.state.model_at and one.keys not in self.state.others
                extra = sorted(leaf_name(keys) for keys in own if keys[: len(one.keys)] == one.keys)
                if self.state.optimizer is not None and one.keys == self.state.optimizer.at:
                    kept.setdefault("", []).extend(extra)  # such as a rate that is a tensor
                    continue
                kept.setdefault(one.component or "", []).extend([leaf_name(one.keys)] if whole else extra)
        for name in kept.pop(OPTIMIZER, []):
            self.ledger.notes.append(
                f"{name} is no state_dict of torch.optim (state and param_groups): JAX gets none from it, and "
                f"it is kept in {DOCUMENT} for the way back"
            )
        names = [name for rows in kept.values() for name in rows]
        if names:
            more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
            self.ledger.notes.append(
                f"kept in {DOCUMENT} for the way back alone, JAX gets nothing of it: "
                f"{', '.join(names[:MOST_SHOWN])}{more}"
            )

    def require_updates(self, made: Mapping[str, Any]) -> None:
        """Check that the transformation that is filled takes the steps of PyTorch's groups, as `require_updates`."""
        part, measured = self.state.optimizer, self.options.measured
        if part is None or measured is None:
            return
        targets = {name: placement.target for name, placement in self.placements.items()}
        paths = {str(key): targets[name] for key, name in part.names.items()}
        groups = [(one, [path for at in one.get("params", ()) for path in paths[str(at)]]) for one in part.groups]
        state, kind = made["opt_state"], part.kind.name
        compared, note = require_updates(measured, made["params"], state, kind, groups, "--optimizer")
        if not compared:
            require_placed(state, note or f"none are compared for {kind}")
        self.ledger.notes += [note] if note else []

    def _groups(self) -> dict[str, Any] | None:
        """Return where the optimizer is, and the names of the parameters in each of its groups."""
        part = self.state.optimizer
        if part is None:
            return None
        names = {str(key): name for key, name in part.names.items()}
        groups = [[names[str(number)] for number in group.get("params", ())] for group in part.groups]
        return {"at": list(part.at), "groups": groups, "kind": part.kind.name, "made_by": self.made_by}

    def _moment(self, reference: Mapping[str, Any]) -> str:
        placement = None if reference.get(SCALAR) else self.placements.get(str(reference.get("name")))
        return placement.rule.how if placement is not None else ""


def _homes(state: TorchState, placements: Mapping[str, RulePlacement], options: Options) -> dict[str, str]:
    """Return the top-level key of each array of the model.

    What an optimizer trains, or a model that was given registers, is a parameter whatever its name.

    Raises:
        CheckpointError: A rule joins a parameter and a buffer, or names a key that is taken.
    """
    homes = {}
    trained = set() if state.optimizer is None else set(state.optimizer.names.values())
    trained |= {name for name, _ in options.registered or ()}
    for name, array in state.model.items():
        rule = placements[name].rule
        homes[name] = rule.collection or ("params" if name in trained or not is_buffer(name, array) else "buffers")
        if homes[name] in _TAKEN:
            raise CheckpointError(f"{name}: the collection {homes[name]} is taken by the state of the training")
        if len({homes[member] for member in placements[name].source if member in homes}) > 1:
            raise CheckpointError(
                f"{' and '.join(placements[name].source)} are parameter and buffer; give them a collection"
            )
    return homes


def _tied(arrays: Sequence[Array]) -> bool:
    """Return whether arrays are one: by their storage, or else by every bit."""
    first = arrays[0]
    for other in arrays[1:]:
        if first.shared is not None and first.shared == other.shared:
            continue
        pairs = zip(first.blocks(), other.blocks(), strict=True)
        if any(a.tobytes() != b.tobytes() for a, b in pairs):
            return False
    return True


def _refuse_classes(placements: Mapping[str, RulePlacement], options: Options, ledger: Ledger) -> None:
    for name, placement in placements.items():
        kind = placement.rule.rule_class
        if kind != "equivariant" and kind not in options.allow:
            why = f"its rule is {kind}: it {CLASSES[kind]}; --only params, or --allow {kind}"
            ledger.add(name, "refused", ", ".join(placement.target), why)


def _leave_out(tree: Tree, references: Mapping[tuple[Key, ...], Any], ledger: Ledger) -> None:
    for keys, leaf in leaves(tree):
        if keys not in references:
            size = leaf.nbytes if isinstance(leaf, Array) else 0
            ledger.add(leaf_name(keys), "left out", how="only the parameters were asked for", size=size)


def _without_optimizers(tree: Tree, ledger: Ledger) -> Tree:
    """Return a tree without the states of optimizers, which start anew: each leaf has its line."""
    for one in list(branches(tree)):
        if one.component == OPTIMIZER:
            for keys, leaf in leaves(one.value):
                size = leaf.nbytes if isinstance(leaf, Array) else 0
                name, how = leaf_name((*one.keys, *keys)), "left out on request: it starts anew"
                ledger.add(name, "reset", how=how, size=size)
            tree = without(tree, one.keys)
    return tree


def _counts(optimizer: OptimizerTree) -> dict[str, int]:
    """Return the leaves that count training steps, with their values: they show whether training continued."""
    counts = {optimizer.position_at: optimizer.position} if optimizer.position is not None else {}
    if optimizer.layout == "optax" and isinstance(optimizer.tree[0], dict) and "count" in optimizer.tree[0]:
        counts["opt_state.0.count"] = optimizer.count
    return counts
