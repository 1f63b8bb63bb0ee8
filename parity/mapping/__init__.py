"""Which leaf of one tree is which of another, and what turns its array: rules, transforms, placements, pairs.

Knows names, shapes and arrays; not what a leaf is for, nor which framework a tree is of.
"""

from parity.mapping.axes import Permute, Reshape, Transpose
from parity.mapping.lazy import Zeros
from parity.mapping.names import by_keys, by_text, fill_keys, fill_text
from parity.mapping.owners import pair_slots, words_of
from parity.mapping.pair import Pair, PairRule, matching
from parity.mapping.pairing import pair_leaves, permutation_of
from parity.mapping.parts import Add, Copies, Join, Split, Stack, Tie, Unstack
from parity.mapping.row import ConversionRule, row_of
from parity.mapping.rows import parse_rules, read_rules, rules_text
from parity.mapping.rule import LeafRule, RulePlacement
from parity.mapping.rule_set import ConversionRules
from parity.mapping.shapes import by_order, by_shapes
from parity.mapping.transform import CLASSES, RuleClass, Transform
from parity.mapping.values import Cast, Recount, Times

__all__ = [
    "CLASSES",
    "Add",
    "Cast",
    "ConversionRule",
    "ConversionRules",
    "Copies",
    "Join",
    "LeafRule",
    "Pair",
    "PairRule",
    "Permute",
    "Recount",
    "Reshape",
    "RuleClass",
    "RulePlacement",
    "Split",
    "Stack",
    "Tie",
    "Times",
    "Transform",
    "Transpose",
    "Unstack",
    "Zeros",
    "by_keys",
    "by_order",
    "by_shapes",
    "by_text",
    "fill_keys",
    "fill_text",
    "matching",
    "pair_leaves",
    "pair_slots",
    "parse_rules",
    "permutation_of",
    "read_rules",
    "row_of",
    "rules_text",
    "words_of",
]
