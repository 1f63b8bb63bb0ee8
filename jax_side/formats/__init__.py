"""Checkpoint files that need JAX's own libraries to be read or written: those of Orbax and Flax."""
