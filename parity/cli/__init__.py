"""The command `parity`: one module for each command; each parses, calls and returns an exit code."""

from parity.cli.main import main

__all__ = [
    "main",
]
