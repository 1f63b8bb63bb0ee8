"""Checkpoints of the JAX side: Orbax, separate items, asynchronous, restored through abstract templates."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from jax_side.formats.described import read_label
from jax_side.formats.description import DESCRIPTION
from jax_side.formats.items import ITEMS, read_items
from jax_side.formats.ocdbt import places
from jax_side.formats.orbax_handler import PROCESS_FILES, gather
from jax_side.formats.orbax_manager import DRAFT_SUFFIX, drafts, open_manager, reason
from jax_side.placement import Placement
from jax_side.sharding import state_shardings
from jax_side.shards import digest_shards
from jax_side.snapshot import Snapshot
from jax_side.state import DeviceState, export_arrays, neutral_parts, stored_names
from parity import checkpoints, storage
from parity.checkpoints import SaveUnderWay, Seal, require_leaves
from parity.errors import CheckpointError
from parity.runs import RunDirectory
from parity.state import TrainingState, leaf_digests, memory_orders, orders_of
from parity.storage import BLOCK, list_files
from parity.twins import Layout

__all__ = ["Checkpoints"]

SETTLE_SECONDS = 1.0
"""Longest the removal of what a failed save left is tried; the next start removes it in any case."""


class Checkpoints(checkpoints.Checkpoints[DeviceState, DeviceState, Snapshot]):
    """The checkpoints of one run, written by Orbax's CheckpointManager, sealed and evicted by the suite.

    Args:
        layout: Layout of the run's state.
        directory: The run directory.
        spec_hash: Hash of the run: every seal has it, and a checkpoint with another is not restored.
        placement: Devices that a restored state is put on.
    """

    side, meta = "jax", "meta/metadata"

    def __init__(self, layout: Layout, directory: Path, spec_hash: str, placement: Placement) -> None:
        spec = layout.spec
        store = RunDirectory(directory, drafts=drafts).store
        super().__init__(store, spec.plan, spec_hash, spec.execution.save_priority)
        self._layout, self._placement = layout, placement
        self._saves: dict[int, SaveUnderWay[Snapshot]] = {}
        """The save under way, by its step."""
        self._manager: ocp.CheckpointManager | None = None

    def _opened(self) -> ocp.CheckpointManager:
        """Return the manager, opened on first use."""
        if self._manager is None:
            storage.make_directory(self.store.path)
            self._manager = open_manager(self.store.path, [*ITEMS], self._seal)
        return self._manager

    def wait(self) -> None:
        """Return when the save under way is durable.

        Raises:
            SaveError: It failed; raised once.
        """
        super().wait()
        for save in self._saves.values():  # of several processes
            with self._failing(save):
                self._opened().wait_until_finished()
        self._saves = {}

    def close(self) -> None:
        """Wait, and stop Orbax's threads.

        Raises:
            SaveError: The save under way failed.
        """
        self.wait()
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def written(self, step: int) -> dict[str, dict[int, int]]:
        """Return what this process wrote of a checkpoint that several have written: Orbax names its files by it."""
        if jax.process_count() == 1 or not (self.store.path / str(step)).is_dir():
            return {}
        own = f"/{PROCESS_FILES.format(jax.process_index())}/"
        files = {name: size for name, size in list_files(self.store.path / str(step)).items() if own in f"/{name}"}
        return {name: dict.fromkeys(range(-(-size // BLOCK)), min(size, BLOCK)) for name, size in files.items()}

    def _snapshot(self, state: DeviceState, spare: Snapshot | None) -> Snapshot:
        return Snapshot(self._layout, state, spare)

    def _start(self, save: SaveUnderWay[Snapshot]) -> None:
        if jax.process_count() == 1:
            super()._start(save)
            return
        with self._failing(save):  # several processes wait for each other in it, each in the thread that computes
            self._digest(save)
            self._hand_over(save)

    def _digest(self, save: SaveUnderWay[Snapshot]) -> None:
        """Digest with the other processes what lies in several; the seal has the leaves in their usual order."""
        parts = neutral_parts(self._layout, save.snapshot.content)
        if shared := digest_shards(parts):
            arrays, counts = save.snapshot.neutral()
            neutral = TrainingState(arrays=arrays, scalars={**save.scalars, **counts})
            known = {**leaf_digests(neutral, memory_orders(neutral)), **shared}
            names = [f"{group}.{row.name}" for group, rows, _ in parts for row in rows]
            save.put_leaves({name: known[name] for name in dict.fromkeys((*names, *arrays, *neutral.scalars))})

    def _write(self, save: SaveUnderWay[Snapshot]) -> None:
        """Let Orbax write; its threads have the priority of this one, which opens the manager."""
        with ThreadPoolExecutor(1, thread_name_prefix="digest") as beside:
            beside.submit(save.leaves)  # what fails in it is raised again when the seal is made
            self._hand_over(save)
        self._saves = {}

    def _hand_over(self, save: SaveUnderWay[Snapshot]) -> None:
        self._saves = {save.step: save}
        items, label = _items(save.snapshot.content), save.label()
        saves = {item: ocp.args.PyTreeSave(tree, custom_metadata=label) for item, tree in items.items()}
        meta = ocp.args.JsonSave({**save.meta(), "items": sorted(items)})
        manager = self._opened()
        if not manager.save(save.step, args=ocp.args.Composite(**saves, meta=meta), force=True):
            raise CheckpointError(f"Orbax declined to save step {save.step}; it holds {manager.all_steps()}")

    def _seal(self, step: int, draft: Path) -> None:
        """Seal and commit a step that Orbax has finished writing; in its thread, of process 0."""
        save = self._saves[step]
        leaves = save.leaves()
        names = stored_names(self._layout, leaves)
        self._commit(save, draft, gather(draft, ITEMS), places(draft, ITEMS, names, leaves))

    def _read(
        self, path: Path, state: DeviceState, *, sealed: bool
    ) -> tuple[DeviceState, checkpoints.Neutral, checkpoints.Labels]:
        self.close()  # newer steps may now be moved away: the next manager lists anew
        items = _items(state)
        abstract = jax.tree.map(
            lambda a, sharding: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding),
            items,
            state_shardings(self._placement, items),
        )
        try:
            found = read_items(path, abstract, sealed=sealed)
        except CheckpointError:
            raise
        except Exception as error:  # Orbax and TensorStore have no common error for a damaged file
            raise CheckpointError(f"checkpoint of step {path.name} cannot be restored: {error}") from error
        content = state._replace(**{ITEMS[item]: found[item] for item in found})
        labels: checkpoints.Labels = {f"{item}/{DESCRIPTION}": read_label(path / item) for item in found}
        return content, export_arrays(self._layout, content, copy=False, shared=False), labels

    def _require_sealed(
        self, seal: Seal | None, path: Path, state: DeviceState, content: DeviceState, loaded: TrainingState
    ) -> None:
        del path, state
        if seal is not None:
            orders = orders_of(seal.leaves)
            shared = digest_shards(neutral_parts(self._layout, content), orders)
            require_leaves(seal, {**leaf_digests(loaded, orders, seal.schema), **shared})

    def _reason(self, error: Exception, step: int) -> str:
        return reason(error, "write", self.store.path / f"{step}{DRAFT_SUFFIX}")

    def _abort(self) -> None:
        """Drop a manager whose save failed; its own state is not to be trusted, and the next one lists anew."""
        manager, self._manager, self._saves = self._manager, None, {}
        if manager is not None and jax.process_count() == 1:  # of several, the others would be waited for
            with suppress(Exception):  # it would raise the same error again
                manager.close()
        until = time.monotonic() + SETTLE_SECONDS
        while jax.process_index() == 0 and time.monotonic() < until:
            try:
                self.store.clean()
                return
            except OSError:  # TensorStore may still be writing into it
                time.sleep(0.05)


def _items(state: DeviceState) -> dict[str, Any]:
    """Return the items of a state, those that have leaves."""
    items = {item: getattr(state, name) for item, name in ITEMS.items()}
    return {item: tree for item, tree in items.items() if jax.tree.leaves(tree)}
