"""Loops of JAX around one small compiled step: variables of linen, NNX with dropout, MultiSteps, records as trees."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax import linen as nn
from flax import nnx, serialization, struct

import parity
from tests.corpus.registry import Loop

__all__ = ["LOOPS"]

MADE = np.random.default_rng(61)
INPUTS = MADE.normal(size=(32, 3)).astype(np.float32)
TARGETS = np.sin(INPUTS.sum(1, keepdims=True)).astype(np.float32)


class Normed(nn.Module):
    """A layer with normalisation over the batch."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.BatchNorm(use_running_average=not train, momentum=0.9)(nn.Dense(5)(x))
        return nn.Dense(1)(nn.relu(x))


NORMED, NORMED_TX = Normed(), optax.sgd(0.05, momentum=0.9)


@jax.jit
def normed_step(opt_state: Any, params: Any, state: Any, x: Any, y: Any) -> Any:
    """Take a step; the statistics come back beside."""

    def loss_fn(params: Any) -> Any:
        out, updated = NORMED.apply({"params": params, **state}, x, train=True, mutable=list(state))
        return jnp.mean((out - y) ** 2), updated

    grads, state = jax.grad(loss_fn, has_aux=True)(params)
    updates, opt_state = NORMED_TX.update(grads, opt_state)
    return opt_state, optax.apply_updates(params, updates), state


def linen_batch_norm(folder: Path, steps: int = 14) -> Iterator[int]:
    """Pop the parameters, call the remaining collections `state`; both are saved with flax.serialization.

    Source: Flax documentation, "Managing Parameters and State" (update_step with opt_state, params, state).
    """
    variables = NORMED.init(jax.random.key(0), INPUTS[:2], train=False)
    params = variables.pop("params")
    state, opt_state, i = variables, NORMED_TX.init(params), 0
    if (folder / "variables.msgpack").exists():
        empty = {"params": params, "state": state, "opt": opt_state, "i": 0}
        bundle = serialization.from_bytes(empty, (folder / "variables.msgpack").read_bytes())
        params, state, opt_state, i = bundle["params"], bundle["state"], bundle["opt"], bundle["i"]
    for i in range(int(i), steps):  # noqa: B020 - the shape of the recipe
        yield i
        opt_state, params, state = normed_step(opt_state, params, state, INPUTS[i % 4 :: 4], TARGETS[i % 4 :: 4])
        if i % 5 == 4:
            bundle = {"params": params, "state": state, "opt": opt_state, "i": i + 1}
            (folder / "variables.msgpack").write_bytes(serialization.to_bytes(bundle))
    return jax.device_get((params, state))


class Dropped(nnx.Module):
    """Layers with dropout and normalisation, whose streams of keys count."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.linear = nnx.Linear(3, 6, rngs=rngs)
        self.bn = nnx.BatchNorm(6, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(6, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.out(nnx.gelu(self.dropout(self.bn(self.linear(x)))))


@nnx.jit
def dropped_step(model: Dropped, optimizer: Any, metrics: Any, x: Any, y: Any) -> None:
    """Take a step and count its loss."""

    def loss_fn(model: Dropped) -> Any:
        return optax.squared_error(model(x), y).mean()

    loss, grads = nnx.value_and_grad(loss_fn)(model)
    metrics.update(values=loss)
    optimizer.update(model, grads)


def nnx_dropout(folder: Path, steps: int = 14) -> Iterator[int]:
    """Streams of keys, running statistics and a metric that is reset at each report; pickled host arrays.

    Source: Flax NNX documentation, "MNIST tutorial" (MultiMetric, train_step) and "Randomness" (RngState).
    """
    model = Dropped(nnx.Rngs(params=0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adam(5e-3), wrt=nnx.Param)
    metrics, count = nnx.metrics.Average(), 0
    whole = (model, optimizer, metrics)

    def plain() -> Any:
        return jax.tree.map(
            lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x),
            nnx.to_pure_dict(nnx.state(whole)),
        )

    if (folder / "nnx.pkl").exists():
        pure, count = pickle.loads((folder / "nnx.pkl").read_bytes())
        state = nnx.state(whole)
        as_keys = jax.tree.map(
            lambda now, was: (
                jax.random.wrap_key_data(was) if jnp.issubdtype(now.dtype, jax.dtypes.prng_key) else jnp.asarray(was)
            ),
            nnx.to_pure_dict(state),
            pure,
        )
        nnx.replace_by_pure_dict(state, as_keys)
        nnx.update(whole, state)
    while count < steps:
        yield count
        rows = np.arange(count * 8, count * 8 + 8) % 32
        dropped_step(model, optimizer, metrics, INPUTS[rows], TARGETS[rows])
        count += 1
        if count % 5 == 0:
            print("loss", float(metrics.compute()))
            metrics.reset()
        if count % 4 == 0:
            (folder / "nnx.pkl").write_bytes(pickle.dumps((plain(), count)))
    return plain()[0]


MULTI = optax.MultiSteps(optax.chain(optax.add_noise(0.01, 0.5, key=3), optax.adamw(5e-3)), every_k_schedule=3)


@partial(jax.jit, donate_argnums=(0, 1))
def multi_step(params: Any, state: Any, x: Any, y: Any) -> Any:
    """Take a small step, of which every third moves the weights."""
    grads = jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"]) @ p["v"] - y) ** 2))(params)
    updates, state = MULTI.update(grads, state, params)
    return optax.apply_updates(params, updates), state


def optax_multi_steps(folder: Path, steps: int = 16) -> None:
    """Accumulate three small steps, save between two of them; the optimizer draws noise of its own key.

    Source: Optax documentation, "Gradient accumulation" (optax.MultiSteps), with optax.add_noise; marked by a call.
    """
    k1, k2 = jax.random.split(jax.random.key(4))
    params = {"w": jax.random.normal(k1, (3, 4)), "v": jax.random.normal(k2, (4, 1))}
    opt_state, mini, file = MULTI.init(params), 0, folder / "multi.npz"
    if file.exists():
        with np.load(file) as flat:
            leaves = [jnp.asarray(flat[f"leaf{n}"]) for n in range(len(flat.files) - 1)]
            mini = int(flat["mini"])
        structure = jax.tree.structure((params, opt_state))
        old = jax.tree.leaves((params, opt_state))
        leaves = [
            jax.random.wrap_key_data(new) if jnp.issubdtype(was.dtype, jax.dtypes.prng_key) else new
            for was, new in zip(old, leaves, strict=True)
        ]
        params, opt_state = jax.tree.unflatten(structure, leaves)
    while mini < steps:
        parity.mark(mini)
        params, opt_state = multi_step(params, opt_state, INPUTS[mini % 8 :: 8], TARGETS[mini % 8 :: 8])
        mini += 1
        if mini % 4 == 0:
            host = [
                np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
                for x in jax.tree.leaves((params, opt_state))
            ]
            np.savez(file, mini=mini, **{f"leaf{n}": x for n, x in enumerate(host)})
    np.savez(folder / "params.npz", **jax.device_get(params))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Module:
    """Weights, and a part that is static."""

    weight: jax.Array
    bias: jax.Array
    scale: float = dataclasses.field(metadata={"static": True}, default=0.5)

    def __call__(self, x: Any) -> Any:
        return self.scale * jnp.tanh(x @ self.weight) @ self.bias


ADABELIEF = optax.adabelief(1e-2)


@jax.jit
def filter_step(model: Module, opt_state: Any, key: Any, x: Any, y: Any) -> Any:
    """Return the next model, state and key."""
    key, use = jax.random.split(key)
    keep = jax.random.bernoulli(use, 0.9, x.shape)
    loss, grads = jax.value_and_grad(lambda m: jnp.mean((m(x * keep) - y) ** 2))(model)
    updates, opt_state = ADABELIEF.update(grads, opt_state)
    return optax.apply_updates(model, updates), opt_state, key, loss


def frozen_record(folder: Path, steps: int = 15) -> Iterator[int]:
    """Replace a frozen record each step; leaves are written one after another to one open file.

    Source: patrick-kidger/equinox, "Serialisation" example (tree_serialise_leaves) and the CNN example (make_step).
    """
    model = Module(jnp.asarray(MADE_W), jnp.ones((4, 1)))
    opt_state, key, i = ADABELIEF.init(model), jax.random.PRNGKey(5678), 0
    if (folder / "model.eqx").exists():
        with (folder / "model.eqx").open("rb") as f:
            tree = (model, opt_state, key)
            read = [jnp.asarray(np.load(f)) for _ in jax.tree.leaves(tree)]
            i = int(np.load(f))
        model, opt_state, key = jax.tree.unflatten(jax.tree.structure(tree), read)
    recent: list[float] = []
    for i in range(i, steps):  # noqa: B020 - the shape of the recipe
        yield i
        rows = np.random.default_rng([1, i]).permutation(32)[:8]
        model, opt_state, key, train_loss = filter_step(model, opt_state, key, INPUTS[rows], TARGETS[rows])
        recent = [*recent[-2:], float(train_loss)]
        if i % 4 == 3:
            print(f"loss of late {sum(recent) / len(recent):.3f}")
            with (folder / "model.eqx").open("wb") as f:
                for leaf in (*jax.tree.leaves((model, opt_state, key)), i + 1):
                    np.save(f, np.asarray(leaf))
    return jax.device_get(model.weight)


MADE_W = MADE.normal(size=(3, 4)).astype(np.float32) / 2


class State(struct.PyTreeNode):
    """Online and target weights, a buffer of transitions, a key."""

    online: Any
    target: Any
    opt: Any
    buffer: Any
    key: Any
    at: Any
    tx: Any = struct.field(pytree_node=False)


@jax.jit
def replay_step(state: State) -> State:
    """Write a transition to the ring, draw from it, take a step, follow."""
    key, draw, noise = jax.random.split(state.key, 3)
    row = jnp.concatenate([jax.random.normal(noise, (3,)), jnp.sin(state.at.astype(jnp.float32))[None]])
    buffer = state.buffer.at[state.at % 10].set(row)
    rows = buffer[jax.random.randint(draw, (6,), 0, jnp.minimum(state.at + 1, 10))]

    def loss(w: Any) -> Any:
        goal = rows[:, 3] + 0.5 * jax.lax.stop_gradient(rows[:, :3] @ state.target)
        return jnp.mean((rows[:, :3] @ w - goal) ** 2)

    updates, opt = state.tx.update(jax.grad(loss)(state.online), state.opt)
    online = optax.apply_updates(state.online, updates)
    target = optax.incremental_update(online, state.target, 0.1)
    return state.replace(online=online, target=target, opt=opt, buffer=buffer, key=key, at=state.at + 1)  # type: ignore[no-any-return]


def replay_in_a_state(folder: Path, steps: int = 14, save_every: int = 4) -> Iterator[int]:
    """Keep ring, targets and key within one state on the device, that the asynchronous checkpointer writes.

    Source: luchris429/purejaxrl, dqn.py (CustomTrainState with target_network_params, buffer in the scan's carry).
    """
    tx = optax.rmsprop(1e-2, momentum=0.5)
    w = jnp.zeros(3)
    fresh = State(
        online=w, target=w + 0.1, opt=tx.init(w), buffer=jnp.zeros((10, 4)), key=jax.random.PRNGKey(2),
        at=jnp.zeros((), jnp.int32), tx=tx,
    )  # fmt: skip
    checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
    saved = sorted(int(p.name[1:]) for p in folder.glob("u*") if p.name[1:].isdigit())
    state = fresh
    if saved:
        state = checkpointer.restore((folder / f"u{saved[-1]}").resolve(), args=ocp.args.StandardRestore(fresh))
    while int(state.at) < steps:
        yield int(state.at)
        state = replay_step(state)
        if int(state.at) % save_every == 0:
            checkpointer.save((folder / f"u{int(state.at)}").resolve(), args=ocp.args.StandardSave(state))
    checkpointer.close()
    return {"online": np.asarray(state.online), "target": np.asarray(state.target)}


WEIGHTED = jax.vmap(lambda w, x, y: jnp.mean((x @ w - y) ** 2), in_axes=(0, None, None))


@jax.jit
def ensemble_step(members: Any, momenta: Any, keys: Any, x: Any, y: Any) -> Any:
    """Take a step of each member, with noise of its own key."""
    both = jax.vmap(jax.random.split)(keys)
    noise = jax.vmap(lambda k: jax.random.normal(k, (3, 1)))(both[:, 1])
    slopes = jax.grad(lambda m: WEIGHTED(m, x, y).sum())(members) + 0.01 * noise
    momenta = 0.8 * momenta + slopes
    return members - 0.05 * momenta, momenta, both[:, 0], WEIGHTED(members, x, y)


def ensemble_of_keys(folder: Path, steps: int = 14) -> Iterator[int]:
    """Train members at once; a population's worst copies the best now and then; typed keys are saved as their data.

    Source: Jaderberg et al., "Population Based Training of Neural Networks", in JAX's vmap ensembling tutorial.
    """
    keys = jax.random.split(jax.random.key(77), 3)
    members = jax.vmap(lambda k: jax.random.normal(k, (3, 1)))(keys)
    momenta, scores, step = jnp.zeros_like(members), np.zeros(3, np.float32), 0
    if (folder / "population.npy").exists():
        held = np.load(folder / "population.npy", allow_pickle=True).item()
        members, momenta = jnp.asarray(held["members"]), jnp.asarray(held["momenta"])
        keys, scores, step = jax.random.wrap_key_data(held["keys"]), held["scores"], held["step"]
    while step < steps:
        yield step
        members, momenta, keys, losses = ensemble_step(
            members, momenta, keys, INPUTS[step % 4 :: 4], TARGETS[step % 4 :: 4]
        )
        scores = np.float32(0.7) * scores + np.asarray(losses)
        step += 1
        if step % 6 == 0:
            best, worst = int(scores.argmin()), int(scores.argmax())
            members = members.at[worst].set(members[best])
            scores[worst] = scores[best]
        if step % 4 == 0:
            held = {"members": np.asarray(members), "momenta": np.asarray(momenta), "step": step}
            held |= {"keys": np.asarray(jax.random.key_data(keys)), "scores": scores}
            np.save(folder / "population.npy", held)  # type: ignore[arg-type]
    return {"members": np.asarray(members), "scores": scores}


ORBAX = ("*commit_success.txt", "*.orbax-checkpoint-tmp*")

LOOPS = (
    Loop(train=linen_batch_norm, tags=("stateful normalisation",)),
    Loop(train=nnx_dropout, tags=("streams of keys", "stateful normalisation")),
    Loop(train=optax_multi_steps, tags=("accumulation", "mark called"), steps=16, stop_at=10),
    Loop(train=frozen_record, tags=("record",), steps=15, stop_at=10),
    Loop(train=replay_in_a_state, tags=("replay", "target network", "asynchronous"), volatile=ORBAX),
    Loop(train=ensemble_of_keys, tags=("population", "averages")),
)
