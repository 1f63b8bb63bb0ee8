"""`parity handover --place`: what parity convert writes is put where the trainer that takes over looks for it."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch
from torch import nn

from parity.cli.main import main

STEPS, EVERY, RATE = 20, 5, 1e-2
HERE = "tests.ports.test_placed"

RULES = """
[[rule]]
torch = "up.weight"
jax = "first.kernel"
transpose = true

[[rule]]
torch = "up.bias"
jax = "first.bias"

[[rule]]
torch = "down.weight"
jax = "last.kernel"
transpose = true
"""


def samples(step):
    draws = np.random.default_rng([4, step])
    x = draws.normal(size=(8, 5))
    return x, np.sin(x.sum(axis=1, keepdims=True))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 7).double(), nn.Linear(7, 1, bias=False).double()

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def train_torch(folder: Path, steps: int = STEPS):
    torch.manual_seed(0)
    model = Net()
    optimizer, begin = torch.optim.Adam(model.parameters(), lr=RATE), 0
    if (folder / "last.pt").exists():
        held = torch.load(folder / "last.pt", weights_only=True)
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        begin = held["step"]
    for step in range(begin, steps):
        yield step
        x, y = map(torch.from_numpy, samples(step))
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(held, folder / "last.pt")


TX = optax.adam(RATE)


@jax.jit
def update(state, x, y):
    def loss_of(params):
        hidden = jnp.tanh(x @ params["first"]["kernel"] + params["first"]["bias"])
        return ((hidden @ params["last"]["kernel"] - y) ** 2).mean()

    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt_state = TX.update(grads, state["opt_state"], state["params"])
    return {"params": optax.apply_updates(state["params"], updates), "opt_state": opt_state}, loss


def _train_jax(folder: Path, steps: int = STEPS, lost: str = ""):
    zeros = {"first": {"kernel": jnp.zeros((5, 7)), "bias": jnp.zeros(7)}, "last": {"kernel": jnp.zeros((7, 1))}}
    state, begin = {"params": jax.tree.map(lambda one: one + 0.3, zeros), "opt_state": TX.init(zeros)}, 0
    if (folder / "saved" / "run").exists():
        held = ocp.PyTreeCheckpointer().restore(folder / "saved" / "run")
        begin = int(held["step"])
        leaves, tree = jax.tree.flatten(state)
        kept = jax.tree.leaves({name: held[name] for name in state})
        taken = jax.tree.unflatten(tree, [jnp.asarray(k, leaf.dtype) for k, leaf in zip(kept, leaves, strict=True)])
        state = {name: state[name] if name == lost else taken[name] for name in state}
    for step in range(begin, steps):
        yield step
        state, loss = update(state, *map(jnp.asarray, samples(step)))
        if (step + 1) % EVERY == 0:
            ocp.PyTreeCheckpointer().save(
                folder / "saved" / "run", {**jax.device_get(state), "step": step + 1}, force=True
            )
        assert jnp.isfinite(loss)


def train_jax(folder: Path, steps: int = STEPS):
    return _train_jax(folder, steps)


def train_forgetful(folder: Path, steps: int = STEPS):
    return _train_jax(folder, steps, "opt_state")


def train_restarted(folder: Path, steps: int = STEPS):
    """Look for its checkpoint elsewhere, so that it begins again."""
    return _train_jax(folder / "elsewhere", steps)


@pytest.fixture
def saved(tmp_path):
    (tmp_path / "RULES.toml").write_text(RULES)
    for _ in train_torch(tmp_path, 10):
        pass
    return tmp_path


def command(folder, *more, name="train_jax"):
    with jax.enable_x64(True):
        names = ["--torch", f"{HERE}:train_torch", "--jax", f"{HERE}:{name}"]
        return main(["handover", str(folder / "last.pt"), *names, "--steps", str(STEPS), *more])


PLACED = ("--place", "saved/run", "--rules")


def test_a_run_goes_on_in_jax_from_what_parity_convert_put_there(saved, capsys):
    assert command(saved, *PLACED, str(saved / "RULES.toml"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["handovers"], found["precision"], found["pairs"]) == ("holds", [10], "float64", 9)
    assert found["max_rel"] < 1e-12


@pytest.mark.parametrize(
    ("name", "said"),
    [("train_forgetful", "optimizer.first_moment"), ("train_restarted", "checkpoint.restore")],
)
def test_what_the_one_that_takes_over_does_not_read_is_named(saved, name, said, capsys):
    assert command(saved, *PLACED, str(saved / "RULES.toml"), name=name) == 1
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--place", "/saved"), "must lie in the trainer's folder"),
        (("--place", "../saved"), "must lie in the trainer's folder"),
        (("--place", "saved", "--convert", "a:b"), "leave --place"),
        (("--convert", "a:b", "--groups", "a:b", "--class", "Adam"), "leave --class, --groups out"),
        (("--place", "saved", "--groups", "a:b"), "give --model"),
    ],
)
def test_a_place_that_cannot_be_used_is_refused(saved, more, said, capsys):
    assert command(saved, *more) == 2
    assert said in capsys.readouterr().err


def test_rules_that_exchange_two_leaves_are_not_equal(saved, capsys):
    wrong = RULES.replace("first.bias", "x").replace("last.kernel", "first.bias").replace("x", "last.kernel")
    (saved / "WRONG.toml").write_text(wrong)
    assert command(saved, *PLACED, str(saved / "WRONG.toml")) in (1, 2)


def test_the_other_way_round_the_names_come_from_a_checkpoint_of_pytorch(saved, capsys):
    home = saved / "jax"
    with jax.enable_x64(True):
        for _ in train_jax(home, 10):
            pass
        names = ["--jax", f"{HERE}:train_jax", "--torch", f"{HERE}:train_torch"]
        more = ["--own-place", "saved/run", "--place", "last.pt", "--rules", str(saved / "RULES.toml"),
                "--like", str(saved / "last.pt"), "--steps", str(STEPS)]  # fmt: skip
        assert main(["handover", str(home / "saved" / "run"), *names, *more]) == 0
    assert "handed over exactly" in capsys.readouterr().out
