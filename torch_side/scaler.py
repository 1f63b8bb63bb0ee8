"""Dynamic loss scaling: torch.amp.GradScaler itself, built from a spec."""

from __future__ import annotations

import torch

from parity.spec import RunSpec

__all__ = ["build_scaler"]


def build_scaler(spec: RunSpec, device: torch.device) -> torch.amp.GradScaler:
    """Return the scaler of a spec; disabled, and then an identity, unless the precision is float16.

    Args:
        spec: The run, for its scaler and its precision.
        device: Where it trains.
    """
    scaler = spec.scaler
    return torch.amp.GradScaler(
        device.type,
        init_scale=scaler.init_scale,
        growth_factor=scaler.growth_factor,
        backoff_factor=scaler.backoff_factor,
        growth_interval=scaler.growth_interval,
        enabled=spec.scaled,
    )
