"""What crosses the seam between the harness and any trainer: identity and plan of a run, records, state, the verbs.

Knows no framework, no directory, and nothing of what a field of the identity means.
"""

from parity.contract.groups import GroupRule, assign_groups
from parity.contract.identity import RunIdentity, flatten_tables, nest_fields, parse_toml
from parity.contract.leaf_blocks import LeafDigest, Order, block_shape, bytes_of
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
from parity.contract.leaf_values import VALUES, LeafSize, keep_values, measure_arrays, measure_kept
from parity.contract.optimizer_kinds import OptimizerKind, Slot, has_effect
from parity.contract.optimizer_state import NeutralGroup, NeutralOptimizer, slot_shape
from parity.contract.optimizers import OPTIMIZERS, optimizer_kind
from parity.contract.place import Place
from parity.contract.plan import Pace, RunPlan
from parity.contract.records import Divergence, first_divergence, read_records, record_line, same, splice
from parity.contract.schedule_state import pack_schedule, unpack_schedule
from parity.contract.side import (
    Processes,
    Side,
    child_environment,
    drafts_of,
    prepare_process,
    processes_of,
    shared_programs,
)
from parity.contract.state import TrainingState, take_count, take_scale
from parity.contract.trainer import (
    PRECISIONS,
    QUANTITIES,
    Precision,
    StepRecord,
    Trainer,
    Validation,
    require_trainer,
)
from parity.contract.translation import LeastSquares, Measured, Translation

__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "QUANTITIES",
    "SCHEMA",
    "VALUES",
    "ArrayText",
    "Difference",
    "DigestSchema",
    "Divergence",
    "GroupRule",
    "LeafDigest",
    "LeafSize",
    "LeastSquares",
    "Measured",
    "NeutralGroup",
    "NeutralOptimizer",
    "OptimizerKind",
    "Order",
    "Pace",
    "Place",
    "Precision",
    "Processes",
    "RunIdentity",
    "RunPlan",
    "Side",
    "Slot",
    "StepRecord",
    "Trainer",
    "TrainingState",
    "Translation",
    "Validation",
    "assign_groups",
    "block_shape",
    "bytes_of",
    "child_environment",
    "compare_digests",
    "compare_states",
    "component_of",
    "digest_text",
    "drafts_of",
    "first_divergence",
    "flatten_tables",
    "has_effect",
    "in_schema_2",
    "keep_values",
    "leaf_digests",
    "measure_arrays",
    "measure_kept",
    "memory_orders",
    "nest_fields",
    "optimizer_kind",
    "order_of",
    "orders_of",
    "pack_schedule",
    "parse_toml",
    "prepare_process",
    "processes_of",
    "read_records",
    "read_text",
    "record_line",
    "require_trainer",
    "same",
    "schema_of",
    "shared_programs",
    "slot_shape",
    "splice",
    "take_count",
    "take_scale",
    "unpack_schedule",
]
