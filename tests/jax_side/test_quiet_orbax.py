"""What Orbax leaves behind in asyncio when a save fails is not told a second time; anything else is."""

import asyncio
import ctypes
import gc
import logging
import sys
import threading
from functools import partial

import pytest
from etils import epath
from orbax.checkpoint._src.path import async_path

from jax_side.formats.quiet import prepare_process

pytestmark = pytest.mark.breaks_first


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Give both loggers and the hook back as they were."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    loggers = [logging.getLogger("absl"), logging.getLogger("asyncio")]
    before = [list(logger.filters) for logger in loggers]
    for logger in loggers:
        logger.filters.clear()
    yield
    for logger, filters in zip(loggers, before, strict=True):
        logger.filters[:] = filters


class Late:
    """A directory that cannot be made, and says so only when nobody listens any more."""

    def __init__(self):
        self.listens_no_more, self.failed = threading.Event(), threading.Event()

    def mkdir(self, **_):
        assert self.listens_no_more.wait(60)
        self.failed.set()
        raise OSError(28, "late")


async def plain_mkdir(path):
    await asyncio.to_thread(path.mkdir)


def give_up_on(tmp_path, mkdir):
    """Make two directories as Orbax does: side by side, the loop closed at the first that fails."""
    late = Late()

    async def both():
        await asyncio.gather(mkdir(epath.Path(tmp_path) / "none" / "directory"), mkdir(late))

    loop = asyncio.new_event_loop()
    with pytest.raises(FileNotFoundError):
        loop.run_until_complete(both())
    late.listens_no_more.set()
    assert late.failed.wait(60)
    executor = loop._default_executor
    executor.shutdown()  # its answer is under way to the loop
    loop.stop()
    loop.run_forever()  # takes the answer, but hands it to nobody
    loop.close()
    gc.collect()


def test_a_second_failure_of_one_save_is_not_told_by_asyncio(tmp_path, caplog):
    give_up_on(tmp_path, async_path.mkdir)
    assert "never retrieved" in caplog.text  # what is kept quiet below
    caplog.clear()

    prepare_process()
    give_up_on(tmp_path, async_path.mkdir)
    assert not caplog.records


def test_what_others_leave_behind_is_told(tmp_path, caplog):
    prepare_process()
    give_up_on(tmp_path, plain_mkdir)
    logging.getLogger("absl").warning("of something else")
    assert "never retrieved" in caplog.text
    assert "of something else" in caplog.text


def from_below_python(act):
    """Call a function as a library does that can take no exception from it."""
    ctypes.CFUNCTYPE(None)(act)()


def test_a_report_from_below_python_to_a_closed_event_loop_is_not_told(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(raised.exc_value))
    loop = asyncio.new_event_loop()
    loop.close()
    from_below_python(partial(loop.call_soon_threadsafe, print))
    assert [str(error) for error in told] == ["Event loop is closed"]  # what is kept quiet below
    told.clear()

    prepare_process()
    from_below_python(partial(loop.call_soon_threadsafe, print))
    assert not told


def test_what_else_nobody_can_take_is_told(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(raised.exc_value))
    loop = asyncio.new_event_loop()
    loop.close()
    prepare_process()
    from_below_python(lambda: loop.call_soon_threadsafe(print))  # of our own Python: a fault
    from_below_python(partial(int, "x"))
    assert [type(error) for error in told] == [RuntimeError, ValueError]


def test_asked_twice_it_filters_once():
    prepare_process()
    hook = sys.unraisablehook
    prepare_process()
    assert sys.unraisablehook is hook
    assert [len(logging.getLogger(name).filters) for name in ("absl", "asyncio")] == [1, 1]
