"""What crosses the seam between the harness and any trainer: the plan of a run, its records, its state, the verbs.

Knows no RunSpec, no side and no directory.
"""

from parity.contract.leaf_blocks import LeafDigest, Order
from parity.contract.leaf_digests import (
    SCHEMA,
    ArrayText,
    Difference,
    DigestSchema,
    compare_digests,
    compare_states,
    component_of,
    digest_text,
    in_schema_2,
    leaf_digests,
    memory_orders,
    order_of,
    orders_of,
    read_text,
    schema_of,
)
from parity.contract.place import Place
from parity.contract.plan import Pace, RunPlan
from parity.contract.records import Divergence, encode, first_divergence, read_records, same, splice
from parity.contract.state import TrainingState, take_count, take_scale
from parity.contract.trainer import QUANTITIES, StepRecord, Trainer, Validation

__all__ = [
    "QUANTITIES",
    "SCHEMA",
    "ArrayText",
    "Difference",
    "DigestSchema",
    "Divergence",
    "LeafDigest",
    "Order",
    "Pace",
    "Place",
    "RunPlan",
    "StepRecord",
    "Trainer",
    "TrainingState",
    "Validation",
    "compare_digests",
    "compare_states",
    "component_of",
    "digest_text",
    "encode",
    "first_divergence",
    "in_schema_2",
    "leaf_digests",
    "memory_orders",
    "order_of",
    "orders_of",
    "read_records",
    "read_text",
    "same",
    "schema_of",
    "splice",
    "take_count",
    "take_scale",
]
