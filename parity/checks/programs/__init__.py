"""Programs of users computed again with operations changed: what makes two of them equal."""

from parity.checks.programs.edits import NamedValues, made_by
from parity.checks.programs.explaining import ProgramDifference, explain
from parity.checks.programs.functions import ACTIVATIONS
from parity.checks.programs.grafts import ValueGraft
from parity.checks.programs.matching import KnownValues, candidates_of

__all__ = [
    "ACTIVATIONS",
    "KnownValues",
    "NamedValues",
    "ProgramDifference",
    "ValueGraft",
    "candidates_of",
    "explain",
    "made_by",
]
