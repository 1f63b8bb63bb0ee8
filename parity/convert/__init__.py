"""Checkpoints of any tool as training states: what they hold, how two differ, and converting one into another format.

Knows formats by `parity.formats` and no framework; trains nothing.
"""

from parity.convert.aligning import aligned
from parity.convert.assigning import parts_of
from parity.convert.background_sealing import Sealing, seal
from parity.convert.below import advice_of_folders
from parity.convert.checksums import with_checksums
from parity.convert.choosing import choose
from parity.convert.comparison import Comparison, LeafComparison, LeafOutcome, Tolerance, compare_sources
from parity.convert.components import COMPONENTS, Part, component_of_key
from parity.convert.engine import convert, map_tree, mapped, without_document
from parity.convert.inspection import ComponentTotals, Inspection, ParameterCounts, TreeRow, inspect_source
from parity.convert.ledger import Action, Entry, Ledger
from parity.convert.measuring import Updates
from parity.convert.opening import open_any
from parity.convert.optax_names import NAMES, name_of
from parity.convert.optimizer_layout import LAYOUTS
from parity.convert.proof import Proof, prove
from parity.convert.registered import Registered, registered
from parity.convert.sealing import seal_checkpoint
from parity.convert.sealing_stored import seal_stored
from parity.convert.selecting import JAX_PARTS
from parity.convert.to_jax import Options, to_jax
from parity.convert.to_torch import to_torch
from parity.convert.torch_state import TorchState, read_torch_state
from parity.convert.writers import writer_of
from parity.mapping import (
    CLASSES,
    ConversionRule,
    ConversionRules,
    RulePlacement,
    Zeros,
    parse_rules,
    read_rules,
)

__all__ = [
    "CLASSES",
    "COMPONENTS",
    "JAX_PARTS",
    "LAYOUTS",
    "NAMES",
    "Action",
    "Comparison",
    "ComponentTotals",
    "ConversionRule",
    "ConversionRules",
    "Entry",
    "Inspection",
    "LeafComparison",
    "LeafOutcome",
    "Ledger",
    "Options",
    "ParameterCounts",
    "Part",
    "Proof",
    "Registered",
    "RulePlacement",
    "Sealing",
    "Tolerance",
    "TorchState",
    "TreeRow",
    "Updates",
    "Zeros",
    "advice_of_folders",
    "aligned",
    "choose",
    "compare_sources",
    "component_of_key",
    "convert",
    "inspect_source",
    "map_tree",
    "mapped",
    "name_of",
    "open_any",
    "parse_rules",
    "parts_of",
    "prove",
    "read_rules",
    "read_torch_state",
    "registered",
    "seal",
    "seal_checkpoint",
    "seal_stored",
    "to_jax",
    "to_torch",
    "with_checksums",
    "without_document",
    "writer_of",
]
