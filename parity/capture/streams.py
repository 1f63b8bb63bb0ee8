"""Generators of numbers, of Python and NumPy: by their state, which is read and never drawn from."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from parity.capture.arrays import digest_of
from parity.capture.registry import register
from parity.capture.walk import Walk

__all__ = ["capture_python_streams"]


def _python_random(walk: Walk, path: str, value: random.Random) -> None:
    if walk.is_new(path, value, f"rng.{path}"):
        walk.data(path, repr(value.getstate()).encode(), "random.Random", f"rng.{path}", "stream")


def _numpy_generator(walk: Walk, path: str, value: Any) -> None:
    source = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", None) or value
    if walk.is_new(path, value, f"rng.{path}", ("stream", id(source))):
        state = value.get_state(legacy=False) if isinstance(value, np.random.RandomState) else source.state
        walk.data(path, _canonical(state), type(value).__name__, f"rng.{path}", "stream")
        seeds = getattr(source, "seed_seq", None)
        if isinstance(seeds, np.random.SeedSequence):
            _seed_sequence(walk, f"{path}.seed_seq", seeds)


def _seed_sequence(walk: Walk, path: str, value: np.random.SeedSequence) -> None:
    """Show how many children a sequence has had, which no state of a generator has; its seed is in that state."""
    if walk.is_new(path, value, f"rng.{path}"):
        walk.data(path, str(value.n_children_spawned).encode(), "SeedSequence", f"rng.{path}", "stream")


def _canonical(state: Any) -> bytes:
    """Return bytes of a nested state: the same for equal states, however they came about."""
    if isinstance(state, dict):
        return b"{" + b",".join(f"{k}:".encode() + _canonical(v) for k, v in sorted(state.items())) + b"}"
    if isinstance(state, np.ndarray):
        return f"{state.dtype}{state.shape}".encode() + digest_of(np.ascontiguousarray(state)).encode()
    return repr(state.item() if isinstance(state, np.generic) else state).encode()


def capture_python_streams(walk: Walk) -> None:
    """Show the generators that Python and NumPy share in a process."""
    walk.data("random", repr(random.getstate()).encode(), "random.Random", "rng.python", "stream")
    state = np.random.mtrand._rand  # the shared RandomState
    walk.data("numpy.random", _canonical(state.get_state(legacy=False)), "RandomState", "rng.numpy", "stream")


def _register() -> None:
    register(random.Random, _python_random, attributes=True)
    for kind in (np.random.Generator, np.random.RandomState, np.random.BitGenerator):
        register(kind, _numpy_generator)
    register(np.random.SeedSequence, _seed_sequence)
    register(random.SystemRandom, Walk.not_seen)


_register()
