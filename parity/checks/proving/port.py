"""The proof of a port: every stage of a training, in the order of computation, up to the first that parts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parity.checks.ports import Convert
from parity.checks.proving.opened import sources_of
from parity.checks.proving.sources import PortSource
from parity.checks.proving.stages import Proving
from parity.checks.proving.verdict import COMPUTED, STAGES, PortProof
from parity.contract import PRECISIONS, Precision
from parity.errors import SpecError, UnknownNameError
from parity.mapping import LeafRule

__all__ = ["PortBrokenError", "assert_port", "prove_port", "prove_sources"]


class PortBrokenError(AssertionError):
    """A port that does not train as its trainer does, or of which that cannot be shown.

    Attributes:
        proof: The whole verdict.
    """

    def __init__(self, proof: PortProof) -> None:
        self.proof = proof
        super().__init__(proof.text())


PortBrokenError.__module__ = "parity"


def prove_port(
    *, torch: Any = None, jax: Any = None, inputs: object = None, rules: Path | Sequence[LeafRule] | None = None,
    torch_args: Any = (), jax_args: Any = (), names: Mapping[str, str] | None = None, steps: int = 50,
    until: str | None = None, convert: Convert | None = None, back: Convert | None = None,
    precision: Precision = "float64",
) -> PortProof:  # fmt: skip
    """Return whether a port trains as its trainer does: model, loss, gradients, updates, resume and handover.

    Args:
        torch: The trainer of PyTorch: a module, its name, or a mapping of names to objects, which has `Model`,
            `batch`, `loss`, `start`, `step` and `train`; or two of them, as a list.
        jax: The same of JAX. Of both arguments together there are two trainers.
        inputs: What the models are called with, as of `parity.map_models`; by default `inputs` of the modules.
        rules: RULES.toml or rules, which say which leaf is which; by default the map that is proposed and proven.
        torch_args: What the model of PyTorch is built with: a tuple, a mapping of names, or one of them for each.
        jax_args: The same of JAX.
        names: What is asked for (`step`) to the name that it has in both modules (`train_step`).
        steps: Updates that are compared, at least 2.
        until: The last stage that is looked at (`parity.checks.proving.STAGES`); by default all.
        convert: Called as `convert(source, target)` with two folders, for the handover: reads what `train` of the
            first saved, and writes what `train` of the second resumes from.
        back: The same from the second to the first. With both, a run goes there and back; with this alone, one of
            the second goes on in the first.
        precision: A narrower type in which the updates are looked at too, inside the envelope that one unit in its
            last place spans on both sides. What parts in float64 and is inside that envelope is hidden: the verdict
            is `inconclusive` then.

    Returns:
        The verdict: `holds`, `broken` at the first stage that parts, with its cause, or `inconclusive` where a stage
        could not be looked at.

    Raises:
        SpecError: There are not two trainers, an argument cannot be used, or the user's code fails.
        CheckpointError: The rules cannot be read.

    Numerics: float64. A loss, a gradient or a state may differ by 1e-12 relative, or by three times what one unit in
    the last place of the start moves it.
    """
    first, second = sources_of({"torch": (torch, torch_args), "jax": (jax, jax_args)}, names or {})
    return prove_sources(first, second, inputs=inputs, rules=rules, steps=steps, until=until, convert=convert,
                         back=back, precision=precision)  # fmt: skip


def prove_sources(
    first: PortSource, second: PortSource, *, inputs: object = None, rules: Path | Sequence[LeafRule] | None = None,
    steps: int = 50, until: str | None = None, convert: Convert | None = None, back: Convert | None = None,
    precision: Precision = "float64",
) -> PortProof:  # fmt: skip
    """Return the verdict on two trainers; see `prove_port`."""
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 2:
        raise SpecError("steps", f"must be a whole number of at least 2, got {steps!r}")
    if until is not None and until not in STAGES:
        raise UnknownNameError("stage", until, STAGES)
    if precision not in PRECISIONS:
        raise UnknownNameError("precision", precision, PRECISIONS)
    last = until or STAGES[-1]
    if precision != "float64" and STAGES.index(last) < STAGES.index("update"):
        raise SpecError("precision", f"{precision} is judged by updates: give until='update' or a later stage, got "
                        f"{last!r}")  # fmt: skip
    began = time.perf_counter()
    proving = Proving(first, second, inputs, rules, steps, convert, back, last)
    for name in STAGES[: STAGES.index(last) + 1]:
        proving.look_at(name)
        if proving.stages and proving.stages[-1].verdict == "broken":
            break
    parted = next((one for one in proving.stages if one.verdict == "broken"), None)
    looked = precision != "float64" and (parted is None or parted.name in COMPUTED)
    return PortProof(
        (first.name, second.name), tuple(proving.stages), steps=steps, until=last, notes=tuple(proving.notes),
        narrow=proving.in_precision(precision) if looked else None, precision=precision,
        rules=proving.rules_text, figures=dict(proving.figures), seconds=time.perf_counter() - began,
    )  # fmt: skip


def assert_port(**settings: Any) -> PortProof:
    """Assert that a port trains as its trainer does.

    Args:
        settings: Arguments of `prove_port`.

    Returns:
        The verdict, which is `holds`.

    Raises:
        PortBrokenError: The verdict is `broken` or `inconclusive`; the message has at most 40 lines.
        SpecError: As of `prove_port`.
    """
    proof = prove_port(**settings)
    if proof.verdict != "holds":
        raise PortBrokenError(proof)
    return proof
