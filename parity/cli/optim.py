"""`parity optim`: what the obvious translation of an optimizer changes, and the JAX code for one's own arguments."""

from __future__ import annotations

import argparse
import ast
from typing import Any

from parity.cli.parser import say
from parity.contract import optimizer_kind
from parity.errors import SpecError
from parity.report import optimizer_report

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `parity optim`."""
    parser.add_argument("name", metavar="NAME", help="class of torch.optim, such as NAdam")
    parser.add_argument("arguments", nargs="*", metavar="ARGUMENT=VALUE", help="as PyTorch takes them: lr=0.01")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    kind = optimizer_kind(options.name)
    given = dict(_argument(text) for text in options.arguments)
    say(optimizer_report(kind, given))
    return 0


def _argument(text: str) -> tuple[str, Any]:
    """Return name and value of one argument; the value is a literal of Python, or a text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise SpecError(text[:60], "expected ARGUMENT=VALUE, such as lr=0.01")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return name, value
