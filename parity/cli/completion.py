"""`parity completion`: a script that completes commands and options in a shell, made from the parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from parity import sides
from parity.checks import MEANINGS
from parity.cli.options import directory, local_path
from parity.reference import CHECKS
from parity.spec import PRESETS
from parity.state import OPTIMIZERS

__all__ = ["SHELLS", "add"]

SHELLS = ("bash", "zsh", "fish")

VALUES = {
    "side": tuple(sides.SIDES),
    "sides": tuple(sides.SIDES),
    "spec": tuple(PRESETS),
    "checks": tuple(CHECKS),
    "scenarios": ("quick", "all", *MEANINGS),
    "name": tuple(OPTIMIZERS),
}
"""Values of arguments that take others too, such as a file, so that the parser has no list of them."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the argument of `parity completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    import shtab  # of this command alone

    for action in _actions(options.parser):
        if values := VALUES.get(action.dest) or getattr(action.type, "words", None):
            action.choices = values
        elif action.type in (local_path, directory):
            action.complete = shtab.FILE if action.type is local_path else shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(options.parser, shell=options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Return the arguments of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in action.choices.values():
                yield from _actions(one)
        else:
            yield action
