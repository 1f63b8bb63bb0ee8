"""What savers of several processes let through: flipped bits, files that are cut off, pages that were not written.

`python -m benchmarks.peers_damage` saves one state by two processes with each of them, damages copies of it, restores
each copy in one process, and prints the table of docs/scale.md. A restore that raises is refused; one that returns
other values than were saved has let the damage through.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parity.runs import launch

__all__ = ["DAMAGES", "PEERS", "main"]

WIDE = 256
ARRAYS = 4
"""Matrices of float32 in the state, of so many rows and columns: 1 MB in all."""
PROCESSES = 2
SEED = 7


def values() -> dict[str, np.ndarray[Any, Any]]:
    """Return the state that everyone saves: random numbers, which no compression makes smaller."""
    draws = np.random.default_rng(SEED)
    return {f"w{n}": draws.normal(size=(WIDE, WIDE)).astype(np.float32) for n in range(ARRAYS)}


class Torch:
    """A state of DTensors over all processes; restored into plain tensors of one."""

    def __init__(self, suite: bool) -> None:
        self.suite = suite

    def save(self, path: Path) -> None:
        """Save it; all processes call it."""
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        state = {name: distribute_tensor(torch.tensor(value), mesh, [Shard(0)]) for name, value in values().items()}
        if self.suite:
            importlib.import_module("torch_side").save(path, state)
        else:
            dcp.save(state, checkpoint_id=str(path))
        dist.destroy_process_group()

    def restore(self, path: Path) -> dict[str, np.ndarray[Any, Any]]:
        """Return what one process restores."""
        import torch
        import torch.distributed.checkpoint as dcp

        state = {name: torch.zeros(WIDE, WIDE) for name in values()}
        if self.suite:
            state = importlib.import_module("torch_side").restore(path, state).tree
        else:
            dcp.load(state, checkpoint_id=str(path), no_dist=True)
        return {name: value.numpy() for name, value in state.items()}


class Jax:
    """A state of arrays on a mesh of all processes; restored into arrays of one."""

    def __init__(self, suite: bool) -> None:
        self.suite = suite

    def save(self, path: Path) -> None:
        """Save it; all processes call it."""
        import jax
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        count, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
        jax.distributed.initialize(
            f"localhost:{os.environ['MASTER_PORT']}", count, rank, heartbeat_timeout_seconds=10
        )
        over = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec("x"))
        state = {name: jax.make_array_from_callback(value.shape, over, lambda index, value=value: value[index])
                 for name, value in values().items()}  # fmt: skip
        if self.suite:
            importlib.import_module("jax_side").save(path, state)
        else:
            import orbax.checkpoint as ocp

            with ocp.StandardCheckpointer() as saver:
                saver.save(path, state)

    def restore(self, path: Path) -> dict[str, np.ndarray[Any, Any]]:
        """Return what one process restores."""
        import jax.numpy as jnp

        state = {name: jnp.zeros((WIDE, WIDE), jnp.float32) for name in values()}
        if self.suite:
            state = importlib.import_module("jax_side").restore(path, state).tree
        else:
            import orbax.checkpoint as ocp

            with ocp.StandardCheckpointer() as saver:
                state = saver.restore(path, state)
        return {name: np.asarray(value) for name, value in state.items()}


class Checkpointing:
    """Meta's torch_checkpointing: on a CPU it gathers no metadata (0.1.1), so each process saves a named part."""

    def manager(self) -> Any:
        """Return its manager that waits; its direct writes fail on ext4 for files of any length."""
        library: Any = importlib.import_module("torch_checkpointing")
        layouts: Any = importlib.import_module("torch_checkpointing.checkpoint_layout")
        storage: Any = importlib.import_module("torch_checkpointing.storage.filesystem")
        config: Any = importlib.import_module("torch_checkpointing.config")
        kind = layouts.TorchSerialization()
        parts = {f"part{rank}": layouts.LayoutInfo(f"part{rank}.pt", kind) for rank in range(PROCESSES)}
        return library.CheckpointManager(
            library.CheckpointManager.Config(
                items={name: library.ItemSpec(layout=layout, required=False) for name, layout in parts.items()},
                save=config.SyncCheckpointSaverConfig(),
                storage_config=storage.LocalFileSystemStorageConfig(use_direct_io=False),
            )
        )

    def save(self, path: Path) -> None:
        """Save it; all processes call it."""
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        rank = dist.get_rank()
        own = {name: torch.tensor(np.split(value, PROCESSES)[rank]) for name, value in values().items()}
        self.manager().save(str(path), {f"part{rank}": own})
        dist.destroy_process_group()

    def restore(self, path: Path) -> dict[str, np.ndarray[Any, Any]]:
        """Return what one process restores."""
        import torch

        part = WIDE // PROCESSES
        into = {f"part{n}": {name: torch.zeros(part, WIDE) for name in values()} for n in range(PROCESSES)}
        found = self.manager().load(str(path), into, strict=True)
        return {name: np.concatenate([found[one][name].numpy() for one in into]) for name in values()}


Peer = Torch | Jax | Checkpointing

PEERS: dict[str, Peer] = {
    "torch_side.save": Torch(True),
    "DCP": Torch(False),
    "torch_checkpointing": Checkpointing(),
    "jax_side.save": Jax(True),
    "Orbax": Jax(False),
}


def _files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.stat().st_size)


def flip(path: Path, dice: random.Random) -> None:
    """Flip a random bit of a random byte of all."""
    files = _files(path)
    file = dice.choices(files, [one.stat().st_size for one in files])[0]
    data = bytearray(file.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)


def cut(path: Path, dice: random.Random) -> None:
    """Leave a random beginning of a random file."""
    file = dice.choice(_files(path))
    os.truncate(file, dice.randrange(file.stat().st_size))


def torn(path: Path, dice: random.Random) -> None:
    """Put zeros into a page of a file, as where a write of it never reached the disk."""
    files = _files(path)
    file = dice.choices(files, [one.stat().st_size for one in files])[0]
    data = bytearray(file.read_bytes())
    at = dice.randrange(0, len(data), 4096)
    data[at : at + 4096] = bytes(len(data[at : at + 4096]))
    file.write_bytes(data)


DAMAGES: dict[str, Callable[[Path, random.Random], None]] = {
    "a flipped bit": flip,
    "a file cut off": cut,
    "a page of zeros": torn,
}


def outcome(peer: Peer, path: Path) -> str:
    """Return `refused`, `equal` or `let through`."""
    try:
        found = peer.restore(path)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # DCP's own is none of Exception; whatever is raised, no other values were returned
        return "refused"
    return "equal" if all((found[name] == value).all() for name, value in values().items()) else "let through"


def lines(names: Sequence[str], times: int, home: Path) -> Iterator[str]:
    """Yield the table."""
    yield "| saver | damage | copies | refused | restored equal | other values, without a word |"
    yield "|---|---|--:|--:|--:|--:|"
    for name in names:
        whole = home / name / "whole"
        whole.parent.mkdir()
        if launch([sys.executable, "-m", "benchmarks.peers_damage", "--save", name, str(whole)], PROCESSES) != 0:
            raise RuntimeError(f"{name} did not save")
        assert outcome(PEERS[name], whole) == "equal", f"{name} does not restore what it saved"
        for damage, act in DAMAGES.items():
            dice, found = random.Random(SEED), Counter[str]()
            for at in range(times):
                copy = home / name / f"{at}"
                shutil.copytree(whole, copy)
                act(copy, dice)
                found[outcome(PEERS[name], copy)] += 1
                shutil.rmtree(copy)
            cells = [found[one] for one in ("refused", "equal", "let through")]
            yield f"| {name} | {damage} | {times} | {' | '.join(map(str, cells))} |"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(prog="benchmarks.peers_damage", description=__doc__)
    here = [name for name in PEERS if name != "torch_checkpointing" or importlib.util.find_spec(name)]
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=here)
    parser.add_argument("--times", type=int, default=100, help="damaged copies of each kind")
    parser.add_argument("--save", nargs=2, metavar=("PEER", "DIR"), help="save as one of several processes")
    given = parser.parse_args(words)
    if given.save:
        PEERS[given.save[0]].save(Path(given.save[1]))
        return 0
    with tempfile.TemporaryDirectory() as home:
        for line in lines(given.peers, given.times, Path(home)):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
