"""The command `parity`, one module for each subcommand.

Each one parses its options, calls the packages below and returns an exit code. Knows no framework.
"""

from parity.cli.commands import COMMANDS, make_parser
from parity.cli.main import main

__all__ = [
    "COMMANDS",
    "main",
    "make_parser",
]
