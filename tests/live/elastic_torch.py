"""Trainers in PyTorch that another number of processes may resume: DDP, and FSDP2 with a checkpoint of DCP.

The batch is one of the whole run, of which each rank has its part: any number of processes trains alike but for the
order of sums. A fault acts where another number resumes than saved.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from tests.live.ranks_fsdp import moments

BATCH, DATA = 8, 4000


def net(wide: int) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, wide), nn.Tanh(), nn.Linear(wide, 1))


def part(seen: int, rank: int, count: int) -> torch.Tensor:
    """Return the rows of one rank, of a batch that begins after `seen` samples of each rank."""
    each = BATCH // count
    first = seen * count + rank * each
    data = torch.randn(DATA, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return data[first : first + each]


def replicated(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    """Train under DistributedDataParallel; rank 0 saves."""
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    model = net(6).double()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    start, seen, file = 0, 0, folder / "state.pt"
    if file.exists():
        state = torch.load(file)
        before = state["count"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start, seen = state["step"], state["seen"] * before // count
        if before != count:
            if fault == "moments of the last rank" and rank == count - 1:
                optimizer.state.clear()
            if fault == "moments":
                optimizer.state.clear()
            if fault == "samples not rescaled":
                seen = state["seen"]
    for step in range(start, steps):
        x = part(seen, rank, count)
        optimizer.zero_grad()
        (wrapped(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        seen += len(x)
        if (step + 1) % 2 == 0:
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1,
                         "seen": seen, "count": count}  # fmt: skip
                torch.save(state, folder / "next.pt")
                os.replace(folder / "next.pt", file)
            dist.barrier()
        yield step + 1
    dist.destroy_process_group()


def sharded(folder: Path, steps: int, fault: str = "", wide: int = 6) -> Iterator[int]:
    """Train with FSDP2; DCP saves the shards and restores them to any number of processes."""
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (count,))
    model = net(wide).double()
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    start, seen, last = 0, 0, folder / "last"
    if last.exists():
        start, seen, before = (int(word) for word in last.read_text().split())
        states: Any = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
        dcp.load(states, checkpoint_id=str(folder / str(start)))
        set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
        seen = seen * before // count
        if before != count:
            lose(fault, rank, model, optimizer)
    for step in range(start, steps):
        x = part(seen, rank, count)
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        seen += len(x)
        if (step + 1) % 2 == 0:
            weights, slots = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": slots}, checkpoint_id=str(folder / str(step + 1)))
            if rank == 0:
                (folder / "next").write_text(f"{step + 1} {seen} {count}")
                os.replace(folder / "next", last)
            dist.barrier()
        yield step + 1
    dist.destroy_process_group()


def lose(fault: str, rank: int, model: Any, optimizer: Any) -> None:
    match fault:
        case "moments of one rank" if rank == 1:
            for one in moments(optimizer):
                one.zero_()
        case "a shard of the weights" if rank == 1:
            for one in model.parameters():
                one.to_local().detach().zero_()
        case "moments":
            optimizer.state.clear()
