"""Trainers of several processes in PyTorch: replicated by DistributedDataParallel, sharded by FSDP2."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def replicated(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net, start = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1)), 0
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    common, own = folder / "common.pt", folder / f"rank-{rank}.pt"
    torch.manual_seed(100 + rank)
    if common.exists():
        state = torch.load(common)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
        if fault == "moments of rank 1" and rank == 1:
            optimizer.state.clear()
        if fault != "generators":
            torch.set_rng_state(torch.load(own))
        dist.barrier()
    for step in range(start, steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * count + rank))
        optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        if (step + 1) % 2 == 0:
            if rank == 0:
                state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
                torch.save(state, folder / "next.pt")
                os.replace(folder / "next.pt", common)
            torch.save(torch.get_rng_state(), own)
            dist.barrier()
        yield step + 1
    dist.destroy_process_group()


def sharded(folder: Path, steps: int, fault: str = "") -> Iterator[int]:
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net, start, last = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)), 0, folder / "last"
    fully_shard(net, mesh=init_device_mesh("cpu", (count,)))
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    if last.exists():
        start = int(last.read_text())
        model_state, optimizer_state = get_state_dict(net, optimizer)
        state = {"model": model_state, "optimizer": optimizer_state}
        dcp.load(state, checkpoint_id=str(folder / str(start)))
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        if fault == "moments of rank 1" and rank == 1:
            for slots in optimizer.state.values():
                slots["exp_avg"].zero_()
    for step in range(start, steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * count + rank))
        optimizer.zero_grad()
        (net(x) - x.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        if (step + 1) % 2 == 0:
            model_state, optimizer_state = get_state_dict(net, optimizer)
            dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=str(folder / str(step + 1)))
            if rank == 0:
                (folder / "next").write_text(str(step + 1))
                os.replace(folder / "next", last)
            dist.barrier()
        yield step + 1
    dist.destroy_process_group()
