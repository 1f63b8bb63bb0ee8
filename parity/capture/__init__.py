"""Capture of live state: what any training loop can reach, as one flat list of leaves; nothing is changed.

Knows the kinds of the standard library and of NumPy; those of a framework are registered by its side.
"""

from parity.capture import code as _code  # noqa: F401 - registers its kinds
from parity.capture import weak as _weak  # noqa: F401 - the same
from parity.capture.arrays import array_leaf, digest_of, role_of_array, without_padding
from parity.capture.attributes import attributes_of
from parity.capture.frames import Scope, ambient, capture, frames_of, outer_scopes, scopes_of
from parity.capture.iterators import NOT_BEGUN
from parity.capture.kinds import TRAINED
from parity.capture.leaf import HARD, Extent, Leaf, PathLeaves, Role, StateSnapshot, differing, root_of
from parity.capture.liveness import live_names
from parity.capture.marks import Region, activate, evaluation, mark, saving
from parity.capture.modules import is_library_file, is_of_user
from parity.capture.names import component_from_name, slot_component
from parity.capture.probes import without_places
from parity.capture.process import OTHERS
from parity.capture.registry import Visit, kind_of, register
from parity.capture.walk import Walk
from parity.capture.whole import whole_of

__all__ = [
    "HARD",
    "NOT_BEGUN",
    "OTHERS",
    "TRAINED",
    "Extent",
    "Leaf",
    "PathLeaves",
    "Region",
    "Role",
    "Scope",
    "StateSnapshot",
    "Visit",
    "Walk",
    "activate",
    "ambient",
    "array_leaf",
    "attributes_of",
    "capture",
    "component_from_name",
    "differing",
    "digest_of",
    "evaluation",
    "frames_of",
    "is_library_file",
    "is_of_user",
    "kind_of",
    "live_names",
    "mark",
    "outer_scopes",
    "register",
    "role_of_array",
    "root_of",
    "saving",
    "scopes_of",
    "slot_component",
    "whole_of",
    "without_padding",
    "without_places",
]
