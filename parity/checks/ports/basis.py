"""The basis of a comparison: pairs of arrays, pairs of curves, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parity.checks.ports.judge import Curve
from parity.checks.ports.series import CURVES, NARROW_FIRST, Series, Trained
from parity.checks.running import Compute, Trace
from parity.mapping import Pair, PairRule, matching, pair_leaves, pair_slots, words_of

__all__ = ["Basis", "Setting", "build_basis", "different_counts", "different_settings", "nothing_paired"]

SLOTS = ("optimizer.", "ema")

SAME_SETTING = {"betas[0]": "b1", "betas[1]": "b2", "rho": "decay", "alpha": "decay", "eps_root": "eps_root"}
"""PyTorch's names of hyperparameters to Optax's."""


@dataclass(frozen=True)
class Basis:
    """What is compared with what."""

    pairs: tuple[Pair, ...]
    """Parameters first, then buffers, then what belongs to parameters."""
    curves: tuple[Curve, ...]
    unpaired: tuple[str, ...]
    precision: Compute
    notes: tuple[str, ...] = ()

    @property
    def params(self) -> list[Pair]:
        """Return the pairs of parameters."""
        return [pair for pair in self.pairs if pair.component == "model.params"]

    @property
    def left(self) -> list[str]:
        """Return the arrays of the reference."""
        return [pair.a for pair in self.pairs]

    @property
    def right(self) -> list[str]:
        """Return the arrays of the port."""
        return [pair.b for pair in self.pairs]


def nothing_paired(precision: Compute | None) -> Basis:
    """Return the basis of a verdict that was reached before anything was paired."""
    return Basis((), (), (), precision or "float32")


@dataclass(frozen=True)
class Setting:
    """A number that both sides have, that differs, and that may be the cause of what parts."""

    component: str
    path: str
    other: str
    """Its path on the other side."""
    value: str
    got: str


def build_basis(a: Trained, b: Trained, at: tuple[Series, int], other: tuple[Series, int], rules: Sequence[PairRule],
                precision: Compute | None) -> Basis:  # fmt: skip
    """Pair what two trainers hold.

    Args:
        a: The reference.
        b: Its port.
        at: Values of the reference, and the step at which both should be equal.
        other: The same of the port.
        rules: Rows of paths and transforms, for parameters and buffers.
        precision: Type in which the products are computed; None for the narrowest of the parameters.

    Raises:
        SpecError: A rule that cannot be used.
    """
    pairs: list[Pair] = []
    unpaired: list[str] = []
    for component in ("model.params", "model.buffers"):
        left, right = (
            {p: np.asarray(series.values[step][p]) for p in trained.state
             if trained.component(p) == component and p in series.values[step]}
            for trained, (series, step) in ((a, at), (b, other))
        )  # fmt: skip
        others = {p for p in a.state if p not in left}  # what matches nothing at all is refused with the parameters
        mine = [
            rule
            for rule in rules
            if matching(rule, left) or (component == "model.params" and not matching(rule, others))
        ]
        last = tuple(
            {p: np.asarray(series.values[max(series.kept([p]))][p], np.float64) for p in values if series.kept([p])}
            for values, (series, _) in ((left, at), (right, other))
        )
        found, alone = pair_leaves(left, right, component, mine if left and right else (), (last[0], last[1]))
        pairs += found
        unpaired += alone
    params = [pair for pair in pairs if pair.component == "model.params"]
    slots = [{p: t.component(p) for p in t.state if t.component(p).startswith(SLOTS)} for t in (a, b)]
    pairs += pair_slots(params, *slots)
    taken = {pair.a for pair in pairs} | {pair.b for pair in pairs}
    unpaired += [p for one in slots for p in one if p not in taken]
    curves, notes = _curves(a, b)
    both = (a.precision([pair.a for pair in params]), b.precision([pair.b for pair in params]))
    narrowest = min(both, key=NARROW_FIRST.index)
    return Basis(
        pairs=tuple(pairs),
        curves=tuple(curves),
        unpaired=tuple(dict.fromkeys(unpaired)),
        precision=precision or narrowest,
        notes=tuple(notes),
    )


def _curves(a: Trained, b: Trained) -> tuple[list[Curve], list[str]]:
    found, notes = [], []
    for component in CURVES:
        left, right = ([p for p in t.numbers if t.component(p) == component] for t in (a, b))
        if len(left) > 1 or len(right) > 1:
            common = [(p, o) for p in left for o in right if words_of(p)[-1] == words_of(o)[-1]]
            left, right = ([p for p, _ in common[:1]], [o for _, o in common[:1]])
        if left and right:
            found.append(Curve(left[0], right[0], component))
        elif component == "loss":
            notes.append(
                "no loss was seen on both sides: keep it in a variable called loss, or give it to parity.mark"
            )
    return found, notes


def different_settings(a: Trained, b: Trained) -> list[Setting]:
    """Return hyperparameters of the optimizers that both sides have once and that differ.

    Args:
        a: The reference.
        b: Its port.

    Numerics: compared as float32, in which Optax keeps them.
    """
    left, right = _settings(a), _settings(b)
    found = []
    for name in sorted(left.keys() & right.keys()):
        (path, one), (other, two) = left[name], right[name]
        if np.float32(one) != np.float32(two):
            found.append(Setting("optimizer.hyperparameters", path, other, repr(one), repr(two)))
    return found


def _settings(trained: Trained) -> dict[str, tuple[str, float]]:
    """Return name to path and value of hyperparameters that have one value in all groups.

    What a module of its own holds counts where the loop's own variables hold none of that name: the other trainer's
    module is in the process too.
    """
    own: dict[str, set[tuple[str, float]]] = {}
    of_modules: dict[str, set[tuple[str, float]]] = {}
    for path, leaf in trained.leaves.items():
        if leaf.component != "optimizer.hyperparameters" or leaf.kind not in ("float", "int", "number", "float32[]"):
            continue
        last = path.rpartition(".")[2]
        values = of_modules if ":" in path else own
        try:
            values.setdefault(SAME_SETTING.get(last, last), set()).add((path, float(leaf.digest)))
        except ValueError:
            continue
    held = {**of_modules, **own}
    return {name: min(found) for name, found in held.items() if len({value for _, value in found}) == 1}


def different_counts(source: Trained, taker: Trained, taken: Trace, step: int) -> list[Setting]:
    """Return counts of updates that a run which took over has and that the run before had nowhere.

    Args:
        source: The trainer that was killed.
        taker: The one that took over.
        taken: The run that took over.
        step: Completed steps at the handover.

    Returns:
        The first of the optimizer, or else of the schedule. A schedule may count one more than the other does:
        PyTorch's counts its own start.
    """
    before = next(mark.snapshot for mark in source.reference.marks if mark.step == step)
    for component, ahead in (("optimizer.step", 0), ("schedule.step", 1)):
        held = {path: count for path, leaf in before.leaves.items()
                if leaf.component == component and path in source.changing
                and (count := _whole(leaf.text)) is not None}  # fmt: skip
        counts = set(held.values())
        allowed = {count + more for count in counts for more in range(-ahead, ahead + 1)}
        for path, leaf in taken.marks[0].snapshot.leaves.items():
            count = _whole(leaf.text)
            # what the loop has read and leaves lying, such as the file's own, stays as it is in every step
            if held and leaf.component == component and path in taker.changing and count not in {*allowed, None}:
                return [Setting(component, next(iter(held)), path, ", ".join(map(str, sorted(counts))), leaf.text)]
    return []


def _whole(text: str) -> int | None:
    """Return a count; None for what is no whole number, such as the text of a second name of something."""
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None
