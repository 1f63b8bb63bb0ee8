"""Checkpoints of any tool as training states: what they hold, how two differ, and converting one into another format.

Knows formats by `parity.formats` and no framework; trains nothing.
"""

from parity.convert.comparison import Comparison, LeafComparison, Tolerance, compare_sources
from parity.convert.components import COMPONENTS, Part, component_of_key, parts_of
from parity.convert.inspection import Group, Inspection, Row, inspect_source

__all__ = [
    "COMPONENTS",
    "Comparison",
    "Group",
    "Inspection",
    "LeafComparison",
    "Part",
    "Row",
    "Tolerance",
    "compare_sources",
    "component_of_key",
    "inspect_source",
    "parts_of",
]
