"""Rows of a proposed map, compared with the map by hand: sure and right, sure and wrong, or not sure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parity.checks.models import MappedModels, map_opened, open_subjects
from parity.checks.models.inputs import BothInputs
from parity.checks.models.opening import ModelSource
from parity.checks.models.proof import carried, placed
from parity.mapping import LeafRule
from tests.ports.five import hugging, ported

__all__ = ["VARIANTS", "RowCount", "counted", "mapped"]

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    **{f"{name}, {'fused' if fused else 'split'}": (name, {"fused": fused}, False)
       for name in ported.MODELS for fused in (False, True)},
    **{f"{name}, {'untied' if usual else 'tied'}": (name, {"fused": False, "tied": not usual}, False)
       for name, usual in (("gpt2", True), ("llama", False), ("bert", True))},
    **{f"{name}, stacked": (name, {"fused": name == "gpt2", "stacked": True}, False) for name in ported.MODELS},
    **{f"{name}, without names": (name, {"fused": name == "gpt2"}, True) for name in ported.MODELS},
}  # fmt: skip
"""Text to the model, the options of its port, and whether the port is a flat tree with drawn names."""


@dataclass(frozen=True)
class RowCount:
    """What became of the rows of one map."""

    rows: int
    right: int
    """Sure, and every element goes where the map by hand has it."""
    wrong: int
    """Sure, and one does not."""
    seconds: float
    verdict: str

    @property
    def share(self) -> float:
        """Return the part of the rows that are sure and right."""
        return self.right / self.rows


def mapped(
    variant: str, layers: int = hugging.LAYERS, exchange: tuple[str, str] | None = None
) -> tuple[MappedModels, RowCount]:
    """Return the proposed map of a variant and its proof, and the count of its rows.

    Args:
        variant: One of `VARIANTS`.
        layers: Of both models.
        exchange: A planted fault: two leaves of the port whose rows change places before they are counted.
    """
    name, options, nameless = VARIANTS[variant]
    tied = {"tied": options["tied"]} if "tied" in options else {}
    made, truth = lambda: ported.MODELS[name](layers=layers, **options), None
    if nameless:
        made, truth = ported.anonymous(made, seed=3)
    inputs = BothInputs(*hugging.INPUTS[name])
    began = time.perf_counter()
    subjects = open_subjects(
        ModelSource("--torch", name, hugging.MODELS[name], (), {"layers": layers, **tied}),
        ModelSource("--jax", f"{name} in NNX", made),
        inputs,
    )
    found = map_opened(subjects, None, None)
    seconds = time.perf_counter() - began
    if exchange is not None:
        found = _exchanged(found, *exchange)
    usual = name != "llama"
    return found, counted(name, options, found, subjects, truth, options.get("tied", usual), seconds)


def _exchanged(found: MappedModels, one: str, other: str) -> MappedModels:
    assert found.found is not None
    turned = {(one,): (other,), (other,): (one,)}
    rows = tuple(
        replace(row, second=turned[row.second], rule=row.rule and replace(row.rule, target=turned[row.second]))
        if row.second in turned
        else row
        for row in found.found.rows
    )
    return replace(found, found=replace(found.found, rows=rows))


def counted(
    name: str, options: Mapping[str, Any], found: MappedModels, subjects: Any, truth: Mapping[str, str] | None,
    tied: bool, seconds: float,
) -> RowCount:  # fmt: skip
    """Return how many rows of a map are sure and right, by values of which no two are equal."""
    assert found.found is not None
    first, held, start = subjects.first, {}, 0
    for leaf, value in first.leaves.items():
        held[leaf] = np.arange(start, start + value.size, dtype=np.float64).reshape(value.shape)
        start += value.size
    keys = {key: value for key, value in options.items() if key in ("fused", "stacked")}
    under = held | {name: held[leaf] for leaf, names in first.ties.items() for name in names}
    wanted = ported.by_hand(name, under, tied=tied, **({"fused": False} | keys))
    assert set(subjects.second.leaves) == set(truth or wanted), "the map by hand has other leaves"
    right = wrong = 0
    for row in found.found.rows:
        if row.sure and row.rule is not None:
            good = _is_right(subjects, row.rule, held, wanted, truth)
            right, wrong = right + good, wrong + (not good)
    return RowCount(len(found.found.rows) + len(found.found.alone), right, wrong, seconds, found.verdict)


def _is_right(
    subjects: Any, rule: LeafRule, held: Mapping[str, Any], wanted: Mapping[str, Any], truth: Mapping[str, str] | None
) -> bool:
    placements, _ = placed(subjects, [rule])
    own = [one for one in placements if one.rule is rule]
    made = carried(subjects.first, own, held)
    return bool(made) and all(
        np.array_equal(value, wanted[truth[path] if truth else path]) for path, value in made.items()
    )
