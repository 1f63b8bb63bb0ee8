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
from parity.checks.models.opening import Opened, arguments, open_subjects

__all__ = [
    "MapBrokenError",
    "MappedModels",
    "Opened",
    "arguments",
    "assert_same_model",
    "map_models",
    "map_opened",
    "open_subjects",
    "opened_models",
]
