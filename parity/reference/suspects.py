"""The quantities of a step and the components that a difference in each points to: one table for every check."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SUSPECTS"]

SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "batch": ("data.position",),
    "epoch": ("data.position",),
    "samples": ("data.position",),
    "lr": ("schedule.step",),
    "loss_scale": ("scaler.scale", "scaler.growth_tracker"),
    "skipped": ("scaler.scale",),
    "missing": ("counters.step",),
    "validation": ("model.buffers",),
}
"""Quantity to components, the likeliest first.

A lost growth tracker shows as a scale that grows at another step, so a loss scale that differs points to both fields
of the scaler.
"""
