"""JAX for any trainer: kinds of live state, the state that a process shares, files. Knows no twin.

Only JAX itself is imported: what belongs to Flax, Optax, Grain and Orbax is known by name.
"""

from jax_side.adapters.files import is_part, read_msgpack, read_orbax
from jax_side.adapters.kinds import install
from jax_side.adapters.process import clear, fresh_process, set_aside, write
from jax_side.compiled import share_programs

__all__ = ["clear", "fresh_process", "install", "is_part", "readers", "set_aside", "share_programs", "unwritten",
           "write"]  # fmt: skip

unwritten = ()
"""Functions that give memory as it is: none, `jax.numpy.empty` gives zeros."""

readers = (read_msgpack, read_orbax)
"""What reads checkpoint files, in order."""
