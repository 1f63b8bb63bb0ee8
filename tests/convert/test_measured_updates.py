"""`--optimizer MODULE:NAME`: updates of the user's transformation are compared with those of PyTorch's class."""

import textwrap
from pathlib import Path

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli import main
from tests.convert.test_optax import SHAPES, nested

MINE = """
import jax, optax

IH = optax.inject_hyperparams
decayed = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)
wanted = dict(b1=0.8, b2=0.99, weight_decay=0.2)
chain = lambda *parts: optax.chain(*parts)
by_adam = optax.scale_by_adam(b1=0.8, b2=0.99)

same = optax.adamw(0.03, **wanted)
clipped = chain(optax.clip_by_global_norm(1.0), same)
by_hand = chain(by_adam, optax.add_decayed_weights(0.2), optax.scale(-0.03))
accumulated = optax.MultiSteps(same, 4).gradient_transformation()
filled = IH(optax.adamw)(learning_rate=9.0, b1=0.1, b2=0.2, weight_decay=0.9)
by_labels = optax.partition({"x": same, "y": same}, lambda p: jax.tree.map(lambda q: "xy"[q.ndim - 1], p))
warming = optax.adamw(optax.linear_schedule(0.0, 0.03, 10), **wanted)
warming_others = optax.adamw(optax.linear_schedule(0.0, 0.03, 10), b1=0.8, b2=0.9, weight_decay=0.2)
radam = optax.radam(0.03)
other_radam = optax.radam(0.03, b1=0.8)
sloped = optax.adamw(optax.linear_schedule(0.03, 0.0, 100), **wanted)

resting = optax.scale_by_schedule(optax.linear_schedule(0.0, 1.0, 10, transition_begin=5))
unknown_at_rest = chain(IH(lambda lr: optax.adamw(lr, **wanted))(lr=0.5), resting)
known_at_rest = chain(IH(optax.adamw)(learning_rate=0.5, b1=0.8, b2=0.99, weight_decay=0.2), resting)

all_clipped = chain(by_adam, optax.clip_by_global_norm(9.0), optax.scale_by_schedule(lambda n: -0.03))

no_decay = optax.adam(0.03, b1=0.8, b2=0.99)
coupled = chain(optax.add_decayed_weights(0.2), no_decay)
upwards = chain(by_adam, optax.add_decayed_weights(0.2), optax.scale(0.03))
rooted = optax.adamw(0.03, eps_root=1e-12, **wanted)
other_b1 = optax.adamw(0.03, **{**wanted, "b1": 0.81})
other_decay = optax.adamw(0.03, **{**wanted, "weight_decay": 0.21})
other_rate = optax.adamw(0.031, **wanted)
other_eps = optax.adamw(0.03, eps=2e-8, **wanted)
positive = chain(same, optax.keep_params_nonnegative())
masked = optax.adamw(0.03, mask=decayed, **wanted)
clipped_after = chain(same, optax.clip(0.001))
seldom_clipped = chain(same, optax.clip(2.0))
clipped_between = chain(by_adam, optax.clip_by_global_norm(9.0), optax.add_decayed_weights(0.2), optax.scale(-0.03))
unnamed_rate = IH(lambda lr: optax.adamw(lr, **wanted))(lr=0.5)
unnamed_decay = IH(lambda wd: optax.adamw(0.03, b1=0.8, b2=0.99, weight_decay=wd))(wd=0.9)
twice = chain(IH(optax.adamw)(learning_rate=1.0), IH(lambda learning_rate: optax.scale(learning_rate))(0.5))
upwards_by_schedule = chain(by_adam, optax.add_decayed_weights(0.2), optax.scale_by_schedule(lambda n: 0.03))
"""
SAME = ("same", "clipped", "by_hand", "accumulated", "filled", "by_labels", "sloped")
OTHERS = tuple(
    line.partition(" = ")[0]
    for line in MINE[MINE.index("no_decay = ") :].splitlines()
    if " = " in line and not line.startswith(" ")
)


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_of_updates.py").write_text(textwrap.dedent(MINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def save(**arguments: object) -> None:
    """Save a state of AdamW after three steps."""
    torch.manual_seed(0)
    own = [(name, torch.nn.Parameter(torch.randn(shape))) for name, shape in SHAPES.items()]
    optimizer = torch.optim.AdamW(own, **{"lr": 0.03, "betas": (0.8, 0.99), "weight_decay": 0.2, **arguments})
    for _ in range(3):
        for _, p in own:
            p.grad = torch.randn_like(p)
        optimizer.step()
    torch.save({"model": dict(own), "optimizer": optimizer.state_dict(), "step": 3}, "a.pt")


@pytest.mark.takes_seconds
@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", SAME)
def test_the_same_steps_are_taken(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    save()
    assert main(["convert", "a.pt", "o", "--to", "orbax", "--optimizer", f"mine_of_updates:{name}"]) == 0
    assert ("its schedule gives 0.97 times the rate" in capsys.readouterr().out) == (name == "sloped")
    assert main(["convert", "o", "b.pt", "--to", "torch.save", "--optimizer", f"mine_of_updates:{name}"]) == 0


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_are_refused_with_both(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    save()
    assert main(["convert", "a.pt", "o", "--to", "orbax", "--optimizer", f"mine_of_updates:{name}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "its update is not that of AdamW in PyTorch's state: an element of" in said
    assert "with lr=0.03, betas=(0.8, 0.99), eps=1e-08, weight_decay=0.2" in said
    assert not Path("o").exists()


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("name", "code"), [("warming", 0), ("warming_others", 2)])
def test_a_schedule_that_begins_at_no_rate(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Where both do not move, all is equal; where the group moves, the function is compared at no rate."""
    save()
    state = torch.load("a.pt")
    for entry in state["optimizer"]["state"].values():
        entry["step"] = torch.tensor(0.0 if not code else 1.0)
    torch.save({**state, "step": 0 if not code else 1}, "a.pt")
    got = main(["convert", "a.pt", "o", "--to", "orbax", "--optimizer", f"mine_of_updates:{name}"])
    said = capsys.readouterr()
    assert got == code, said
    assert ("so no updates are compared" in said.out) == (not code)


@pytest.mark.usefixtures("mine")
def test_radam_beyond_its_first_steps() -> None:
    torch.manual_seed(0)
    own = [(name, torch.nn.Parameter(torch.randn(shape))) for name, shape in SHAPES.items()]
    optimizer = torch.optim.RAdam(own, lr=0.03)
    for _ in range(9):
        for _, p in own:
            p.grad = torch.randn_like(p)
        optimizer.step()
    torch.save({"model": dict(own), "optimizer": optimizer.state_dict(), "step": 9}, "a.pt")
    for name, code in (("radam", 0), ("other_radam", 2)):
        assert main(["convert", "a.pt", name, "--to", "orbax", "--optimizer", f"mine_of_updates:{name}"]) == code


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "code"), [("same", 0), ("filled", 2), ("coupled", 2), ("rooted", 2), ("other_rate", 2), ("upwards", 2)]
)
def test_on_the_way_back_by_a_checkpoint_like_it(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    import importlib

    save(**({"betas": (0.1, 0.2), "eps": 1e-3} if name == "filled" else {}))
    tx = getattr(importlib.import_module("mine_of_updates"), name)
    params = nested()
    _, state = tx.update(jax.tree.map(lambda p: p + 1.0, params), tx.init(params), params)
    ocp.PyTreeCheckpointer().save(Path("j").resolve(), {"params": params, "opt_state": state, "step": np.int64(1)})
    words = ["convert", "j", "b.pt", "--to", "torch.save", "--like", "a.pt"]
    got = main([*words, "--optimizer", f"mine_of_updates:{name}"])
    said = capsys.readouterr()
    if name == "filled":  # its hyperparameters are set in the groups, so that the steps are the same
        assert got == 0
        group = torch.load("b.pt")["optimizer"]["param_groups"][0]
        assert (group["lr"], np.float32(group["eps"])) == (9.0, np.float32(1e-8))
    else:
        assert got == code
        assert ("its update is not that of AdamW" in " ".join(said.err.split())) == bool(code)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(("name", "code"), [("known_at_rest", 0), ("unknown_at_rest", 1)])
def test_what_cannot_be_compared_proves_nothing(name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """A rate by an unknown name was left out as proven, though a schedule has all updates at zero."""
    import importlib

    save()
    tx = getattr(importlib.import_module("mine_of_updates"), name)
    params = nested()
    _, state = tx.update(jax.tree.map(lambda p: p + 1.0, params), tx.init(params), params)
    ocp.PyTreeCheckpointer().save(Path("j").resolve(), {"params": params, "opt_state": state, "step": np.int64(1)})
    asked = ["--optimizer", f"mine_of_updates:{name}"]
    assert main(["convert", "j", "b.pt", "--to", "torch.save", "--like", "a.pt", *asked]) == code
    said = capsys.readouterr()
    assert "so no updates are compared" in said.out
    assert ("was not written" in said.out, Path("b.pt").exists()) == (bool(code), not code)
    assert main(["convert", "a.pt", "o", "--to", "orbax", *asked]) == 2 * code
    assert ("hyperparams.lr" in " ".join(capsys.readouterr().err.split())) == bool(code)
    if not code:
        assert torch.load("b.pt")["optimizer"]["param_groups"][0]["lr"] == 0.5


def test_updates_of_both_are_equal_where_nothing_differs() -> None:
    from jax_side import updates_by_class, updates_of

    rows = {"w": np.array([1.0, -2.0])}
    moments = {"first_moment": {"w": np.full(2, 0.5)}, "second_moment": {"w": np.full(2, 0.25)}}
    values = {"opt_state.0.count": np.array(3), "opt_state.0.mu.w": moments["first_moment"]["w"]}
    values["opt_state.0.nu.w"] = moments["second_moment"]["w"]
    [own] = updates_of("--optimizer", optax.adamw(0.1, weight_decay=0.5), rows, values, [rows])
    given = {"lr": 0.1, "weight_decay": 0.5}
    [its] = updates_by_class("AdamW", [(given, ["w"])], rows, moments, {"w": 3}, [rows])
    assert np.allclose(own["w"], its["w"], rtol=1e-14)
    assert own["w"][0] != own["w"][1]


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "clips"), [("same", False), ("clipped", True), ("sloped", False), ("warming", False)]
)
def test_a_clipping_of_gradients_is_said(name: str, clips: bool, capsys: pytest.CaptureFixture[str]) -> None:
    save()
    main(["convert", "a.pt", "o", "--to", "orbax", "--optimizer", f"mine_of_updates:{name}"])
    assert ("has to clip alike" in " ".join(capsys.readouterr().out.split())) == clips


@pytest.mark.usefixtures("mine")
def test_a_clipping_that_scales_the_whole_update_is_no_rate_of_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    save(weight_decay=0.0)
    assert main(["convert", "a.pt", "o", "--to", "orbax", "--optimizer", "mine_of_updates:all_clipped"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "another multiple of PyTorch's than where moments are small" in said
    assert "what is clipped is the update" in said
