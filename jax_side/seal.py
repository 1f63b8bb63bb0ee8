"""Orbax's save with a seal: digests by the process that wrote, places of leaves, and the seal before the rename."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.formats.ocdbt import Range, locate
from parity import storage
from parity.checkpoints import DRAFT, Place
from parity.errors import CheckpointError
from parity.storage import FileDigest, digest_files, digest_range, list_files, read_json

__all__ = [
    "DRAFT_SUFFIX",
    "DigestingHandler",
    "drafts",
    "gather",
    "places",
    "readable_steps",
    "reason",
    "sealing_path",
    "wake_waiting_threads",
]

DRAFT_SUFFIX = ".orbax-checkpoint-tmp"
"""What Orbax appends to the name of a directory that it is still writing."""
drafts = (f"*{DRAFT_SUFFIX}*",)
"""Patterns of the names that a save by Orbax leaves when it is cut short."""

READ_AGAIN = 64 << 10
"""Values of at most so many bytes are digested from the file: a counter has another type there than its leaf."""

SHARDS = "digests.process_{}.json"
"""What a process writes into the draft of an item: digests of its own files. Process 0 takes them out again."""


class DigestingHandler(ocp.PyTreeCheckpointHandler):
    """Orbax's handler; of several processes, each digests the files it wrote, right behind writing them.

    It is registered with no class of arguments: Orbax allows one handler of a name, and this one has Orbax's own.
    """

    @classmethod
    def typestr(cls) -> str:
        """Return the name that a checkpoint gives its handler by: who has Orbax alone can restore it then."""
        return str(ocp.PyTreeCheckpointHandler.typestr())

    async def async_save(self, directory: Any, *args: Any, **kwargs: Any) -> Any:
        """Save as Orbax does, and digest in the background."""
        futures = await super().async_save(directory, *args, **kwargs)
        return futures if jax.process_count() == 1 else [*(futures or []), _OwnDigests(futures or [], directory)]


class _OwnDigests:
    """A future that is done when the digests of this process's files are on disk."""

    def __init__(self, writing: Iterable[Any], directory: Any) -> None:
        self._writing, self._directory = list(writing), directory

    def result(self, timeout: float | None = None) -> None:
        """Wait for the writes, then digest."""
        for future in self._writing:
            future.result(timeout=timeout)
        item = Path(getattr(self._directory, "path", self._directory))
        index = jax.process_index()
        own = [name for name in list_files(item) if name.startswith(f"ocdbt.process_{index}/")]
        found = {name: [d.size, d.digest] for name, d in digest_files(item, own).items()}
        storage.write_file(item / SHARDS.format(index), json.dumps(found))


def gather(root: Path, items: Iterable[str]) -> dict[str, FileDigest]:
    """Return the digests that the processes left in a draft, and remove them from it; none of a single process.

    Raises:
        CheckpointError: A process left none.
    """
    found: dict[str, FileDigest] = {}
    if jax.process_count() == 1:
        return found
    for item in items:
        if not (root / item).is_dir():
            continue
        for index in range(jax.process_count()):
            path = root / item / SHARDS.format(index)
            if not path.exists():
                raise CheckpointError(f"process {index} left no digests of {item}")
            found |= {f"{item}/{name}": FileDigest(*value) for name, value in read_json(path).items()}
            path.unlink()
    return found


def places(
    root: Path, items: Iterable[str], names: Mapping[str, tuple[str, str]], leaves: Mapping[str, str]
) -> dict[str, tuple[Place, ...]]:
    """Return where the bytes of each leaf lie in the store of its item.

    An array that is one value of the store lies there as it is in memory, so the leaf's digest is the range's.

    Args:
        root: The checkpoint, or its draft.
        items: Items that are stores.
        names: Neutral leaf to item and array name.
        leaves: Neutral leaf to `type digest`, in the order the arrays have in memory.
    """
    stores = {item: locate(root / item) for item in items if (root / item).is_dir()}
    known: dict[tuple[str, Range], Place] = {}
    found: dict[str, tuple[Place, ...]] = {}
    for leaf, (item, name) in names.items():
        for r in stores.get(item, {}).get(name, ()):
            if (item, r) not in known:  # a node of the tree holds many leaves
                own = leaves[leaf].rpartition(" ")[2] if r.whole and r.size > READ_AGAIN else ""
                digest = own or digest_range(root / item / r.file, r.start, r.size)
                known[item, r] = Place(f"{item}/{r.file}", r.start, r.size, digest)
            found[leaf] = (*found.get(leaf, ()), known[item, r])
    return found


def reason(error: BaseException, operation: str, draft: Path) -> str:
    """Return why a save by Orbax failed, in one line: operation, file and the system's reason.

    Orbax names no file where a write fails. TensorStore's errors are chains of sentences, the innermost last, beside
    the whole specification of an array.

    Args:
        error: What it raised.
        operation: What it was doing, where the error does not say.
        draft: What it was writing, likewise.
    """
    text = re.sub(r" \[tensorstore_spec='.*?'\] ?", " ", str(error))
    code = re.search(r"os_error_code='(\d+)'", text)
    if code is None:
        return storage.reason(error, operation, draft)
    failed = re.findall(r"Failed (?:to )?([a-z]+)", text)
    files = re.findall(re.escape(str(draft.parent.resolve())) + r"[^\s\"'\\:]*", text)
    file = files[-1].rstrip("/") if files else draft
    return f"{failed[-1] if failed else operation} {file}: {os.strerror(int(code[1]))}"


def wake_waiting_threads() -> None:
    """End the threads of a failed save that wait for a signal nobody will send.

    Orbax 0.12 waits 300 s for directories that could not be made, in threads that keep the process from ending.
    """
    from orbax.checkpoint._src.futures import future

    for thread in threading.enumerate():
        if isinstance(thread, future._SignalingThread):
            thread.cancel()
            future.set_signals(
                thread._receive_signals, operation_id=thread._operation_id
            )  # wakes it: it is cancelled


def readable_steps() -> Any:
    """Return Orbax's own names of steps, without those whose description it cannot read.

    It reads the one of every step when a manager opens, and a single bad one would stop every save.
    """
    standard = ocp.path.step.standard_name_format()

    class Readable(type(standard)):  # type: ignore[misc]
        def find_all(self, base_path: Any) -> Any:
            return (step for step in super().find_all(base_path) if _has_description(Path(step.path)))

    return Readable(**{f.name: getattr(standard, f.name) for f in fields(standard)})


def _has_description(step: Path) -> bool:
    try:
        read_json(step / "_CHECKPOINT_METADATA")
    except CheckpointError:
        return False
    return True


def sealing_path(
    checkpoints: Path, seal: Callable[[int, Path, Path], None]
) -> type[ocp.path.atomicity.AtomicRenameTemporaryPath]:
    """Return Orbax's temporary path with one step more: a step is sealed before it gets its final name.

    Args:
        checkpoints: The directory of the steps.
        seal: Called in the background of process 0 with the step, its finished draft and its final path.
    """
    home = checkpoints.resolve()

    class SealedPath(ocp.path.atomicity.AtomicRenameTemporaryPath):
        async def finalize(self) -> None:
            chosen = self.get_final()
            final = Path(chosen)
            if final.parent != home:  # an item inside a step
                await super().finalize()
                return
            draft = final.with_name(f"{DRAFT}{final.name}-{os.getpid()}")
            self._final_path = type(chosen)(draft)  # Orbax writes its commit marker and renames
            try:
                await super().finalize()
            finally:
                self._final_path = chosen
            await asyncio.to_thread(seal, int(final.name), draft, final)

    return SealedPath
