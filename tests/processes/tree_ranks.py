"""One of several processes that save and restore a tree; `python tree_ranks.py SIDE HOME CASE...`, see `CASES`.

What a case says goes to `HOME/CASE.RANK.json`. Everything in a tree follows from its seed, so that any count of
processes has the same one, each the part that its mesh gives it.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parity.checkpoints import read_seal

RANK, COUNT = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class TorchRanks:
    """FSDP2 with uneven rows, its AdamW, FSDP2 on tensor parallel layers and with replicas, DTensors, and DDP."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        torch.set_num_threads(1)
        if COUNT > 1:
            dist.init_process_group("gloo")

    def stop(self) -> None:
        if COUNT > 1:
            self.dist.destroy_process_group()

    def tree(self, seed: int) -> dict[str, Any]:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        torch = self.torch
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(700, 401), torch.nn.Linear(401, 3))
        values = {name: torch.randn(7, 5, 3) for name in ("rows", "columns", "both", "alike")}
        both = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Linear(10, 6))
        copied = torch.nn.Linear(5, 9)
        grads = [torch.randn_like(p) for p in model.parameters()]
        if COUNT > 1:
            line = init_device_mesh("cpu", (COUNT,))
            square = init_device_mesh("cpu", (2, COUNT // 2), mesh_dim_names=("a", "b"))
            for layer in model:
                fully_shard(layer, mesh=line)
            parallelize_module(both, square["b"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
            fully_shard(both, mesh=square["a"])  # rows of 10 are split by tensor parallelism first
            fully_shard(copied, mesh=square)  # replicas of shards
            places = {
                "rows": [Shard(0), Shard(0)],
                "columns": [Replicate(), Shard(1)],
                "both": [Shard(2), Shard(0)],
                "alike": [Replicate(), Replicate()],
            }
            values = {name: distribute_tensor(value, square, places[name]) for name, value in values.items()}
            grads = [distribute_tensor(g, line, p.placements) for g, p in zip(grads, model.parameters(), strict=True)]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for p, grad in zip(model.parameters(), grads, strict=True):
            p.grad = grad
        optimizer.step()
        plain = {"a": torch.arange(5) + seed, "half": torch.ones(3, dtype=torch.bfloat16), "n": seed, "none": None}
        modules = {"model": model, "both": both, "copied": copied}
        return {**modules, "optimizer": optimizer, "values": values, "plain": plain}

    def alike(self, seed: int) -> dict[str, Any]:
        """Return a tree of replicas alone, as DDP has them."""
        self.torch.manual_seed(seed)
        model = self.torch.nn.Linear(6, 4)
        return {"model": self.torch.nn.parallel.DistributedDataParallel(model) if COUNT > 1 else model, "n": seed}

    def fault(self, act: Any) -> None:
        import torch_side.formats.tree_shards as shards

        shards.write_at = act

    def misread(self) -> None:
        import torch_side.formats.tree_form as form

        read = form.read_part
        form.read_part = lambda whole, like, neutral: read(whole.flip(0), like, neutral)

    def changed(self, tree: Any) -> None:
        tree["plain"]["a"][0] = 77

    def plain(self) -> dict[str, Any]:
        """Return a tree that one process has."""
        return {"a": self.torch.arange(3)}

    def told(self) -> int:
        """Return how many values the processes have left for each other; PyTorch's groups keep none."""
        return 0

    def unheld(self, tree: Any) -> None:
        tree["plain"]["odd"] = self.torch.ones(2).to_sparse()

    def train(self, tree: Any) -> None:
        """Change a tree in place, and have the processes meet in collectives meanwhile."""
        with self.torch.no_grad():
            for _ in range(20):
                for value in tree["model"].parameters():
                    value.mul_(2)
                self.dist.all_reduce(self.torch.ones(3))


class JaxRanks:
    """Arrays on a mesh of four devices, whatever the count of processes, and what Adam keeps for them."""

    def __init__(self) -> None:
        import jax

        jax.config.update("jax_num_cpu_devices", 4 // COUNT)
        if COUNT > 1:
            address = f"localhost:{os.environ['MASTER_PORT']}"
            jax.distributed.initialize(address, COUNT, RANK, initialization_timeout=60, heartbeat_timeout_seconds=10)
        self.jax = jax

    def stop(self) -> None:
        pass

    def tree(self, seed: int) -> dict[str, Any]:
        import jax.numpy as jnp
        import optax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(self.jax.devices()).reshape(2, 2), ("a", "b"))
        draws = np.random.default_rng(seed)

        def put(shape: tuple[int, ...], *axes: str | None, dtype: Any = "float32") -> Any:
            value, sharding = draws.normal(size=shape).astype(dtype), NamedSharding(mesh, PartitionSpec(*axes))
            return self.jax.make_array_from_callback(shape, sharding, lambda index: value[index])

        params = {
            "rows": put((700, 402), "a"),
            "both": put((8, 6), "a", "b"),
            "columns": put((4, 6), None, "b", dtype=jnp.bfloat16),
            "alike": put((5,)),
        }
        plain = {"a": np.arange(5) + seed, "key": self.jax.random.key(seed), "n": seed, "none": None}
        return {"params": params, "optimizer": optax.adam(1e-3).init(params), "plain": plain}

    def fault(self, act: Any) -> None:
        import jax_side.formats.tree_shards as shards

        shards._end = act

    def misread(self) -> None:
        import jax_side.formats.tree_shards as shards

        read = shards._read

        def flipped(*args: Any) -> Any:
            value = read(*args)
            own = [self.jax.device_put(np.flip(np.asarray(s.data), 0), s.device) for s in value.addressable_shards]
            return self.jax.make_array_from_single_device_arrays(value.shape, value.sharding, own)

        shards._read = flipped

    def changed(self, tree: Any) -> None:
        tree["plain"]["a"][0] = 77

    def told(self) -> int:
        """Return how many values the processes have left for each other in the store of JAX's coordinator."""
        from jax.experimental import multihost_utils
        from orbax.checkpoint import multihost

        found = len(multihost.get_jax_distributed_client().key_value_dir_get_bytes("parity/saves/"))
        multihost_utils.sync_global_devices("told")
        return found

    def unheld(self, tree: Any) -> None:
        tree["plain"]["odd"] = object()

    def train(self, tree: Any) -> None:
        """Donate a tree to steps, and have the processes meet in collectives meanwhile."""
        from jax.experimental import multihost_utils

        step = self.jax.jit(lambda values: self.jax.tree.map(lambda value: value * 2, values), donate_argnums=0)
        values, total = tree["params"], self.jax.jit(lambda value: value.sum())
        for _ in range(20):
            values = step(values)
            total(values["rows"]).block_until_ready()
            multihost_utils.process_allgather(np.ones(3))


def save(side: Any, ranks: Any, home: Path) -> Any:
    """Save a tree by itself, and two steps by a manager."""
    side.save(home / "state", ranks.tree(0))
    with side.CheckpointManager(home / "run") as manager:
        for step in (1, 2):
            assert manager.save(step, {"state": ranks.tree(step), "note": {"step": step}}, metric=float(step))
        manager.wait()
        found = [manager.all_steps(), manager.latest_step(), manager.best_step()]
    if RANK == 0:
        flip_a_bit(home / "state", home / "damaged")
    return found


def beside(side: Any, ranks: Any, home: Path) -> Any:
    """Save while the same processes train on: what is written is what the tree held when `save` was called."""
    tree = ranks.tree(3)
    side.save(home / "before", tree)
    with side.CheckpointManager(home / "beside") as manager:
        if RANK == 1:  # refused before the others are asked, so that this process counts otherwise from here on
            assert "no name of an item" in said(lambda: manager.save(1, {"/": tree}))
        manager.save(1, {"state": tree})
        ranks.train(tree)
        manager.wait()
        manager.save(2, {"state": ranks.tree(3)})
        return manager.all_steps()


def late(side: Any, ranks: Any, home: Path) -> Any:
    """Save one step after the other while the thread of process 1 begins late; then one that process 0 has alone."""
    from parity.checkpoints.trees.checkpoints import TreeCheckpoints

    real = TreeCheckpoints._run_together

    def slept(*given: Any) -> None:
        time.sleep(0.2)
        real(*given)

    TreeCheckpoints._run_together = slept if RANK == 1 else real  # type: ignore[method-assign]
    try:
        with side.CheckpointManager(home / "late") as manager:
            for step in (1, 2, 3):
                manager.save(step, {"state": ranks.tree(step)})
            if RANK == 0 and side.__name__ == "torch_side":
                manager.save(4, {"state": ranks.plain()})
            manager.wait()
            return [manager.all_steps(), ranks.told()]
    finally:
        TreeCheckpoints._run_together = real  # type: ignore[method-assign]


def gave_up(side: Any, ranks: Any, home: Path) -> Any:
    """Have the thread of process 1 end where nothing is attempted; return what each is told, and save once more."""
    import jax_side.formats.process_group as groups
    import parity.checkpoints.trees.checkpoints as checkpoints

    real, groups.LOOK_SECONDS = checkpoints.write_joint, 1

    def fail(*_: Any) -> None:
        raise MemoryError("no room for a message")

    checkpoints.write_joint = fail if RANK == 1 else real
    try:
        with side.CheckpointManager(home / "gave-up") as manager:
            found = said(lambda: [manager.save(1, {"state": ranks.tree(1)}), manager.wait()])
            checkpoints.write_joint = real
            manager.save(2, {"state": ranks.tree(2)})
            manager.wait()
            return [found, manager.all_steps()]
    finally:
        checkpoints.write_joint = real


def flip_a_bit(saved: Path, copied: Path) -> None:
    """Copy a checkpoint, and change a bit in a leaf of it."""
    shutil.copytree(saved, copied)
    (place, *_) = next(at for name, at in read_seal(copied).places.items() if "rows" in name)
    file = copied / place.file
    data = bytearray(file.read_bytes())
    data[place.start + place.size // 2] ^= 1
    file.write_bytes(data)


def alone(side: Any, ranks: Any, home: Path) -> Any:
    """In one process: restore what several have saved, and save the same trees."""
    (home / "alone").mkdir()
    return [restore(side, ranks, home), save(side, ranks, home / "alone")]


def restore(side: Any, ranks: Any, home: Path) -> Any:
    """Restore all of them into other trees, and save what was restored."""
    found = side.restore(home / "state", ranks.tree(9))
    side.save(home / f"state-{COUNT}", found.tree)
    with side.CheckpointManager(home / "run") as manager:
        best = manager.restore("best", {"state": ranks.tree(9)})
        latest = manager.restore("latest", {"state": ranks.tree(9), "note": {"step": 0}})
    side.save(home / f"best-{COUNT}", best.tree["state"])
    side.save(home / f"latest-{COUNT}", latest.tree["state"])
    return [best.step, latest.step, latest.metric, latest.tree["note"]]


def said(act: Any) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refused(side: Any, ranks: Any, home: Path) -> Any:
    """Return what each process is told where processes do not hand over the same."""

    def other(change: Any) -> Any:
        tree = ranks.tree(0)
        if RANK == 1:
            change(tree)
        return tree

    odd = RANK == 1
    trees = {
        "a leaf more": lambda tree: tree["plain"].update(more=3),
        "another number": lambda tree: tree["plain"].update(n=5),
        "another container": lambda tree: tree.update(plain=dict(reversed(tree["plain"].items()))),
        "another value": ranks.changed,
        "a leaf of no type": ranks.unheld,
    }
    found = {
        name: said(partial(lambda change: side.save(home / "never", other(change)), trees[name])) for name in trees
    }
    found["another folder"] = said(lambda: side.save(home / f"never{RANK}", ranks.tree(0)))
    with side.CheckpointManager(home / "steps") as manager:
        found["another step"] = said(lambda: manager.save(4 if odd else 3, {"state": ranks.tree(0)}))
        found["another metric"] = said(lambda: manager.save(3, {"state": ranks.tree(0)}, metric=1.0 if odd else 2.0))
    found["another checkpoint"] = said(lambda: side.restore(home / ("run" if odd else "state"), ranks.tree(9)))
    found["exists"] = said(lambda: side.save(home / "state", ranks.tree(0)))
    found["a store"] = said(lambda: side.save("s3://bucket/state", ranks.tree(0)))
    return found


def full(side: Any, ranks: Any, home: Path) -> Any:
    """Return what each is told where the disk of process 1 is full; once, and then it is saved."""
    module = importlib.import_module(f"{side.__name__}.formats.tree_shards")
    name = "write_at" if side.__name__ == "torch_side" else "_end"
    real = getattr(module, name)

    def fail(*given: Any) -> None:
        real(*given)  # nothing writes any more when the failure is told
        raise OSError(28, "No space left on device", "the file")

    ranks.fault(fail if RANK == 1 else real)
    with side.CheckpointManager(home / "full-run") as manager:
        found = [
            said(lambda: side.save(home / "full", ranks.tree(0))),
            said(lambda: [manager.save(1, {"state": ranks.tree(0)}), manager.wait()]),
        ]
        left = sorted(str(path.relative_to(home)) for path in home.glob("full*/**/*") if path.name != "lock")
        ranks.fault(real)
        side.save(home / "full", ranks.tree(0))
        manager.save(2, {"state": ranks.tree(0)})
    return [*found, left]


def killed(side: Any, ranks: Any, home: Path) -> Any:
    """Have process 1, or all, die in the middle of a save."""

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if RANK == 1 or (home / "all").exists():
        ranks.fault(die)
    return said(lambda: side.save(home / "killed", ranks.tree(0)))


def misread(side: Any, ranks: Any, home: Path) -> Any:
    """Have process 1 read another part than its own."""
    if RANK == 1:
        ranks.misread()
    return said(lambda: side.restore(home / "state", ranks.tree(9)))


def damaged(side: Any, ranks: Any, home: Path) -> Any:
    """Restore a checkpoint of which a bit was flipped."""
    return said(lambda: side.restore(home / "damaged", ranks.tree(9)))


def alike(side: Any, ranks: Any, home: Path) -> Any:
    """Save and restore replicas, as DDP has them, by all processes and by one."""
    side.save(home / "alike", ranks.alike(0), together=True)
    with side.CheckpointManager(home / "alike-run", together=True) as manager:
        assert manager.save(3, {"state": ranks.alike(1)})
        found = manager.restore("latest", {"state": ranks.alike(9)})
    side.save(home / "alike-again", found.tree["state"], together=True)
    alone = ranks.alike(0)
    if RANK == 0:
        side.save(home / "alike-alone", alone)
    split = said(lambda: side.save(home / "never", ranks.tree(0), together=False))
    apart = said(lambda: side.save(home / "never", ranks.alike(RANK), together=True))
    return [found.step, split, apart]


ALL = (save, beside, late, gave_up, restore, alone, refused, full, killed, misread, damaged, alike)
CASES = {one.__name__: one for one in ALL}


def main() -> None:
    side, home = importlib.import_module(f"{sys.argv[1]}_side"), Path(sys.argv[2])
    ranks: Any = TorchRanks() if sys.argv[1] == "torch" else JaxRanks()
    for case in sys.argv[3:]:
        told = CASES[case](side, ranks, home)
        (home / f"{case}.{RANK}.json").write_text(json.dumps(told))
    ranks.stop()


if __name__ == "__main__":
    main()
