"""Checks of two models: which leaf is which by what they do, the proof of that map, and where the two part.

Knows no framework: models are `parity.contract.ModelProbe`, functions of named leaves in float64.
"""

from parity.checks.models.draws import drawn
from parity.checks.models.inputs import BothInputs, both_inputs
from parity.checks.models.mapping import with_rules
from parity.checks.models.maps import (
    MapBrokenError,
    MappedModels,
    assert_same_model,
    map_models,
    map_opened,
    opened_models,
)
from parity.checks.models.nearer import nearer_rules
from parity.checks.models.opening import ModelSource, arguments, open_subjects
from parity.checks.models.ordered import crossed_joins
from parity.checks.models.parting import Parting
from parity.checks.models.partings import find_parting, parting_of
from parity.checks.models.proof import NOISE, carried, placed, prove
from parity.checks.models.subjects import Subjects

__all__ = [
    "NOISE",
    "BothInputs",
    "MapBrokenError",
    "MappedModels",
    "ModelSource",
    "Parting",
    "Subjects",
    "arguments",
    "assert_same_model",
    "both_inputs",
    "carried",
    "crossed_joins",
    "drawn",
    "find_parting",
    "map_models",
    "map_opened",
    "nearer_rules",
    "open_subjects",
    "opened_models",
    "parting_of",
    "placed",
    "prove",
    "with_rules",
]
