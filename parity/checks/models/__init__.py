"""Checks of two models: which leaf is which by what they do, the proof of that map, and where the two part.

Knows no framework: models are `parity.contract.ModelProbe`, functions of named leaves in float64.
"""

from parity.checks.models.maps import (
    MapBrokenError,
    MappedModels,
    assert_same_model,
    map_models,
    map_opened,
    opened_models,
)
from parity.checks.models.opening import ModelSource, arguments, open_subjects
from parity.checks.models.parting import Parting
from parity.checks.models.partings import find_parting, parting_of

__all__ = [
    "MapBrokenError",
    "MappedModels",
    "ModelSource",
    "Parting",
    "arguments",
    "assert_same_model",
    "find_parting",
    "map_models",
    "map_opened",
    "open_subjects",
    "opened_models",
    "parting_of",
]
