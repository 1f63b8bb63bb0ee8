"""What the parts of a tree of JAX are, where they have other names, the user states: no name is guessed."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.cli.main import main


def saved(folder: Path, arrange: Any) -> tuple[Path, Path]:
    """Save one training state as PyTorch's and as a tree of Optax; return both, the latter under other names."""
    import orbax.checkpoint as ocp

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, folder / "a.pt")
    words = ["convert", str(folder / "a.pt"), str(folder / "plain"), "--to", "orbax", "--optimizer", "optax"]
    assert main(words) == 0
    tree = ocp.PyTreeCheckpointer().restore(folder / "plain")
    tree.pop("torch")
    ocp.PyTreeCheckpointer().save(folder / "other", arrange(tree))
    return folder / "a.pt", folder / "other"


SHAPES: dict[str, tuple[Any, list[str]]] = {
    "other names": (
        lambda t: {"model": t["params"], "opt": t["opt_state"], "it": t["step"]},
        ["params=model", "opt_state=opt", "step=it"],
    ),
    "one level down": (
        lambda t: {"state": {"net": t["params"], "opt": t["opt_state"]}, "step": t["step"]},
        ["params=state.net", "opt_state=state.opt"],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_parts_that_are_stated_cross_bit_for_bit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    arrange, stated = SHAPES[name]
    like, other = saved(tmp_path, arrange)
    words = ["convert", str(other), str(tmp_path / "b.pt"), "--to", "torch.save", "--like", str(like)]
    capsys.readouterr()
    assert main(words) == 2
    assert "--as params=KEY" in capsys.readouterr().err
    given = [word for one in stated for word in ("--as", one)]
    assert main([*words, "--optimizer", "adamw", *given]) == 0
    assert "is taken for params, as --as says" in capsys.readouterr().out
    assert main(["compare", str(like), str(tmp_path / "b.pt")]) == 0


WRONG = {
    "no such key": (["params=nothing"], "no key 'nothing'"),
    "another name": (["weights=model"], "is not NAME=KEY with NAME one of params, buffers, opt_state, step"),
    "no key": (["params="], "is not NAME=KEY"),
    "twice": (["params=model", "params=opt"], "names one part twice"),
    "one in another": (["params=opt.0.mu", "opt_state=opt"], "lies in what is given for opt_state"),
    "a name that is there": (["params=model", "step=opt"], "has a part step beside opt"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    like, other = saved(tmp_path, lambda t: {"model": t["params"], "opt": t["opt_state"], "step": t["step"]})
    stated, message = WRONG[name]
    words = ["convert", str(other), str(tmp_path / "b.pt"), "--to", "torch.save", "--like", str(like)]
    capsys.readouterr()
    with pytest.raises(SystemExit) if "NAME=KEY" in message else nullcontext():
        assert main([*words, *(word for one in stated for word in ("--as", one))]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "b.pt").exists()


def test_parts_of_pytorch_are_known_by_what_they_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    like, _ = saved(tmp_path, lambda t: {"model": t["params"]})
    words = ["convert", str(like), str(tmp_path / "o"), "--to", "orbax", "--as", "params=model"]
    assert main(words) == 2
    assert "leave --as out" in capsys.readouterr().err
