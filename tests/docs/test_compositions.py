"""docs/compositions.md: every row is run as it stands there, and its examples too."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest

from jax_side import optim
from parity.errors import UnknownNameError
from parity.state import OPTIMIZERS, GroupRule
from tests.docs import pages
from tests.docs.pages import expect_failure
from tests.docs.sources import codes

pytestmark = pytest.mark.takes_seconds

PAGE = "docs/compositions.md"
SAME, REFUSED = "the same of Optax", "refused: "
TWO = (
    GroupRule(label="a", names=("w",)),
    GroupRule(label="z", arguments={"optimizer": "AdamW", "lr": 0.1}),
)
RULES = (GroupRule(label="decayed", ndim=(2,)), GroupRule(label="plain", arguments={"weight_decay": 0.0}))


def names(tx: Any) -> dict[str, Any]:
    """Return what the code of a row may name."""
    params = {"w": jnp.arange(12.0).reshape(4, 3) / 7 + 0.1, "b": jnp.ones(4)}
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("d",))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    return {
        **{"jax": jax, "jnp": jnp, "np": np, "optax": optax, "optim": optim, "tx": tx, "params": params},
        **{"rules": RULES, "two": TWO, "divided": jax.device_put(params, cut)},
    }


def own() -> Any:
    return optim.sgd(lr=0.1, momentum=0.9)


def trained(code: str, tx: Any) -> Any:
    """Return the parameters after four compiled steps with what a row writes."""
    around = names(tx)
    found, params = eval(code, around), around["params"]
    loss = lambda tree: jnp.sin(tree["w"]).sum() + (tree["b"] ** 2).sum()  # noqa: E731
    if "lookahead" in code:
        params = optax.LookaheadParams.init_synced(params)
    state, update = found.init(params), jax.jit(optax.with_extra_args_support(found).update)
    for _ in range(4):
        at = params.fast if "lookahead" in code else params
        given: dict[str, Any] = {"value": loss(at)} if "plateau" in code else {}
        if "linesearch" in code:
            update = optax.with_extra_args_support(found).update  # takes a function, which is not compiled
            given = {"value": loss(at), "grad": jax.grad(loss)(at), "value_fn": loss}
        updates, state = update(jax.grad(loss)(at), state, params, **given)
        params = optax.apply_updates(params, updates)
    return params


def rows() -> list[tuple[str, str]]:
    return [(codes(row[0])[0], row[1]) for row in pages.table(PAGE, "composition", "equal to").rows]


def is_row_true(code: str, claim: str) -> None:
    """Check one row: what it gives, or the message by which it is refused."""
    with jax.enable_x64(True):
        if claim.startswith(REFUSED):
            said = ""
            try:
                trained(code, own())
            except ValueError as error:
                said = str(error)
            assert claim.removeprefix(REFUSED) in said, code
            return
        mine = trained(code, own())
        theirs = trained(code, optax.sgd(0.1, momentum=0.9)) if claim == SAME else trained(codes(claim)[0], own())
        pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
        assert max(float(jnp.abs(a - b).max()) for a, b in pairs) < 1e-13, code


EVERY = 8
"""So many rows of the page make one that is run in `make test`; the others are run in `make soak`."""


def test_the_compositions_of_the_page_are_what_it_says() -> None:
    """All that are refused, and some of the others: most of the time is compilation."""
    refused = [row for row in rows() if row[1].startswith(REFUSED)]
    for code, claim in [*refused, *rows()[::EVERY]]:
        is_row_true(code, claim)


@pytest.mark.soak
@pytest.mark.parametrize(("code", "claim"), [pytest.param(*row, id=row[0]) for row in rows()])
def test_each_composition_of_the_page_is_what_it_says(code: str, claim: str) -> None:
    is_row_true(code, claim)


def test_there_are_as_many_compositions_as_were_tried_at_first() -> None:
    assert len(rows()) >= 57 + 6
    assert len({code for code, _ in rows()}) == len(rows())


def test_the_uses_of_the_state_give_what_the_page_says() -> None:
    for use, gives in pages.table(PAGE, "of the state", "gives").rows:
        around = names(own())
        found, expected = eval(codes(use)[0], around), eval(codes(gives)[0], around)
        if isinstance(expected, jax.sharding.PartitionSpec | tuple):
            assert tuple(found) == tuple(expected), use
        else:
            assert jax.tree.structure(found) == jax.tree.structure(expected), use
            pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
            assert all(np.all(a == b) for a, b in pairs), use


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", pages.read(PAGE), re.DOTALL)


def test_the_groups_of_the_page_take_torchs_steps() -> None:
    around: dict[str, Any] = {}
    exec(examples()[0], around)
    for name, one in around["model"].named_parameters():
        np.testing.assert_allclose(around["params"][name], one.detach().numpy(), rtol=1e-14)
    assert [group["weight_decay"] for group in around["theirs"].param_groups] == [0.1, 0.0]
    assert around["rules"] == RULES, "the tables use the groups of the example"


def test_the_hyperparameters_of_the_page_go_to_a_state_of_pytorch() -> None:
    around: dict[str, Any] = {}
    exec(examples()[1], around)
    assert len(examples()) == 2
    (group,) = around["neutral"].scalars["optimizer.groups"]
    assert (group["lr"], group["weight_decay"]) == (pytest.approx(1e-3), pytest.approx(0.1))
    assert sorted(around["neutral"].arrays) == [
        *("optimizer.first_moment.w", "optimizer.second_moment.w", "optimizer.step.w")
    ]


def test_a_scalar_that_is_injected_counts_from_the_next_step_on_also_momentum() -> None:
    """A momentum of 0 that is set to another value later has its slot from the start, compiled or not."""
    with jax.enable_x64(True):
        params = {"w": jnp.ones(3)}
        for step_of in (jax.jit, lambda f: f):
            tx = optax.inject_hyperparams(optim.sgd)(lr=0.1)
            state, update = tx.init(params), step_of(tx.update)
            _, state = update({"w": jnp.ones(3)}, state, params)
            state.hyperparams["momentum"] = jnp.asarray(0.5)
            updates, _ = update({"w": jnp.ones(3)}, state, params)
            np.testing.assert_allclose(updates["w"], -0.1 * 1.5, rtol=1e-15)


@pytest.mark.soak
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_class_takes_the_same_steps_with_all_of_its_numbers_injected(name: str) -> None:
    """Also where `init` is compiled, so that no value is known when the slots are made."""
    factory, static = getattr(optim, name.lower()), ("ns_steps",) if name == "Muon" else ()
    with jax.enable_x64(True):
        params = {"w": jnp.arange(12.0).reshape(4, 3) / 7 + 0.1}
        ends = []
        for tx in (factory(lr=0.05), optax.inject_hyperparams(factory, static_args=static)(lr=0.05)):
            state, update, at = jax.jit(tx.init)(params), jax.jit(tx.update), params
            for _ in range(5):
                updates, state = update(jax.tree.map(jnp.sin, at), state, at)
                at = optax.apply_updates(at, updates)
            ends.append(at["w"])
        np.testing.assert_allclose(ends[0], ends[1], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["value", "grad", "value_fn", "loss", "metrics"])
def test_an_argument_of_another_part_is_passed_over(name: str) -> None:
    params = {"w": jnp.ones(3)}
    updates, _ = own().update(params, own().init(params), params, **{name: 1.0})
    np.testing.assert_allclose(updates["w"], -0.1, rtol=1e-6)


@pytest.mark.parametrize("name", ["lr", "learn_rate", "rate", "momentums", "beta", "foreach", "weight_decay"])
def test_an_argument_that_may_be_meant_for_it_is_refused(name: str) -> None:
    params = {"w": jnp.ones(3)}
    with pytest.raises(UnknownNameError, match=f"unknown argument of an update '{name}'; known: betas"):
        own().update(params, own().init(params), params, **{name: 1.0})


PLANTS: dict[Any, list[tuple[str, str, str]]] = {
    test_the_compositions_of_the_page_are_what_it_says: [
        (PAGE, "refused: groups: plain: takes none", "refused: groups: decayed: takes none"),
        (PAGE, "clip_by_global_norm(0.1), tx)` | the same of Optax", "clip_by_global_norm(0.1), tx)` | `tx`"),
    ],
    test_the_uses_of_the_state_give_what_the_page_says: [
        (PAGE, "[:2]` | `(1, 1)`", "[:2]` | `(1, 0)`"),
        (PAGE, '"count")` | `0`', '"count")` | `1`'),
    ],
}


@pytest.mark.parametrize(("test", "plant"), [(test, plant) for test, plants in PLANTS.items() for plant in plants])
def test_a_page_that_says_something_else_is_noticed(test: Any, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_failure(test, *plant, monkeypatch)
