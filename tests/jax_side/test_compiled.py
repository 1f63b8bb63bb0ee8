"""Programs that processes share through a cache on disk: one that is loaded gives the bits of one compiled anew."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jax_side
from jax_side import train
from parity.contract import child_environment
from tests.support.small import bits_of, small, state_of


def trained(name: str) -> tuple[Any, ...]:
    """Return the curve, the state and the validation of a short run, by programs of its own trainer."""
    train._programs.cache_clear()
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


VARIABLES = (
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_COMPILATION_CACHE_MAX_SIZE",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS",
)


def given() -> tuple[list[Any], dict[str, str]]:
    """Return where this process, and one that it starts, keep compiled programs."""
    own = [getattr(jax.config, name.lower()) for name in VARIABLES]
    return own, {name: value for name, value in child_environment(jax_side).items() if name in VARIABLES}


@pytest.fixture
def without_a_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be a user who has set up no cache."""
    known = [getattr(jax.config, name.lower()) for name in VARIABLES]
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
    for name, value in zip(VARIABLES, known, strict=True):
        jax.config.update(name.lower(), value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("without_a_cache")
def test_processes_of_a_check_share_what_they_compile(tmp_path: Path, loads: Callable[[], int]) -> None:
    before = given()
    with jax_side.shared_programs(tmp_path / "programs"):
        own, children = given()
        assert own[0] == children["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "programs")
        assert {name: os.environ[name] for name in VARIABLES} == children
        first = trained("mlp-digits")
        compiled = loads()
        assert trained("mlp-digits") == first
        assert loads() > compiled, "nothing was loaded"
        assert list((tmp_path / "programs").glob("*-cache"))
    assert given() == before
    compiled = loads()
    trained("mlp-digits")
    assert loads() == compiled, "the cache is still on"


@pytest.mark.usefixtures("without_a_cache")
def test_on_an_accelerator_nothing_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    before = given()
    with jax_side.shared_programs(tmp_path / "programs"):
        assert given() == before


def test_the_cache_of_a_user_stays_the_only_one(tmp_path: Path) -> None:
    before = given()
    assert before[0][0] is not None
    with jax_side.shared_programs(tmp_path / "programs"):
        assert given() == before
