"""Processes as forks of one that has imported what they need: its client, its server, and when forks are safe.

Interpreters that import PyTorch or JAX take two to four seconds of a processor before they do anything. A forked
process begins as a new one does after its imports. This package does not know what is imported, nor what runs.
"""

from parity.forks.client import Forked, ForkServer
from parity.forks.janitor import Janitor, descendants, end_marked, kill_tree, marking
from parity.forks.parent import end_with_parent
from parity.forks.safe import can_fork
from parity.forks.server import Job, serve

__all__ = [
    "ForkServer",
    "Forked",
    "Janitor",
    "Job",
    "can_fork",
    "descendants",
    "end_marked",
    "end_with_parent",
    "kill_tree",
    "marking",
    "serve",
]
