"""Eight forced CPU devices for every test process, set before JAX first uses one; envelopes are never cached."""

import os

import jax

jax.config.update("jax_num_cpu_devices", 8)
os.environ["PARITY_CACHE"] = os.devnull + "/off"
