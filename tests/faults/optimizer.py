"""Faults that lose moments, the step of the bias correction, or the optimizer's hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.faults.fault import BOTH, Fault
from tests.faults.plants import Leaves, after_restore, around_save, compute_as, ignore, leaves_under, reset, rewritten
from torch_side.optimizer import build_optimizer, set_position

__all__ = ["FAULTS"]

M, V, T = "optimizer.first_moment", "optimizer.second_moment", "optimizer.step"
MOMENTS = ("optimizer.first_moment.", "optimizer.second_moment.")
HYPER = ("optimizer.hyperparameters",)


def _saved_only_with_momentum(trainer: Any) -> None:
    """Save per-parameter state only where it has SGD's key."""
    state_dict = trainer.optimizer.state_dict

    def poor() -> dict[str, Any]:
        full = state_dict()
        return {**full, "state": {i: s for i, s in full["state"].items() if "momentum_buffer" in s}}

    trainer.optimizer.state_dict = poor


def _template_kept(trainer: Any) -> None:
    """Restore everything, forget to bind what `_replace` returned for the optimizer, and compare nothing."""
    template = jax.tree.map(jnp.copy, trainer.state.optimizer)
    restore = trainer.checkpoints.restore

    def forgetful(which: Any, state: Any) -> Any:
        found = restore(which, state)
        return found._replace(state=found.state._replace(optimizer=template), seal=None)

    trainer.checkpoints.restore = forgetful


def _rebuilt(trainer: Any) -> None:
    trainer.optimizer = build_optimizer(trainer.spec, trainer.model, trainer.device)
    set_position(trainer.scheduler, trainer.step)


def _reinitialised(trainer: Any) -> None:
    trainer.state = trainer.state._replace(optimizer=trainer.programs.optimizer.init(trainer.state.params))


def _dummy_step(trainer: Any) -> None:
    """Step once with zero gradients and rate 0, so that an optimizer that never updated has entries to save."""
    if trainer.counters.updates:
        return
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    for p in trainer.params:
        p.grad = torch.zeros_like(p)
    for group in trainer.optimizer.param_groups:
        group["lr"] = 0.0
    torch.optim.AdamW.step(trainer.optimizer)
    for group, lr in zip(trainer.optimizer.param_groups, rates, strict=True):
        group["lr"] = lr


def _swapped(leaves: Leaves) -> Leaves:
    """Exchange the moments of two layers of one shape."""
    out = {}
    for slot in MOMENTS:
        for leaf in ("weight", "bias"):
            one, two = f"{slot}layers.1.{leaf}", f"{slot}layers.2.{leaf}"
            out |= {one: leaves[two], two: leaves[one]}
    return out


def _cut(leaves: Leaves) -> Leaves:
    """Send moments through bfloat16."""
    found = leaves_under(leaves, MOMENTS)
    return {leaf: torch.tensor(value).bfloat16().float().numpy() for leaf, value in found.items()}


def _by_text(leaves: Leaves) -> Leaves:
    """Give layer i what lies at place i when numbers are sorted as texts: 1, 10, 11, 2, ..."""
    out: dict[str, np.ndarray] = {}
    for stem in ("model.params.", *MOMENTS):
        for kind in ("weight", "bias"):
            numbers = range(1, 11)  # the layers of one shape
            for place, number in zip(numbers, sorted(numbers, key=str), strict=True):
                out[f"{stem}layers.{place}.{kind}"] = leaves[f"{stem}layers.{number}.{kind}"]
    return out


def _other_decay(trainer: Any) -> None:
    """Take the decay of another configuration than the one the run was started with."""
    if trainer.side == "torch":
        for group in trainer.optimizer.param_groups:
            group["weight_decay"] = 0.3
    else:
        compute_as(trainer, replace(trainer.spec, optimizer=replace(trainer.spec.optimizer, weight_decay=0.3)))


def _without_masters(trainer: Any) -> None:
    """Round parameters to bfloat16 behind every update."""
    step = trainer._train_step

    def rounding(*args: Any) -> Any:
        out = step(*args)
        with torch.no_grad():
            for p in trainer.params:
                p.copy_(p.bfloat16())
        return out

    trainer._train_step = rounding


FAULTS = (
    Fault(
        id="opt_state_not_restored",
        group="optimizer",
        plant=ignore("optimizer", "load_state_dict"),
        suspects=(M, V, T),
        sides=("torch",),
    ),
    Fault(
        id="opt_state_not_restored",
        group="optimizer",
        plant=reset("optimizer."),
        suspects=("optimizer.momentum",),
        overrides=("optimizer.kind=sgd",),
    ),
    Fault(
        id="opt_moments_only_for_sgd",
        group="optimizer",
        plant=_saved_only_with_momentum,
        suspects=(M, V, T),
        sides=("torch",),
    ),
    Fault(
        id="opt_replace_discarded",
        group="optimizer",
        plant=_template_kept,
        suspects=(M, V, T),
        sides=("jax",),
    ),
    Fault(
        id="opt_rebuilt_after_load",
        group="optimizer",
        plant=after_restore(_rebuilt),
        suspects=(M, V, T),
        sides=("torch",),
    ),
    Fault(
        id="optax_count_reinit",
        group="optimizer",
        plant=after_restore(_reinitialised),
        suspects=(M, V, T),
        sides=("jax",),
    ),
    Fault(
        id="adam_step_reset",
        group="optimizer",
        plant=reset("optimizer.step"),
        suspects=(T,),
    ),
    Fault(
        id="adam_step_dummy_on_save",
        group="optimizer",
        plant=around_save(_dummy_step, lambda trainer: None),
        suspects=(T,),
        sides=("torch",),
        precision="float16",
        overrides=(f"scaler.overflow_steps={list(range(1, 13))}",),
        kills=(15, 35),
    ),
    Fault(
        id="param_order_swap",
        group="optimizer",
        plant=rewritten(_swapped),
        suspects=(M, V),
        overrides=("model.hidden=[16, 16, 16]",),
        sides=BOTH,
    ),
    Fault(
        id="opt_state_cast_down",
        group="optimizer",
        plant=rewritten(_cut),
        suspects=(M, V),
        sides=("torch",),
    ),
    Fault(
        id="int_keys_become_str",
        group="optimizer",
        plant=rewritten(_by_text),
        suspects=("model.params", M, V),
        sides=("torch",),
        overrides=(f"model.hidden={[8] * 11}",),
    ),
    Fault(
        id="hparams_from_ckpt_win",
        group="optimizer",
        plant=after_restore(_other_decay),
        suspects=HYPER,
        sides=("jax",),
    ),
    Fault(
        id="hparams_from_ckpt_win",
        group="optimizer",
        plant=after_restore(_other_decay),
        suspects=HYPER,
        sides=("torch",),
        stops=r"param_groups\.0\.weight_decay: this run has 0\.01, ",  # the next load: it was saved too
    ),
    Fault(
        id="master_feature_off_on_resume",
        group="optimizer",
        plant=after_restore(_without_masters),
        suspects=HYPER,
        sides=("torch",),
        precision="bfloat16",
    ),
)
