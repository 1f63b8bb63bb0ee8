"""What a module of a user exposes for the proof of a port: its names, and those that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from parity import sides
from parity.checks.models import BothInputs, ModelSource, Subjects, both_inputs, open_subjects
from parity.contract import ModelProbe, StepBatch, TrainerProbe
from parity.errors import SpecError

__all__ = ["NAMES", "PortSource", "PortTrainer", "open_port"]

NAMES = {
    "Model": "class or factory of the model",
    "batch": "batch(step): a dict of NumPy arrays",
    "loss": "loss(model, batch): a scalar",
    "start": "start(model): the training state",
    "step": "step(state, batch): (state, loss)",
    "train": "train(folder, steps): the user's own loop, with a mark for each step",
}
"""What a module is asked for, to what it is."""


@dataclass(frozen=True)
class PortSource:
    """A trainer of a user: a module, or a mapping of names to objects."""

    option: str
    """`--torch` or `--jax`, for messages."""
    name: str
    holder: Any
    names: Mapping[str, str] = field(default_factory=dict)
    """Name of `NAMES` to the name that it has here."""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def get(self, word: str) -> Any:
        """Return what is exposed under a name; None where there is nothing.

        Raises:
            SpecError: Another name was given for it, and it is not there.
        """
        name = self.names.get(word, word)
        held = isinstance(self.holder, Mapping)
        found = self.holder.get(name) if held else getattr(self.holder, name, None)
        if found is None and word in self.names:
            raise SpecError(self.option, f"{self.name} has no {name!r}, which was given as its {word}")
        return found

    @property
    def lacking(self) -> list[str]:
        """Return what it does not expose."""
        return [word for word in NAMES if self.get(word) is None]

    @property
    def model(self) -> ModelSource:
        """Return what makes its model."""
        return ModelSource(self.option, f"{self.name}:{self.names.get('Model', 'Model')}", self.get("Model"),
                           self.args, self.kwargs)  # fmt: skip


@dataclass(frozen=True)
class PortTrainer:
    """A trainer that is open."""

    source: PortSource
    probe: TrainerProbe

    @property
    def name(self) -> str:
        """Return the name of its module."""
        return self.source.name

    @property
    def model(self) -> ModelProbe:
        """Return its model."""
        return self.probe.model

    def batch(self, step: int) -> StepBatch:
        """Return the batch of a step, floating arrays as float64.

        Raises:
            SpecError: The user's function fails, or gives something else than arrays by name.
        """
        return {name: widened(one) for name, one in batch_of(self.source, step).items()}


def widened(value: Any) -> Any:
    """Return a floating array as float64, and anything else as it is."""
    return value.astype(np.float64) if isinstance(value, np.ndarray) and value.dtype.kind == "f" else value


def batch_of(source: PortSource, step: int) -> dict[str, Any]:
    """Return the batch of a step as the user's function gives it, with arrays of NumPy.

    Raises:
        SpecError: The function fails, or gives something else than arrays by name.
    """
    function: Callable[[int], Any] = source.get("batch")
    try:
        made = function(step)
    except Exception as error:  # anything that the user's code does
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SpecError("batch", f"of {source.name} fails at step {step}: {why[:300]}") from error
    if not isinstance(made, Mapping) or not made:
        raise SpecError(
            "batch", f"of {source.name}: expected a dict of NumPy arrays, got {type(made).__name__} at step {step}"
        )
    plain = (bool, int, float, str)
    return {str(key): one if isinstance(one, plain) else np.asarray(one) for key, one in made.items()}


def open_port(first: PortSource, second: PortSource, inputs: object) -> tuple[Subjects, PortTrainer, PortTrainer]:
    """Return both models with their inputs, and both trainers.

    Raises:
        SpecError: A model cannot be built, or nothing says what the models are called with.
    """
    own = [one.holder.get("inputs") if isinstance(one.holder, Mapping) else getattr(one.holder, "inputs", None)
           for one in (first, second)]  # fmt: skip
    given = inputs if inputs is not None else _inputs_of(own)
    subjects = open_subjects(first.model, second.model, given)
    trainers = []
    for source, model in ((first, subjects.first), (second, subjects.second)):
        functions = {word: source.get(word) for word in ("loss", "start", "step") if source.get(word) is not None}
        trainers.append(
            PortTrainer(source, sides.probes(source.option.removeprefix("--")).open_trainer(model, functions))
        )
    return subjects, trainers[0], trainers[1]


def _inputs_of(own: list[Any]) -> Any:
    """Return what both modules say their models are called with: each its own where both say it by arrays.

    Axes may be in another order in the second, as of images. Of texts the second's count where they say so.
    """
    said = [one for one in own if one is not None]
    texts = [[one] if isinstance(one, str) else list(one) for one in said if _is_text(one)]
    if texts:
        return next((one for one in reversed(texts) if any("->" in text for text in one)), texts[0])
    if len(said) < 2:
        return said[0] if said else None
    return BothInputs(both_inputs(own[0]).first, both_inputs(own[1]).second)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) for one in value)
    )
