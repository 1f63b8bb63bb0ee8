"""Hyperparameters of a state in JAX: set in PyTorch's groups, or refused by name; never dropped without a word."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
import torch
from flax import serialization

from parity.convert import Ledger, Options, to_torch
from parity.formats import Source
from tests.convert.test_naming import lazy
from tests.convert.test_optax import SHAPES, decayed, nested, plain, stored

IH = optax.inject_hyperparams
RATE = 0.25
AdamW, Adam, SGD = torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD


def back(
    tx: Any, kind: Any = AdamW, *, reset: tuple[str, ...] = (), **arguments: Any
) -> tuple[dict[str, Any], Ledger]:
    """Return PyTorch's group after a step of `tx` in JAX, by a checkpoint of a class of one group, and the ledger."""
    own = [(name, torch.nn.Parameter(torch.ones(shape))) for name, shape in SHAPES.items()]
    optimizer = kind(own, **{"lr": 0.01, **arguments})
    for _, p in own:
        p.grad = torch.ones_like(p)
    optimizer.step()
    like = {"model": lazy(dict(own)), "optimizer": lazy(optimizer.state_dict()), "step": 1}
    params = nested()
    _, state = tx.update(jax.tree.map(lambda p: p + 1.0, params), tx.init(params), params)
    tree = stored(serialization.to_state_dict({"params": params, "opt_state": plain(state)})) | {"step": 1}
    ledger = Ledger()
    made = to_torch(tree, Options(reset=reset), ledger, Source(path=Path("like.pt"), format="torch.save", tree=like))
    return made["optimizer"]["param_groups"][0], ledger


def of_two(first: Any, second: Any) -> Any:
    return optax.chain(first, second)


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "a rate by another name": (lambda: IH(lambda lr: optax.adamw(lr))(lr=RATE), AdamW, "of PyTorch lr is"),
    "a step size": (
        lambda: IH(lambda step_size: optax.sgd(step_size))(step_size=RATE),
        SGD,
        "of PyTorch step_size is",
    ),
    "an argument that no group has": (
        lambda: IH(lambda learning_rate, momentum: optax.adamw(learning_rate, b1=momentum))(
            learning_rate=RATE, momentum=0.5
        ),
        AdamW,
        "no group of PyTorch's state has momentum",
    ),
    "an epsilon under the root": (
        lambda: IH(optax.adam)(learning_rate=RATE, eps_root=1e-3),
        Adam,
        "of PyTorch eps_root is",
    ),
    "two rates": (
        lambda: of_two(IH(optax.adamw)(RATE), IH(lambda learning_rate: optax.scale(learning_rate))(0.5)),
        AdamW,
        "a group of PyTorch has one",
    ),
    "two decays": (
        lambda: of_two(IH(optax.add_decayed_weights)(0.3), IH(optax.adamw)(RATE)),
        AdamW,
        "a group of PyTorch has one",
    ),
    "a decay behind the moments": (
        lambda: optax.chain(optax.scale_by_adam(), IH(optax.add_decayed_weights)(0.3), optax.scale(-RATE)),
        Adam,
        "after the moments in the chain, and Adam of PyTorch's state has one before",
    ),
    "a decay before the moments": (
        lambda: of_two(IH(optax.add_decayed_weights)(0.3), optax.adamw(RATE)),
        AdamW,
        "before the moments in the chain, and AdamW of PyTorch's state has one after",
    ),
    "a decay within, before": (
        lambda: IH(lambda weight_decay: of_two(optax.add_decayed_weights(weight_decay), optax.adam(RATE)))(0.3),
        AdamW,
        "before the moments",
    ),
    "a decay within, behind": (lambda: IH(optax.adamw)(RATE, weight_decay=0.3), Adam, "after the moments"),
    "a momentum of a schedule": (
        lambda: IH(optax.adam)(RATE, b1=optax.linear_schedule(0.5, 0.1, 10)),
        Adam,
        "a schedule of the code gives it",
    ),
    "a mask that PyTorch's groups have not": (
        lambda: IH(optax.adamw, static_args=("mask",))(RATE, weight_decay=0.3, mask=decayed),
        AdamW,
        "is masked in JAX",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_would_compute_otherwise_is_refused(name: str) -> None:
    make, kind, said = REFUSED[name]
    _, ledger = back(make(), kind, **({"momentum": 0.9} if kind is SGD and "step" not in name else {}))
    refused = ledger.of("refused")
    assert any(said in entry.how for entry in refused), ledger.entries
    leaves = {entry.leaf for entry in refused}
    assert all("hyperparams" in leaf for leaf in leaves)
    _, ledger = back(make(), kind, reset=tuple(leaves))
    assert not ledger.refused
    assert {entry.leaf for entry in ledger.of("reset")} == leaves


def test_a_masked_decay_is_refused_where_no_group_decays() -> None:
    """It was left out, as a value that no group has a place for."""
    tx = IH(optax.adamw, static_args=("mask",))(RATE, weight_decay=0.3, mask=decayed)
    _, ledger = back(tx, AdamW, weight_decay=0.0)
    [refused] = ledger.of("refused")
    assert "no group of PyTorch's state decays a parameter of it" in refused.how
    _, ledger = back(tx, AdamW, weight_decay=0.0, reset=(refused.leaf,))
    assert not ledger.refused


def test_what_the_group_has_is_set() -> None:
    group, ledger = back(IH(optax.adamw)(RATE, b1=0.5, weight_decay=0.3))
    assert not ledger.refused
    assert (group["lr"], group["betas"][0]) == (RATE, 0.5)
    assert np.float32(group["weight_decay"]) == np.float32(0.3)
    group, ledger = back(IH(optax.sgd)(RATE, momentum=0.5), SGD, momentum=0.9)
    assert (group["lr"], group["momentum"], ledger.refused) == (RATE, 0.5, False)


def test_a_decay_that_stands_where_pytorch_has_it_is_set() -> None:
    behind = optax.chain(optax.scale_by_adam(), IH(optax.add_decayed_weights)(0.5), optax.scale(-RATE))
    before = of_two(IH(optax.add_decayed_weights)(0.5), optax.adam(RATE))
    for tx, kind in (
        (behind, AdamW),
        (before, Adam),
        (of_two(IH(optax.add_decayed_weights)(0.5), optax.sgd(1)), SGD),
    ):
        group, ledger = back(tx, kind)
        assert not ledger.refused
        assert group["weight_decay"] == 0.5


def test_the_last_rate_of_a_schedule_is_carried_and_said() -> None:
    group, ledger = back(IH(optax.adam)(optax.linear_schedule(RATE, 0.1, 10)), Adam)
    assert group["lr"] == RATE
    assert [entry.how for entry in ledger.of("transformed") if entry.target.endswith(".lr")] == [
        "was 0.01, the last of a schedule"
    ]


def test_clipping_and_what_has_no_effect_are_left_out() -> None:
    _, ledger = back(of_two(IH(optax.clip_by_global_norm)(0.5), IH(optax.adamw)(RATE, weight_decay=0.01)))
    assert not ledger.refused
    assert {entry.leaf.rpartition(".")[2] for entry in ledger.of("left out")} == {"max_norm", "eps_root"}
