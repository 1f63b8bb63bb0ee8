"""The likely cause of a parting: what is tried, in which order, on the values of the pair that parts.

A bias or a weight that explains all of the difference comes first; then settings that differ, which both models state
(they may differ beside the fault); then what else values tell, the narrowest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parity.checks.models.attention_causes import attention_cause
from parity.checks.models.causes import activation_cause, gate_cause, setting_cause, weight_cause
from parity.checks.models.fitting import Float64s, fits
from parity.checks.models.flow_causes import activation_order_cause, factor_cause, layout_cause, term_cause
from parity.checks.models.grouped_causes import grouped_cause
from parity.checks.models.module_causes import angle_cause, left_out_cause
from parity.checks.models.modules import CallPair, comparable
from parity.checks.models.norm_causes import norm_cause, norm_way_cause
from parity.checks.models.pooling_causes import pooling_cause, window_cause
from parity.checks.models.rotary_causes import rotary_cause
from parity.contract import ModuleCall

__all__ = ["Scene", "likely_cause"]


@dataclass(frozen=True)
class Scene:
    """What a cause is told from."""

    pair: CallPair
    """The pair that parts."""
    settings: tuple[Mapping[str, object], Mapping[str, object]]
    """Of its modules."""
    pairs: Sequence[CallPair]
    """All pairs, in the order in which the calls of the first model ended."""
    agreed: Sequence[tuple[CallPair, Float64s]]
    """Pairs before it whose outputs agree, with these outputs."""
    leaves: Mapping[str, Float64s]
    """Values of the first model's leaves."""
    dropouts: Sequence[float] = ()
    """Rates of the dropouts of both models."""
    calls: tuple[Sequence[ModuleCall], Sequence[ModuleCall]] = ((), ())
    """All calls of both, also of modules that the other has not."""


def likely_cause(scene: Scene, parted: tuple[Float64s, Float64s], given: tuple[Float64s, Float64s] | None) -> str:
    """Return what likely makes two values part; empty where nothing that is known makes both.

    Args:
        scene: Where they part.
        parted: The values that part: inputs or outputs of the pair, in one shape.
        given: Inputs that agree, where its outputs part; None where its inputs part, or cannot be compared.
    """
    pair = scene.pair
    if given is not None:
        own = _own(pair, scene.leaves)
        cause = (
            weight_cause(*parted, given[0], own)
            or setting_cause((pair.first[0].kind, pair.second[0].kind), *map(_evaluated, scene.settings))
            or norm_cause(*parted, given[0])
            or norm_way_cause(*parted, given[0], own)
        )
        if cause:
            return cause
    befores = [made for _, made in reversed(scene.agreed)]
    terms = _terms(scene.agreed)
    return (
        activation_cause(befores, *parted)
        or gate_cause(befores, *parted)
        or attention_cause(befores, *parted)
        or grouped_cause(befores, *parted)
        or rotary_cause(scene.pair.paths, *parted)
        or _order_cause(scene)
        or left_out_cause(scene.calls, scene.pair.paths, *parted)
        or factor_cause(*parted, scene.dropouts)
        or pooling_cause(terms, *parted)
        or window_cause(terms, *parted)
        or angle_cause(scene.pair.paths, *parted)  # of another flattening it sees columns in another order alone
        or layout_cause(terms, *parted)
        or activation_order_cause(terms, *parted)
        or term_cause(terms, *parted)
    )


def _evaluated(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that evaluation reads: a momentum or a rate of dropout that differs makes no value part."""
    return {name: value for name, value in settings.items() if name not in ("momentum", "p", "rate")}


def _own(pair: CallPair, leaves: Mapping[str, Float64s]) -> list[Float64s]:
    """Return the leaves that the module itself holds; none of several modules."""
    if len(pair.first) != 1:
        return []
    path = pair.first[0].path
    return [value for name, value in leaves.items() if name.rpartition(".")[0] == path]


def _terms(agreed: Sequence[tuple[CallPair, Float64s]]) -> list[tuple[str, Float64s]]:
    """Return values that agree in both models, named by the first model's modules, the nearest first."""
    found = []
    for pair, made in reversed(agreed):
        found.append((f"the output of {pair.paths[0]}", made))
        inputs = comparable(*([c.inputs[0] for c in side[:1] if c.inputs] for side in (pair.first, pair.second)))
        if inputs is not None and fits(*inputs, 1e-10 * float(abs(inputs[0]).max(initial=0.0))):
            found.append((f"the input of {pair.paths[0]}", inputs[0]))
    return found


def _order_cause(scene: Scene) -> str:
    """Return a norm that stands before a module in one model and after it in the other, told by what it is given."""
    parted = scene.pair.first[0].path
    single = [pair for pair in scene.pairs if len(pair.first) == len(pair.second) == 1]
    for norm in (pair for pair in single if "norm" in pair.first[0].kind.lower()):
        for other in reversed(single):  # the outermost of modules with one output is the last to end
            path = other.first[0].path
            if other is norm or not (parted == norm.first[0].path or f"{parted}.".startswith(f"{path}.")):
                continue
            sides = [(norm.first[0], other.first[0]), (norm.second[0], other.second[0])]
            before, after = ([test(*side) for side in sides] for test in (_feeds, _follows))
            for at, words in ((0, ("before", "after")), (1, ("after", "before"))):
                if before[at] and after[1 - at] and not before[1 - at] and not after[at]:
                    return f"order: {norm.paths[0]} {words[0]} {other.paths[0]} here, {words[1]} it there"
    return ""


def _feeds(norm: ModuleCall, other: ModuleCall) -> bool:
    return bool(norm.outputs and other.inputs) and _same(norm.outputs[0], other.inputs[0])


def _follows(norm: ModuleCall, other: ModuleCall) -> bool:
    """Return whether a norm is given what a module made, or its sum with what the module was given."""
    if not norm.inputs or not other.outputs:
        return False
    given, made = norm.inputs[0], other.outputs[0]
    added = bool(other.inputs) and other.inputs[0].shape == made.shape
    return _same(given, made) or (added and _same(given, made + other.inputs[0]))


def _same(a: Float64s, b: Float64s) -> bool:
    return a.shape == b.shape and fits(a, b, 1e-13 * float(abs(b).max(initial=0.0)))
