"""Checkpoints of the JAX side: Orbax, separate items, asynchronous, restored through abstract templates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import Mesh

from jax_side.mesh import replicated
from parity import plan, policy
from parity.curves import plain
from parity.errors import CheckpointError
from parity.rundir import RunDirectory, Scan
from parity.spec import RunSpec
from parity.trainer import Which

if TYPE_CHECKING:
    from jax_side.train import DeviceState

__all__ = ["Checkpoints", "examine"]

ITEMS = {
    "params": "params",
    "model_state": "buffers",
    "optimizer": "optimizer",
    "scaler": "scaler",
    "rng": "rngs",
}
"""Orbax item to the field of DeviceState it holds; an item without leaves is not written."""


def examine(path: Path) -> float | None:
    """Return the metric of a whole checkpoint.

    Raises:
        CheckpointError: It lacks Orbax's commit marker, an item, or a readable description of itself.
    """
    if not (path / "_CHECKPOINT_METADATA").is_file():
        raise CheckpointError("has no commit marker")
    try:
        meta = json.loads((path / "meta" / "metadata").read_text(encoding="utf-8"))
        step, items = meta["step"], meta["items"]
        metric = None if meta["metric"] is None else float(meta["metric"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"its meta item cannot be read: {error}") from error
    if step != int(path.name):
        raise CheckpointError(f"holds step {step}")
    missing = [item for item in items if not (path / item / "_METADATA").is_file()]
    if missing:
        raise CheckpointError(f"lacks the items {', '.join(missing)}")
    return metric


class Checkpoints:
    """The checkpoints of one run, by Orbax's CheckpointManager under our own policy."""

    def __init__(self, spec: RunSpec, directory: Path, mesh: Mesh) -> None:
        self.spec, self.mesh = spec, mesh
        self.run = RunDirectory(directory)
        self._policy = _Policy(spec)
        self._manager: ocp.CheckpointManager | None = None

    @property
    def manager(self) -> ocp.CheckpointManager:
        """Return the manager, opened on first use: opening it removes the leftovers of unfinished saves."""
        if self._manager is None:
            self.run.checkpoints.mkdir(parents=True, exist_ok=True)
            self._policy.metrics = {saved.step: saved.metric for saved in self.scan().whole}
            options = ocp.CheckpointManagerOptions(
                preservation_policy=self._policy, enable_async_checkpointing=True, create=False
            )
            handlers = {item: ocp.StandardCheckpointHandler() for item in ITEMS}
            self._manager = ocp.CheckpointManager(
                self.run.checkpoints.resolve(),
                options=options,
                item_handlers={**handlers, "meta": ocp.JsonCheckpointHandler()},
            )
        return self._manager

    def save(self, step: int, state: DeviceState, scalars: dict[str, Any], metric: float | None) -> None:
        """Start an asynchronous save; waits for the one before, so at most one is under way.

        Raises:
            CheckpointError: The manager declined.
        """
        self.wait()
        items = {item: tree for item, tree in _items(state).items() if jax.tree.leaves(tree)}
        meta = {"step": step, "metric": plain(metric), "items": sorted(items), "scalars": scalars}
        saves = {item: ocp.args.StandardSave(tree) for item, tree in items.items()}
        args = ocp.args.Composite(**saves, meta=ocp.args.JsonSave(meta))
        manager = self.manager  # opening it reads the metrics of the checkpoints that are there
        if step in manager.all_steps():
            raise CheckpointError(f"{self.run.checkpoints / str(step)} exists already; it is not overwritten")
        self._policy.metrics[step] = metric
        if not manager.save(step, args=args, force=True):
            raise CheckpointError(f"Orbax declined to save step {step}; it holds {manager.all_steps()}")

    def scan(self) -> Scan:
        """Look at what is on disk; Orbax's own list is not asked."""
        return self.run.scan(examine)

    def restore(self, which: Which, template: DeviceState) -> tuple[int, DeviceState, dict[str, Any]]:
        """Load a checkpoint into the structure, dtypes and shardings of a template.

        Returns:
            Its step, the state on this trainer's mesh, and the JSON scalars saved with it.

        Raises:
            CheckpointError: There is none, or a leaf has another dtype or shape than the template's.
        """
        self.wait()
        step = self.run.choose(self.scan(), which, self.spec.metric)
        items = {item: tree for item, tree in _items(template).items() if jax.tree.leaves(tree)}
        sharding = replicated(self.mesh)
        abstract = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding), items)
        args = {item: ocp.args.StandardRestore(tree) for item, tree in abstract.items()}
        try:
            self._check_types(step, abstract)
            found = self.manager.restore(step, args=ocp.args.Composite(**args, meta=ocp.args.JsonRestore()))
            found["meta"]["scalars"].keys()
        except CheckpointError:
            raise
        except Exception as error:  # Orbax and TensorStore have no common error for a damaged file
            raise CheckpointError(f"checkpoint of step {step} cannot be restored: {error}") from error
        fields = {ITEMS[item]: found[item] for item in items}
        restored = template._replace(**_owned(fields))
        self.close()  # newer steps may now be moved away: the next manager lists anew
        return step, restored, found["meta"]["scalars"]

    def _check_types(self, step: int, abstract: dict[str, Any]) -> None:
        """Refuse a leaf of another dtype: Orbax would cast it without a word (int32 to float32, say)."""
        for item, tree in abstract.items():
            saved = self.manager.item_metadata(step)[item]
            expected, found = (_named_types(t) for t in (tree, saved.tree))
            for name in sorted({*expected, *found}):
                if expected.get(name) != found.get(name):
                    raise CheckpointError(
                        f"checkpoint of step {step}, {item}.{name}: expected {expected.get(name)}, "
                        f"found {found.get(name)}"
                    )

    def wait(self) -> None:
        """Return when the save under way is durable, and point `latest.json` and `best.json` at what is there."""
        if self._manager is not None:
            self._manager.wait_until_finished()
            self.run.point(self.scan(), self.spec.metric)

    def close(self) -> None:
        """Wait, and stop Orbax's threads."""
        self.wait()
        if self._manager is not None:
            self._manager.close()
            self._manager = None


class _Policy:
    """Our policy in the form Orbax asks for: one bool per checkpoint."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.metrics: dict[int, float | None] = {}

    def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> Sequence[bool]:
        """Keep what `policy.kept` keeps."""
        del context
        saved = [policy.Saved(step=c.step, metric=self.metrics.get(c.step)) for c in checkpoints]
        keep = policy.kept(saved, plan.keeping(self.spec))
        return [c.step in keep for c in checkpoints]


def _items(state: DeviceState) -> dict[str, Any]:
    return {item: getattr(state, name) for item, name in ITEMS.items()}


def _owned(tree: Any) -> Any:
    """Copy restored arrays into buffers of their own: they are donated to the next chunk."""
    return jax.tree.map(lambda a: a if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else jnp.copy(a), tree)


def _named_types(tree: Any) -> dict[str, str]:
    """Return leaf name to `dtype[shape]`, whatever container holds it (Orbax describes NNX states as dicts)."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    out = {}
    for path, leaf in leaves:
        name = ".".join(str(getattr(p, "key", getattr(p, "name", getattr(p, "idx", p)))) for p in path)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):  # Orbax writes a typed key as its words
            leaf = jax.eval_shape(jax.random.key_data, leaf)
        out[name] = f"{leaf.dtype}{list(leaf.shape)}"
    return out
