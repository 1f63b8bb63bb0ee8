"""The formats that JAX's side writes, for conversions."""

from __future__ import annotations

from jax_side.formats.write_msgpack import FLAX_MSGPACK
from jax_side.formats.write_orbax import ORBAX
from parity.formats import Writer

__all__ = ["writers"]


def writers() -> tuple[Writer, ...]:
    """Return the writers of JAX's own formats."""
    return (ORBAX, FLAX_MSGPACK)
