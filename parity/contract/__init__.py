"""What crosses the seam between the harness and any trainer: the plan of a run, its records, its state, the verbs.

Knows no RunSpec, no side and no directory.
"""

from parity.contract.place import Place
from parity.contract.plan import Pace, RunPlan
from parity.contract.records import Divergence, encode, first_divergence, read_records, same, splice
from parity.contract.state import (
    Difference,
    Order,
    TrainingState,
    compare_digests,
    compare_states,
    component_of,
    digest_text,
    leaf_digests,
    memory_orders,
    order_of,
    orders_of,
    take_count,
    take_scale,
)
from parity.contract.trainer import QUANTITIES, StepRecord, Trainer, Validation

__all__ = [
    "QUANTITIES",
    "Difference",
    "Divergence",
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
    "leaf_digests",
    "memory_orders",
    "order_of",
    "orders_of",
    "read_records",
    "same",
    "splice",
    "take_count",
    "take_scale",
]
