"""Checkpoints of any tool as training states: what they hold, how two differ, and converting one into another format.

Knows formats by `parity.formats` and no framework; trains nothing.
"""

from parity.convert.choosing import choose
from parity.convert.comparison import Comparison, LeafComparison, Outcome, Tolerance, compare_sources
from parity.convert.components import COMPONENTS, Part, component_of_key, parts_of
from parity.convert.inspection import Group, Inspection, Row, inspect_source
from parity.convert.opening import is_checkpoint, open_any
from parity.convert.proof import Proof, prove

__all__ = [
    "COMPONENTS",
    "Comparison",
    "Group",
    "Inspection",
    "LeafComparison",
    "Outcome",
    "Part",
    "Proof",
    "Row",
    "Tolerance",
    "choose",
    "compare_sources",
    "component_of_key",
    "inspect_source",
    "is_checkpoint",
    "open_any",
    "parts_of",
    "prove",
]
