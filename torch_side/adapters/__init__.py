"""PyTorch for any trainer: kinds of live state, the state that a process shares, files. Knows no twin."""

from torch_side.adapters.files import is_part, read_saved
from torch_side.adapters.kinds import install
from torch_side.adapters.process import UNWRITTEN, clear, fresh_process, set_aside, share_programs, write

__all__ = ["clear", "fresh_process", "install", "is_part", "readers", "set_aside", "share_programs", "unwritten",
           "write"]  # fmt: skip

readers = (read_saved,)
"""What reads checkpoint files, in order."""

unwritten = UNWRITTEN
"""Functions and methods that give memory as it is."""
