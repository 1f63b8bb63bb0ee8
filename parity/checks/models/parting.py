"""Where two models part: the first pair of modules whose values differ, and what likely makes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parity.checks.criteria import FLOAT64_LIMIT
from parity.checks.models.causes import setting_cause
from parity.checks.models.draws import drawn
from parity.checks.models.likely import Scene, likely_cause
from parity.checks.models.modules import CallPair, comparable, pair_calls
from parity.checks.models.proof import carried, placed
from parity.checks.models.subjects import Subjects
from parity.contract import ModuleCall
from parity.errors import SpecError
from parity.mapping import LeafRule, RulePlacement
from parity.results import Verdict

__all__ = ["Parting", "where_parted"]


@dataclass(frozen=True)
class Parting:
    """Where two models part."""

    verdict: Verdict
    models: tuple[str, str]
    compared: int = 0
    """Calls of modules that were compared."""
    skipped: int = 0
    """Paired calls whose values could not be brought to one shape."""
    what: str = ""
    """What differs first: `output`, `input` or `gradient` of a module, or an output of the model."""
    modules: tuple[str, str] = ("", "")
    kinds: tuple[str, str] = ("", "")
    after: tuple[str, str] = ("", "")
    """The last modules whose outputs agree; empty where there are none."""
    index: tuple[int, ...] = ()
    first: float = 0.0
    second: float = 0.0
    gap: float = 0.0
    """Largest difference, relative to the largest element."""
    settings: tuple[Mapping[str, object], Mapping[str, object]] = dataclasses.field(default_factory=lambda: ({}, {}))
    cause: str = ""
    """Likely cause; empty where none is known."""
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the verdict in a few lines."""
        names = f"{self.models[0]} and {self.models[1]}"
        if self.verdict == "holds":
            return f"the two do not part: {names}, {self.compared} calls of modules compared in float64"
        if not self.what:
            return "\n".join([f"inconclusive: {names}", *(f"note: {note}" for note in self.notes)])
        at = ", ".join(map(str, self.index))
        lines = [
            f"the two part: {names}, at the {self.what} of {self.modules[0]} ({self.kinds[0]}) and "
            f"{self.modules[1]} ({self.kinds[1]})",
            f"  values    {self.first!r} and {self.second!r} at [{at}], {self.gap:.1e} of the largest element",
        ]
        if self.after[0]:
            lines.append(f"  agrees    until the output of {self.after[0]} and {self.after[1]}")
        for name, settings in zip(self.models, self.settings, strict=True):
            if settings:
                lines.append(f"  settings  {name}: {', '.join(f'{k}={v!r}' for k, v in settings.items())}")
        if self.cause:
            lines.append(f"  likely    {self.cause}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def as_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return dataclasses.asdict(self)


def where_parted(subjects: Subjects, rules: Sequence[LeafRule]) -> Parting:
    """Return the first pair of modules, in the order of calls, whose values part.

    Both are evaluated in float64 with random values of their leaves, equal under the map. Outputs of modules are
    compared in the order in which calls ended, then gradients of these outputs from the last to the first.

    Args:
        subjects: The models.
        rules: From the first to the second, complete.

    Raises:
        SpecError: The rules are not complete, or a model cannot be called.
    """
    first, second = subjects.first, subjects.second
    names = (first.name, second.name)
    placements, problems = placed(subjects, rules)
    if problems:
        raise SpecError("rules", f"{problems[0]}{f' (and {len(problems) - 1} more)' if len(problems) > 1 else ''}")
    values = {
        leaf: drawn(value.shape, "statistic" if leaf in first.statistics else "parameter", (43, at))
        for at, (leaf, value) in enumerate(first.leaves.items())
    }
    signs = np.random.default_rng(43)
    nudged = {leaf: np.nextafter(v, v + signs.choice((-1.0, 1.0), v.shape)) for leaf, v in values.items()}
    one, two = subjects.evaluate(values, carried(first, placements, values), calls=True)
    shaken, _ = subjects.evaluate(nudged, carried(first, placements, nudged), calls=True)
    moved = {_key(at, one.calls): call for at, call in enumerate(shaken.calls)}
    pairs = pair_calls(first, second, placements, one, two)
    compared, skipped = 0, 0
    agreed: list[tuple[CallPair, NDArray[np.float64]]] = []
    order = {id(call): _key(at, one.calls) for at, call in enumerate(one.calls)}
    for pair in pairs:
        both = comparable(
            [c.outputs[0] for c in pair.first if c.outputs], [c.outputs[0] for c in pair.second if c.outputs]
        )
        if both is None:
            skipped += 1
            continue
        compared += 1
        noise = max(_distance(moved[order[id(c)]].outputs[0], c.outputs[0]) for c in pair.first)
        if _parts(*both, noise):
            settings = (first.settings(pair.first[0].path), second.settings(pair.second[0].path))
            scene = Scene(pair, settings, pairs, agreed, values, _dropouts(subjects, one.calls, two.calls),
                          (one.calls, two.calls))  # fmt: skip
            return _explained(subjects, scene, both, compared, skipped, noise)
        agreed.append((pair, both[0]))
    for at, (a, b) in enumerate(zip(one.outputs, two.outputs, strict=True)):
        if _parts(a, b, _distance(shaken.outputs[at], a)):
            whose = [model.name for model, made in ((first, one), (second, two)) if not made.calls]
            note = f"output {at} parts, and {' and '.join(whose) or 'no pair'} shows no module that could be compared"
            return Parting("inconclusive", names, compared, skipped, notes=(note,))
    for pair in reversed(pairs):
        grads = [[g for c in side for g in c.gradients[:1] if g is not None] for side in (pair.first, pair.second)]
        both = comparable(*grads) if len(grads[0]) == len(pair.first) and len(grads[1]) == len(pair.second) else None
        if both is None:
            continue
        noise = max(
            (_distance(g, h) for c in pair.first
             for g, h in [(moved[order[id(c)]].gradients[0], c.gradients[0])] if g is not None and h is not None),
            default=0.0,
        )  # fmt: skip
        if _parts(*both, noise):
            cause = "the outputs agree and gradients do not: a gradient is stopped, clipped or scaled on the way back"
            return _found(subjects, "gradient", pair, both, (), compared, skipped, cause)
    expected = carried(first, placements, one.gradients, grads=True)
    off = [path for path, grad in expected.items() if _parts(grad, two.gradients[path], _distance(
        carried(first, placements, shaken.gradients, grads=True)[path], grad))]  # fmt: skip
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in expected.values()), default=0.0)
    off = [path for path in off if float(np.abs(two.gradients[path]).max(initial=0.0)) > 1e-13 * largest]
    stopped = _stopped(subjects, placements, expected, two.gradients)
    if stopped is not None:
        return dataclasses.replace(stopped, compared=compared, skipped=skipped)
    if off:
        note = f"all outputs of modules agree, and gradients of leaves do not: {', '.join(off[:4])}"
        return Parting("inconclusive", names, compared, skipped, notes=(note,))
    if not compared:
        note = "no module of one is one of the other: nothing but the outputs was compared"
        return Parting("inconclusive", names, compared, skipped, notes=(note,))
    unseen = _unseen(subjects, pairs)
    if unseen:
        note = f"nothing parts in evaluation, and settings differ that training reads: {'; '.join(unseen[:4])}"
        return Parting("inconclusive", names, compared, skipped, notes=(note,))
    return Parting("holds", names, compared, skipped)


def _stopped(
    subjects: Subjects, placements: Sequence[RulePlacement], expected: Mapping[str, NDArray[np.float64]],
    got: Mapping[str, NDArray[np.float64]],
) -> Parting | None:  # fmt: skip
    """Return the first leaf whose gradient is zero in one model alone, where nothing else was found to part."""
    largest = max((float(np.abs(grad).max(initial=0.0)) for grad in expected.values()), default=0.0)
    names = {path: " + ".join(one.source) for one in placements for path in one.target}
    for path, grad in expected.items():
        for who, none, other in ((subjects.second.name, got[path], grad), (subjects.first.name, grad, got[path])):
            if np.any(none) or float(np.abs(other).max(initial=0.0)) <= 1e-9 * largest:
                continue
            a, b = grad, got[path]
            index = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(a - b))), a.shape))
            cause = f"gradient stopped: none reaches {names[path]} ({path}) in {who} (stop_gradient or detach)"
            return Parting(
                "broken", (subjects.first.name, subjects.second.name), what="gradient", modules=(names[path], path),
                kinds=("leaf", "leaf"), index=index, first=float(a[index]), second=float(b[index]), gap=1.0,
                cause=cause,
            )  # fmt: skip
    return None


def _unseen(subjects: Subjects, pairs: Sequence[CallPair]) -> list[str]:
    """Return settings of paired modules that differ and that evaluation does not show, such as a momentum."""
    found = []
    for pair in pairs:
        kinds = pair.first[0].kind, pair.second[0].kind
        settings = [subjects.first.settings(pair.first[0].path), subjects.second.settings(pair.second[0].path)]
        training = [{k: v for k, v in one.items() if k in ("momentum", "eps", "epsilon")} for one in settings]
        if all("momentum" in one for one in training) and (cause := setting_cause(kinds, training[0], training[1])):
            found.append(f"{pair.paths[0]} and {pair.paths[1]}: {cause}")
    return found


def _key(at: int, calls: Sequence[Any]) -> tuple[str, int]:
    return calls[at].path, sum(one.path == calls[at].path for one in calls[:at])


def _parts(a: NDArray[np.float64], b: NDArray[np.float64], noise: float) -> bool:
    return _distance(a, b) > max(FLOAT64_LIMIT * float(np.abs(a).max(initial=0.0)), 3.0 * noise)


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.abs(a - b).max(initial=0.0))


def _explained(
    subjects: Subjects, scene: Scene, both: tuple[NDArray[np.float64], NDArray[np.float64]],
    compared: int, skipped: int, noise: float,
) -> Parting:  # fmt: skip
    """Return a parting: of the module, or of what lies between it and the last that agrees."""
    pair = scene.pair
    given = comparable(
        [c.inputs[0] for c in pair.first[:1] if c.inputs], [c.inputs[0] for c in pair.second[:1] if c.inputs]
    )
    if given is not None and _parts(*given, noise * 1e-3):
        cause = likely_cause(scene, given, None)
        return _found(subjects, "input", pair, given, scene.agreed, compared, skipped, cause)
    cause = likely_cause(scene, both, given)
    return _found(subjects, "output", pair, both, scene.agreed, compared, skipped, cause)


def _dropouts(subjects: Subjects, *calls: Sequence[ModuleCall]) -> list[float]:
    """Return the rates of the dropouts that were called, of both models."""
    rates = []
    for model, made in zip((subjects.first, subjects.second), calls, strict=True):
        for path in {call.path for call in made if "dropout" in call.kind.lower()}:
            settings = model.settings(path)
            rates += [rate for word in ("p", "rate") if isinstance(rate := settings.get(word), float)]
    return rates


def _found(
    subjects: Subjects, what: str, pair: CallPair, both: tuple[NDArray[np.float64], NDArray[np.float64]],
    agreed: Sequence[tuple[CallPair, NDArray[np.float64]]], compared: int, skipped: int, cause: str,
) -> Parting:  # fmt: skip
    a, b = both
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.abs(a - b))), a.shape))
    scale = max(float(np.abs(a).max(initial=0.0)), float(np.abs(b).max(initial=0.0)), 1e-300)
    return Parting(
        "broken", (subjects.first.name, subjects.second.name), compared, skipped, what, pair.paths,
        (pair.first[0].kind, pair.second[0].kind), agreed[-1][0].paths if agreed else ("", ""), index,
        float(a[index]), float(b[index]), _distance(a, b) / scale,
        (subjects.first.settings(pair.first[0].path), subjects.second.settings(pair.second[0].path)), cause,
    )  # fmt: skip
