"""Every class of torch.optim, every argument that changes what it keeps, one group and two: back bit for bit."""

from typing import Any

import pytest
import torch

from parity.convert import Ledger, Options, to_jax, to_torch
from parity.errors import SpecError
from parity.formats import Array, leaf_name, leaves
from tests.convert.test_naming import lazy

COMMON = (
    {},
    {"foreach": True},
    {"maximize": True},
    {"weight_decay": 0.01},
    {"differentiable": True},
    {"capturable": True},
)
DECOUPLED = {"decoupled_weight_decay": True, "weight_decay": 0.01}
TABLE: dict[str, tuple[dict[str, Any], ...]] = {
    "SGD": (
        *({**COMMON[at], "momentum": m} for at in (0, 1, 2, 3, 4) for m in (0, 0.9)),
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 5e-4},
        {"momentum": 0.9, "dampening": 0.1, "weight_decay": 5e-4},
        {"momentum": 0.9, "fused": True},
    ),
    "Adam": (*COMMON, {"amsgrad": True}, {"amsgrad": True, **DECOUPLED}, {"fused": True}),
    "AdamW": (*COMMON, {"amsgrad": True}, {"fused": True}),
    "NAdam": (*COMMON, DECOUPLED),
    "RAdam": (*COMMON, DECOUPLED),
    "Adamax": COMMON,
    "RMSprop": (*COMMON, {"momentum": 0.9}, {"centered": True}, {"momentum": 0.9, "centered": True}),
    "Adagrad": (*COMMON[:5], {"lr_decay": 0.1}, {"initial_accumulator_value": 0.5}, {"fused": True}),
    "Adadelta": COMMON,
    "Rprop": (*COMMON[:3], *COMMON[4:]),
    "ASGD": COMMON,
    "Adafactor": COMMON[:4],
    "Muon": ({}, {"nesterov": False}, {"weight_decay": 0.0}),
    "SparseAdam": ({}, {"maximize": True}),
}
CASES = [(kind, arguments, groups) for kind, rows in TABLE.items() for arguments in rows for groups in (1, 2)]


class Net(torch.nn.Module):
    """Two layers of one shape, and a parameter that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.b = torch.nn.Linear(3, 3)
        self.a = torch.nn.Linear(3, 3)
        self.unused = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(torch.tanh(self.b(x)))


def stepped(kind: str, arguments: dict[str, Any], groups: int) -> tuple[dict[str, Any], list[str]]:
    """Return a state after two steps, and the names in the optimizer's order."""
    torch.manual_seed(0)
    model = Net()
    own = [(n, p) for n, p in model.named_parameters() if kind != "Muon" or p.ndim == 2]
    parts = [own] if groups == 1 else [own[::2], own[1::2]]
    flags = ("differentiable", "capturable")  # of other devices, or of a graph: the same keys, so they are set after
    given = {name: value for name, value in arguments.items() if name not in flags}
    wanted = [{"params": [p for _, p in one], "lr": 0.01 / (at + 1)} for at, one in enumerate(parts)]
    optimizer = getattr(torch.optim, kind)(wanted, **given)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).square().sum().backward()
        if kind == "SparseAdam":
            for _, p in own:
                p.grad = None if p.grad is None else p.grad.to_sparse()
        optimizer.step()
    for group in optimizer.param_groups:
        group.update({name: value for name, value in arguments.items() if name in flags})
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 2}, [
        name for one in parts for name, _ in one
    ]


def flat(tree: Any) -> dict[str, Any]:
    show = lambda leaf: (str(leaf), leaf.load().tobytes()) if isinstance(leaf, Array) else (type(leaf), leaf)  # noqa: E731
    return {leaf_name(keys): show(leaf) for keys, leaf in leaves(tree)}


@pytest.mark.parametrize(("kind", "arguments", "groups"), CASES, ids=lambda one: str(one).replace(" ", ""))
def test_the_state_comes_back_bit_for_bit(kind: str, arguments: dict[str, Any], groups: int) -> None:
    state, names = stepped(kind, arguments, groups)
    tree, there, back = lazy(state), Ledger(), Ledger()
    made = to_jax(tree, Options(names=names), there)
    again = to_torch(made, Options(), back)
    assert not there.refused
    assert not [entry for entry in back.entries if entry.action == "refused"]
    assert flat(again) == flat(tree)


def test_counts_that_are_numbers_of_python_move_on_with_jax() -> None:
    """Older versions of PyTorch, and SparseAdam, have no tensors there."""
    state, names = stepped("AdamW", {}, 1)
    for entry in state["optimizer"]["state"].values():
        entry["step"] = int(entry["step"])
    tree = lazy({**state, "optimizer": state["optimizer"]})
    made = to_jax(tree, Options(names=names), Ledger())
    assert flat(to_torch(made, Options(), Ledger())) == flat(tree)
    made["opt_state"]["step"].value[:] += 3
    made["opt_state"]["count"].value[...] += 3
    made["step"] += 3
    ledger = Ledger()
    again = to_torch(made, Options(), ledger)
    assert {entry["step"] for entry in again["optimizer"]["state"].values()} == {3, 5}  # 3 where JAX began


def test_the_class_without_a_counterpart_is_named() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([p])
    tree = lazy({"model": {"p": p}, "optimizer": optimizer.state_dict()})
    with pytest.raises(SpecError, match="LBFGS: has no counterpart in JAX"):
        to_jax(tree, Options(names=["p"]), Ledger())


def test_every_class_of_torch_is_in_the_table() -> None:
    classes = {name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)}
    assert classes - {"Optimizer", "LBFGS"} == set(TABLE)
