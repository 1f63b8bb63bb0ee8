"""Three trainers as people write them in JAX, each with faults that can be planted by name; clean without one."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import nnx, serialization
from flax.training import train_state

SAMPLES, WIDTH, BATCH = 24, 6, 4
STEPS, STOP, EVERY = 14, 9, 4
_source = np.random.default_rng(7)
INPUTS = _source.normal(size=(SAMPLES, WIDTH)).astype(np.float32)
TARGETS = (INPUTS @ _source.normal(size=(WIDTH, 2))).astype(np.float32)


def rounded(tree: Any) -> Any:
    """Return a tree whose floats went through bfloat16."""
    return jax.tree.map(
        lambda a: jnp.asarray(a, jnp.bfloat16).astype(a.dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree
    )


def batch_of(step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the batch of a step; each epoch has an order of its own."""
    epoch, at = divmod(step, SAMPLES // BATCH)
    rows = np.random.default_rng(epoch).permutation(SAMPLES)[at * BATCH : (at + 1) * BATCH]
    return INPUTS[rows], TARGETS[rows]


def newest(folder: Path, pattern: str) -> Path | None:
    """Return the newest checkpoint that is whole."""
    found = [path for path in folder.glob(pattern) if "tmp" not in path.name]
    return max(found, key=lambda path: int(path.stem.rpartition("_")[2]), default=None)


def write_tree(path: Path, tree: Any, *, orbax: bool) -> None:
    """Save a tree of arrays, with Orbax as a directory or with Flax as a file."""
    if orbax:
        import orbax.checkpoint as ocp

        ocp.PyTreeCheckpointer().save(path.resolve(), tree)
    else:
        path.with_suffix(".msgpack").write_bytes(serialization.msgpack_serialize(jax.device_get(_texts(tree))))


def read_tree(path: Path) -> Any:
    """Return a tree that was saved."""
    if path.is_dir():
        import orbax.checkpoint as ocp

        described = ocp.PyTreeCheckpointer().metadata(path.resolve()).item_metadata.tree
        as_arrays = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), described)
        return ocp.PyTreeCheckpointer().restore(path.resolve(), restore_args=as_arrays)
    return serialization.msgpack_restore(path.read_bytes())


def _texts(tree: Any) -> Any:
    """Return a tree with texts for keys: msgpack has no others."""
    return {str(key): _texts(item) for key, item in tree.items()} if isinstance(tree, dict) else tree


# Flax NNX; Orbax or msgpack


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(WIDTH, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.last = nnx.Linear(8, 2, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


def schedule(length: int = 40) -> optax.Schedule:
    return optax.warmup_cosine_decay_schedule(0.0, 0.05, 4, length)


@cache
def adamw(length: int) -> optax.GradientTransformation:
    """Return the transformation: the same one each time, as a compiled step belongs to it."""
    return optax.adamw(schedule(length))


@nnx.jit
def nnx_step(model: Net, optimizer: nnx.Optimizer[Any], x: Any, y: Any) -> Any:
    def loss_of(model: Net) -> Any:
        return jnp.mean((model(x) - y) ** 2)

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def words(tree: Any) -> Any:
    """Return a tree of plain arrays: keys as their words, and mappings with names only."""
    pure = nnx.to_pure_dict(nnx.state(tree))
    return jax.tree.map(lambda a: jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a, pure)


def put(node: Any, pure: Any, fault: str = "") -> None:
    """Put plain arrays back into a module or an optimizer."""
    state = nnx.state(node)
    if fault == "replace_discarded":
        nnx.replace_by_pure_dict(nnx.clone(state), pure)
        return
    flat = dict(nnx.to_flat_state(state))
    given = {tuple(str(k) for k in path): value for path, value in _flat(pure)}
    for path, variable in flat.items():
        old, new = variable.get_value(), jnp.asarray(given[tuple(str(k) for k in path)])
        if jnp.issubdtype(old.dtype, jax.dtypes.prng_key):
            new = jax.random.wrap_key_data(new)
        elif fault != "other_types":
            new = new.astype(old.dtype)
        variable.set_value(new)
    nnx.update(node, state)


def _flat(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list | tuple) else None
    if items is None:
        yield path, tree
        return
    for key, item in items:
        yield from _flat(item, (*path, key))


def train_nnx(
    folder: Path, steps: int = STEPS, save_every: int = EVERY, fault: str = "", orbax: bool = False
) -> Iterator[int]:
    """Train an NNX module with `nnx.Optimizer`, batch norm and dropout."""
    model = Net(nnx.Rngs(params=0, dropout=1))
    last, start, length = newest(folder, "step_*"), 0, 40
    if last is not None:
        length = 40 - int(last.stem.rpartition("_")[2]) if fault == "schedule_of_the_rest" else 40
    optimizer = nnx.Optimizer(model, adamw(length), wrt=nnx.Param)
    if last is not None:
        found = read_tree(last)
        start = int(found["step"])
        _restore_nnx(model, optimizer, found, fault)
    for step in range(start, steps):
        yield step
        x, y = batch_of(step - start if fault == "data_from_zero" else step)
        if not (start and fault == "mode_left"):
            model.train()
        loss = nnx_step(model, optimizer, x, y)
        if (step + 1) % save_every == 0:
            tree = {"step": np.int64(step + 1), "model": words(model), "optimizer": words(optimizer)}
            write_tree(folder / f"step_{step + 1}", tree, orbax=orbax)
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"step": step + 1, "loss": float(loss)}) + "\n")


def _restore_nnx(model: Net, optimizer: nnx.Optimizer[Any], found: Any, fault: str) -> None:
    state, opt = found["model"], found["optimizer"]
    fresh = words(model)
    if fault == "key_not_restored":
        state["drop"] = words(Net(nnx.Rngs(params=0, dropout=5)))["drop"]
    elif fault == "statistics_lost":
        state["norm"] |= {"mean": fresh["norm"]["mean"], "var": fresh["norm"]["var"]}
    elif fault == "params_rounded":
        state = rounded(state)
    elif fault == "moments_rounded":
        opt = rounded(opt)
    elif fault == "weights_lost":
        state["last"] = fresh["last"]
    put(model, state, fault)
    if fault == "optimizer_lost":
        return
    if fault == "counters_as_floats":
        opt = jax.tree.map(lambda a: a.astype(np.float32) if a.dtype == np.int32 else a, opt)
        put(optimizer, opt, "other_types")
        return
    if fault == "count_lost":
        _put_in(opt, "count", 0)
    if fault == "optimizer_step_lost":
        opt["step"] = np.uint32(0)
    put(optimizer, opt)
    if fault == "mode_left":
        model.eval()


def _put_in(tree: Any, name: str, number: int) -> None:
    for path, _ in list(_flat(tree)):
        if path[-1] == name:
            around = tree
            for key in path[:-1]:
                around = around[key]
            around[name] = np.asarray(number, np.int32)


# Flax linen, msgpack


class LinenNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x)))
        return nn.Dense(2)(nn.Dropout(0.2, deterministic=not train)(x))


class State(train_state.TrainState):
    batch_stats: Any
    dropout_key: Any
    ema: Any


@jax.jit
def linen_step(state: State, x: Any, y: Any) -> tuple[State, Any]:
    key = jax.random.fold_in(state.dropout_key, state.step)

    def loss_of(params: Any) -> Any:
        out, changed = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            x,
            train=True,
            rngs={"dropout": key},
            mutable=["batch_stats"],
        )
        return jnp.mean((out - y) ** 2), changed

    (loss, changed), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads)
    ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, state.params)
    moved = jax.random.fold_in(state.dropout_key, 1)
    return state.replace(batch_stats=changed["batch_stats"], ema=ema, dropout_key=moved), loss


linen_net = LinenNet()
linen_tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule()))


def new_linen_state() -> State:
    variables = linen_net.init(jax.random.PRNGKey(0), INPUTS[:1], train=False)
    return State.create(
        apply_fn=linen_net.apply,
        params=variables["params"],
        tx=linen_tx,
        batch_stats=variables["batch_stats"],
        dropout_key=jax.random.PRNGKey(3),
        ema=variables["params"],
    )


def train_linen(folder: Path, steps: int = STEPS, save_every: int = EVERY, fault: str = "") -> Iterator[int]:
    """Train a linen `TrainState` with batch statistics, a key and an average; save with msgpack."""
    state = new_linen_state()
    last = newest(folder, "state_*.msgpack")
    if last is not None:
        state = _restore_linen(state, last, fault)
    for step in range(int(state.step), steps):
        yield step
        x, y = batch_of(step)
        state, loss = linen_step(state, x, y)
        if (step + 1) % save_every == 0:
            (folder / f"state_{step + 1}.msgpack").write_bytes(serialization.to_bytes(state))
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps({"step": step + 1, "loss": float(loss)}) + "\n")


def _restore_linen(fresh: State, path: Path, fault: str) -> State:
    state: State = serialization.from_bytes(fresh, path.read_bytes())
    if fault == "restore_discarded":
        return fresh.replace(step=state.step)
    if fault == "optimizer_lost":
        return state.replace(opt_state=fresh.opt_state)
    if fault == "schedule_lost":
        adam, rate = state.opt_state[1]
        return state.replace(opt_state=(state.opt_state[0], (adam, rate._replace(count=np.zeros((), np.int32)))))
    if fault == "count_lost":
        adam, rate = state.opt_state[1]
        return state.replace(opt_state=(state.opt_state[0], (adam._replace(count=np.zeros((), np.int32)), rate)))
    if fault == "second_moment_lost":
        adam, rate = state.opt_state[1]
        return state.replace(
            opt_state=(state.opt_state[0], (adam._replace(nu=jax.tree.map(jnp.zeros_like, adam.nu)), rate))
        )
    kept = {
        "statistics_lost": {"batch_stats": fresh.batch_stats},
        "key_lost": {"dropout_key": fresh.dropout_key},
        "average_lost": {"ema": state.params},
        "params_rounded": {"params": rounded(state.params)},
        "step_off_by_one": {"step": state.step + 1},
    }
    return state.replace(**kept.get(fault, {}))


# Optax alone, pickle


def forward(params: Any, x: Any, key: Any) -> Any:
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    keep = jax.random.bernoulli(key, 0.8, hidden.shape)
    return jnp.where(keep, hidden / 0.8, 0) @ params["w2"]


raw_tx = optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda count: -0.02 * 0.97**count))


@partial(jax.jit, donate_argnums=(0, 1))
def raw_step(params: Any, opt_state: Any, key: Any, x: Any, y: Any) -> Any:
    key, use = jax.random.split(key)
    grads = jax.grad(lambda p: jnp.mean((forward(p, x, use) - y) ** 2))(params)
    updates, opt_state = raw_tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, key


def new_raw() -> dict[str, Any]:
    first, second = jax.random.split(jax.random.key(2))
    params = {
        "w1": jax.random.normal(first, (WIDTH, 8)) * 0.3,
        "b1": jnp.zeros(8),
        "w2": jax.random.normal(second, (8, 2)) * 0.3,
    }
    rng = np.random.default_rng(5)
    return {
        "step": 0,
        "params": params,
        "opt_state": raw_tx.init(params),
        "key": jax.random.key(11),
        "ema": jax.tree.map(jnp.copy, params),
        "perm": rng.permutation(SAMPLES),
        "position": 0,
        "rng": rng,
    }


def restore_raw(run: dict[str, Any], saved: dict[str, Any], fault: str) -> None:
    """Put what was saved into a new run; a fault leaves out or changes one thing."""
    run["step"] = saved["step"] + (fault == "step_off_by_one")
    for name in ("params", "opt_state", "ema"):
        if fault != f"{name}_lost":
            run[name] = jax.tree.map(jnp.asarray, saved[name])
    trace, rate = run["opt_state"]
    if fault == "momentum_lost":
        run["opt_state"] = (optax.TraceState(jax.tree.map(jnp.zeros_like, run["params"])), rate)
    elif fault == "schedule_lost":
        run["opt_state"] = (trace, optax.ScaleByScheduleState(jnp.zeros((), jnp.int32)))
    elif fault == "params_rounded":
        run["params"] = rounded(run["params"])
    if fault != "key_lost":
        run["key"] = jax.random.wrap_key_data(saved["key"])
    for name in ("perm", "position"):
        if fault != f"{name}_lost":
            run[name] = saved[name]
    if fault != "rng_lost":
        run["rng"].bit_generator.state = saved["rng"]


def train_folded(folder: Path, steps: int = STEPS, fault: str = "") -> Iterator[int]:
    """Train with a key that stays and is folded with the step; a resumed run may be given another."""
    saved = folder / "folded.npz"
    key = jax.random.key(4 if saved.exists() and fault == "seed_changed" else 3)
    w, start = jnp.zeros((WIDTH, 2)), 0
    if saved.exists():
        with np.load(saved) as found:
            w, start = jnp.asarray(found["w"]), int(found["step"])
    for step in range(start, steps):
        yield step
        x, y = batch_of(step)
        noise = 0.1 * jax.random.normal(jax.random.fold_in(key, step), x.shape)
        w = w - 0.05 * (x + noise).T @ ((x + noise) @ w - y) / BATCH
        if (step + 1) % EVERY == 0:
            np.savez(saved, w=w, step=step + 1)


def train_grain(folder: Path, steps: int = STEPS, fault: str = "") -> Iterator[int]:
    """Train on a Grain dataset; the iterator's own state is saved."""
    import grain.python as grain

    order = grain.MapDataset.source(list(range(SAMPLES))).seed(3).shuffle().repeat(3).batch(BATCH)
    batches = iter(order.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)))
    saved, w, start = folder / "grain.pkl", jnp.zeros((WIDTH, 2)), 0
    if saved.exists():
        found = pickle.loads(saved.read_bytes())
        w, start = jnp.asarray(found["w"]), found["step"]
        if fault != "iterator_lost":
            batches.set_state(found["batches"])
    for step in range(start, steps):
        yield step
        rows = next(batches)
        w = w - 0.05 * INPUTS[rows].T @ (INPUTS[rows] @ w - TARGETS[rows]) / BATCH
        if (step + 1) % EVERY == 0:
            saved.write_bytes(pickle.dumps({"w": np.asarray(w), "step": step + 1, "batches": batches.get_state()}))


def train_raw(folder: Path, steps: int = STEPS, save_every: int = EVERY, fault: str = "") -> Iterator[int]:
    """Train plain dictionaries with Optax and donated buffers; the order of the data is a permutation in memory."""
    run = new_raw()
    last = newest(folder, "raw_*.pkl")
    if last is not None:
        restore_raw(run, pickle.loads(last.read_bytes()), fault)
    params, opt_state, key, ema_params = run["params"], run["opt_state"], run["key"], run["ema"]
    rng, perm, position, start = run["rng"], run["perm"], run["position"], run["step"]
    del run
    for step in range(start, steps):
        yield step
        if position + BATCH > SAMPLES:
            perm, position = rng.permutation(SAMPLES), 0
        rows = perm[position : position + BATCH]
        position += BATCH
        params, opt_state, key = raw_step(params, opt_state, key, INPUTS[rows], TARGETS[rows])
        ema_params = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, ema_params, params)
        if (step + 1) % save_every == 0:
            kept = {
                "step": step + 1,
                "params": jax.device_get(params),
                "opt_state": jax.device_get(opt_state),
                "key": np.asarray(jax.random.key_data(key)),
                "ema": jax.device_get(ema_params),
                "perm": perm,
                "position": position,
                "rng": rng.bit_generator.state,
            }
            (folder / f"raw_{step + 1}.pkl").write_bytes(pickle.dumps(kept))
