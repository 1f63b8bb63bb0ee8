"""What crosses the seam between the harness and any trainer: identity and plan of a run, records, state, the verbs.

Knows no framework, no directory, and nothing of what a field of the identity means.
"""

from parity.contract.identity import RunIdentity, flatten_tables, nest_fields, parse_toml
from parity.contract.leaf_blocks import LeafDigest, Order, block_shape
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
from parity.contract.side import Processes, Side, child_environment, drafts_of, prepare_process, processes_of
from parity.contract.state import TrainingState, take_count, take_scale
from parity.contract.trainer import PRECISIONS, QUANTITIES, Precision, StepRecord, Trainer, Validation

__all__ = [
    "PRECISIONS",
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
    "Precision",
    "Processes",
    "RunIdentity",
    "RunPlan",
    "Side",
    "StepRecord",
    "Trainer",
    "TrainingState",
    "Validation",
    "block_shape",
    "child_environment",
    "compare_digests",
    "compare_states",
    "component_of",
    "digest_text",
    "drafts_of",
    "encode",
    "first_divergence",
    "flatten_tables",
    "in_schema_2",
    "leaf_digests",
    "memory_orders",
    "nest_fields",
    "order_of",
    "orders_of",
    "parse_toml",
    "prepare_process",
    "processes_of",
    "read_records",
    "read_text",
    "same",
    "schema_of",
    "splice",
    "take_count",
    "take_scale",
]
