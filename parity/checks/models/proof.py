"""The proof of a map: every leaf once, each way back, and in float64 equal outputs and gradients of every leaf."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.models.draws import drawn
from parity.checks.models.subjects import LeafValues, Subjects
from parity.contract import Evaluation, Island, ModelProbe
from parity.errors import CheckpointError
from parity.formats import InMemory
from parity.mapping import ConversionRules, LeafRule, RulePlacement, Times
from parity.results import Verdict

__all__ = ["MapProof", "Parted", "carried", "prove"]

SEEDS = (41, 42)
"""LeafValues at which both models are compared: none is zero, and no two leaves have the same."""

NOISE = 16 * 2.0**-52
"""Share of the largest gradient of a model within which a gradient is nothing but rounding: that of a key bias."""

ISLAND_LIMIT = 1e-5
"""Largest relative difference that is put down to a named island of float32 which could not be lifted: some hundred
units in its last place. It makes the proof inconclusive, never one that holds."""


@dataclass(frozen=True)
class Parted:
    """An output or a gradient of which the two models have other values."""

    what: str
    """`output 0`, or the leaf of the first model whose gradient it is, with that of the second."""
    gap: float
    """Largest difference, relative to the largest element."""
    limit: float
    """What would have passed, relative to the same."""
    index: tuple[int, ...]
    first: float
    second: float


@dataclass(frozen=True)
class MapProof:
    """What the proof of a map found."""

    verdict: Verdict
    problems: tuple[str, ...] = ()
    """What is missing, taken twice, or does not lead back; nothing was evaluated then."""
    parted: tuple[Parted, ...] = ()
    """Outputs first, then gradients, those that part most first."""
    outputs: float | None = None
    """Largest relative difference of an output."""
    gradients: float | None = None
    """Largest relative difference of a gradient, of the leaves that one reaches."""
    leaves: int = 0
    """Leaves whose gradients were compared."""
    unreached: tuple[str, ...] = ()
    """Leaves that no gradient reaches in either model: nothing that both compute tells them apart."""
    dead: tuple[str, ...] = ()
    """Leaves that no output of a model can follow, whatever the values, where nothing else is in doubt."""
    islands: tuple[tuple[str, Island], ...] = ()
    """With the model in which they are."""
    effects: Mapping[str, float] | None = None
    """Model to the largest relative difference of its outputs with its islands as they are."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def prove(subjects: Subjects, rules: Sequence[LeafRule]) -> MapProof:
    """Prove that rules take one model to the other.

    Args:
        subjects: The models.
        rules: From the first to the second; a leaf that no rule takes keeps its name.

    Returns:
        `holds`; `broken`, with what is missing or what parts; or `inconclusive`, where a module was not reached by
        these inputs, or an island of float32 could not be lifted.

    Raises:
        SpecError: A model cannot be called, or gives values that are not finite.

    Numerics: an output or a gradient may differ by 1e-12 of its largest element, or by three times what one unit in
    the last place of the leaves moves it; gradients below 16 units in the last place of the largest one of the model
    are rounding.
    """
    began = time.perf_counter()
    placements, problems = placed(subjects, rules)
    if problems:
        return MapProof("broken", tuple(problems), seconds=time.perf_counter() - began)
    found = [_compare(subjects, placements, seed) for seed in SEEDS]
    worst = max(found, key=lambda one: (one.verdict == "broken", len(one.parted)))
    numbers = [[getattr(one, word) or 0.0 for one in found] for word in ("outputs", "gradients")]
    return replace(worst, outputs=max(numbers[0]), gradients=max(numbers[1]), seconds=time.perf_counter() - began)


def placed(subjects: Subjects, rules: Sequence[LeafRule]) -> tuple[list[RulePlacement], list[str]]:
    """Return where each leaf of the first model goes, and what is missing, taken twice or not reversible."""
    first, second = subjects.first, subjects.second
    names = [name for leaf in first.leaves for name in (leaf, *first.ties.get(leaf, ()))]
    try:
        placements = ConversionRules(rules).place(names)
    except CheckpointError as error:
        return [], [str(error)]
    problems = []
    made: set[str] = set()
    for one in placements:
        arrays = [InMemory(np.arange(first.leaves[_owner(first, n)].size, dtype=np.float64)
                           .reshape(first.leaves[_owner(first, n)].shape)) for n in one.source]  # fmt: skip
        strange = [path for path in one.target if path not in second.leaves]
        if strange:
            problems.append(f"{one.source[0]} goes to {strange[0]}, which {second.name} has not; give it a rule")
            continue
        made |= set(one.target)
        try:
            there = [array.load() for array in one.forward(arrays)]
            back = one.backward([InMemory(array) for array in there], [array.shape for array in arrays])
        except (CheckpointError, IndexError) as error:
            problems.append(f"{one.source[0]}: {error}")
            continue
        shapes = [
            (tuple(array.shape), second.leaves[path].shape) for array, path in zip(there, one.target, strict=True)
        ]
        problems += [
            f"{path} is {list(b)}, and its rule gives {list(a)}"
            for (a, b), path in zip(shapes, one.target, strict=True)
            if a != b
        ]
        if not all(np.array_equal(x.load(), y.value) for x, y in zip(back, arrays, strict=True)):
            problems.append(f"{one.source[0]} does not come back as it was")
    problems += [f"no rule gives {path} of {second.name}" for path in second.leaves if path not in made]
    return placements, problems


def _owner(model: ModelProbe, name: str) -> str:
    """Return the leaf that a name is of: its own, or the one it is tied to."""
    if name in model.leaves:
        return name
    return next(leaf for leaf, names in model.ties.items() if name in names)


def carried(first: ModelProbe, placements: Sequence[RulePlacement], values: LeafValues, *, grads: bool = False
            ) -> dict[str, NDArray[np.float64]]:  # fmt: skip
    """Return values of the first model's leaves as the second has them.

    Args:
        first: The first model.
        placements: Where its leaves go.
        values: By its names; a leaf that has none is left out, with what comes of it.
        grads: Whether they are gradients: of what is scaled, they are scaled the other way.
    """
    made: dict[str, NDArray[np.float64]] = {}
    for one in placements:
        owners = [_owner(first, name) for name in one.source]
        if any(owner not in values for owner in owners):
            continue
        turned = one
        if grads and any(isinstance(step, Times) for step in one.rule.transforms):
            steps = tuple(
                replace(t, divides=not t.divides) if isinstance(t, Times) else t for t in one.rule.transforms
            )
            turned = RulePlacement(one.source, one.target, replace(one.rule, transforms=steps))
        arrays = turned.forward([InMemory(values[owner]) for owner in owners])
        made |= {path: np.asarray(array.load()) for path, array in zip(one.target, arrays, strict=True)}
    return made


def _compare(subjects: Subjects, placements: Sequence[RulePlacement], seed: int) -> MapProof:
    first, second = subjects.first, subjects.second
    values = {
        leaf: drawn(value.shape, "statistic" if leaf in first.statistics else "parameter", (seed, at))
        for at, (leaf, value) in enumerate(first.leaves.items())
    }
    one, two = subjects.evaluate(values, carried(first, placements, values))
    rng = np.random.default_rng(seed)
    signs = {leaf: rng.choice((-1.0, 1.0), value.shape) for leaf, value in values.items()}
    nudged = {leaf: np.nextafter(value, value + signs[leaf]) for leaf, value in values.items()}
    moved = subjects.evaluate(nudged, carried(first, placements, nudged))
    parted = [found for at in range(len(one.outputs)) if (found := _output(at, one, two, moved)) is not None]
    outputs = max((_relative(a, b) for a, b in zip(one.outputs, two.outputs, strict=True)), default=0.0)
    expected = carried(first, placements, one.gradients, grads=True)
    shaken = carried(first, placements, moved[0].gradients, grads=True)
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in expected.values()), default=0.0)
    names = {path: " + ".join(place.source) for place in placements for path in place.target}
    gradients, unreached, of_gradients = 0.0, [], []
    for path, grad in expected.items():
        got = two.gradients[path]
        scale = float(max(np.abs(grad).max(initial=0.0), np.abs(got).max(initial=0.0)))
        if scale <= NOISE * largest:
            unreached.append(path)
            continue
        noise = max(_distance(shaken[path], grad), _distance(moved[1].gradients[path], got))
        limit = max(FLOAT64_LIMIT * scale, 3.0 * noise, NOISE * largest)
        gradients = max(gradients, _relative(grad, got)) if scale > 1e3 * NOISE * largest else gradients
        if _distance(grad, got) > limit:
            of_gradients.append(_parted(f"gradient of {names[path]} -> {path}", grad, got, limit))
    parted += sorted(of_gradients, key=lambda p: -p.gap)
    islands = tuple((m.name, i) for m, made in ((first, one), (second, two)) for i in made.islands)
    effects = {m.name: _effect(m, to, v) for (m, to), v, made in
               zip(subjects.both, (values, carried(first, placements, values)), (one, two), strict=True)
               if made.islands}  # fmt: skip
    reached = _followed(subjects, values, one.outputs, [names[path] for path in unreached])
    still = [path for path in unreached if names[path] not in reached]
    unread = [model.unread(to) if still else frozenset[str]() for model, to in subjects.both]
    dead = {names[path] for path in still if path in unread[1] or unread[0].issuperset(names[path].split(" + "))}
    verdict, notes = _verdict(first, names, parted, still, [island for _, island in islands])
    alive = [path for path in still if names[path] not in dead]
    if verdict == "holds" or _verdict(first, names, parted, alive, [])[0] != "holds":
        dead = set()
    return MapProof(verdict, (), tuple(parted), outputs, gradients, len(expected), tuple(unreached),
                    tuple(sorted(dead)), islands, effects, tuple(notes))  # fmt: skip


def _followed(
    subjects: Subjects, values: LeafValues, outputs: Sequence[NDArray[np.float64]], silent: Sequence[str]
) -> set[str]:
    """Return which leaves without a gradient the outputs follow all the same, as those of a momentum encoder.

    Their values were drawn like all others, so that equal outputs prove them too; gradients say nothing of them.
    """
    model, inputs = subjects.both[0]
    rng = np.random.default_rng(SEEDS[0])  # not all elements alike: a norm takes that away again
    found: set[str] = set()
    homes = {leaf.rpartition(".")[0] for name in silent for leaf in name.split(" + ")}
    for home in sorted(homes):
        inside = [leaf for leaf in values if leaf.rpartition(".")[0] == home and leaf not in model.statistics]
        if not all(any(leaf in name.split(" + ") for name in silent) for leaf in inside):
            continue  # another leaf of the module has a gradient: it was reached
        for leaf in inside:
            moved = values[leaf] + rng.uniform(0.25, 0.75, values[leaf].shape)
            made = model.evaluate({**values, leaf: moved}, inputs).outputs
            if any(_relative(a, b) > 1e-9 for a, b in zip(outputs, made, strict=True)):
                found |= {name for name in silent if leaf in name.split(" + ")}
    return found


def _verdict(
    first: ModelProbe, names: Mapping[str, str], parted: Sequence[Parted], unreached: Sequence[str],
    islands: Sequence[Island],
) -> tuple[Verdict, list[str]]:  # fmt: skip
    kept = [one for one in islands if not one.lifted]
    if parted:
        if kept and all(one.gap <= ISLAND_LIMIT for one in parted):
            note = f"what parts is within float32, in which {kept[0].where} computes and which could not be lifted"
            return "inconclusive", [note]
        return "broken", []
    silent = {names[path] for path in unreached}
    homes: dict[str, list[bool]] = {}
    for leaf in first.leaves:
        if leaf not in first.statistics:
            homes.setdefault(leaf.rpartition(".")[0], []).append(any(leaf in name.split(" + ") for name in silent))
    unseen = [home for home, flags in homes.items() if all(flags) and home]
    if unseen:
        note = f"no output follows {', '.join(unseen[:4])} with these inputs: give inputs that reach it, by --inputs"
        return "inconclusive", [note]
    return "holds", []


def _effect(model: ModelProbe, inputs: object, values: LeafValues) -> float:
    """Return how far the islands of a model move its outputs, relative to the largest element."""
    wide, narrow = (model.evaluate(values, inputs, lift=lift).outputs for lift in (True, False))  # type: ignore[arg-type]
    return max(_relative(a, b) for a, b in zip(wide, narrow, strict=True))


def _output(at: int, one: Evaluation, two: Evaluation, moved: tuple[Evaluation, Evaluation]) -> Parted | None:
    a, b = one.outputs[at], two.outputs[at]
    noise = max(_distance(moved[0].outputs[at], a), _distance(moved[1].outputs[at], b))
    scale = float(np.abs(a).max(initial=0.0))
    limit = max(FLOAT64_LIMIT * scale, 3.0 * noise)
    return _parted(f"output {at}", a, b, limit) if _distance(a, b) > limit else None


def _parted(what: str, a: NDArray[np.float64], b: NDArray[np.float64], limit: float) -> Parted:
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), 1e-300)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(a - b))), a.shape))
    return Parted(what, _distance(a, b) / scale, limit / scale, index, float(a[index]), float(b[index]))


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.abs(a - b).max(initial=0.0))


def _relative(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return _distance(a, b) / max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), 1e-300)
