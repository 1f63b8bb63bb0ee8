"""Files people have that need JAX's own libraries to be read."""
