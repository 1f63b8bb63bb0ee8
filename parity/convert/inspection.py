"""What a checkpoint holds, and what a resume from it would miss: as data, from its description alone."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from parity.convert.assigning import parts_of
from parity.convert.branches import branches
from parity.convert.components import STEP_NAMES, Fact, Part
from parity.convert.torch_names import is_buffer
from parity.errors import CheckpointError
from parity.formats import Array, InMemory, Key, Opaque, Source, count_of, decode_tree, leaf_name

__all__ = ["ComponentTotals", "Inspection", "ParameterCounts", "TreeRow", "inspect_source"]

NEEDED = {
    "optimizer": "moments and step of every parameter would start at zero",
    "schedule": "the learning rate would start over, unless the loop computes it from the step",
    "loss scaler": "a run in float16 would search its loss scale again",
    "random streams": "dropout and augmentation would draw other numbers",
    "data position": "batches would be repeated or left out",
    "counters": "the run would not know its step",
}
"""Component to what happens where it is missing."""

MOST_ALONE = 4
"""A list of at least so many scalars is one row."""

_SEALED = {
    **{"model": "parameters", "optimizer": "optimizer", "schedule": "schedule", "scaler": "loss scaler"},
    **{"rng": "random streams", "data": "data position", "counters": "counters", "best": "best so far"},
}
"""First word of a neutral leaf of a seal to its component: what a seal names is read, not inferred."""

MANAGED = "@tree"
"""Leaf of the seal of a manager's checkpoint that describes its tree."""

_COLLECTIONS = frozenset({"buffers", "batch_stats"})
"""Keys of what is in the model and not trained: of a conversion, and of Flax."""

_SOME_ARRAY = InMemory(np.zeros(()))
"""Stands for each array that a document refers to."""

_NUMBER = re.compile(r"(?<![0-9A-Za-z_])\d+(?![0-9A-Za-z_])")


MODELS = {"parameters", "averaged parameters"}
"""Components whose arrays a model computes with."""


@dataclass(frozen=True)
class TreeRow:
    """Leaves that differ in numbers of their names alone: one row of the tree."""

    name: str
    """Name, `*` for the numbers in which they differ."""
    kind: str
    """Type of an array, such as `float32[2,3]`, or the value of a scalar."""
    count: int
    nbytes: int


@dataclass(frozen=True)
class ParameterCounts:
    """What the arrays of a model are; one that has several names is counted once."""

    parameters: int
    elements: int
    """Of the parameters."""
    buffers: int
    buffer_elements: int
    evidence: str
    """What tells buffers from parameters, as a phrase; empty where there are no buffers."""
    tied: tuple[str, ...]
    """Names of arrays that another name has already: the file has one storage for both."""


@dataclass(frozen=True)
class ComponentTotals:
    """A component with its totals."""

    component: str
    fact: Fact
    evidence: str
    arrays: int
    """Names of arrays."""
    elements: int
    """Elements of all arrays, those with several names once."""
    nbytes: int
    rows: tuple[TreeRow, ...]
    counts: ParameterCounts | None = None
    """Of the component `parameters`."""


@dataclass(frozen=True)
class Inspection:
    """What is known of a checkpoint."""

    path: str
    format: str
    detail: str
    summary: str
    """What kind of state it is, as a sentence."""
    fact: Fact
    """How the summary is known."""
    groups: tuple[ComponentTotals, ...]
    missing: tuple[tuple[str, str], ...]
    """Component that is not there by any name that is known, and what a resume without it does."""
    step: int | None
    """Completed steps, as a counter of a customary name says."""
    step_from: str
    opaque: tuple[tuple[str, str], ...]
    """Leaf and class of each object that only code could rebuild."""
    sealed: int
    """Leaves that a seal has digests of."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of all arrays."""
        return sum(group.nbytes for group in self.groups)

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"schema": "parity.inspection/1", **asdict(self), "nbytes": self.nbytes}


def inspect_source(source: Source, *, every: bool = False) -> Inspection:
    """Return what a checkpoint holds; no array is read.

    Args:
        source: An opened checkpoint.
        every: Whether each leaf has a row of its own.
    """
    parts = parts_of(source.tree)
    sealed = {_SEALED[root] for name in source.sealed if (root := name.partition(".")[0]) in _SEALED}
    if MANAGED in source.sealed:  # of a manager: its items have names that somebody gave them, its step is read
        sealed = {"counters"}
    there = {part.component for part in parts} | sealed | _in_document(source.tree)
    step, where = _step(parts)
    missing = tuple((name, why) for name, why in NEEDED.items() if name not in there)
    return Inspection(
        path=str(source.path),
        format=source.format,
        detail=source.detail,
        summary=_summary(there, _unknown(parts), _may_hold_more(parts)),
        fact="read" if sealed > {"counters"} else "inferred" if there - {"other"} else "unknown",
        groups=tuple(_group(part, every) for part in parts),
        missing=missing,
        step=step,
        step_from=where,
        opaque=tuple((leaf_name(keys), leaf.name) for keys, leaf in source.opaque().items()),
        sealed=len(source.digests) or len(source.sealed),
    )


def _in_document(tree: Any) -> set[str]:
    """Return the components in the document that a conversion from PyTorch left in a tree of JAX."""
    document = tree.get("torch") if isinstance(tree, dict) else None
    if not isinstance(document, dict) or not isinstance(document.get("state"), str):
        return set()
    try:
        content = decode_tree(json.loads(document["state"])["tree"], lambda _: _SOME_ARRAY, "")
    except (CheckpointError, ValueError, KeyError, TypeError, RecursionError):
        return set()
    return {one.component for one in branches(content) if one.component is not None}


def _unknown(parts: list[Part]) -> str:
    """Return what of a checkpoint is unknown, as a phrase: what no name tells, and parameters that were not read."""
    other = next(
        (f"; unknown what else it holds ({part.evidence})" for part in parts if part.component == "other"), ""
    )
    models = [part for part in parts if part.component in MODELS]
    objects = sum(isinstance(leaf, Opaque) for part in models for leaf in part.leaves.values())
    return other + (f"; not read: {objects:,} of their leaves, which only code could rebuild" if objects else "")


def _may_hold_more(parts: list[Part]) -> bool:
    """Return whether an optimizer is one by the name that somebody gave it: what lies in it may be parameters too."""
    named = ("by its name", "by their names")
    return any(part.component == "optimizer" and part.arrays and part.evidence.startswith(named) for part in parts)


def _summary(there: set[str], rest: str, more: bool) -> str:
    """Return what kind of state it is; what is unknown is never said to be absent, or enough."""
    known = there - {"other", "configuration"}
    if not known:
        return "nothing of a training state by a name that is known"
    if known <= MODELS:
        return f"parameters{rest or ': enough for inference, and to start training anew'}"
    if "parameters" not in known:
        only = " and ".join(sorted(known))
        if rest or more:
            return f"{only}, and no parameters by a name that is known{rest}"
        return f"a part of a training state, without parameters: {only}"
    lacking = [name for name in NEEDED if name not in known]
    if not lacking:
        return "a whole training state"
    if "optimizer" in known:
        without = (
            f", no {_list(lacking, 'or')} by a name that is known{rest}" if rest else f" without {_list(lacking)}"
        )
        return f"a training state{without}"
    others = f"parameters and {_list(sorted(known - {'parameters'}))}"
    if rest:
        return f"{others}, no optimizer by a name that is known{rest}"
    return f"{others}, without optimizer: enough for inference"


def _list(names: list[str], last: str = "and") -> str:
    return ", ".join(names[:-1]) + (f" {last} " if len(names) > 1 else "") + names[-1]


def _group(part: Part, every: bool) -> ComponentTotals:
    once, tied = _untied(part)
    return ComponentTotals(
        part.component,
        part.fact,
        part.evidence,
        len(once) + len(tied),
        sum(array.size for array in once.values()),
        sum(array.nbytes for array in once.values()),
        tuple(_rows(part, every)),
        _counts(once, tied) if part.component == "parameters" else None,
    )


def _untied(part: Part) -> tuple[dict[tuple[Key, ...], Array], tuple[str, ...]]:
    """Return the arrays of a part, each once, and the further names of those that have several."""
    once: dict[tuple[Key, ...], Array] = {}
    tied, seen = [], set()
    for keys, leaf in part.leaves.items():
        if not isinstance(leaf, Array):
            continue
        elements = (leaf.shared, leaf.shape) if leaf.shared is not None and leaf.size else None
        if elements is not None and elements in seen:
            tied.append(leaf_name(keys))
            continue
        seen.add(elements)
        once[keys] = leaf
    return once, tuple(tied)


def _counts(arrays: Mapping[tuple[Key, ...], Array], tied: tuple[str, ...]) -> ParameterCounts:
    """Return how many parameters and buffers there are: a collection says it, or else names and types do."""
    collected = {keys for keys in arrays if _COLLECTIONS.intersection(map(str, keys[:-1]))}
    guessed = {keys for keys, one in arrays.items() if keys not in collected and is_buffer(leaf_name(keys), one)}
    buffers = collected | guessed
    sizes = sum(arrays[keys].size for keys in buffers)
    read = "read: their collection says so" if collected else ""
    inferred = "inferred from their names and types" if guessed else ""
    total = sum(array.size for array in arrays.values())
    evidence = "; ".join(filter(None, (read, inferred)))
    return ParameterCounts(len(arrays) - len(buffers), total - sizes, len(buffers), sizes, evidence, tied)


def _rows(part: Part, every: bool) -> Iterator[TreeRow]:
    """Yield a row for each leaf, those alike in one."""
    alike: dict[tuple[str, str], list[tuple[str, int]]] = {}
    lists = Counter(keys[:-1] for keys in part.leaves if keys and isinstance(keys[-1], int))
    for keys, leaf in part.leaves.items():
        name, kind = leaf_name(keys), _kind(leaf)
        pattern = name if every else _NUMBER.sub("*", name)
        if not every and not isinstance(leaf, Array) and keys and isinstance(keys[-1], int) and keys[-1] >= 0:
            parent, kind = keys[:-1], f"{type(leaf).__name__} values"
            pattern = f"{leaf_name(parent)}.*"
            if lists.get(parent, 0) < MOST_ALONE:
                pattern, kind = name, _kind(leaf)
        alike.setdefault((pattern, kind), []).append((name, leaf.nbytes if isinstance(leaf, Array) else 0))
    for (pattern, kind), members in alike.items():
        name = pattern if len(members) > 1 else members[0][0]
        yield TreeRow(name, kind, len(members), sum(size for _, size in members))


def _kind(leaf: Any) -> str:
    if isinstance(leaf, Array) or isinstance(leaf, Opaque):  # noqa: SIM101 (a union would be made for each leaf)
        return str(leaf)
    if isinstance(leaf, bytes):
        return f"{len(leaf)} bytes"
    text = repr(leaf)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _step(parts: list[Part]) -> tuple[int | None, str]:
    """Return the step that a counter of a customary name holds, and the name."""
    for part in parts:
        for keys, leaf in part.leaves.items():
            if part.component != "counters" or not keys or str(keys[-1]) not in STEP_NAMES:
                continue
            if (count := count_of(leaf)) is not None:
                return count, leaf_name(keys)
    return None, ""
