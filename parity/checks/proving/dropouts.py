"""The places and rates of dropout in two models, by what goes through them: no random numbers have to be equal.

In evaluation a dropout gives back what it was given, which says where it stands: two models that are equal under
their map give the same values to a dropout at the same place, in whatever layout. Rates are the modules' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parity.checks.noise import spread_of
from parity.checks.proving.losses import Pairing, other_values
from parity.contract import ModelProbe, ModuleCall
from parity.errors import SpecError
from parity.results import Verdict

__all__ = ["DropoutFinding", "compare_dropouts"]

NEAR = 1e-9
"""Of the largest element: values inside of models that are equal to 1e-12 at their outputs. Another place differs in
the first digits."""

CHANNELS = {"Dropout1d": 1, "Dropout2d": 2, "Dropout3d": 3}
"""Modules of PyTorch that drop whole channels, to the axes that share a draw."""


@dataclass(frozen=True)
class DropoutFinding:
    """What was found of both."""

    verdict: Verdict
    said: str
    """Empty where neither has any."""


@dataclass(frozen=True)
class _DropoutPlace:
    path: str
    rate: float
    shared: int
    """Axes that share a draw."""
    values: NDArray[np.float64]
    """What goes through it, sorted: axes may be in another order."""

    @property
    def text(self) -> str:
        shared = f", {self.shared} axes share a draw" if self.shared else ""
        return f"{self.path} (rate {self.rate:g}{shared})"


@dataclass(frozen=True)
class _Seen:
    name: str
    places: tuple[_DropoutPlace, ...]
    inside: tuple[float, ...]
    """Rates of what drops within a module, such as attention, in the order of calls."""
    unknown: tuple[str, ...]
    """Modules that are called as if they drop something, and do not say at which rate."""


def compare_dropouts(pairing: Pairing) -> DropoutFinding:
    """Return whether both models drop at the same places and rates.

    Args:
        pairing: Models that are equal under their map.

    Returns:
        `broken` where a place or a rate differs; `inconclusive` where one drops and the other shows no module that
        does, or where modules cannot be seen.
    """
    values = other_values(pairing, 47)
    subjects = pairing.subjects
    try:
        one, two = subjects.evaluate(values, pairing.over(values), calls=True)
    except SpecError as error:
        return DropoutFinding("inconclusive", f"dropout: calls of modules cannot be seen: {error}")
    for model in (subjects.first, subjects.second):
        if model.dropped:
            rates = ", ".join(f"{rate:g}" for rate in model.dropped)
            said = (f"{model.name} drops at {len(model.dropped)} modules of equinox (rates {rates}), whose calls are "
                    "not seen: build both at rate zero, or give the masks in the batch")  # fmt: skip
            return DropoutFinding("inconclusive", said)
    a, b = _seen(subjects.first, one.calls), _seen(subjects.second, two.calls)
    if a.unknown or b.unknown:
        where = ", ".join(
            [*(f"{a.name}: {path}" for path in a.unknown), *(f"{b.name}: {path}" for path in b.unknown)]
        )
        return DropoutFinding("inconclusive", f"what these drop cannot be compared: {where}; give them at rate zero")
    if not (a.places or a.inside or b.places or b.inside):
        return DropoutFinding("holds", "")
    for here, there in ((a, b), (b, a)):
        if (here.places or here.inside) and not (there.places or there.inside):
            said = (f"{here.name} drops at {_listed(here)}, and no module of {there.name} is seen to: build both at "
                    "rate zero, or give the masks in the batch")  # fmt: skip
            return DropoutFinding("inconclusive", said)
    if a.inside != b.inside:
        own = [", ".join(f"{rate:g}" for rate in one.inside) or "none" for one in (a, b)]
        said = f"dropout within modules: rates {own[0]} in {a.name}, {own[1]} in {b.name}"
        return DropoutFinding("broken", said)
    if said := _parted(a, b):
        return DropoutFinding("broken", said)
    within = f", and within {len(a.inside)} modules at equal rates" if a.inside else ""
    said = f"dropout was off: {len(a.places)} places and rates agree by what goes through them{within}"
    return DropoutFinding("holds", f"{said}; the draws themselves are not compared")


def _seen(model: ModelProbe, calls: Sequence[ModuleCall]) -> _Seen:
    places, inside, unknown = [], [], []
    for call in calls:
        held = model.settings(call.path)
        rate = next((float(held[word]) for word in ("p", "rate") if _is_number(held.get(word))), None)  # type: ignore[arg-type]
        if "drop" in call.kind.lower():
            if rate is None or "Alpha" in call.kind:
                unknown.append(f"{call.path} ({call.kind})")
            elif rate > 0.0 and call.inputs:
                values = np.sort(call.inputs[0], axis=None).astype(np.float64)
                places.append(_DropoutPlace(call.path, rate, _shared(call.kind, held), values))
        else:
            inside += [float(held[w]) for w in ("dropout", "dropout_rate") if _is_number(held.get(w)) and held[w]]  # type: ignore[arg-type]
    return _Seen(model.name, tuple(places), tuple(inside), tuple(unknown))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shared(kind: str, held: Mapping[str, object]) -> int:
    axes = held.get("broadcast_dims")
    return len(axes) if isinstance(axes, tuple) else CHANNELS.get(kind, 0)


def _listed(seen: _Seen) -> str:
    names = [place.text for place in seen.places] or [f"rate {rate:g} within a module" for rate in seen.inside]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _parted(a: _Seen, b: _Seen) -> str:
    """Return the first place at which both do not drop alike, in words; empty where there is none."""
    if _joined(a) == _joined(b) and _equal_joined(a, b):
        return ""  # layers that are stacked in one and apart in the other give the same values
    left = list(b.places)
    for place in a.places:
        alike = [other for other in left if _same(place.values, other.values)]
        exact = [other for other in alike if (other.rate, other.shared) == (place.rate, place.shared)]
        if exact:
            left.remove(exact[0])
            continue
        if alike:
            return f"dropout at one place: {place.text} in {a.name}, {alike[0].text} in {b.name}"
        near = f"; {b.name} has {left[0].text}, and another value goes through it" if left else ""
        return f"dropout at another place: {place.text} of {a.name} has no counterpart in {b.name}{near}"
    return f"dropout at another place: {left[0].text} of {b.name} has no counterpart in {a.name}" if left else ""


def _joined(seen: _Seen) -> dict[tuple[float, int], int]:
    sizes: dict[tuple[float, int], int] = {}
    for place in seen.places:
        key = (place.rate, place.shared)
        sizes[key] = sizes.get(key, 0) + place.values.size
    return sizes


def _equal_joined(a: _Seen, b: _Seen) -> bool:
    def values(seen: _Seen, key: tuple[float, int]) -> NDArray[np.float64]:
        return np.sort(np.concatenate([one.values for one in seen.places if (one.rate, one.shared) == key]))

    return all(_same(values(a, key), values(b, key)) for key in _joined(a))


def _same(one: NDArray[np.float64], two: NDArray[np.float64]) -> bool:
    return one.shape == two.shape and spread_of(one, two) <= NEAR * float(np.abs(one).max(initial=1e-300))
