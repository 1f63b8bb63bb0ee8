"""Several models and optimizers in one file: the hint works when it is copied; names of --reset are known ones."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli import main
from parity.convert import open_any


def stepped(model: torch.nn.Module, width: int) -> torch.optim.Optimizer:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(torch.randn(2, width)).sum().backward()
    optimizer.step()
    return optimizer


def gan() -> tuple[torch.nn.Module, torch.nn.Module, list[dict[str, Any]]]:
    torch.manual_seed(0)
    generator = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 6))
    discriminator = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    return generator, discriminator, [stepped(discriminator, 6).state_dict(), stepped(generator, 2).state_dict()]


def test_the_hint_for_several_models_works_when_it_is_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first optimizer is the second model's, as its shapes tell."""
    generator, discriminator, optimizers = gan()
    tree = {"generator": generator.state_dict(), "discriminator": discriminator.state_dict()}
    tree |= {"opt_d": optimizers[0], "opt_g": optimizers[1]}
    torch.save(tree, tmp_path / "gan.pt")
    words = ["convert", str(tmp_path / "gan.pt"), str(tmp_path / "o"), "--to", "flax-msgpack"]
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    hint = re.search(r"one at a time: (--keys \S+)", said)
    assert hint is not None
    assert hint[1] == "--keys generator,opt_g"
    assert main([*words, *hint[1].split()]) == 0
    mu = open_any(tmp_path / "o").tree["opt_state"]["0"]["mu"]
    expected = optimizers[1]["state"][2]["exp_avg"].numpy()
    assert mu["1"]["weight"].load().tobytes() == expected.tobytes()


def test_the_hint_for_several_optimizers_names_their_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generator, discriminator, optimizers = gan()
    both = torch.nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    torch.save({"state_dict": both.state_dict(), "optimizer_states": optimizers}, tmp_path / "lightning.ckpt")
    words = ["convert", str(tmp_path / "lightning.ckpt"), str(tmp_path / "o"), "--to", "flax-msgpack"]
    assert main(words) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "several optimizers (optimizer_states.0, optimizer_states.1)" in said
    assert "--keys state_dict,optimizer_states.0" in said
    assert "--names FILE" not in said


@pytest.mark.parametrize("name", ["schedul", "optimiser", "modell", "random stream"])
def test_a_misspelt_reset_is_refused_with_what_is_like_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "step": 3}, tmp_path / "a.pt")
    words = ["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "flax-msgpack", "--reset"]
    assert main([*words, name]) == 2
    said = capsys.readouterr().err
    assert "--reset" in said
    assert "did you mean" in said
    assert not (tmp_path / "o").exists()
    assert main([*words, "schedule"]) == 0
