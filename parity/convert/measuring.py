"""Whether a transformation of the user's own takes the steps of PyTorch's optimizer: measured, by updates of both.

No state has the function that made it: another decay, another epsilon, a rate of another sign keep the same fields.
So both make a few updates of the same small numbers in float64, from the counts and hyperparameters of the state, and
each element is compared. Gradients are so small that no clipping of them acts, which in PyTorch is of the training
loop. One trial has moments so large that a clipping of updates acts, for which PyTorch's loop has no place. One has
large gradients, and says whether they are clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.convert.optax_parts import parts_of_optax
from parity.convert.optax_tree import argument_of
from parity.errors import CheckpointError, ParityError
from parity.formats import Array, Tree, leaf_name, leaves, map_leaves, number_of

__all__ = ["Updates", "require_updates"]

MOST_ELEMENTS = 200_000
"""Parameters of more elements are measured with extents of at most `MOST_EXTENT`."""

MOST_EXTENT = 3
SMALL = 1e-6
"""Size of gradients: below every clip. One trial has parameters as small, where a decay would hide the moments."""

LARGE = 1e9
"""Times the moments, in the trial in which a clipping of updates acts, and times the gradients in that of theirs."""

TOLERANCE = 1e-5
"""Relative difference that numbers of float32 in the user's code explain, such as those of a schedule."""

ROUNDED = 2e-2
"""Where moments are kept in a type of fewer bits, and for RAdam: PyTorch adds its epsilon to the root that is not yet
corrected, Optax to the corrected one, which tells for gradients as small as these."""

KINDS = ("Adam", "AdamW", "SGD", "Adamax", "RAdam")
"""Classes that some transformation takes the steps of."""

UpdateArrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Updates:
    """What computes updates, as the side of JAX has it."""

    of_own: Callable[[Tree, UpdateArrays, Sequence[Tree]], list[dict[str, Any]]]
    """The user's transformation: of parameters, leaves of its state, and gradients."""
    of_class: Callable[..., list[dict[str, Any]]]
    """A class of torch.optim, as `updates_by_class` takes it."""


def require_updates(
    measured: Updates,
    params: Tree,
    state: Tree,
    kind: str,
    groups: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
    where: str,
) -> tuple[bool, str]:
    """Check that the user's transformation takes the steps of PyTorch's groups.

    Args:
        measured: What computes updates.
        params: JAX's parameters.
        state: The state of the transformation, with the counts and hyperparameters that it goes on from.
        kind: Class of the optimizer.
        groups: Arguments of each group, and the paths of its parameters in JAX.
        where: What names the transformation, for messages.

    Returns:
        Whether updates were compared, as they have to be to prove anything, and what is to be said, as a sentence;
        empty if nothing.

    Raises:
        CheckpointError: An update differs; says where, and both.
    """
    groups = [(_plain(group), list(paths)) for group, paths in groups if paths]
    if kind not in KINDS or not groups:
        return False, ""
    rates: set[float] = set()
    clips = ""
    for size, momentum, gradient in ((1.0, 1.0, 1.0), (SMALL, 1.0, 1.0), (1.0, LARGE, 1.0), (1.0, 1.0, LARGE)):
        trial = _UpdateTrial.of(params, state, kind, where, size, momentum, gradient)
        try:
            own = measured.of_own(trial.params, trial.values, trial.grads)
            flat = [{leaf_name(keys): leaf for keys, leaf in leaves(one)} for one in (trial.params, *trial.grads)]
            its = measured.of_class(kind, groups, flat[0], trial.slots, trial.steps, flat[1:])
        except CheckpointError:
            raise
        except ParityError as error:
            return False, f"{where}: its updates are not compared with those of {kind}: {error}"
        for at, (one, other) in enumerate(zip(own, its, strict=True)):
            scale = _scale(one, other) if trial.scheduled else 1.0
            if not scale:
                why = "a rate is 0 now, of its schedule or of PyTorch's group, so no updates are compared"
                return False, f"{where}: {why}"
            parted = _parted(one, other, scale, trial.tolerance, groups)
            moved_otherwise = bool(rates) and abs(scale / min(rates) - 1) > trial.tolerance
            if gradient != 1.0:
                clips = clips or (CLIPS if at == 0 and (parted or moved_otherwise) else "")
                continue
            if parted or (at == 0 and moved_otherwise):
                raise CheckpointError(
                    f"{where}: its update is not that of {kind} in PyTorch's state: {parted or ANOTHER_RATE}"
                    f"{BEHIND if momentum != 1.0 else ''}; give the transformation that takes the same steps"
                )
            if at == 0 and trial.scheduled:
                rates.add(scale)
    rates -= {1.0}
    if not rates:
        return True, f"{where}: {clips}" if clips else ""
    shown = f"{groups[0][0].get('lr')} in PyTorch's group"
    said = f"its schedule gives {min(rates):.6g} times the rate, which is {shown}: in JAX the schedule decides"
    return True, f"{where}: {said}{f'; {clips}' if clips else ''}"


CLIPS = "it takes another step where gradients are large, as a clipping does: PyTorch's loop has to clip alike"

BEHIND = (
    " (with large moments: what is clipped is the update, not the gradient, which PyTorch's loop has no place for)"
)

ANOTHER_RATE = "all of it is another multiple of PyTorch's than where moments are small"


@dataclass(frozen=True)
class _UpdateTrial:
    """Numbers on which both compute updates."""

    params: Tree
    grads: list[Tree]
    values: dict[str, np.ndarray[Any, Any]]
    slots: dict[str, dict[str, np.ndarray[Any, Any]]]
    steps: dict[str, int]
    scheduled: bool
    tolerance: float

    @classmethod
    def of(
        cls, params: Tree, state: Tree, kind: str, where: str, size: float, momentum: float, gradient: float
    ) -> _UpdateTrial:
        """Draw numbers like some parameters, with moments like a state's.

        Args:
            params: The parameters.
            state: The state of the transformation.
            kind: Class of the optimizer.
            where: What names the transformation.
            size: Of parameters.
            momentum: Times first moments, and buffers of a momentum.
            gradient: Times gradients.
        """
        draw = np.random.default_rng(7)
        total = sum(leaf.size for _, leaf in leaves(params) if isinstance(leaf, Array))

        def shape(leaf: Any) -> tuple[int, ...]:
            extents = leaf.shape if isinstance(leaf, Array) else ()
            return tuple(extents) if total <= MOST_ELEMENTS else tuple(min(MOST_EXTENT, n) for n in extents)

        def drawn(scale: float) -> Tree:
            return map_leaves(params, lambda _, leaf: scale * draw.standard_normal(shape(leaf)))

        parts = parts_of_optax(state, where).of_kind(kind)
        shapes = {leaf_name(keys): shape(leaf) for keys, leaf in leaves(params)}
        values: dict[str, np.ndarray[Any, Any]] = {}
        slots: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        steps, narrow = dict.fromkeys(shapes, 1), False
        for moment in parts.moments:
            for slot, rows in moment.slots.items():
                for path, (leaf, array) in rows.items():
                    value = momentum * SMALL * draw.standard_normal(shapes[path])
                    if slot == "second_moment":
                        value = SMALL**2 * (0.5 + draw.random(shapes[path]))
                    elif slot == "infinity_norm":
                        value = SMALL * (0.5 + draw.random(shapes[path]))
                    values[leaf] = slots.setdefault(slot, {})[path] = value
                    narrow |= array.dtype.itemsize < 4
                    if moment.count is not None:
                        steps[path] = int(number_of(moment.count[1]))
        for keys, leaf in leaves(state):
            name = leaf_name(("opt_state", *keys))
            if name not in values and isinstance(leaf, Array | bool | int | float):
                known = np.asarray(leaf.load() if isinstance(leaf, Array) and leaf.size == 1 else number_of(leaf))
                if known.size == 1 and known.dtype.kind in "biuf":
                    values[name] = known
        tolerance = ROUNDED if narrow or kind == "RAdam" else TOLERANCE
        grads = [drawn(gradient * SMALL), drawn(gradient * SMALL)]
        return cls(drawn(size), grads, values, slots, steps, bool(parts.schedules), tolerance)


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a group as numbers of Python: a rate may be a tensor."""
    found = {name: number_of(value) for name, value in group.items() if name not in ("params", "param_names")}
    if "betas" in found:
        found["betas"] = tuple(argument_of(group, f"betas.{at}") for at in (0, 1))
    return found


def _scale(one: UpdateArrays, other: UpdateArrays) -> float:
    """Return the factor by which one update is the other, as a schedule gives another rate; 1 if there is none.

    It is 0 where one of them alone does not move at all.
    """
    if any(np.any(one[path]) for path in other if path in one) != any(np.any(update) for update in other.values()):
        return 0.0
    dot = sum(float(np.vdot(one[path], other[path])) for path in other if path in one)
    square = sum(float(np.vdot(update, update)) for update in other.values())
    scale = dot / square if square else 1.0
    return scale if scale > 0 and abs(scale - 1) > TOLERANCE else 1.0


def _parted(
    one: UpdateArrays,
    other: UpdateArrays,
    scale: float,
    tolerance: float,
    groups: Sequence[tuple[Mapping[str, Any], Sequence[str]]],
) -> str:
    """Return what two updates differ in, as a clause; empty where they are the same."""
    for group, paths in groups:
        for path in paths:
            mine, its = np.asarray(one.get(path, np.zeros(()))), scale * np.asarray(other[path])
            if not its.size:
                continue
            largest = max(float(np.max(np.abs(its))), float(np.max(np.abs(mine))))
            worst = int(np.argmax(np.abs(mine - its)))
            if np.max(np.abs(mine - its)) <= tolerance * largest:
                continue
            shown = ", ".join(f"{name}={group[name]}" for name in SHOWN if name in group)
            return (
                f"an element of {path} moves by {np.broadcast_to(mine, its.shape).flat[worst]:.6g}, and by "
                f"{its.flat[worst]:.6g} with {shown}"
            )
    return ""


SHOWN = ("lr", "betas", "momentum", "eps", "weight_decay", "nesterov")
"""Arguments of a group that a message shows."""
