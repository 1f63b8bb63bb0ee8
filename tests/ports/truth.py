"""Where a port of the corpus parts from its reference, found without the command: both run in float64, compared.

The table of the corpus is held against this. What a module of JAX computes in float32 by a cast is lifted, as the
proof of a map does; what a state holds in a narrow type is not.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import linen, nnx

from jax_side.probes.islands import lifted
from jax_side.probes.paths import keys_of
from parity.checks.models import ModelSource, map_opened, open_subjects
from parity.checks.models.proof import carried, placed, prove

BOUND, DRIFT = 1e-11, 1e-9
"""Largest relative difference of one evaluation, and of what fifty steps make of it."""

SLOTS = {
    "first": ("exp_avg", "momentum_buffer", "m", "mu", "buffer", "trace", "momentum"),
    "second": ("exp_avg_sq", "v", "nu"),
    "ema": ("ema",),
}
"""Slot to what a state calls it."""


def framework_of(port: Any) -> str:
    return "torch" if type(port).__module__.endswith("_torch") else "jax"


def subjects_of(first: Any, second: Any, inputs: Any = ()) -> Any:
    """Return both models, open, with the inputs that the two declare."""
    sources = [
        ModelSource(f"--{framework_of(one)}", f"{type(one).__module__.rpartition('.')[2]}:{place}", one.Model)
        for one, place in ((first, "first"), (second, "second"))
    ]
    wanted = inputs or (second.inputs if any("->" in text for text in second.inputs) else first.inputs)
    return open_subjects(*sources, list(wanted))


class TorchRun:
    """A port of PyTorch in float64."""

    def __init__(self, port: Any) -> None:
        self.port, self.model = port, port.Model().double()

    def _leaves(self, model: Any) -> dict[str, torch.Tensor]:
        kept = {name: one for name, one in model.named_buffers() if name.endswith(("running_mean", "running_var"))}
        return dict(model.named_parameters()) | kept

    def set(self, values: Any) -> None:
        with torch.no_grad():
            for name, one in self._leaves(self.model).items():
                one.copy_(torch.as_tensor(values[name]))

    def evaluate(self, batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """Return the loss of a batch and its gradients."""
        self.model.zero_grad()
        loss = self.port.loss(self.model, wide(batch))
        loss.backward()
        params = dict(self.model.named_parameters())
        grads = {n: np.zeros(tuple(p.shape)) if p.grad is None else p.grad.numpy().copy() for n, p in params.items()}
        return float(loss.detach()), grads

    def start(self) -> None:
        self.model.zero_grad(set_to_none=True)  # a leaf that training freezes has none
        self.state = self.port.start(self.model)

    def step(self, batch: Any) -> float:
        self.state, loss = self.port.step(self.state, wide(batch))
        return float(loss)

    def held(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the values of each slot of the state, the model's as `model`."""
        found = {"model": {name: one.detach().numpy() for name, one in self._leaves(self.state["model"]).items()}}
        names = {id(p): name for name, p in self.state["model"].named_parameters()}
        for p, slots in self.state["optimizer"].state.items():
            for slot, words in SLOTS.items():
                for word in words:
                    if word in slots:
                        found.setdefault(slot, {})[names[id(p)]] = slots[word].numpy()
        if "ema" in self.state:
            kept = self._leaves(self.state["ema"])  # of a module that holds the averaged one as `module`
            found["ema"] = {name.removeprefix("module."): one.detach().numpy() for name, one in kept.items()}
        return {slot: {name: one.copy() for name, one in values.items()} for slot, values in found.items()}


class JaxRun:
    """A port of JAX in float64, with what it casts to float32 lifted."""

    def __init__(self, port: Any) -> None:
        self.port = port
        with jax.enable_x64(True):
            self.model = port.opened()
            for _, one in nnx.iter_modules(self.model) if isinstance(self.model, nnx.Module) else ():
                if isinstance(one, nnx.Embed):
                    one.dtype = None  # it would cast its table to the type that it was built in
            self._split()
            self._leaves = jax.tree.map(_to_float64, self._leaves)
        self._program: Any = None
        self._graded: Any = None

    def _split(self) -> None:
        """Set the moving leaves of the model, and how they make it again."""
        model = self.model
        if isinstance(model, nnx.Module):
            graph, leaves, rest = nnx.split(model, (nnx.Param, nnx.BatchStat), ...)
            self._leaves, self._join = leaves, lambda one: nnx.merge(graph, one, rest)
        elif isinstance(model, tuple) and isinstance(model[0], linen.Module):
            self._leaves, self._join = model[1], lambda one: (model[0], one)
        elif isinstance(model, tuple):
            self._leaves, self._join = model[0], lambda one: (one, model[1])
        else:
            flat, tree = jax.tree.flatten(model)
            moving = [isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jnp.floating) for one in flat]
            self._leaves = jax.tree.unflatten(tree, [one if m else None for one, m in zip(flat, moving, strict=True)])
            still = [None if m else one for one, m in zip(flat, moving, strict=True)]

            def join(one: Any) -> Any:
                arrays = iter(jax.tree.leaves(one))
                return jax.tree.unflatten(
                    tree, [next(arrays) if m else s for m, s in zip(moving, still, strict=True)]
                )

            self._join = join

    def _named(self, tree: Any) -> dict[str, Any]:
        found = {}
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
            keys = keys_of([key for key in path if getattr(key, "name", "") != "value"]).split(".")
            found[".".join(keys[1:] if keys[0] in ("params", "batch_stats") else keys)] = leaf
        return found

    def set(self, values: Any) -> None:
        with jax.enable_x64(True):
            names = list(self._named(self._leaves))
            flat = [jnp.asarray(values[name]) for name in names]
            self._leaves = jax.tree.unflatten(jax.tree.structure(self._leaves), flat)

    def evaluate(self, batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """Return the loss of a batch and its gradients."""
        with jax.enable_x64(True):
            if self._graded is None:
                wide_loss = lifted(lambda one, b: self.port.loss(self._join(one), b), {})
                self._graded = jax.jit(jax.value_and_grad(wide_loss))
            loss, grads = self._graded(self._leaves, wide(batch))
            return float(loss), {name: np.asarray(one) for name, one in self._named(grads).items()}

    def start(self) -> None:
        with jax.enable_x64(True):
            self.graph, self.state = nnx.split(self.port.start(self._join(self._leaves)))

    def step(self, batch: Any) -> float:
        with jax.enable_x64(True):
            if self._program is None:

                def run(leaves: Any, batch: Any) -> Any:
                    state, loss = self.port.step(nnx.merge(self.graph, leaves), batch)
                    return nnx.split(state)[1], loss

                self._program = jax.jit(lifted(run, {}))
            state, loss = self._program(self.state, wide(batch))
            # what a state holds in a narrow type it holds so after the update too
            self.state = jax.tree.map(lambda old, new: new.astype(old.dtype) if _is_float(old) else new,
                                      self.state, state)  # fmt: skip
            return float(loss)

    def held(self) -> dict[str, dict[str, np.ndarray]]:
        """Return the values of each slot of the state, the model's as `model`."""
        with jax.enable_x64(True):
            params = list(self._named(self._leaves))
            found: dict[str, dict[str, np.ndarray]] = {}
            for path, leaf in jax.tree_util.tree_flatten_with_path(self.state)[0]:
                keys = keys_of([key for key in path if getattr(key, "name", "") != "value"])
                for name in params:
                    if keys.endswith(f".{name}") and "metric" not in keys:
                        words = keys.removesuffix(f".{name}").split(".")
                        slot = next((s for s, known in SLOTS.items() for w in words if w in known), "model")
                        found.setdefault(slot, {})[name] = np.asarray(leaf, np.float64)
                        break
            return found


def stage_of(first: Any, second: Any, rules: Any, steps: int = 50, *, forward: bool = True) -> tuple[str, str]:
    """Return the stage at which two ports part, and what parts; `""` where nothing does.

    Args:
        first: The reference.
        second: The port.
        rules: From the leaves of the first to those of the second.
        steps: Updates to make.
        forward: Whether the models alone are looked at; what parts there parts in the loss too.
    """
    for at in range(8):
        one, two = first.batch(at), second.batch(at)
        for name in one:
            if name not in two or not np.array_equal(one[name], two[name]):
                return "batches", f"{name} of step {at}"
    subjects = subjects_of(first, second)
    if forward and (proof := prove(subjects, rules)).verdict == "broken":
        return "forward", (*proof.problems, *(part.what for part in proof.parted))[0]
    placements, _ = placed(subjects, rules)
    a, b = (TorchRun(one) if framework_of(one) == "torch" else JaxRun(one) for one in (first, second))
    values = carried(subjects.first, placements, subjects.first.leaves)
    a.set(subjects.first.leaves), b.set(values)
    for at in range(2):
        (one, here), (two, there) = (run.evaluate(first.batch(at)) for run in (a, b))
        if (gap := distance(one, two)) > BOUND:
            return "loss", f"{gap:.1e}"
        if what := _parts(subjects, placements, {"": here}, {"": there}, BOUND, grads=True):
            return "gradients", what
    a.set(subjects.first.leaves), b.set(values)  # a loss moves running statistics, in PyTorch in place
    a.start(), b.start()
    for at in range(steps):
        batch = first.batch(at)
        gap = distance(a.step(batch), b.step(batch))
        if at in (0, steps - 1):
            limit = BOUND if at == 0 else DRIFT
            what = _parts(subjects, placements, a.held(), b.held(), limit)
            if what or gap > limit:
                return "update" if at == 0 else "steps", what or f"loss {gap:.1e}"
        elif gap > DRIFT:
            return "steps", f"loss of step {at}: {gap:.1e}"
    return ("initial values", unlike) if (unlike := other_start(subjects, placements)) else ("", "")


def other_start(subjects: Any, placements: Any) -> str:
    """Return the first leaf that is constant in one model alone as it is built, or of another spread."""
    for name, value in carried(subjects.first, placements, subjects.first.leaves).items():
        one, two = float(np.std(value)), float(np.std(subjects.second.leaves[name]))
        # the spread of 64 draws is known to a tenth
        if (one == 0) != (two == 0) or (value.size >= 64 and max(one, two) > 1.4 * min(one, two)):
            return f"{name}: spread {one:.3g} and {two:.3g}"
    return ""


def _parts(subjects: Any, placements: Any, one: Any, two: Any, limit: float, *, grads: bool = False) -> str:
    for slot, values in one.items():
        wanted = carried(subjects.first, placements, values, grads=grads)
        if slot not in two:
            return f"{slot} is missing"
        largest = max(float(np.abs(value).max(initial=0.0)) for value in wanted.values())
        for name, value in wanted.items():
            if name not in two[slot]:
                return f"{slot} of {name} is missing"
            gap = float(np.abs(value - two[slot][name]).max(initial=0.0)) / largest
            if gap > limit:
                return f"{slot} of {name}: {gap:.1e}"
    return f"{next(iter(set(two) - set(one)))} is one too many" if set(two) - set(one) else ""


def rules_of(first: Any, right: Any, inputs: Any = ()) -> Any:
    """Return the map of a reference and a right port, with its proof; of two of JAX the inputs of both are given."""
    return map_opened(subjects_of(first, right, inputs), None, None)


def distance(a: float, b: float) -> float:
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def wide(batch: Any) -> dict[str, np.ndarray]:
    """Return a batch with its floats in float64."""
    return {
        name: one.astype(np.float64) if np.issubdtype(one.dtype, np.floating) else one for name, one in batch.items()
    }


def _is_float(one: Any) -> bool:
    return bool(jnp.issubdtype(one.dtype, jnp.floating))


def _to_float64(one: Any) -> Any:
    return one.astype(jnp.float64) if _is_float(one) else one
