"""A trainer with FSDP2 on a mesh of one, two or three axes, and what one rank of it may lose or do otherwise.

`mesh` names the axes and their sizes: `fsdp=2`, `data=2 fsdp=2` (each shard twice), `fsdp=2 model=2` (with tensor
parallel layers). Checkpoints are those of torch.distributed.checkpoint, or of each rank its own (`own`).
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
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def local(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


def train(
    folder: Path, steps: int, fault: str = "", mesh: str = "", own: bool = False, wide: int = 6
) -> Iterator[int]:
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    sizes = {name: int(size) for name, _, size in (one.partition("=") for one in (mesh or f"fsdp={count}").split())}
    axes = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, wide), nn.Tanh(), nn.Linear(wide, 1))
    if "model" in sizes:
        parallelize_module(net, axes["model"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(net, mesh=axes[tuple(name for name in sizes if name != "model")])
    optimizer = torch.optim.AdamW(net.parameters(), 1e-2)
    scale, last, start = torch.amp.GradScaler("cpu", init_scale=8.0), folder / "last", 0
    scale.scale(torch.zeros(1))
    if last.exists():
        start = int(last.read_text())
        before = start - 2
        restore(folder, start, fault, net, optimizer, own, before)
        scale.load_state_dict(torch.load(folder / f"scale-{rank}.pt"))
    bad = {"inf in a shard": 1, "inf in a shard of each data": 2}.get(fault, -1)
    clip = "local" if fault == "local norm" and start else "global"
    at = rank // sizes.get("model", 1)  # ranks along `model` have the same rows
    for step in range(start, steps):
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * count + at))
        optimizer.zero_grad()
        scale.scale((net(x) - x.sum(1, keepdim=True)).square().mean()).backward()
        if (rank, step) == (bad, 3):
            local(net[0].weight.grad).flatten()[:1] = float("inf")
        step_of_shards(net, optimizer, scale, clip, alone=fault.startswith("inf"))
        if (step + 1) % 2 == 0:
            save(folder, step + 1, net, optimizer, own)
            torch.save(scale.state_dict(), folder / f"scale-{rank}.pt")
            dist.barrier()
            if rank == 0:
                (folder / "next").write_text(str(step + 1))
                os.replace(folder / "next", last)
            dist.barrier()
        yield step + 1
    dist.destroy_process_group()


def step_of_shards(net: Any, optimizer: Any, scale: Any, clip: str, *, alone: bool) -> None:
    """Unscale, clip by the norm of all shards, and step unless one overflowed; `alone`: unless this rank did."""
    grads = [local(p.grad) for p in net.parameters()]
    for grad in grads:
        grad /= scale.get_scale()
    total = torch.stack([grad.square().sum() for grad in grads]).sum()
    found = torch.tensor(float(not torch.isfinite(total)))
    if clip == "global":
        dist.all_reduce(total)
    if not alone:
        dist.all_reduce(found, dist.ReduceOp.MAX)
    for grad in grads:
        grad *= torch.clamp(0.5 / (total.sqrt() + 1e-6), max=1.0)
    if found:
        scale.load_state_dict({**scale.state_dict(), "scale": scale.get_scale() / 2})
    else:
        optimizer.step()


def moments(optimizer: Any) -> list[torch.Tensor]:
    return [local(slots["exp_avg"]) for slots in optimizer.state.values()]


def save(folder: Path, step: int, net: Any, optimizer: Any, own: bool) -> None:
    model, state = get_state_dict(net, optimizer)
    if own:
        parts = [[local(p).detach().clone() for p in net.parameters()],
                 [{k: local(v).clone() for k, v in slots.items()} for slots in optimizer.state.values()]]  # fmt: skip
        torch.save(parts, folder / f"shard-{step}-{dist.get_rank()}.pt")
    else:
        dcp.save({"model": model, "optimizer": state}, checkpoint_id=str(folder / str(step)))


def restore(folder: Path, step: int, fault: str, net: Any, optimizer: Any, own: bool, before: int) -> None:
    rank, count = dist.get_rank(), dist.get_world_size()
    if own:
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()  # makes the slots, which are filled below
        optimizer.zero_grad()
        weights, slots = torch.load(folder / f"shard-{step}-{rank}.pt")
        if fault == "another rank's shard":
            slots = torch.load(folder / f"shard-{step}-{(rank + 1) % count}.pt")[1]
        if fault == "stale shard of rank 1" and rank == 1:
            slots = torch.load(folder / f"shard-{before}-1.pt")[1]
        for p, value in zip(net.parameters(), weights, strict=True):
            local(p).detach().copy_(value)
        for p, values in zip(net.parameters(), slots, strict=True):
            for name, value in values.items():
                target = local(optimizer.state[p][name])
                if not (fault == "moments faked" and name != "step") and target.shape == value.shape:
                    target.copy_(value)
    else:
        model, state = get_state_dict(net, optimizer)
        whole = {"model": model, "optimizer": state}
        made = [local(p).detach().clone() for p in net.parameters()]
        dcp.load(whole, checkpoint_id=str(folder / str(step)))
        if fault == "rank 0 alone restores" and rank:
            for p, value in zip(net.parameters(), made, strict=True):
                local(p).detach().copy_(value)
        else:
            set_state_dict(net, optimizer, model_state_dict=whole["model"], optim_state_dict=whole["optimizer"])
    match fault:
        case "moments of rank 1" if rank == 1:
            for one in moments(optimizer):
                one.zero_()
        case "shards in another order":
            for one in moments(optimizer):
                one.copy_(one.flip(0))
        case "last row dropped" if rank == count - 1:
            for one in moments(optimizer):
                one[-1:] = 0.0
        case "moments through bfloat16":
            for one in moments(optimizer):
                one.copy_(one.bfloat16())
        case "steps of rank 1" if rank == 1:
            for one in optimizer.state.values():
                local(one["step"]).zero_()
        case "plain moments":
            for one in optimizer.state.values():
                one |= {name: local(value) for name, value in one.items()}
