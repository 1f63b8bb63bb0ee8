"""The code of docs/formats.md that loads a converted state in JAX runs as it stands, and has PyTorch's values."""

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from parity.cli.main import main
from tests.docs import pages

PAGE = "docs/formats.md"

NEAR = 5e-7
"""A twenty-thousandth of a step of 1e-2: Optax rounds its bias correction to float32, another moment is far off."""


def section() -> str:
    return pages.read(PAGE).split("## Load a converted state in JAX")[1].split("\n## ")[0]


def blocks(language: str) -> list[str]:
    """Return the blocks of a language in the section."""
    return re.findall(rf"```{language}\n(.*?)\n```", section(), re.DOTALL)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the file was saved and the commands of the section were run."""
    home = tmp_path_factory.mktemp("formats")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        exec(blocks("python")[0], {})
        for rules in blocks("toml"):
            Path(rules.splitlines()[0].removeprefix("# ")).write_text(rules)
        commands = re.findall(r"^parity (convert .*)$", section(), re.MULTILINE)
        assert len(commands) == 2
        for command in commands:
            assert main(command.split()) == 0
    return home


def executed(home: Path, patch: pytest.MonkeyPatch, number: int) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    patch.chdir(home)
    exec(blocks("python")[number], names)
    return names


def stepped(home: Path) -> np.ndarray[Any, Any]:
    """Return a weight of PyTorch after one more step with gradients of 0.5."""
    state = torch.load(home / "run.pt", weights_only=True)
    params = [torch.nn.Parameter(value) for value in state["model"].values()]
    optimizer = torch.optim.AdamW(params)
    optimizer.load_state_dict(state["optimizer"])
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    optimizer.step()
    return params[2].detach().numpy().T


@pytest.mark.takes_seconds
def test_nnx_goes_on_as_pytorch_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = executed(home, monkeypatch, 1)
    nnx, net, trainer = names["nnx"], names["net"], names["trainer"]
    state = torch.load(home / "run.pt", weights_only=True)
    assert np.array_equal(net.layers[0].kernel.get_value(), state["model"]["layers.0.weight"].numpy().T)
    assert trainer.step.get_value() == 3
    trainer.update(net, jax.tree.map(lambda p: jnp.full(p.shape, 0.5, p.dtype), nnx.state(net, nnx.Param)))
    assert np.allclose(net.layers[1].kernel.get_value(), stepped(home), rtol=0, atol=NEAR)


@pytest.mark.takes_seconds
def test_linen_goes_on_as_pytorch_does(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = executed(home, monkeypatch, 2)["train_state"]
    after = state.apply_gradients(grads=jax.tree.map(lambda p: jnp.full(p.shape, 0.5, p.dtype), state.params))
    assert after.step == 4
    assert np.allclose(after.params["Dense_1"]["kernel"], stepped(home), rtol=0, atol=NEAR)


def test_the_position_in_the_data_is_in_the_document(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert executed(home, monkeypatch, 3)["position"] == 15


def test_the_number_of_blocks_is_what_the_tests_run() -> None:
    assert len(blocks("python")) == 4
