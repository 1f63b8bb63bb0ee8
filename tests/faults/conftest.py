"""Compiled programs are kept on disk while these tests run: hundreds of trainers share a few dozen of them."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module", autouse=True)
def compiled_once(compiled):
    before = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", compiled)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    compilation_cache.reset_cache()  # it remembers that there was none, if a test before has compiled anything
    yield
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
