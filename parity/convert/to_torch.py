"""A tree of JAX as a training state of PyTorch: by the document of a conversion, or by a PyTorch state like it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from parity.convert.begun import Begun
from parity.convert.branches import node_at
from parity.convert.flat_names import flat_again
from parity.convert.hyperparameters import with_hyperparameters
from parity.convert.ledger import Ledger
from parity.convert.measuring import Updates, require_updates
from parity.convert.moving import Moved, moving_leaves
from parity.convert.moving_on import move_on
from parity.convert.naming import is_inferred, keeps_order
from parity.convert.one_sided import note_unplaced, with_lacking
from parity.convert.optax_back import in_recorded_layout
from parity.convert.optax_names import ALIKE, name_of, require_class, require_momentum, require_plain
from parity.convert.optax_tree import OptaxState
from parity.convert.optimizer_layout import COUNT, SCALAR, STEPS, OptimizerLayout
from parity.convert.params_alone import params_alone
from parity.convert.to_jax import DOCUMENT, SCHEMA, Options, to_jax
from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Source, Tree, count_of, decode_tree, leaf_name, leaves, number_of
from parity.mapping import ConversionRules, RulePlacement, parse_rules

__all__ = ["to_torch"]

MOST_COUNTS = 1 << 24

NAMED_OTHERWISE = (
    "; --as params=KEY (and opt_state=KEY, step=KEY, dotted where they lie deeper) says what is called otherwise"
)


def to_torch(tree: Tree, options: Options, ledger: Ledger, like: Source | None = None, where: str = "") -> Tree:
    """Return a JAX state as the tree of a PyTorch checkpoint; arrays stay lazy.

    Args:
        tree: JAX's: `params`, and for a training state `opt_state` and what `to_jax` left.
        options: What was asked for; rules are those of the document unless given.
        ledger: Takes a line for each leaf.
        like: A checkpoint of PyTorch of the same model and optimizer, whose names, groups and keys are taken where
            the tree has no document.
        where: The checkpoint, for messages.

    Raises:
        CheckpointError: No parameters, a document that does not fit, an optimizer without a document and without
            `like`, a leaf of another shape or dtype than PyTorch's.
    """
    if not isinstance(tree, dict) or not isinstance(tree.get("params"), dict):
        names = ", ".join(map(str, list(tree)[:8])) if isinstance(tree, dict) else type(tree).__name__
        raise CheckpointError(
            f"{where} has no dict params, as a training state of JAX has; it has {names}"
            f"{_items(tree, where) or NAMED_OTHERWISE}"
        )
    given = _document(tree, where)
    if like is not None:
        layout: OptimizerLayout | None = None if tree.get("opt_state") is None else "parity"
        quiet = replace(
            options, layout=layout, template=None, traced=None, measured=None, called="", only_params=False
        )
        other = Ledger()
        made = to_jax(like.tree, quiet, other, ordered=keeps_order(like))
        content = json.loads(made[DOCUMENT]["state"])
        ledger.notes += other.notes[:1] if is_inferred(content["named_by"]) else []  # how the names are known
        tree = with_lacking(tree, made, options.reset, ledger)
        own = made[DOCUMENT].get("arrays", {})
        given = {**content, "step": None, "like": content["step"]}
    elif given is None:
        return params_alone(tree, options, ledger, where)
    else:
        own = tree[DOCUMENT].get("arrays", {})
    optax = None if options.only_params else in_recorded_layout(tree, given, where)
    called: Collection[str] = ()
    if not options.only_params and tree.get("opt_state") is not None:
        called = options.traced(tree["params"]) if options.traced else ()
        _require_function(given, options.called or name_of(called), optax, ledger, where)
    measured_of = tree
    if optax is not None:
        tree = {**tree, "opt_state": optax.tree}
    lines = Ledger()
    back = _Back(tree, given, own, options, lines, where, optax)
    made = back.params() if options.only_params else back.tree(proven=options.measured is not None)
    if given.get("optimizer") and (called or optax is not None):
        groups = node_at(made, given["optimizer"]["at"])["param_groups"]
        if optax is not None:
            require_plain(groups, f"{where}: opt_state")
        require_momentum(called, groups, f"{where}: opt_state")
        if options.measured is not None and (optax is not None or given.get("layout") == "optax"):
            compared, note = back.require_updates(options.measured, measured_of, groups)
            if not compared:  # what was left out as proven is judged by its name
                lines = Ledger()
                made = _Back(tree, given, own, options, lines, where, optax).tree(proven=False)
            lines.notes += [note] if note else []
    origin = optax.origin if optax is not None else {}
    ledger.entries += [replace(entry, leaf=origin.get(entry.leaf, entry.leaf)) for entry in lines.entries]
    ledger.notes += lines.notes
    return made if options.only_params else flat_again(made, given.get("flat") or ())


def _require_function(
    given: Mapping[str, Any], stated: str, optax: OptaxState | None, ledger: Ledger, where: str
) -> None:
    """Check that the function of Optax that made a state is of PyTorch's class, or say that nothing states it.

    Raises:
        CheckpointError: It is of another class, or has no counterpart.
    """
    recorded = given.get("optimizer") or {}
    kind = str(recorded.get("kind") or "")
    if not kind:
        return
    require_class(stated, kind, f"{where}: opt_state")
    slots = set() if optax is None or given.get("layout") == "optax" else set(optax.tree.get("slots", {}))
    if not stated and not recorded.get("made_by") and {"second_moment", "infinity_norm"} & slots:
        by = "--like" if "like" in given else "its document"
        ledger.notes.append(
            f"opt_state has count, mu and nu, as the states of {', '.join(ALIKE)} of Optax have: it is taken for "
            f"{kind}, as {by} says; --optimizer NAME, the function that made it, states it"
        )


def _document(tree: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    text = tree.get(DOCUMENT, {}).get("state") if isinstance(tree.get(DOCUMENT), dict) else None
    if text is None:
        return None
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{where}: {DOCUMENT}.state cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise CheckpointError(f"{where}: {DOCUMENT}.state is not of the schema {SCHEMA}")
    return content


class _Back:
    """One conversion back: leaves are taken by the references of a document."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        content: Mapping[str, Any],
        own: Mapping[str, Any],
        options: Options,
        ledger: Ledger,
        where: str,
        optax: OptaxState | None,
    ) -> None:
        self.content, self.own, self.options, self.ledger, self.where = content, own, options, ledger, where
        self.optax = optax
        self.leaves = {leaf_name(keys): leaf for keys, leaf in leaves(tree)}
        rules = options.rules
        if not rules.rules:
            rules = ConversionRules(parse_rules(f"{where}: {DOCUMENT}.state", content["rules"]))
        self.placements = {name: p for p in rules.place(list(content["names"])) for name in p.source}
        self.used: set[str] = set()
        self.kept: set[int] = set()
        """Identities of the arrays that have no leaf in JAX, and are as they were."""
        self.cache: dict[tuple[str, tuple[str, ...]], Sequence[Array]] = {}
        self.model = _model(content["tree"], where)
        self.step, self.recorded = self.leaves.get("step"), content.get("step")
        self.counted: tuple[int, int] | None = None

    def tree(self, *, proven: bool) -> Tree:
        """Return all of the state; `proven` where updates are compared, as of `with_hyperparameters`."""
        tree = decode_tree(self.content["tree"], self._resolve, self.where)
        self._begin(tree)
        moved, moving = self._moved(), dict(leaves(moving_leaves(tree)))
        self.used |= {leaf_name(keys) for keys in moving}
        if moved is not None:
            tree = self._move_on(tree, moved)
        else:
            self._require_unmoved(moving)
            self.used.add("step")
        self._pass_counts()
        if self.optax is not None:
            self.used |= self.optax.fresh
            paths = {path: name for name, placement in self.placements.items() for path in placement.target}
            tree = with_hyperparameters(
                tree,
                self.optax,
                self.content.get("optimizer"),
                paths,
                self.ledger,
                reset=self.options.reset,
                proven=proven,
            )
        note_unplaced(self.leaves, {*self.used, f"{DOCUMENT}.state"}, self.options.reset, self.ledger)
        return tree

    def require_updates(self, measured: Updates, tree: Tree, groups: Sequence[Mapping[str, Any]]) -> tuple[bool, str]:
        """Check that what made a state takes the steps of PyTorch's groups, as `require_updates`."""
        recorded = self.content["optimizer"]
        held = [[path for name in names for path in self.placements[name].target] for names in recorded["groups"]]
        return require_updates(
            measured,
            tree["params"],
            tree["opt_state"],
            recorded["kind"],
            list(zip(groups, held, strict=True)),
            f"{self.where}: opt_state",
        )

    def _begin(self, tree: Tree) -> None:
        """Give parameters without an entry in PyTorch what updates in JAX began, and pass what had none."""
        absent, recorded = dict(self.content.get("absent") or {}), self.content.get("optimizer")
        if not absent or not recorded:
            return
        begun = Begun(
            recorded,
            {path: place for path, (place, _) in absent.items()},
            self._counts(),
            self.optax is None or self.content.get("counted", True),
            self.placements,
            self.model,
            self.leaves,
        )
        for path in begun.begin(tree, self._resolve, self.ledger, self.where):
            self.used |= set(absent[path][1])

    def _pass_counts(self) -> None:
        """Pass the counts of a class that has none in PyTorch, such as SGD: momentum starts where there is none.

        They are of our layout, which counts the updates of each parameter whatever its class.
        """
        if self.content.get("position_at") == COUNT and not self.content.get("counted", True):
            self._counts()

    def _counts(self) -> Any:
        """Return the counts of all parameters."""
        found = self.leaves.get(STEPS)
        if not isinstance(found, Array) or len(found.shape) != 1 or found.size > MOST_COUNTS:
            raise CheckpointError(f"{self.where}: {STEPS} is {found}, expected a vector of counts")
        self.used.add(STEPS)
        return found.load()

    def params(self) -> Tree:
        """Return the model alone."""
        model: dict[str, Tree] = {}

        def take(reference: dict[str, Any]) -> None:
            if reference.get("model"):
                model[reference["name"]] = self._resolve(reference)

        decode_tree(self.content["tree"], take, self.where)
        return model

    def _resolve(self, reference: dict[str, Any]) -> Array | int:
        """Return the array of a reference, and write its line."""
        if "array" in reference:
            name = f"{DOCUMENT}.arrays.{reference['array']}"
            self.used.add(name)
            found = self._check(name, self.own.get(reference["array"]), reference)
            self.kept.add(id(found))
            self.ledger.add(name, "copied", "", "", found.nbytes)
            return found
        if "count" in reference:
            name = reference["count"]
            self.used.add(name)
            value = self._counts()[reference["index"]].item() if "index" in reference else self.leaves.get(name)
            return self._count(name, value, reference["dtype"])
        prefix, torch_name = reference["from"], reference["name"]
        placement = self.placements[torch_name]
        key = (prefix, placement.source)
        if key not in self.cache:
            self.cache[key] = self._gather(prefix, placement, reference)
        array = self.cache[key][placement.source.index(torch_name)]
        name, how = f"{prefix}.{placement.target[0]}", "" if reference.get(SCALAR) else placement.rule.how
        self._check(name, array, reference)
        self.ledger.add(name, "transformed" if how else "copied", torch_name, how and f"back: {how}", array.nbytes)
        return array

    def _gather(self, prefix: str, placement: RulePlacement, reference: Mapping[str, Any]) -> Sequence[Array]:
        arrays = []
        for path in placement.target:
            name = f"{prefix}.{path}"
            found = self.leaves.get(name)
            if not isinstance(found, Array):
                if self.optax is not None and prefix.startswith("opt_state."):
                    slot = prefix.rpartition(".")[2].replace("_", " ")
                    kind = (self.content.get("optimizer") or {}).get("kind") or "the optimizer"
                    raise CheckpointError(
                        f"{self.where}: opt_state keeps no {slot} of {path}, which {kind} in PyTorch has: another "
                        "transformation made it, or none that covers this parameter"
                    )
                advice = f"; --reset {name} takes that of --like" if "like" in self.content else ""
                raise CheckpointError(
                    f"{self.where}: {name} is missing: PyTorch's {placement.source[0]} is made from it{advice}"
                )
            self.used.add(name)
            arrays.append(found)
        if reference.get(SCALAR):
            kinds = {str(one) for one in arrays}
            if len(kinds) > 1 or (not arrays[0].shape and len({one.load().tobytes() for one in arrays}) > 1):
                names = " and ".join(f"{prefix}.{path}" for path in placement.target)
                raise CheckpointError(f"{self.where}: {names} differ, and they are one number in PyTorch")
            return arrays[:1] * len(placement.source)
        shapes = [tuple(self.model.get(name, reference)["shape"]) for name in placement.source]
        return placement.backward(arrays, shapes)

    def _check(self, name: str, found: Any, reference: Mapping[str, Any]) -> Array:
        expected = f"{reference['dtype']}[{','.join(map(str, reference['shape']))}]"
        if not isinstance(found, Array) or str(found) != expected:
            raise CheckpointError(f"{self.where}: {name} is {found}, and PyTorch's state has {expected} there")
        return found

    def _count(self, name: str, found: Any, dtype: str) -> Array | int:
        count = count_of(found)
        if count is None:
            raise CheckpointError(f"{self.where}: {name} is {found}, expected a count")
        if dtype == "int":  # Python's own
            self.ledger.add(name, "copied", "step of the optimizer")
            return count
        exact = np.array(count).astype(dtype)
        if int(exact) != count:
            raise CheckpointError(f"{self.where}: {name} is {count}, and PyTorch's {dtype} cannot hold it")
        self.ledger.add(name, "copied", "step of the optimizer", "", exact.nbytes)
        return InMemory(exact)

    def _moved(self) -> int | None:
        """Return the step that JAX is at, if it is not the one that the document was written at."""
        moved = {}
        for name, recorded in dict(self.content.get("counts") or {}).items():
            self.used.add(name)
            now = number_of(self.leaves.get(name))
            scheduled = self.optax is None or self.optax.scheduled
            if type(now) is int and name == self.content.get("position_at") and scheduled:
                self.counted = recorded, now
            if type(now) is int and now != recorded:
                moved[name] = now
        step = number_of(self.step)
        if step is None:
            return max(moved.values(), default=None)
        if type(step) is int and step == self.recorded:
            if moved:
                name, now = next(iter(moved.items()))
                raise CheckpointError(
                    f"{self.where}: step is {step} as it was, and {name} moved on to {now}; set step too"
                )
            return None
        if type(step) is not int:
            raise CheckpointError(f"{self.where}: step is {step!r}, expected an integer")
        return step

    def _require_unmoved(self, moving: Mapping[tuple[Any, ...], Any]) -> None:
        """Refuse a tree at the step of its document whose schedule or loss scale is not."""
        for keys, recorded in moving.items():
            name = leaf_name(keys)
            if name in self.leaves and number_of(self.leaves[name]) != number_of(recorded):
                raise CheckpointError(
                    f"{self.where}: step is {self.recorded} as it was, and {name} changed; set step too"
                )

    def _move_on(self, tree: Tree, step: int) -> Tree:
        """Return the tree with counters, schedule and loss scale of the JAX state."""
        self.used.add("step")
        since = self.content.get("like") if self.recorded is None else self.recorded
        return move_on(
            dict(tree),
            Moved(since, step, self.counted, like="like" in self.content),
            self.leaves,
            kept=self.kept,
            reset=self.options.reset,
            ledger=self.ledger,
            where=self.where,
        )


def _model(document: Any, where: str) -> dict[str, dict[str, Any]]:
    """Return the references of the model: PyTorch's parameters by name, with their shapes and types."""
    found: dict[str, dict[str, Any]] = {}

    def look(reference: dict[str, Any]) -> None:
        if reference.get("model") is True:
            found[reference["name"]] = reference

    decode_tree(document, look, where)
    return found


def _items(tree: Tree, where: str) -> str:
    """Return which items of a checkpoint are training states, by the paths to give instead; empty without one."""
    inner = tree.items() if isinstance(tree, dict) else ()
    states = [str(key) for key, one in inner if isinstance(one, dict) and isinstance(one.get("params"), dict)]
    paths = [os.path.join(where, key) for key in states if os.path.basename(key) == key]
    found = [path for path in paths if os.path.isdir(path)]
    return f"; an item of it is one, give its path: {' or '.join(found)}" if found else ""
