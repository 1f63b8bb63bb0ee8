"""The loops a person would write for several PyTorch processes: DistributedDataParallel, or FSDP2 block by block."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmarks.bare_torch import BareLoop, bare_optimizer
from parity.spec import RunSpec

__all__ = ["BareRanks"]


class BareRanks(BareLoop):
    """Each process takes its samples of every batch; gradients are averaged by the library, the loss once at the end.

    A round trains on the same batches as the one before, and goes on with its weights.
    """

    def __init__(self, spec: RunSpec, steps: int, start: dict[str, Tensor]) -> None:
        """Prepare a loop on the processes that are connected; `mesh.fsdp` of the spec shards, else all replicate.

        Args:
            spec: The run, float32, without dropout and accumulation.
            steps: Steps of one round.
            start: The twin's `state_dict` at step 0.
        """
        super().__init__(spec, steps, start, None)
        self.model.load_state_dict(start)
        self.whole = self.model
        if spec.mesh.fsdp > 1:
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            for block in [child for m in self.model.modules() if isinstance(m, nn.ModuleList) for child in m]:
                fully_shard(block, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        else:
            self.model = DistributedDataParallel(self.model)
        self.params = list(self.model.parameters())
        self.optimizer = bare_optimizer(spec, self.params)

    def run(self) -> NDArray[np.float32]:
        """Train all steps; returns their losses, over all processes."""
        self.model.train()
        rows: list[tuple[Tensor, Tensor]] = []
        of, own = dist.get_world_size(), dist.get_rank()
        for inputs, targets, rates in self.batches.chunks():
            here = slice(own * inputs.shape[2] // of, (own + 1) * inputs.shape[2] // of)
            x, y = torch.from_numpy(inputs[:, :, here]), torch.from_numpy(targets[:, :, here]).long()
            x = x if x.is_floating_point() else x.long()
            rows += [self._step(x[i], y[i], lr) for i, lr in enumerate(rates.tolist())]
        losses = torch.stack([loss for loss, _ in rows]) / of
        dist.all_reduce(losses)
        return losses.numpy()
