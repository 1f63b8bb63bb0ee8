"""Functions of Optax whose states have the fields of Adam's: which one it was is stated, and the values go there."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli.main import main
from parity.convert import name_of, open_any

STEPS = 3


def adam() -> Any:
    return optax.MultiSteps(optax.inject_hyperparams(optax.adam)(learning_rate=0.01), 1)


def adamax() -> Any:
    return optax.adamax(0.01)


def radam() -> Any:
    return optax.chain(optax.clip(1e9), optax.radam(0.01))


def yogi() -> Any:
    return optax.inject_hyperparams(lambda learning_rate: optax.yogi(learning_rate))(learning_rate=0.01)


def nadam() -> Any:
    return optax.nadam(0.01)


def lamb() -> Any:
    return optax.masked(optax.lamb(0.01), True)


def model_of() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))


def torch_state(path: Path, kind: str, steps: int = STEPS, dtype: torch.dtype = torch.float32) -> Path:
    """Save a run whose gradients are the parameters themselves."""
    model = model_of().to(dtype)
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(p.square().sum() / 2 for p in model.parameters()).backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}, path)
    return path


def jax_state(path: Path, tx: Any) -> Path:
    """Save the same run in JAX."""
    params: dict[str, Any] = {"0": {}, "1": {}}
    for name, value in model_of().state_dict().items():
        layer, last = name.split(".")
        params[layer][last] = jnp.array(value.numpy())
    state = tx.init(params)
    for _ in range(STEPS):
        updates, state = tx.update(params, state, params)
        params = optax.apply_updates(params, updates)
    tree = jax.device_get({"params": params, "opt_state": state, "step": STEPS})
    ocp.PyTreeCheckpointer().save(path, tree)
    return path


def convert(source: Path, target: Path, to: str, *words: str) -> int:
    return main(["convert", str(source), str(target), "--to", to, *words])


@pytest.mark.parametrize(("function", "kind"), [("adamax", "Adamax"), ("radam", "RAdam")])
@pytest.mark.parametrize("stated", ["by name", "by the transformation"])
@pytest.mark.takes_seconds
def test_adamax_and_radam_get_the_values_that_pytorch_has(
    tmp_path: Path, function: str, kind: str, stated: str
) -> None:
    like = torch_state(tmp_path / "like.pt", kind)
    source = jax_state(tmp_path / "j", globals()[function]())
    word = function if stated == "by name" else f"{__name__}:{function}"
    assert convert(source, tmp_path / "b.pt", "torch.save", "--like", str(like), "--optimizer", word) == 0
    found, wanted = (torch.load(path, weights_only=True)["optimizer"] for path in (tmp_path / "b.pt", like))
    for number, entry in wanted["state"].items():
        assert found["state"][number].keys() == entry.keys()
        for key, value in entry.items():
            np.testing.assert_allclose(found["state"][number][key], value, rtol=1e-4, atol=1e-9)
    optimizer = getattr(torch.optim, kind)(model_of().parameters())
    optimizer.load_state_dict(found)


@pytest.mark.takes_seconds
@pytest.mark.parametrize("function", ["adamax", "radam", "yogi", "lamb", "adabelief"])
def test_a_function_of_another_class_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    like = torch_state(tmp_path / "like.pt", "AdamW")
    source = jax_state(tmp_path / "j", getattr(optax, function)(0.01))
    words = ["--like", str(like), "--optimizer", function]
    assert convert(source, tmp_path / "b.pt", "torch.save", *words) == 2
    assert f"optax.{function} " in capsys.readouterr().err
    assert not (tmp_path / "b.pt").exists()


def test_what_nothing_states_is_said_with_the_flag_that_states_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    like = torch_state(tmp_path / "like.pt", "AdamW")
    source = jax_state(tmp_path / "j", optax.yogi(0.01))
    assert convert(source, tmp_path / "b.pt", "torch.save", "--like", str(like)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "it is taken for AdamW, as --like says; --optimizer NAME" in said
    assert convert(source, tmp_path / "c.pt", "torch.save", "--like", str(like), "--optimizer", "adam") == 0
    assert "taken for" not in capsys.readouterr().out


@pytest.mark.takes_seconds("lamb")
@pytest.mark.parametrize("function", ["adamax", "radam", "yogi", "nadam", "lamb"])
def test_a_transformation_of_other_steps_is_not_filled_with_moments_of_adam(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str
) -> None:
    source = torch_state(tmp_path / "a.pt", "Adam")
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", f"{__name__}:{function}") == 2
    assert f"--optimizer: optax.{function} " in capsys.readouterr().err


@pytest.mark.takes_seconds("adam-Adam")
@pytest.mark.parametrize(("function", "kind"), [("adam", "Adam"), ("adamax", "Adamax"), ("radam", "RAdam")])
def test_a_transformation_of_the_same_steps_is_filled_and_comes_back_without_a_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str, kind: str
) -> None:
    source = torch_state(tmp_path / "a.pt", kind)
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", f"{__name__}:{function}") == 0
    assert open_any(tmp_path / "o").tree["opt_state"]
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save") == 0
    assert "taken for" not in capsys.readouterr().out
    assert main(["compare", str(source), str(tmp_path / "b.pt")]) == 0


def test_a_name_is_of_states_of_jax_and_from_pytorch_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = torch_state(tmp_path / "a.pt", "Adam")
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", "adam") == 2
    assert "from PyTorch to JAX give optax, parity, or MODULE:NAME" in " ".join(capsys.readouterr().err.split())
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", "optax") == 0
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save", "--optimizer", "yogi") == 2
    assert name_of({"trace"}) == ""


@pytest.mark.takes_seconds("True")
@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_goes_to_an_update_that_takes_the_same_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], nesterov: bool
) -> None:
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
    sum(p.square().sum() / 2 for p in model.parameters()).backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, tmp_path / "a.pt")
    same, other = (f"{__name__}:{name}" for name in (("sgd", "nesterov_sgd")[:: -1 if nesterov else 1]))
    assert convert(tmp_path / "a.pt", tmp_path / "o", "orbax", "--optimizer", other) == 2
    assert "the momentum is kept alike, the steps are not" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "o").exists()
    assert convert(tmp_path / "a.pt", tmp_path / "o", "orbax", "--optimizer", same) == 0
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save", "--optimizer", other) == 2
    assert f"group 0 of PyTorch's state is with{'' if nesterov else 'out'}" in " ".join(
        capsys.readouterr().err.split()
    )
    assert convert(tmp_path / "o", tmp_path / "c.pt", "torch.save", "--optimizer", same) == 0


def sgd() -> Any:
    return optax.sgd(0.1, momentum=0.9)


def nesterov_sgd() -> Any:
    return optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9, nesterov=True))


@pytest.mark.takes_seconds
def test_a_run_of_float64_fills_a_transformation_of_float64(tmp_path: Path) -> None:
    source = torch_state(tmp_path / "a.pt", "Adam", dtype=torch.float64)
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", f"{__name__}:adam") == 0
    held = ocp.PyTreeCheckpointer().restore((tmp_path / "o").absolute())
    moments = held["opt_state"]["inner_opt_state"]["inner_state"][0]["mu"]
    assert {leaf.dtype for leaf in jax.tree.leaves(moments)} == {np.dtype(np.float64)}
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save") == 0
    assert main(["compare", str(source), str(tmp_path / "b.pt")]) == 0
