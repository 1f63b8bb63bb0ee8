"""Eight forced CPU devices for every test process, set before JAX first uses one; envelopes are never cached."""

import os

import jax
import pytest

from tests.quick import is_quick

jax.config.update("jax_num_cpu_devices", 8)
os.environ["PARITY_CACHE"] = os.devnull + "/off"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-quick` selects, before pytest leaves out what is not selected."""
    for item in items:
        if is_quick(item.nodeid):
            item.add_marker(pytest.mark.quick)
