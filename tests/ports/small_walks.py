"""Two trainers of a few NumPy arrays, walked as `parity port` walks real ones: a cause is told in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace

import numpy as np

from parity.checks.proving.walk import TwoWalks, walk_updates
from parity.contract import StateView
from parity.errors import SpecError

__all__ = ["MODEL", "adam", "gradients", "momentum", "still_zero", "walk_of"]

DRAWN = np.random.default_rng(0)
MODEL = {
    "w": DRAWN.normal(size=(5, 4)), "v": DRAWN.normal(size=(4, 3)), "b": DRAWN.normal(size=3),
    "s": np.array(1.3), "r": np.array(0.7),
}  # fmt: skip
"""Leaves, two of them of one element."""

Leaves = dict[str, np.ndarray]
Rule = Callable[[dict, Leaves, int], None]
"""Changes a state (`params`, and slots beside it) by gradients at an update, counted from 1."""


def batch(step: int) -> dict[str, np.ndarray]:
    draws = np.random.default_rng([1, step])
    return {"x": draws.normal(size=(12, 5)), "y": draws.normal(size=(12, 3))}


def gradients(p: Leaves, made: dict[str, np.ndarray]) -> tuple[float, Leaves]:
    """Return a loss, and its gradients."""
    x, y = made["x"], made["y"]
    hidden = np.tanh(x @ p["w"])
    plain = hidden @ p["v"] + p["b"]
    error = plain * p["s"] + p["r"] - y
    back = 2 / error.size * error
    into = back * p["s"] @ p["v"].T * (1 - hidden**2)
    grads = {"w": x.T @ into, "v": hidden.T @ (back * p["s"]), "b": (back * p["s"]).sum(0),
             "s": np.array((back * plain).sum()), "r": np.array(back.sum())}  # fmt: skip
    return float((error**2).mean()), grads


def still_zero(params: Leaves) -> Leaves:
    return {leaf: np.zeros_like(value) for leaf, value in params.items()}


class Run:
    """A training that has begun."""

    def __init__(self, values: Leaves, slots: Callable[[Leaves], dict], rule: Rule, loss: Callable) -> None:
        self.state = {"params": {leaf: value.copy() for leaf, value in values.items()}}
        self.state |= slots(self.state["params"])
        self.rule, self.loss, self.done = rule, loss, 0

    def step(self, made: dict[str, np.ndarray]) -> float:
        value, grads = self.loss(self.state, made)
        self.done += 1
        self.rule(self.state, grads, self.done)
        return value

    def view(self) -> StateView:
        return StateView(
            {f"{s}.{leaf}": np.array(one) for s, held in self.state.items() for leaf, one in held.items()}
        )


def trainer(name: str, slots: Callable[[Leaves], dict], rule: Rule, loss: Callable, lifts: bool,
            statistics: Collection[str] = ()) -> SimpleNamespace:  # fmt: skip
    model = SimpleNamespace(leaves=MODEL, statistics=frozenset(statistics))

    def begin(values: Leaves, *, lift: bool = False) -> Run:
        if lift and not lifts:
            raise SpecError("step", "cannot be run without its casts")
        return Run(values, slots, rule, loss)

    def evaluate(values: Leaves, made: dict[str, np.ndarray]) -> SimpleNamespace:
        value, grads = gradients(values, made)
        kept = {leaf: g for leaf, g in grads.items() if leaf not in statistics}
        return SimpleNamespace(loss=value, gradients=kept, outputs=())

    probe = SimpleNamespace(model=model, begin=begin, loss=evaluate, casts=())
    return SimpleNamespace(name=name, probe=probe, model=model, batch=batch)


def pair_of(here, there, slots=None, *, loss=None, other=None, lifts=True, statistics=()):  # type: ignore[no-untyped-def]
    """Return a pairing and two trainers; `slots` are made of the parameters, `loss` of (state, batch)."""
    held = slots if isinstance(slots, tuple) else (slots or (lambda p: {}),) * 2
    plain = lambda state, made: gradients(state["params"], made)  # noqa: E731
    sides = zip(("first", "second"), held, (here, there), (loss, other), strict=True)
    two = [trainer(name, made, rule, one or plain, lifts, statistics) for name, made, rule, one in sides]
    subjects = SimpleNamespace(
        **{n: SimpleNamespace(leaves=MODEL, statistics=frozenset(statistics)) for n in ("first", "second")}
    )
    pairing = SimpleNamespace(
        subjects=subjects, over=lambda values, grads=False: dict(values), names=lambda: {leaf: leaf for leaf in MODEL}
    )
    return pairing, *two


def walk_of(here: Rule, there: Rule, slots=None, steps: int = 8, **given) -> TwoWalks:  # type: ignore[no-untyped-def]
    """Return the walk of two rules up to where they part."""
    return walk_updates(*pair_of(here, there, slots, **given), MODEL, steps)


def momentum(
    first: float, later: float, kept: float = 0.9, rate: float = 0.05, change: Callable | None = None
) -> Rule:
    """Return SGD whose momentum takes a share of the first gradient and another of later ones."""

    def rule(state: dict, grads: Leaves, at: int) -> None:
        for leaf, g in (change(grads) if change else grads).items():
            state["m"][leaf] = kept * state["m"][leaf] + (first if at == 1 else later) * g
            state["params"][leaf] = state["params"][leaf] - rate * state["m"][leaf]

    return rule


def adam(rates: Callable = lambda leaf: 0.01, change: Callable | None = None, decay: float = 0.0, *,
         corrects: bool | tuple[bool, bool] = True, epsilon: float = 1e-8, divides: bool = True) -> Rule:  # fmt: skip
    def rule(state: dict, grads: Leaves, at: int) -> None:
        for leaf, g in (change(grads) if change else grads).items():
            p = state["params"]
            m = state["m"][leaf] = 0.9 * state["m"][leaf] + 0.1 * g
            v = state["sq"][leaf] = 0.999 * state["sq"][leaf] + 0.001 * g * g
            first, second = corrects if isinstance(corrects, tuple) else (corrects, corrects)
            m, v = m / (1 - 0.9**at) if first else m, v / (1 - 0.999**at) if second else v
            p[leaf] = p[leaf] - rates(leaf) * (m / (np.sqrt(v) + epsilon if divides else 1.0) + decay * p[leaf])

    return rule
