"""The attributes that PyTorch gives a state dict beside its items: the versions of the modules' state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parity.formats.numpy_pickled import ReadOtherwise

__all__ = ["StateDict"]


class StateDict(dict[Any, Any]):
    """A dict that takes the attributes of its pickle: `_metadata` of `Module.state_dict()`, which is counted."""

    def __init__(self, items: Mapping[Any, Any], otherwise: ReadOtherwise) -> None:
        super().__init__(items)
        self.otherwise = otherwise

    def set_state(self, state: Any) -> None:
        """Count the versions of modules that a state dict without them would load otherwise, and other attributes."""
        found = state if isinstance(state, dict) else {"": state} if state else {}
        versions = found.get("_metadata")
        self.otherwise.of_dicts += any(key != "_metadata" for key in found)
        for name, one in versions.items() if isinstance(versions, dict) else ():
            # A module of version 1 reads no version, and one of BatchNorm only where its count of batches is missing.
            counted = one == {"version": 2} and f"{name}.num_batches_tracked".lstrip(".") in self
            if one and one != {"version": 1} and not counted:
                self.otherwise.versions.append(str(name))
