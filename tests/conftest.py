"""Set-up of every test process: eight forced CPU devices, compiled programs on disk, forks in place of interpreters.

Envelopes are never cached.
"""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import jax
import pytest
from jax._src.lru_cache import LRUCache
from jax.experimental.compilation_cache import compilation_cache

from tests.forks.client import forking, new_interpreters
from tests.long import is_long
from tests.quick import covering, is_named, is_quick, may_hold_quick

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
"""Before PyTorch is imported: two test processes with two threads each share two processors. Threads that spin while
they wait keep the others from what they wait for: one file of live checks took ten times as much processor time."""

jax.config.update("jax_num_cpu_devices", 8)
os.environ["PARITY_CACHE"] = os.devnull + "/off"

CACHE_BYTES = 4 << 30
"""Never reached; with a limit, JAX locks its cache, and a reader never sees a file that is half written. To see that
it is not reached, JAX would look at all that is there for each program it adds: a minute for three thousand."""


def pytest_configure(config: pytest.Config) -> None:
    """Hear the signals that tests send, also where `nohup` or a shell in the background has had them ignored.

    The product is imported as it is: pytest rewrites the assertions of a package that is installed for editing and
    has a plugin, all modules of it, in every test process: 1.6 of 20 s of a processor before the first test.
    """
    getattr(config.pluginmanager.rewrite_hook, "_must_rewrite", set()).discard("parity")
    for number, handler in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file without a quick test unread where those alone are asked for: every process reads half as many."""
    asked = config.getoption("markexpr") == "quick" and collection_path.match("test_*.py")
    return True if asked and not may_hold_quick(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what waits for `make soak` and what `make test-quick` selects, before pytest leaves out the rest."""
    cases: dict[str, set[str]] = {}
    config.collected_cases = cases  # type: ignore[attr-defined]
    config.long_and_quick = []  # type: ignore[attr-defined]
    may_be: list[pytest.Item] = []
    for item in items:
        function, _, case = item.nodeid.partition("[")
        cases.setdefault(function, set()).add(case.removesuffix("]"))
        quick = is_quick(item.nodeid, item.iter_markers())
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.soak)
            config.long_and_quick += [item.nodeid] if quick else []  # type: ignore[attr-defined]
        if quick and not item.get_closest_marker("soak"):
            may_be.append(item)
    few = covering([item.nodeid for item in may_be])
    for item in may_be:
        if item.nodeid in few or is_named(item.nodeid, item.iter_markers()):
            item.add_marker(pytest.mark.quick)


def pytest_collection_finish() -> None:
    """Leave what every test shares out of garbage collections: the frameworks and thousands of tests, 0.2 s each."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep compiled programs on disk for this session: a program takes seconds to compile and 0.2 s to load.

    Thousands of trainers share some hundred programs. The test processes have one directory; the training processes
    they start have another, which they learn from the environment: one that is killed may leave half a file there.
    `tests/jax_side/test_compiled.py` shows that a loaded program gives the bits of one compiled anew.
    """
    home = tmp_path_factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home  # the workers of a session share it
    settings = {
        "jax_compilation_cache_max_size": CACHE_BYTES,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LRUCache, "_evict_if_needed", lambda self, **_: None)
        for name, value in settings.items():
            patch.setenv(name.upper(), str(value))
            jax.config.update(name, value)
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(home / "compiled-by-children"))
        jax.config.update("jax_compilation_cache_dir", str(home / "compiled"))
        compilation_cache.reset_cache()  # it remembers that there was none, if anything was compiled before
        yield


@pytest.fixture
def compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each training process compile its own programs, as those of a user do."""
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    """Start command lines of `parity` as forks of a process that has imported the framework."""
    with forking():
        yield


@pytest.fixture(autouse=True)
def started_anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start an interpreter for every process of a test that is marked for it, and of the soak tests."""
    marked = any(request.node.get_closest_marker(name) for name in ("new_interpreters", "soak"))
    with new_interpreters() if marked else nullcontext():
        yield
