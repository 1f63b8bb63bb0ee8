"""Imports that PyTorch makes late: a process that trains makes them at once, before it is forked or timed."""

from __future__ import annotations

from importlib import import_module

__all__ = ["prepare_process"]

LATE = "torch._dynamo"
"""The first optimizer of a process imports it, compiled or not: a second of a processor."""


def prepare_process() -> None:
    """Import what every training process imports."""
    import_module(LATE)
