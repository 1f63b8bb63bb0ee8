"""Loops of lessons for JAX: linen and NNX with Orbax's manager, Optax, shapes of Haiku and equinox, scan, Grain."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax import nnx, serialization
from flax.training import train_state

from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

DRAWS = np.random.default_rng(1)
X = DRAWS.normal(size=(32, 4)).astype(np.float32)
Y = X @ np.array([[1.0], [-1.0], [0.5], [2.0]], np.float32)


class MLP(nn.Module):
    """Two dense layers."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(1)(nn.tanh(nn.Dense(6)(x)))


TX = optax.adam(optax.cosine_decay_schedule(1e-2, 40))


@jax.jit
def linen_update(state: train_state.TrainState, x: Any, y: Any) -> train_state.TrainState:
    """Take a step."""
    grads = jax.grad(lambda p: jnp.mean((state.apply_fn({"params": p}, x) - y) ** 2))(state.params)
    return state.apply_gradients(grads=grads)


def linen_orbax_manager(folder: Path, steps: int = 12) -> Iterator[int]:
    """Save each third step with the asynchronous manager and wait once, at the end.

    Source: Flax documentation, "Save and load checkpoints", and Orbax's CheckpointManager lesson.
    """
    model = MLP()
    state = train_state.TrainState.create(
        apply_fn=model.apply, params=model.init(jax.random.key(0), X[:1])["params"], tx=TX
    )
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=3)
    with ocp.CheckpointManager((folder / "ckpts").resolve(), options=options) as mngr:
        start = 0
        if (latest := mngr.latest_step()) is not None:
            state = mngr.restore(latest, args=ocp.args.StandardRestore(state))
            start = latest
        for step in range(start, steps):
            yield step
            at = step % 4 * 8
            state = linen_update(state, X[at : at + 8], Y[at : at + 8])
            mngr.save(step + 1, args=ocp.args.StandardSave(state))
        mngr.wait_until_finished()
    return jax.device_get(state.params)


class Net(nnx.Module):
    """A layer with dropout."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.one, self.two = nnx.Linear(4, 6, rngs=rngs), nnx.Linear(6, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.two(nnx.relu(self.one(x)))


@nnx.jit
def nnx_update(model: Net, optimizer: Any, x: Any, y: Any) -> Any:
    """Take a step and return the loss."""
    loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - y) ** 2))(model)
    optimizer.update(model, grads)
    return loss


def nnx_orbax_manager(folder: Path, steps: int = 12) -> Iterator[int]:
    """Split model and optimizer, save their states with the asynchronous manager, evaluate in the loop.

    Source: Flax NNX documentation, "MNIST tutorial" and "Save and load checkpoints".
    """
    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
    mngr = ocp.CheckpointManager((folder / "nnx").resolve())
    begin = 0
    if mngr.latest_step() is not None:
        _, empty = nnx.split((model, optimizer))
        got = mngr.restore(mngr.latest_step(), args=ocp.args.StandardRestore(nnx.to_pure_dict(empty)))
        nnx.replace_by_pure_dict(empty, got)
        nnx.update((model, optimizer), empty)
        begin = mngr.latest_step()
    for i in range(begin, steps):
        yield i
        model.train()
        nnx_update(model, optimizer, X[i % 4 :: 4], Y[i % 4 :: 4])
        if i % 4 == 3:
            model.eval()
            print("validation", float(jnp.mean((model(X) - Y) ** 2)))
            mngr.save(i + 1, args=ocp.args.StandardSave(nnx.to_pure_dict(nnx.state((model, optimizer)))))
    mngr.wait_until_finished()
    mngr.close()
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


class TrainingState(NamedTuple):
    """Parameters, their average, and the optimizer's state."""

    params: Any
    avg_params: Any
    opt_state: Any


OPTIMISER = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))


@jax.jit
def haiku_update(state: TrainingState, x: Any, y: Any) -> TrainingState:
    """Return the next state."""

    def loss(p: Any) -> Any:
        return jnp.mean((jax.nn.relu(x @ p["mlp/~/0"]["w"]) @ p["mlp/~/1"]["w"] - y) ** 2)

    updates, opt_state = OPTIMISER.update(jax.grad(loss)(state.params), state.opt_state)
    params = optax.apply_updates(state.params, updates)
    return TrainingState(params, optax.incremental_update(params, state.avg_params, 0.1), opt_state)


def haiku_mnist(folder: Path, steps: int = 14) -> Iterator[int]:
    """Keep an averaged copy in a named tuple; evaluate with it; pickle of host arrays.

    Source: google-deepmind/dm-haiku, examples/mnist.py.
    """
    k1, k2 = jax.random.split(jax.random.PRNGKey(42))
    initial = {"mlp/~/0": {"w": jax.random.normal(k1, (4, 5))}, "mlp/~/1": {"w": jax.random.normal(k2, (5, 1))}}
    state, start = TrainingState(initial, initial, OPTIMISER.init(initial)), 0
    if (folder / "state.pickle").exists():
        start, leaves = pickle.loads((folder / "state.pickle").read_bytes())
        state = jax.tree.unflatten(jax.tree.structure(state), leaves)
    for step in range(start, steps):
        yield step
        sel = np.random.default_rng(step).choice(32, 8, replace=False)
        state = haiku_update(state, X[sel], Y[sel])
        if step % 5 == 4:
            print(float(jnp.square(state.avg_params["mlp/~/1"]["w"]).sum()))
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
            (folder / "state.pickle").write_bytes(pickle.dumps((step + 1, leaves)))
    return jax.device_get(state.avg_params)


@partial(jax.jit, donate_argnums=0)
def scan_chunk(carry: Any, batches: Any) -> Any:
    """Train on a chunk of batches; noise of a carried key."""

    def body(carry: Any, batch: Any) -> Any:
        w, m, key = carry
        key, sub = jax.random.split(key)
        x, y = batch
        g = x.T @ (x @ w - y) / len(x) + 1e-3 * jax.random.normal(sub, w.shape)
        m = 0.9 * m + g
        return (w - 0.05 * m, m, key), jnp.mean((x @ w - y) ** 2)

    return jax.lax.scan(body, carry, batches)


def scan_in_chunks(folder: Path, steps: int = 18) -> Iterator[int]:
    """Run three steps in each compiled scan, donate the carry; a line of metrics for each chunk.

    Source: google-research/vision_transformer and PureJaxRL (lax.scan over updates).
    """
    carry, step = (jnp.zeros((4, 1)), jnp.zeros((4, 1)), jax.random.PRNGKey(9)), 0
    if (folder / "carry.npz").exists():
        with np.load(folder / "carry.npz") as f:
            carry, step = (jnp.asarray(f["w"]), jnp.asarray(f["m"]), jnp.asarray(f["key"])), int(f["step"])
    while step < steps:
        yield step
        ix = np.arange(step * 8, step * 8 + 24).reshape(3, 8) % 32
        carry, _ = scan_chunk(carry, (X[ix], Y[ix]))
        step += 3
        if step % 6 == 0:
            np.savez(folder / "carry.npz", w=carry[0], m=carry[1], key=carry[2], step=step)
    (folder / "w.json").write_text(json.dumps(np.asarray(carry[0]).tolist()))


@jax.jit
def stateful(params: Any, running: Any, opt_state: Any, x: Any, y: Any) -> Any:
    """Take a step of a network whose normalisation has a state."""

    def loss(p: Any) -> Any:
        h = x @ p["a"]
        mean = h.mean(0)
        out = ((h - 0.9 * running["mean"] - 0.1 * mean) @ p["b"] - y) ** 2
        return out.mean(), {"mean": 0.9 * running["mean"] + 0.1 * mean, "count": running["count"] + 1}

    (value, running), g = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt_state = INJECTED.update(g, opt_state, params)
    return optax.apply_updates(params, updates), running, opt_state, value


INJECTED = optax.inject_hyperparams(optax.sgd)(learning_rate=0.05, momentum=0.9)


def equinox_stateful(folder: Path, steps: int = 14) -> Iterator[int]:
    """Thread a state of normalisation through the step; the rate is set by hand in injected hyperparameters.

    Source: equinox documentation, "Stateful operations" example, and Optax's inject_hyperparams.
    """
    params = {"a": jnp.eye(4), "b": jnp.ones((4, 1)) * 0.1}
    running, opt_state = {"mean": jnp.zeros(4), "count": jnp.zeros((), jnp.int32)}, INJECTED.init(params)
    tree, n = {"p": params, "r": running, "o": opt_state}, 0
    if (folder / "eqx.msgpack").exists():
        tree, n = serialization.from_bytes((tree, 0), (folder / "eqx.msgpack").read_bytes())
        params, running, opt_state = tree["p"], tree["r"], tree["o"]
    for n in range(int(n), steps):  # noqa: B020
        yield n
        if n % 6 == 5:
            opt_state.hyperparams["learning_rate"] = opt_state.hyperparams["learning_rate"] * 0.5
        params, running, opt_state, _ = stateful(params, running, opt_state, X[n % 8 :: 8], Y[n % 8 :: 8])
        if n % 4 == 3:
            tree = {"p": params, "r": running, "o": opt_state}
            (folder / "eqx.msgpack").write_bytes(serialization.to_bytes((tree, n + 1)))
    return {"params": jax.device_get(params), "mean": np.asarray(running["mean"])}


def grain_iterator(folder: Path, steps: int = 14) -> Iterator[int]:
    """Read shuffled batches of a Grain dataset, whose iterator's state is kept beside the weights.

    Source: Grain documentation, "DataLoader/Dataset checkpointing" lesson.
    """
    ds = grain.MapDataset.source(list(range(32))).seed(5).shuffle().repeat(4).batch(4)
    it = iter(ds.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))
    w, done = np.zeros((4, 1), np.float32), 0
    if (folder / "run.json").exists():
        was = json.loads((folder / "run.json").read_text())
        it.set_state(was["iterator"])
        w, done = np.array(was["w"], np.float32), was["done"]
    while done < steps:
        yield done
        picked = next(it)
        w = w - 0.05 * X[picked].T @ (X[picked] @ w - Y[picked]) / 4
        done += 1
        if done % 4 == 0:
            (folder / "run.json").write_text(json.dumps({"iterator": it.get_state(), "w": w.tolist(), "done": done}))
    return w


ORBAX = ("*commit_success.txt", "*.orbax-checkpoint-tmp*")
"""Holds the path of the folder; what a save that was not finished at the kill leaves."""

LOOPS = (
    Loop(train=linen_orbax_manager, tags=("asynchronous",), volatile=ORBAX, steps=12, stop_at=8),
    Loop(train=nnx_orbax_manager, tags=("asynchronous", "validation inline"), volatile=ORBAX, steps=12, stop_at=7),
    Loop(train=haiku_mnist, tags=("averages",)),
    Loop(train=scan_in_chunks, tags=("scan",), steps=18, stop_at=9),
    Loop(train=equinox_stateful, tags=("stateful normalisation", "injected rate")),
    Loop(train=grain_iterator, tags=("grain",)),
)
