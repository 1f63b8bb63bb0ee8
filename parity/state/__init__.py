"""State of a training: named leaves and their digests, neutral tables of optimizers and schedules, orders of data.

Knows no framework, no directory and no trainer.
"""

from parity.state.groups import (
    GroupRule,
    assign_groups,
)
from parity.state.leaf_blocks import (
    LeafDigest,
    Order,
    block_shape,
    bytes_of,
)
from parity.state.leaf_digests import (
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
from parity.state.leaf_shares import (
    Exchange,
    Scatter,
    SharedLeaf,
    complete_in_shares,
    digest_together,
)
from parity.state.leaf_values import (
    VALUES,
    LeafSize,
    keep_values,
    measure_arrays,
    measure_kept,
)
from parity.state.optimizer_kinds import (
    OptimizerKind,
    Slot,
    has_effect,
)
from parity.state.optimizer_state import (
    NeutralGroup,
    NeutralOptimizer,
    slot_shape,
)
from parity.state.optimizers import (
    OPTIMIZERS,
    optimizer_kind,
)
from parity.state.schedule_state import (
    pack_schedule,
    unpack_schedule,
)
from parity.state.torch_order import (
    DistributedOrder,
    LoaderOrder,
    OrderedSource,
    TorchGenerator,
)
from parity.state.training_state import (
    TrainingState,
    take_count,
    take_scale,
)

__all__ = [
    "OPTIMIZERS",
    "SCHEMA",
    "VALUES",
    "ArrayText",
    "Difference",
    "DigestSchema",
    "DistributedOrder",
    "Exchange",
    "GroupRule",
    "LeafDigest",
    "LeafSize",
    "LoaderOrder",
    "NeutralGroup",
    "NeutralOptimizer",
    "OptimizerKind",
    "Order",
    "OrderedSource",
    "Scatter",
    "SharedLeaf",
    "Slot",
    "TorchGenerator",
    "TrainingState",
    "assign_groups",
    "block_shape",
    "bytes_of",
    "compare_digests",
    "compare_states",
    "complete_in_shares",
    "component_of",
    "digest_text",
    "digest_together",
    "has_effect",
    "in_schema_2",
    "keep_values",
    "leaf_digests",
    "measure_arrays",
    "measure_kept",
    "memory_orders",
    "optimizer_kind",
    "order_of",
    "orders_of",
    "pack_schedule",
    "read_text",
    "schema_of",
    "slot_shape",
    "take_count",
    "take_scale",
    "unpack_schedule",
]
