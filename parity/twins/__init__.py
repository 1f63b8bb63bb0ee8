"""What the two twin trainers share: data, initial values, schedule, parameter table, the base of their loop."""

from parity.twins.data import ArrayStream, BatchStream, Chunk, GrainStream, Share, open_stream
from parity.twins.datasets import Dataset, batches_per_epoch, describe_data, load_dataset
from parity.twins.initial import initial_buffers, initial_params
from parity.twins.layout import Layout
from parity.twins.prefetch import Prefetcher
from parity.twins.schedule import factor, first_schedule, rates
from parity.twins.sizes import activations, gigabytes, host_needs, physical_memory, require_memory
from parity.twins.slots import SlotRows, group_rates, group_rules, is_former, kind_of, one_count, own_count
from parity.twins.steps import StepInputs, StepOutputs
from parity.twins.table import Row, param_shapes, table
from parity.twins.translation import check_leaves, from_jax, from_torch, to_jax, to_torch
from parity.twins.twin import Twin

__all__ = [
    "ArrayStream",
    "BatchStream",
    "Chunk",
    "Dataset",
    "GrainStream",
    "Layout",
    "Prefetcher",
    "Row",
    "Share",
    "SlotRows",
    "StepInputs",
    "StepOutputs",
    "Twin",
    "activations",
    "batches_per_epoch",
    "check_leaves",
    "describe_data",
    "factor",
    "first_schedule",
    "from_jax",
    "from_torch",
    "gigabytes",
    "group_rates",
    "group_rules",
    "host_needs",
    "initial_buffers",
    "initial_params",
    "is_former",
    "kind_of",
    "load_dataset",
    "one_count",
    "open_stream",
    "own_count",
    "param_shapes",
    "physical_memory",
    "rates",
    "require_memory",
    "table",
    "to_jax",
    "to_torch",
]
