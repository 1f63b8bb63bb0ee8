"""`parity optim`: what translations of an optimizer change, measured with one's own arguments, and the exact code."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from parity.cli.options import positive
from parity.cli.parser import say
from parity.contract import Measured
from parity.errors import MissingFrameworkError, SpecError
from parity.report import jax_code, optimizer_report
from parity.state import OptimizerKind, optimizer_kind

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity optim`."""
    parser.add_argument("name", metavar="NAME", help="class of torch.optim, such as NAdam")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT=VALUE", help="as PyTorch takes them: lr=0.01")
    parser.add_argument(
        "--steps", type=positive, default=1_000, metavar="N", help="steps of each training; 1000 by default, seconds"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    kind = optimizer_kind(options.name)
    given: dict[str, Any] = {}
    for text in options.arguments:
        name, value = _argument(text)
        if name in given:
            raise SpecError(name, f"is given twice: {given[name]!r} and {value!r}")
        given[name] = value
    if not kind.in_torch:
        problem = f"has no row, for torch.optim has none to compare with; call {jax_code(kind, given)}"
        raise SpecError(kind.name, problem)
    given = {name: value for name, value in kind.resolve(given).items() if name in given}
    say(optimizer_report(kind, given, _measured(kind, given, options.steps)))
    return 0


def _measured(kind: OptimizerKind, given: dict[str, Any], steps: int) -> Measured | str:
    """Return what is measured now, or why nothing is; what the arguments are is known without."""
    from parity.checks import measure_optimizer

    try:
        return measure_optimizer(kind, given, steps)
    except MissingFrameworkError as error:
        return str(error)


def _argument(text: str) -> tuple[str, Any]:
    """Return name and value of one argument; the value is a literal of Python, or a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise SpecError(text[:60], "expected ARGUMENT=VALUE, such as lr=0.01")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value
