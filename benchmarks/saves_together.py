"""Arms on several processes that save one state: the suite's `save` and manager, plain DCP, plain Orbax, and Meta's
torch_checkpointing where it is installed (extra `peers`).

All are durable: DCP and Orbax have every file synchronized themselves (`FileSystemWriter.sync_files`, TensorStore's
`file_io_sync`), though not the names of the files; torch_checkpointing 0.1 synchronizes nothing, so that each process
does it for its file here. Each library saves by the call that waits, and by the one that returns while a thread or a
process writes. The latter is of a manager that lives through all rounds (DCP: a stager; Orbax: a checkpointer) and
may reuse what the save before left; the rest of it is waited for between rounds, or in an arm of its own, `kept`.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paired import Arm
from parity.policy import Rules

__all__ = ["SIDES", "arms", "peers"]

SIDES = {"torch": "DCP", "jax": "Orbax"}
"""Side to the name of its peer."""
CHECKPOINTING = "torch_checkpointing"
LASTING = ("parity",)
"""Arms whose manager saves step after step to one directory; the others are given a new one for each save."""
WAIT = Callable[[], Any]


def peers(side: str) -> dict[str, str]:
    """Return the arms to compare with, by the names of their libraries."""
    further = {CHECKPOINTING: CHECKPOINTING} if side == "torch" and importlib.util.find_spec(CHECKPOINTING) else {}
    return {"peer": SIDES[side], **further}


def arms(side: str, home: str, width: int) -> list[Arm]:
    """Return the arms `parity` and those of `peers`, durable when they return; `*-begun`, until the call of the
    manager, or of the asynchronous checkpointer, returns; and `*-kept`, until what these began is durable.

    Args:
        side: The framework.
        home: A directory that all processes see.
        width: Rows and columns of the matrices of the state, of which there are six.
    """
    saves, begins, meet = (_torch if side == "torch" else _jax)(width)
    made: list[Path] = []
    lasting = {name: Path(home) / f"{name}-lasting" for name in LASTING}

    def place(name: str, kind: str) -> Path:
        made.append(lasting[name] if kind and name in lasting else Path(home) / f"{name}-{len(made)}")
        return made[-1]

    waiting: list[WAIT] = []

    def settle() -> None:
        while waiting:
            waiting.pop()()
        meet()
        for path in made[-1:] if int(os.environ["RANK"]) == 0 else ():
            held = sum(file.stat().st_size for file in path.rglob("*"))
            assert held > 5 * 4 * width * width, (path, held)  # Orbax compresses random numbers by a tenth
            if path not in lasting.values():
                shutil.rmtree(path)
        meet()

    def arm(name: str, kind: str) -> Arm:
        def run() -> None:
            path = place(name, kind)
            if not kind:
                saves[name](path)
                return
            wait = begins[name](path)
            wait() if kind == "-kept" else waiting.append(wait)

        return Arm(name=f"{name}{kind}", run=run, reset=settle, bytes=6 * 4 * width * width)

    return [arm(name, kind) for kind in ("", "-begun", "-kept") for name in saves]


def _managed(manager: Callable[..., Any], items: dict[str, Any]) -> Callable[[Path], WAIT]:
    """Return what begins the next save of one manager, which lives through all rounds and keeps the newest."""
    made: list[Any] = []
    steps = itertools.count(1)

    def begin(path: Path) -> WAIT:
        if not made:
            made.append(manager(path, keep=Rules(keep_latest=1)))
        made[0].save(next(steps), items)
        return made[0].wait

    return begin


Saves = dict[str, Callable[[Path], Any]]
Begins = dict[str, Callable[[Path], WAIT]]


def _torch(width: int) -> tuple[Saves, Begins, WAIT]:
    """Return what saves an FSDP2 model with AdamW, what begins that, and a barrier."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import torch_side

    dist.init_process_group("cpu:gloo")
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(2)))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.1)
    optimizer.step()
    optimizer.zero_grad()

    def tree() -> dict[str, Any]:
        weights, slots = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": slots}

    stager = DefaultStager(StagingOptions(*(torch.cuda.is_available(),) * 4))

    def peer(path: Path) -> WAIT:
        saving: Any = dcp.async_save(tree(), checkpoint_id=str(path), async_stager=stager)
        return lambda: saving.result()

    saves: Saves = {
        "parity": lambda path: torch_side.save(path, {"model": model, "optimizer": optimizer}),
        "peer": lambda path: dcp.save(tree(), checkpoint_id=str(path)),
    }
    parity = _managed(torch_side.CheckpointManager, {"model": model, "optimizer": optimizer})
    begins: Begins = {"parity": parity, "peer": peer}
    if CHECKPOINTING in peers("torch"):
        saves[CHECKPOINTING], begins[CHECKPOINTING] = _checkpointing(tree)
    return saves, begins, dist.barrier


def _checkpointing(tree: Callable[[], dict[str, Any]]) -> tuple[Callable[[Path], Any], Callable[[Path], WAIT]]:
    """Return what saves by torch_checkpointing, and what begins that in its process that writes.

    On a CPU it can gather no metadata (0.1.1 does that on CUDA alone), so each process writes its own file, which the
    same number of processes can read; and its direct writes fail on ext4 for a file whose length is no whole number
    of blocks, so they are off.
    """
    import torch.distributed as dist

    library: Any = importlib.import_module(CHECKPOINTING)
    config: Any = importlib.import_module(f"{CHECKPOINTING}.config")
    storage: Any = importlib.import_module(f"{CHECKPOINTING}.storage.filesystem")

    def manager(how: Any) -> Any:
        files = storage.LocalFileSystemStorageConfig(use_direct_io=False)
        return library.CheckpointManager(library.CheckpointManager.Config(save=how, storage_config=files))

    now, later = manager(config.SyncCheckpointSaverConfig()), manager(config.AsyncCheckpointSaverConfig())

    def durable(path: Path) -> None:
        for file in path.glob(f"*_{dist.get_rank()}.pt"):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        dist.barrier()

    def settled(saving: Any, path: Path) -> None:
        saving.result()
        durable(path)

    def save(path: Path) -> None:
        now.save(str(path), tree())
        durable(path)

    def begin(path: Path) -> WAIT:
        saving = later.save(str(path), tree())
        with later.lock():  # returned before: the state is still read, and no step may change it
            return lambda: settled(saving, path)

    return save, begin


def _jax(width: int) -> tuple[Saves, Begins, WAIT]:
    """Return what saves arrays on a mesh of all processes, what begins that, and a barrier."""
    import jax
    import orbax.checkpoint as ocp
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    import jax_side

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    jax.distributed.initialize(f"localhost:{os.environ['MASTER_PORT']}", count, rank)
    over = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
    value = np.random.default_rng(rank).normal(size=(width // count, width)).astype(np.float32)
    state = {str(n): jax.make_array_from_callback((width, width), over, lambda _, n=n: value + n) for n in range(6)}
    checkpointer = ocp.StandardCheckpointer()

    def peer(path: Path) -> WAIT:
        checkpointer.save(path, state)
        return checkpointer.wait_until_finished

    saves: Saves = {"parity": lambda path: jax_side.save(path, state), "peer": lambda path: peer(path)()}
    parity = _managed(jax_side.CheckpointManager, {"state": state})
    return saves, {"parity": parity, "peer": peer}, lambda: multihost_utils.sync_global_devices("round")
