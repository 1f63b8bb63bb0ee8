"""Programs of users computed again with operations changed: what makes two of them equal."""

from parity.checks.programs.edits import NamedValues
from parity.checks.programs.explaining import ProgramDifference, explain
from parity.checks.programs.functions import ACTIVATIONS

__all__ = ["ACTIVATIONS", "NamedValues", "ProgramDifference", "explain"]
