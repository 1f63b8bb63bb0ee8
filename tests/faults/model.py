"""Faults that lose parameters, buffers, or how the forward pass runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tests.faults.fault import CNN, GPT, Fault
from tests.faults.plants import Leaves, after_restore, compute_as, leaves_under, reset, rewritten

__all__ = ["FAULTS"]


def _prefixed(prefix: str) -> Any:
    """Return a plant whose loader sees keys with a prefix, and tolerates that it knows none of them."""

    def plant(trainer: Any) -> None:
        load = trainer.model.load_state_dict
        trainer.model.load_state_dict = lambda saved, strict: load(
            {prefix + name: value for name, value in saved.items()}, strict=False
        )

    return plant


def _head_from_embedding(leaves: Leaves) -> Leaves:
    return {"model.params.head.weight": leaves["model.params.tokens.weight"]}


def _tie(trainer: Any) -> None:
    trainer.model.head.weight.data = trainer.model.tokens.weight.data


def _stay_in_eval(trainer: Any) -> None:
    for norm in trainer.model.norms:
        norm.forward = lambda x, *, train, forward=norm.forward: forward(x, train=False)


def _no_dropout(trainer: Any) -> None:
    if trainer.side == "torch":
        for module in trainer.model.dropouts:
            module.rate = 0.0
    else:
        compute_as(trainer, replace(trainer.spec, dropout=replace(trainer.spec.dropout, rate=0.0)))


def _attend_to_the_future(trainer: Any) -> None:
    for block in trainer.model.blocks:
        block.causal.fill_(True)


def _uncounted(leaves: Leaves) -> Leaves:
    return {leaf: np.zeros_like(v) for leaf, v in leaves.items() if leaf.endswith("num_batches_tracked")}


def _rounded_to_bfloat16(leaves: Leaves) -> Leaves:
    """Round parameters to bfloat16, by the bits: half to even."""
    out = {}
    for leaf, value in leaves_under(leaves, ["model.params."]).items():
        bits = np.ascontiguousarray(value).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) & np.uint64(0xFFFF0000)
        out[leaf] = rounded.astype(np.uint32).view(np.float32)
    return out


PARAMS, BUFFERS, FORWARD = "model.params", "model.buffers", ("rng", "model.params")

FAULTS = (
    Fault(
        id="tied_head_rebuilt",
        group="model",
        plant=rewritten(_head_from_embedding),
        suspects=(PARAMS,),
        sides=("torch",),
        small=GPT,
    ),
    Fault(
        id="untied_head_force_tied",
        group="model",
        plant=after_restore(_tie),
        suspects=(PARAMS,),
        sides=("torch",),
        small=GPT,
    ),
    Fault(
        id="compile_prefix_lost",
        group="model",
        plant=_prefixed("_orig_mod."),
        suspects=(PARAMS,),
        sides=("torch",),
    ),
    Fault(
        id="nonstrict_prefix_noop",
        group="model",
        plant=_prefixed("module."),
        suspects=(PARAMS, BUFFERS),
        sides=("torch",),
        small=CNN,
    ),
    Fault(
        id="pretrained_over_checkpoint",
        group="model",
        plant=reset("model.params.layers.0."),
        suspects=(PARAMS,),
    ),
    Fault(
        id="adapter_rewrapped",
        group="model",
        plant=after_restore(lambda trainer: trainer.model.layers[1].reset_parameters()),
        suspects=(PARAMS,),
        sides=("torch",),
    ),
    Fault(
        id="master_rebuilt_from_bf16",
        group="model",
        plant=rewritten(_rounded_to_bfloat16),
        suspects=(PARAMS,),
        precision="bfloat16",
    ),
    Fault(
        id="eval_mode_left_on",
        group="model",
        plant=after_restore(_stay_in_eval),
        suspects=FORWARD,
        sides=("torch",),
        small=CNN,
    ),
    Fault(
        id="dropout_hparam_not_reapplied",
        group="model",
        plant=after_restore(_no_dropout),
        suspects=FORWARD,
    ),
    Fault(
        id="bn_stats_not_saved",
        group="buffers",
        plant=reset("model.buffers."),
        suspects=(BUFFERS,),
        small=CNN,
    ),
    Fault(
        id="normalizer_stats_reset",
        group="buffers",
        plant=rewritten(_uncounted),
        suspects=(BUFFERS,),
        small=CNN,
    ),
    Fault(
        id="nonpersistent_buffer_garbage",
        group="buffers",
        plant=after_restore(_attend_to_the_future),
        suspects=FORWARD,
        sides=("torch",),
        small=GPT,
    ),
)
