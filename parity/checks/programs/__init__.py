"""Programs of users computed again with one operation changed: what makes two of them equal."""

from parity.checks.programs.functions import ACTIVATIONS
from parity.checks.programs.search import Explanation, explain

__all__ = ["ACTIVATIONS", "Explanation", "explain"]
