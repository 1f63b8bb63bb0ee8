"""Generators of PyTorch, and its state of the process: default generators and the settings that change results."""

from __future__ import annotations

import torch

from parity.capture import Walk, ambient, register

__all__ = ["register_streams"]


def _stream(walk: Walk, path: str, generator: torch.Generator) -> None:
    if walk.is_new(path, generator, f"rng.{path}"):
        _generator_leaf(walk, path, generator, f"rng.{path}")


def _generator_leaf(walk: Walk, path: str, generator: torch.Generator, component: str) -> None:
    walk.data(path, generator.get_state().numpy().data, f"torch.Generator@{generator.device}", component, "stream")


def _shared(walk: Walk) -> None:
    """Show PyTorch's state of the process: default generators, and the settings that change results."""
    walk.is_new("torch.default_generator", torch.default_generator, "rng.torch")
    _generator_leaf(walk, "torch.default_generator", torch.default_generator, "rng.torch")
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for device in range(torch.cuda.device_count()):
            state = torch.cuda.get_rng_state(device)
            walk.data(
                f"torch.cuda.default_generators[{device}]",
                state.numpy().data,
                "torch.Generator",
                "rng.cuda",
                "stream",
            )
    settings = {
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision(),
        "torch.backends.cudnn.benchmark": torch.backends.cudnn.benchmark,
        "torch.backends.cudnn.deterministic": torch.backends.cudnn.deterministic,
        "torch.backends.cudnn.allow_tf32": torch.backends.cudnn.allow_tf32,
        "torch.is_autocast_enabled()": torch.is_autocast_enabled(),
        "torch.is_autocast_enabled('cpu')": torch.is_autocast_enabled("cpu"),
        "torch.get_num_threads()": torch.get_num_threads(),
    }
    for name, value in settings.items():
        walk.leaf(name, value, "settings", "flag")


def register_streams() -> None:
    """Register the kind, and what is looked at beside the loop; again is no harm."""
    register(torch.Generator, _stream)
    ambient(_shared)
