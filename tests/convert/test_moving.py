"""Schedule and loss scale that went on in JAX: back in PyTorch's state they are what PyTorch's own would be there."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as lr

from parity.cli import main
from parity.convert import open_any
from parity.schedules import Schedule

BEFORE, MORE = 5, 9

Build = Callable[[torch.optim.Optimizer], Any]

SCHEDULERS: dict[str, Build] = {
    "constant": lambda o: lr.ConstantLR(o, 0.5, 8),
    "linear": lambda o: lr.LinearLR(o, 0.25, total_iters=11),
    "polynomial": lambda o: lr.PolynomialLR(o, 20, 1.5),
    "exponential": lambda o: lr.ExponentialLR(o, 0.9),
    "step": lambda o: lr.StepLR(o, 3, 0.7),
    "multi-step": lambda o: lr.MultiStepLR(o, [2, 6, 6, 9], 0.3),
    "cosine": lambda o: lr.CosineAnnealingLR(o, 7, 1e-4),
    "restarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 3, 2),
    "one-cycle": lambda o: lr.OneCycleLR(o, [0.1, 0.2], 40),
    "one-cycle of rates": lambda o: lr.OneCycleLR(o, [0.1, 0.2], 40, cycle_momentum=False),
    "chained": lambda o: lr.ChainedScheduler([lr.ConstantLR(o, 0.5, 8), lr.ExponentialLR(o, 0.9)]),
    "warm-up": lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.1, total_iters=4), lr.CosineAnnealingLR(o, 20)], [4]),
}
"""`lr_scheduler` classes whose constants are in their `state_dict`."""


class Run:
    """A small model, two groups, a scheduler stepped with each update, and a scaler."""

    def __init__(self, build: Build) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        first, second = self.model
        groups = [{"params": first.parameters()}, {"params": second.parameters(), "lr": 0.02}]
        self.optimizer = torch.optim.AdamW(groups, lr=0.01)
        self.schedule = build(self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=4)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.scaler.scale(self.model(torch.ones(2, 3)).square().mean()).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.schedule.step()

    def state(self, step: int) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": step,
        }


def converted(tmp_path: Path, build: Build) -> tuple[Run, dict[str, Any]]:
    """Return a run at its fifth step, and its state as plain Orbax restores it after the conversion."""
    import orbax.checkpoint as ocp

    run = Run(build)
    run.train(BEFORE)
    torch.save(run.state(BEFORE), tmp_path / "a.pt")
    (tmp_path / "names").write_text("\n".join(name for name, _ in run.model.named_parameters()))
    words = [str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    return run, ocp.PyTreeCheckpointer().restore(tmp_path / "o")


def train_on(tree: dict[str, Any], steps: int = MORE) -> None:
    """Count updates, as an update of JAX does; the moments stay as they are."""
    tree["opt_state"]["count"] = np.int32(tree["opt_state"]["count"] + steps)
    tree["opt_state"]["step"] = tree["opt_state"]["step"] + steps
    tree["step"] += steps


def back(tmp_path: Path, tree: dict[str, Any], capsys: Any, code: int = 0, *words: str) -> Any:
    """Convert a tree back; return PyTorch's state, or what was refused."""
    import orbax.checkpoint as ocp

    ocp.PyTreeCheckpointer().save(tmp_path / "later", tree)
    capsys.readouterr()
    words = (str(tmp_path / "later"), str(tmp_path / "b.pt"), "--to", "torch.save", "--json", *words)
    assert main(["convert", *words]) == code
    said = capsys.readouterr()
    if code == 2:
        return said.err
    refused = {e["leaf"]: e["how"] for e in json.loads(said.out)["entries"] if e["action"] == "refused"}
    assert (tmp_path / "b.pt").exists() != bool(refused)
    return refused or torch.load(tmp_path / "b.pt", weights_only=True)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_it_is_where_pytorch_would_be(tmp_path: Path, capsys: Any, name: str) -> None:
    """Every key of the `state_dict`, the rates and momenta of the groups: to the last bit; and PyTorch loads them."""
    run, tree = converted(tmp_path, SCHEDULERS[name])
    train_on(tree)
    tree["loss_scale"] = {"scale": np.float32(16.0), "growth_tracker": np.int32(2)}
    found = back(tmp_path, tree, capsys)
    run.train(MORE)
    expected = run.state(BEFORE + MORE)
    assert found["scheduler"] == expected["scheduler"]
    kinds = {key: type(value) for key, value in expected["scheduler"].items()}
    assert {key: type(value) for key, value in found["scheduler"].items()} == kinds  # a Counter equals a dict
    assert found["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    assert found["scaler"] == {**expected["scaler"], "scale": 16.0, "_growth_tracker": 2}
    again = Run(SCHEDULERS[name])
    again.optimizer.load_state_dict(found["optimizer"])
    again.schedule.load_state_dict(found["scheduler"])
    again.schedule.step()
    run.schedule.step()
    assert [g["lr"] for g in again.optimizer.param_groups] == [g["lr"] for g in run.optimizer.param_groups]


@pytest.mark.parametrize("name", ["plateau", *SCHEDULERS])
def test_a_schedule_that_jax_kept_is_taken_as_it_is(tmp_path: Path, capsys: Any, name: str) -> None:
    """The leaf `schedule` restores in the suite; one by a metric can come back in no other way."""
    plateau: Build = lambda o: lr.ReduceLROnPlateau(o, patience=1)  # noqa: E731
    build = SCHEDULERS.get(name, plateau)
    metrics: list[tuple[float, ...]] = [(0.5,), (0.6,), (0.6,), (0.6,)] if name == "plateau" else [()] * 4
    tree = prepared(tmp_path, build)
    schedule = Schedule.restore(json.loads(tree["schedule"]))
    expected = Run(build)
    for metric in metrics:
        schedule.step(*metric)
        expected.optimizer.step()
        expected.schedule.step(*metric)
    train_on(tree, 4)
    tree["schedule"] = json.dumps(schedule.state())
    found = back(tmp_path, tree, capsys)
    assert found["scheduler"] == expected.schedule.state_dict()
    groups = expected.optimizer.state_dict()["param_groups"]
    assert found["optimizer"]["param_groups"] == groups


def test_counts_that_jax_moved_without_their_moments_are_refused(tmp_path: Path, capsys: Any) -> None:
    """PyTorch's optimizer would begin anew, where the counts say that it has been at work."""
    tree = prepared(tmp_path, SCHEDULERS["step"])
    assert set(tree["opt_state"]["slots"]) == {"first_moment", "second_moment"}
    tree["opt_state"]["slots"] = {}
    train_on(tree)
    assert "is missing: PyTorch's 0.weight is made from it" in back(tmp_path, tree, capsys, 2)


def prepared(tmp_path: Path, build: Build) -> dict[str, Any]:
    """Return a state before its first step, as plain Orbax restores it after the conversion."""
    import orbax.checkpoint as ocp

    run = Run(build)
    state = run.state(0)
    del state["scaler"]
    torch.save(state, tmp_path / "a.pt")
    (tmp_path / "names").write_text("\n".join(name for name, _ in run.model.named_parameters()))
    words = [str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    return ocp.PyTreeCheckpointer().restore(tmp_path / "o")


def test_what_nobody_kept_up_to_date_is_refused(tmp_path: Path, capsys: Any) -> None:
    """A loss scale as it was after steps that must have moved it; a schedule that is not stepped with each update."""
    _, tree = converted(tmp_path, SCHEDULERS["step"])
    train_on(tree)
    refused = back(tmp_path, tree, capsys, 1)
    assert list(refused) == ["scaler"]
    assert "is that of step 5, and the parameters are of step 14" in refused["scaler"]


def test_a_schedule_that_counts_epochs_is_refused(tmp_path: Path, capsys: Any) -> None:
    run = Run(SCHEDULERS["step"])
    run.train(2)
    state = {**run.state(20), "scaler": None}
    torch.save(state, tmp_path / "a.pt")
    import orbax.checkpoint as ocp

    (tmp_path / "names").write_text("\n".join(name for name, _ in run.model.named_parameters()))
    words = [str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    train_on(tree)
    assert "scheduler" in back(tmp_path, tree, capsys, 1)


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")
@pytest.mark.parametrize("name", ["cosine", "restarts"])
def test_a_schedule_that_moves_by_fractions_of_an_epoch_crosses_and_is_not_moved_on_by_a_count(
    tmp_path: Path, capsys: Any, name: str
) -> None:
    """As `step(epoch + i / batches)` moves it: no update is a whole step of it, so a count says nothing."""
    run = Run(SCHEDULERS[name])
    run.train(BEFORE)
    run.schedule.step(7.5)
    torch.save(run.state(BEFORE), tmp_path / "a.pt")
    (tmp_path / "names").write_text("\n".join(name for name, _ in run.model.named_parameters()))
    words = [str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    import orbax.checkpoint as ocp

    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    schedule = Schedule.restore(json.loads(tree["schedule"]))
    assert schedule.rates == tuple(group["lr"] for group in run.optimizer.param_groups)
    assert not schedule.whole
    train_on(tree)
    assert "scheduler" in back(tmp_path, tree, capsys, 1)


def test_a_second_scheduler_beside_it_is_not_passed_over(tmp_path: Path, capsys: Any) -> None:
    """Which of them the count of Optax is of, nothing says; that of the other would stay as it was."""
    import orbax.checkpoint as ocp

    run = Run(SCHEDULERS["step"])
    run.train(BEFORE)
    state = {**run.state(BEFORE), "lr_scheduler_name": "warm-up", "loss_scale": 16.0}
    torch.save(state, tmp_path / "a.pt")
    (tmp_path / "names").write_text("\n".join(name for name, _ in run.model.named_parameters()))
    words = [str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax", "--names", str(tmp_path / "names")]
    assert main(["convert", *words]) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    assert not {"schedule", "loss_scale"} & set(tree)
    train_on(tree)
    refused = back(tmp_path, tree, capsys, 1)
    assert set(refused) == {"scheduler", "lr_scheduler_name", "scaler", "loss_scale"}


@pytest.mark.takes_seconds
def test_contradictions_are_one_error_each(tmp_path: Path, capsys: Any) -> None:
    cases: dict[str, Callable[[dict[str, Any]], Any]] = {
        "is at 3, and Optax counts 14: set both": lambda t: (
            train_on(t),
            t.update(schedule=at(t["schedule"], 3)),
        ),
        "schedule is of another rule": lambda t: (
            train_on(t),
            t.update(schedule=json.dumps(Schedule(other(), [0.1, 0.1]).state())),
        ),
        "schedule is no schedule": lambda t: (train_on(t), t.update(schedule="{}")),
        "schedule changed; set step too": lambda t: t.update(schedule=at(t["schedule"], 3)),
        "loss_scale.scale changed; set step too": lambda t: t["loss_scale"].update(scale=np.float32(2.0)),
    }
    for number, (expected, change) in enumerate(cases.items()):
        home = tmp_path / str(number)
        home.mkdir()
        _, tree = converted(home, SCHEDULERS["exponential"])
        change(tree)
        assert expected in back(home, tree, capsys, 2), expected


def other() -> Any:
    from parity.schedules import Exponential

    return Exponential(gamma=0.5)


def at(text: str, epoch: int) -> str:
    state = json.loads(text)
    state["position"]["epoch"] = epoch
    return json.dumps(state)


def test_the_leaves_hold_what_the_suite_and_a_scaler_of_jax_start_from(tmp_path: Path) -> None:
    run, tree = converted(tmp_path, SCHEDULERS["cosine"])
    assert Schedule.restore(json.loads(tree["schedule"])).rates == tuple(g["lr"] for g in run.optimizer.param_groups)
    assert (tree["loss_scale"]["scale"], tree["loss_scale"]["growth_tracker"]) == (16.0, 1)
    assert tree["loss_scale"]["scale"].dtype == np.float32
    found = open_any(tmp_path / "o").tree
    assert set(found) == {"params", "opt_state", "step", "schedule", "loss_scale", "torch"}


@pytest.mark.parametrize(
    "build",
    [
        lambda o: lr.LambdaLR(o, lambda step: 0.9**step),
        lambda o: lr.CyclicLR(o, 0.01, 0.1, 3, scale_fn=lambda cycle: 0.5**cycle),
        lambda o: lr.CyclicLR(o, 0.01, 0.1, 3),
    ],
    ids=["lambda", "scaled", "cyclic"],
)
def test_a_schedule_that_jax_gets_nothing_of_is_said(build: Build, tmp_path: Path, capsys: Any) -> None:
    """The dict of a CyclicLR is the same with a function of one's own as without."""
    _, tree = converted(tmp_path, build)
    assert "schedule" not in tree
    said = " ".join(capsys.readouterr().out.split())
    assert "JAX gets no schedule from scheduler, which is kept in the document alone" in said
    assert "loss_scale" not in said


def test_of_a_schedule_that_jax_gets_nothing_is_said(tmp_path: Path, capsys: Any) -> None:
    converted(tmp_path, SCHEDULERS["one-cycle"])
    assert "JAX gets no" not in capsys.readouterr().out


def test_a_chained_scheduler_of_one_group_is_moved_on_by_optax_count(tmp_path: Path) -> None:
    import orbax.checkpoint as ocp

    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = SCHEDULERS["chained"](optimizer)

    def train(steps: int) -> dict[str, Any]:
        for _ in range(steps):
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            schedule.step()
        parts = {"model": model, "optimizer": optimizer, "scheduler": schedule}
        return {name: part.state_dict() for name, part in parts.items()}

    torch.save({**train(BEFORE), "step": BEFORE}, tmp_path / "a.pt")
    assert main(["convert", str(tmp_path / "a.pt"), str(tmp_path / "o"), "--to", "orbax"]) == 0
    tree = ocp.PyTreeCheckpointer().restore(tmp_path / "o")
    head, *middle, last = tree["opt_state"]
    assert last["count"] == BEFORE
    now = {"count": np.int32(BEFORE + MORE)}
    tree |= {"opt_state": [{**head, **now}, *middle, now], "step": BEFORE + MORE}
    ocp.PyTreeCheckpointer().save(tmp_path / "p", tree)
    assert main(["convert", str(tmp_path / "p"), str(tmp_path / "b.pt"), "--to", "torch.save"]) == 0
    assert torch.load(tmp_path / "b.pt")["scheduler"] == train(MORE)["scheduler"]
