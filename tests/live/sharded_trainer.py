"""A loop with FSDP2 in a mesh of one process: parameters and moments are DTensors, saved by PyTorch's functions."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor


def train(folder: Path, fault: str = "") -> Iterator[int]:
    """Train a sharded network; `fault` names what is lost at a resume."""
    if not distributed.is_initialized():
        met = Path(tempfile.mkdtemp()) / "met"
        distributed.init_process_group("gloo", init_method=f"file://{met}", rank=0, world_size=1)
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randint(0, 3, (64,))
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start = 0
    if saved := sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()):
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": 0, "rng": torch.get_rng_state()}
        dcp.load(state, checkpoint_id=folder / str(saved[-1]))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        start = state["step"]
        torch.set_rng_state(state["rng"])
        if fault == "optimizer":
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        if fault == "plain":  # moments that are tensors of no mesh
            for slots in optimizer.state.values():
                slots |= {name: value.to_local() for name, value in slots.items() if isinstance(value, DTensor)}
    for step in range(start, 20):
        yield step
        at = torch.randint(0, 64, (8,))
        loss = nn.functional.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 5 == 0:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": step + 1, "rng": torch.get_rng_state()}
            dcp.save(state, checkpoint_id=folder / str(step + 1))
