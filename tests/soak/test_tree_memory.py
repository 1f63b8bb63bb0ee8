"""Memory of a process while several save and restore one tree together, in units of what it holds of the tree."""

import json
import os
import sys
from pathlib import Path

import pytest

from parity.runs import launch
from tests.support.several import ROOT

pytestmark = pytest.mark.soak

PROGRAM = """
import json, os, sys
from pathlib import Path
import numpy as np
from tests.support.peak import Peak

side, home = sys.argv[1], Path(sys.argv[2])
rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WIDE = 4096

if side == "torch":
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    import torch_side as parity_side
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    def made(seed):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(*(torch.nn.Linear(WIDE, WIDE) for _ in range(4)))
        fully_shard(model, mesh=init_device_mesh("cpu", (count,)))
        optimizer = torch.optim.AdamW(model.parameters())
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step(); optimizer.zero_grad()
        return {"model": model, "optimizer": optimizer}
    first, other = made(0), made(1)
    mine = sum(p.to_local().nbytes for p in first["model"].parameters()) * 3
else:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    import jax_side as parity_side
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{os.environ['MASTER_PORT']}", count, rank)
    over = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    def made(seed):
        shape = (WIDE, WIDE)
        make = lambda index: np.full((WIDE // count, WIDE), seed, np.float32)
        return {str(n): jax.make_array_from_callback(shape, over, make) for n in range(12)}
    first, other = made(0), made(1)
    mine = sum(value.addressable_shards[0].data.nbytes for value in first.values())
parity_side.save(home / "small", {"one": first["0"]} if side == "jax" else {"model": first["model"]})
with Peak() as save:
    parity_side.save(home / "tree", first)
with Peak() as restore:
    parity_side.restore(home / "tree", other)
(home / f"memory-{rank}.json").write_text(json.dumps(
    {"shard": mine, "save": save.above(mine), "restore": restore.above(mine)}))
"""


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_process_needs_at_most_two_of_its_own_parts_to_save_and_to_restore_a_tree(
    side: str, tmp_path: Path
) -> None:
    """Four processes, 201 million elements (805 MB); anonymous memory above that before the call, sampled."""
    (script := tmp_path / "memory.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    env.pop("XLA_FLAGS", None)
    code = launch([sys.executable, str(script), side, str(tmp_path)], 4, env)
    assert code == 0
    found = [json.loads(one.read_text()) for one in sorted(tmp_path.glob("memory-*.json"))]
    assert len(found) == 4
    for row in found:
        print(side, row)
    assert max(row["save"] for row in found) <= 2
    assert max(row["restore"] for row in found) <= 2
