"""Optimizers as people write them, on a few NumPy arrays, with a setting for each thing that ports get wrong.

One function takes the steps of an update in their order: gradient, clipping, decay, moments, direction, trust ratio,
rate, averages. Two of its rules that differ in one setting are a trainer and its wrong port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.ports.small_walks import gradients, still_zero

__all__ = ["ascended", "by_parts", "made", "optimizer"]

Leaves = dict[str, np.ndarray]

SLOTS = {
    "sgd": (), "momentum": ("m",), "adam": ("m", "sq"), "nadam": ("m", "sq"), "radam": ("m", "sq"),
    "belief": ("m", "sq"), "lion": ("m",), "rmsprop": ("sq",), "adagrad": ("sq",), "adamax": ("m", "sq"),
    "adadelta": ("sq", "acc"),
}  # fmt: skip


def norm_of(leaves: Mapping[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((one**2).sum() for one in leaves.values())))


def clipped(grads: Leaves, params: Leaves, how: str, top: float, s: Mapping[str, Any]) -> Leaves:
    """Return gradients clipped in one of the ways of libraries."""
    epsilon = s.get("clip_epsilon", 1e-6)
    if how == "norm":
        return {leaf: g * min(1.0, top / (norm_of(grads) + epsilon)) for leaf, g in grads.items()}
    if how == "always":
        return {leaf: g * top / (norm_of(grads) + epsilon) for leaf, g in grads.items()}
    if how == "leaf":
        return {leaf: g * min(1.0, top / (norm_of({"": g}) + epsilon)) for leaf, g in grads.items()}
    if how == "groups":
        parts = [{leaf: g for leaf, g in grads.items() if (leaf in "wb") == one} for one in (True, False)]
        return {leaf: one for part in parts for leaf, one in clipped(part, params, "norm", top, s).items()}
    if how == "value":
        return {leaf: np.clip(g, -top, top) for leaf, g in grads.items()}
    if how.startswith("agc"):
        found = {}
        for leaf, g in grads.items():
            axis = None if g.ndim < 2 or how == "agc leaf" else (0 if how == "agc" else 1)
            sizes = [np.sqrt((one**2).sum(axis, keepdims=g.ndim > 0)) for one in (params[leaf], g)]
            most = top * np.maximum(sizes[0], s.get("agc_epsilon", 1e-3))
            found[leaf] = g * np.minimum(1.0, most / np.maximum(sizes[1], 1e-6))
        return found
    raise ValueError(how)


def optimizer(kind: str = "adam", **s: Any) -> Callable[[dict, Leaves, int], None]:
    """Return a rule with settings; what is not given is PyTorch's."""
    rate = s.get("rate", 0.01)
    b1, b2 = s.get("b1", 0.9), s.get("b2", 0.99 if kind == "lion" else 0.999)
    epsilon, decay = s.get("eps", 1e-8), s.get("decay", 0.0)
    mask = s.get("mask", lambda leaf: True)
    bias = s.get("bias", (True, True))

    def rule(state: dict, grads: Leaves, at: int) -> None:
        params = state["params"]
        old = {leaf: one.copy() for leaf, one in params.items()}
        grads = {leaf: g * s.get("scale", 1.0) for leaf, g in grads.items()}
        if s.get("central"):
            grads = {leaf: g - g.mean(0, keepdims=True) if g.ndim > 1 else g for leaf, g in grads.items()}
        if s.get("decay_at") == "before clip":
            grads = {leaf: g + decay * params[leaf] * mask(leaf) for leaf, g in grads.items()}
        if "clip" in s and at >= s.get("clip_from", 1):
            grads = clipped(grads, params, *s["clip"], s)
        if s.get("decay_at") == "l2":
            grads = {leaf: g + decay * params[leaf] * mask(leaf) for leaf, g in grads.items()}
        now = rate(at) if callable(rate) else rate
        b = b1(at) if callable(b1) else b1
        made = {}
        for leaf, g in grads.items():
            made[leaf] = direction(state, leaf, g, at, b, now)
        if "clip_update" in s:
            made = clipped(made, params, "norm", s["clip_update"], s)
        if "clip_moves" in s:
            made = {leaf: np.clip(u, -s["clip_moves"], s["clip_moves"]) for leaf, u in made.items()}
        for leaf, u in made.items():
            scale = now * s.get("groups", lambda leaf: 1.0)(leaf) * s.get("groups_at", lambda leaf, at: 1.0)(leaf, at)
            share = decay * mask(leaf)
            if s.get("decay_at") == "in trust":
                u = u + share * params[leaf]
            u = trusted(u, old, leaf, made, share)
            if "trust_momentum" in s:
                m = state["m"][leaf] = s["trust_momentum"] * state["m"][leaf] + u
                u = m
            moved = params[leaf] - scale * u
            where = s.get("decay_at", "decoupled")
            factors = {"decoupled": scale, "not scheduled": s.get("base", 0.01), "no rate": 1.0, "no group": now}
            if where in factors:
                factor = factors[where]
                moved = moved - factor * share * params[leaf]
            elif where == "after":
                moved = moved * (1 - scale * share)
            params[leaf] = moved if s.get("trains", lambda leaf: True)(leaf) else params[leaf]
            if "project" in s:
                params[leaf] = s["project"](leaf, params[leaf], old[leaf])
        averaged(state, old, at)

    def direction(state: dict, leaf: str, g: np.ndarray, at: int, b: float, now: float) -> np.ndarray:
        if kind == "sgd":
            return g
        if kind == "momentum":
            first, later = s.get("first", 1.0), s.get("later", 1.0)
            if s.get("inside"):
                m = state["m"][leaf] = b * state["m"][leaf] + now * g
                return m / now
            m = state["m"][leaf] = b * state["m"][leaf] + (first if at == 1 else later) * g
            if s.get("nesterov") == "twice":
                return b * b * state["m"][leaf] + (1 + b) * g
            return g + b * m if s.get("nesterov") else m
        if kind == "lion":
            c, kept = s.get("lion", (0.9, 0.99))
            m = state["m"][leaf]
            if s.get("moment_first"):
                m = state["m"][leaf] = kept * m + (1 - kept) * g
                return np.sign(c * m + (1 - c) * g)
            state["m"][leaf] = kept * m + (1 - kept) * g
            return np.sign(c * m + (1 - c) * g) if not s.get("no_sign") else c * m + (1 - c) * g
        v = state["sq"][leaf]
        if kind == "rmsprop":
            v = state["sq"][leaf] = s.get("kept", 0.99) * v + (1 - s.get("kept", 0.99)) * g * g
            if "mean" in state:
                mean = state["mean"][leaf] = 0.99 * state["mean"][leaf] + 0.01 * g
                v = v - mean**2
            u = divided(g, v)
            if "m" in state:
                state["m"][leaf] = 0.9 * state["m"][leaf] + u * (now if s.get("rate_inside") else 1.0)
                return state["m"][leaf] / (now if s.get("rate_inside") else 1.0)
            return u
        if kind == "adagrad":
            v = state["sq"][leaf] = v + g * g if not s.get("mean") else 0.9 * v + 0.1 * g * g
            return divided(g, v)
        if kind == "adadelta":
            rho = s.get("rho", 0.9)
            v = state["sq"][leaf] = rho * v + (1 - rho) * g * g
            e = s.get("eps", 1e-6)
            if s.get("eps_at") == "beside roots":
                u = (np.sqrt(state["acc"][leaf]) + e) / (np.sqrt(v) + e) * g
            else:
                u = np.sqrt(state["acc"][leaf] + e) / np.sqrt(v + e) * g
            state["acc"][leaf] = rho * state["acc"][leaf] + (1 - rho) * u * u
            return u
        m = state["m"][leaf] = b * state["m"][leaf] + (1 - b) * g
        if kind == "adamax":
            v = state["sq"][leaf] = np.maximum(b2 * v, np.abs(g) + epsilon)
            return m / (1 - b**at) / v
        dev = g - m if kind == "belief" else g
        v = state["sq"][leaf] = b2 * v + (1 - b2) * dev * dev + (epsilon if s.get("eps_inside_moment") else 0.0)
        shifted = at + s.get("shift", 0)
        whole = float(np.prod([b1(n) if callable(b1) else b1 for n in range(1, shifted + 1)]))
        one = (1 - (whole if s.get("product") else b**shifted)) if bias[0] else 1.0
        two = (1 - b2**shifted) if bias[1] else 1.0
        if kind == "nadam":
            if s.get("scheduled", True):
                weights = [b * (1 - 0.5 * 0.96 ** (n * 4e-3)) for n in range(1, at + 2)]
                whole = float(np.prod(weights[:-1]))
                mh = weights[-1] * m / (1 - whole * weights[-1]) + (1 - weights[-2]) * g / (1 - whole)
            else:
                mh = b * m / (1 - b ** (at + 1)) + (1 - b) * g / (1 - b**at)
            return divided(mh, v / two)
        if kind == "radam":
            most = 2 / (1 - b2) - 1
            length = most - 2 * s.get("counted", lambda at: at)(at) * b2**at / (1 - b2**at)
            if length > s.get("threshold", 5.0):
                r = np.sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length))
                return (1.0 if s.get("unrectified") else r) * divided(m / one, v / two)
            return m / one
        if "max" in state:
            if s.get("max_of") == "corrected":
                top = state["max"][leaf] = np.maximum(state["max"][leaf], v / two)
                return divided(m / one, top)
            most = state["max"][leaf] = np.maximum(state["max"][leaf], v)
            v = v if s.get("max_unused") else most
        if s.get("nesterov"):
            m = b * m + (1 - b) * g
        return divided(m / one, v / two, np.sqrt(two))

    def divided(m: np.ndarray, v: np.ndarray, correction: float = 1.0) -> np.ndarray:
        where = s.get("eps_at", "beside")
        if where == "under":
            return m / np.sqrt(v + epsilon)
        return m / (np.sqrt(v) + (epsilon / correction if where == "uncorrected" else epsilon))

    def trusted(u: np.ndarray, params: Leaves, leaf: str, made: Leaves, share: float) -> np.ndarray:
        how = s.get("trust")
        if how is None or (s.get("trust_mask") and params[leaf].ndim < 2):
            return u
        if how == "lars":  # of the gradient with its decay, as torch_optimizer and optax have it
            coefficient = s.get("coefficient", 0.02)
            g = u + share * params[leaf] if s.get("decay_in_norm") else u
            bottom = norm_of({"": g})
            if s.get("lars_form") == "sum":
                bottom = norm_of({"": u}) + share * norm_of({"": params[leaf]})
            ratio = coefficient * norm_of({"": params[leaf]}) / bottom
            return ratio * (u + share * params[leaf])
        whole = how == "all"
        ratio = norm_of(params if whole else {"": params[leaf]}) / norm_of(made if whole else {"": u})
        return min(ratio, s.get("most", 1e9)) * u

    def averaged(state: dict, old: Leaves, at: int) -> None:
        params = state["params"]
        if "avg" in state and at % s.get("every", 1) == 0 and at >= s.get("begin", 1):
            d = s.get("ema", 0.9)
            d = d(at) if callable(d) else d
            for leaf, one in (old if s.get("before") else params).items():
                state["avg"][leaf] = d * state["avg"][leaf] + (1 - d) * one
                if s.get("sets"):
                    params[leaf] = state["avg"][leaf].copy()

    return rule


def made(kind: str, **s: Any) -> tuple[Callable, Callable, Callable | None]:
    """Return a rule, its slots and its loss."""

    def slots(params: Leaves) -> dict:
        names = [*SLOTS[kind], *s.get("slots", ())]
        found = {name: still_zero(params) for name in names}
        if "begin_sq" in s:
            found["sq"] = {leaf: one + s["begin_sq"] for leaf, one in found["sq"].items()}
        if "ema" in s:
            found["avg"] = {leaf: one * (0.0 if s.get("from_zero") else 1.0) for leaf, one in params.items()}
        return found

    inner, rate = optimizer(kind, **s), s.get("rate", 0.01)

    def rule(state: dict, grads: Leaves, at: int) -> None:
        inner(state, grads, at)
        if s.get("tells"):
            state["optimizer"] = {"lr.0": np.array(rate(at + 1) if callable(rate) else rate)}

    def told(params: Leaves) -> dict:
        more = {"optimizer": {"lr.0": np.array(rate(1) if callable(rate) else rate)}} if s.get("tells") else {}
        return slots(params) | more

    return rule, told, s.get("loss")


def ascended(rho: float = 0.05, how: str = "", keeps: bool = False) -> Callable:
    """Return the loss of SAM: its gradient is that at a point where the loss is higher."""

    def loss(state: dict, batch: dict) -> tuple[float, Leaves]:
        params = state["params"]
        value, grads = gradients(params, batch)
        if how == "leaf":
            step = {leaf: rho * g / norm_of({"": g}) for leaf, g in grads.items()}
        elif how == "adaptive":
            size = norm_of({leaf: g * np.abs(params[leaf]) for leaf, g in grads.items()})
            step = {leaf: rho * g * params[leaf] ** 2 / size for leaf, g in grads.items()}
        else:
            step = {leaf: rho * g / norm_of(grads) for leaf, g in grads.items()}
        there = {leaf: one + step[leaf] for leaf, one in params.items()}
        found = gradients(there, batch)[1]
        if keeps:
            state["params"].update(there)
        return value, found

    return loss


def by_parts(parts: int = 3, *, sums: bool = False, used: int | None = None, clips: float | None = None,
             after: float | None = None, weights: tuple[float, ...] | None = None) -> Callable:  # fmt: skip
    """Return a loss whose gradient is accumulated over parts of the batch."""

    def loss(state: dict, batch: dict) -> tuple[float, Leaves]:
        value = gradients(state["params"], batch)[0]
        total = still_zero(state["params"])
        count = len(batch["x"]) // parts
        for at in range(used or parts):
            part = {name: one[at * count : (at + 1) * count] for name, one in batch.items()}
            grads = gradients(state["params"], part)[1]
            if clips is not None:
                grads = {leaf: g * min(1.0, clips / (norm_of(grads) + 1e-6)) for leaf, g in grads.items()}
            share = 1.0 if sums else (weights[at] if weights else 1 / parts)
            total = {leaf: one + share * grads[leaf] for leaf, one in total.items()}
        if after is not None:
            total = {leaf: g * min(1.0, after / (norm_of(total) + 1e-6)) for leaf, g in total.items()}
        return value, total

    return loss
