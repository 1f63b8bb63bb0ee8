"""Two checkpoints of any formats, compared leaf by leaf: equal bit for bit, or by how much they differ and where."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parity.convert.objects_compared import compare_objects
from parity.formats import BLOCK_BYTES, Array, Key, Opaque, Source, boxes, leaf_name, leaves
from parity.storage import plain

__all__ = ["Comparison", "LeafComparison", "LeafOutcome", "Tolerance", "compare_sources"]

Index = tuple[int, ...]
LeafOutcome = Literal["equal", "close", "different", "not read", "other type", "only in A", "only in B"]
"""`not read`: both are objects whose contents are equal as far as they were read, which was not all."""

_WRAPPERS = re.compile(
    r"^(?:(?:model_state_dict|state_dict|model|params|module|net)\.)?(?:(?:_orig_mod|module|_fsdp_wrapped_module)\.)*"
)
"""Names that a file or a wrapper puts before those of parameters."""


@dataclass(frozen=True)
class Tolerance:
    """How far elements may be apart, as `numpy.allclose` has it, `atol + rtol * |B|`; nothing is near infinity."""

    rtol: float = 0.0
    atol: float = 0.0


@dataclass(frozen=True)
class LeafComparison:
    """One leaf of both."""

    name: str
    """Its name in A, or in B where A has none."""
    other: str
    """Its name in B; empty where B has none."""
    outcome: LeafOutcome
    types: tuple[str, str] = ("", "")
    """Type of the array, or value of the scalar, in each."""
    elements: int = 0
    differing: int = 0
    """Elements whose bits differ."""
    max_abs: float | None = None
    """Largest absolute difference; NaN where it is not defined."""
    max_abs_at: Index | None = None
    max_rel: float | None = None
    """Largest difference relative to the value in B; infinite where that is zero."""
    max_rel_at: Index | None = None
    by_seal: bool = False
    """Whether equal digests of two seals decided, without a look at the bytes."""


@dataclass(frozen=True)
class Comparison:
    """Every leaf of two checkpoints."""

    leaves: tuple[LeafComparison, ...]
    renamed: int
    """Leaves that were matched by their names without what wrappers put before them."""

    def of(self, *outcomes: LeafOutcome) -> list[LeafComparison]:
        """Return the leaves with one of some outcomes."""
        return [leaf for leaf in self.leaves if leaf.outcome in outcomes]

    @property
    def compared(self) -> int:
        """Return how many leaves both have."""
        return len(self.leaves) - len(self.of("only in A", "only in B"))

    @property
    def same(self) -> bool:
        """Return whether no leaf differs and none is missing."""
        return bool(self.leaves) and not self.of("different", "not read", "other type", "only in A", "only in B")

    @property
    def undecided(self) -> bool:
        """Return whether nothing differs, and what was not read may."""
        return bool(self.of("not read")) and not self.of("different", "other type", "only in A", "only in B")

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"schema": "parity.comparison/1", "same": self.same, "renamed": self.renamed, **plain(asdict(self))}


def compare_sources(a: Source, b: Source, tolerance: Tolerance | None = None) -> Comparison:
    """Compare two checkpoints, reading both by blocks; leaves with equal digests in both seals are not read.

    Leaves are matched by name; the others by their names without wrappers (`module.`, `_orig_mod.`, `model.`), where
    exactly one of each side has it. Words of a header, where both are of one format that has them, are leaves as far
    as they differ.

    Args:
        a: The first.
        b: The second.
        tolerance: How far elements may be apart; bit for bit by default.

    Numerics:
        Elements are compared by their bits first. Values are compared in float64, complex ones in complex128, so
        integers above 2**53 that differ may have a difference of zero; they are counted all the same. NaN of equal
        bits are equal.

    Example:
        >>> from pathlib import Path
        >>> from parity.formats import InMemory
        >>> a, b = (
        ...     Source(path=Path("w.pt"), format="torch.save", tree={"w": InMemory(np.array(value))})
        ...     for value in ([1.0, 2.0], [1.0, 2.5])
        ... )
        >>> compare_sources(a, b).leaves[0].max_abs, compare_sources(a, b, Tolerance(atol=0.5)).leaves[0].outcome
        (0.5, 'close')
    """
    left, right = _named(a), _named(b)
    pairs = {name: name for name in left if name in right}
    bare = _matched([name for name in left if name not in right], [name for name in right if name not in left])
    found = []
    for name in left:
        other = pairs.get(name, bare.get(name))  # the name of a lone array is empty
        if other is None:
            found.append(LeafComparison(name, "", "only in A", (_type(left[name]), "")))
        elif a.digests.get(name) is not None and a.digests.get(name) == b.digests.get(other):
            found.append(LeafComparison(name, other, "equal", by_seal=True))
        else:
            found.append(_compare(name, other, left[name], right[other], tolerance or Tolerance()))
    matched = {*pairs.values(), *bare.values()}
    found += [LeafComparison(n, "", "only in B", ("", _type(right[n]))) for n in right if n not in matched]
    found += _words(a.words, b.words) if a.format == b.format else []
    return Comparison(tuple(found), len(bare))


def _words(a: Mapping[str, str], b: Mapping[str, str]) -> list[LeafComparison]:
    """Return the words of two headers that are not the same, such as the step: no array shows it."""
    found = []
    for key in sorted(key for key in {*a, *b} if a.get(key) != b.get(key)):
        outcome: LeafOutcome = "different" if key in a and key in b else "only in A" if key in a else "only in B"
        name, other = (f"__metadata__.{key}" if key in words else "" for words in (a, b))
        types = (_type(a[key]) if key in a else "", _type(b[key]) if key in b else "")
        found.append(LeafComparison(name or other, other if name else "", outcome, types))
    return found


def _named(source: Source) -> dict[str, Any]:
    """Return the leaves by name; of two with one name, such as those of the keys 1 and "1", both by other names."""
    found: dict[str, Any] = {}
    for keys, leaf in leaves(source.tree):
        if not keys and not isinstance(leaf, Array | Opaque):
            continue  # an empty container, or a lone value: nothing of a checkpoint
        name = leaf_name(keys)
        found[name if name not in found else _spelled(keys)] = leaf
    return found


def _spelled(keys: tuple[Key, ...]) -> str:
    return "".join(f"[{key!r}]" for key in keys)


def _matched(left: list[str], right: list[str]) -> dict[str, str]:
    """Return names of A to names of B that are the same without wrappers, where that decides."""
    there = _alone(right)
    return {name: there[bare] for bare, name in _alone(left).items() if bare in there}


def _alone(names: list[str]) -> dict[str, str]:
    """Return names by what they are without wrappers, as far as no two are the same then."""
    bare = {name: _WRAPPERS.sub("", name) for name in names}
    counts = Counter(bare.values())
    return {bare[name]: name for name in names if counts[bare[name]] == 1}


def _type(leaf: Any) -> str:
    return str(leaf) if isinstance(leaf, Array | Opaque) else f"{type(leaf).__name__} {leaf!r}"[:80]


def _compare(name: str, other: str, a: Any, b: Any, tolerance: Tolerance) -> LeafComparison:
    types = (_type(a), _type(b))
    if not (isinstance(a, Array) and isinstance(b, Array)):
        if isinstance(a, Opaque) and isinstance(b, Opaque):
            return LeafComparison(name, other, compare_objects(a, b), types)
        same = type(a) is type(b) and repr(a) == repr(b)  # to the last bit, of one type
        return LeafComparison(name, other, "equal" if same else "different", types)
    if a.shape != b.shape or not _comparable(a.dtype, b.dtype):
        return LeafComparison(name, other, "other type", types, a.size)
    sums = _Sums(tolerance)
    step = max(1, BLOCK_BYTES // max(a.dtype.itemsize, b.dtype.itemsize))
    for box in boxes(a.shape, step):
        sums.add(tuple(low for low, _ in box), a.read(box), b.read(box))
    outcome: LeafOutcome = "equal" if not sums.differing else "different" if sums.beyond else "close"
    if a.dtype != b.dtype:
        outcome = "other type"
    return LeafComparison(name, other, outcome, types, a.size, sums.differing, *sums.worst())


def _comparable(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    return a == b or (_is_number(a) and _is_number(b))


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "biufc" or dtype.name.startswith(("bfloat", "float8"))


class _Sums:
    """What was seen so far of one pair of arrays."""

    def __init__(self, tolerance: Tolerance) -> None:
        self.tolerance = tolerance
        self.differing = self.beyond = 0
        self._abs: tuple[float, Index] | None = None
        self._rel: tuple[float, Index] | None = None

    def add(self, start: Index, a: NDArray[Any], b: NDArray[Any]) -> None:
        """Compare a box of both, which starts at an index."""
        differ = _differ(a, b)
        count = int(differ.sum())
        if not count:
            return
        self.differing += count
        x, y = _wide(a[differ]), _wide(b[differ])
        with np.errstate(all="ignore"):
            gap = np.where(x == y, 0.0, np.abs(x - y))
            size = np.abs(y)
            relative = np.where(gap == 0, 0.0, gap / size)
            # an infinite B would allow any difference, and nothing is near it but itself
            within = (gap <= self.tolerance.atol + self.tolerance.rtol * size) & np.isfinite(gap)
        strict = not (self.tolerance.atol or self.tolerance.rtol)
        self.beyond += count if strict else int((~within).sum())
        where = np.argwhere(differ)
        self._abs = _worst(self._abs, gap, where, start)
        self._rel = _worst(self._rel, relative, where, start)

    def worst(self) -> tuple[float | None, Index | None, float | None, Index | None]:
        """Return the largest differences and where they are."""
        first, second = self._abs or (None, None), self._rel or (None, None)
        return (*first, *second)


def _differ(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where the bits of two boxes differ; where their dtypes do, the values."""
    if a.dtype != b.dtype:
        x, y = _wide(a), _wide(b)
        with np.errstate(invalid="ignore"):
            return np.asarray(~((x == y) | (np.isnan(x) & np.isnan(y))))
    size = a.dtype.itemsize
    if size in (1, 2, 4, 8):
        return np.asarray(_bits(a, size) != _bits(b, size))
    pairs = [np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, size) for x in (a, b)]
    return np.asarray((pairs[0] != pairs[1]).any(axis=-1))


def _bits(x: NDArray[Any], size: int) -> NDArray[Any]:
    return np.ascontiguousarray(x).view(f"u{size}").reshape(x.shape)


def _wide(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _worst(
    old: tuple[float, Index] | None, values: NDArray[Any], where: NDArray[Any], start: Index
) -> tuple[float, Index] | None:
    nans = np.isnan(values)
    at = int(np.argmax(nans)) if nans.any() else int(np.argmax(values))
    value = float(values[at])
    if old is not None and (math.isnan(old[0]) or (not math.isnan(value) and value <= old[0])):
        return old
    return value, tuple(int(low + i) for low, i in zip(start, where[at], strict=True))
