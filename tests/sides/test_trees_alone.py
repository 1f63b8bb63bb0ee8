"""A saved tree is read by the framework's own library, in an interpreter without this project."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

from tests.support.tree_states import Pair, array, side_of

pytestmark = pytest.mark.takes_seconds

each_side = pytest.mark.parametrize("side", ["jax", "torch"])


ORBAX = """
import sys
sys.modules.update({name: None for name in ("jax_side", "torch_side", "parity")})
import jax, numpy as np, orbax.checkpoint as ocp
from pathlib import Path
home = Path(sys.argv[1])
found = ocp.PyTreeCheckpointer().restore(home / "state")
assert found["w"].tobytes() == np.arange(4000, dtype=np.float32).tobytes()
assert str(found["f8"].dtype) == "float8_e4m3fn" and str(found["half"].dtype) == "bfloat16"
assert jax.random.key_impl(found["key"]) == "rbg" and found["raw"].dtype == np.uint32
assert (found["n"], found["lr"], found["on"], found["name"], found["none"], found["empty"]) == (
    3, 0.5, True, "x", None, {})
assert type(found["pair"]) is dict and type(found["list"]) is list
like = {"w": jax.ShapeDtypeStruct((4000,), np.float32)}
only = ocp.PyTreeCheckpointer().restore(home / "state", args=ocp.args.PyTreeRestore(
    item=like, restore_args=ocp.checkpoint_utils.construct_restore_args(like), partial_restore=True))
assert only["w"].shape == (4000,)
with ocp.CheckpointManager(home / "managed" / "checkpoints") as manager:
    assert manager.latest_step() == 2
    items = manager.restore(2)
    assert items["config"] == {"lr": 0.1} and items["params"]["w"].tobytes() == found["w"].tobytes()
"""

TORCH = """
import sys
sys.modules.update({name: None for name in ("jax_side", "torch_side", "parity")})
import torch
from pathlib import Path
home = Path(sys.argv[1])
found = torch.load(home / "state" / "state.pt", weights_only=True)
assert torch.equal(found["w"], torch.arange(4000.0))
assert found["f8"].dtype == torch.float8_e4m3fn and found["half"].dtype == torch.bfloat16
assert (found["n"], found["lr"], found["on"], found["name"], found["none"], found["empty"]) == (
    3, 0.5, True, "x", None, {})
assert type(found["pair"]) is dict and type(found["list"]) is list
model = torch.nn.Linear(2, 3)
model.load_state_dict(torch.load(home / "managed/checkpoints/2/model.pt", weights_only=True))
optimizer = torch.load(home / "managed/checkpoints/2/optimizer.pt", weights_only=True)
assert optimizer["param_groups"][0]["params"] == [0, 1] and optimizer["param_groups"][0]["betas"] == (0.9, 0.999)
import json
assert json.loads((home / "managed/checkpoints/2/config.json").read_text()) == {"lr": 0.1}
"""


@each_side
def test_the_frameworks_own_library_reads_it_without_this_project(side: str, tmp_path: Path) -> None:
    module = side_of(side)
    keys = {"key": jax.random.key(0, impl="rbg"), "raw": jax.random.PRNGKey(0)} if side == "jax" else {}
    state = {
        **{"w": array(side, np.arange(4000)), "f8": array(side, [1], "float8_e4m3fn"), **keys},
        **{"half": array(side, [1], "bfloat16"), "n": 3, "lr": 0.5, "on": True, "name": "x", "none": None},
        **{"empty": {}, "pair": Pair(array(side, [1])), "list": [array(side, [2])]},
    }
    module.save(tmp_path / "state", state)
    model = torch.nn.Linear(2, 3)
    items = {"params": {"w": state["w"]}} if side == "jax" else {}
    if side == "torch":
        items = {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}
    with module.CheckpointManager(tmp_path / "managed") as manager:
        for step in (1, 2):
            manager.save(step, {**items, "config": {"lr": 0.1}})
    script = ORBAX if side == "jax" else TORCH
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-I", "-W", "ignore", "-c", script, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
