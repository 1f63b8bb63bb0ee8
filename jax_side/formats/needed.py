"""What is asked of Orbax beyond the pages of its manual; a version that lacks any of it is refused in one line."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import orbax.checkpoint as ocp

from parity.errors import CheckpointError

__all__ = ["NEEDED", "check_orbax"]

NEEDED = (
    *("PyTreeCheckpointHandler.async_save", "PyTreeCheckpointHandler.finalize", "PyTreeCheckpointHandler.typestr"),
    *("path.atomicity.AtomicRenameTemporaryPath.finalize", "path.atomicity.AtomicRenameTemporaryPath.get_final"),
    "path.step.standard_name_format",
    *("type_handlers.NumpyHandler", "type_handlers.create_type_handler_registry", "type_handlers.get_type_handler"),
    *("handlers.DefaultCheckpointHandlerRegistry", "CompositeOptions", "AsyncOptions"),
    *("checkpoint_utils.construct_restore_args", "utils.is_empty_or_leaf", "PLACEHOLDER"),
)
"""Names below `orbax.checkpoint`."""

TESTED = "0.12.5 to 0.12.8"
"""The oldest and the newest version that the tests ran with, which are the bounds of pyproject.toml."""


def check_orbax(names: Iterable[str] = NEEDED) -> None:
    """Refuse a version of Orbax that lacks what is asked of it, before anything is saved or restored.

    Raises:
        CheckpointError: It lacks some; names each.
    """
    if lost := [name for name in names if not _has(name)]:
        raise CheckpointError(
            f"orbax-checkpoint {version('orbax-checkpoint')} lacks {', '.join(lost)}; {TESTED} are tested: "
            "pip install 'parity-suite[jax]'"
        )


def _has(name: str) -> bool:
    found: Any = ocp
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True
