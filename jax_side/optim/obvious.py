"""What one would write in Optax for an optimizer of torch.optim: the function of its name, and ways to add decay.

Not what this package computes: these are the translations that its figures are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import optax

from parity.contract import Translation
from parity.state import OptimizerKind

__all__ = ["Call", "obvious"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of one of Optax's functions, as text and as what it returns.

    Example:
        >>> str(Call(path="optax.adam", positional=(0.1,), named={"b1": 0.8}))
        'optax.adam(0.1, b1=0.8)'
    """

    path: str
    """Such as `optax.contrib.muon`."""
    positional: tuple[Any, ...] = ()
    """Numbers, or calls."""
    named: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the call as one writes it."""
        inside = [str(one) if isinstance(one, Call) else repr(one) for one in self.positional]
        return f"{self.path}({', '.join([*inside, *(f'{k}={v!r}' for k, v in self.named.items())])})"

    def function(self) -> Any:
        """Return the function that is called."""
        found: Any = optax
        for part in self.path.split(".")[1:]:
            found = getattr(found, part)
        return found

    def build(self) -> Any:
        """Return what the call returns."""
        return self.function()(
            *(one.build() if isinstance(one, Call) else one for one in self.positional), **self.named
        )


PATHS = {
    "SGD": "optax.sgd",
    "Adam": "optax.adam",
    "AdamW": "optax.adamw",
    "NAdam": "optax.nadam",
    "RAdam": "optax.radam",
    "Adamax": "optax.adamax",
    "RMSprop": "optax.rmsprop",
    "Adagrad": "optax.adagrad",
    "Adadelta": "optax.adadelta",
    "Rprop": "optax.rprop",
    "ASGD": "optax.sgd",
    "Adafactor": "optax.adafactor",
    "Muon": "optax.contrib.muon",
    "Lion": "optax.lion",
}
"""Class of torch.optim to the function of its name; plain descent for the one that Optax has not."""

NAMED: Mapping[str, Sequence[str]] = {
    "betas": ("b1", "b2"),
    "eps": ("eps",),
    "momentum": ("momentum",),
    "nesterov": ("nesterov",),
    "alpha": ("decay",),
    "centered": ("centered",),
    "initial_accumulator_value": ("initial_accumulator_value",),
    "rho": ("rho",),
    "etas": ("eta_minus", "eta_plus"),
    "step_sizes": ("min_step_size", "max_step_size"),
    "beta2_decay": ("decay_rate",),
    "d": ("clipping_threshold",),
    "weight_decay": ("weight_decay",),
    "ns_coefficients": ("ns_coeffs",),
    "ns_steps": ("ns_steps",),
}
"""Argument of torch.optim to those of the same meaning in Optax."""

RENAMED: Mapping[tuple[str, str], Sequence[str]] = {
    ("Muon", "momentum"): ("beta",),
    ("Adafactor", "weight_decay"): ("weight_decay_rate",),
    ("Adafactor", "eps"): ("eps", ""),
}
"""As NAMED, where one class differs; an empty name has no counterpart."""

ABSENT = {("ASGD", "alpha"), ("ASGD", "momentum")}
"""Arguments whose name stands for something else here."""

ALWAYS = {"RMSprop": ("alpha",), "Adadelta": ("rho", "eps")}
"""What is written even if it is PyTorch's default, which Optax's is not or which it does not show."""

OWN_DECAY = ("AdamW", "Adadelta", "Adafactor", "Muon", "Lion")
"""Classes whose function of the same name takes decay."""

DECAYED = {"Adam": "optax.adamw", "NAdam": "optax.nadamw", "Adamax": "optax.adamaxw"}
"""Class to the function that is named for decay. It is decoupled there, and coupled in PyTorch."""


def obvious(kind: OptimizerKind, given: Mapping[str, Any]) -> list[tuple[Call, Translation]]:
    """Return the calls that one would write, the one of the same name first.

    Args:
        kind: The optimizer.
        given: Its arguments under PyTorch's names; those left out are PyTorch's defaults.

    Returns:
        Each call with its text and the arguments that it leaves out. More than one where there is decay that the
        function of the same name does not take: the one that is named for decay, and decay chained before the
        function, which is coupled as in PyTorch.

    Raises:
        SpecError: A value outside of its range.
        UnknownNameError: The optimizer has no such argument.

    Example:
        >>> from parity.state import OPTIMIZERS
        >>> for call, one in obvious(OPTIMIZERS["Adam"], {"lr": 0.1, "weight_decay": 0.01}):
        ...     print(call, *one.left_out)
        optax.adam(0.1) weight_decay
        optax.adamw(0.1, weight_decay=0.01)
        optax.chain(optax.add_decayed_weights(0.01), optax.adam(0.1))
    """
    h = kind.resolve(given)
    named, left = _named(kind, h, given)
    path = "optax.amsgrad" if h.get("amsgrad") and kind.name == "Adam" else PATHS[kind.name]
    decay = h.get("weight_decay", 0) if kind.name not in OWN_DECAY else 0
    plain = Call(path=path, positional=(h["lr"],), named=named)
    found = [(plain, left if not decay else [*left, "weight_decay"])]
    added = Call(path="optax.add_decayed_weights", positional=(decay,))
    if decay and kind.name in DECAYED:
        lost = ["amsgrad"] if path == "optax.amsgrad" else []
        more = {**named, "weight_decay": decay}
        found.append((Call(path=DECAYED[kind.name], positional=(h["lr"],), named=more), [*left, *lost]))
    if decay and not h.get("decoupled_weight_decay"):
        found.append((Call(path="optax.chain", positional=(added, plain)), left))
    elif decay and kind.name in DECAYED:
        found.reverse()  # the one for decay is what one writes for decay that is decoupled
    elif decay:
        parts = Call(path=f"optax.scale_by_{kind.name.lower()}", named=named), added
        rate = Call(path="optax.scale_by_learning_rate", positional=(h["lr"],))
        found.append((Call(path="optax.chain", positional=(*parts, rate)), left))
    if h.get("maximize"):
        turned = Call(path="optax.scale", positional=(-1.0,))
        found = [(Call(path="optax.chain", positional=(turned, call)), lost) for call, lost in found]
    return [(call, Translation(text=str(call), left_out=tuple(lost))) for call, lost in found]


def _named(kind: OptimizerKind, h: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return Optax's arguments, and those of PyTorch that have no counterpart."""
    named: dict[str, Any] = {}
    left = []
    written = [name for name in kind.arguments if name in given or name in ALWAYS.get(kind.name, ())]
    for name in written:
        value = h[name]
        if name in ("lr", "maximize", "decoupled_weight_decay") or (name == "momentum" and not value):
            continue
        if name == "amsgrad":
            left += ["amsgrad"] if value and kind.name != "Adam" else []
        elif name == "adjust_lr_fn" and value == "match_rms_adamw":
            named["consistent_rms"] = 0.2
        elif name == "weight_decay" and kind.name not in OWN_DECAY:
            continue
        elif name not in NAMED or (kind.name, name) in ABSENT:
            left += [name] if value != kind.arguments[name] else []
        else:
            names = RENAMED.get((kind.name, name), NAMED[name])
            values = value if len(names) > 1 else (-value if name == "beta2_decay" else value,)
            pairs = {one: v for one, v in zip(names, values, strict=True) if one and v is not None}
            named.update(pairs)
            left += [name] if len(pairs) < len(names) and value != kind.arguments[name] else []
    return named, left
