"""What crosses the seam between the harness and any trainer: identity and plan of a run, records, the verbs.

Knows no framework, no directory, and nothing of what a field of the identity means.
"""

from typing import TYPE_CHECKING

from parity.contract.expressions import expression_at
from parity.contract.gathered import Gather, gather_values
from parity.contract.identity import (
    RunIdentity,
    flatten_tables,
    nest_fields,
    parse_toml,
)
from parity.contract.masks import DropoutMasks
from parity.contract.place import (
    Place,
)
from parity.contract.plan import (
    Pace,
    RunPlan,
)
from parity.contract.probe import (
    Evaluation,
    Inputs,
    Island,
    ModelProbe,
    ModuleCall,
    Weigh,
    call_with,
)
from parity.contract.programs import (
    OperationArrays,
    OperationEdit,
    ProgramOperation,
    TracedProgram,
    WayBack,
    WayPoint,
)
from parity.contract.records import (
    Divergence,
    first_divergence,
    read_records,
    record_line,
    same,
    splice,
)
from parity.contract.side import (
    Processes,
    Side,
    child_environment,
    devices_started,
    drafts_of,
    prepare_process,
    processes_needed,
    processes_of,
    shared_programs,
)
from parity.contract.splits import LeafSplit, StateSplit
from parity.contract.trainer import (
    PRECISIONS,
    QUANTITIES,
    Precision,
    StepRecord,
    Trainer,
    Validation,
    require_trainer,
    written_of,
)
from parity.contract.training import LossEvaluation, StateView, StepBatch, TrainerProbe, TrainingRun
from parity.contract.translation import (
    LeastSquares,
    Measured,
    Translation,
)

__all__ = [
    "PRECISIONS",
    "QUANTITIES",
    "Divergence",
    "DropoutMasks",
    "Evaluation",
    "Gather",
    "Inputs",
    "Island",
    "LeafSplit",
    "LeastSquares",
    "LossEvaluation",
    "Measured",
    "ModelProbe",
    "ModuleCall",
    "OperationArrays",
    "OperationEdit",
    "Pace",
    "Place",
    "Precision",
    "Processes",
    "ProgramOperation",
    "RunIdentity",
    "RunPlan",
    "Side",
    "StateSplit",
    "StateView",
    "StepBatch",
    "StepRecord",
    "TracedProgram",
    "Trainer",
    "TrainerProbe",
    "TrainingRun",
    "Translation",
    "Validation",
    "WayBack",
    "WayPoint",
    "Weigh",
    "call_with",
    "child_environment",
    "devices_started",
    "drafts_of",
    "expression_at",
    "first_divergence",
    "flatten_tables",
    "gather_values",
    "nest_fields",
    "parse_toml",
    "prepare_process",
    "processes_needed",
    "processes_of",
    "read_records",
    "record_line",
    "require_trainer",
    "same",
    "shared_programs",
    "splice",
    "written_of",
]


if not TYPE_CHECKING:  # to a type checker a name that is not here is an error

    def __getattr__(name: str) -> object:
        """Give the names that are in `parity.state` now (PEP 562): trainers of others import them from here."""
        from parity import state

        if name in state.__all__:
            return getattr(state, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
