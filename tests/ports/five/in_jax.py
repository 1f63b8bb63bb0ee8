"""The ports of the five models trained with Optax, from what `parity convert` wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import orbax.checkpoint as ocp
from flax import nnx

from docs.examples import nnx_bert, nnx_gpt2, nnx_llama, nnx_t5, nnx_vit
from jax_side.optim import clip_by_global_norm
from jax_side.probes.islands import lifted
from jax_side.schedules import traced
from parity.schedules import Cosine, Linear, Schedule, Sequential
from tests.ports.five import ported
from tests.ports.five.in_torch import AFTER, BEFORE, CLIP, DECAY, RATE, WARMUP, batch

__all__ = ["JaxRun", "decays", "make_tx", "tx", "with_optax_clip"]

Batch = Mapping[str, Any]

LOSSES = {
    "gpt2": lambda model, b: nnx_gpt2.loss(model, b["input_ids"]),
    "llama": lambda model, b: nnx_llama.loss(model, b["input_ids"]),
    "bert": lambda model, b: nnx_bert.loss(
        model, b["input_ids"], b["token_type_ids"], b["attention_mask"], b["labels"], b["next_sentence_label"]
    ),
    "vit": lambda model, b: nnx_vit.loss(model, b["pixel_values"], b["labels"]),
    "t5": lambda model, b: nnx_t5.loss(model, b["input_ids"], b["labels"]),
}

NO_DECAY = ("bias", "scale", "gain", "guess_bias")
"""Last words of the leaves that do not decay: biases and the weights of norms."""


def decays(params: Any) -> Any:
    """Return which leaves decay, by their names: a bias with an axis of heads has two axes."""

    def one(path: Any, _: Any) -> bool:
        keys = [str(getattr(key, "key", "")) for key in path if hasattr(key, "key")]
        return keys[-1] not in NO_DECAY

    return jax.tree_util.tree_map_with_path(one, params)


def make_tx(rate: Any, clip: Any = clip_by_global_norm) -> optax.GradientTransformation:
    """Return the transformation: PyTorch's clip, then AdamW with decay for some."""
    adamw = optax.adamw(rate, b1=0.9, b2=0.999, eps=1e-8, weight_decay=DECAY, mask=decays)
    return optax.chain(clip(CLIP), adamw)


SCHEDULE = Schedule(
    Sequential(rules=(Linear(start_factor=0.1, total_iters=WARMUP), Cosine(T_max=2 * (BEFORE + AFTER),
               eta_min=RATE / 10)), milestones=(WARMUP,)), [RATE])  # fmt: skip
tx = make_tx(traced(SCHEDULE, 4 * (BEFORE + AFTER)))
with_optax_clip = make_tx(traced(SCHEDULE, 4 * (BEFORE + AFTER)), optax.clip_by_global_norm)
"""A planted fault that few would see: a gradient that is clipped is larger by a part in a million."""


class JaxRun:
    """A run of one port, from a checkpoint of Orbax.

    Args:
        name: Of the model.
        path: What `parity convert` wrote, or `save`.
        tx: The transformation.
        batches: Function of the name and a step to the rows.
        share: Factor of the loss.
        options: Of the port.
    """

    def __init__(
        self, name: str, path: Path, tx: optax.GradientTransformation = tx, batches: Any = batch, share: float = 1.0,
        **options: Any,
    ) -> None:  # fmt: skip
        self.name, self.tx, self.batches = name, tx, batches
        with jax.enable_x64(True):
            model = ported.MODELS[name](dtype=jnp.float64, **options)
            graph, state, rest = nnx.split(model, nnx.Param, ...)
            held = ocp.PyTreeCheckpointer().restore(path.absolute())
            like = {"params": held["params"], "opt_state": tx.init(held["params"])}
            args = ocp.args.PyTreeRestore(
                item=like, restore_args=ocp.checkpoint_utils.construct_restore_args(like), partial_restore=True
            )
            found = ocp.Checkpointer(ocp.PyTreeCheckpointHandler()).restore(path.absolute(), args=args)
            self.params, self.opt_state = found["params"], found["opt_state"]
            self.step, self.document = int(held["step"]), held["torch"]

            def objective(params: Any, given: Batch) -> jax.Array:
                filled = jax.tree.map(lambda one: one, state)
                nnx.replace_by_pure_dict(filled, nnx.restore_int_paths(params))
                return share * LOSSES[name](nnx.merge(graph, filled, rest), given)

            found_islands: dict[tuple[str, str], Any] = {}
            wide = lifted(objective, found_islands)

            @jax.jit
            def train_step(params: Any, opt_state: Any, given: Batch) -> Any:
                loss, grads = jax.value_and_grad(wide)(params, given)
                updates, opt_state = tx.update(grads, opt_state, params)
                return optax.apply_updates(params, updates), opt_state, loss

            self._train_step, self.islands = train_step, found_islands

    def advance(self, steps: int) -> list[float]:
        """Train, and return the loss of each step."""
        losses = []
        with jax.enable_x64(True):
            for _ in range(steps):
                given = {key: jnp.asarray(value) for key, value in self.batches(self.name, self.step).items()}
                self.params, self.opt_state, loss = self._train_step(self.params, self.opt_state, given)
                self.step += 1
                losses.append(float(loss))
        return losses

    def save(self, path: Path) -> None:
        """Write all of it, with the document of the conversion, by which it goes back."""
        with jax.enable_x64(True):
            tree = {"params": self.params, "opt_state": self.opt_state, "step": self.step, "torch": self.document}
            ocp.PyTreeCheckpointer().save(path.absolute(), tree)
