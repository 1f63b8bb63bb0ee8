"""One optimizer with the arguments that were given: what its translations change, the exact code, its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.contract import Measured, Translation
from parity.report.equivalence import jax_code, state_keys
from parity.state import OptimizerKind

__all__ = ["optimizer_report"]


def optimizer_report(kind: OptimizerKind, given: Mapping[str, Any], measured: Measured | str) -> str:
    """Return what an optimizer's obvious translations change, and the code for one's own arguments.

    Args:
        kind: The optimizer.
        given: Its arguments under PyTorch's names; those left out are PyTorch's defaults.
        measured: What was measured with these arguments, or why nothing was.
    """
    rows = [("optimizer", kind.name), ("arguments", _arguments(given) or "PyTorch's defaults")]
    exact = ("exact", jax_code(kind, given))
    notes = [("  note", text) for flag, text in kind.inexact.items() if given.get(flag)]
    state = ("state", state_keys(kind).replace("`", "") or "none")
    if isinstance(measured, str):
        rows += [exact, *notes, state, ("measured", f"no: {measured}")]
        return _aligned(rows)
    for number, one in enumerate(measured.translations):
        rows += [("also written" if number else "obvious translation", one.text), *_figures(one, measured)]
    rows += [exact, ("  differs by", _exact(measured)), *notes, state]
    files = dict.fromkeys([measured.source, *(one.source for one in measured.translations)])
    rows += [("sources", "; ".join(files)), ("measured", _how(measured))]
    return _aligned(rows)


def _figures(one: Translation, measured: Measured) -> list[tuple[str, str]]:
    rows = [("  leaves out", ", ".join(one.left_out))] if one.left_out else []
    if one.after_all is None:
        return [*rows, ("  not measured", one.problem)]
    rows.append(("  first differs", "never" if one.first is None else f"step {one.first}"))
    if one.after_200 is not None and measured.counted > 200:
        rows.append(("  in 200 steps", f"{one.after_200:.1e}"))
    return [*rows, (f"  in {measured.counted:,} steps", f"{one.after_all:.1e}")]


def _exact(measured: Measured) -> str:
    if measured.exact is None:
        return "nothing that can be judged: PyTorch's own loss moves by more with the last place of the start"
    text = f"{measured.exact:.1e} in {measured.judged:,} steps"
    return text if measured.apart is None else f"{text}, by more than 1e-12 from step {measured.apart:,} on"


def _how(measured: Measured) -> str:
    text = f"now, in float64, over {measured.steps:,} steps, with {', '.join(measured.versions)}"
    if measured.counted < measured.steps:
        text += f"; PyTorch's loss is not finite from step {measured.counted:,} on"
    if measured.judged < measured.counted:
        text += (
            f"; exact up to step {measured.judged:,}, where the last place of the start moves PyTorch's loss by 1e-13"
        )
    return text


def _arguments(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def _aligned(rows: list[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)
