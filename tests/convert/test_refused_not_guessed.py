"""Refused, not guessed: views of what is stored, keys that are one as text, damage below a directory."""

import pickle
import shutil
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from parity.cli.main import main
from parity.formats import read_pickle


@pytest.mark.parametrize("name", ["conj", "neg"])
def test_a_tensor_that_shows_other_values_than_are_stored(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = torch.tensor([1 + 2j, 3 - 4j]).conj()
    torch.save({"w": value if name == "conj" else value.imag}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 2
    assert f"save tensor.resolve_{name}()" in capsys.readouterr().err
    assert not (tmp_path / "b.pt").exists()
    torch.save({"w": value.resolve_conj().imag.resolve_neg()}, tmp_path / "c.pt")
    assert main(["convert", str(tmp_path / "c.pt"), str(tmp_path / "d.pt"), "--to", "torch.save"]) == 0


def test_two_keys_of_which_one_would_be_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"w": torch.ones(1), "by_rate": {1.5: "number", "1.5": "text"}}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 2
    torch.save({"w": torch.ones(1), "by_rate": {"1.5": "text", 1.5: "number"}}, tmp_path / "c.pt")
    assert main(["convert", str(tmp_path / "c.pt"), str(tmp_path / "d.pt"), "--to", "torch.save"]) == 2
    ordered = OrderedDict([(1.5, "number"), ("1.5", "text")])
    torch.save({"w": torch.ones(1), "by_rate": ordered}, tmp_path / "e.pt")
    assert main(["convert", str(tmp_path / "e.pt"), str(tmp_path / "f.pt"), "--to", "torch.save"]) == 2
    assert capsys.readouterr().err.count("two keys are one as text") == 3


def test_a_damaged_step_below_the_directory_that_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"model": {"w": torch.arange(64.0)}, "step": 2}, tmp_path / "a.pt")
    steps = tmp_path / "steps"
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "one"), "--to", "orbax"]) == 0
    steps.mkdir()
    shutil.copytree(tmp_path / "one", steps / "2")
    assert main(["convert", str(steps), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    changed = next((steps / "2").rglob("*_METADATA"))  # read as before, and not what was sealed
    changed.write_bytes(changed.read_bytes() + b" ")
    assert main(["convert", str(steps), str(tmp_path / "c.pt"), "--to", "torch.save"]) == 2
    assert "is damaged" in capsys.readouterr().err
    assert not (tmp_path / "c.pt").exists()


def test_the_advice_on_two_networks_of_one_architecture_pairs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nets = {name: torch.nn.Linear(3, 2) for name in ("generator", "discriminator")}
    saved: dict[str, object] = {name: net.state_dict() for name, net in nets.items()}
    for name in ("discriminator", "generator"):
        optimizer = torch.optim.Adam(nets[name].parameters())
        nets[name](torch.ones(1, 3)).sum().backward()
        optimizer.step()
        saved[f"{name}_optimizer"] = optimizer.state_dict()
    torch.save(saved, tmp_path / "gan.pt")
    assert main(["convert", str(tmp_path / "gan.pt"), str(tmp_path / "m"), "--to", "orbax"]) == 2
    said = capsys.readouterr().err
    assert "discriminator_optimizer or generator_optimizer fit its shapes" in " ".join(said.split())
    words = ["--keys", "generator,generator_optimizer"]
    assert main(["convert", str(tmp_path / "gan.pt"), str(tmp_path / "m"), "--to", "orbax", *words]) == 0


@pytest.mark.parametrize("protocol", range(6))
def test_a_dict_of_any_protocol_is_read(protocol: int) -> None:
    """The oldest one makes an empty dict by another opcode, which takes pairs too."""
    assert read_pickle(pickle.dumps({"a": 1, 2: "b"}, protocol), "it", {}, list) == {"a": 1, 2: "b"}
    if protocol == 0:
        assert read_pickle(b"(S'a'\nI1\nd.", "it", {}, list) == {"a": 1}
