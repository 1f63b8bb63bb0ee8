"""What the two twin trainers share: data, initial values, schedule, parameter table, the base of their loop."""

from parity.twins.data import ArrayStream, BatchStream, Chunk, GrainStream, open_stream
from parity.twins.datasets import Dataset, batches_per_epoch, describe_data, load_dataset
from parity.twins.initial import initial_buffers, initial_params
from parity.twins.params import param_shapes
from parity.twins.prefetch import Prefetcher
from parity.twins.schedule import factor, rates
from parity.twins.sizes import activations, gigabytes, host_needs, physical_memory, require_memory
from parity.twins.steps import StepInputs, StepOutputs
from parity.twins.table import Layout, Row, check_leaves, from_jax, from_torch, table, to_jax, to_torch
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
    "StepInputs",
    "StepOutputs",
    "Twin",
    "activations",
    "batches_per_epoch",
    "check_leaves",
    "describe_data",
    "factor",
    "from_jax",
    "from_torch",
    "gigabytes",
    "host_needs",
    "initial_buffers",
    "initial_params",
    "load_dataset",
    "open_stream",
    "param_shapes",
    "physical_memory",
    "rates",
    "require_memory",
    "table",
    "to_jax",
    "to_torch",
]
