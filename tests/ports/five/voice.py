"""The training state that Resemblyzer 0.1.4 ships, 1,564,501 steps old, continued in PyTorch and in a port.

The package has the model without its training: the likeness of utterances and speakers is as the paper has it (Wan et
al., arXiv:1710.10467), written here for both sides. The state is continued in float64.
"""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import torch
from flax import nnx
from torch import nn

from docs.examples import nnx_voice
from jax_side.optim import clip_by_global_norm
from parity.checks.models import map_opened, open_subjects
from parity.checks.models.inputs import BothInputs
from parity.checks.models.opening import ModelSource
from parity.mapping import rules_text
from tests.ports.five.handover import CarriedRun, command, distance
from tests.ports.five.in_torch import AFTER, one_ulp

__all__ = ["carry_voice", "download"]

CHANNELS, WIDTH, LAYERS = 40, 256, 3
SPEAKERS, UTTERANCES, FRAMES = 4, 3, 16
RATE, CLIP, SLOW = 1e-4, 3.0, 0.01
"""Of Adam, as the file has it; the clip and the factor of the gradients of the likeness, as in the paper."""


class Voice(nn.Module):
    """The encoder of Resemblyzer by its names, with the likeness on top."""

    def __init__(self) -> None:
        super().__init__()
        self.similarity_weight, self.similarity_bias = (nn.Parameter(torch.full((1,), x)) for x in (10.0, -5.0))
        self.lstm = nn.LSTM(CHANNELS, WIDTH, LAYERS, batch_first=True)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, mels: torch.Tensor, speakers: int) -> torch.Tensor:
        """Return the likeness of each utterance and each speaker."""
        _, (hidden, _) = self.lstm(mels)
        made = torch.relu(self.linear(hidden[-1]))
        made = made / torch.norm(made, dim=1, keepdim=True)
        centres = made.view(speakers, -1, WIDTH).mean(1)
        centres = centres / torch.norm(centres, dim=1, keepdim=True)
        return made @ centres.T * self.similarity_weight + self.similarity_bias


def download(folder: Path) -> Path:
    """Return the state, out of the wheel.

    Raises:
        OSError: The package index cannot be reached, with what pip says.
    """
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), "Resemblyzer==0.1.4"]
    got = subprocess.run(words, capture_output=True, text=True, check=False)
    if got.returncode:
        raise OSError(got.stderr.strip())
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        return Path(held.extract("resemblyzer/pretrained.pt", folder))


def mels(step: int) -> np.ndarray[Any, Any]:
    """Return spectrograms, float64, of which those of one speaker are alike."""
    rng = np.random.default_rng([13, step])
    voices = np.repeat(np.random.default_rng(12).random((SPEAKERS, 1, CHANNELS)), UTTERANCES, axis=0)
    return voices * rng.random((SPEAKERS * UTTERANCES, FRAMES, CHANNELS))


def in_torch(state: Path, move: bool = False) -> tuple[Voice, list[float]]:
    """Return the model and the losses after a state was continued, its parameters moved by a unit first or not."""
    held = torch.load(state, weights_only=True, map_location="cpu")
    model = Voice().double()
    model.load_state_dict(held["model_state"])
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    optimizer.load_state_dict(held["optimizer_state"])
    if move:
        one_ulp(model)
    losses, who = [], torch.arange(SPEAKERS).repeat_interleave(UTTERANCES)
    for step in range(AFTER):
        loss = nn.functional.cross_entropy(model(torch.from_numpy(mels(step)), SPEAKERS), who)
        optimizer.zero_grad()
        loss.backward()
        for one in (model.similarity_weight, model.similarity_bias):
            one.grad *= SLOW
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def in_jax(converted: Path) -> tuple[Any, list[float]]:
    """Return the parameters and the losses of the port after what was converted was continued."""
    held = ocp.PyTreeCheckpointer().restore(converted.absolute())
    tx = optax.chain(clip_by_global_norm(CLIP), optax.adam(RATE))
    with jax.enable_x64(True):
        model = nnx_voice.Voice(CHANNELS, WIDTH, LAYERS, dtype=jnp.float64, rngs=nnx.Rngs(0))
        graph, state, rest = nnx.split(model, nnx.Param, ...)
        params = nnx.restore_int_paths(jax.tree.map(lambda one: jnp.asarray(one, jnp.float64), held["params"]))
        wide = jax.tree.map(lambda one: jnp.asarray(one, jnp.float64), held["opt_state"][0])
        moments = {key: nnx.restore_int_paths(wide[key]) for key in ("mu", "nu")}
        clip, (adam, *others) = tx.init(params)
        opt_state = (clip, (adam._replace(count=jnp.asarray(held["opt_state"][0]["count"]), **moments), *others))

        def objective(params: Any, x: jax.Array) -> jax.Array:
            filled = jax.tree.map(lambda one: one, state)
            nnx.replace_by_pure_dict(filled, params)
            return nnx_voice.loss(nnx.merge(graph, filled, rest), x, SPEAKERS)

        @jax.jit
        def train_step(params: Any, opt_state: Any, x: jax.Array) -> Any:
            loss, grads = jax.value_and_grad(objective)(params, x)
            grads = grads | {key: grads[key] * SLOW for key in ("factor", "shift")}
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, loss

        losses = []
        for step in range(AFTER):
            params, opt_state, loss = train_step(params, opt_state, jnp.asarray(mels(step)))
            losses.append(float(loss))
        return params, losses


def _apart(model: Voice, params: Any) -> float:
    """Return the largest difference of a parameter, of its largest element; the two biases are taken together."""
    held = {name: value.detach().numpy() for name, value in model.named_parameters()}
    pairs = [(held["linear.weight"].T, params["embed"]["kernel"]), (held["linear.bias"], params["embed"]["bias"]),
             (held["similarity_weight"], params["factor"]), (held["similarity_bias"], params["shift"])]  # fmt: skip
    for at, layer in params["layers"].items():
        pairs += [
            (held[f"lstm.weight_{word}_l{at}"].T, layer[key]) for word, key in (("ih", "w_in"), ("hh", "w_state"))
        ]
        pairs.append((held[f"lstm.bias_ih_l{at}"] + held[f"lstm.bias_hh_l{at}"], layer["b_in"] + layer["b_state"]))
    return max(float(np.abs(a - np.asarray(b)).max() / np.abs(a).max()) for a, b in pairs)


def carry_voice(folder: Path) -> CarriedRun:
    """Carry the state over, and compare both runs that continue it.

    The two biases of a layer do the same, so no evidence tells which is which and the map has them as unsure; they
    are paired as its comments have them, by names and order. Whichever is which, the losses are the same.
    """
    began = time.perf_counter()
    state = download(folder)
    port = lambda: nnx_voice.Voice(CHANNELS, WIDTH, LAYERS, rngs=nnx.Rngs(0))  # noqa: E731
    inputs = BothInputs(*({"mels": mels(0), "speakers": SPEAKERS}, (mels(0), SPEAKERS)))
    subjects = open_subjects(
        ModelSource("--torch", "voice", Voice), ModelSource("--jax", "voice in NNX", port), inputs
    )
    found = map_opened(subjects, None, state)
    rules = folder / "map.toml"
    rules.write_text(rules_text([row.rule for row in found.found.rows if row.rule is not None]))
    mapped = time.perf_counter() - began
    command("convert", str(state), str(folder / "run"), "--to", "orbax", "--rules", str(rules))
    model, stayed = in_torch(state)
    params, carried = in_jax(folder / "run")
    gap = _apart(model, params)
    _, shaken = in_torch(state, move=True)
    proof = found.proof
    return CarriedRun("voice", len(found.found.rows) + len(found.found.alone), len(found.found.rules), proof.verdict,
                      max(proof.outputs, proof.gradients), distance(stayed, carried), gap, distance(stayed, shaken),
                      None, (), None, mapped, time.perf_counter() - began)  # fmt: skip
