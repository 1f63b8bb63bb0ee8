"""NAdam's weights of moment and gradient: momenta that move by a schedule, and the ways in which these are got wrong.

The weight of the gradient over that of the moment holds no rate: at several updates it tells the momenta alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["nadam_cause", "nadam_kind", "nadam_parts"]

FIT = 1e-7
"""Relative distance of two ratios that are one."""

FEWEST = 2
"""Updates at which a ratio must be that of a kind."""


def _scheduled(beta: float, at: float, slow: float = 4e-3) -> float:
    return beta * (1 - 0.5 * 0.96 ** (at * slow))


def _product(momentum: Callable[[float], float], at: int) -> float:
    made = 1.0
    for one in range(1, at + 1):
        made *= momentum(one)
    return made


def _weights(momentum: Callable[[float], float], at: int) -> tuple[float, float]:
    now, after, whole = momentum(at), momentum(at + 1), _product(momentum, at)
    return after / (1 - whole * after), (1 - now) / (1 - whole)


def _of_schedule(beta: float, at: int) -> tuple[float, float]:
    return _weights(lambda one: _scheduled(beta, one), at)


def _of_constant(beta: float, at: int) -> tuple[float, float]:
    return _weights(lambda one: beta, at)


def _of_whole_count(beta: float, at: int) -> tuple[float, float]:
    return _weights(lambda one: _scheduled(beta, one, 1.0), at)


def _of_late_count(beta: float, at: int) -> tuple[float, float]:
    return _weights(lambda one: _scheduled(beta, one - 1), at)


def _of_early_count(beta: float, at: int) -> tuple[float, float]:
    return _weights(lambda one: _scheduled(beta, one + 1), at)


def _of_present(beta: float, at: int) -> tuple[float, float]:
    now, whole = _scheduled(beta, at), _product(lambda one: _scheduled(beta, one), at)
    return now / (1 - whole * now), (1 - now) / (1 - whole)


def _of_same_product(beta: float, at: int) -> tuple[float, float]:
    now, after = _scheduled(beta, at), _scheduled(beta, at + 1)
    whole = _product(lambda one: _scheduled(beta, one), at)
    return after / (1 - whole), (1 - now) / (1 - whole)


def _of_powers(beta: float, at: int) -> tuple[float, float]:
    now, after = _scheduled(beta, at), _scheduled(beta, at + 1)
    return after / (1 - after ** (at + 1)), (1 - now) / (1 - now**at)


def _of_nothing(beta: float, at: int) -> tuple[float, float]:
    return _scheduled(beta, at + 1), 1 - _scheduled(beta, at)


KINDS: Mapping[str, tuple[str, Callable[[float, int], tuple[float, float]]]] = {
    "scheduled": ("the momenta of this update and of the next move by the schedule 1 - 0.5 * 0.96^(0.004 t)",
                  _of_schedule),
    "constant": ("the momentum is the same at all updates (no schedule)", _of_constant),
    "present": ("the momentum of the moment is that of this update, not of the next", _of_present),
    "same product": ("the moment is corrected by the product up to this update, not to the next", _of_same_product),
    "powers": ("corrections are by powers of the last momentum, not by the product of all", _of_powers),
    "whole count": ("the schedule of the momentum is 1 - 0.5 * 0.96^t (no 0.004)", _of_whole_count),
    "late count": ("the schedule of the momentum counts from 0", _of_late_count),
    "early count": ("the schedule of the momentum counts from 2", _of_early_count),
    "uncorrected": ("moment and gradient are not corrected", _of_nothing),
}  # fmt: skip
"""Kind to its words, and to the weights of moment and gradient at an update."""


def nadam_parts(kind: str, beta: float, at: int) -> tuple[float, float]:
    """Return the weights of moment and gradient.

    Args:
        kind: Of `nadam_kind`.
        beta: What the moment keeps of itself.
        at: The update, counted from 1.
    """
    return KINDS[kind][1](beta, at)


def nadam_kind(beta: float, ratios: Mapping[int, float]) -> str:
    """Return which weights have the ratios of gradient to moment that are seen; empty where none have all of them.

    Args:
        beta: What the moment keeps of itself.
        ratios: Update to the weight of the gradient over that of the moment.
    """
    seen = {at: ratio for at, ratio in ratios.items() if at > 1 and ratio}
    if len(seen) < FEWEST:
        return ""
    for kind, (_, weights) in KINDS.items():
        made = {at: weights(beta, at) for at in seen}
        if all(abs(one[1] / one[0] - seen[at]) <= FIT * abs(seen[at]) for at, one in made.items()):
            return kind
    return ""


def nadam_cause(beta: float, here: Mapping[int, float], there: Mapping[int, float]) -> str:
    """Return which weights of NAdam two runs have; empty where that of one is not known, or both have the same.

    Args:
        beta: What both moments keep of themselves.
        here: Ratios of the trainer, as of `nadam_kind`.
        there: Of the port.
    """
    one, two = nadam_kind(beta, here), nadam_kind(beta, there)
    if not one or not two or one == two:
        return ""
    return f"Nesterov (NAdam): {KINDS[one][0]} here; {KINDS[two][0]} there"
