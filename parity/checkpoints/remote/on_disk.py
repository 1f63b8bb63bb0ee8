"""What a URL names, on disk while it is used: a run with one of its checkpoints, or a checkpoint of another tool.

Temporary files are below `TMPDIR`; what is fetched of a run was compared with its seal as it arrived.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from parity import policy, storage
from parity.checkpoints.beside import read_seal_beside, seal_beside
from parity.checkpoints.remote.fetching import choose_row, fetch
from parity.checkpoints.remote.head import RemoteCheckpoint, RemoteHead
from parity.checkpoints.remote.lease import read_head
from parity.checkpoints.seal import LONE
from parity.errors import CheckpointError, ParityError, StoreMissingError
from parity.formats import recognise
from parity.policy import Which
from parity.storage.stores import Objects, StoreUrl, Version, download, open_store

__all__ = ["Located", "assemble_run", "fetched_foreign", "locate", "name_of", "on_disk"]

STEPS = "checkpoints"

_FETCHED: dict[str, str] = {}
"""Where something is fetched to at present, to its URL; of each pair the longer path first."""


@dataclass(frozen=True)
class Located:
    """What a URL names."""

    store: Objects
    """The prefix of the run, or the place itself."""
    head: RemoteHead | None = None
    """Of the run; None for what is not ours."""
    step: int | None = None
    """The step, where one is named."""

    def row(self, which: Which, mode: policy.Mode | None) -> RemoteCheckpoint:
        """Return the checkpoint of the run that is named, or else the one that is asked for.

        Raises:
            CheckpointError: It is not there.
        """
        assert self.head is not None
        return choose_row(self.head, which if self.step is None else self.step, mode, self.store)


def locate(url: StoreUrl) -> Located:
    """Return what a URL names: a run, the checkpoint of a step of one, or something else.

    Raises:
        CheckpointError: The head of the run is damaged.
        StoreError: The store refused or was not reached.
    """
    store = open_store(url)
    store.look_around()
    if (head := read_head(store)) is not None:
        return Located(store, head)
    if url.parent.name == STEPS and url.name.isdigit() and url.parent.key:
        run = store.up().up()
        if (head := read_head(run)) is not None:
            return Located(run, head, int(url.name))
    return Located(store)


@contextmanager
def on_disk(
    url: StoreUrl, which: Which = "latest", mode: policy.Mode | None = None, *, run: bool = False
) -> Iterator[Path]:
    """Fetch what a URL names, and yield where it lies until the block ends.

    Args:
        url: A run, which is fetched with one checkpoint; the checkpoint of a step; or a checkpoint of another tool.
        which: Of a run, the checkpoint.
        mode: By what its best is the best.
        run: Whether the directory of a run is wanted, with its records; else the checkpoint in it.

    Raises:
        DamagedError: It is not what was sealed.
        CheckpointError: It is not there.
        StoreError: The store refused or was not reached.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as home:
        found = locate(url)
        place = Path(home, "fetched", found.store.url.name)
        place.parent.mkdir()
        with _called(place, found.store.url):
            if found.head is None:
                path, _ = _fetch_foreign(found.store, place.parent)
                yield path
                return
            row = found.row(which, mode)
            draft = Path(home, "draft")
            draft.mkdir()
            fetch(found.store, row, draft)
            assemble_run(draft, place, row.step)
            alone = found.step is not None or found.head.run == LONE  # a tree by itself is no run
            yield place if run and not alone else place / STEPS / str(row.step)


@contextmanager
def fetched_foreign(url: StoreUrl) -> Iterator[tuple[Path, dict[str, Version]]]:
    """Fetch what is not ours, and yield where it lies until the block ends, with the version of each object.

    Args:
        url: One object, which is fetched with the files that belong to it, or a place, with all objects below it.

    Raises:
        CheckpointError: Nothing is there.
        StoreError: The store refused or was not reached.
    """
    with tempfile.TemporaryDirectory(prefix="parity-") as home:
        place = Path(home, "fetched", url.name)
        place.parent.mkdir()
        with _called(place, url):
            yield _fetch_foreign(open_store(url), place.parent)


def name_of(path: Path) -> str:
    """Return what people call a path: its URL while it is what `on_disk` fetched, and else the path."""
    return _renamed(str(path))


@contextmanager
def _called(place: Path, url: StoreUrl) -> Iterator[None]:
    """Have errors of the block, and `name_of`, say the URL in place of where it is fetched to."""
    rows = {str(place): str(url), str(place.parent): str(url.parent)}
    _FETCHED.update(rows)
    try:
        yield
    except ParityError as error:
        error.args = tuple(_renamed(one) if isinstance(one, str) else one for one in error.args)
        raise
    finally:
        for one in rows:
            del _FETCHED[one]


def _renamed(text: str) -> str:
    for place, url in list(_FETCHED.items()):
        text = text.replace(place, url)
    return text


def assemble_run(draft: Path, run: Path, step: int) -> None:
    """Make the directory of a run of what `fetch` brought; it is durable, and whole or not there.

    Args:
        draft: Where it lies; removed.
        run: The directory, which does not exist.
        step: The step of the checkpoint.

    Raises:
        OSError: Something could not be moved.
    """
    records = draft / "records"
    (records / STEPS).mkdir()
    storage.move(draft / "files", records / STEPS / str(step))
    storage.fsync_tree(records)
    storage.move(records, run)
    shutil.rmtree(draft)


def _fetch_foreign(store: Objects, home: Path) -> tuple[Path, dict[str, Version]]:
    """Fetch what is not ours: one object with the files that belong to it, or all objects below a place.

    Args:
        store: The place.
        home: An empty directory.

    Returns:
        Where it lies, and the version of each object, by its key relative to the place or, for a single one, to the
        place above.

    Raises:
        CheckpointError: Nothing is there.
        StoreError: The store refused or was not reached.
    """
    listing = store.list()
    if listing:
        root = home / store.url.name
        root.mkdir()
        download(store, {key: entry.size for key, entry in listing.items()}, root)
        return root, {key: entry.version for key, entry in listing.items()}
    above, name = store.up(), store.url.name
    path = home / name
    try:
        versions = _fetch_beside(above, [name], home)
    except StoreMissingError as error:
        raise CheckpointError(f"{store.url}: nothing is there") from error
    with suppress(StoreMissingError):
        versions |= _fetch_beside(above, [seal_beside(path).name], home)
    for one in _belonging(path):
        with suppress(StoreMissingError):  # what reads the file, or its seal, says that it is missing
            versions |= _fetch_beside(above, [one], home)
    return path, versions


def _belonging(path: Path) -> list[str]:
    """Return the files that belong to one: those that its seal names, for which the file itself may be damaged."""
    try:
        return [name for name in read_seal_beside(path).files if name != path.name]
    except CheckpointError:
        return [] if recognise(path).beside is None else _named(path)


def _named(index: Path) -> list[str]:
    """Return the files that an index names; they are not there yet, so that it cannot be asked itself."""
    where = storage.read_json(index).get("weight_map")
    names = sorted({str(one) for one in where.values()}) if isinstance(where, dict) else []
    if bad := [name for name in names if "/" in name or name in ("", ".", "..")]:
        raise CheckpointError(f"{index.name} names the file {bad[0]!r}, which does not lie beside it")
    return names


def _fetch_beside(above: Objects, names: list[str], home: Path) -> dict[str, Version]:
    entries = {name: above.look(name) for name in names}
    download(above, {name: entry.size for name, entry in entries.items()}, home)
    return {name: entry.version for name, entry in entries.items()}
