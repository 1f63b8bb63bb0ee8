"""What JAX's own libraries saved of a training state, converted: PyTorch alone loads it and has every element."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch

from parity.cli import main

SHAPES = {"first": {"weight": (3, 2), "bias": (3,)}, "second": {"weight": (1, 3), "bias": (1,)}}
STEPS = 3


class Trained:
    """A state after some updates of plain Optax, and a PyTorch checkpoint like it, of other values."""

    def __init__(self, home: Path) -> None:
        draw = np.random.default_rng(0).standard_normal
        make = lambda: {k: {n: jnp.asarray(draw(s), jnp.float32) for n, s in v.items()} for k, v in SHAPES.items()}  # noqa: E731
        self.params, tx = make(), optax.adamw(0.01, weight_decay=0.01)
        self.opt_state = tx.init(self.params)
        for _ in range(STEPS):
            updates, self.opt_state = tx.update(make(), self.opt_state, self.params)
            self.params = optax.apply_updates(self.params, updates)
        model = torch.nn.ModuleDict({"first": torch.nn.Linear(2, 3), "second": torch.nn.Linear(3, 1)})
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        model["second"](model["first"](torch.ones(1, 2))).sum().backward()
        optimizer.step()
        self.like = home / "like.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}, self.like)

    @property
    def tree(self) -> dict[str, Any]:
        return {"params": self.params, "opt_state": self.opt_state, "step": STEPS}


def by_checkpointer(home: Path, state: Trained) -> Path:
    ocp.PyTreeCheckpointer().save(home / "single", state.tree)
    return home / "single"


def by_manager(home: Path, state: Trained) -> Path:
    with ocp.CheckpointManager(home / "managed") as manager:
        manager.save(STEPS, args=ocp.args.StandardSave(state.tree))
    return home / "managed"


def by_the_first_version(home: Path, state: Trained) -> Path:
    from orbax.checkpoint import v1

    v1.save(home / "v1", state.tree)
    return home / "v1"


def by_flax(home: Path, state: Trained) -> Path:
    from flax.training import checkpoints, train_state

    made = train_state.TrainState(
        step=STEPS,
        apply_fn=lambda: None,
        params=state.params,
        tx=optax.adamw(0.01),
        opt_state=state.opt_state,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Flax asks for Orbax, once in a process
        return Path(checkpoints.save_checkpoint(home / "flax", made, STEPS))


SAVES: dict[str, Callable[[Path, Trained], Path]] = {
    "Orbax, one save": by_checkpointer,
    "Orbax, a manager": by_manager,
    "Orbax, version 1": by_the_first_version,
    "flax.training": by_flax,
}


@pytest.mark.takes_seconds
@pytest.mark.parametrize("name", SAVES)
def test_pytorch_has_every_element(tmp_path: Path, name: str) -> None:
    state = Trained(tmp_path)
    source, target = SAVES[name](tmp_path, state), tmp_path / "back.pt"
    words = ["convert", str(source), str(target), "--to", "torch.save", "--like", str(state.like)]
    assert main(words) == 0
    adam = state.opt_state[0]
    trees = {"params": state.params, "exp_avg": adam.mu, "exp_avg_sq": adam.nu}
    flat = {f"{kind}/{k}.{n}": v for kind, tree in trees.items() for k, one in tree.items() for n, v in one.items()}
    np.savez(tmp_path / "expected.npz", **{key: np.asarray(jax.device_get(v)) for key, v in flat.items()})
    code = """
import sys
for name in ("parity", "jax_side", "torch_side", "jax"): sys.modules[name] = None
import numpy as np, torch
found, expected = torch.load(sys.argv[1], weights_only=True), np.load(sys.argv[2])
model = torch.nn.ModuleDict({"first": torch.nn.Linear(2, 3), "second": torch.nn.Linear(3, 1)})
model.load_state_dict(found["model"])
optimizer = torch.optim.AdamW(model.parameters())
optimizer.load_state_dict(found["optimizer"])
count = 0
for name, p in model.named_parameters():
    entry = optimizer.state[p]
    for kind, value in (("params", p.detach()), ("exp_avg", entry["exp_avg"]), ("exp_avg_sq", entry["exp_avg_sq"])):
        assert value.numpy().tobytes() == expected[kind + "/" + name].tobytes(), (kind, name)
        count += 1
    assert entry["step"].item() == found["step"] == int(sys.argv[3])
print(count)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code, str(target), str(tmp_path / "expected.npz"), str(STEPS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert int(ran.stdout) == len(flat) == 12


def test_a_checkpoint_of_items_names_the_item_that_is_a_training_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ocp.PyTreeCheckpointer() as checkpointer:
        for name in ("items", "other"):
            checkpointer.save(tmp_path / "1" / name, {"params" if name == "items" else "x": {"w": np.ones(2)}})
    (tmp_path / "1" / "_CHECKPOINT_METADATA").write_text("{}")
    assert main(["convert", str(tmp_path / "1"), str(tmp_path / "t.pt"), "--to", "torch.save"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "it has items, other; an item of it is one, give its path:" in said
    assert said.rstrip().endswith("1/items")
