"""A trainer with DistributedDataParallel, in several forms, and what one rank of it may lose or do otherwise.

Each form is clean without a fault. `has` names parts that it has beside: `ema`, `norm` (statistics of each rank),
`accumulation`, `local` (local SGD: averages every third step), `zero` (ZeroRedundancyOptimizer), `plateau`.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import TensorDataset
from torch.utils.data.distributed import DistributedSampler

MICRO = 4


def train(folder: Path, steps: int, fault: str = "", has: str = "") -> Iterator[int]:
    dist.init_process_group("gloo")
    rank, count = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    x = torch.randn(36, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    sampler = DistributedSampler(data, seed=3 + (rank if fault == "seed of each rank" else 0))
    middle = nn.BatchNorm1d(8) if "norm" in has else nn.Tanh()
    net = nn.Sequential(nn.Linear(4, 8), middle, nn.Dropout(0.2), nn.Linear(8, 1))
    model = DistributedDataParallel(net)
    if "zero" in has:
        from torch.distributed.optim import ZeroRedundancyOptimizer  # warns where it is imported

        optimizer: Any = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    plateau = "plateau" in has
    schedule: Any = ReduceLROnPlateau(optimizer, factor=0.9, patience=0) if plateau else StepLR(optimizer, 3, 0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    ema = {name: value.detach().clone() for name, value in net.named_parameters()} if "ema" in has else {}
    torch.manual_seed(100 + rank)
    step, common = 0, folder / "common.pt"
    resumed = common.exists()
    if resumed:
        step = restore(folder, fault, net, optimizer, schedule, scaler, ema)
        if fault == "gradients averaged twice":
            model.register_comm_hook(None, averaged_twice)
    forgets = resumed and (fault == "no set_epoch" or (fault == "epoch of rank 1" and rank == 1))
    while step < steps:
        epoch, batch = divmod(step, 18 // MICRO)
        if not forgets:
            sampler.set_epoch(epoch)
        rows = list(sampler)
        if resumed and fault == "position of rank 1" and rank == 1:
            batch = (batch + 1) % (18 // MICRO)
        now = rows[batch * MICRO : (batch + 1) * MICRO]
        backward(model, scaler, x[now], x[now].sum(1, keepdim=True), has)
        scaler.unscale_(optimizer)
        if not (fault == "rank 1 skips a step" and (rank, step) == (1, 3)):
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if "local" in has and step % 3 == 2:
            for value in net.parameters():
                dist.all_reduce(value.data)
                value.data /= count
        for name, value in net.named_parameters():
            if ema:
                ema[name].lerp_(value.detach(), 0.1)
        if plateau:  # a validation that each rank has a part of
            metric = torch.tensor(float(step * (1 - 2 * rank)))
            if fault != "plateau of each rank":
                dist.all_reduce(metric)
            schedule.step(metric.item())
        else:
            schedule.step()
        step += 1
        if step % 2 == 0:
            save(folder, step, net, optimizer, schedule, scaler, ema, local="local" in has)
        yield step
    dist.destroy_process_group()


def backward(model: nn.Module, scaler: Any, x: torch.Tensor, y: torch.Tensor, has: str) -> float:
    parts = list(zip(x.split(2), y.split(2), strict=True)) if "accumulation" in has else [(x, y)]
    total = 0.0
    for at, (a, b) in enumerate(parts):
        alone = "local" in has or at + 1 < len(parts)
        with model.no_sync() if alone else contextlib.nullcontext():  # type: ignore[operator]
            loss = (model(a) - b).square().mean() / len(parts)
            scaler.scale(loss).backward()
        total += loss.item()
    return total


def averaged_twice(_: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    sent = bucket.buffer() / dist.get_world_size() ** 2
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    dist.all_reduce(sent)
    done.set_result(sent)
    return done


def save(folder: Path, step: int, net: Any, optimizer: Any, schedule: Any, scaler: Any, ema: Any, *,
         local: bool) -> None:  # fmt: skip
    rank = dist.get_rank()
    if hasattr(optimizer, "consolidate_state_dict"):
        optimizer.consolidate_state_dict(0)
    mine = {"rng": torch.get_rng_state(), "net": net.state_dict() if local else None,
            "momentum": optimizer.state_dict() if local else None,
            "buffers": dict(net.named_buffers())}  # fmt: skip
    own = folder / f"rank-{rank}.pt"
    if own.exists():
        (folder / f"before-{rank}.pt").write_bytes(own.read_bytes())
    torch.save(mine, folder / f"next-{rank}.pt")
    os.replace(folder / f"next-{rank}.pt", own)
    if rank == 0:
        state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(),
                 "scaler": scaler.state_dict(), "ema": ema, "step": step}  # fmt: skip
        torch.save(state, folder / "next.pt")
        os.replace(folder / "next.pt", folder / "common.pt")
    dist.barrier()


def restore(folder: Path, fault: str, net: Any, optimizer: Any, schedule: Any, scaler: Any, ema: Any) -> int:
    rank, count = dist.get_rank(), dist.get_world_size()
    state = torch.load(folder / "common.pt")
    own = torch.load(folder / f"rank-{rank}.pt")

    def lost(what: str) -> bool:
        return fault == what and rank == 1

    if not lost("rank 0 alone restores"):
        net.load_state_dict(own["net"] or state["net"])
        net.load_state_dict({**net.state_dict(), **own["buffers"]})
    optimizer.load_state_dict(own["momentum"] or state["optimizer"])
    if lost("moments of rank 1"):
        optimizer.state.clear()
    if not lost("schedule of rank 1"):
        schedule.load_state_dict(state["schedule"])
    if not lost("scale of rank 1"):
        scaler.load_state_dict(state["scaler"])
    ema.update(state["ema"])
    stream = own["rng"]
    match fault:
        case "streams equal":
            stream = torch.load(folder / "rank-0.pt")["rng"]
        case "streams swapped":
            stream = torch.load(folder / f"rank-{(rank + 1) % count}.pt")["rng"]
        case "stale stream of rank 1" if rank == 1:
            stream = torch.load(folder / "before-1.pt")["rng"]
    if fault != "streams begin anew":
        torch.set_rng_state(stream)
    if fault == "rank 0 draws at the restore" and rank == 0:
        torch.rand(1)
    dist.barrier()
    return int(state["step"])
