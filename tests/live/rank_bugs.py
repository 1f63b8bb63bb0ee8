"""Planted bugs of several ranks, and clean trainers: on DistributedDataParallel, on FSDP2, on JAX.

A bug acts in the resumed run alone, or in every run (`always`): then ranks hold different values of what they have to
hold alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.live import rank_trainers, ranks_ddp, ranks_fsdp, ranks_jax

__all__ = ["BUGS", "CLEAN", "RankBug"]


@dataclass(frozen=True, kw_only=True)
class RankBug:
    """One bug in one trainer; a clean trainer without the bug's name."""

    train: Callable[..., Any]
    fault: str = ""
    named: tuple[str, ...] = ()
    """Components an expert would name; the first suspect must begin with one of them."""
    rank: str = r"rank\d:"
    """Pattern of the rank that the first suspect must be of."""
    options: Mapping[str, Any] = field(default_factory=dict)
    processes: int = 2
    always: bool = False

    @property
    def name(self) -> str:
        """What tests call it."""
        with_options = " ".join(f"{key}={value}" for key, value in self.options.items())
        beside = "" if self.processes == 2 else f"{self.processes} processes"
        words = (self.train.__module__.rpartition("_")[2], with_options, beside, self.fault)
        return ", ".join(word for word in words if word)


def _bugs(train: Callable[..., Any], rows: Mapping[str, tuple[str | tuple[str, ...], str]],
          options: Mapping[str, Any] | None = None) -> list[RankBug]:  # fmt: skip
    return [
        RankBug(train=train, fault=fault, rank=rank, options=options or {},
                named=(named,) if isinstance(named, str) else named)
        for fault, (named, rank) in rows.items()
    ]  # fmt: skip


ANY, ONE = r"rank\d:", "rank1:"
TRAINED = ("gradients", "optimizer.momentum", "optimizer.first_moment")
"""What shows that a step was made otherwise: its gradients, or what was made of them first."""

BUGS = (
    *_bugs(ranks_ddp.train, {
        "moments of rank 1": ("optimizer.momentum", ONE),
        "streams equal": ("rng", ONE),
        "streams swapped": ("rng", ANY),
        "streams begin anew": ("rng", ANY),
        "stale stream of rank 1": ("rng", ONE),
        "rank 0 draws at the restore": ("rng", "rank0:"),
        "no set_epoch": ("data", ANY),
        "epoch of rank 1": ("data", ONE),
        "position of rank 1": ("data", ONE),
        "rank 0 alone restores": ("model.params", ONE),
        "gradients averaged twice": (TRAINED, ANY),
        "scale of rank 1": ("scaler", ONE),
        "schedule of rank 1": ("schedule", ONE),
    }),
    RankBug(train=ranks_ddp.train, fault="rank 1 skips a step", named=("model.params", "optimizer"), rank=ONE,
            always=True),
    RankBug(train=ranks_ddp.train, fault="seed of each rank", named=("data",), rank=ONE, always=True),
    RankBug(train=ranks_ddp.train, fault="plateau of each rank", named=("schedule",), rank=ONE, always=True,
            options={"has": "plateau"}),
    *_bugs(ranks_fsdp.train, {
        "moments of rank 1": ("optimizer.first_moment", ONE),
        "shards in another order": ("optimizer.first_moment", ANY),
        "moments through bfloat16": ("optimizer.first_moment", ANY),
        "steps of rank 1": ("optimizer.step", ONE),
        "plain moments": ("checkpoint.restore", "function"),
        "rank 0 alone restores": (("model.params", "optimizer"), ONE),
        "local norm": (TRAINED, ANY),
    }),
    *_bugs(ranks_fsdp.train, {"last row dropped": ("optimizer.first_moment", ONE)}, {"wide": 7}),
    *_bugs(ranks_fsdp.train, {
        "another rank's shard": ("optimizer.first_moment", ANY),
        "stale shard of rank 1": ("optimizer", ONE),
        "moments faked": ("optimizer.first_moment", ANY),
    }, {"own": True}),
    *(RankBug(train=ranks_fsdp.train, fault=fault, named=("scaler.scale",), rank=r"rank\d:", always=True,
              processes=processes, options=options)
      for fault, processes, options in (
          ("inf in a shard", 2, {}),
          ("inf in a shard", 4, {"mesh": "fsdp=2 model=2"}),
          ("inf in a shard of each data", 4, {"mesh": "data=2 fsdp=2"}),
      )),
    *_bugs(ranks_jax.train, {
        "momentum of rank 1": ("optimizer.momentum", ONE),
        "another rank's shard": ("optimizer.momentum", ANY),
        "shards in another order": ("optimizer.momentum", ANY),
        "stale shard of rank 1": ("optimizer.momentum", ONE),
        "last element dropped": ("optimizer.momentum", ONE),
        "replicated by the file": ("optimizer.momentum", ANY),
        "keys equal": ("rng", ONE),
        "keys swapped": ("rng", ANY),
        "rank 0 draws at the restore": ("rng", "rank0:"),
        "bias of rank 1": (("bias", "model.params"), ONE),
        "position of rank 1": (("data", "x", "noise"), ONE),
    }),
    RankBug(train=ranks_jax.train, fault="bias by its own part", named=("bias", "model.params"), rank=ONE,
            always=True),
)  # fmt: skip

CLEAN = (
    *(RankBug(train=ranks_ddp.train, options={"has": has} if has else {})
      for has in ("", "ema", "norm", "accumulation", "local", "zero", "plateau")),
    *(RankBug(train=ranks_fsdp.train, options=options) for options in ({}, {"own": True}, {"wide": 7})),
    *(RankBug(train=ranks_fsdp.train, options={"mesh": mesh}, processes=4)
      for mesh in ("fsdp=2 model=2", "data=2 fsdp=2")),
    RankBug(train=ranks_jax.train),
    RankBug(train=ranks_jax.train, options={"axes": 2}, processes=4),
    RankBug(train=rank_trainers.train),
)  # fmt: skip
