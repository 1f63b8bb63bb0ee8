"""States of real Optax chains: filled from PyTorch's, and back, with a document and without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import serialization

from jax_side import optimizer_template
from parity.cli import main
from parity.convert import Ledger, Options, Zeros, compare_sources, open_any, to_jax, to_torch
from parity.errors import CheckpointError, SpecError
from parity.formats import InMemory, Source
from tests.convert.test_classes import flat
from tests.convert.test_naming import lazy

STEPS = 3
SHAPES = {"b.weight": (3, 3), "a.weight": (3, 3), "a.bias": (3,), "b.bias": (3,)}
RATE = 0.01


def decayed(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim > 1, params)


def rest(params: Any) -> Any:
    return jax.tree.map(lambda p: p.ndim <= 1, params)


def labels(params: Any) -> Any:
    return jax.tree.map(lambda p: "decay" if p.ndim > 1 else "rest", params)


SLOPE = optax.cosine_decay_schedule(RATE, 100)
CHAINS: dict[str, Callable[[], optax.GradientTransformation]] = {
    "clip": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(RATE)),
    "clip and schedule": lambda: optax.chain(optax.clip(1.0), optax.adamw(SLOPE)),
    "mask": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(RATE, mask=decayed)),
    "by hand": lambda: optax.chain(
        optax.scale_by_adam(), optax.add_decayed_weights(0.1, mask=decayed), optax.scale_by_schedule(SLOPE)
    ),
    "inject": lambda: optax.inject_hyperparams(optax.adamw)(learning_rate=0.5, mask=decayed),
    "inject a schedule": lambda: optax.inject_hyperparams(optax.adamw)(learning_rate=SLOPE, mask=decayed),
    "accumulate": lambda: optax.MultiSteps(optax.adamw(RATE), 4).gradient_transformation(),
    "accumulate, clip, inject": lambda: optax.MultiSteps(
        optax.chain(
            optax.clip_by_global_norm(1.0), optax.inject_hyperparams(optax.adamw)(learning_rate=RATE, mask=decayed)
        ),
        2,
    ).gradient_transformation(),
    "partition": lambda: optax.partition({"decay": optax.adamw(SLOPE), "rest": optax.adam(SLOPE)}, labels),
    "two masks": lambda: optax.chain(
        optax.masked(optax.adamw(RATE), decayed), optax.masked(optax.adam(RATE / 2), rest)
    ),
    "named": lambda: optax.named_chain(
        ("clip", optax.clip_by_global_norm(1.0)), ("trace", optax.adamw(SLOPE, mask=decayed))
    ),
    "named in a chain, and within": lambda: optax.chain(
        optax.clip(1.0), optax.named_chain(("a", optax.identity()), ("b", optax.named_chain(("c", optax.adam(RATE)))))
    ),
    "named and injected": lambda: optax.named_chain(
        ("inject", optax.inject_hyperparams(optax.adamw)(learning_rate=0.5, mask=decayed))
    ),
    "finite": lambda: optax.apply_if_finite(optax.adamw(RATE), 3),
}


def state(kind: str = "AdamW", **arguments: Any) -> tuple[dict[str, Any], list[str]]:
    """Return PyTorch's state after some steps of two groups, and the names in the optimizer's order."""
    torch.manual_seed(0)
    own = {name: torch.nn.Parameter(torch.randn(shape)) for name, shape in SHAPES.items()}
    parts = [[n for n in own if own[n].ndim > 1], [n for n in own if own[n].ndim <= 1]]
    wanted = [{"params": [own[n] for n in parts[0]]}, {"params": [own[n] for n in parts[1]], "weight_decay": 0.0}]
    optimizer = getattr(torch.optim, kind)(wanted, lr=RATE, **arguments)
    for _ in range(STEPS):
        for p in own.values():
            p.grad = torch.randn_like(p)
        optimizer.step()
    return {"model": own, "optimizer": optimizer.state_dict(), "step": STEPS}, [n for one in parts for n in one]


def template(tx: Any) -> Callable[[Any], Any]:
    return lambda params: optimizer_template("--optimizer", tx, params, Zeros)


def loaded(tree: Any) -> Any:
    """Return a tree as a file of Flax has it: text for numbers as keys."""
    if isinstance(tree, dict | list | tuple):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {str(key): loaded(child) for key, child in items}
    return tree.load() if hasattr(tree, "load") else tree


def stored(tree: Any) -> Any:
    return (
        {key: stored(child) for key, child in tree.items()} if isinstance(tree, dict) else InMemory(np.asarray(tree))
    )


def plain(node: Any) -> Any:
    """Return a state with plain dicts: that of `named_chain` is of a class that Flax does not take apart."""
    if isinstance(node, dict):
        return {key: plain(child) for key, child in node.items()}
    if isinstance(node, tuple):
        return type(node)(*map(plain, node)) if hasattr(node, "_fields") else tuple(map(plain, node))
    return node


def nested() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, shape in SHAPES.items():
        module, leaf = name.split(".")
        out.setdefault(module, {})[leaf] = jnp.zeros(shape)
    return out


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_filled_and_comes_back(name: str) -> None:
    tx, (source, names) = CHAINS[name](), state()
    tree = lazy(source)
    made = to_jax(tree, Options(names=names, template=template(tx)), Ledger())
    like = plain(tx.init(nested()))
    got = serialization.from_state_dict(like, loaded(made["opt_state"]))
    assert jax.tree.structure(got) == jax.tree.structure(like)
    moments = [one for one in jax.tree.leaves(got, is_leaf=_is_adam) if _is_adam(one)]
    seen = 0
    for one in moments:
        assert one.count == STEPS
        for field, key in (("mu", "exp_avg"), ("nu", "exp_avg_sq")):
            for path, value in jax.tree.leaves_with_path(getattr(one, field)):
                number = names.index(".".join(step.key for step in path))
                assert np.array_equal(value, source["optimizer"]["state"][number][key].numpy())
                seen += 1
    assert seen == 2 * len(names)
    if "inject" in name and "schedule" not in name:
        rates = [leaf for path, leaf in jax.tree.leaves_with_path(got) if "learning_rate" in str(path)]
        assert rates == [np.float32(RATE)]
    ledger = Ledger()
    assert flat(to_torch(made, Options(), ledger)) == flat(tree)
    assert not ledger.refused
    tx.update(jax.tree.map(jnp.ones_like, nested()), got, nested())  # and Optax goes on with it


def _is_adam(one: Any) -> bool:
    return isinstance(one, optax.ScaleByAdamState)


@pytest.mark.takes_seconds("accumulate", "accumulate, clip, inject")
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_that_went_on_in_jax_gives_pytorch_its_moments(name: str) -> None:
    """Without a document, by a PyTorch checkpoint of other values."""
    tx, (source, names) = CHAINS[name](), state()
    params, draw = nested(), np.random.default_rng(0)
    opt_state = tx.init(params)
    repeats = 4 if "accumulate" in name and "clip" not in name else 2 if "accumulate" in name else 1
    for _ in range(2 * repeats):
        grads = jax.tree.map(lambda p: jnp.asarray(draw.standard_normal(p.shape), p.dtype), params)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
    tree = stored(serialization.to_state_dict({"params": params, "opt_state": plain(opt_state)})) | {"step": 2}
    like = Source(path=Path("like.pt"), format="torch.save", tree=lazy(source))
    ledger = Ledger()
    back = to_torch(tree, Options(names=names), ledger, like)
    assert not ledger.refused, ledger.of("refused")
    moments = [one for one in jax.tree.leaves(opt_state, is_leaf=_is_adam) if _is_adam(one)]
    for one in moments:
        for field, key in (("mu", "exp_avg"), ("nu", "exp_avg_sq")):
            for path, value in jax.tree.leaves_with_path(getattr(one, field)):
                entry = back["optimizer"]["state"][names.index(".".join(step.key for step in path))]
                assert np.array_equal(entry[key].load(), value)
                assert entry["step"].load() == 2
    rates = {group["lr"] for group in back["optimizer"]["param_groups"]}
    last = float(np.float32(SLOPE(1)))  # what a schedule gave is in the state, and PyTorch's has no schedule
    assert rates == {{"inject": 0.5, "named and injected": 0.5, "inject a schedule": last}.get(name, RATE)}
    assert {entry.leaf.split(".")[0] for entry in ledger.entries} <= {"params", "opt_state", "step"}
    assert not any("slots" in entry.leaf for entry in ledger.entries)


def test_nesterov_with_decay_is_filled_and_comes_back() -> None:
    tx = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(SLOPE, momentum=0.9, nesterov=True))
    source, names = state("SGD", momentum=0.9, nesterov=True, weight_decay=5e-4)
    tree = lazy(source)
    made = to_jax(tree, Options(names=names, template=template(lambda: tx)), Ledger())
    got = serialization.from_state_dict(tx.init(nested()), loaded(made["opt_state"]))
    assert np.array_equal(got[1][0].trace["a"]["bias"], source["optimizer"]["state"][2]["momentum_buffer"].numpy())
    ledger = Ledger()
    assert flat(to_torch(made, Options(), ledger)) == flat(tree)
    assert not ledger.refused


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: optax.lion(0.1), "fields count, mu"),
        (
            lambda: optax.chain(optax.adam(0.1), optax.contrib.reduce_on_plateau()),
            "opt_state.1 has the fields avg_value",
        ),
        (lambda: optax.chain(optax.adam(0.1), optax.ema(0.9)), "opt_state.1 has the fields count, ema"),
        (lambda: optax.contrib.schedule_free_adamw(0.1), "which no transformation of Optax has that is known"),
        (lambda: optax.named_chain(("a", optax.lion(0.1))), "opt_state has the fields a, which no"),
        (lambda: optax.named_chain(("a", optax.adam(0.1)), ("b", optax.ema(0.9))), "opt_state has the fields a, b"),
        (lambda: optax.named_chain(("hyperparams", optax.adam(0.1))), "opt_state has the fields hyperparams"),
        (lambda: optax.named_chain(("a.b", optax.adam(0.1))), "opt_state has the fields a.b"),
        (
            lambda: optax.named_chain(("a", optax.adam(0.1)), ("b", optax.scale_by_adam())),
            "opt_state.a.0.mu.* and opt_state.b.mu.* are both the first_moment of .*PyTorch has one",
        ),
        (lambda: optax.named_chain(("trace", optax.trace(0.9))), "trace is the momentum|of trace|has the fields"),
        (lambda: optax.sgd(0.1, momentum=0.9), "trace.* is the momentum of .*, and AdamW has none"),
        (lambda: optax.sgd(0.1), "has no place for .*moment"),
        (lambda: optax.adamw(0.1, mu_dtype=jnp.bfloat16), "is bfloat16.*and the state has float32"),
        (lambda: optax.masked(optax.adam(0.1), decayed), "has no place for .*bias"),
        (
            lambda: optax.chain(optax.adam(0.1), optax.scale_by_adam()),
            "are both the first_moment of .*PyTorch has one",
        ),
    ],
)
def test_what_a_chain_cannot_hold_or_is_not_known_is_named(make: Any, said: str) -> None:
    source, names = state()
    with pytest.raises(CheckpointError, match=said):
        to_jax(lazy(source), Options(names=names, template=template(make())), Ledger())


def test_one_injected_rate_for_groups_of_two_is_refused() -> None:
    source, names = state()
    source["optimizer"]["param_groups"][1]["lr"] = 0.5
    tx = CHAINS["inject"]()
    with pytest.raises(CheckpointError, match=r"is one lr, and the groups of its parameters have 0\.01, 0\.5"):
        to_jax(lazy(source), Options(names=names, template=template(tx)), Ledger())


def test_one_injected_decay_without_a_mask_for_groups_of_two_is_refused() -> None:
    source, names = state()
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=RATE)
    with pytest.raises(CheckpointError, match=r"is one weight_decay, and .* have 0\.0, 0\.01"):
        to_jax(lazy(source), Options(names=names, template=template(tx)), Ledger())


MINE = """
import jax, optax
mask = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
slope = optax.cosine_decay_schedule(0.01, 100)
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(slope, weight_decay=0.01, mask=mask))
named = optax.named_chain(("clip", optax.clip(1.0)), ("step", optax.adamw(0.01, weight_decay=0.01, mask=mask)))
"""


@pytest.mark.takes_seconds("['--optimizer', 'mine_of_optax:tx']", "['--optimizer', 'mine_of_optax:named']")
@pytest.mark.parametrize(
    "flags", [[], ["--optimizer", "mine_of_optax:tx"], ["--optimizer", "mine_of_optax:named"]], ids=str
)
def test_plain_orbax_restores_the_users_own_chain_by_its_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """Two groups by decay, as most trainers have them; without flags it is the tree of `adamw` with a mask."""
    import importlib

    import orbax.checkpoint as ocp

    (tmp_path / "mine_of_optax.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    source, names = state()
    torch.save(source, "a.pt")
    Path("names.txt").write_text("\n".join(names))
    assert main(["convert", "a.pt", "o", "--to", "orbax", "--names", "names.txt", *flags]) == 0
    mine = importlib.import_module("mine_of_optax") if flags else None
    tx = getattr(mine, flags[1].partition(":")[2]) if flags else optax.adamw(RATE, mask=decayed)
    saved = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    like = {"params": saved["params"], "opt_state": tx.init(saved["params"])}
    args = ocp.args.PyTreeRestore(
        item=like, restore_args=ocp.checkpoint_utils.construct_restore_args(like), partial_restore=True
    )
    got = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(tmp_path / "o", args=args)
    assert jax.tree.structure(got["opt_state"]) == jax.tree.structure(like["opt_state"])
    [adam] = [one for one in jax.tree.leaves(got["opt_state"], is_leaf=_is_adam) if _is_adam(one)]
    assert adam.count == STEPS
    assert np.array_equal(adam.mu["a"]["bias"], source["optimizer"]["state"][2]["exp_avg"].numpy())
    del saved["torch"]
    ocp.PyTreeCheckpointer().save(tmp_path / "theirs", {**got, "step": STEPS})
    words = ["--to", "torch.save", "--like", "a.pt", "--names", "names.txt"]
    assert main(["convert", "theirs", "b.pt", *words]) == main(["convert", "o", "c.pt", "--to", "torch.save"]) == 0
    for other in ("b.pt", "c.pt"):
        assert compare_sources(open_any(Path("a.pt")), open_any(Path(other))).same


def test_parameters_of_several_counts_do_not_fit_one_transformation() -> None:
    source, names = state()
    source["optimizer"]["state"][1]["step"] += 1
    with pytest.raises(CheckpointError, match=r"had 3 updates and .* 4, and Optax counts them once"):
        to_jax(lazy(source), Options(names=names, template=template(CHAINS["clip"]())), Ledger())


def test_gradients_that_are_half_accumulated_are_refused() -> None:
    source, names = state()
    tree = lazy(source)
    made = to_jax(tree, Options(names=names, template=template(CHAINS["accumulate"]())), Ledger())
    made["opt_state"]["mini_step"] = InMemory(np.array(1, np.int32))
    with pytest.raises(CheckpointError, match="mini_step is 1: MultiSteps is between two updates"):
        to_torch(made, Options(), Ledger())


@pytest.mark.parametrize("tx", [7, lambda: 7, optax.GradientTransformation(lambda p: 1 / 0, None)])
def test_what_is_no_transformation_is_one_line(tx: Any) -> None:
    with pytest.raises(SpecError, match="--optimizer: its init cannot take these parameters"):
        optimizer_template("--optimizer", tx, {"w": InMemory(np.zeros(2))}, Zeros)


def test_a_random_key_in_the_state_of_a_transformation_is_one_line() -> None:
    source, names = state()
    noisy = optax.chain(optax.add_noise(0.1, 0.1, key=0), optax.adamw(1e-2))
    with pytest.raises(CheckpointError, match=r"opt_state\.0 has the fields count, rng_key, which no transformation"):
        to_jax(lazy(source), Options(names=names, template=template(noisy)), Ledger())


def test_a_chain_that_took_the_place_of_the_converted_one_is_read_too() -> None:
    """The document is of the plainest chain; the trainer kept its own and carried the document along."""
    source, names = state()
    tree = lazy(source)
    made = to_jax(tree, Options(names=names), Ledger())
    other = to_jax(tree, Options(names=names, template=template(CHAINS["partition"]())), Ledger())
    assert made["opt_state"] != other["opt_state"]
    made["opt_state"] = other["opt_state"]
    ledger = Ledger()
    assert flat(to_torch(made, Options(), ledger)) == flat(tree)
    assert not ledger.refused
