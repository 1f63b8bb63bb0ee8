"""SGD without momentum, which keeps nothing like its parameters: its rate crosses, and schedules count on."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli.main import main
from parity.convert import open_any

STEP = 3


def injected() -> Any:
    return optax.inject_hyperparams(optax.sgd)(learning_rate=0.07)


def scheduled() -> Any:
    return optax.chain(optax.clip(1.0), optax.scale_by_schedule(optax.linear_schedule(-0.1, 0.0, 9)))


def saved(path: Path, rates: tuple[float, ...] = (0.05,), **more: Any) -> Path:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    halves = [list(layer.parameters()) for layer in model]
    groups: Any = [{"params": one, "lr": rate} for one, rate in zip(halves, rates, strict=False)]
    optimizer = torch.optim.SGD(groups if len(rates) > 1 else model.parameters(), lr=rates[0])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}, path)
    path.with_suffix(".names").write_text("0.weight\n0.bias\n1.weight\n1.bias")
    return path


def convert(source: Path, target: Path, to: str, *words: str) -> int:
    return main(["convert", str(source), str(target), "--to", to, *words])


def test_the_rate_of_inject_hyperparams_crosses_in_both_directions(tmp_path: Path) -> None:
    source = saved(tmp_path / "a.pt", step=STEP)
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", f"{__name__}:injected") == 0
    tree = open_any(tmp_path / "o").tree
    assert tree["opt_state"]["hyperparams"]["learning_rate"].load() == np.float32(0.05)
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save") == 0
    assert main(["compare", str(source), str(tmp_path / "b.pt")]) == 0
    params = jax.tree.map(lambda one: one.load(), tree["params"])
    ocp.PyTreeCheckpointer().save(
        tmp_path / "j", {"params": params, "opt_state": injected().init(params), "step": STEP}
    )
    assert convert(tmp_path / "j", tmp_path / "c.pt", "torch.save", "--like", str(source)) == 0
    assert torch.load(tmp_path / "c.pt", weights_only=True)["optimizer"]["param_groups"][0]["lr"] == np.float32(0.07)


def test_one_rate_for_groups_of_two_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = saved(tmp_path / "a.pt", (0.05, 0.01), step=STEP)
    words = ["--optimizer", f"{__name__}:injected", "--names", str(tmp_path / "a.names")]
    assert convert(source, tmp_path / "o", "orbax", *words) == 2
    assert "is one lr, and the groups of its parameters have 0.01, 0.05" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("rates", [(0.05, 0.05), (0.05, 0.01)])
def test_rates_of_several_labels_are_refused_where_nothing_says_for_which_parameters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rates: tuple[float, ...]
) -> None:
    source = saved(tmp_path / "a.pt", (0.05, 0.01), step=STEP)
    labels = {"0": {"weight": "x", "bias": "x"}, "1": {"weight": "y", "bias": "y"}}
    by_label = {
        label: optax.inject_hyperparams(optax.sgd)(learning_rate=rate + 0.1)
        for label, rate in zip("xy", rates, strict=True)
    }
    params = {"0": {"weight": np.zeros((4, 3), np.float32), "bias": np.zeros(4, np.float32)}}
    params |= {"1": {"weight": np.zeros((2, 4), np.float32), "bias": np.zeros(2, np.float32)}}
    state = optax.partition(by_label, labels).init(params)
    ocp.PyTreeCheckpointer().save(tmp_path / "j", {"params": params, "opt_state": state, "step": STEP})
    words = ["--like", str(source), "--names", str(tmp_path / "a.names")]
    assert convert(tmp_path / "j", tmp_path / "b.pt", "torch.save", *words) == 1
    assert "nothing says for which parameters" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("make", ["scheduled", "injected"])
def test_a_schedule_counts_on_from_the_counter_of_the_file_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: str
) -> None:
    source = saved(tmp_path / "a.pt", extra={"step": STEP})
    assert convert(source, tmp_path / "o", "orbax", "--optimizer", f"{__name__}:{make}") == 0
    assert "schedules in JAX count on from 3" in " ".join(capsys.readouterr().out.split())
    state = open_any(tmp_path / "o").tree["opt_state"]
    assert (state if make == "injected" else state[1])["count"].load() == STEP
    assert convert(tmp_path / "o", tmp_path / "b.pt", "torch.save") == 0
    assert main(["compare", str(source), str(tmp_path / "b.pt")]) == 0


def test_a_schedule_whose_count_nothing_tells_is_refused_with_the_flag_that_starts_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = saved(tmp_path / "a.pt", epoch=2)
    words = ["--optimizer", f"{__name__}:scheduled"]
    assert convert(source, tmp_path / "o", "orbax", *words) == 2
    assert "--reset schedule starts it at 0" in " ".join(capsys.readouterr().err.split())
    assert convert(source, tmp_path / "o", "orbax", *words, "--reset", "schedule") == 0
    assert "step" not in open_any(tmp_path / "o").tree
