"""Trainers of Lightning, Hugging Face and Accelerate: what of them is state, under the names that users know.

Their classes are named, not imported. A trainer reaches its optimizer along many private ways; here it is shown by
the public one, so that a verdict says `trainer.optimizers[0]`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from parity.capture import Visit, Walk, register

__all__ = ["register_trainers"]

_LIGHTNING = ("lightning.pytorch", "pytorch_lightning")
"""The two names under which one package is installed."""
_CONNECTORS = frozenset(
    {
        "_accelerator_connector", "_callback_connector", "_checkpoint_connector", "_data_connector",
        "_logger_connector", "_signal_connector", "_loggers", "callbacks", "predict_loop", "profiler", "state",
        "test_loop", "validate_loop",
    }
)  # fmt: skip
"""Attributes of Lightning's trainer that are shown otherwise, or that training does not continue from."""
_LOOP_INTERNALS = frozenset({"trainer", "_data_fetcher", "_data_source", "_results", "_warning_cache", "val_loop"})


def _lightning(walk: Walk, path: str, trainer: Any) -> None:
    """Show optimizers, schedulers, scaler and callbacks of a Lightning trainer, then its loops and other parts."""
    if not walk.is_new(path, trainer, "trainer"):
        return
    for at, optimizer in enumerate(trainer.optimizers):
        walk.inside(f"{path}.optimizers[{at}]", optimizer)
    for at, entry in enumerate(trainer.lr_scheduler_configs):
        walk.inside(f"{path}.lr_schedulers[{at}]", entry.scheduler)
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is not None:
        walk.visit(f"{path}.scaler", scaler)
    for at, callback in enumerate(trainer.callbacks):
        walk.visit(f"{path}.callbacks[{at}]", callback)
    for name in ("strategy", "precision_plugin"):
        part = getattr(trainer, name)
        if not type(part).__module__.startswith(_LIGHTNING):  # of the user: it may hold state of its own
            walk.visit(f"{path}.{name}", part)
    for name, value in trainer.callback_metrics.items():
        walk.leaf(f"{path}.callback_metrics[{name!r}]", float(value), "metric", "scalar")
    _attributes(walk, path, trainer, _CONNECTORS)


def _loop(walk: Walk, path: str, loop: Any) -> None:
    """Show the progress of a loop of Lightning, without the way back to the trainer and without its metrics."""
    if walk.is_new(path, loop, "counters.step"):
        _attributes(walk, path, loop, _LOOP_INTERNALS)


def _progress(walk: Walk, path: str, progress: Any) -> None:
    """Show counters of Lightning: of batches begun and done; the check counts by the marks."""
    if walk.is_new(path, progress, "counters.step"):
        for name, value in vars(progress).items():
            if isinstance(value, bool | int):
                walk.leaf(f"{path}.{name}", value, "counters.step", "scalar")
            else:
                walk.visit(f"{path}.{name}", value)


def _loaders(walk: Walk, path: str, loaders: Any) -> None:
    """Show the loaders that Lightning draws from side by side."""
    if walk.is_new(path, loaders, "data.position"):
        for at, loader in enumerate(loaders.flattened):
            walk.visit(f"{path}.flattened[{at}]", loader)
        if loaders._iterator is not None:
            walk.visit(f"{path}.iterator", loaders._iterator)


def _iterators(walk: Walk, path: str, mode: Any) -> None:
    """Show how far Lightning's iterator over its loaders is: counted by this process, since it began."""
    if walk.is_new(path, mode, "data.position"):
        walk.inside_iterator(path)
        _attributes(walk, path, mode, ("iterables", "limits"))


def _hugging_face(walk: Walk, path: str, trainer: Any) -> None:
    """Show optimizer, scheduler and callbacks of a Hugging Face trainer, then its other attributes."""
    if not walk.is_new(path, trainer, "trainer"):
        return
    for name in ("optimizer", "lr_scheduler"):
        if getattr(trainer, name, None) is not None:
            walk.inside(f"{path}.{name}", getattr(trainer, name))
    for at, callback in enumerate(trainer.callback_handler.callbacks):
        walk.visit(f"{path}.callbacks[{at}]", callback)
    _attributes(walk, path, trainer, {"callback_handler", "_memory_tracker", "optimizer", "lr_scheduler"})


def _wrapper_of(name: str) -> Visit:
    """Return what shows an attribute of a wrapper instead of the wrapper.

    Lightning's around an optimizer copies attributes and does not keep them; Accelerate puts one around a sampler to
    skip its first batches, and none without a stop.
    """
    return lambda walk, path, wrapper: walk.inside(path, getattr(wrapper, name))


def _wrapped_by_accelerate(walk: Walk, path: str, wrapper: Any) -> None:
    """Show the optimizer that a wrapper of Accelerate holds, and its scaler."""
    walk.inside(path, wrapper.optimizer)
    if getattr(wrapper, "scaler", None) is not None:
        walk.visit(f"{path}.scaler", wrapper.scaler)


def _configuration(walk: Walk, path: str, config: Any) -> None:
    """Show what a model was configured with; `dtype` is set by saving."""
    if walk.is_new(path, config, "model.config"):
        for name, value in vars(config).items():
            if name != "dtype" and not name.startswith("_") and isinstance(value, bool | int | float | str):
                walk.leaf(f"{path}.{name}", value, "model.config", "scalar")


def _attributes(walk: Walk, path: str, value: Any, without: Iterable[str]) -> None:
    for name, attribute in vars(value).items():
        if name not in without:
            walk.visit(f"{path}.{name}", attribute)


def register_trainers() -> None:
    """Register them by their names."""
    for root in _LIGHTNING:
        register(f"{root}.trainer.trainer.Trainer", _lightning, order=1)
        register(f"{root}.loops.loop._Loop", _loop)
        register(f"{root}.loops.progress._BaseProgress", _progress)
        register(f"{root}.utilities.combined_loader.CombinedLoader", _loaders)
        register(f"{root}.utilities.combined_loader._ModeIterator", _iterators)
        register(f"{root}.core.optimizer.LightningOptimizer", _wrapper_of("optimizer"), order=1)
    register("transformers.trainer.Trainer", _hugging_face, order=1)
    register("accelerate.optimizer.AcceleratedOptimizer", _wrapped_by_accelerate, order=1)
    for name in ("PretrainedConfig", "PreTrainedConfig"):
        register(f"transformers.configuration_utils.{name}", _configuration)
    register("accelerate.data_loader.SkipBatchSampler", _wrapper_of("batch_sampler"))
    register("accelerate.scheduler.AcceleratedScheduler", _wrapper_of("scheduler"))
