"""Faults of retention and pointers, planted into a twin's own; an audit of the run directory finds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from parity import policy
from parity.runs import RunDirectory
from parity.spec import RunSpec

__all__ = ["ACCURACY", "BY_AUDIT", "audit"]

ACCURACY = {10: 0.9, 20: 0.5, 30: 0.6, 40: 0.7, 50: 0.8, 60: 0.65}
"""A run whose best checkpoint is its oldest, and whose newest is not its second best."""

Choose = Callable[[list[policy.Saved], RunSpec], set[int]]


def audit(run: RunDirectory, spec: RunSpec) -> list[str]:
    """Return how a run directory departs from the policy, given every checkpoint that was ever saved."""
    saved = [policy.Saved(step=step, metric=metric) for step, metric in ACCURACY.items() if step <= spec.steps]
    keep = policy.kept(saved, spec.plan.keep)
    found = {s.step for s in run.store.scan().whole}
    out = [f"lost {step}" for step in sorted(keep - found)] + [f"left {step}" for step in sorted(found - keep)]
    for name, right in (("latest", policy.latest(saved)), ("best", policy.best(saved, "max"))):
        pointer = run.path / f"{name}.json"
        step = json.loads(pointer.read_text())["step"] if pointer.exists() else None
        if right is None or step != right.step:
            out.append(f"{name} points to {step}")
    return out


def _keeping(choose: Choose) -> Any:
    """Return a plant that retains what `choose` returns of what is there."""

    def plant(trainer: Any) -> None:
        checkpoints, spec = trainer.checkpoints, trainer.spec

        def retain() -> None:
            whole = checkpoints.store.scan().whole
            for gone in {s.step for s in whole} - choose(whole, spec):
                shutil.rmtree(checkpoints.store.path / str(gone))
            checkpoints.store.point(checkpoints.store.scan(), spec.plan)

        checkpoints._retain = retain

    return plant


def _newest_only(saved: list[policy.Saved], spec: RunSpec) -> set[int]:
    return {s.step for s in sorted(saved, key=lambda s: s.step)[-spec.save.keep_latest :]}


def _best_only(saved: list[policy.Saved], spec: RunSpec) -> set[int]:
    n = spec.save.keep_latest + spec.save.keep_best
    return {s.step for s in sorted(saved, key=lambda s: (s.metric or 0.0, s.step))[-n:]}


def _none(saved: list[policy.Saved], spec: RunSpec) -> set[int]:
    """Read "keep all" as a number, -1, that every count exceeds."""
    return set()


def _metrics_forgotten(trainer: Any) -> None:
    """Know no metric of a checkpoint saved before the restart."""
    own: set[int] = set()
    save = trainer.save

    def remembering(metric: float | None) -> None:
        own.add(trainer.step)
        save(metric)

    def choose(saved: list[policy.Saved], spec: RunSpec) -> set[int]:
        known = [s if s.step in own else policy.Saved(step=s.step, metric=None) for s in saved]
        return policy.kept(known, spec.plan.keep)

    trainer.save = remembering
    _keeping(choose)(trainer)


def _latest_follows_best(trainer: Any) -> None:
    store = trainer.checkpoints.store
    point = store.point

    def linked(scan: Any, plan: Any, keep: Any = None) -> None:
        point(scan, plan, keep)
        if (store.home / "best.json").exists():
            shutil.copy(store.home / "best.json", store.home / "latest.json")

    store.point = linked


BY_AUDIT = {
    "rotation_deletes_best": (_keeping(_newest_only), "lost 10"),
    "best_fn_evicts_latest": (_keeping(_best_only), "lost 60"),
    "keep_all_deletes_all": (_keeping(_none), "checkpoints/ holds none"),
    "topk_list_not_restored": (_metrics_forgotten, "lost 10"),
    "last_links_to_best": (_latest_follows_best, "latest points to 10"),
}
"""Id to the plant and to what the audit must say of it."""
