"""RunSpec, the full description of a twin run: frozen dataclasses, presets, TOML.

Knows how a run is described, not how it is trained.
"""

from parity.spec.mesh import AXES, MESH_AXES, MeshSpec, fit_mesh, split_axes
from parity.spec.models import CnnSpec, GptSpec, LinearSpec, MlpSpec, ModelBase, ModelSpec
from parity.spec.optimizer import LATER, OPTIMIZER_SPECS, AdamSpec, GroupSpec, OptimizerSpec, SgdSpec
from parity.spec.presets import PRESETS, preset
from parity.spec.run import PRECISIONS, DataSpec, DropoutSpec, ExecutionSpec, Precision, RunSpec, SaveSpec
from parity.spec.scaler import ScalerSpec
from parity.spec.schedule import AnyScheduleSpec, RuleSpec, ScheduleSpec
from parity.spec.tables import from_dict
from parity.spec.toml import (
    FREE,
    differences,
    flatten,
    from_toml,
    identity_of,
    load,
    override,
    spec_hash,
    to_toml,
)

__all__ = [
    "AXES",
    "FREE",
    "LATER",
    "MESH_AXES",
    "OPTIMIZER_SPECS",
    "PRECISIONS",
    "PRESETS",
    "AdamSpec",
    "AnyScheduleSpec",
    "CnnSpec",
    "DataSpec",
    "DropoutSpec",
    "ExecutionSpec",
    "GptSpec",
    "GroupSpec",
    "LinearSpec",
    "MeshSpec",
    "MlpSpec",
    "ModelBase",
    "ModelSpec",
    "OptimizerSpec",
    "Precision",
    "RuleSpec",
    "RunSpec",
    "SaveSpec",
    "ScalerSpec",
    "ScheduleSpec",
    "SgdSpec",
    "differences",
    "fit_mesh",
    "flatten",
    "from_dict",
    "from_toml",
    "identity_of",
    "load",
    "override",
    "preset",
    "spec_hash",
    "split_axes",
    "to_toml",
]
