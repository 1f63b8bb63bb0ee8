"""Odd arguments of every optimizer, drawn within their ranges."""

from typing import Any

import numpy as np

from parity.state import OPTIMIZERS

__all__ = ["draw"]

RATES = {"Adadelta": (0.3, 1.5), "Adafactor": (1e-4, 3e-3), "SGD": (1e-3, 0.1), "Lion": (1e-4, 3e-3)}


def draw(name: str, seed: int) -> dict[str, Any]:
    """Return arguments of an optimizer: each one is odd with probability 0.7, torch's default otherwise."""
    generator = np.random.default_rng([seed, list(OPTIMIZERS).index(name)])
    odd = {key: _odd(name, key, generator) for key in OPTIMIZERS[name].arguments}
    found = {key: value for key, value in odd.items() if generator.random() < 0.7}
    if name == "SGD" and found.get("nesterov") and not (found.get("momentum") and not found.get("dampening")):
        del found["nesterov"]
    return found


def _odd(name: str, key: str, generator: np.random.Generator) -> Any:
    uniform = lambda low, high: float(generator.uniform(low, high))  # noqa: E731
    spread = lambda low, high: float(10 ** generator.uniform(np.log10(low), np.log10(high)))  # noqa: E731
    flag = lambda: bool(generator.integers(2))  # noqa: E731
    table = {
        "lr": lambda: spread(*RATES.get(name, (1e-4, 3e-3))),
        "momentum": lambda: uniform(0.1, 0.95),
        "dampening": lambda: uniform(0, 0.9),
        "weight_decay": lambda: spread(1e-4, 0.2),
        "betas": lambda: (uniform(0.5, 0.95), uniform(0.8, 0.9999)),
        "eps": lambda: (spread(1e-8, 1e-3), spread(1e-4, 1e-2)) if name == "Adafactor" else spread(1e-9, 1e-3),
        "momentum_decay": lambda: spread(1e-4, 0.1),
        "alpha": lambda: uniform(0.5, 0.95) if name == "ASGD" else uniform(0.8, 0.999),
        "lr_decay": lambda: spread(1e-4, 0.1),
        "initial_accumulator_value": lambda: uniform(0, 1),
        "rho": lambda: uniform(0.5, 0.99),
        "etas": lambda: (uniform(0.2, 0.8), uniform(1.05, 1.5)),
        "step_sizes": lambda: (spread(1e-7, 1e-5), spread(0.01, 1)),
        "lambd": lambda: spread(1e-5, 1e-2),
        "t0": lambda: uniform(1, 60),
        "beta2_decay": lambda: uniform(-0.9, -0.5),
        "d": lambda: uniform(1, 2),
        "ns_coefficients": lambda: (uniform(3, 3.5), uniform(-5, -4.5), uniform(1.9, 2.1)),
        "ns_steps": lambda: int(generator.integers(2, 7)),
        "adjust_lr_fn": lambda: (None, "original", "match_rms_adamw")[generator.integers(3)],
        "maximize": lambda: (
            False if name in ("SGD", "ASGD", "Adadelta", "Rprop") else flag()
        ),  # these run away to infinity
    }
    return table.get(key, flag)()
