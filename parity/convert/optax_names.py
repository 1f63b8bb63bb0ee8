"""Functions of Optax whose states have the same fields, `count`, `mu` and `nu`: which class of torch.optim each is.

The fields tell none apart: `nu` is a mean of squares for Adam, a largest value for Adamax, something else for Yogi.
So the function is stated, or found by tracing an update; nothing else decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parity.errors import CheckpointError

__all__ = ["ALIKE", "NAMES", "name_of", "require_class", "require_momentum", "require_plain"]

ALIKE: Mapping[str, tuple[str, ...]] = {
    "adam": ("Adam", "AdamW"),
    "adamw": ("AdamW", "Adam"),
    "radam": ("RAdam",),
    "adamax": ("Adamax",),
    "nadam": ("NAdam",),
    "nadamw": ("NAdam",),
    "adamaxw": (),
    "adabelief": (),
    "lamb": (),
    "yogi": (),
}
"""Function of Optax to the classes of torch.optim that keep the same values and take the same steps."""

NAMES = tuple(ALIKE)

_TRACED = (
    *(("scale_by_yogi", "yogi"), ("scale_by_belief", "adabelief"), ("scale_by_adamax", "adamax")),
    *(("scale_by_radam", "radam"), ("scale_by_trust_ratio", "lamb"), ("scale_by_adam.nesterov", "nadam")),
    ("scale_by_adam", "adam"),
)
"""Transformation to the function that it is of; the first row that is there decides."""


def name_of(transformations: Collection[str]) -> str:
    """Return the function of Optax that some transformations are of; empty if none of them has such a state.

    Args:
        transformations: Names, as `transformations_of` of JAX's side returns them.

    Example:
        >>> name_of({"chain", "scale_by_adam", "scale_by_trust_ratio"}), name_of({"trace"})
        ('lamb', '')
    """
    return next((name for one, name in _TRACED if one in transformations), "")


def require_momentum(transformations: Collection[str], groups: Sequence[Mapping[str, Any]], where: str) -> None:
    """Check that an update takes Nesterov's step where groups of torch.optim do, and only there.

    The momentum is kept alike, so no state tells the two apart.

    Args:
        transformations: Names, as `transformations_of` of JAX's side returns them.
        groups: `param_groups` of the optimizer's state.
        where: What names the update, for messages.

    Raises:
        CheckpointError: They take different steps.

    Example:
        >>> require_momentum({"trace", "trace.nesterov"}, [{"momentum": 0.9, "nesterov": True}], "--optimizer")
    """
    if "trace" not in transformations:
        return
    taken = "trace.nesterov" in transformations
    for number, group in enumerate(groups):
        if group.get("momentum") and bool(group.get("nesterov")) != taken:
            said = ("with", "without") if taken else ("without", "with")
            raise CheckpointError(
                f"{where}: its momentum is optax.trace {said[0]} nesterov, and group {number} of PyTorch's state is "
                f"{said[1]}: the momentum is kept alike, the steps are not; give nesterov={not taken} there"
            )


def require_plain(groups: Sequence[Mapping[str, Any]], where: str) -> None:
    """Check that groups of torch.optim have nothing on that no transformation of Optax does.

    Args:
        groups: `param_groups` of the optimizer's state.
        where: What names the update, for messages.

    Raises:
        CheckpointError: One has.

    Example:
        >>> require_plain([{"lr": 0.1, "maximize": False}], "opt_state")
    """
    for number, group in enumerate(groups):
        for argument in ("amsgrad", "maximize", "dampening"):
            if group.get(argument):
                raise CheckpointError(
                    f"{where} is of Optax, and group {number} of PyTorch's state has {argument}={group[argument]}, "
                    "which Optax does not have or computes in another way"
                )


def require_class(name: str, kind: str, where: str) -> None:
    """Check that a class of torch.optim keeps what a function of Optax does.

    Args:
        name: The function; empty where it keeps no such state.
        kind: The class.
        where: What names the function, for messages.

    Raises:
        CheckpointError: It does not.

    Example:
        >>> require_class("adamax", "Adamax", "--optimizer")
    """
    if not name or kind in ALIKE[name]:
        return
    classes = " and ".join(ALIKE[name])
    what = f"is {classes} of torch.optim" if classes else "has no counterpart in torch.optim"
    raise CheckpointError(
        f"{where}: optax.{name} {what}, and PyTorch's state is of {kind}: the fields count, mu and nu are alike, the "
        "values and the steps are not"
    )
