"""`parity.seal`: a seal for what a training loop has just saved with another tool, made in the background."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from parity import storage
from parity.checkpoints import Seal
from parity.convert.sealing import look, require_foreign_seal, write_seal
from parity.convert.sealing_stored import look_stored, seal_stored
from parity.storage import local_path
from parity.storage.stores import StoreUrl, is_url, parse_url

__all__ = ["Sealing", "seal"]

_one_at_a_time = threading.Lock()
"""One background seal reads at a time: two would only take the disk from each other, and from the loop."""


class Sealing:
    """A seal that is being made in the background, as `seal` returns it."""

    def __init__(self, path: Path | StoreUrl, make: Callable[[], Seal]) -> None:
        self.path = path
        self._make = make
        self._seal: Seal | None = None
        self._failure: BaseException | None = None
        self._asked = False
        self._thread = threading.Thread(target=self._run, name=f"seal-{path.name}")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Return whether the seal is written, or failed."""
        return not self._thread.is_alive()

    def wait(self) -> Seal:
        """Wait until the seal is written, and return it.

        Raises:
            CheckpointError: A file or an object changed since `seal` was called; or there is no checkpoint of a known
                format, which of what lies at a store only this says.
            StoreError: The store refused or was not reached.
            OSError: A file cannot be read, or the seal cannot be written.
        """
        self._asked = True
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        assert self._seal is not None
        return self._seal

    def _run(self) -> None:
        try:
            with _one_at_a_time:
                self._seal = self._make()
        except BaseException as error:
            self._failure = error
            if not self._asked:  # a loop that never waits must hear of it all the same
                logging.getLogger("parity").error("no seal for %s: %s", self.path, storage.reason(error))


def seal(path: str | os.PathLike[str]) -> Sealing:
    """Seal a checkpoint that another tool has just saved; returns at once and digests in the background.

    Call it when the save is complete, such as `parity.seal("ckpt.pt")` after `torch.save`. A seal that lies there
    already is of what the name held before, and is removed at once. The process does not end before the seal is
    written.

    Args:
        path: A file or a directory of a format that `parity inspect` knows: a local path, or the URL of one at a
            store. There this asks which objects there are and removes the old seal, some requests; they are fetched
            and digested in the background.

    Returns:
        A handle: `wait()` returns the seal, or raises what went wrong; without it a failure is logged.

    Raises:
        CheckpointError: There is no checkpoint of a known format, it is one of a run or a manager of ours, which have
            seals of their own, or a part of it is a link.
        RunDirectoryError: The path is a URL of another kind.
        StoreError: The store refused or was not reached.
        OSError: The old seal cannot be removed.
    """
    if is_url(path):
        url = parse_url(os.fspath(path))
        then = look_stored(url)
        then.remove_seal()
        return Sealing(url, lambda: seal_stored(url, then=then))
    target = local_path(path).absolute()
    listing = look(target)
    if os.path.lexists(listing.place):
        if target.is_dir():
            require_foreign_seal(target)
        listing.place.unlink()
    return Sealing(target, lambda: write_seal(target, listing))
