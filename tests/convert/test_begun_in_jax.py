"""A state that PyTorch's optimizer had not begun and JAX has: its entries are those that PyTorch would have made."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch

from jax_side import optim
from parity.cli.main import main

STEPS = 3
SHAPES = {"weight": (4, 3), "scale": (2, 5)}

CLASSES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"momentum": 0.9, "dampening": 0.5}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("Adamax", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Rprop", {}),
    ("ASGD", {}),
    ("Adafactor", {}),
    ("Muon", {}),
]


def fresh(kind: str = "AdamW", **arguments: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.ParameterDict([(name, torch.randn(shape)) for name, shape in SHAPES.items()])
    return model, getattr(torch.optim, kind)(model.parameters(), lr=0.01, **arguments)


def saved(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int = 0) -> Path:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    return path


def stepped(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, *names: str) -> None:
    for _ in range(steps):
        for name, one in model.named_parameters():
            one.grad = torch.cos(one.detach()) if name in names or not names else None
        optimizer.step()


def convert(source: Path, target: Path, *words: str) -> int:
    to = "torch.save" if target.suffix == ".pt" else "orbax"
    return main(["convert", str(source), str(target), "--to", to, *words])


def in_jax(folder: Path, tx: Any, steps: int) -> Path:
    """Take steps from what a conversion wrote, and save the tree as it then is."""
    tree = ocp.PyTreeCheckpointer().restore(folder)
    params = jax.tree.map(jax.numpy.asarray, tree["params"])
    state = tx.init(params)
    for _ in range(steps):
        updates, state = tx.update(jax.tree.map(jax.numpy.cos, params), state, params)
        params = optax.apply_updates(params, updates)
    moved = folder.with_name("moved")
    made = jax.tree.map(np.asarray, {"params": params, "opt_state": state})
    ocp.PyTreeCheckpointer().save(moved, {**tree, **made, "step": steps})
    return moved


def same(given: Any, expected: Any) -> None:
    """Compare two states of one optimizer: keys and types exactly, values as two frameworks round them."""
    assert given["param_groups"] == expected["param_groups"]
    assert given["state"].keys() == expected["state"].keys()
    for number, entry in expected["state"].items():
        assert given["state"][number].keys() == entry.keys()
        for key, value in entry.items():
            made = given["state"][number][key]
            if isinstance(value, torch.Tensor):
                assert (made.dtype, made.shape) == (value.dtype, value.shape), key
            torch.testing.assert_close(torch.as_tensor(made), torch.as_tensor(value), rtol=2e-4, atol=1e-5)


@pytest.mark.takes_seconds
@pytest.mark.parametrize(("kind", "arguments"), CLASSES, ids=[kind for kind, _ in CLASSES])
def test_moments_that_jax_began_become_the_entries_that_pytorch_would_have(
    kind: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    model, optimizer = fresh(kind, **arguments)
    assert convert(saved(tmp_path / "fresh.pt", model, optimizer), tmp_path / "o", "--class", kind) == 0
    tx = getattr(optim, kind.lower())(lr=0.01, **arguments)
    moved = in_jax(tmp_path / "o", tx, STEPS)
    assert convert(moved, tmp_path / "back.pt") == 0
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    again, theirs = fresh(kind, **arguments)
    again.load_state_dict(back["model"])
    theirs.load_state_dict(back["optimizer"])
    stepped(model, optimizer, STEPS)
    same(theirs.state_dict(), optimizer.state_dict())
    stepped(model, optimizer, 2)
    stepped(again, theirs, 2)
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_state_that_began_in_jax_takes_a_fresh_checkpoint_as_its_like(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, optimizer = fresh(weight_decay=0.1)
    like = saved(tmp_path / "like.pt", model, optimizer)
    assert convert(like, tmp_path / "o") == 0
    moved = in_jax(tmp_path / "o", optax.adamw(0.01, weight_decay=0.1), STEPS)
    tree = ocp.PyTreeCheckpointer().restore(moved)
    ocp.PyTreeCheckpointer().save(tmp_path / "plain", {key: tree[key] for key in ("params", "opt_state", "step")})
    assert convert(tmp_path / "plain", tmp_path / "back.pt", "--like", str(like)) == 0
    assert "had no state yet of 2 parameters" in " ".join(capsys.readouterr().out.split())
    stepped(model, optimizer, STEPS)
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    same(back["optimizer"], optimizer.state_dict())
    assert back["step"] == STEPS


def test_momentum_of_zeros_in_optax_is_that_of_no_update(tmp_path: Path) -> None:
    source = saved(tmp_path / "fresh.pt", *fresh("SGD", momentum=0.9))
    assert convert(source, tmp_path / "o") == 0
    untouched = in_jax(tmp_path / "o", optax.sgd(0.01, momentum=0.9), 0)
    assert convert(untouched, tmp_path / "back.pt") == 0
    assert main(["compare", str(source), str(tmp_path / "back.pt")]) == 0


def test_a_parameter_that_only_jax_updated_gets_its_entry_and_the_others_keep_theirs(tmp_path: Path) -> None:
    model, optimizer = fresh()
    stepped(model, optimizer, STEPS, "weight")
    source = saved(tmp_path / "s.pt", model, optimizer, STEPS)
    assert convert(source, tmp_path / "o") == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    slots = tree["opt_state"]["slots"]
    slots["first_moment"]["scale"] = np.full((2, 5), 0.5, np.float32)
    tree["opt_state"]["step"] = np.array([1, 3], np.float32)
    tree["opt_state"]["count"], tree["step"] = np.int32(STEPS + 1), STEPS + 1
    ocp.PyTreeCheckpointer().save(tmp_path / "moved", tree)
    assert convert(tmp_path / "moved", tmp_path / "back.pt") == 0
    before = torch.load(source, weights_only=True)["optimizer"]["state"]
    after = torch.load(tmp_path / "back.pt", weights_only=True)["optimizer"]["state"]
    assert list(before) == [0]
    assert all(torch.equal(before[0][key], after[0][key]) for key in before[0])
    assert after[1]["step"] == 1
    assert torch.equal(after[1]["exp_avg"], torch.full((2, 5), 0.5))
    assert torch.equal(after[1]["exp_avg_sq"], torch.zeros(2, 5))


def test_moments_of_another_type_than_pytorchs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PyTorch casts what it is given to the type of the parameter, which would round them without a word."""
    source = saved(tmp_path / "fresh.pt", *fresh())
    assert convert(source, tmp_path / "o") == 0
    moved = in_jax(tmp_path / "o", optax.adamw(0.01, mu_dtype=jax.numpy.bfloat16), 1)
    assert convert(moved, tmp_path / "back.pt") == 2
    assert "is bfloat16[4,3], and PyTorch's state has float32[4,3] there" in " ".join(capsys.readouterr().err.split())


def test_momentum_that_began_in_one_part_of_a_joined_parameter_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 1, bias=False), torch.nn.Linear(3, 1, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stepped(model, optimizer, 1, "0.weight")
    (tmp_path / "names.txt").write_text("0.weight\n1.weight")
    (tmp_path / "rules.toml").write_text('[[rule]]\ntorch = "*.weight"\njax = "weight"\nstack = 0\n')
    words = ["--rules", str(tmp_path / "rules.toml"), "--names", str(tmp_path / "names.txt")]
    assert convert(saved(tmp_path / "s.pt", model, optimizer, 1), tmp_path / "o", *words) == 1
    assert "0.weight and 1.weight differ" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("state", ["fresh", "stepped"])
def test_a_parameter_under_another_transformation_is_named_as_it_is_called_in_the_tree(
    state: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The layout between the two has leaves that nobody's tree has."""
    model, optimizer = fresh()
    if state == "stepped":
        stepped(model, optimizer, 1)
    assert convert(saved(tmp_path / "s.pt", model, optimizer), tmp_path / "o", "--optimizer", "parity") == 0
    labels = {"weight": "a", "scale": "b"}
    moved = in_jax(tmp_path / "o", optax.partition({"a": optax.adamw(0.01), "b": optax.sgd(0.01, 0.9)}, labels), 2)
    assert convert(moved, tmp_path / "back.pt") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "opt_state keeps no first moment of scale, which AdamW in PyTorch has" in said
    assert "slots" not in said
