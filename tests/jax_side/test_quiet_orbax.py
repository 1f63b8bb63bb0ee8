"""What Orbax leaves behind in asyncio when a save fails is not told a second time; anything else is."""

import asyncio
import gc
import logging
import threading

import pytest
from etils import epath
from orbax.checkpoint._src.path import async_path

from parity.commands.train import quiet_orbax


@pytest.fixture(autouse=True)
def _restored():
    """Give both loggers back as they were."""
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

    quiet_orbax()
    give_up_on(tmp_path, async_path.mkdir)
    assert not caplog.records


def test_what_others_leave_behind_is_told(tmp_path, caplog):
    quiet_orbax()
    give_up_on(tmp_path, plain_mkdir)
    logging.getLogger("absl").warning("of something else")
    assert "never retrieved" in caplog.text
    assert "of something else" in caplog.text


def test_asked_twice_it_filters_once():
    quiet_orbax()
    quiet_orbax()
    assert [len(logging.getLogger(name).filters) for name in ("absl", "asyncio")] == [1, 1]
