"""The tests share compiled programs through a cache on disk: a program that is loaded gives the bits of a new one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jax_side
from tests.parity.small import bits_of, small, state_of


def trained(name: str) -> tuple[Any, ...]:
    """Return the curve, the state and the validation of a short run, by programs of its own trainer."""
    trainer = jax_side.build(small(name, "float32", "steps=6"))
    curve = bits_of(list(trainer.steps(6)))
    validation = trainer.evaluate()
    return curve, state_of(trainer), validation


@pytest.fixture
def loads() -> Iterator[Callable[[], int]]:
    """Return what is counted while a test runs: programs that were loaded from the cache."""
    events: list[str] = []

    def note(event: str, **_: Any) -> None:
        events.append(event)

    jax.monitoring.register_event_listener(note)
    yield lambda: events.count("/jax/compilation_cache/cache_hits")
    jax.monitoring.unregister_event_listener(note)


@contextmanager
def no_cache() -> Iterator[None]:
    """Compile everything anew."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        compilation_cache.reset_cache()


@pytest.mark.parametrize("name", ["mlp-digits", "cnn-digits"])
def test_a_program_from_the_cache_gives_the_bits_of_one_compiled_anew(name: str, loads: Callable[[], int]) -> None:
    trained(name)  # whatever is not in the cache yet is there now
    before = loads()
    loaded = trained(name)
    assert loads() > before, "nothing was loaded: the cache is off"
    with no_cache():
        before = loads()
        fresh = trained(name)
        assert loads() == before
    assert loaded == fresh
