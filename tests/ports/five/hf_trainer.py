"""GPT-2 trained by the Trainer of transformers, and its checkpoint continued in the port.

The Trainer fills groups by its own rule, has a `LambdaLR` whose function no file holds, and leaves the tied head out
of its file: the port has the same schedule as a function, and the map knows the tie.
"""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from tests.ports.five import hugging
from tests.ports.five.handover import CarriedRun, command, distance, write_map
from tests.ports.five.in_jax import JaxRun, make_tx
from tests.ports.five.in_torch import AFTER, BEFORE, CLIP, DECAY, RATE, ROWS, WARMUP, exact

__all__ = ["carry_trainer", "gpt2", "rows_of", "tx"]

ALL = BEFORE + AFTER
SHARE = (hugging.LENGTH - 1) / hugging.LENGTH
"""Of the loss that the model gives alone: the Trainer divides by the number of labels, and counts the first word of a
row too, which nothing predicts, unless the class is one that `LOSS_MAPPING` names; GPT2LMHeadModel is none of them
(transformers 5.24, `Trainer._loss_shifts_labels`)."""


def rate(count: jax.Array) -> jax.Array:
    """Return the rate of `get_cosine_schedule_with_warmup`, in the type that JAX has for floats."""
    at = jnp.asarray(count, jnp.result_type(float))
    progress = (at - WARMUP) / (ALL - WARMUP)
    return RATE * jnp.where(at < WARMUP, at / WARMUP, 0.5 * (1.0 + jnp.cos(math.pi * progress)))


tx = make_tx(rate)


class Tokens(torch.utils.data.Dataset[Any]):
    """As many rows as all steps take, in order."""

    def __init__(self) -> None:
        self.ids = hugging.tokens(ALL * ROWS, hugging.LENGTH, seed=77)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        ids = torch.from_numpy(self.ids[at])
        return {"input_ids": ids, "labels": ids}


def rows_of(_: str, step: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the rows that the Trainer reads at a step."""
    ids = Tokens().ids[step * ROWS : (step + 1) * ROWS]
    return {"input_ids": ids, "labels": ids}


def trainer_of(folder: Path, losses: list[float]) -> Any:
    """Return a Trainer of float64 that writes its losses down as they are; its own log rounds them."""
    from transformers import Trainer, TrainingArguments

    class Exact(Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            made = super().compute_loss(*args, **kwargs)
            losses.append(float(made))
            return made

    args = TrainingArguments(
        output_dir=str(folder), max_steps=ALL, per_device_train_batch_size=ROWS, save_steps=10, learning_rate=RATE,
        weight_decay=DECAY, max_grad_norm=CLIP, lr_scheduler_type="cosine", warmup_steps=WARMUP, optim="adamw_torch",
        train_sampling_strategy="sequential", report_to=[], use_cpu=True, disable_tqdm=True, logging_steps=ALL + 1,
    )  # fmt: skip
    with exact():
        torch.manual_seed(0)
        model = hugging.gpt2().double()
    return Exact(model=model, args=args, train_dataset=Tokens())


def gpt2() -> tuple[Any, torch.optim.Optimizer]:
    """Return the model and the optimizer that the Trainer makes, as `parity convert --model` takes them."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(Path(folder), [])
        return trainer.model, trainer.create_optimizer()


def carry_trainer(folder: Path, **options: Any) -> CarriedRun:
    """Train under the Trainer, carry a checkpoint of it to the port, and compare with the run that stayed.

    The floor is that of the Trainer too: resumed from the same checkpoint with every parameter moved by one unit in
    its last place.
    """
    logging.getLogger("transformers").setLevel(logging.ERROR)
    began = time.perf_counter()
    rules, losses = folder / "map.toml", list[float]()
    found = write_map("gpt2", rules, **options)
    mapped = time.perf_counter() - began
    trainer = trainer_of(folder / "trainer", losses)
    with exact():
        trainer.train()
    port, stayed = (_converted(folder, step, rules, options) for step in (BEFORE, ALL))
    curve = distance(losses[BEFORE:], port.advance(AFTER))
    state = max(_apart(getattr(port, part), getattr(stayed, part)) for part in ("params", "opt_state"))
    start, shaken = folder / "trainer" / f"checkpoint-{BEFORE}", list[float]()
    _move(start / "model.safetensors")
    with exact():
        trainer_of(folder / "shaken", shaken).train(resume_from_checkpoint=str(start))
    proof = found.proof
    return CarriedRun("gpt2, HF Trainer", len(found.found.rows) + len(found.found.alone), len(found.found.rules),
                      found.verdict, max(proof.outputs, proof.gradients), curve, state,
                      distance(losses[BEFORE:], shaken), None, (), None, mapped,
                      time.perf_counter() - began)  # fmt: skip


def _converted(folder: Path, step: int, rules: Path, options: Any) -> JaxRun:
    """Return the port with the state of a checkpoint of the Trainer."""
    source, target = folder / "trainer" / f"checkpoint-{step}", folder / f"run-{step}"
    command("convert", str(source), str(target), "--to", "orbax", "--rules", str(rules),
            "--model", f"{__name__}:gpt2", "--optimizer", f"{__name__}:tx", "--reset", "training_args")  # fmt: skip
    return JaxRun("gpt2", target, tx, rows_of, SHARE, **options)


def _apart(one: Any, other: Any) -> float:
    """Return the largest difference of two trees, of the largest element of each kind of leaf."""
    a, b = ([np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)] for tree in (one, other))
    return max(float(np.abs(x - y).max() / max(np.abs(x).max(), 1e-12)) for x, y in zip(a, b, strict=True))


def _move(path: Path) -> None:
    """Move every parameter of a file by one unit in its last place, up or down."""
    from safetensors.torch import load_file, save_file

    rng, held = np.random.default_rng(0), load_file(path)
    for name, one in held.items():
        side = torch.from_numpy(rng.choice((-np.inf, np.inf), tuple(one.shape)))
        held[name] = torch.nextafter(one, side)
    save_file(held, path, metadata={"format": "pt"})
