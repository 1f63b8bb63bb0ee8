"""Checkpoints of the JAX side: Orbax, separate items, asynchronous, sealed, restored through abstract templates."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from jax_side.formats.items import handler, read_items
from jax_side.mesh import replicated
from jax_side.processes import barrier
from jax_side.seal import (
    DRAFT_SUFFIX,
    drafts,
    gather,
    places,
    readable_steps,
    reason,
    sealing_path,
    wake_waiting_threads,
)
from jax_side.snapshot import Snapshot
from jax_side.state import stored_names
from parity import policy, storage
from parity.checkpoints import Restored, Scan, Seal, after_save, commit, read_scalars, require_own, require_verified
from parity.contract import TrainingState, leaf_digests, memory_orders
from parity.environment import versions
from parity.errors import CheckpointError, SaveError
from parity.policy import Which
from parity.runs import RunDirectory
from parity.spec import RunSpec
from parity.storage import REMOVED, Background, list_files, plain

if TYPE_CHECKING:
    from jax_side.train import DeviceState, JaxTrainer

__all__ = ["Checkpoints"]

ITEMS = {
    "params": "params",
    "model_state": "buffers",
    "optimizer": "optimizer",
    "scaler": "scaler",
    "rng": "rngs",
}
"""Orbax item to the field of DeviceState it holds; an item without leaves is not written."""

SETTLE_SECONDS = 1.0
"""Longest the leftovers of a failed save are tried to be removed; the next start removes them in any case."""

REMOVED_BY_ORBAX = f"{REMOVED}orbax"
"""Folder that evicted steps are renamed into: a kill in the middle of a removal leaves no half of one."""


@dataclass(frozen=True, kw_only=True)
class _Pending:
    """What the seal of a save under way needs to know."""

    metric: float | None
    snapshot: Snapshot
    scalars: dict[str, Any]
    """The host's half of the neutral state."""
    _leaves: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def leaves(self) -> dict[str, str]:
        """Return the digest of every leaf; made once, while Orbax writes, and its thread waits for them to seal."""
        with self._lock:
            if not self._leaves:
                arrays, counts = self.snapshot.neutral()
                neutral = TrainingState(arrays=arrays, scalars={**self.scalars, **counts})
                self._leaves.update(leaf_digests(neutral, memory_orders(neutral)))
            return self._leaves


class Checkpoints:
    """The checkpoints of one run, by Orbax's CheckpointManager under our own policy."""

    def __init__(self, spec: RunSpec, directory: Path, spec_hash: str, mesh: Mesh) -> None:
        self.spec, self.spec_hash, self.mesh = spec, spec_hash, mesh
        self.store = RunDirectory(directory, drafts=drafts).store
        self._policy = _Policy(spec)
        self._pending: dict[int, _Pending] = {}
        """The save under way, by its step."""
        self._spare: Snapshot | None = None
        self._last = 0
        """Step of the last save: what fails behind it, such as a removal, is told with its name."""
        self._committed = False
        """Whether that save has its final name; the background writes it, and `wait` comes before it is read."""
        self._manager: ocp.CheckpointManager | None = None
        self._background = Background(spec.execution.save_priority)

    @property
    def manager(self) -> ocp.CheckpointManager:
        """Return the manager, opened on first use."""
        if self._manager is None:
            storage.make_directory(self.store.path)
            options = ocp.CheckpointManagerOptions(
                preservation_policy=self._policy,
                enable_async_checkpointing=True,
                async_options=ocp.AsyncOptions(barrier_sync_fn=barrier()) if jax.process_count() > 1 else None,
                create=False,
                temporary_path_class=sealing_path(self.store.path, self._seal),
                todelete_subdir=REMOVED_BY_ORBAX,
                step_name_format=readable_steps(),
            )
            handlers = ocp.handlers.DefaultCheckpointHandlerRegistry()
            for item in ITEMS:
                handlers.add(item, ocp.args.PyTreeSave, handler())
            handlers.add("meta", ocp.args.JsonSave, ocp.JsonCheckpointHandler())
            self._manager = ocp.CheckpointManager(
                self.store.path.resolve(),
                options=options,
                handler_registry=handlers,
            )
        return self._manager

    def save(
        self,
        step: int,
        trainer: JaxTrainer,
        scalars: dict[str, Any],
        metric: float | None,
        saved_at: float | None = None,
    ) -> None:
        """Copy the state and write it in the background; waits for the save before, so one is under way at most.

        Raises:
            CheckpointError: There is a checkpoint of this step already.
            SaveError: The save before failed; or this one, of several processes (of one, the next wait tells).
        """
        self.wait()
        if (self.store.path / str(step)).exists():
            raise CheckpointError(f"{self.store.path / str(step)} exists already; it is not overwritten")
        snapshot, self._spare = Snapshot(trainer, self._spare), None
        items = {item: tree for item, tree in _items(snapshot.state).items() if jax.tree.leaves(tree)}
        meta = {"step": step, "metric": plain(metric), "items": sorted(items), "scalars": scalars}
        saves = {item: ocp.args.PyTreeSave(tree) for item, tree in items.items()}
        args = ocp.args.Composite(**saves, meta=ocp.args.JsonSave(meta))
        saved = policy.Saved(step=step, metric=metric, saved_at=time.time() if saved_at is None else saved_at)
        self._policy.known = [*self.scan().whole, saved]
        self._last, self._committed = step, False
        self._pending = {step: _Pending(metric=metric, snapshot=snapshot, scalars=scalars)}
        if jax.process_count() == 1:
            self._background.start(partial(self._write, step, args), f"save-{step}", snapshot.size)
            return
        try:
            self._write(step, args)  # several processes wait for each other in it, each in the thread that computes
        except Exception as error:
            self._abort()
            raise self._told(error) from error

    def scan(self) -> Scan:
        """Look at what is on disk; Orbax's own list is not asked."""
        return self.store.scan()

    def restore(self, which: Which, template: DeviceState) -> Restored[DeviceState]:
        """Verify a checkpoint and load it into the structure, dtypes and shardings of a template.

        One without a seal is loaded unverified, if it is named by its step.

        Returns:
            Its step, the state on this trainer's mesh, the JSON scalars saved with it, and its seal.

        Raises:
            DamagedError: It is not what was sealed, or is of another run.
            CheckpointError: There is none, a leaf has another dtype or shape than the template's, or a file points
                outside of the checkpoint.
        """
        self.wait()
        scan = self.scan()
        step = self.store.choose(scan, which, self.spec.plan)
        path = self.store.path / str(step)
        unsealed = step in {s.step for s in scan.unsealed}
        sealed = None if unsealed else require_verified(path)
        if sealed is not None:
            require_own(sealed, self.spec_hash)
        scalars = read_scalars(path / "meta" / "metadata")
        list_files(path)  # no links, where there is no seal to say so
        items = {item: tree for item, tree in _items(template).items() if jax.tree.leaves(tree)}
        sharding = replicated(self.mesh)
        abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), items)
        try:
            found = read_items(path, abstract, sealed=sealed is not None)
        except CheckpointError:
            raise
        except Exception as error:  # Orbax and TensorStore have no common error for a damaged file
            raise CheckpointError(f"checkpoint of step {step} cannot be restored: {error}") from error
        fields = {ITEMS[item]: found[item] for item in items}
        restored = template._replace(**fields)
        self.close()  # newer steps may now be moved away: the next manager lists anew
        return Restored(step, restored, scalars, sealed)

    def wait(self) -> None:
        """Return when the save under way is durable; raises SaveError if it failed."""
        try:
            self._background.wait()
            if self._manager is not None:
                self._manager.wait_until_finished()
                self._sweep()
        except SaveError:  # of what follows a save
            self._abort()
            raise
        except Exception as error:
            self._abort()
            raise self._told(error) from error
        for pending in self._pending.values():
            self._spare = pending.snapshot if jax.process_count() == 1 else None  # of several it holds live arrays
        self._pending = {}

    def close(self) -> None:
        """Wait, and stop Orbax's threads."""
        self.wait()
        if self._manager is not None:
            self._manager.close()
            self._manager = None

    def _write(self, step: int, args: Any) -> None:
        """Hand a save to Orbax, whose own threads write; they have the priority of the one that opens the manager."""
        pending = self._pending[step]
        if not self.manager.save(step, args=args, force=True):
            raise CheckpointError(f"Orbax declined to save step {step}; it holds {self.manager.all_steps()}")
        if jax.process_count() == 1:  # of several, this is the thread that trains
            pending.leaves()

    def _seal(self, step: int, draft: Path, final: Path) -> None:
        """Seal a step that Orbax has finished writing, give it its name, and point to it; in the background."""
        pending = self._pending[step]
        leaves = pending.leaves()
        known = Seal(
            step=step,
            metric=None if pending.metric is None else float(pending.metric),
            saved_at=self._policy.known[-1].saved_at,
            side="jax",
            spec_hash=pending.scalars["config.hash"],
            versions=versions(),
            files=gather(draft, ITEMS),
            leaves=leaves,
            places=places(draft, ITEMS, stored_names(self.spec, leaves), leaves),
        )
        self.store.sync()
        commit(draft, final, known)
        self._committed = True
        keep = policy.kept(self._policy.known, self.spec.plan.keep)  # as Orbax was told when this save began
        with after_save(step):
            self.store.point(self.scan(), self.spec.plan, keep)

    def _told(self, error: Exception) -> SaveError:
        """Return what became of the last save; once it has its final name, all that Orbax does is remove others."""
        saved = self._committed
        draft = self.store.path / f"{self._last}{DRAFT_SUFFIX}"
        return SaveError(self._last, reason(error, "remove" if saved else "write", draft), saved=saved)

    def _abort(self) -> None:
        """Drop a manager whose save failed; its own state is not to be trusted, and the next one lists anew."""
        manager, self._manager, self._pending = self._manager, None, {}
        if jax.process_count() == 1:
            wake_waiting_threads()
        if manager is not None and jax.process_count() == 1:  # of several, the others would be waited for
            with suppress(Exception):  # it would raise the same error again
                manager.close()
        until = time.monotonic() + SETTLE_SECONDS
        while jax.process_index() == 0 and time.monotonic() < until:
            try:
                self.store.clean()  # what it left takes up room on a disk that may be full
                return
            except OSError:  # TensorStore may still be writing into it
                time.sleep(0.05)

    def _sweep(self) -> None:
        """Remove what Orbax has moved out of the way, once that is storage."""
        removed = self.store.path / REMOVED_BY_ORBAX
        if jax.process_index() == 0 and removed.is_dir():
            storage.fsync_directory(self.store.path)
            with storage.named(removed, "remove"):
                shutil.rmtree(removed)


class _Policy:
    """Our policy in the form Orbax asks for: one bool per checkpoint."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.known: list[policy.Saved] = []
        """Every sealed checkpoint, and the one under way."""

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Keep what `policy.kept` keeps, and what has no seal: it is not ours to remove."""
        del context
        gone = {saved.step for saved in self.known} - policy.kept(self.known, self.spec.plan.keep)
        return [c.step not in gone for c in checkpoints]


def _items(state: DeviceState) -> dict[str, Any]:
    return {item: getattr(state, name) for item, name in ITEMS.items()}
